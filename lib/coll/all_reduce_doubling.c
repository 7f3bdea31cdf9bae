/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_doubling.c - recursive doubling: log2(n) exchanges of the whole buffer, for small messages among many
 * ranks.
 *
 * Ranks exchange and add at distance 1, 2, 4 ... ; a number of ranks that is no power of two is folded (fold.h).  Cost:
 * log2(n) steps, or two more, each of the whole buffer sent and added.
 *
 * Two ranks that exchange hold sums of neighbouring blocks of places; both put the lower block first, so both get the
 * same bits, and by induction all do.
 *
 * A sum may not be written where the send of the same step still reads: its completion could hang on the peer's
 * receive, which would wait for the peer's send in turn.  So sums go to two scratch buffers in turns and the last one
 * to DST. In place, DST is what the first step sends: when the first step is also the last, the peer's part goes to
 * scratch and is added when the send is complete. */
#include "lib/coll/fold.h"

/* Where a sum is read and written, and per segment the send that read it last. */
struct buffer {
    struct ri_span in, out; /* only slot and offset count */
    ri_step_id *read;
};

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    struct ri_cut all;
    size_t segments;
    struct ri_fold fold;
    struct buffer user, scratch[2]; /* user: from SRC, to DST */
    struct buffer *held;            /* where the sum so far is */
    ri_step_id *here;               /* per segment: what made it */
};

static struct ri_span segment(const struct plan *p, struct ri_span buffer, size_t i)
{
    struct ri_span x = ri_segment(p->a, buffer.slot, p->all, p->segments, i);
    x.off += buffer.off;
    return x;
}

/* The sum of what is held and what comes; `sent` and `before` still read. */
static ri_step_id add(struct plan *p, uint32_t far, struct buffer *to, size_t i, ri_step_id sent, ri_step_id before)
{
    const struct ri_span dst = segment(p, to->out, i), mine = segment(p, p->held->in, i);
    const uint32_t peer = ri_fold_rank(p->a, &p->fold, p->fold.v ^ far);
    const bool lower = !(p->fold.v & far);
    ri_step_id sum;
    if (p->held == to) {
        const struct ri_span theirs = segment(p, p->scratch[0].in, i);
        sum = ri_recv(p->s, peer, theirs, RI_NONE);
        sum = lower ? ri_reduce(p->s, dst, mine, theirs, sum) : ri_reduce(p->s, dst, theirs, mine, sum);
        return ri_also(p->s, sum, sent);
    }
    sum = ri_recv_reduce(p->s, peer, dst, mine, p->here[i]);
    if (before != RI_NONE)
        ri_also(p->s, sum, before);
    return lower ? sum : ri_swap(p->s, sum);
}

/* One step: send what is held, and write the sum to `to`. */
static void exchange(struct plan *p, uint32_t far, struct buffer *to, bool last)
{
    const uint32_t peer = ri_fold_rank(p->a, &p->fold, p->fold.v ^ far);
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++) {
        const ri_step_id before = to->read[i];
        const ri_step_id sent = ri_send(p->s, peer, segment(p, p->held->in, i), p->here[i]);
        p->held->read[i] = sent;
        p->here[i] = add(p, far, to, i, sent, before);
        if (last)
            ri_final(p->s, p->here[i]);
    }
    p->held = to;
}

static void work_in(struct plan *p)
{
    uint32_t turn = 0;
    if (p->fold.partner != RI_NONE) { /* nothing has been sent yet that could still be read */
        ri_fold_take_in(p->s, p->a, &p->fold, p->scratch[1].out, p->here);
        p->held = &p->scratch[1];
    }
    for (uint32_t far = 1; far < p->fold.power; far *= 2) {
        const bool last = 2 * far == p->fold.power;
        exchange(p, far, last ? &p->user : &p->scratch[turn++ % 2], last);
    }
    ri_fold_give_back(p->s, p->a, &p->fold, p->here);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    struct plan p = {.s = s,
                     .a = a,
                     .all = {0, a->count},
                     .segments = ri_segments(a, a->count),
                     .fold = ri_fold_of(a),
                     .user = {{RI_SRC, 0, 0}, {RI_DST, 0, 0}, NULL}};
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    p.here = ri_ids(s, p.segments);
    if (p.fold.v == RI_NONE) {
        ri_fold_sit_out(s, a, &p.fold, p.here);
        return ri_sched_done(s);
    }
    p.held = &p.user;
    p.user.read = ri_ids(s, p.segments);
    for (int i = 0; i < 2; i++) {
        p.scratch[i].read = ri_ids(s, p.segments);
        p.scratch[i].in = p.scratch[i].out = ri_tmp(s, a->count * a->esize);
    }
    work_in(&p);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double bytes = (double)a->count * a->esize;
    const uint32_t power = ri_power_below(a->size);
    const double messages = (double)ri_segments(a, a->count);
    double total = 0;
    for (uint32_t far = 1; far < power; far *= 2)
        total += ri_fold_time(a, m, far, messages, bytes) + m->reduce_byte * bytes;
    if (power != a->size)
        total += 2 * ri_fold_time(a, m, 1, messages, bytes) + m->reduce_byte * bytes;
    return total;
}

const struct ri_algorithm ri_algorithm_all_reduce_doubling = {
    .name = "doubling",
    .help = "recursive doubling: log2(n) exchanges of the whole buffer; for small messages",
    .coll = RING_ALL_REDUCE,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
