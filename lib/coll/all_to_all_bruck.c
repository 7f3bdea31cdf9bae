/* SPDX-License-Identifier: Apache-2.0 */
/* all_to_all_bruck.c - log2(n) steps in which blocks travel by the bits of their distance (Bruck et al., IEEE TPDS
 * 8(11), 1997).
 *
 * Number i of a rank's blocks is the one that has to go i ranks on.  In step k, those whose number has bit k go 2^k
 * ranks on, all in one message, and the same numbers come from 2^k ranks before.  About n / 2 blocks a step, so
 * log2(n) / 2 times the least bytes, and each is copied when it is packed: for small blocks, and those that are equally
 * long, as nobody else knows how long they are.
 *
 * A block lies in SRC until it has moved, then in what came in the step of the highest bit that it has moved by.  The
 * copies of a message form a chain, so that the message waits for all.  Without any elements the messages are tokens.
 */
#include "lib/coll/coll.h"

enum { STEPS = 32 };

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    size_t block;             /* bytes of a block in a message */
    struct ri_span in[STEPS]; /* what comes in a step          */
    ri_step_id come[STEPS];
};

static unsigned highest(uint32_t bits) { return 31 - (unsigned)__builtin_clz(bits); }

/* How many numbers below n have bit k. */
static uint32_t with_bit(uint32_t n, unsigned k)
{
    const uint32_t whole = n >> (k + 1) << k, rest = n & ((UINT32_C(2) << k) - 1), half = UINT32_C(1) << k;
    return whole + (rest > half ? rest - half : 0);
}

/* Where block i lies after the steps of the bits in `moved`. */
static struct ri_span lies(const struct plan *p, uint32_t i, uint32_t moved)
{
    const size_t bytes = p->a->count * p->a->esize;
    const uint32_t to = (p->a->rank + i) % p->a->size;
    if (!moved)
        return (struct ri_span){RI_SRC, to * bytes, bytes};
    const unsigned k = highest(moved);
    return (struct ri_span){RI_TMP, p->in[k].off + with_bit(i, k) * p->block, bytes};
}

/* Pack the blocks with bit k; returns what the message has to wait for. */
static ri_step_id pack(struct plan *p, unsigned k, struct ri_span out)
{
    ri_step_id last = RI_NONE;
    uint32_t waited = 0; /* for what came in which steps */
    size_t at = out.off;
    for (uint32_t i = 0; i < p->a->size && p->s->status == RING_OK; i++) {
        const uint32_t moved = i & ((UINT32_C(1) << k) - 1);
        if (!(i >> k & 1))
            continue;
        const struct ri_span from = lies(p, i, moved);
        last = ri_copy(p->s, (struct ri_span){RI_TMP, at, from.len}, from, last);
        if (moved && !(waited >> highest(moved) & 1)) {
            ri_also(p->s, last, p->come[highest(moved)]);
            waited |= UINT32_C(1) << highest(moved);
        }
        at += p->block;
    }
    return last;
}

static void step(struct plan *p, unsigned k, ri_step_id all)
{
    const uint32_t n = p->a->size, far = UINT32_C(1) << k;
    const struct ri_span out = ri_tmp(p->s, with_bit(n, k) * p->block);
    p->in[k] = ri_tmp(p->s, out.len);
    ri_send(p->s, (p->a->rank + far) % n, out, p->a->count ? pack(p, k, out) : all);
    p->come[k] = ri_recv(p->s, (p->a->rank + n - far) % n, p->in[k], RI_NONE);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size;
    const size_t bytes = a->count * a->esize;
    struct plan p = {.s = s, .a = a, .block = bytes ? bytes : 1};
    ri_step_id all = RI_NONE;
    for (unsigned k = 0; (n - 1) >> k; k++) {
        step(&p, k, all);
        all = a->count ? all : ri_join(s, all, p.come[k]);
    }
    for (uint32_t i = 0; i < n && a->count && s->status == RING_OK; i++)
        ri_copy(s, (struct ri_span){RI_DST, (a->rank + n - i) % n * bytes, bytes}, lies(&p, i, i),
                i ? p.come[highest(i)] : RI_NONE);
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a) { return !a->variable; }

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double bytes = (double)a->count * a->esize;
    double total = m->reduce_byte * bytes * a->size;
    for (unsigned k = 0; (a->size - 1) >> k; k++) {
        const double moved = bytes * with_bit(a->size, k);
        total += ri_cost_of(m, 1, moved) + m->reduce_byte * moved;
    }
    return total;
}

const struct ri_algorithm ri_algorithm_all_to_all_bruck = {
    .name = "bruck",
    .help = "blocks travel by the bits of their distance, many in one message: log2(n) steps; for small blocks",
    .coll = RING_ALL_TO_ALL,
    .fits = fits,
    .cost = cost,
    .build = build,
};
