/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - collectives among ranks that share memory, by direct loads and stores.
 *
 * All ranks of a node map one segment (lib/base/seg.h).  No messages and no schedule: one-shot for small (every rank
 * reads everybody), two-shot for large (each rank reduces its share from everybody and everybody fetches the result),
 * payload and sequence number in one cache line for the smallest.  Buffers of the caller are plain private memory: they
 * pass through slots in the segment, or are read by the peers in one copy (process_vm_readv) where that works and pays.
 *
 * The caller (lib/comm) makes the segment, hands out its descriptor, and decides whether all ranks could map it.
 * Operations of a node are done one after the other, in the order they are begun.  Nothing here waits except
 * ri_node_wait(); every value read from the segment is checked before it is used as an index or a length. */
#ifndef RI_NODE_H
#define RI_NODE_H

#include "lib/base/call.h"
#include "lib/base/wait.h"
#include "lib/reduce/reduce.h"

struct ri_heap_view;
struct ri_node; /* one rank's view of its node */

struct ri_node_setup {
    uint32_t rank, size; /* among the ranks of the node */
    void *base;          /* of the segment, zeroed when fresh; ri_node_bytes(size) bytes, 4096-aligned */
    const ri_abort_word *abort;
    struct ri_patience patience;
    const int32_t *pids;    /* of the node's ranks, as this process sees them; 0: not visible */
    bool one_process;       /* all ranks are threads of this process                          */
    const uint32_t *groups; /* which ranks are near each other (NUMA node, cache): equal numbers; NULL: all are */
    const struct ri_heap_view *heaps; /* of every rank, as this process sees it (heap.h); NULL: none */
    int cma;                          /* RI_CMA_AUTO, RI_CMA_ON, RI_CMA_OFF                              */
    /* The ranks disagree: peer (of the node) announced `theirs` where this rank announced `mine`.  Called at most once
     * per operation, which then fails with RING_ERR_MISMATCH. */
    void (*mismatch)(void *owner, uint32_t peer, const struct ri_call *mine, const struct ri_call *theirs);
    /* Called about every 100 ms of one long wait, by the thread that waits; may be NULL. */
    void (*stalled)(void *owner, uint64_t waited_ns);
    void *owner;
};

enum { RI_NODE_RANKS_MAX = 4096 };

/* Bytes of the segment for `size` ranks; 0 when there are too many. */
size_t ri_node_bytes(uint32_t size);

/* Begins with the segment as made; what setup points to must stay, setup itself need not. */
ring_status_t ri_node_open(const struct ri_node_setup *setup, struct ri_node **node_out);
void ri_node_close(struct ri_node *node); /* NULL is fine */

/* Collective, once, after all have opened and before the first call: find out whether the ranks can read each other's
 * memory and at which sizes that pays, and agree on it.  Takes about 3 ms; without it calls go through slots.
 * RING_ERR_UNSUPPORTED on all ranks when RI_CMA_ON was asked for and does not work; else as ri_node_run(). */
ring_status_t ri_node_probe(struct ri_node *node, uint64_t deadline);

/* What a call will use: "line", "one-shot", "two-shot", "slots", "cma", "direct", "self"; for ring_info and
 * tests. Static text. */
const char *ri_node_path(const struct ri_node *node, const struct ri_call *call);

/* One call from beginning to end on the caller's thread; the fast path.  Every collective but send and recv; a call
 * with arrays when they are there; a barrier counts nothing.  red: of an operation of the user's, else NULL; it stays
 * until the call is complete.  timeout: nanoseconds, RI_NEVER for none; the clock is looked at only when a peer is
 * late, as that would be a fifth of the shortest call. RING_OK, RING_ERR_ABORTED (abort word), RING_ERR_TIMEOUT,
 * RING_ERR_MISMATCH; RING_ERR_PEER_LOST when a peer was gone as its memory was read, RING_ERR_SYSTEM when it could not
 * be read.  Any error is final for the node. */
ring_status_t ri_node_run(struct ri_node *node, const struct ri_call *call, const struct ri_reduction *red,
                          uint64_t timeout);
/* A hash of all calls so far; equal on all ranks that have made the same. */
uint64_t ri_node_history(const struct ri_node *node);

/* The same in pieces, for operations in flight: begin, then step until it is not RING_OK-and-not-done.  One operation
 * at a time.  step never waits. */
void ri_node_begin(struct ri_node *node, const struct ri_call *call, const struct ri_reduction *red);
ring_status_t ri_node_step(struct ri_node *node, bool *done_out, bool *moved_out);
/* Sleep until the operation under way may go on, at most ms; a ri_sleep_fn with arg = node.  Calls stalled(). */
void ri_node_sleep(void *node, int ms);

/* Which ranks keep the current operation waiting (bit r of word r/64): those that have not come to it, or when all
 * have, those that are behind in it.  For stall reports, on the thread that waits. */
void ri_node_missing(const struct ri_node *node, uint64_t *bits, size_t words);

#endif
