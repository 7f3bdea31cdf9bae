/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - one socket of a link: bytes in and out.
 *
 * Sending gathers the messages that wait for this lane into one call.  Receiving goes straight into the buffers of
 * plain messages when there is enough to be worth it, with the staging buffer behind them, so that one call takes the
 * end of one message and the start of the next.  Messages with a sink, and small ones, go through the staging buffer:
 * it is small enough to stay in the second-level cache, so a sink reads what the kernel has just written.
 *
 * Cost: one system call per direction and call here; staged bytes are copied once more, sinks read them in place.
 * The lane owns its descriptor and what hangs below it. */
#ifndef RI_TCP_LANE_H
#define RI_TCP_LANE_H

#include "transports/tcp/way.h"
#include "transports/tcp/zero.h"

enum { TCP_STAGING = 128 << 10 };

struct tcp_link;
struct tcp_lane {
    struct tcp_link *link;
    uint32_t index; /* among the link's lanes */
    int fd;
    unsigned char *staging;
    char *ends;            /* between which addresses it runs, while it was known */
    struct tcp_zero *zero; /* NULL: every send copies */
    uint32_t lo, hi;       /* staged and not yet handed on: [lo, hi)             */
    uint32_t events;       /* what epoll is asked for                            */
    uint64_t waits;        /* tcp_quiet()'s                                      */
    bool watched;          /* in the epoll set                                   */
    bool ready;            /* epoll has said that there is something to read     */
    bool ended;            /* nothing more will come: end of stream, or an error */
};

/* Send once for lane i of w: bytes taken by the kernel, 0 when it would block, -1 when the socket is dead (errno). */
ssize_t tcp_lane_send(struct tcp_lane *lane, struct tcp_way *w, uint32_t i);

/* Hand on what is staged, then receive once.  Bytes moved, 0 when there is nothing, -1 when the stream has ended (errno
 * 0) or the socket is dead (errno): then lane->ended is set, and what was staged before has been handed on. */
ssize_t tcp_lane_recv(struct tcp_lane *lane, struct tcp_way *w, uint32_t i);

/* Hear of what the kernel is through with; messages that are now complete. */
static inline unsigned tcp_lane_collect(const struct tcp_lane *lane)
{
    return lane->zero && tcp_zero_holds(lane->zero) ? tcp_zero_collect(lane->zero, lane->fd) : 0;
}

/* Would tcp_lane_recv() hand something on without asking the kernel? */
bool tcp_lane_staged(const struct tcp_lane *lane, const struct tcp_way *w, uint32_t i);

#endif
