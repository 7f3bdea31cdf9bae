/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather_direct.c - every rank sends its block to all others, and gets theirs where they belong.
 *
 * One step and least bytes, but n - 1 links and messages a rank, and on a host with many ranks each of them sends to
 * every other host: for few ranks.  No step waits for another.  An empty block is announced by a token. */
#include "lib/coll/coll.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, me = a->rank;
    const struct ri_cut own = {0, ri_dst_block(a, me).count};
    const size_t leave = ri_segments(a, own.count);
    const struct ri_span tokens = ri_tmp(s, n);
    ri_copy(s, ri_bytes_of(a, RI_DST, ri_dst_block(a, me)), ri_bytes_of(a, RI_SRC, own), RI_NONE);
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t to = (me + k) % n, from = (me + n - k) % n;
        const struct ri_cut theirs = ri_dst_block(a, from);
        const size_t arrive = ri_segments(a, theirs.count);
        for (size_t i = 0; (i < leave || i < arrive) && s->status == RING_OK; i++) {
            if (i < leave)
                ri_send(s, to, ri_piece(a, RI_SRC, own, leave, i, tokens, me), RI_NONE);
            if (i < arrive)
                ri_recv(s, from, ri_piece(a, RI_DST, theirs, arrive, i, tokens, from), RI_NONE);
        }
    }
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const size_t longest = ri_longest(a, a->rcounts);
    return ri_cost_direct(a, m, (double)ri_segments(a, longest), (double)longest * a->esize);
}

const struct ri_algorithm ri_algorithm_all_gather_direct = {
    .name = "direct",
    .help = "every rank sends its block to all others at once: one step; for few ranks",
    .coll = RING_ALL_GATHER,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
