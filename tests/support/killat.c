/* SPDX-License-Identifier: Apache-2.0 */
/* killat.c - preloaded into a rank, it ends the process by SIGKILL at its KILL_AT-th call that has to do with another
 * process: so each point of meeting and connecting can be tried, one after the other. */
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void count(void)
{
    static _Atomic long calls;
    const char *at = getenv("KILL_AT");
    if (at && atomic_fetch_add(&calls, 1) + 1 == atol(at))
        kill(getpid(), SIGKILL);
}

/* POSIX has function pointers fit into void pointers. */
#define REAL(name) *(void **)&real = dlsym(RTLD_NEXT, name)

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t);
    REAL("connect");
    count();
    return real(fd, address, len);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int);
    REAL("send");
    count();
    return real(fd, bytes, len, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int);
    REAL("sendmsg");
    count();
    return real(fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int);
    REAL("recvmsg");
    count();
    return real(fd, msg, flags);
}
