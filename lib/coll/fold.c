/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/coll/fold.h"

#include "lib/coll/hosts.h"
#include "lib/coll/tree.h"

/* How much longer bytes take between others than neighbours, because their ways cross: an assumption; it decides
 * only among algorithms that need equally many. */
static const double CROSSING = 1.1;

uint32_t ri_power_below(uint32_t n) { return UINT32_C(1) << (31 - (uint32_t)__builtin_clz(n)); }

struct ri_fold ri_fold_of(const struct ri_coll_args *a)
{
    const uint32_t place = ri_position_of(a, a->rank);
    struct ri_fold f = {.power = ri_power_below(a->size), .partner = RI_NONE};
    f.rest = a->size - f.power;
    if (place >= 2 * f.rest) {
        f.v = place - f.rest;
        return f;
    }
    f.v = place % 2 ? RI_NONE : place / 2;
    f.partner = ri_rank_at(a, place ^ 1);
    return f;
}

uint32_t ri_fold_rank(const struct ri_coll_args *a, const struct ri_fold *f, uint32_t v)
{
    return ri_rank_at(a, v < f->rest ? 2 * v : v + f->rest);
}

static struct ri_span segment(const struct ri_coll_args *a, enum ri_slot slot, size_t i)
{
    return ri_segment(a, slot, (struct ri_cut){0, a->count}, ri_segments(a, a->count), i);
}

void ri_fold_take_in(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_fold *f, struct ri_span to,
                     ri_step_id *here)
{
    for (size_t i = 0; f->partner != RI_NONE && i < ri_segments(a, a->count) && s->status == RING_OK; i++) {
        struct ri_span sum = segment(a, to.slot, i);
        sum.off += to.off;
        here[i] = ri_recv_reduce(s, f->partner, sum, segment(a, RI_SRC, i), RI_NONE);
    }
}

void ri_fold_give_back(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_fold *f,
                       const ri_step_id *here)
{
    for (size_t i = 0; f->partner != RI_NONE && i < ri_segments(a, a->count) && s->status == RING_OK; i++)
        ri_send(s, f->partner, segment(a, RI_DST, i), here[i]);
}

void ri_fold_sit_out(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_fold *f, ri_step_id *here)
{
    const size_t segments = ri_segments(a, a->count);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++)
        here[i] = ri_send(s, f->partner, segment(a, RI_SRC, i), RI_NONE);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++)
        ri_recv(s, f->partner, segment(a, RI_DST, i), here[i]);
}

double ri_fold_time(const struct ri_coll_args *a, const struct ri_cost_model *m, uint32_t far, double messages,
                    double bytes)
{
    const struct ri_crowd crowd = ri_crowd_of(a->layout);
    if (far < crowd.least)
        return m->near_latency + 2 * m->message * messages + m->near_byte * bytes;
    return m->latency + 2 * m->message * messages + m->byte * bytes * crowd.most * (far > 1 ? CROSSING : 1);
}
