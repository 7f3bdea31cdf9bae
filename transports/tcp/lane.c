/* SPDX-License-Identifier: Apache-2.0 */
#include "transports/tcp/lane.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    PIECES = 64,            /* messages in one system call                                            */
    SEND_MOST = 2 << 20,    /* bytes in one call: what the kernel has no room for ends it anyway      */
    RECV_MOST = 512 << 10,  /* receiving takes turns with sending, so that the other side has work    */
    DIRECT_LEAST = 8 << 10, /* below this a plain recv() and a copy are cheaper than a gathering call */
    FLAT_MOST = 512,        /* the same for send(): an operation's signature and its few bytes        */
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static size_t gather_sends(const struct tcp_way *w, uint32_t i, struct iovec *iov, size_t *pieces_out)
{
    size_t total = 0, n = 0;
    for (struct ri_xfer *x = w->lane[i].at; x && n < PIECES && total < SEND_MOST; x = tcp_way_next(x)) {
        const size_t len = least(x->len - x->moved, SEND_MOST - total);
        iov[n++] = (struct iovec){.iov_base = (char *)x->buf + x->moved, .iov_len = len};
        total += len;
    }
    *pieces_out = n;
    return total;
}

/* Several short pieces become one. */
static size_t flatten(struct iovec *iov, size_t n, size_t total, char flat[FLAT_MOST])
{
    size_t at = 0;
    if (n == 1 || total > FLAT_MOST)
        return n;
    for (size_t i = 0; i < n; at += iov[i++].iov_len)
        memcpy(flat + at, iov[i].iov_base, iov[i].iov_len);
    iov[0] = (struct iovec){.iov_base = flat, .iov_len = total};
    return 1;
}

