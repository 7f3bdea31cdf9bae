/* SPDX-License-Identifier: Apache-2.0 */
/* strangers - whoever comes to the port without the key: each is closed, hears nothing, and disturbs no rank. */
#include <criterion/criterion.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/boot/port.h"

enum { COMM = 77, HERE = 0 };
static const uint8_t key[RI_KEY] = {3, 1, 4, 1, 5};
static struct ri_port *port;
static struct ri_member member;

static bool key_of(void *owner, uint32_t from, uint8_t key_out[RI_KEY])
{
    (void)owner;
    memcpy(key_out, key, RI_KEY);
    return from < 1000;
}

static void open_port(void)
{
    struct ri_conf conf;
    signal(SIGPIPE, SIG_IGN);
    ri_conf_defaults(&conf);
    cr_assert_eq(ri_port_open(&conf, true, &port), RING_OK, "%s", ri_error_get());
    member = (struct ri_member){.comm_id = COMM, .rank = HERE, .key = key_of};
    ri_port_join(port, &member);
}

static void close_port(void)
{
    ri_port_leave(port, &member);
    ri_port_close(port);
}

/* ---- what strangers do ---- */

static int knock(void)
{
    struct sockaddr_storage sa;
    const socklen_t len = ri_address_sockaddr(&ri_port_endpoint(port)->addr[0], NULL, &sa);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&sa, len), 0);
    return fd;
}

static void say(int fd, const void *bytes, size_t len)
{
    cr_assert_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Exactly len bytes within ms milliseconds. */
static bool hear(int fd, void *bytes, size_t len, int ms)
{
    size_t got = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (got < len && poll(&p, 1, ms) > 0) {
        const ssize_t n = recv(fd, (char *)bytes + got, len - got, 0);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got == len;
}

/* Closed within ms, and not a byte before that. */
static void check_closed(int fd, int ms, const char *what)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    cr_assert_gt(poll(&p, 1, ms), 0, "%s: still open after %d ms", what, ms);
    const ssize_t n = recv(fd, &byte, 1, 0);
    cr_assert(n == 0 || (n < 0 && errno == ECONNRESET), "%s: it was answered", what);
    close(fd);
}

/* A rank that comes meanwhile is in within a second. */
static void check_ranks_get_in(uint32_t from)
{
    for (int kind = 0; kind < 2; kind++) {
        struct ri_hello h = {.comm_id = COMM, .from = from, .to = HERE, .purpose = RI_FOR_LINK, .lane = (uint16_t)kind};
        int mine = -1, theirs = -1;
        const uint64_t begin = ri_now();
        cr_assert_eq(
            ri_port_connect(port, ri_port_endpoint(port), kind, &h, key, NULL, ri_deadline(5 * RI_SECOND), &mine),
            RING_OK, "%s", ri_error_get());
        cr_assert_eq(
            ri_port_collect(port, &member, from, RI_FOR_LINK, (uint16_t)kind, NULL, ri_deadline(RI_SECOND), &theirs),
            RING_OK, "%s", ri_error_get());
        cr_assert_leq(ri_now() - begin, RI_SECOND);
        close(mine);
        close(theirs);
    }
}

static void make_hello(uint8_t wire[RI_HELLO_BYTES], uint64_t comm, uint32_t from, uint32_t to,
                       const uint8_t with[RI_KEY])
{
    struct ri_hello h = {.comm_id = comm, .from = from, .to = to, .purpose = RI_FOR_CONTROL};
    ri_random(h.nonce, sizeof h.nonce);
    ri_hello_encode(&h, with, wire);
}

/* ---- the tests ---- */

Test(strangers, that_say_nothing_are_closed_after_two_seconds, .timeout = 30)
{
    open_port();
    const uint64_t begin = ri_now();
    const int silent = knock(), slow = knock(), gone = knock(), reset = knock();
    const struct linger at_once = {.l_onoff = 1};
    say(slow, "R", 1);
    close(gone);
    setsockopt(reset, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(reset);
    check_ranks_get_in(5);
    check_closed(silent, 2600, "silent");
    cr_assert_geq(ri_now() - begin, 1500 * RI_MILLISECOND, "a slow rank has its time");
    check_closed(slow, 600, "one byte");
    check_ranks_get_in(6);
    close_port();
}

Test(strangers, that_speak_something_else_are_closed_without_a_word, .timeout = 30)
{
    open_port();
    uint8_t noise[4096], hello[RI_HELLO_BYTES];
    const uint8_t length_field[RI_HELLO_BYTES] = {0, 0, 0, 64}; /* 1 GiB to whoever reads a length */
    char http[RI_HELLO_BYTES] = "GET / HTTP/1.1\r\nHost: ring\r\n\r\n";
    unsigned seed = 20260102;
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)rand_r(&seed);
        const int fd = knock();
        say(fd, noise, sizeof noise);
        check_closed(fd, 1000, "noise");
    }
    int fd = knock();
    say(fd, http, sizeof http);
    check_closed(fd, 1000, "HTTP");
    fd = knock();
    say(fd, length_field, sizeof length_field);
    check_closed(fd, 1000, "a length field");
    make_hello(hello, COMM, 1, HERE, key);
    hello[0] ^= 1;
    fd = knock();
    say(fd, hello, sizeof hello);
    check_closed(fd, 1000, "another magic");
    check_ranks_get_in(5);
    close_port();
}

