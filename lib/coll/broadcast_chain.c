/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast_chain.c - segments go from rank to rank along layout->order.
 *
 * Every rank receives and sends the buffer once and has two neighbours, every host one way in and one way out; but the
 * first segment takes n - 1 hops.  For large buffers, above all when many ranks of a host share its way out. */
#include "lib/coll/tree.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_tree t = ri_chain_of(a, a->root);
    const size_t segments = ri_segments(a, a->count);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++)
        ri_pass_down(s, a, &t, segments, i);
    ri_keep_own(s, a);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double segments = (double)ri_segments(a, a->count), first = (double)a->count * a->esize / segments;
    const double hops = a->size - 1;
    return hops ? hops * ri_cost_of(m, 1, first) + (segments - 1) * (2 * m->message + m->byte * first) : 0;
}

const struct ri_algorithm ri_algorithm_broadcast_chain = {
    .name = "chain",
    .help = "segments go from rank to rank, host by host: neighbours only, n-1 hops; for large buffers",
    .coll = RING_BROADCAST,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
