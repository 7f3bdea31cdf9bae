/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h - a power of two from any number of ranks, for algorithms that exchange at distances 1, 2, 4 ... .
 *
 * r = n - 2^floor(log2 n) ranks are too many.  The first 2 r places pair up: the second of a pair gives its operand to
 * the first, sits out, and gets the result at the end.  That costs two steps of the whole buffer.  Places are those of
 * layout->order, so that pairs share a host where they can. */
#ifndef RI_FOLD_H
#define RI_FOLD_H

#include "lib/coll/coll.h"

struct ri_fold {
    uint32_t power, rest; /* ranks that exchange, and ranks that sit out */
    uint32_t v;           /* this rank's number among those that exchange; RI_NONE: it sits out */
    uint32_t partner;     /* the other rank of its pair; RI_NONE: it has none */
};

uint32_t ri_power_below(uint32_t n); /* the largest that is not above n > 0 */
struct ri_fold ri_fold_of(const struct ri_coll_args *a);
uint32_t ri_fold_rank(const struct ri_coll_args *a, const struct ri_fold *f, uint32_t v);

/* In ri_segments() of the whole buffer; here[i] is what makes segment i.  Taking in writes the pair's sum of SRC to
 * `to`, where only slot and offset count; a rank without a partner does nothing. */
void ri_fold_take_in(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_fold *f, struct ri_span to,
                     ri_step_id *here);
void ri_fold_give_back(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_fold *f,
                       const ri_step_id *here);
void ri_fold_sit_out(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_fold *f, ri_step_id *here);

/* Nanoseconds of an exchange of `bytes` each way at a distance.  Within a host it takes the host's time; across, all
 * ranks of a host exchange at once. */
double ri_fold_time(const struct ri_coll_args *a, const struct ri_cost_model *m, uint32_t far, double messages,
                    double bytes);

#endif
