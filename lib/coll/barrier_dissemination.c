/* SPDX-License-Identifier: Apache-2.0 */
/* barrier_dissemination.c - log2(n) rounds of tokens (Hensgen, Finkel and Manber, IJPP 17(1), 1988).
 *
 * In round k a rank tells the one 2^k places on, and hears from the one 2^k places before, that all have come of whom
 * it has heard so far.  After ceil(log2 n) rounds that is everybody.  A token is one byte of scratch memory. */
#include "lib/coll/coll.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const uint32_t n = a->size;
    ri_step_id heard = RI_NONE; /* of all so far */
    const struct ri_span mine = ri_tmp(s, 1);
    for (uint32_t far = 1; far < n; far *= 2) {
        ri_send(s, (a->rank + far) % n, mine, heard);
        heard = ri_join(s, heard, ri_recv(s, (a->rank + n - far) % n, ri_tmp(s, 1), RI_NONE));
    }
    return ri_sched_done(s);
}

static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    double total = 0;
    for (uint32_t far = 1; far < a->size; far *= 2)
        total += ri_cost_of(m, 1, 1);
    return total;
}

const struct ri_algorithm ri_algorithm_barrier_dissemination = {
    .name = "dissemination",
    .help = "log2(n) rounds of one token each way",
    .coll = RING_BARRIER,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
