/* SPDX-License-Identifier: Apache-2.0 */
/* coll.h - algorithms as rows of a table, and the choice among them.
 *
 * An algorithm is a builder of programs (lib/sched/sched.h) plus its cost in the latency-bandwidth model, one file
 * each, ending in one const row; the build generates the table from the list of files. */
#ifndef RI_COLL_H
#define RI_COLL_H

#include "lib/base/call.h"
#include "lib/sched/sched.h"

struct ri_coll_args {
    uint32_t rank, size;
    size_t count;   /* elements                                    */
    uint32_t esize; /* bytes of an element                         */
    size_t seg;     /* bytes: longest message, a multiple of esize */
    uint32_t root;  /* or the peer of send and recv */
    bool variable;  /* blocks may differ in length; the same on all ranks, also on those that have no arrays */
    /* As in lib/base/call.h.  all_gather and reduce_scatter: the same on all ranks; else known to this rank alone, so
     * that neither fits() nor cost() may look into them. */
    const size_t *scounts, *sdispls, *rcounts, *rdispls;
    bool ordered;                   /* only algorithms that give the same bits whatever the sizes, segments and hosts */
    const struct ri_layout *layout; /* NULL: nothing is known, every rank has a host of its own */
};

/* Which ranks share a host.  The same on all ranks. */
struct ri_layout {
    uint32_t nodes;
    const uint32_t *node_of; /* by rank                                                                      */
    const uint32_t *order;   /* by position: the ranks, host by host, ascending within a host                */
    const uint32_t *first;   /* by node, and one more: the position of its first rank; first[nodes] is size  */
};

/* Seconds are too long here: nanoseconds, and nanoseconds per byte. */
struct ri_cost_model {
    double latency;      /* one empty message over the slowest link      */
    double byte;         /* one more byte of a message on it             */
    double near_latency; /* the same between ranks of one host           */
    double near_byte;
    double reduce_byte; /* reducing one byte                            */
    double message;     /* processor time to start one more message     */
    double link;        /* the same step over one more link; 0: unknown */
};

struct ri_algorithm {
    const char *name, *help;
    ring_coll_t coll;
    bool ordered; /* reduces strictly in the order of ranks and rounds once; says nothing where nothing is reduced */
    bool (*fits)(const struct ri_coll_args *a);
    double (*cost)(const struct ri_coll_args *a, const struct ri_cost_model *m); /* nanoseconds */
    ring_status_t (*build)(struct ri_sched *s, const struct ri_coll_args *a);
};
bool ri_fits_any(const struct ri_coll_args *a); /* for algorithms that do every shape */
extern const struct ri_algorithm *const ri_algorithms[]; /* generated; NULL-terminated */

const struct ri_algorithm *ri_algorithm_named(ring_coll_t coll, const char *name); /* NULL: there is none */

/* The cheapest that fits; `forced` (a name, or NULL) wins when it fits, otherwise the choice is free.  Never NULL for a
 * collective that has an algorithm for every shape. */
const struct ri_algorithm *ri_algorithm_choose(ring_coll_t coll, const struct ri_coll_args *a,
                                               const struct ri_cost_model *m, const char *forced);

/* What a call asks for, with the segment that suits it, at most `limit`; for algorithms that only look at what all
 * ranks know, the same on all.  layout may be NULL, and lives as long as the program is built. */
struct ri_coll_args ri_coll_args_for(const struct ri_call *call, uint32_t rank, uint32_t size,
                                     const struct ri_layout *layout, size_t limit);

/* The bytes of a call as ring_perf shows them: of all blocks together for collectives of blocks.  0 when not all ranks
 * know them (gather, scatter and all_to_all with blocks that differ). */
uint64_t ri_coll_bytes(ring_coll_t coll, const struct ri_coll_args *a);

/* The segment to use for a message of `bytes` cut among `parts` ranks: at most `limit`, a multiple of esize, and so
 * many that a program stays below some ten thousand steps (for the largest messages that goes before the limit). */
