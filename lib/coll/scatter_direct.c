/* SPDX-License-Identifier: Apache-2.0 */
/* scatter_direct.c - the root sends every rank its block, straight from SRC to DST.
 *
 * Least bytes in one step, n - 1 messages from the root.  Works for blocks that differ: only the root and the rank
 * itself need to know how long one is.  An empty block is not announced, and its rank is done at once. */
#include "lib/coll/coll.h"

static void hand_out(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut own = ri_src_block(a, a->rank);
    for (uint32_t k = 1; k < a->size; k++) {
        const uint32_t to = (a->rank + k) % a->size;
        const struct ri_cut block = ri_src_block(a, to);
        const size_t segments = ri_segments(a, block.count);
        for (size_t i = 0; i < segments && s->status == RING_OK; i++)
            ri_send(s, to, ri_segment(a, RI_SRC, block, segments, i), RI_NONE);
    }
    ri_copy(s, ri_bytes_of(a, RI_DST, (struct ri_cut){0, own.count}), ri_bytes_of(a, RI_SRC, own), RI_NONE);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const size_t segments = ri_segments(a, a->count);
    if (a->rank == a->root)
        hand_out(s, a);
    for (size_t i = 0; a->rank != a->root && i < segments && s->status == RING_OK; i++)
        ri_recv(s, a->root, ri_segment(a, RI_DST, (struct ri_cut){0, a->count}, segments, i), RI_NONE);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const size_t count = a->variable ? 0 : a->count; /* not all know */
    const double others = a->size - 1;
    return ri_cost_of(m, others * (double)ri_segments(a, count), others * (double)count * a->esize);
}

const struct ri_algorithm ri_algorithm_scatter_direct = {
    .name = "direct",
    .help = "the root sends every rank its block: one step, n-1 messages from there",
    .coll = RING_SCATTER,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
