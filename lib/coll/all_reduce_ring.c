/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_ring.c - the ring of all ranks (ring.h) over the whole buffer, for large messages.
 *
 * Places in the ring are those of layout->order, so that each host has one way in and one way out however many ranks it
 * has. */
#include "lib/coll/ring.h"
#include "lib/coll/tree.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, place = ri_position_of(a, a->rank);
    const struct ri_ring ring = {.size = n,
                                 .place = place,
                                 .next = ri_rank_at(a, (place + 1) % n),
                                 .prev = ri_rank_at(a, (place + n - 1) % n),
                                 .part = {0, a->count},
                                 .segments = ri_segments(a, ri_cut_of(a->count, n, 0).count),
                                 .own = RI_SRC};
    s->ranks = n;
    if (n == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    ri_ring_laps(s, a, &ring);
    return ri_sched_done(s);
}

/* Each step has to wait for its first segment, which no other work of the same lap hides in the first one. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const struct ri_cut chunk = ri_cut_of(a->count, a->size, 0);
    const double steps = a->size - 1, bytes = (double)chunk.count * a->esize;
    const double first = bytes < (double)a->seg ? bytes : (double)a->seg;
    return steps * (2 * (m->latency + 2 * m->message * (double)ri_segments(a, chunk.count) + m->byte * bytes) +
                    m->reduce_byte * bytes) +
           m->byte * first;
}

const struct ri_algorithm ri_algorithm_all_reduce_ring = {
    .name = "ring",
    .help = "ring of all ranks (Patarasuk and Yuan): least bytes, 2(n-1) steps; for large messages",
    .coll = RING_ALL_REDUCE,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
