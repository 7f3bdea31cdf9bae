/* SPDX-License-Identifier: Apache-2.0 */
/* reach.h - agents, as ringrun sees them: started here by fork, on other hosts by ssh or what replaces it.
 *
 * The remote command is "RINGRUN --agent", two words and the same for every job: arguments, environment and folder
 * travel through the channel and are never seen by a shell. */
#ifndef RINGRUN_REACH_H
#define RINGRUN_REACH_H

#include <sys/types.h>

#include "channel.h"
#include "hosts.h"
#include "ranks.h"

struct link {
    uint32_t place;
    bool local;
    char *command; /* for messages: "ssh"; "fork" for a local one */
    pid_t pid;     /* of the agent or of ssh; 0: reaped */
    int status;    /* from waitpid */
    struct channel ch;
    bool hello; /* it has answered */
    bool lost;  /* it went before its time */
};

/* This host, by any of its names. */
bool reach_is_here(const char *host);
/* Both: NULL when good, else a sentence. */
char *reach_local(struct link *l, const struct original *original);
char *reach_remote(struct link *l, char *const *rsh, const char *host, const struct original *original);
/* The agent or ssh has ended: its status; waits `ms` at most. false: still there. */
bool reach_ended(struct link *l, int ms);
void reach_close(struct link *l); /* kills what is still there */

#endif
