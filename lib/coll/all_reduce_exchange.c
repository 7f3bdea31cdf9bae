/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_exchange.c - two ranks: each sends all it has and adds what the other sends.
 *
 * The same bytes on the link as the ring, in one step instead of two; but each rank adds the whole buffer where in the
 * ring it adds half.  So it is for small and medium messages.
 *
 * What arrives goes into a ring of scratch segments that stays in cache, and is added from there once the segment has
 * been sent: in place, the sum goes where the operand was.  The lower rank's operand comes first on both ranks, so both
 * get the same bits, and an average is rounded once. */
#include "lib/coll/coll.h"

enum { SLOTS = 8 }; /* scratch segments */

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t peer = !a->rank;
    const struct ri_cut all = {0, a->count};
    const size_t segments = ri_segments(a, a->count), slots = segments < SLOTS ? segments : SLOTS;
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    ri_step_id *used = ri_ids(s, slots); /* what last read a scratch segment */
    struct ri_span slot[SLOTS];
    for (size_t i = 0; i < slots; i++)
        slot[i] = ri_tmp(s, ri_segment(a, RI_SRC, all, segments, 0).len);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++) {
        const struct ri_span mine = ri_segment(a, RI_SRC, all, segments, i), sum = {RI_DST, mine.off, mine.len};
        const struct ri_span theirs = {RI_TMP, slot[i % slots].off, mine.len};
        const ri_step_id sent = ri_send(s, peer, mine, RI_NONE);
        const ri_step_id come = ri_recv(s, peer, theirs, used[i % slots]);
        used[i % slots] = ri_combine(s, sum, mine, theirs, 2, a->rank, 0, come);
        ri_final(s, ri_also(s, used[i % slots], sent));
    }
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a) { return a->size <= 2; }

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double bytes = (double)a->count * a->esize;
    return m->latency + 2 * m->message * (double)ri_segments(a, a->count) + (m->byte + m->reduce_byte) * bytes;
}

const struct ri_algorithm ri_algorithm_all_reduce_exchange = {
    .name = "exchange",
    .help = "two ranks exchange everything and both add: one step; for small and medium messages",
    .coll = RING_ALL_REDUCE,
    .ordered = true,
    .fits = fits,
    .cost = cost,
    .build = build,
};
