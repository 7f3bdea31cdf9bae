/* SPDX-License-Identifier: Apache-2.0 */
/* recv_direct.c - one rank's half of a message from another: straight into DST.  No elements: a token. */
#include "lib/coll/p2p.h"

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const size_t segments = ri_segments(a, a->count);
    const struct ri_span token = a->count ? (struct ri_span){0} : ri_tmp(s, 1);
    for (size_t i = 0; i < segments && s->status == RING_OK; i++)
        ri_recv(s, a->root, ri_piece(a, RI_DST, (struct ri_cut){0, a->count}, segments, i, token, 0), RI_NONE);
    return ri_sched_done(s);
}

const struct ri_algorithm ri_algorithm_recv_direct = {
    .name = "direct",
    .help = "straight into the caller's buffer",
    .coll = RING_RECV,
    .fits = ri_p2p_fits,
    .cost = ri_p2p_cost,
    .build = build,
};
