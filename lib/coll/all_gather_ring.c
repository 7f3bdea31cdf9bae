/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather_ring.c - every block goes once round the ring of all ranks.
 *
 * In step k a rank sends the block of the rank k places before it to the next one, while that of the rank k + 1 places
 * before it arrives.  Each rank sends all blocks but one, the least there is, in n - 1 steps.  Places are those of
 * layout->order, so each host has one way in and one way out however many ranks it has.
 *
 * Nothing is sent from where something is still to arrive, so segments wait only for themselves to come.  An empty
 * block travels as a token: the last thing a rank receives has been at all the others. */
#include "lib/coll/tree.h"

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    struct ri_span tokens;
    ri_step_id *here[2]; /* by segment: what brought the block that is sent in this step, and in the next */
};

static size_t segments_of(const struct plan *p, uint32_t rank)
{
    return ri_segments(p->a, ri_dst_block(p->a, rank).count);
}

static struct ri_span part(const struct plan *p, enum ri_slot slot, uint32_t rank, size_t i)
{
    struct ri_cut block = ri_dst_block(p->a, rank);
    if (slot == RI_SRC)
        block.begin = 0;
    return ri_piece(p->a, slot, block, segments_of(p, rank), i, p->tokens, rank);
}

/* Step k: the block of `out` leaves for the next rank, that of `in` arrives. */
static void step(struct plan *p, uint32_t k, uint32_t next, uint32_t prev, uint32_t out, uint32_t in)
{
    const size_t leave = segments_of(p, out), arrive = segments_of(p, in);
    for (size_t i = 0; (i < leave || i < arrive) && p->s->status == RING_OK; i++) {
        if (i < leave)
            ri_send(p->s, next, part(p, k ? RI_DST : RI_SRC, out, i), k ? p->here[k % 2][i] : RI_NONE);
        if (i < arrive)
            p->here[(k + 1) % 2][i] = ri_recv(p->s, prev, part(p, RI_DST, in, i), RI_NONE);
    }
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, me = ri_position_of(a, a->rank) + n;
    const uint32_t next = ri_rank_at(a, (me + 1) % n), prev = ri_rank_at(a, (me - 1) % n);
    const struct ri_cut own = ri_dst_block(a, a->rank);
    struct plan p = {.s = s, .a = a, .tokens = ri_tmp(s, n)};
    const size_t most = ri_segments(a, ri_longest(a, a->rcounts));
    p.here[0] = ri_ids(s, most);
    p.here[1] = ri_ids(s, most);
    ri_copy(s, ri_bytes_of(a, RI_DST, own), ri_bytes_of(a, RI_SRC, (struct ri_cut){0, own.count}), RI_NONE);
    for (uint32_t k = 0; k < n - 1; k++)
        step(&p, k, next, prev, ri_rank_at(a, (me - k) % n), ri_rank_at(a, (me - k - 1) % n));
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const size_t longest = ri_longest(a, a->rcounts);
    return (a->size - 1) * ri_cost_of(m, (double)ri_segments(a, longest), (double)longest * a->esize);
}

const struct ri_algorithm ri_algorithm_all_gather_ring = {
    .name = "ring",
    .help = "every block goes once round the ring of all ranks: neighbours only, n-1 steps; for large blocks",
    .coll = RING_ALL_GATHER,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
