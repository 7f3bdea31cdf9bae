/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - seeing the ranks of this host die: by a pidfd where their process can be seen, and by the end of the
 * AF_UNIX connection that joins each of them to the host's first rank. */
#include "lib/comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* As in linux/pidfd.h since 6.14: the head of what PIDFD_GET_INFO fills in. */
struct pidfd_facts {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code;
};
/* How long a pidfd may take after the connection of a process has ended. */
#define PIDFD_FIRST (100 * RI_MILLISECOND)
#define FACTS_EXIT (UINT64_C(1) << 3)
#define GET_FACTS _IOWR(0xFF, 11, struct pidfd_facts)

/* The wait status of a process that has ended, by its zombie in /proc or by its pidfd; false: not to be had. */
static bool exit_status(int pidfd, int32_t pid, int *status_out)
{
    struct pidfd_facts facts = {.mask = FACTS_EXIT};
    if (!ioctl(pidfd, GET_FACTS, &facts) && facts.mask & FACTS_EXIT) {
        *status_out = facts.exit_code;
        return true;
    }
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    const char *last = strrchr(text, ' ');
    if (!name_end || !last || name_end[1] != ' ' || name_end[2] != 'Z')
        return false;
    return sscanf(last, "%d", status_out) == 1;
}

static void describe_end(int pidfd, int32_t pid, char *text, size_t cap)
{
    int status;
    if (!exit_status(pidfd, pid, &status))
        snprintf(text, cap, "ended without leaving the communicator");
    else if (status & 0x7f)
        snprintf(text, cap, "was killed by signal %d (%s)", status & 0x7f, strsignal(status & 0x7f));
    else
        snprintf(text, cap, "ended with exit code %d without leaving the communicator", status >> 8 & 0xff);
}

static bool over(const struct ring_comm *c) { return atomic_load(&c->board->all_left) || ri_comm_broken(c); }

static void stop(struct ri_watch *w)
{
    if (w->fd < 0)
        return;
    ri_loop_remove(w);
    close(w->fd);
    w->fd = -1;
}

static void died(struct ri_watch *w, uint32_t events)
{
    (void)events;
    struct ri_local *l = (struct ri_local *)((char *)w - offsetof(struct ri_local, death));
    struct ring_comm *c = l->comm;
    char how[128];
    if (!over(c)) {
        describe_end(w->fd, c->peer[l->rank].pid, how, sizeof how);
        ri_comm_raise(c, RING_ERR_PEER_LOST, l->rank, "%s %s", ri_comm_name(c, l->rank), how);
    }
    stop(w);
}

/* The pidfd knows better how a process ended, so it goes first.  But a process that becomes another program, or whose
 * pid is not to be seen, is told by its connection alone. */
static void hung_up(struct ri_timer *t, uint64_t now)
{
    (void)now;
    struct ri_local *l = (struct ri_local *)((char *)t - offsetof(struct ri_local, hang_up));
    ri_loop_timer_remove(t);
    l->hung_up = false;
    if (!over(l->comm))
        ri_comm_raise(l->comm, RING_ERR_PEER_LOST, l->rank, "%s closed its connection without leaving the communicator",
                      ri_comm_name(l->comm, l->rank));
}

/* A byte says that there is something new on the board; the end says that the process is gone. */
static void home_called(struct ri_watch *w, uint32_t events)
{
    (void)events;
    struct ri_local *l = (struct ri_local *)((char *)w - offsetof(struct ri_local, home));
    struct ring_comm *c = l->comm;
    char bytes[64];
    const ssize_t n = recv(w->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        ri_control_spread(c);
        return;
    }
    stop(w);
    if (over(c) || l->hung_up)
        return;
    l->hung_up = true;
    l->hang_up = (struct ri_timer){.period = PIDFD_FIRST, .fire = hung_up};
    ri_loop_timer_add(&l->hang_up);
}

static ring_status_t watch_process(struct ring_comm *c, struct ri_local *l)
{
    const struct ri_peer *p = &c->peer[l->rank], *me = &c->peer[c->rank];
    if (!ri_peer_visible(me, p) || p->process == me->process)
        return RING_OK; /* not to be seen, or a thread of ours */
    const int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0) {
        if (errno == ESRCH) {
            ri_comm_raise(c, RING_ERR_PEER_LOST, l->rank, "%s ended before the communicator was made", p->name);
            return ri_comm_verdict(c);
        }
        return errno == ENOSYS || errno == EPERM ? RING_OK : ri_fail_errno("watching %s", p->name);
    }
    l->death = (struct ri_watch){.fd = fd, .ready = died};
    return ri_loop_add(&l->death, EPOLLIN);
}

ring_status_t ri_watch_locals(struct ring_comm *c)
{
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < c->locals && !status; i++)
        status = watch_process(c, &c->local[i]);
    return status;
}

ring_status_t ri_watch_home(struct ri_local *l)
{
    l->home.ready = home_called;
    return ri_loop_add(&l->home, EPOLLIN);
}

void ri_watch_forget(const struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->locals; i++) {
        if (c->local[i].death.fd >= 0)
            close(c->local[i].death.fd);
        if (c->local[i].home.fd >= 0)
            close(c->local[i].home.fd);
    }
}

void ri_watch_close(struct ring_comm *c)
{
    ri_loop_lock();
    for (uint32_t i = 0; i < c->locals; i++) {
        stop(&c->local[i].death);
        stop(&c->local[i].home);
        if (c->local[i].hung_up)
            ri_loop_timer_remove(&c->local[i].hang_up);
    }
    ri_free(c->local);
    c->local = NULL;
    c->locals = 0;
    ri_loop_unlock();
}
