/* SPDX-License-Identifier: Apache-2.0 */
/* way.h - one direction of a link over several sockets: which message travels on which socket, and in which order they
 * are reported.
 *
 * There are no headers on the wire, so both ends must come to the same answer from the lengths alone: a message of at
 * least TCP_STRIPE bytes takes the lane (socket) that was given the fewest bytes so far, a shorter one takes lane 0, an
 * empty one none.  All posted messages stand in one queue in posting order; each lane keeps its place in it, the
 * message it works on, and finds its next one by walking on.  So nothing is allocated, and a message costs one step of
 * each lane.
 *
 * An xfer is complete when moved == len and nothing holds it (zero.h).  Only the head of the queue is ever reported,
 * which keeps posting order. */
#ifndef RI_TCP_WAY_H
#define RI_TCP_WAY_H

#include "transports/transport.h"

enum { TCP_LANES = 64, TCP_STRIPE = RI_STRIPE };

struct tcp_lane_load {
    struct ri_xfer *at; /* what the lane works on; NULL: nothing posted for it */
    uint64_t given;     /* bytes, ever                                         */
};

struct tcp_way {
    struct ri_queue queue;
    uint32_t lanes;
    struct tcp_lane_load lane[TCP_LANES];
};

void tcp_way_post(struct tcp_way *w, struct ri_xfer *x);

/* The message after x on its lane; NULL when there is none. */
struct ri_xfer *tcp_way_next(const struct ri_xfer *x);

/* Count n more bytes of what lane i works on; goes on to the next message when it is complete. */
void tcp_way_moved(struct tcp_way *w, uint32_t i, size_t n);

static inline bool tcp_complete(const struct ri_xfer *x) { return x->moved == x->len && !x->held; }

/* Report what is complete at the head of the queue; how many. */
unsigned tcp_way_reap(struct tcp_way *w, struct ri_queue *done);

/* Report all of it: what is complete at the head with success, the rest as lost. */
unsigned tcp_way_fail(struct tcp_way *w, struct ri_queue *done);

#endif
