/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

struct ri_seg {
    struct ri_seg *next;
    dev_t dev;
    ino_t ino;
    unsigned users;
    bool adopted;
    int fd;
    void *base;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ri_seg *mapped; /* all segments of this process */

static ring_status_t map(struct ri_seg *seg)
{
    struct stat st;
    if (fstat(seg->fd, &st))
        return ri_fail_errno("fstat of a shared segment");
    seg->dev = st.st_dev;
    seg->ino = st.st_ino;
    seg->bytes = (size_t)st.st_size;
    seg->base = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, seg->fd, 0);
    if (seg->base == MAP_FAILED) {
        seg->base = NULL;
        return ri_fail_errno("mmap of %zu shared bytes", seg->bytes);
    }
    return RING_OK;
}

static void drop(struct ri_seg *seg)
{
    if (seg->base)
        munmap(seg->base, seg->bytes);
    if (seg->fd >= 0)
        close(seg->fd);
    ri_free(seg);
}

static void enlist(struct ri_seg *seg)
{
    pthread_mutex_lock(&lock);
    seg->users = 1;
    seg->next = mapped;
    mapped = seg;
    pthread_mutex_unlock(&lock);
}

/* posix_fallocate makes the pages exist now: a full machine gives an error here instead of a SIGBUS later. */
static ring_status_t make(struct ri_seg *seg, const char *what, size_t bytes, bool sparse)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (bytes + page - 1) / page * page;
    seg->fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (seg->fd < 0)
        return ri_fail_errno("memfd_create(%s)", what);
    if (ftruncate(seg->fd, (off_t)whole))
        return ri_fail_errno("%zu bytes of shared memory for %s", whole, what);
    errno = sparse ? 0 : posix_fallocate(seg->fd, 0, (off_t)whole);
    if (errno)
        return ri_fail_errno("%zu bytes of shared memory for %s", whole, what);
    if (fcntl(seg->fd, F_ADD_SEALS, SEALS))
        return ri_fail_errno("sealing the shared memory of %s", what);
    return map(seg);
}

static ring_status_t create(const char *what, size_t bytes, bool sparse, struct ri_seg **seg_out)
{
    struct ri_seg *seg = ri_new(1, sizeof *seg);
    if (!seg)
        return ri_fail(RING_ERR_NOMEM, "no memory for a shared segment");
    seg->fd = -1;
    const ring_status_t status = make(seg, what, bytes ? bytes : 1, sparse);
    if (status) {
        drop(seg);
        return status;
    }
    enlist(seg);
    *seg_out = seg;
    return RING_OK;
}

ring_status_t ri_seg_create(const char *what, size_t bytes, struct ri_seg **seg_out)
{
    return create(what, bytes, false, seg_out);
}

ring_status_t ri_seg_create_sparse(const char *what, size_t bytes, struct ri_seg **seg_out)
{
    return create(what, bytes, true, seg_out);
}

static struct ri_seg *find(const struct stat *st)
{
    struct ri_seg *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct ri_seg *s = mapped; s && !found; s = s->next)
        if (s->dev == st->st_dev && s->ino == st->st_ino) {
            s->users++;
            found = s;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static ring_status_t adopt(int fd, size_t bytes, struct ri_seg **seg_out)
{
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return ri_fail(RING_ERR_INVALID, "a peer sent a descriptor that is not a sealed memory segment");
    if (fstat(fd, &st) || st.st_size < 0 || (size_t)st.st_size < bytes)
        return ri_fail(RING_ERR_INVALID, "a peer sent a memory segment smaller than %zu bytes", bytes);
    struct ri_seg *seg = find(&st);
    if (seg) {
        close(fd);
        *seg_out = seg;
        return RING_OK;
    }
    if (!(seg = ri_new(1, sizeof *seg)))
        return ri_fail(RING_ERR_NOMEM, "no memory for a shared segment");
    seg->fd = fd;
    seg->adopted = true;
    const ring_status_t status = map(seg);
    if (status) {
        seg->fd = -1; /* the caller closes it */
        drop(seg);
        return status;
    }
    enlist(seg);
    *seg_out = seg;
    return RING_OK;
}

ring_status_t ri_seg_adopt(int fd, size_t bytes, struct ri_seg **seg_out)
{
    const ring_status_t status = adopt(fd, bytes, seg_out);
    if (status)
        close(fd);
    return status;
}

void *ri_seg_base(const struct ri_seg *seg) { return seg->base; }

size_t ri_seg_bytes(const struct ri_seg *seg) { return seg->bytes; }

int ri_seg_fd(const struct ri_seg *seg) { return seg->fd; }

void ri_seg_keep_mapping(struct ri_seg *seg)
{
    pthread_mutex_lock(&lock);
    if (seg->adopted && seg->fd >= 0) {
        close(seg->fd);
        seg->fd = -1;
    }
    pthread_mutex_unlock(&lock);
}

void ri_seg_close(struct ri_seg *seg)
{
    if (!seg)
        return;
    pthread_mutex_lock(&lock);
    const unsigned left = --seg->users;
    if (!left) {
        struct ri_seg **at = &mapped;
        while (*at != seg)
            at = &(*at)->next;
        *at = seg->next;
    }
    pthread_mutex_unlock(&lock);
    if (!left)
        drop(seg);
}

ring_status_t ri_fd_send(int sock, int fd, const void *bytes, size_t len)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof control.space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len ? RING_OK : ri_fail_errno("passing shared memory to a peer");
}

int ri_fd_recv(int sock, int *fd_out, void *bytes, size_t len)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    int fd = -1;
    if (n >= 0)
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
                memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (n != (ssize_t)len) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *fd_out = fd;
    return 1;
}
