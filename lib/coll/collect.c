/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/coll/collect.h"

enum { SLOTS = 2 }; /* segments of every rank that scratch memory holds: one arrives while one is combined */

/* Segment i from everybody, each at its rank's place in a slot. */
static ri_step_id receive_all(struct ri_sched *s, const struct ri_coll_args *a, struct ri_span slot, size_t stride,
                              size_t len, ri_step_id free)
{
    ri_step_id all = RI_NONE;
    for (uint32_t k = 1; k < a->size && s->status == RING_OK; k++) {
        const uint32_t from = (a->rank + a->size - k) % a->size;
        all = ri_join(s, all, ri_recv(s, from, (struct ri_span){RI_TMP, slot.off + from * stride, len}, free));
    }
    return all;
}

void ri_collect(struct ri_sched *s, const struct ri_coll_args *a, struct ri_cut own, size_t to, const ri_step_id *after,
                ri_step_id *made)
{
    const struct ri_cut dst = {to, own.count};
    const size_t segments = ri_segments(a, own.count), slots = segments < SLOTS ? segments : SLOTS;
    const size_t stride = ri_segment(a, RI_SRC, own, segments, 0).len;
    ri_step_id used[SLOTS] = {RI_NONE, RI_NONE}; /* what last read a slot */
    struct ri_span slot[SLOTS];
    for (size_t i = 0; i < slots; i++)
        slot[i] = ri_tmp(s, a->size * stride);
    for (size_t i = 0; i < segments && own.count && s->status == RING_OK; i++) {
        const struct ri_span mine = ri_segment(a, RI_SRC, own, segments, i);
        const struct ri_span first = {RI_TMP, slot[i % slots].off, mine.len};
        const ri_step_id all = receive_all(s, a, first, stride, mine.len, used[i % slots]);
        const ri_step_id sum =
            ri_combine(s, ri_segment(a, RI_DST, dst, segments, i), mine, first, a->size, a->rank, stride, all);
        used[i % slots] = ri_final(s, sum);
        if (after)
            ri_also(s, sum, after[i]);
        if (made)
            made[i] = sum;
    }
}