size_t ri_segment_for(size_t bytes, uint32_t parts, uint32_t esize, size_t limit);

/* Part `index` of `total` elements cut into `parts` as evenly as whole elements allow: the first ones get one more. */
static inline struct ri_cut ri_cut_of(size_t total, size_t parts, size_t index)
{
    const size_t base = total / parts, more = total % parts;
    return (struct ri_cut){index * base + (index < more ? index : more), base + (index < more)};
}

/* How many messages of at most a->seg bytes carry `count` elements; at least one. */
static inline size_t ri_segments(const struct ri_coll_args *a, size_t count)
{
    const size_t each = a->seg > a->esize ? a->seg / a->esize : 1;
    return count ? (count - 1) / each + 1 : 1;
}

/* Segment i of n of the elements of `cut`, as bytes of a slot. */
static inline struct ri_span ri_segment(const struct ri_coll_args *a, enum ri_slot slot, struct ri_cut cut, size_t n,
                                        size_t i)
{
    const struct ri_cut part = ri_cut_of(cut.count, n, i);
    return (struct ri_span){slot, (cut.begin + part.begin) * a->esize, part.count * a->esize};
}

/* The block of SRC for a rank, and the block of DST from one: collectives of blocks only. */
static inline struct ri_cut ri_src_block(const struct ri_coll_args *a, uint32_t rank)
{
    return ri_block_of(a->scounts, a->sdispls, a->count, rank);
}

static inline struct ri_cut ri_dst_block(const struct ri_coll_args *a, uint32_t rank)
{
    return ri_block_of(a->rcounts, a->rdispls, a->count, rank);
}

/* Elements of the longest block; counts as in ri_block_of(). */
size_t ri_longest(const struct ri_coll_args *a, const size_t *counts);

static inline struct ri_span ri_bytes_of(const struct ri_coll_args *a, enum ri_slot slot, struct ri_cut cut)
{
    return (struct ri_span){slot, cut.begin * a->esize, cut.count * a->esize};
}

/* Segment i of n of a block, or its token when the block is empty: one byte of scratch memory that travels instead
 * where no rank may be done before the others have come.  tokens: as many bytes as there are ranks. */
static inline struct ri_span ri_piece(const struct ri_coll_args *a, enum ri_slot slot, struct ri_cut block, size_t n,
                                      size_t i, struct ri_span tokens, uint32_t rank)
{
    return block.count ? ri_segment(a, slot, block, n, i) : (struct ri_span){RI_TMP, tokens.off + rank, 1};
}

/* Nanoseconds until `bytes` have come in `messages` messages. */
static inline double ri_cost_of(const struct ri_cost_model *m, double messages, double bytes)
{
    return m->latency + 2 * m->message * messages + m->byte * bytes;
}

/* The same when every rank sends `bytes` to each other rank at once: what a host with many ranks sends shares its way
 * out, and flows into one receiver get in each other's way a little. */
double ri_cost_direct(const struct ri_coll_args *a, const struct ri_cost_model *m, double messages, double bytes);

/* No elements: the algorithm's messages for one element, all in scratch memory, so that even then no rank is done
 * before all have come and agree. */
ring_status_t ri_build_tokens(struct ri_sched *s, const struct ri_coll_args *a,
                              ring_status_t (*build)(struct ri_sched *s, const struct ri_coll_args *a));

/* A broadcast's root gets what it sends; nothing anywhere else. */
void ri_keep_own(struct ri_sched *s, const struct ri_coll_args *a);

/* One rank, and no blocks: there is nothing to do but to copy. */
ring_status_t ri_build_alone(struct ri_sched *s, const struct ri_coll_args *a);

/* One rank, and blocks: its own from SRC to DST. */
ring_status_t ri_build_own(struct ri_sched *s, const struct ri_coll_args *a);

#endif
