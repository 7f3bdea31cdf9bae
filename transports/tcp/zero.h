/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h - sending without a copy (MSG_ZEROCOPY), and knowing when the kernel has let go of the caller's memory.
 *
 * The kernel numbers the calls that sent without a copy, and tells on the socket's error queue, in ranges of numbers,
 * which of them it is through with.  Each call is kept here with the messages it took from; a message is held until all
 * calls that took from it have come back.
 *
 * Many ways copy after all, when the bytes arrive: loopback, pairs of virtual interfaces, devices without scatter and
 * gather.  That costs more than copying at once, and the notification says so; so the first call goes alone, and when
 * it was copied there are no others.
 *
 * The notification comes when the other end has acknowledged the bytes, and a last small packet may be acknowledged
 * late.  So the tail of a message is sent with a copy: behind it nothing needs to be waited for.
 *
 * Cost: a system call for each look while something is held.  Memory: one of these a socket. */
#ifndef RI_TCP_ZERO_H
#define RI_TCP_ZERO_H

#include <sys/socket.h>

#include "transports/transport.h"

enum { TCP_ZERO_CALLS = 32, TCP_ZERO_LEAST = 64 << 10, TCP_ZERO_TAIL = 32 << 10 };

struct tcp_zero_call {
    struct ri_xfer *first; /* that it took from, and how many on its lane; NULL: it has come back */
    uint32_t count;
};

struct tcp_zero {
    bool on, proved;       /* proved: a call has come back that was not copied */
    uint32_t oldest, next; /* numbers of the oldest call that is out and of the next to be made; they wrap */
    struct tcp_zero_call call[TCP_ZERO_CALLS]; /* by number */
};

static inline bool tcp_zero_holds(const struct tcp_zero *z) { return z->oldest != z->next; }

/* May the next call go without a copy? */
bool tcp_zero_ready(const struct tcp_zero *z);
/* A call has taken bytes of `count` messages, x and those behind it on its lane. */
void tcp_zero_sent(struct tcp_zero *z, struct ri_xfer *x, uint32_t count);
/* Calls number low to high are through; copied: it was no use.  Messages let go of. */
unsigned tcp_zero_back(struct tcp_zero *z, uint32_t low, uint32_t high, bool copied);

/* What a message of the error queue says; false: something else. */
bool tcp_zero_read(struct msghdr *msg, uint32_t *low_out, uint32_t *high_out, bool *copied_out);
/* Take in all that the error queue has.  Messages let go of. */
unsigned tcp_zero_collect(struct tcp_zero *z, int fd);

#endif
