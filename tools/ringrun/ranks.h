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
    bool told; /* ringrun knows */
    enum ended how;
    uint32_t value;
    struct stream out[2];
};

/* What a rank gets back that the agent has changed for itself. */
struct original {
    sigset_t mask;
    struct rlimit files;
};

struct ranks {
    struct rank *list;
    uint32_t count;
    int failed[2]; /* a rank that cannot start says so here */
};

/* Start the ranks of this place.  env[i]: rank i's environment.  *input_out: the writing end of rank 0's standard
 * input, -1 when it is not here.  Failures are marked in the rank. */
void ranks_start(struct ranks *r, const struct job *job, char ***env, const struct original *original, int *input_out);
/* Collect those that have ended. */
void ranks_reap(struct ranks *r);
void ranks_signal(struct ranks *r, int signal);
void ranks_free(struct ranks *r);

/* Kill and reap all children of this process, also those that they leave behind. */
void kill_children(void);

#endif
