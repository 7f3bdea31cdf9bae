/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - runs programs (sched.h) over links (transports/transport.h).
 *
 * A run is one program with its buffers.  Several runs may be under way on the same links: they are kept in the order
 * they were started, and on every link the messages of an earlier run are posted before those of a later one, so that
 * all ranks agree on the order without tags.  The first message of a run on each link, in each direction in which the
 * program sends any bytes, is its signature, which also says how many bytes follow: whoever receives from a rank that
 * does not agree on the call finds out before it believes any data.  Nothing that a differing peer sent is written to
 * the caller's buffers.  Messages of no bytes are left out on both sides.
 *
 * Links may come late: setup.link[i] can be NULL when a run starts.  What wants to go there waits for
 * ri_engine_link_ready().
 *
 * Failure.  A failing link fails the runs that still need it; a run that fails fails the later ones that share a link
 * with it, because their messages would have come behind.  What a failed run has posted still points into it and into
 * the caller's buffers: both outlive the last call of the transports' progress().  Disconnecting does not touch them.
 *
 * Nothing here waits or allocates once a run exists.  An engine and its runs belong to one thread at a time. */
#ifndef RI_ENGINE_H
#define RI_ENGINE_H

#include "lib/reduce/reduce.h"
#include "lib/sched/sched.h"
#include "transports/transport.h"

/* What a rank says of its call; compared byte for byte with what the neighbour expects.  Travels little-endian as on
 * the machine; 40 bytes. */
struct ri_signature {
    uint32_t magic; /* RI_SIGNATURE_MAGIC */
    uint32_t seq;   /* number of the operation on its communicator */
    uint8_t coll, dtype, redop, algo;
    uint32_t root;
    uint64_t count;
    uint64_t extra; /* anything else that must agree, as a number */
    uint64_t bytes; /* that follow on this link; the engine fills it in */
};
enum { RI_SIGNATURE_MAGIC = 0x31676e72 };

struct ri_engine;
struct ri_run;

/* link_of(arg, peer): the link to a rank; the engine keeps no list of its own. */
struct ri_engine_setup {
    uint32_t rank;
    uint32_t links;              /* how many links there can be                                */
    struct ri_link *const *link; /* by link number; NULL: not yet there                        */
    uint32_t (*link_of)(const void *arg, uint32_t peer); /* link number of a rank                                 */
    const void *arg;
    /* A neighbour's signature is not what was expected; called once, then the run has failed with RING_ERR_MISMATCH.
     * mine.bytes is what the program receives from that peer. */
    void (*mismatch)(void *owner, uint32_t peer, const struct ri_signature *mine, const struct ri_signature *theirs);
    void *owner;
};
ring_status_t ri_engine_open(const struct ri_engine_setup *setup, struct ri_engine **engine_out);
void ri_engine_close(struct ri_engine *e);
/* setup.link[number] is there now: what waited for it goes on. */
void ri_engine_link_ready(struct ri_engine *e, uint32_t number);

/* A run for programs of this shape; reused through reset by the cache in lib/comm. The program must outlive it. */
ring_status_t ri_run_new(struct ri_engine *e, const struct ri_sched *program, struct ri_run **run_out);
/* Not under way, or failed.  NULL is fine. */
void ri_run_free(struct ri_run *run);

/* Begin: src and dst as the caller gave them (equal when in place).  The run has never run or is done.  reduction and
 * signature are copied. */
void ri_run_start(struct ri_run *run, const void *src, void *dst, const struct ri_reduction *reduction,
                  const struct ri_signature *signature);

/* RING_OK and done, RING_OK and not done, or how it failed (the first failure of any step). */
ring_status_t ri_run_state(const struct ri_run *run, bool *done_out);
/* After a failure: the rank whose link failed, UINT32_MAX when none did. */
uint32_t ri_run_culprit(const struct ri_run *run);

/* Give the engine what a transport's progress() returned, and let every run go as far as it can. > 0: something moved.
 */
unsigned ri_engine_progress(struct ri_engine *e, struct ri_queue *done);

/* For tests and stall reports: what the run waits for, e.g. "recv of 4096 bytes from rank 2 (step 17 of 40)". */
void ri_run_describe(const struct ri_run *run, char *text, size_t cap);

#endif