Test(strangers, without_the_key_or_with_a_wrong_name_are_closed_without_a_word, .timeout = 30)
{
    open_port();
    uint8_t hello[RI_HELLO_BYTES], wrong[RI_KEY] = {1};
    static const struct {
        uint64_t comm;
        uint32_t from, to;
    } names[] = {{COMM, 1, HERE}, {COMM + 1, 1, HERE}, {COMM, 1, HERE + 1}, {COMM, 1000, HERE}};
    for (size_t i = 0; i < 4; i++) { /* the first has the right names, but not the key */
        const int fd = knock();
        make_hello(hello, names[i].comm, names[i].from, names[i].to, i ? key : wrong);
        say(fd, hello, sizeof hello);
        check_closed(fd, 1000, "a wrong key or name");
    }
    for (int bit = 0; bit < RI_HELLO_BYTES * 8; bit += 7) {
        const int fd = knock();
        make_hello(hello, COMM, 1, HERE, key);
        hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
        say(fd, hello, sizeof hello);
        check_closed(fd, 1000, "a changed hello");
    }
    check_ranks_get_in(1);
    close_port();
}

Test(strangers, that_replay_what_they_have_heard_get_no_further_than_the_challenge, .timeout = 30)
{
    open_port();
    uint8_t hello[RI_HELLO_BYTES], challenge[RI_CHALLENGE_BYTES], proof[RI_PROOF_BYTES], welcome = 0;
    const int real = knock();
    make_hello(hello, COMM, 1, HERE, key);
    say(real, hello, sizeof hello);
    cr_assert(hear(real, challenge, sizeof challenge, 1000));
    cr_assert(ri_challenge_verify(hello, challenge, key));
    ri_proof_encode(hello, challenge, key, proof);
    say(real, proof, sizeof proof);
    cr_assert(hear(real, &welcome, 1, 1000));
    cr_assert_eq(welcome, RI_WELCOME);
    for (int with_proof = 0; with_proof < 2; with_proof++) {
        uint8_t other[RI_CHALLENGE_BYTES];
        const int fd = knock();
        say(fd, hello, sizeof hello);
        cr_assert(hear(fd, other, sizeof other, 1000));
        cr_assert_neq(memcmp(other, challenge, sizeof other), 0);
        if (with_proof)
            say(fd, proof, sizeof proof);
        check_closed(fd, with_proof ? 1000 : 2600, "a replay");
    }
    int collected = -1;
    cr_assert_eq(ri_port_collect(port, &member, 1, RI_FOR_CONTROL, 0, NULL, ri_deadline(RI_SECOND), &collected),
                 RING_OK);
    say(collected, "x", 1);
    cr_assert(hear(real, &welcome, 1, 1000) && welcome == 'x', "the first connection is unharmed");
    close(collected);
    close(real);
    close_port();
}

