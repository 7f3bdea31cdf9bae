/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_tree.c - up and down two binary trees (tree.h), for medium messages among many ranks.
 *
 * Segments go through both trees in turns, up to the root, where they are complete, and down again.  Inner nodes of one
 * tree are leaves of the other, so each rank sends and receives about twice the buffer, as in a ring, but the way is
 * only 2 log2(n) hops long (Sanders, Speck and Traeff, Parallel Computing 35(12), 2009).
 *
 * All up comes first in the program and then all down: where a link is used for both, that order is the same at its two
 * ends, and the ways up alone fill both directions of it.  The result is made on one rank and copied, so all get the
 * same bits.  No scratch memory: sums are written to DST. */
#include "lib/coll/tree.h"

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    size_t segments;
    struct ri_tree tree[RI_TREES];
    ri_step_id *up; /* by segment: what sent it to the parent; on the root, what made it */
};

static struct ri_span segment(const struct plan *p, enum ri_slot slot, size_t i)
{
    return ri_segment(p->a, slot, (struct ri_cut){0, p->a->count}, p->segments, i);
}

static void go_up(struct plan *p, size_t i)
{
    const struct ri_tree *t = &p->tree[i % RI_TREES];
    ri_step_id sum = RI_NONE;
    for (uint32_t c = 0; c < t->children; c++) {
        sum = ri_recv_reduce(p->s, t->child[c], segment(p, RI_DST, i), segment(p, c ? RI_DST : RI_SRC, i), sum);
        if (t->before[c])
            ri_swap(p->s, sum);
    }
    p->up[i] = t->parent == RI_NONE ? ri_final(p->s, sum)
                                    : ri_send(p->s, t->parent, segment(p, t->children ? RI_DST : RI_SRC, i), sum);
}

static void go_down(struct plan *p, size_t i)
{
    const struct ri_tree *t = &p->tree[i % RI_TREES];
    ri_step_id come = p->up[i];
    if (t->parent != RI_NONE)
        come = ri_recv(p->s, t->parent, segment(p, RI_DST, i), come);
    for (uint32_t c = 0; c < t->children; c++)
        ri_send(p->s, t->child[c], segment(p, RI_DST, i), come);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    struct plan p = {.s = s, .a = a, .segments = ri_segments(a, a->count)};
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    for (unsigned which = 0; which < RI_TREES; which++)
        p.tree[which] = ri_tree_of(a, ri_rank_at(a, 0), which);
    p.up = ri_ids(s, p.segments);
    for (size_t i = 0; i < p.segments && s->status == RING_OK; i++)
        go_up(&p, i);
    for (size_t i = 0; i < p.segments && s->status == RING_OK; i++)
        go_down(&p, i);
    return ri_sched_done(s);
}

/* The first segment's way there and back, on which an inner node takes two and hands two out, and behind it the others
 * at the pace of a link. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double bytes = (double)a->count * a->esize, segments = (double)ri_segments(a, a->count);
    const double depth = ri_tree_depth(a->size), first = bytes / segments;
    return 2 * depth * (m->latency + 4 * m->message + 2 * m->byte * first) + depth * m->reduce_byte * first +
           (bytes - first) * (2 * m->byte + m->reduce_byte) + 2 * m->message * 4 * (segments - 1);
}

const struct ri_algorithm ri_algorithm_all_reduce_tree = {
    .name = "tree",
    .help = "up and down two binary trees, in segments: 2 log2(n) hops; for medium messages among many ranks",
    .coll = RING_ALL_REDUCE,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
