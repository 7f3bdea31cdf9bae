/* SPDX-License-Identifier: Apache-2.0 */
#include "transports/tcp/way.h"

#define NO_LANE UINT32_MAX

static uint32_t lane_of(uint32_t lanes, size_t len, uint32_t *turn)
{
    if (!len)
        return NO_LANE;
    if (len < TCP_STRIPE || lanes == 1)
        return 0;
    const uint32_t lane = *turn;
    *turn = lane + 1 == lanes ? 0 : lane + 1;
    return lane;
}

void tcp_way_post(struct tcp_way *w, struct ri_xfer *x)
{
    x->moved = 0;
    ri_queue_put(&w->queue, x);
    const uint32_t i = lane_of(w->lanes, x->len, &w->turn);
    if (i != NO_LANE && !w->lane[i].at)
        w->lane[i] = (struct tcp_place){.at = x, .turn = w->turn};
}

struct tcp_place tcp_way_next(const struct tcp_way *w, uint32_t i, struct tcp_place p)
{
    do
        p.at = p.at->next;
    while (p.at && lane_of(w->lanes, p.at->len, &p.turn) != i);
    return p;
}

void tcp_way_moved(struct tcp_way *w, uint32_t i, size_t n)
{
    struct ri_xfer *x = w->lane[i].at;
    x->moved += n;
    if (x->moved == x->len)
        w->lane[i] = tcp_way_next(w, i, w->lane[i]);
}

static void report(struct tcp_way *w, ring_status_t status, struct ri_queue *done)
{
    struct ri_xfer *x = ri_queue_take(&w->queue);
    x->status = status;
    ri_queue_put(done, x);
}

unsigned tcp_way_reap(struct tcp_way *w, struct ri_queue *done)
{
    unsigned n = 0;
    for (; w->queue.head && w->queue.head->moved == w->queue.head->len; n++)
        report(w, RING_OK, done);
    return n;
}

/* What another lane completed behind a message that is lost is lost as well: order is part of the promise. */
unsigned tcp_way_fail(struct tcp_way *w, struct ri_queue *done)
{
    unsigned n = tcp_way_reap(w, done);
    for (; w->queue.head; n++)
        report(w, RING_ERR_PEER_LOST, done);
    for (uint32_t i = 0; i < w->lanes; i++)
        w->lane[i].at = NULL;
    return n;
}
