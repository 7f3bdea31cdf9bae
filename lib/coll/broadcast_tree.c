/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast_tree.c - segments go down two binary trees in turns (tree.h).
 *
 * log2(n) hops, and each rank sends and receives the buffer about once, so long messages take hardly longer than
 * between two ranks, and a short one as long as its hops.  No scratch memory. */
#include "lib/coll/tree.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_tree t[RI_TREES] = {ri_tree_of(a, a->root, 0), ri_tree_of(a, a->root, 1)};
    const size_t segments = ri_segments(a, a->count);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++)
        ri_pass_down(s, a, &t[i % RI_TREES], segments, i);
    ri_keep_own(s, a);
    return ri_sched_done(s);
}

/* The last segment leaves the root when all others have; inner nodes pass two copies of every other segment on. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double depth = ri_tree_depth(a->size), segments = (double)ri_segments(a, a->count);
    const double bytes = (double)a->count * a->esize, first = bytes / segments, copies = a->size > 3 ? 2 : 1;
    return depth ? depth * ri_cost_of(m, copies, copies * first) + (segments - 1) * (2 * m->message + m->byte * first)
                 : 0;
}

const struct ri_algorithm ri_algorithm_broadcast_tree = {
    .name = "tree",
    .help = "segments go down two binary trees in turns: log2(n) hops; for all but few ranks",
    .coll = RING_BROADCAST,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
