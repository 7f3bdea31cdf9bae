/* SPDX-License-Identifier: Apache-2.0 */
/* all_to_all_pairwise.c - every rank sends each other rank its block, straight from SRC to DST.
 *
 * Least bytes; n - 1 messages a rank, no step waits for another.  The k-th goes k ranks on, so that at no time all send
 * to the same one.  Only two ranks know how long a block is, so an empty one is announced by a token: nobody is done
 * before all have come, and a length they disagree on is found. */
#include "lib/coll/coll.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, me = a->rank;
    const struct ri_span tokens = ri_tmp(s, n);
    ri_copy(s, ri_bytes_of(a, RI_DST, ri_dst_block(a, me)), ri_bytes_of(a, RI_SRC, ri_src_block(a, me)), RI_NONE);
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t to = (me + k) % n, from = (me + n - k) % n;
        const struct ri_cut out = ri_src_block(a, to), in = ri_dst_block(a, from);
        const size_t leave = ri_segments(a, out.count), arrive = ri_segments(a, in.count);
        for (size_t i = 0; (i < leave || i < arrive) && s->status == RING_OK; i++) {
            if (i < leave)
                ri_send(s, to, ri_piece(a, RI_SRC, out, leave, i, tokens, me), RI_NONE);
            if (i < arrive)
                ri_recv(s, from, ri_piece(a, RI_DST, in, arrive, i, tokens, from), RI_NONE);
        }
    }
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const size_t count = a->variable ? 0 : a->count; /* not all know */
    return ri_cost_direct(a, m, (double)ri_segments(a, count), (double)count * a->esize);
}

const struct ri_algorithm ri_algorithm_all_to_all_pairwise = {
    .name = "pairwise",
    .help = "every rank sends each other rank its block: n-1 messages, least bytes",
    .coll = RING_ALL_TO_ALL,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
