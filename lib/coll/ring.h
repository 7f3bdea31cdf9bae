/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - the two laps of the ring all-reduce of Patarasuk and Yuan, JPDC 69(2), 2009, over any ranks and any part of
 * the buffer.
 *
 * The part is cut into one chunk per place, and a chunk into segments that travel independently.  Lap one,
 * reduce-scatter: in step k a rank sends chunk place - k to the next rank, and adds its own operand to chunk
 * place - k - 1 as that arrives from the one before.  Then chunk place + 1 is complete here.  Lap two, all-gather: the
 * complete chunks go round once more.  Each rank sends 2 (n - 1) / n of the part, the least there is, in 2 (n - 1)
 * steps, and adds (n - 1) / n of it.
 *
 * Every chunk is added up along one path by one rank after another and then only copied, so all ranks get the same
 * bits. No scratch: a sum is written where it will be sent from, and what was not yet touched is read from where the
 * operand is, so there is no first copy either.  Loops run step by step over the segments: the other way round, a
 * segment's second step would stand in front of the next segment's first on the link, and nothing would overlap. */
#ifndef RI_RING_H
#define RI_RING_H

#include "lib/coll/coll.h"

struct ri_ring {
    uint32_t size, place;   /* of the ring, and this rank's in it; at least two ranks                       */
    uint32_t next, prev;    /* ranks                                                                        */
    struct ri_cut part;     /* of the buffer                                                                */
    size_t segments;        /* of a chunk                                                                   */
    enum ri_slot own;       /* where this rank's operand is: RI_SRC, or RI_DST when it was made there       */
    const ri_step_id *made; /* what made it, by chunk and segment; NULL: it is there from the beginning     */
    ri_step_id *whole;      /* out: what brought the result, by chunk and segment; NULL: not asked for      */
};

/* Chunk c of a ring's part, and segment i of that. */
struct ri_span ri_ring_span(const struct ri_coll_args *a, const struct ri_ring *r, enum ri_slot slot, uint32_t c,
                            size_t i);

void ri_ring_laps(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_ring *r);

#endif