Test(strangers, in_a_flood_of_two_hundred_do_not_keep_ranks_out, .timeout = 60)
{
    open_port();
    int fds[200];
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 200; i++) {
            fds[i] = knock();
            if (kind)
                say(fds[i], "R", 1);
        }
        for (uint32_t r = 0; r < 10; r++)
            check_ranks_get_in(10 + 10 * (uint32_t)kind + r);
        for (int i = 0; i < 200; i++)
            check_closed(fds[i], 3000, "one of 200");
    }
    close_port();
}

struct flood {
    _Atomic bool stop;
    pthread_t thread;
};

static void *flood(void *arg)
{
    struct flood *f = arg;
    int fds[100] = {0};
    for (int i = 0; !f->stop; i = (i + 1) % 100) {
        if (fds[i])
            close(fds[i]);
        fds[i] = knock();
    }
    for (int i = 0; i < 100; i++)
        if (fds[i])
            close(fds[i]);
    return NULL;
}

Test(strangers, that_keep_coming_do_not_keep_ranks_out, .timeout = 60)
{
    open_port();
    struct flood f = {.stop = false};
    cr_assert_eq(pthread_create(&f.thread, NULL, flood, &f), 0);
    usleep(200000);
    for (uint32_t r = 0; r < 20; r++)
        check_ranks_get_in(100 + r);
    f.stop = true;
    pthread_join(f.thread, NULL);
    close_port();
}

static int knock_local(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    const char *name = ri_port_endpoint(port)->unix_name;
    memcpy(sa.sun_path + 1, name, strlen(name));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(
        connect(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))), 0);
    return fd;
}

Test(strangers, of_another_user_are_not_let_in_by_the_local_socket, .timeout = 30)
{
    if (geteuid()) {
        cr_skip_test("to be another user needs root");
        return;
    }
    open_port();
    const pid_t child = fork();
    if (!child) {
        char byte;
        if (setresuid(65534, 65534, 65534))
            _exit(2);
        const int fd = knock_local();
        uint8_t hello[RI_HELLO_BYTES];
        make_hello(hello, COMM, 1, HERE, key); /* even with the key */
        ssize_t ignored = send(fd, hello, sizeof hello, MSG_NOSIGNAL);
        (void)ignored;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        _exit(poll(&p, 1, 1000) == 1 && recv(fd, &byte, 1, 0) <= 0 ? 0 : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    check_ranks_get_in(5);
    close_port();
}

Test(strangers, leave_no_descriptor_behind, .timeout = 30)
{
    open_port();
    check_ranks_get_in(1);
    const int before = dup(0);
    close(before);
    for (int round = 0; round < 300; round++) {
        const int fd = knock();
        if (round % 3)
            say(fd, "GET / HTTP/1.0\r\n\r\n", 18);
        close(fd);
    }
    check_ranks_get_in(2);
    const uint64_t deadline = ri_deadline(4 * RI_SECOND);
    int after = -1;
    do {
        usleep(10000);
        after = dup(0);
        close(after);
    } while (after != before && ri_now() < deadline);
    cr_assert_eq(after, before);
    close_port();
}

/* When no descriptor is left, the rank that waits is told what is needed; and all is well again when there is one. */
Test(limits, too_few_descriptors_are_an_error_that_says_so, .timeout = 30)
{
    open_port();
    struct rlimit before, limit;
    int fd = -1;
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = 3; /* nothing more can be opened */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_NOFILE, &before);
        knock();
        sleep(3);
        _exit(0);
    }
    cr_assert_eq(ri_port_collect(port, &member, 9, RI_FOR_LINK, 0, NULL, ri_deadline(2 * RI_SECOND), &fd),
                 RING_ERR_LIMIT);
    cr_assert_not_null(strstr(ri_error_get(), "ulimit -n"), "%s", ri_error_get());
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_ranks_get_in(9);
    waitpid(child, NULL, 0);
    close_port();
}
