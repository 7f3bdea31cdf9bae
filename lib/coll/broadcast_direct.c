/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast_direct.c - the root sends all it has to every rank: one hop, and n - 1 times the bytes out of the root.
 *
 * For small buffers among few ranks. */
#include "lib/coll/coll.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut all = {0, a->count};
    const size_t segments = ri_segments(a, a->count);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++) {
        if (a->rank != a->root)
            ri_recv(s, a->root, ri_segment(a, RI_DST, all, segments, i), RI_NONE);
        for (uint32_t k = 1; k < a->size && a->rank == a->root; k++)
            ri_send(s, (a->root + k) % a->size, ri_segment(a, RI_SRC, all, segments, i), RI_NONE);
    }
    ri_keep_own(s, a);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double others = a->size - 1;
    return ri_cost_of(m, others * (double)ri_segments(a, a->count), others * (double)a->count * a->esize);
}

const struct ri_algorithm ri_algorithm_broadcast_direct = {
    .name = "direct",
    .help = "the root sends everything to every rank: one hop; for small buffers among few ranks",
    .coll = RING_BROADCAST,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
