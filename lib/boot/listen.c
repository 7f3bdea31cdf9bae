/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listening sockets: one address, a port from a range, or an abstract name. */
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/boot/door.h"

static bool number(const char **p, unsigned *value_out)
{
    const char *begin = *p;
    unsigned value = 0;
    while (isdigit((unsigned char)**p) && *p - begin < 5)
        value = value * 10 + (unsigned)(*(*p)++ - '0');
    *value_out = value;
    return *p > begin && value >= 1 && value <= UINT16_MAX;
}

ring_status_t ri_port_range_parse(const char *text, struct ri_port_range *range_out)
{
    unsigned low = 0, high = 0;
    const char *p = text;
    if (ri_conf_is_auto(text)) {
        *range_out = (struct ri_port_range){0, 0};
        return RING_OK;
    }
    if (!number(&p, &low) || *p++ != '-' || !number(&p, &high) || *p || low > high)
        return ri_fail(
            RING_ERR_CONFIG,
            "RING_PORT_RANGE=\"%.64s\" is not accepted: it takes LOW-HIGH with 1 <= LOW <= HIGH <= 65535, or "
            "auto",
            text);
    *range_out = (struct ri_port_range){(uint16_t)low, (uint16_t)high};
    return RING_OK;
}

/* 0, or errno. SO_REUSEADDR: connections of an earlier run in TIME_WAIT do not count; a second listener still does. */
static int try_port(const struct ri_address *addr, int *fd_out)
{
    struct sockaddr_storage sa;
    const int on = 1;
    const socklen_t len = ri_address_sockaddr(addr, NULL, &sa);
    if (!len)
        return ENODEV;
    const int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (addr->family == 6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, SOMAXCONN)) {
        const int error = errno;
        close(fd);
        return error;
    }
    *fd_out = fd;
    return 0;
}

static int try_range(struct ri_address *addr, struct ri_port_range range, int *fd_out)
{
    int error = EADDRINUSE;
    const bool first = addr->port && (!range.low || (addr->port >= range.low && addr->port <= range.high));
    if (first && !(error = try_port(addr, fd_out)))
        return 0;
    for (unsigned port = range.low; port <= range.high; port++) {
        addr->port = (uint16_t)port;
        error = try_port(addr, fd_out);
        if (error != EADDRINUSE && error != EACCES)
            return error;
    }
    return error;
}

ring_status_t ri_listen_tcp(struct ri_address *addr, struct ri_port_range range, int *fd_out)
{
    char text[RI_ADDRESS_TEXT];
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    struct ri_address bound = *addr;
    int fd = -1;
    const int error = try_range(&bound, range, &fd);
    bound.port = 0;
    ri_address_print(&bound, text);
    if (error == EADDRINUSE || error == EACCES)
        return range.low ? ri_fail(RING_ERR_LIMIT, "none of the ports %u-%u (RING_PORT_RANGE) is free on %s: %s",
                                   range.low, range.high, text, strerror(error))
                         : ri_fail(RING_ERR_LIMIT, "no port is free on %s: %s", text, strerror(error));
    if (error) {
        errno = error;
        return ri_fail_errno("listening on %s", text);
    }
    if (getsockname(fd, (struct sockaddr *)&sa, &len) || !ri_address_from((struct sockaddr *)&sa, &bound)) {
        close(fd);
        return ri_fail(RING_ERR_SYSTEM, "the kernel does not tell the port that listens on %s", text);
    }
    addr->port = bound.port;
    *fd_out = fd;
    return RING_OK;
}

ring_status_t ri_listen_unix(char name[RI_UNIX_NAME], int *fd_out)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    uint64_t tag;
    ri_random(&tag, sizeof tag);
    snprintf(name, RI_UNIX_NAME, "ring-%016llx", (unsigned long long)tag);
    memcpy(sa.sun_path + 1, name, strlen(name));
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ri_fail_errno("a local socket to listen on");
    if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, SOMAXCONN)) {
        const ring_status_t status = ri_fail_errno("listening on the local socket @%s", name);
        close(fd);
        return status;
    }
    *fd_out = fd;
    return RING_OK;
}
