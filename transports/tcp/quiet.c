/* SPDX-License-Identifier: Apache-2.0 */
#include "transports/tcp/quiet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "lib/base/clock.h"

void tcp_quiet_init(int fd)
{
    const int on = 1, idle = TCP_QUIET_S / 2, interval = 1, probes = TCP_QUIET_S / 2;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* A probe of a closed window counts until it is answered; a peer that does not read answers every one. */
bool tcp_quiet(int fd, uint64_t now, uint64_t *since)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return false; /* its calls will say what is wrong with it */
    const uint64_t heard = now - info.tcpi_last_ack_recv * RI_MILLISECOND;
    if (!info.tcpi_unacked && !info.tcpi_probes)
        *since = 0;
    else if (!*since || heard >= *since)
        *since = now;
    return *since && now - *since >= TCP_QUIET_S * RI_SECOND;
}

static void print(const struct sockaddr_storage *sa, char *text, size_t cap)
{
    const void *address = sa->ss_family == AF_INET ? (const void *)&((const struct sockaddr_in *)sa)->sin_addr
                                                   : (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr;
    if (!inet_ntop(sa->ss_family, address, text, (socklen_t)cap))
        snprintf(text, cap, "?");
}

void tcp_ends(int fd, char text[TCP_ENDS_TEXT])
{
    struct sockaddr_storage here = {0}, there = {0};
    char a[INET6_ADDRSTRLEN], b[INET6_ADDRSTRLEN];
    socklen_t len = sizeof here;
    getsockname(fd, (struct sockaddr *)&here, &len);
    len = sizeof there;
    getpeername(fd, (struct sockaddr *)&there, &len);
    print(&here, a, sizeof a);
    print(&there, b, sizeof b);
    snprintf(text, TCP_ENDS_TEXT, "%s and %s", a, b);
}
