/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_scatter_direct.c - every rank sends each other rank its block, and combines what comes for its own.
 *
 * One step and least bytes, summed strictly in rank order with one rounding (collect.h); but n - 1 links a rank.  An
 * empty block is announced by a token, so that nobody is done before all have come. */
#include "lib/coll/collect.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, me = a->rank;
    const struct ri_cut own = ri_src_block(a, me);
    s->ranks = n;
    if (n == 1)
        return ri_build_own(s, a);
    const struct ri_span tokens = ri_tmp(s, n);
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t to = (me + k) % n, from = (me + n - k) % n;
        const struct ri_cut block = ri_src_block(a, to);
        const size_t segments = ri_segments(a, block.count);
        for (size_t i = 0; i < segments && s->status == RING_OK; i++)
            ri_send(s, to, ri_piece(a, RI_SRC, block, segments, i, tokens, me), RI_NONE);
        if (!own.count)
            ri_recv(s, from, (struct ri_span){RI_TMP, tokens.off + from, 1}, RI_NONE);
    }
    ri_collect(s, a, own, 0, NULL, NULL);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const size_t longest = ri_longest(a, a->scounts);
    const double bytes = (double)longest * a->esize;
    return ri_cost_direct(a, m, (double)ri_segments(a, longest), bytes) + (a->size - 1) * m->reduce_byte * bytes;
}

const struct ri_algorithm ri_algorithm_reduce_scatter_direct = {
    .name = "direct",
    .help = "every rank gets its block from all others and adds up in rank order: one step; for few ranks",
    .coll = RING_REDUCE_SCATTER,
    .ordered = true,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