static ssize_t send_pieces(int fd, struct iovec *iov, size_t n, int more_flags)
{
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | more_flags;
    const struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t got;
    do
        got = n == 1 ? send(fd, iov->iov_base, iov->iov_len, flags) : sendmsg(fd, &msg, flags);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Spread n bytes over the lane's messages in order. */
static void count(struct tcp_way *w, uint32_t i, size_t n)
{
    while (n) {
        const struct ri_xfer *x = w->lane[i].at;
        const size_t part = least(n, x->len - x->moved);
        tcp_way_moved(w, i, part);
        n -= part;
    }
}

static ssize_t send_copied(const struct tcp_lane *lane, struct iovec *iov, size_t n, size_t total)
{
    char flat[FLAT_MOST];
    n = flatten(iov, n, total, flat);
    return send_pieces(lane->fd, iov, n, 0);
}

/* Of one message, and nothing is appended to what it left in (MSG_EOR): where the bytes are lent until they are read,
 * it would come back only when those behind it have been read too, and the other end may be waiting for what this one
 * can send when it is back.  The kernel takes a number only of calls that took bytes.  No room to note what it holds:
 * copying needs none. */
static ssize_t send_uncopied(const struct tcp_lane *lane, struct tcp_way *w, struct iovec *piece)
{
    struct tcp_zero *z = lane->zero;
    if (piece->iov_len < SEND_MOST)
        piece->iov_len -= TCP_ZERO_TAIL;
    const ssize_t got = send_pieces(lane->fd, piece, 1, MSG_ZEROCOPY | MSG_EOR);
    if (got > 0)
        tcp_zero_sent(z, w->lane[lane->index].at, 1);
    else if (got < 0 && errno == ENOBUFS) {
        z->on = false;
        errno = EAGAIN;
    }
    return got;
}

ssize_t tcp_lane_send(struct tcp_lane *lane, struct tcp_way *w, uint32_t i)
{
    struct iovec iov[PIECES];
    size_t n;
    const size_t total = gather_sends(w, i, iov, &n);
    const bool zero = lane->zero && tcp_zero_ready(lane->zero) && n && iov->iov_len >= TCP_ZERO_LEAST + TCP_ZERO_TAIL;
    const ssize_t got = zero ? send_uncopied(lane, w, iov) : send_copied(lane, iov, n, total);
    if (got < 0)
        return would_block(errno) ? 0 : -1;
    count(w, i, (size_t)got);
    return got;
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* The first n staged bytes at an address that is a multiple of unit.  After a message of odd length they may not be;
 * then they move down by less than a unit, over bytes that are used up. */
static const unsigned char *aligned(const struct tcp_lane *lane, size_t n, uint32_t unit)
{
    unsigned char *p = lane->staging + lane->lo;
    const uint32_t off = lane->lo % unit;
    return off ? memmove(p - off, p, n) : p;
}

static size_t hand_on(const struct tcp_lane *lane, struct ri_xfer *x)
{
    size_t n = least(lane->hi - lane->lo, x->len - x->moved);
    if (!x->sink) {
        memcpy((char *)x->buf + x->moved, lane->staging + lane->lo, n);
        return n;
    }
    n -= n % x->unit;
    if (n)
        x->sink(x, x->moved, aligned(lane, n, x->unit), n);
    return n;
}

bool tcp_lane_staged(const struct tcp_lane *lane, const struct tcp_way *w, uint32_t i)
{
    const struct ri_xfer *x = w->lane[i].at;
    return x && lane->hi - lane->lo >= (x->sink ? x->unit : 1);
}

static size_t feed(struct tcp_lane *lane, struct tcp_way *w, uint32_t i)
{
    size_t moved = 0;
    while (tcp_lane_staged(lane, w, i)) {
        const size_t n = hand_on(lane, w->lane[i].at);
        lane->lo += (uint32_t)n;
        moved += n;
        tcp_way_moved(w, i, n);
    }
    return moved;
}

/* What is left of an unfinished unit goes to the front, so that it joins what comes next. */
static void compact(struct tcp_lane *lane)
{
    const uint32_t left = lane->hi - lane->lo;
    if (left && lane->lo)
        memmove(lane->staging, lane->staging + lane->lo, left);
    lane->lo = 0;
    lane->hi = left;
}

/* Buffers of the plain messages that come next. */
static size_t gather_recvs(const struct tcp_way *w, uint32_t i, struct iovec *iov, size_t *pieces_out)
{
    size_t total = 0, n = 0;
    struct ri_xfer *x = w->lane[i].at;
    for (; x && !x->sink && n < PIECES - 1 && total < RECV_MOST; x = tcp_way_next(x)) {
        const size_t len = least(x->len - x->moved, RECV_MOST - total);
        iov[n++] = (struct iovec){.iov_base = (char *)x->buf + x->moved, .iov_len = len};
        total += len;
    }
    *pieces_out = n;
    return total;
}

/* Into the messages' own buffers first, then into the staging buffer; direct_out: how much went to the former. */
static ssize_t receive(struct tcp_lane *lane, const struct tcp_way *w, uint32_t i, size_t *direct_out)
{
    struct iovec iov[PIECES];
    size_t n = 0, direct = 0;
    if (!lane->hi)
        direct = gather_recvs(w, i, iov, &n);
    if (direct < DIRECT_LEAST)
        direct = n = 0;
    unsigned char *const spare = lane->staging + lane->hi;
    const size_t room = TCP_STAGING - lane->hi;
    struct msghdr msg = {.msg_iov = iov};
    if (direct < RECV_MOST)
        iov[n++] = (struct iovec){.iov_base = spare, .iov_len = room};
    msg.msg_iovlen = n;
    ssize_t got;
    do
        got =
            n == 1 ? recv(lane->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) : recvmsg(lane->fd, &msg, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    *direct_out = got > 0 ? least((size_t)got, direct) : 0;
    return got;
}

ssize_t tcp_lane_recv(struct tcp_lane *lane, struct tcp_way *w, uint32_t i)
{
    const size_t moved = feed(lane, w, i);
    if (moved || !w->lane[i].at)
        return (ssize_t)moved;
    compact(lane);
    size_t direct = 0;
    const ssize_t got = lane->ended ? 0 : receive(lane, w, i, &direct);
    if (got < 0 && would_block(errno)) {
        lane->ready = false;
        return 0;
    }
    if (got <= 0) {
        if (!got)
            errno = 0;
        lane->ended = true;
        return -1;
    }
    count(w, i, direct);
    lane->hi += (uint32_t)((size_t)got - direct);
    feed(lane, w, i);
    return got;
}
