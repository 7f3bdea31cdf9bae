/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - the processes of one host: started, watched, signalled, and none left behind.
 *
 * Each rank leads a process group of its own and dies with its agent (PR_SET_PDEATHSIG).  The agent is a subreaper, so
 * that what ranks leave behind becomes its child and is found.  One thread: the one that starts ranks must be the one
 * that lives as long as the agent. */
#ifndef RINGRUN_RANKS_H
#define RINGRUN_RANKS_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "protocol.h"
#include "stream.h"

struct rank {
    uint32_t number;
    pid_t pid; /* 0: not running */
    bool over; /* ended, how and value are set */
    bool shut; /* all that it wrote has been sent */
    enum ended how;
    uint32_t value;
    struct stream out[2];
};

/* What a rank gets back that the agent has changed for itself. */
struct original {
    sigset_t mask;
    struct rlimit files;
};

enum { SETTLE_MS = 100 };

struct ranks {
    struct rank *list;
    uint32_t count;
    uint32_t *ended, ended_count; /* indices of those that are over, in the order in which they ended */
    uint64_t settle_by;           /* do not wait longer; 0: not waiting */
    int failed[2];                /* a rank that cannot start says so here */
};

/* Start the ranks of this place.  env[i]: rank i's environment.  *input_out: the writing end of rank 0's standard
 * input, -1 when it is not here.  Failures are marked in the rank. */
void ranks_start(struct ranks *r, const struct job *job, char ***env, const struct original *original, int *input_out);
/* Collect those that have ended; `first`: which was the first, as far as is known, else 0. */
void ranks_reap(struct ranks *r, pid_t first);
/* The ends from `told` on may be told: there is no rank that began to end before the last of them and is not collected
 * yet (its sockets close first, the others see it, and may be faster).  Puts those that died by a signal before those
 * that exited, because a rank that exits may well do so because another died. */
bool ranks_settled(struct ranks *r, uint32_t told);
void ranks_signal(struct ranks *r, int signal);

/* Kill and reap all children of this process, also those that they leave behind. */
void kill_children(void);

#endif
