/* SPDX-License-Identifier: Apache-2.0 */
/* gather_binomial.c - blocks travel to the root through a binomial tree, many in one message.
 *
 * log2(n) messages reach the root instead of n - 1, and as many bytes; on the way blocks are sent more than once and
 * lie in scratch memory.  For small blocks among many ranks, all equally long.  No elements: nothing to do. */
#include "lib/coll/binomial.h"

/* At the root: a child's blocks, straight to where they belong unless they go round the end of the buffer. */
static void place(struct ri_sched *s, const struct ri_coll_args *a, uint32_t far, uint32_t count)
{
    uint32_t rest;
    const uint32_t from = ri_binomial_rank(a, far);
    const struct ri_span row = ri_bytes_of(a, RI_DST, ri_binomial_row(a, far, count, &rest));
    if (!rest) {
        ri_recv(s, from, row, RI_NONE);
        return;
    }
    const struct ri_span begin = ri_bytes_of(a, RI_DST, (struct ri_cut){0, rest * a->count});
    const struct ri_span tmp = ri_tmp(s, row.len + begin.len);
    const ri_step_id come = ri_recv(s, from, tmp, RI_NONE);
    ri_copy(s, row, (struct ri_span){RI_TMP, tmp.off, row.len}, come);
    ri_copy(s, begin, (struct ri_span){RI_TMP, tmp.off + row.len, begin.len}, come);
}

static void pass_on(struct ri_sched *s, const struct ri_coll_args *a, struct ri_binomial b)
{
    const size_t block = a->count * a->esize;
    const struct ri_span own = {RI_SRC, 0, block}, tmp = ri_tmp(s, b.held * block);
    ri_step_id all = ri_copy(s, (struct ri_span){RI_TMP, tmp.off, block}, own, RI_NONE);
    for (uint32_t far = 1; far < b.held; far *= 2) {
        const struct ri_span theirs = {RI_TMP, tmp.off + far * block, ri_binomial_child(b, far) * block};
        all = ri_join(s, all, ri_recv(s, ri_binomial_rank(a, b.number + far), theirs, RI_NONE));
    }
    ri_send(s, ri_binomial_parent(a, b), tmp, all);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_binomial b = ri_binomial_of(a);
    const struct ri_cut one = {0, a->count};
    if (b.number && b.held == 1)
        ri_send(s, ri_binomial_parent(a, b), ri_bytes_of(a, RI_SRC, one), RI_NONE);
    else if (b.number)
        pass_on(s, a, b);
    else {
        ri_copy(s, ri_bytes_of(a, RI_DST, ri_dst_block(a, a->rank)), ri_bytes_of(a, RI_SRC, one), RI_NONE);
        for (uint32_t far = 1; far < b.held; far *= 2)
            place(s, a, far, ri_binomial_child(b, far));
    }
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a) { return !a->variable; }

const struct ri_algorithm ri_algorithm_gather_binomial = {
    .name = "binomial",
    .help = "blocks travel through a binomial tree, many in one message: log2(n) steps; for small blocks, many ranks",
    .coll = RING_GATHER,
    .fits = fits,
    .cost = ri_binomial_cost,
    .build = build,
};
