/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_tree.c - segments are added up on their way up two binary trees in turns (tree.h).
 *
 * log2(n) hops; each rank sends the buffer once and adds at most twice half of it.  The sums of a rank that is not the
 * root lie in a ring of scratch segments that stays in cache.  Operands keep the order of the trees, so the ranks' own
 * order where that is the layout's and the root is rank 0. */
#include "lib/coll/tree.h"

enum { SLOTS = 8 };

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    size_t segments, slots, turn;
    struct ri_span slot[SLOTS];
    ri_step_id sent[SLOTS]; /* what last read a slot */
};

/* Segment i: take in what the children have, and hand on the sum. */
static void add_up(struct plan *p, const struct ri_tree *t, size_t i)
{
    const struct ri_cut all = {0, p->a->count};
    const struct ri_span src = ri_segment(p->a, RI_SRC, all, p->segments, i);
    const bool top = t->parent == RI_NONE;
    const size_t slot = t->children && !top ? p->turn++ % p->slots : 0;
    const struct ri_span sum =
        top ? ri_segment(p->a, RI_DST, all, p->segments, i) : (struct ri_span){RI_TMP, p->slot[slot].off, src.len};
    ri_step_id last = top ? RI_NONE : p->sent[slot];
    for (uint32_t c = 0; c < t->children; c++) {
        last = ri_recv_reduce(p->s, t->child[c], sum, c ? sum : src, last);
        if (t->before[c])
            ri_swap(p->s, last);
    }
    if (top)
        ri_final(p->s, last);
    else if (t->children)
        p->sent[slot] = ri_send(p->s, t->parent, sum, last);
    else
        ri_send(p->s, t->parent, src, RI_NONE);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_tree t[RI_TREES] = {ri_tree_of(a, a->root, 0), ri_tree_of(a, a->root, 1)};
    struct plan p = {.s = s, .a = a, .segments = ri_segments(a, a->count)};
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    p.slots = p.segments < SLOTS ? p.segments : SLOTS;
    for (size_t i = 0; i < p.slots; i++) {
        const bool sums = a->rank != a->root && (t[0].children || t[1].children);
        p.slot[i] = ri_tmp(s, sums ? ri_segment(a, RI_SRC, (struct ri_cut){0, a->count}, p.segments, 0).len : 0);
        p.sent[i] = RI_NONE;
    }
    for (size_t i = 0; i < p.segments && a->count && s->status == RING_OK; i++)
        add_up(&p, &t[i % RI_TREES], i);
    return ri_sched_done(s);
}

/* As a broadcast, upwards; an inner node adds two segments before the sum can go on. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double depth = ri_tree_depth(a->size), segments = (double)ri_segments(a, a->count);
    const double bytes = (double)a->count * a->esize, first = bytes / segments, copies = a->size > 3 ? 2 : 1;
    const double hop = ri_cost_of(m, copies, copies * first) + copies * m->reduce_byte * first;
    return depth ? depth * hop + (segments - 1) * (2 * m->message + (m->byte + m->reduce_byte) * first) : 0;
}

const struct ri_algorithm ri_algorithm_reduce_tree = {
    .name = "tree",
    .help = "segments are added up on their way up two binary trees in turns: log2(n) hops; for all but few ranks",
    .coll = RING_REDUCE,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
