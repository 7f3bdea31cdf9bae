/* SPDX-License-Identifier: Apache-2.0 */
/* collect.h - one rank gets everybody's operand and combines them in rank order: the receiving half of the algorithms
 * that reduce directly.
 *
 * Every operand is read once and every result rounded once, so the bits do not depend on sizes, segments or timing.
 * Cost: n - 1 times the operand comes in over the rank's one way in.  Scratch memory: the operand of each rank, or two
 * segments of each when there are more. */
#ifndef RI_COLLECT_H
#define RI_COLLECT_H

#include "lib/coll/coll.h"

/* From all other ranks the elements that are own.count here, combined with SRC at `own`, the result in DST from `to`
 * on, divided in the end if it is an average.  The others send it in ri_segments() of own.count, in order.  By segment:
 * after, what still reads DST there, and made, what writes it (either may be NULL). */
void ri_collect(struct ri_sched *s, const struct ri_coll_args *a, struct ri_cut own, size_t to, const ri_step_id *after,
                ri_step_id *made);

/* Nanoseconds of it beside those of the links: what comes is written to scratch memory and read again. */
static inline double ri_cost_collect(const struct ri_coll_args *a, const struct ri_cost_model *m, double bytes)
{
    return 2.0 * (a->size - 1) * m->reduce_byte * bytes;
}

#endif
