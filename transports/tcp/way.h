/* SPDX-License-Identifier: Apache-2.0 */
/* way.h - one direction of a link over several sockets: which message travels on which socket, and in which order they
 * are reported.
 *
 * There are no headers on the wire, so both ends must come to the same answer from the lengths alone: a message of at
 * least TCP_STRIPE bytes takes the next socket in turn, a shorter one takes socket 0, an empty one none.  All posted
 * messages stand in one queue in posting order; each lane (socket) keeps a place in it, the message it works on, and
 * finds its next one by walking on with its own copy of the turn.  So nothing is allocated, and a message costs one
 * step of each lane.
 *
 * An xfer is complete when moved == len.  Only the head of the queue is ever reported, which keeps posting order. */
#ifndef RI_TCP_WAY_H
#define RI_TCP_WAY_H

#include "transports/transport.h"

enum { TCP_LANES = 16, TCP_STRIPE = RI_STRIPE };

struct tcp_place {
    struct ri_xfer *at; /* what the lane works on; NULL: nothing posted for it */
    uint32_t turn;      /* the turn just after `at`                            */
};

struct tcp_way {
    struct ri_queue queue;
    uint32_t lanes, turn;
    struct tcp_place lane[TCP_LANES];
};

void tcp_way_post(struct tcp_way *w, struct ri_xfer *x);

/* The message after p->at on lane i; p->at NULL when there is none. */
struct tcp_place tcp_way_next(const struct tcp_way *w, uint32_t i, struct tcp_place p);

/* Count n more bytes of what lane i works on; goes on to the next message when it is complete. */
void tcp_way_moved(struct tcp_way *w, uint32_t i, size_t n);

/* Report what is complete at the head of the queue; how many. */
unsigned tcp_way_reap(struct tcp_way *w, struct ri_queue *done);

/* Report all of it: what is complete at the head with success, the rest as lost. */
unsigned tcp_way_fail(struct tcp_way *w, struct ri_queue *done);

#endif
