/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_doubling.c - recursive doubling: log2(n) exchanges of the whole buffer, for small messages among many
 * ranks.
 *
 * When n is no power of two, the first 2 r ranks pair up, r = n - 2^floor(log2 n): the odd one gives its part to the
 * even one, sits out, and gets the result at the end.  The others exchange and add, at distance 1, 2, 4 ... .  Cost:
 * log2(n) steps, or two more, each of the whole buffer sent and added.
 *
 * Two ranks that exchange hold sums of neighbouring blocks of ranks; both put the lower block first, so both get the
 * same bits, and by induction all do.
 *
 * A sum may not be written where the send of the same step still reads: its completion could hang on the peer's
 * receive, which would wait for the peer's send in turn.  So sums go to two scratch buffers in turns and the last one
 * to DST. In place, DST is what the first step sends: when the first step is also the last, the peer's part goes to
 * scratch and is added when the send is complete. */
#include "lib/coll/coll.h"

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
    uint32_t rest;                  /* ranks that sit out */
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

/* The even rank of a pair takes its neighbour's part in; nothing has been sent yet that could still be read. */
static void take_in(struct plan *p, uint32_t peer, struct buffer *to)
{
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++)
        p->here[i] = ri_recv_reduce(p->s, peer, segment(p, to->out, i), segment(p, p->user.in, i), RI_NONE);
    p->held = to;
}

/* The sum of what is held and what comes; `sent` and `before` still read. */
static ri_step_id add(struct plan *p, uint32_t peer, struct buffer *to, size_t i, ri_step_id sent, ri_step_id before)
{
    const struct ri_span dst = segment(p, to->out, i), mine = segment(p, p->held->in, i);
    const bool lower = p->a->rank < peer;
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
static void exchange(struct plan *p, uint32_t peer, struct buffer *to, bool last)
{
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++) {
        const ri_step_id before = to->read[i];
        const ri_step_id sent = ri_send(p->s, peer, segment(p, p->held->in, i), p->here[i]);
        p->held->read[i] = sent;
        p->here[i] = add(p, peer, to, i, sent, before);
        if (last)
            ri_final(p->s, p->here[i]);
    }
    p->held = to;
}

static uint32_t rank_of(uint32_t v, uint32_t rest) { return v < rest ? 2 * v : v + rest; }

static void work_in(struct plan *p, uint32_t power)
{
    const uint32_t me = p->a->rank, v = me < 2 * p->rest ? me / 2 : me - p->rest;
    uint32_t turn = 0;
    if (me < 2 * p->rest)
        take_in(p, me + 1, &p->scratch[1]);
    for (uint32_t far = 1; far < power; far *= 2) {
        const bool last = 2 * far == power;
        exchange(p, rank_of(v ^ far, p->rest), last ? &p->user : &p->scratch[turn++ % 2], last);
    }
    if (me < 2 * p->rest)
        for (size_t i = 0; i < p->segments; i++)
            ri_send(p->s, me + 1, segment(p, p->user.out, i), p->s->status == RING_OK ? p->here[i] : RI_NONE);
}

static void sit_out(struct plan *p)
{
    const uint32_t peer = p->a->rank - 1;
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++)
        p->here[i] = ri_send(p->s, peer, segment(p, p->user.in, i), RI_NONE);
    for (size_t i = 0; i < p->segments && p->s->status == RING_OK; i++)
        ri_recv(p->s, peer, segment(p, p->user.out, i), p->here[i]);
}

static uint32_t power_below(uint32_t n)
{
    uint32_t power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t power = power_below(a->size);
    struct plan p = {.s = s,
                     .a = a,
                     .all = {0, a->count},
                     .segments = ri_segments(a, a->count),
                     .rest = a->size - power,
                     .user = {{RI_SRC, 0, 0}, {RI_DST, 0, 0}, NULL}};
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    p.here = ri_ids(s, p.segments);
    if (a->rank < 2 * p.rest && a->rank % 2) {
        sit_out(&p);
        return ri_sched_done(s);
    }
    p.held = &p.user;
    p.user.read = ri_ids(s, p.segments);
    for (int i = 0; i < 2; i++) {
        p.scratch[i].read = ri_ids(s, p.segments);
        p.scratch[i].in = p.scratch[i].out = ri_tmp(s, a->count * a->esize);
    }
    work_in(&p, power);
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a)
{
    (void)a;
    return true;
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double bytes = (double)a->count * a->esize;
    const double once = m->latency + 2 * m->message * (double)ri_segments(a, a->count) + m->byte * bytes;
    const uint32_t power = power_below(a->size);
    double total = 0;
    for (uint32_t far = 1; far < power; far *= 2)
        total += once + m->reduce_byte * bytes;
    if (power != a->size)
        total += 2 * once + m->reduce_byte * bytes;
    return total;
}

const struct ri_algorithm ri_algorithm_all_reduce_doubling = {
    .name = "doubling",
    .help = "recursive doubling: log2(n) exchanges of the whole buffer; for small messages",
    .coll = RING_ALL_REDUCE,
    .fits = fits,
    .cost = cost,
    .build = build,
};
