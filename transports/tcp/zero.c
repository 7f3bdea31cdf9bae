/* SPDX-License-Identifier: Apache-2.0 */
#include "transports/tcp/zero.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>

#include "transports/tcp/way.h"

bool tcp_zero_ready(const struct tcp_zero *z)
{
    const uint32_t out = z->next - z->oldest;
    return z->on && out < (z->proved ? TCP_ZERO_CALLS : 1);
}

void tcp_zero_sent(struct tcp_zero *z, struct ri_xfer *x, uint32_t count)
{
    z->call[z->next++ % TCP_ZERO_CALLS] = (struct tcp_zero_call){.first = x, .count = count};
    for (; count; count--, x = tcp_way_next(x))
        x->held++;
}

static unsigned let_go(struct tcp_zero_call *call)
{
    unsigned freed = 0;
    for (struct ri_xfer *x = call->first, *next; x && call->count; call->count--, x = next) {
        next = call->count > 1 ? tcp_way_next(x) : NULL;
        freed += !--x->held;
    }
    call->first = NULL;
    return freed;
}

unsigned tcp_zero_back(struct tcp_zero *z, uint32_t low, uint32_t high, bool copied)
{
    const uint32_t out = z->next - z->oldest;
    unsigned freed = 0;
    if (low - z->oldest >= out || high - z->oldest >= out || high - low >= out)
        return 0; /* nothing that we know of */
    for (uint32_t i = low; i != high + 1; i++)
        freed += let_go(&z->call[i % TCP_ZERO_CALLS]);
    while (tcp_zero_holds(z) && !z->call[z->oldest % TCP_ZERO_CALLS].first)
        z->oldest++;
    z->proved = z->proved || !copied;
    z->on = z->on && !copied;
    return freed;
}

bool tcp_zero_read(struct msghdr *msg, uint32_t *low_out, uint32_t *high_out, bool *copied_out)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        struct sock_extended_err e;
        const bool v4 = c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR;
        const bool v6 = c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR;
        if (!(v4 || v6) || c->cmsg_len < CMSG_LEN(sizeof e))
            continue;
        memcpy(&e, CMSG_DATA(c), sizeof e);
        if (e.ee_errno || e.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
            continue;
        *low_out = e.ee_info;
        *high_out = e.ee_data;
        *copied_out = e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED;
        return true;
    }
    return false;
}

unsigned tcp_zero_collect(struct tcp_zero *z, int fd)
{
    unsigned freed = 0;
    while (tcp_zero_holds(z)) {
        _Alignas(struct cmsghdr) char control[256];
        struct msghdr msg = {.msg_control = control, .msg_controllen = sizeof control};
        uint32_t low, high;
        bool copied;
        ssize_t n;
        do
            n = recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            break; /* nothing there, or a dead socket, of which sending and receiving will tell */
        if (tcp_zero_read(&msg, &low, &high, &copied))
            freed += tcp_zero_back(z, low, high, copied);
    }
    return freed;
}
