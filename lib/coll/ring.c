/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/coll/ring.h"

struct ri_span ri_ring_span(const struct ri_coll_args *a, const struct ri_ring *r, enum ri_slot slot, uint32_t c,
                            size_t i)
{
    struct ri_cut chunk = ri_cut_of(r->part.count, r->size, c);
    chunk.begin += r->part.begin;
    return ri_segment(a, slot, chunk, r->segments, i);
}

/* In a ring k places before the own one. */
static uint32_t before(const struct ri_ring *r, uint32_t k) { return (r->place + 2 * r->size - k) % r->size; }

static ri_step_id made(const struct ri_ring *r, uint32_t c, size_t i)
{
    return r->made ? r->made[c * r->segments + i] : RI_NONE;
}

static void note(const struct ri_ring *r, uint32_t c, size_t i, ri_step_id step)
{
    if (r->whole)
        r->whole[c * r->segments + i] = step;
}

void ri_ring_laps(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_ring *r)
{
    const uint32_t steps = r->size - 1;
    const size_t segments = r->segments;
    ri_step_id *here = ri_ids(s, segments);         /* per segment: what brought the chunk that is to be sent */
    ri_step_id *sent = ri_ids(s, segments * steps); /* lap one reads what lap two overwrites                  */
    for (uint32_t k = 0; k < steps; k++)
        for (size_t i = 0; i < segments && s->status == RING_OK; i++) {
            const uint32_t out = before(r, k), in = before(r, k + 1);
            sent[k * segments + i] =
                ri_send(s, r->next, ri_ring_span(a, r, k ? RI_DST : r->own, out, i), k ? here[i] : made(r, out, i));
            here[i] = ri_recv_reduce(s, r->prev, ri_ring_span(a, r, RI_DST, in, i), ri_ring_span(a, r, r->own, in, i),
                                     made(r, in, i));
            if (k == steps - 1) {
                ri_final(s, here[i]);
                note(r, in, i, here[i]);
            }
        }
    for (uint32_t k = 0; k < steps; k++)
        for (size_t i = 0; i < segments && s->status == RING_OK; i++) {
            const uint32_t out = before(r, k + r->size - 1), in = before(r, k);
            ri_send(s, r->next, ri_ring_span(a, r, RI_DST, out, i), here[i]);
            here[i] = ri_recv(s, r->prev, ri_ring_span(a, r, RI_DST, in, i), sent[k * segments + i]);
            note(r, in, i, here[i]);
        }
}
