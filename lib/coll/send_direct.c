/* SPDX-License-Identifier: Apache-2.0 */
/* send_direct.c - one rank's half of a message to another: straight from SRC.  No elements: nothing to do. */
#include "lib/coll/p2p.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const size_t segments = ri_segments(a, a->count);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++)
        ri_send(s, a->root, ri_segment(a, RI_SRC, (struct ri_cut){0, a->count}, segments, i), RI_NONE);
    return ri_sched_done(s);
}

const struct ri_algorithm ri_algorithm_send_direct = {
    .name = "direct",
    .help = "straight from the caller's buffer",
    .coll = RING_SEND,
    .fits = ri_p2p_fits,
    .cost = ri_p2p_cost,
    .build = build,
};
