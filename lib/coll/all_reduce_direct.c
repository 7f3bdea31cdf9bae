/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_direct.c - every rank sends all it has to every other, and each combines everything in rank order: one
 * step, for small messages among few ranks.
 *
 * Every rank sends and receives n - 1 times the buffer and adds all of it, once and with one rounding (collect.h).  In
 * place the sum goes where the operand was, so it waits until that has been sent. */
#include "lib/coll/collect.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut all = {0, a->count};
    const size_t segments = ri_segments(a, a->count);
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    ri_step_id *sent = ri_ids(s, segments);
    for (size_t i = 0; i < segments; i++)
        for (uint32_t k = 1; k < a->size && s->status == RING_OK; k++)
            sent[i] = ri_join(s, sent[i],
                              ri_send(s, (a->rank + k) % a->size, ri_segment(a, RI_SRC, all, segments, i), RI_NONE));
    ri_collect(s, a, all, 0, sent, NULL);
    return ri_sched_done(s);
}

/* On every link a signature comes before the rest. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double bytes = (double)a->count * a->esize;
    return ri_cost_direct(a, m, (double)ri_segments(a, a->count) + 1, bytes) + ri_cost_collect(a, m, bytes);
}

const struct ri_algorithm ri_algorithm_all_reduce_direct = {
    .name = "direct",
    .help = "everybody sends everything to everybody and adds up in rank order: one step; for small, few ranks",
    .coll = RING_ALL_REDUCE,
    .ordered = true,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
