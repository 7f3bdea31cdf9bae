/* SPDX-License-Identifier: Apache-2.0 */
/* accept.c - accept() for PMIx: from the guard, where that stands at the door; else the kernel's. See guard.h. */
#undef _GNU_SOURCE /* whose sys/socket.h declares accept() with a type of its own */
#define _POSIX_C_SOURCE 200809L
#include <sys/socket.h>

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard.h"

long syscall(long number, ...);

int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict len)
{
    int passed;
    if (!guard_owns(fd, &passed))
        return (int)syscall(SYS_accept4, fd, address, len, 0);
    if (passed < 0)
        errno = EAGAIN;
    else if (address && len)
        getpeername(passed, address, len);
    return passed;
}
