/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_direct.c - every rank sends all it has to the root, which combines it in rank order with one rounding.
 *
 * One hop, and n - 1 times the bytes into the root (collect.h).  For small buffers among few ranks, and where the
 * result must not depend on anything but the operands. */
#include "lib/coll/collect.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut all = {0, a->count};
    const size_t segments = ri_segments(a, a->count);
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (a->rank == a->root)
        ri_collect(s, a, all, 0, NULL, NULL);
    for (size_t i = 0; a->rank != a->root && i < segments && s->status == RING_OK; i++)
        ri_send(s, a->root, ri_segment(a, RI_SRC, all, segments, i), RI_NONE);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double others = a->size - 1, bytes = others * (double)a->count * a->esize;
    return ri_cost_of(m, others * (double)ri_segments(a, a->count), bytes) + m->reduce_byte * bytes;
}

const struct ri_algorithm ri_algorithm_reduce_direct = {
    .name = "direct",
    .help = "the root gets everything from all and adds up in rank order: one hop; for small buffers, few ranks",
    .coll = RING_REDUCE,
    .ordered = true,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
