/* SPDX-License-Identifier: Apache-2.0 */
/* scatter_binomial.c - blocks travel from the root through a binomial tree, many in one message.
 *
 * The root sends log2(n) messages instead of n - 1, and as many bytes, the longest first; on the way blocks are sent
 * more than once and lie in scratch memory.  For small blocks among many ranks, all equally long.  No elements: nothing
 * to do. */
#include "lib/coll/binomial.h"

/* From the root: a child's blocks, straight from where they are unless they go round the end of the buffer. */
static void send_row(struct ri_sched *s, const struct ri_coll_args *a, uint32_t far, uint32_t count)
{
    uint32_t rest;
    const uint32_t to = ri_binomial_rank(a, far);
    const struct ri_span row = ri_bytes_of(a, RI_SRC, ri_binomial_row(a, far, count, &rest));
    if (!rest) {
        ri_send(s, to, row, RI_NONE);
        return;
    }
    const struct ri_span begin = ri_bytes_of(a, RI_SRC, (struct ri_cut){0, rest * a->count});
    const struct ri_span tmp = ri_tmp(s, row.len + begin.len);
    const ri_step_id one = ri_copy(s, (struct ri_span){RI_TMP, tmp.off, row.len}, row, RI_NONE);
    const ri_step_id two = ri_copy(s, (struct ri_span){RI_TMP, tmp.off + row.len, begin.len}, begin, RI_NONE);
    ri_also(s, ri_send(s, to, tmp, one), two);
}

static uint32_t farthest(struct ri_binomial b)
{
    uint32_t far = 1;
    while (far < b.held - far)
        far *= 2;
    return b.held > 1 ? far : 0;
}

static void pass_on(struct ri_sched *s, const struct ri_coll_args *a, struct ri_binomial b)
{
    const size_t block = a->count * a->esize;
    const struct ri_span tmp = ri_tmp(s, b.held * block);
    const ri_step_id come = ri_recv(s, ri_binomial_parent(a, b), tmp, RI_NONE);
    for (uint32_t far = farthest(b); far; far /= 2)
        ri_send(s, ri_binomial_rank(a, b.number + far),
                (struct ri_span){RI_TMP, tmp.off + far * block, ri_binomial_child(b, far) * block}, come);
    ri_copy(s, (struct ri_span){RI_DST, 0, block}, (struct ri_span){RI_TMP, tmp.off, block}, come);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_binomial b = ri_binomial_of(a);
    const struct ri_cut one = {0, a->count};
    if (b.number && b.held == 1)
        ri_recv(s, ri_binomial_parent(a, b), ri_bytes_of(a, RI_DST, one), RI_NONE);
    else if (b.number)
        pass_on(s, a, b);
    else {
        for (uint32_t far = farthest(b); far; far /= 2)
            send_row(s, a, far, ri_binomial_child(b, far));
        ri_copy(s, ri_bytes_of(a, RI_DST, one), ri_bytes_of(a, RI_SRC, ri_src_block(a, a->rank)), RI_NONE);
    }
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a) { return !a->variable; }

const struct ri_algorithm ri_algorithm_scatter_binomial = {
    .name = "binomial",
    .help = "blocks travel through a binomial tree, many in one message: log2(n) steps; for small blocks, many ranks",
    .coll = RING_SCATTER,
    .fits = fits,
    .cost = ri_binomial_cost,
    .build = build,
};
