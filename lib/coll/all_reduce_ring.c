/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_ring.c - the ring all-reduce of Patarasuk and Yuan, JPDC 69(2), 2009.
 *
 * The buffer is cut into one chunk per rank, and a chunk into segments that travel independently.  Lap one,
 * reduce-scatter: in step k a rank sends chunk rank - k to the next rank, and adds its own part to chunk rank - k - 1
 * as that arrives from the one before.  Then chunk rank + 1 is complete here.  Lap two, all-gather: the complete chunks
 * go round once more. Each rank sends 2 (n - 1) / n of the buffer, the least there is, in 2 (n - 1) steps, and adds (n
 * - 1) / n of it.
 *
 * Every chunk is added up along one path by one rank after another and then only copied, so all ranks get the same
 * bits. No scratch: a sum is written where it will be sent from, and what was not yet touched is read from SRC, so
 * there is no first copy either.  Loops run step by step over the segments: the other way round, a segment's second
 * step would stand in front of the next segment's first on the link, and nothing would overlap. */
#include "lib/coll/coll.h"

static struct ri_span part(enum ri_slot slot, const struct ri_coll_args *a, uint32_t chunk, size_t segments, size_t i)
{
    return ri_segment(a, slot, ri_cut_of(a->count, a->size, chunk % a->size), segments, i);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size, me = a->rank + n, next = (a->rank + 1) % n, prev = (a->rank + n - 1) % n;
    const size_t segments = ri_segments(a, ri_cut_of(a->count, n, 0).count);
    s->ranks = n;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    ri_step_id *here = ri_ids(s, segments);           /* per segment: what brought the chunk that is to be sent */
    ri_step_id *sent = ri_ids(s, segments * (n - 1)); /* lap one reads what lap two overwrites                  */
    for (uint32_t k = 0; k < n - 1; k++)
        for (size_t i = 0; i < segments && s->status == RING_OK; i++) {
            sent[k * segments + i] = ri_send(s, next, part(k ? RI_DST : RI_SRC, a, me - k, segments, i), here[i]);
            here[i] = ri_recv_reduce(s, prev, part(RI_DST, a, me - k - 1, segments, i),
                                     part(RI_SRC, a, me - k - 1, segments, i), RI_NONE);
            if (k == n - 2)
                ri_final(s, here[i]);
        }
    for (uint32_t k = 0; k < n - 1; k++)
        for (size_t i = 0; i < segments && s->status == RING_OK; i++) {
            ri_send(s, next, part(RI_DST, a, me - k + 1, segments, i), here[i]);
            here[i] = ri_recv(s, prev, part(RI_DST, a, me - k, segments, i), sent[k * segments + i]);
        }
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a)
{
    (void)a;
    return true;
}

/* Each step has to wait for its first segment, which no other work of the same lap hides in the first one. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const struct ri_cut chunk = ri_cut_of(a->count, a->size, 0);
    const double steps = a->size - 1, bytes = (double)chunk.count * a->esize;
    const double first = bytes < (double)a->seg ? bytes : (double)a->seg;
    return steps * (2 * (m->latency + 2 * m->message * (double)ri_segments(a, chunk.count) + m->byte * bytes) +
                    m->reduce_byte * bytes) +
           m->byte * first;
}

const struct ri_algorithm ri_algorithm_all_reduce_ring = {
    .name = "ring",
    .help = "ring of all ranks (Patarasuk and Yuan): least bytes, 2(n-1) steps; for large messages",
    .coll = RING_ALL_REDUCE,
    .fits = fits,
    .cost = cost,
    .build = build,
};
