/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - what engine.c and run.c share: the insides of an engine and of its runs.  Nobody else includes it. */
#ifndef RI_RUN_H
#define RI_RUN_H

#include "lib/sched/engine.h"

struct lane;

/* A transfer and whose it is; x comes first, so that a finished transfer leads back here. */
struct message {
    struct ri_xfer x;
    struct stream *stream;
    uint32_t step; /* RI_NONE: the signature */
    bool busy;     /* the transport has it   */
};

/* One run's messages to, or from, one peer; count is 0 when there are none, and then there is no signature either. */
struct stream {
    struct lane *lane;
    const uint32_t *step; /* steps in program order      */
    uint32_t count, next; /* how many; next to be posted */
    uint64_t bytes;       /* of all of them              */
    bool receives, introduced, dirty;
    uint32_t slot, slots; /* the window is a ring of messages: transfers complete in posting order */
    struct message *window;
    struct message signature;
    struct stream *next_dirty;
    struct stream *behind; /* the next run's on the same link */
};

/* One run's use of one link. */
struct lane {
    struct ri_run *run;
    uint32_t peer, link;
    struct ri_link *wire; /* NULL: nothing was posted yet                         */
    const struct ri_transport *transport;
    bool agreed;             /* the peer's signature has come and is as expected     */
    uint32_t messages, left; /* signatures included; not finished                    */
    struct ri_signature mine, theirs;
    struct stream way[2]; /* [0] sends, [1] receives */
};

struct ri_run {
    struct ri_engine *engine;
    const struct ri_sched *program;
    ring_status_t status;
    uint32_t culprit;
    uint32_t left;             /* steps and signatures not complete */
    uint8_t *waits;            /* per step: unfinished steps it waits for */
    struct stream **stream_of; /* per step; NULL for local work and for what has no bytes */
    struct ri_reduction reduction;
    unsigned eshift; /* element size as a shift */
    char *base[3];   /* by slot */

    struct lane *lane;
    uint32_t lanes, signatures;

    /* Ready steps that are not messages: from the front those with work, oldest first; from the end those that have no
     * bytes, until their successors were told.  A step enters once, so they neither wrap nor meet. */
    uint32_t *local;
    uint32_t local_head, local_tail, empty;
    size_t local_done; /* bytes of the oldest that are done */
    bool busy;         /* in the engine's list of runs with local work */
    struct ri_run *next_busy;

    struct ri_signature mine;
    uint64_t number; /* in start order */
    bool active;     /* in the engine's list */
    struct ri_run *next, *prev;

    uint8_t *waits_at_start;
    uint32_t *order; /* the streams' steps */
    uint32_t *first_local;
    uint32_t first_locals;
    const void **operand;     /* of the combining step at work */
    struct message *messages; /* the streams' windows */
};

/* A link as the engine sees it. */
struct channel {
    struct stream *head[2], *tail[2]; /* by direction: streams that still have something to post, in start order */
    ring_status_t status;             /* why it cannot be used                                                   */
    uint32_t culprit;
    uint64_t from; /* number of the first run that cannot use it */
};

struct ri_engine {
    struct ri_engine_setup setup;
    uint64_t started;
    struct ri_run *first, *last; /* under way, in start order; failed ones stay until freed */
    struct ri_run *busy, **busy_tail;
    struct stream *dirty;
    struct channel channel[];
};

#endif
