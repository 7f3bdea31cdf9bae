/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_rabenseifner.c - recursive halving and doubling (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005): as
 * few bytes as the ring in 2 log2(n) steps, for medium and large messages among many ranks.
 *
 * Step k of the reduce-scatter: ranks at distance 2^k cut the range both hold in two, each sends one half and adds what
 * comes to the other, which it keeps.  The all-gather goes the same way back.  Distances begin at 1, so that half of
 * all bytes goes to the next place of layout->order, often on the same host, and the lower block of places always comes
 * first.  A number of ranks that is no power of two is folded (fold.h).
 *
 * The buffer is cut once into segments; what travels is the part of a segment that lies in the range of a step, so a
 * segment waits for itself only.  Each element is added up on one rank and then copied: all get the same bits.  Sums
 * are written to DST, from where they are sent: no scratch memory. */
#include "lib/coll/fold.h"

enum { LEVELS = 32 };

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    struct ri_fold fold;
    size_t segments;
    struct ri_cut held;          /* the range of which this rank has a sum, later the result */
    struct ri_cut given[LEVELS]; /* by level: the half that was sent                         */
    enum ri_slot slot;           /* where the sum is                                         */
    ri_step_id *here;            /* by segment: what made what is held of it                 */
    ri_step_id *sent;            /* by level and segment                                     */
};

/* What a range has of a segment; its len is 0 when nothing. */
static struct ri_span piece(const struct plan *p, enum ri_slot slot, struct ri_cut range, size_t i)
{
    const struct ri_cut segment = ri_cut_of(p->a->count, p->segments, i);
    const size_t end = segment.begin + segment.count, range_end = range.begin + range.count;
    const size_t from = segment.begin > range.begin ? segment.begin : range.begin;
    const size_t to = end < range_end ? end : range_end;
    return (struct ri_span){slot, from * p->a->esize, from < to ? (to - from) * p->a->esize : 0};
}

static struct ri_cut half(struct ri_cut range, bool upper)
{
    const struct ri_cut part = ri_cut_of(range.count, 2, upper);
    return (struct ri_cut){range.begin + part.begin, part.count};
}

static void halve(struct plan *p, unsigned level, bool last)
{
    const bool upper = p->fold.v >> level & 1;
    const uint32_t peer = ri_fold_rank(p->a, &p->fold, p->fold.v ^ UINT32_C(1) << level);
    const struct ri_cut keep = half(p->held, upper), give = half(p->held, !upper);
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++) {
        const struct ri_span out = piece(p, p->slot, give, i), in = piece(p, RI_DST, keep, i);
        if (out.len)
            p->sent[level * p->segments + i] = ri_send(p->s, peer, out, p->here[i]);
        if (!in.len)
            continue;
        p->here[i] = ri_recv_reduce(p->s, peer, in, piece(p, p->slot, keep, i), p->here[i]);
        if (upper)
            ri_swap(p->s, p->here[i]);
        if (last)
            ri_final(p->s, p->here[i]);
    }
    p->given[level] = give;
    p->held = keep;
    p->slot = RI_DST;
}

/* The same level on the way back: the peer has the half that it was given. */
static void unite(struct plan *p, unsigned level)
{
    const uint32_t peer = ri_fold_rank(p->a, &p->fold, p->fold.v ^ UINT32_C(1) << level);
    const struct ri_cut get = p->given[level];
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++) {
        const struct ri_span out = piece(p, RI_DST, p->held, i), in = piece(p, RI_DST, get, i);
        if (out.len)
            ri_send(p->s, peer, out, p->here[i]);
        if (!in.len)
            continue;
        const ri_step_id come = ri_recv(p->s, peer, in, p->sent[level * p->segments + i]);
        if (level || p->fold.partner != RI_NONE)
            p->here[i] = out.len ? ri_join(p->s, p->here[i], come) : come;
    }
    p->held.begin = get.begin < p->held.begin ? get.begin : p->held.begin;
    p->held.count += get.count;
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    struct plan p = {.s = s, .a = a, .segments = ri_segments(a, a->count), .held = {0, a->count}};
    unsigned levels = 0;
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    p.fold = ri_fold_of(a);
    p.here = ri_ids(s, p.segments);
    if (p.fold.v == RI_NONE) {
        ri_fold_sit_out(s, a, &p.fold, p.here);
        return ri_sched_done(s);
    }
    while (p.fold.power >> levels > 1)
        levels++;
    p.sent = ri_ids(s, p.segments * levels);
    ri_fold_take_in(s, a, &p.fold, (struct ri_span){RI_DST, 0, 0}, p.here);
    p.slot = p.fold.partner == RI_NONE ? RI_SRC : RI_DST;
    for (unsigned level = 0; level < levels; level++)
        halve(&p, level, level + 1 == levels);
    for (unsigned level = levels; level--;)
        unite(&p, level);
    ri_fold_give_back(s, a, &p.fold, p.here);
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a) { return a->size > 2; /* two ranks: it is the ring */ }

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const uint32_t power = ri_power_below(a->size);
    const double bytes = (double)a->count * a->esize, segments = (double)ri_segments(a, a->count);
    double total = 0, part = 1;
    for (uint32_t far = 1; far < power; far *= 2) {
        part /= 2;
        const double messages = segments * part > 1 ? segments * part : 1;
        total += 2 * ri_fold_time(a, m, far, messages, bytes * part) + m->reduce_byte * bytes * part;
    }
    if (power != a->size)
        total += 2 * ri_fold_time(a, m, 1, segments, bytes) + m->reduce_byte * bytes;
    return total + m->byte * bytes / segments; /* the first segment, which nothing hides */
}

const struct ri_algorithm ri_algorithm_all_reduce_rabenseifner = {
    .name = "rabenseifner",
    .help = "recursive halving and doubling: least bytes in 2 log2(n) steps; for medium messages among many ranks",
    .coll = RING_ALL_REDUCE,
    .fits = fits,
    .cost = cost,
    .build = build,
};
