/* SPDX-License-Identifier: Apache-2.0 */
#include "transports/tcp/way.h"

#define NO_LANE UINT32_MAX

static uint32_t lane_for(const struct tcp_way *w, size_t len)
{
    uint32_t best = 0;
    if (!len)
        return NO_LANE;
    for (uint32_t i = 1; i < w->lanes && len >= TCP_STRIPE; i++)
        if (w->lane[i].given < w->lane[best].given)
            best = i;
    return best;
}

void tcp_way_post(struct tcp_way *w, struct ri_xfer *x)
{
    x->moved = 0;
    x->held = 0;
    x->lane = lane_for(w, x->len);
    ri_queue_put(&w->queue, x);
    if (x->lane == NO_LANE)
        return;
    w->lane[x->lane].given += x->len;
    if (!w->lane[x->lane].at)
        w->lane[x->lane].at = x;
}

struct ri_xfer *tcp_way_next(const struct ri_xfer *x)
{
    struct ri_xfer *next = x->next;
    while (next && next->lane != x->lane)
        next = next->next;
    return next;
}

void tcp_way_moved(struct tcp_way *w, uint32_t i, size_t n)
{
    struct ri_xfer *x = w->lane[i].at;
    x->moved += n;
    if (x->moved == x->len)
        w->lane[i].at = tcp_way_next(x);
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
    for (; w->queue.head && tcp_complete(w->queue.head); n++)
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
