/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport's parts by themselves: who goes by which lane, and what the kernel holds of memory that it was
 * lent. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "transports/tcp/lane.h"

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

Test(way, long_messages_take_the_lane_that_was_given_least)
{
    enum { K = 1 << 10 };
    static const struct {
        size_t len;
        uint32_t lane;
    } rows[] = {{100, 0},    {64 * K, 1}, {64 * K, 2}, {300 * K, 0}, {64 * K, 1},     {64 * K - 1, 0},
                {64 * K, 2}, {64 * K, 1}, {64 * K, 2}, {64 * K, 1},  {0, UINT32_MAX}, {1, 0}};
    enum { N = sizeof rows / sizeof *rows };
    struct tcp_way w = {.lanes = 3};
    struct ri_xfer x[N] = {{0}};
    for (size_t i = 0; i < N; i++) {
        x[i].len = rows[i].len;
        tcp_way_post(&w, &x[i]);
        cr_assert_eq(x[i].lane, rows[i].lane, "message %zu: lane %u", i, x[i].lane);
    }
    cr_assert_eq(w.lane[0].at, &x[0]);
    cr_assert_eq(w.lane[1].at, &x[1]);
    cr_assert_eq(tcp_way_next(&x[0]), &x[3]);
    cr_assert_eq(tcp_way_next(&x[9]), NULL);
}

/* ---- memory that is lent ---------------------------------------------------------------------------------------- */

enum { MESSAGES = 3 };

struct loan {
    struct tcp_zero z;
    struct tcp_way w;
    struct ri_xfer x[MESSAGES];
};

/* Three calls: the first took from messages 0 and 1, the second from 1, the third from 1 and 2. */
static void lend(struct loan *l, uint32_t number)
{
    *l = (struct loan){.z = {.on = true, .oldest = number, .next = number}, .w = {.lanes = 1}};
    for (int i = 0; i < MESSAGES; i++) {
        l->x[i].len = 10;
        tcp_way_post(&l->w, &l->x[i]);
        l->x[i].moved = 10;
    }
    tcp_zero_sent(&l->z, &l->x[0], 2);
    tcp_zero_sent(&l->z, &l->x[1], 1);
    tcp_zero_sent(&l->z, &l->x[1], 2);
}

static void expect_complete(const struct loan *l, bool first, bool second, bool third)
{
    cr_assert_eq(tcp_complete(&l->x[0]), first);
    cr_assert_eq(tcp_complete(&l->x[1]), second);
    cr_assert_eq(tcp_complete(&l->x[2]), third);
}

Test(zero, a_message_is_held_until_all_calls_that_took_from_it_are_back)
{
    static const uint32_t numbers[] = {0, 31, UINT32_MAX - 1}; /* the last wraps among them */
    for (size_t i = 0; i < 3; i++) {
        const uint32_t n = numbers[i];
        struct loan l;
        lend(&l, n);
        expect_complete(&l, false, false, false);
        cr_assert_eq(tcp_zero_back(&l.z, n + 2, n + 2, false), 1, "out of order");
        expect_complete(&l, false, false, true);
        cr_assert_eq(l.z.oldest, n);
        cr_assert_eq(tcp_zero_back(&l.z, n, n + 1, false), 2);
        expect_complete(&l, true, true, true);
        cr_assert_not(tcp_zero_holds(&l.z));
        lend(&l, n);
        cr_assert_eq(tcp_zero_back(&l.z, n, n + 2, false), 3, "all in one range");
        expect_complete(&l, true, true, true);
    }
}

