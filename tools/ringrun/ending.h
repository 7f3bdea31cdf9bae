/* SPDX-License-Identifier: Apache-2.0 */
/* ending.h - how a job ends: the exit code, who is named, and when the rest is told to go.  No I/O but sentences.
 *
 *   running --- a rank fails -----------> 5 s to end by themselves (they have seen it, and want to say so)
 *           --- it could not start,
 *               PMIx_Abort, --timeout --> at once
 *   then TERM to all ranks, 2 s later KILL, 3 s later ringrun gives up on hosts that do not answer.
 *           --- signal n to ringrun ----> n to all ranks, 2 s later KILL; a second signal: KILL at once
 * The first cause decides the exit code.  Two hosts' news may overtake each other: a rank that died by a signal counts
 * as first when it is heard of within 100 ms after a rank on another host that exited. */
#ifndef RINGRUN_ENDING_H
#define RINGRUN_ENDING_H

#include "output.h"
#include "protocol.h"

enum { SETTLE_ACROSS_MS = 100, GRACE_MS = 5000, TERM_MS = 2000, GIVE_UP_MS = 3000 };

struct end_of {
    bool over, shut, blamed; /* shut: no more output; blamed: it ended by itself, and not well */
    enum ended how;
    uint32_t value;
};

struct ending {
    const struct job *job;
    struct output *out;
    struct end_of *ranks;
    uint32_t left; /* ranks that are not shut */
    bool decided;  /* code is final */
    bool ours;     /* we have told the ranks to go: how they end means nothing */
    int code;
    uint64_t term_at, kill_at, give_up_at; /* UINT64_MAX: not set */
    uint32_t first;                        /* the rank that failed first, UINT32_MAX: none */
    uint64_t name_at;                      /* when it is named; UINT64_MAX: has been */
};

void ending_init(struct ending *e, const struct job *job, struct output *out);
void ending_free(struct ending *e);
/* A rank is over. */
void ending_rank(struct ending *e, uint32_t rank, enum ended how, uint32_t value);
void ending_shut(struct ending *e, uint32_t rank);
/* The job shall end: TERM after delay_ms.  The sentence is the caller's. */
void ending_begin(struct ending *e, int code, uint64_t delay_ms);
/* A signal to ringrun is being passed on to the ranks; false: it is the second one. */
bool ending_signal(struct ending *e, int code);
/* What is due: a signal for all ranks, or 0.  *give_up_out: stop waiting. */
int ending_due(struct ending *e, uint64_t now, bool *give_up_out);
uint64_t ending_next(const struct ending *e);
/* Name the other ranks that failed, in groups. */
void ending_summary(struct ending *e);

#endif
