/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_scatter_ring.c - every block is added up on one way round the ring, and ends at its rank.
 *
 * The first lap of the ring all-reduce (Patarasuk and Yuan, JPDC 69(2), 2009) with the blocks one place earlier: in
 * step k a rank sends the sum of the block k + 1 places before its own, and adds its part to that k + 2 places before
 * as it arrives; in the last step that is its own.  Least bytes, n - 1 steps.  Places are those of layout->order.
 *
 * SRC stays as it is, so sums on their way lie in two scratch buffers in turns: one is written while the other is being
 * sent.  A segment has its fixed place there, whichever block it is of.  Empty blocks travel as tokens. */
#include "lib/coll/tree.h"

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    uint32_t me, next, prev; /* me: the own place, and n more */
    struct ri_span tokens, sum[2];
    size_t stride;       /* from one segment to the next in sum */
    ri_step_id *here[2]; /* by segment: what made the sum that is sent in this step, and in the next */
    ri_step_id *read[2]; /* by segment: what read it last in sum[] */
};

static struct ri_span held(const struct plan *p, unsigned which, size_t i, size_t len)
{
    return (struct ri_span){RI_TMP, p->sum[which].off + i * p->stride, len};
}

static void leave(struct plan *p, uint32_t k, uint32_t rank, size_t i)
{
    const struct ri_cut block = ri_src_block(p->a, rank);
    const size_t n = ri_segments(p->a, block.count);
    const struct ri_span src = ri_piece(p->a, RI_SRC, block, n, i, p->tokens, rank);
    const bool summed = k && block.count;
    const ri_step_id sent =
        ri_send(p->s, p->next, summed ? held(p, (k - 1) % 2, i, src.len) : src, k ? p->here[k % 2][i] : RI_NONE);
    if (summed)
        p->read[(k - 1) % 2][i] = sent;
}

static void arrive(struct plan *p, uint32_t k, uint32_t rank, size_t i)
{
    const struct ri_cut block = ri_src_block(p->a, rank);
    const size_t n = ri_segments(p->a, block.count);
    const struct ri_span mine = ri_piece(p->a, RI_SRC, block, n, i, p->tokens, rank);
    ri_step_id *here = &p->here[(k + 1) % 2][i];
    if (!block.count)
        *here = ri_recv(p->s, p->prev, mine, RI_NONE);
    else if (k + 2 < p->a->size)
        *here = ri_recv_reduce(p->s, p->prev, held(p, k % 2, i, mine.len), mine, p->read[k % 2][i]);
    else
        ri_final(p->s, ri_recv_reduce(p->s, p->prev, ri_segment(p->a, RI_DST, (struct ri_cut){0, block.count}, n, i),
                                      mine, RI_NONE));
}

static void step(struct plan *p, uint32_t k)
{
    const uint32_t n = p->a->size;
    const uint32_t out = ri_rank_at(p->a, (p->me - k - 1) % n), in = ri_rank_at(p->a, (p->me - k - 2 + n) % n);
    const size_t leaving = ri_segments(p->a, ri_src_block(p->a, out).count);
    const size_t arriving = ri_segments(p->a, ri_src_block(p->a, in).count);
    for (size_t i = 0; (i < leaving || i < arriving) && p->s->status == RING_OK; i++) {
        if (i < leaving)
            leave(p, k, out, i);
        if (i < arriving)
            arrive(p, k, in, i);
    }
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, place = ri_position_of(a, a->rank);
    const size_t longest = ri_longest(a, a->scounts), most = ri_segments(a, longest);
    struct plan p = {.s = s,
                     .a = a,
                     .me = place + n,
                     .next = ri_rank_at(a, (place + 1) % n),
                     .prev = ri_rank_at(a, (place + n - 1) % n),
                     .stride = ri_cut_of(longest, most, 0).count * a->esize};
    s->ranks = n;
    if (n == 1)
        return ri_build_own(s, a);
    /* A shorter block may need fewer segments that are each a little longer than the longest block's. */
    if (most > 1 && p.stride < a->seg)
        p.stride = a->seg;
    p.tokens = ri_tmp(s, n);
    for (uint32_t i = 0; i < 2; i++) {
        p.sum[i] = ri_tmp(s, i + 2 < n ? most * p.stride : 0);
        p.here[i] = ri_ids(s, most);
        p.read[i] = ri_ids(s, most);
    }
    for (uint32_t k = 0; k < n - 1; k++)
        step(&p, k);
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const size_t longest = ri_longest(a, a->scounts);
    const double bytes = (double)longest * a->esize;
    return (a->size - 1) * (ri_cost_of(m, (double)ri_segments(a, longest), bytes) + m->reduce_byte * bytes);
}

const struct ri_algorithm ri_algorithm_reduce_scatter_ring = {
    .name = "ring",
    .help = "every block is added up on its way round the ring to its rank: neighbours only, n-1 steps; for large",
    .coll = RING_REDUCE_SCATTER,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
