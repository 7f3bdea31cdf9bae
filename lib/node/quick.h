/* SPDX-License-Identifier: Apache-2.0 */
/* quick.h - calls in a straight line, for the caller who waits while everybody is on time: quick.c for what fits into
 * lines, uneven.c for that with arrays, again.c for an all-reduce of the same shared buffers as the last one. */
#ifndef RI_NODE_QUICK_H
#define RI_NODE_QUICK_H

#include "lib/node/node.h"
#include "lib/node/segment.h"

/* What is the same for all calls that differ in their buffers only, as the last call of a collective (quick.c). */
struct plan {
    ring_coll_t coll;
    ring_dtype_t dtype;
    ring_redop_t redop;
    uint32_t root;
    size_t count;
    bool fits; /* what is given fits into lines, and nothing else is to be said */
    bool personal, combines, hears_all, gives, takes;
    uint32_t looks;  /* before a peer counts as late */
    uint32_t sig;    /* in the line, with the kind   */
    uint64_t hashed; /* of count and sig             */
    size_t bytes, share;
    const struct ri_reduction *red;
};
enum { PLANS = 16 };

/* The last all-reduce on buffers that all ranks reach (again.c). */
struct again {
    struct ri_call call;
    size_t count;          /* as in call; 0: there was none that can be done again */
    struct place *places;  /* of every rank: src, dst */
    const void **operands; /* of the own share, by rank */
    void **results;
    size_t share; /* elements of it */
    const struct ri_reduction *red;
    uint32_t sig;            /* in the line, with the kind   */
    uint64_t hashed;         /* of count and sig             */
    uint32_t version, looks; /* of the heap; before a peer counts as late */
};

enum quick_end {
    QUICK_NOT,       /* nothing is done                                    */
    QUICK_ANNOUNCED, /* operation node->seq is announced, and nothing else */
    QUICK_LEAVING,   /* all is done here, but not everywhere               */
    QUICK_DONE,
};
enum quick_end ri_node_quick(struct ri_node *node, const struct ri_call *call);
enum quick_end ri_node_quick_uneven(struct ri_node *node, const struct ri_call *call);

enum quick_end ri_node_again(struct ri_node *node, const struct ri_call *call);
void ri_node_again_take_over(struct ri_node *node, enum quick_end end);
/* direct.c has heard everybody and stored the own share, bytes [at, at + bytes), in one piece. */
void ri_node_remember(struct ri_node *node, size_t at, size_t bytes);

/* Looks before a peer counts as late: about as long as lines take to come when everybody is on time; where ranks share
 * processors, what has not come does not come while this one looks. */
enum { LOOKS = 400, LOOKS_LONG = 3000, LOOKS_SHARED = 1 };
static inline uint32_t looks_for(struct ri_patience patience, uint32_t looks)
{
    return patience.spins ? looks : LOOKS_SHARED;
}
static inline bool comes(_Atomic uint32_t *word, uint32_t value, uint32_t looks)
{
    for (; atomic_load_explicit(word, memory_order_acquire) != value; looks--)
        if (!looks)
            return false;
    return true;
}

/* Does a line announce operation `seq` in time, as one with this signature and count? */
static inline bool says(struct line *line, uint32_t seq, uint32_t sig, uint64_t count, uint32_t looks)
{
    return comes(&line->seq, seq, looks) && atomic_load_explicit(&line->sig, memory_order_relaxed) == sig &&
           atomic_load_explicit(&line->count, memory_order_relaxed) == count;
}

#endif
