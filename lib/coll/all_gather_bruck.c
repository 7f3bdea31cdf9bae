/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather_bruck.c - log2(n) steps in which what a rank has doubles (Bruck et al., IEEE TPDS 8(11), 1997).
 *
 * A rank gathers in scratch memory, its own block first, then those of the ranks behind it: at distance d = 1, 2, 4 ...
 * it has d blocks, sends the first min(d, n - d) of them d places back, and gets those from d places on, which continue
 * its own.  At the end all are copied to where they belong.  Least bytes and least steps, for the price of that copy:
 * for small blocks.
 *
 * One message a step whatever the blocks' lengths, for which only the counts have to agree; an empty block counts as
 * one byte, so that no message is empty and nobody is done before all have come. */
#include "lib/coll/coll.h"

/* Where the block of the rank j places on begins in scratch memory. */
static size_t offset(const struct ri_coll_args *a, uint32_t j)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < j; i++) {
        const size_t bytes = ri_dst_block(a, (a->rank + i) % a->size).count * a->esize;
        sum += bytes ? bytes : 1;
    }
    return sum;
}

static struct ri_span stretch(const struct ri_coll_args *a, struct ri_span tmp, uint32_t from, uint32_t to)
{
    const size_t begin = offset(a, from);
    return (struct ri_span){RI_TMP, tmp.off + begin, offset(a, to) - begin};
}

/* Blocks from .. to - 1 places on, which have arrived together; neighbours both here and there go in one copy. */
static void copy_out(struct ri_sched *s, const struct ri_coll_args *a, struct ri_span tmp, uint32_t from, uint32_t to,
                     ri_step_id arrived)
{
    for (uint32_t j = from, end; j < to; j = end) {
        struct ri_cut cut = ri_dst_block(a, (a->rank + j) % a->size);
        for (end = j + 1; end < to && cut.count; end++) {
            const struct ri_cut next = ri_dst_block(a, (a->rank + end) % a->size);
            if (!next.count || next.begin != cut.begin + cut.count)
                break;
            cut.count += next.count;
        }
        const struct ri_span dst = ri_bytes_of(a, RI_DST, cut);
        if (dst.len)
            ri_copy(s, dst, (struct ri_span){RI_TMP, tmp.off + offset(a, j), dst.len}, arrived);
    }
}

enum { STEPS = 33 };

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, me = a->rank;
    const struct ri_span own = ri_bytes_of(a, RI_DST, ri_dst_block(a, me)), src = {RI_SRC, 0, own.len};
    const struct ri_span tmp = ri_tmp(s, n > 1 ? offset(a, n) : 0);
    ri_step_id have[STEPS] = {RI_NONE}; /* what brought the first 2^k blocks */
    unsigned k = 0;
    ri_copy(s, own, src, RI_NONE);
    if (n > 1 && own.len)
        have[0] = ri_copy(s, (struct ri_span){RI_TMP, tmp.off, own.len}, src, RI_NONE);
    for (uint32_t d = 1; d < n; d *= 2, k++) {
        const uint32_t more = d < n - d ? d : n - d;
        unsigned enough = 0; /* of what is here already */
        while (UINT32_C(1) << enough < more)
            enough++;
        ri_send(s, (me + n - d) % n, stretch(a, tmp, 0, more), have[enough]);
        const ri_step_id come = ri_recv(s, (me + d) % n, stretch(a, tmp, d, d + more), RI_NONE);
        copy_out(s, a, tmp, d, d + more, come);
        have[k + 1] = ri_join(s, have[k], come);
    }
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double all = (double)ri_coll_bytes(RING_ALL_GATHER, a);
    double total = m->reduce_byte * 2 * all;
    for (uint32_t d = 1; d < a->size; d *= 2)
        total += ri_cost_of(m, 1, all / a->size * (d < a->size - d ? d : a->size - d));
    return total;
}

const struct ri_algorithm ri_algorithm_all_gather_bruck = {
    .name = "bruck",
    .help = "what a rank has doubles in each of log2(n) steps, through scratch memory; for small blocks",
    .coll = RING_ALL_GATHER,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