Test(zero, ranges_that_were_not_lent_let_nothing_go)
{
    struct loan l;
    lend(&l, 5);
    static const uint32_t bad[][2] = {{0, 4}, {8, 8}, {4, 5}, {5, 8}, {7, 5}, {0, UINT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(tcp_zero_back(&l.z, bad[i][0], bad[i][1], true), 0, "range %zu", i);
    expect_complete(&l, false, false, false);
    cr_assert(l.z.on);
    cr_assert_eq(tcp_zero_back(&l.z, 6, 6, false), 0);
    cr_assert_eq(tcp_zero_back(&l.z, 6, 6, false), 0, "twice");
    cr_assert_eq(tcp_zero_back(&l.z, 5, 7, false), 3);
}

Test(zero, the_first_call_goes_alone_and_one_that_was_copied_is_the_last)
{
    struct loan l;
    lend(&l, 0);
    cr_assert_not(tcp_zero_ready(&l.z), "nothing is known yet");
    tcp_zero_back(&l.z, 0, 0, false);
    cr_assert(tcp_zero_ready(&l.z));
    for (int i = 0; i < TCP_ZERO_CALLS - 2; i++) {
        cr_assert(tcp_zero_ready(&l.z), "%d", i);
        tcp_zero_sent(&l.z, &l.x[2], 1);
    }
    cr_assert_not(tcp_zero_ready(&l.z), "as many as can be kept are out");
    tcp_zero_back(&l.z, 1, 3, true);
    cr_assert_not(tcp_zero_ready(&l.z), "it was no use");
    cr_assert(tcp_zero_holds(&l.z), "those that are out are waited for all the same");
}

static bool read_one(int level, int type, const struct sock_extended_err *e, size_t len, uint32_t seen[3])
{
    _Alignas(struct cmsghdr) char control[128] = {0};
    struct msghdr msg = {.msg_control = control, .msg_controllen = CMSG_SPACE(len)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    bool copied = false;
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(c), e, len);
    const bool good = tcp_zero_read(&msg, &seen[0], &seen[1], &copied);
    seen[2] = copied;
    return good;
}

Test(zero, the_error_queue_is_read_with_care)
{
    struct sock_extended_err e = {.ee_origin = SO_EE_ORIGIN_ZEROCOPY, .ee_info = 3, .ee_data = 9};
    uint32_t seen[3];
    cr_assert(read_one(SOL_IP, IP_RECVERR, &e, sizeof e, seen));
    cr_assert(seen[0] == 3 && seen[1] == 9 && !seen[2]);
    e.ee_code = SO_EE_CODE_ZEROCOPY_COPIED;
    cr_assert(read_one(SOL_IPV6, IPV6_RECVERR, &e, sizeof e, seen));
    cr_assert(seen[2]);
    cr_assert_not(read_one(SOL_IP, IP_RECVERR, &e, sizeof e - 4, seen), "too short");
    cr_assert_not(read_one(SOL_IP, IP_TTL, &e, sizeof e, seen));
    e.ee_errno = EHOSTUNREACH;
    cr_assert_not(read_one(SOL_IP, IP_RECVERR, &e, sizeof e, seen), "a real error");
    e.ee_errno = 0;
    e.ee_origin = SO_EE_ORIGIN_ICMP;
    cr_assert_not(read_one(SOL_IP, IP_RECVERR, &e, sizeof e, seen));
}

/* ---- the kernel here -------------------------------------------------------------------------------------------- */

static void loopback(int fds[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    const int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(l >= 0 && !bind(l, (struct sockaddr *)&a, sizeof a) && !listen(l, 1));
    cr_assert(!getsockname(l, (struct sockaddr *)&a, &len));
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!connect(fds[0], (struct sockaddr *)&a, sizeof a));
    fds[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    cr_assert_geq(fds[1], 0);
    close(l);
}

enum { SENDS = 6, BYTES = 1 << 20 };

/* A lane over loopback, with messages posted that the kernel is to be lent. */
struct lending {
    int fds[2];
    struct tcp_zero z;
    struct tcp_lane lane;
    struct tcp_way w;
    struct ri_xfer x[SENDS];
    unsigned char *data, *come; /* all messages */
};

static void lending_begin(struct lending *l, size_t bytes)
{
    const int on = 1;
    *l = (struct lending){
        .z = {.on = true}, .w = {.lanes = 1}, .data = ri_new(SENDS, bytes), .come = ri_new(SENDS, bytes)};
    loopback(l->fds);
    l->lane.zero = &l->z;
    l->lane.fd = l->fds[0];
    if (setsockopt(l->fds[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on))
        cr_skip_test("this kernel has no MSG_ZEROCOPY");
    for (size_t i = 0; i < SENDS * bytes; i++)
        l->data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < SENDS; i++) {
        l->x[i] = (struct ri_xfer){.buf = l->data + i * bytes, .len = bytes};
        tcp_way_post(&l->w, &l->x[i]);
    }
}

static void lending_end(struct lending *l)
{
    close(l->fds[0]);
    close(l->fds[1]);
    ri_free(l->data);
    ri_free(l->come);
}

/* Send what can be, read up to `most` bytes at the other end, and take back what the kernel has given back. */
static size_t lending_step(struct lending *l, size_t got, size_t most)
{
    if (l->w.lane[0].at)
        cr_assert_geq(tcp_lane_send(&l->lane, &l->w, 0), 0);
    const ssize_t n = recv(l->fds[1], l->come + got, most - got, MSG_DONTWAIT);
    tcp_lane_collect(&l->lane);
    return got + (n > 0 ? (size_t)n : 0);
}

/* Loopback lends until the other end has read.  It may read no further before it has what we send when this is back. */
Test(zero, a_message_comes_back_when_it_was_read_whatever_is_behind_it, .timeout = 30)
{
    enum { PIECE = 128 << 10 };
    struct lending l;
    size_t got = 0;
    lending_begin(&l, PIECE);
    const uint64_t deadline = ri_deadline(5 * RI_SECOND);
    while (!tcp_complete(&l.x[0]) && ri_now() < deadline)
        got = lending_step(&l, got, PIECE);
    cr_assert_geq(l.z.next, 1, "nothing was lent");
    cr_assert(tcp_complete(&l.x[0]), "read to its end and not back");
    lending_end(&l);
}

/* Loopback copies what it was lent when the other end reads it: the notification says so, and no call follows. */
Test(zero, loopback_is_found_to_copy, .timeout = 30)
{
    struct lending l;
    size_t got = 0;
    lending_begin(&l, BYTES);
    const uint64_t deadline = ri_deadline(20 * RI_SECOND);
    cr_assert_geq(tcp_lane_send(&l.lane, &l.w, 0), 0);
    tcp_lane_collect(&l.lane);
    cr_assert(l.z.next == 1 && !tcp_complete(&l.x[0]), "the kernel still has what was lent");
    while ((got < (size_t)SENDS * BYTES || !tcp_complete(&l.x[0])) && ri_now() < deadline)
        got = lending_step(&l, got, (size_t)SENDS * BYTES);
    cr_assert_eq(l.z.next, 1, "%u calls sent without a copy", l.z.next);
    cr_assert(!l.z.on && !l.z.proved && !tcp_zero_holds(&l.z));
    for (int i = 0; i < SENDS; i++)
        cr_assert(tcp_complete(&l.x[i]), "message %d", i);
    cr_assert_arr_eq(l.come, l.data, (size_t)SENDS * BYTES);
    lending_end(&l);
}
