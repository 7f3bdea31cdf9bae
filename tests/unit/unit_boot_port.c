/* SPDX-License-Identifier: Apache-2.0 */
/* lib/boot: addresses, the choice of an interface, and the port between ranks of one process. */
#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/boot/iface.h"
#include "lib/boot/rail.h"
#include "lib/boot/port.h"

/* ---- addresses ---- */

Test(address, texts_that_are_addresses_come_back_the_same)
{
    static const char *const good[] = {"10.0.0.2:4711", "[fd00::2]:1", "[fe80::1%eth0]:65535", "127.0.0.1:80"};
    static const char *const bad[] = {"",
                                      "10.0.0.2",
                                      "10.0.0.2:",
                                      "10.0.0.2:0",
                                      "10.0.0:1",
                                      "10.0.0.2:1x",
                                      "10.0.0.2:65536",
                                      "10.0.0.2:01",
                                      "fd00::2:1",
                                      "[fd00::2]",
                                      "[fd00::2]1",
                                      "[fd00::2%eth0]:1",
                                      "[fe80::1%]:1",
                                      "host:1",
                                      "[10.0.0.2]:1",
                                      "[fe80::1%aaaaaaaaaaaaaaaa]:1",
                                      ":1",
                                      "[]:1",
                                      "[fe80::1%e h]:1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ri_address a;
        char text[RI_ADDRESS_TEXT];
        cr_assert(ri_address_parse(good[i], strlen(good[i]), &a), "%s", good[i]);
        cr_assert_str_eq(ri_address_print(&a, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ri_address a;
        cr_assert(!ri_address_parse(bad[i], strlen(bad[i]), &a), "%s", bad[i]);
    }
}

static struct ri_endpoint full_endpoint(void)
{
    struct ri_endpoint e = {.unix_name = "ring-0123456789abcdef"};
    ri_address_parse("10.0.0.2:4711", 13, &e.addr[0]);
    ri_address_parse("[fd00::2]:4712", 14, &e.addr[1]);
    ri_address_parse("[fe80::1%eth0]:9", 16, &e.addr[2]);
    return e;
}

Test(address, an_endpoint_survives_the_card_and_nothing_shorter_or_longer_does)
{
    const struct ri_endpoint e = full_endpoint();
    struct ri_endpoint back;
    uint8_t bytes[RI_ENDPOINT_BYTES + 1] = {0};
    const size_t len = ri_endpoint_encode(&e, bytes, RI_ENDPOINT_BYTES);
    cr_assert_gt(len, 0);
    cr_assert_eq(ri_endpoint_encode(&e, bytes, len - 1), 0);
    cr_assert(ri_endpoint_decode(bytes, len, &back));
    cr_assert_arr_eq(&back, &e, sizeof e);
    for (size_t n = 0; n < len; n++)
        cr_assert(!ri_endpoint_decode(bytes, n, &back), "%zu bytes", n);
    cr_assert(!ri_endpoint_decode(bytes, len + 1, &back));
    struct ri_endpoint none = {{{0}}, ""};
    const size_t least = ri_endpoint_encode(&none, bytes, sizeof bytes);
    cr_assert(ri_endpoint_decode(bytes, least, &back));
    cr_assert_arr_eq(&back, &none, sizeof none);
}

/* What decodes is what encode can write: so the two are inverse on everything that is accepted. */
Test(address, random_changes_of_an_endpoint_decode_to_themselves_or_not_at_all)
{
    const struct ri_endpoint e = full_endpoint();
    unsigned seed = 20260101, accepted = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[RI_ENDPOINT_BYTES], again[RI_ENDPOINT_BYTES];
        struct ri_endpoint back;
        const size_t len = ri_endpoint_encode(&e, bytes, sizeof bytes);
        for (int i = rand_r(&seed) % 3; i >= 0; i--)
            bytes[(size_t)rand_r(&seed) % len] = (uint8_t)rand_r(&seed);
        if (!ri_endpoint_decode(bytes, len, &back))
            continue;
        accepted++;
        cr_assert_eq(ri_endpoint_encode(&back, again, sizeof again), len);
        cr_assert_arr_eq(again, bytes, len);
    }
    cr_assert_gt(accepted, 100);
}

/* ---- interfaces ---- */

Test(iface, the_grammar_is_ncclS)
{
    static const struct {
        const char *spec, *name;
        bool match;
    } cases[] = {
        {"auto", "eth0", true},        {"eth", "eth0", true},         {"eth", "ib0", false},
        {"eth,ib", "ib0", true},       {"=eth0", "eth0", true},       {"=eth0", "eth0.1", false},
        {"=eth0", "eth01", false},     {"=eth0,=ib0", "ib0", false},  {"^docker", "eth0", true},
        {"^docker", "docker0", false}, {"^=eth0", "eth0", false},     {"^=eth0", "eth01", true},
        {"^a,b", "b1", false},         {"bond0", "bond0.2973", true}, {"=bond0", "bond0.2973", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(ri_iface_match(cases[i].spec, cases[i].name), cases[i].match, "%s %s", cases[i].spec,
                     cases[i].name);
}

Test(iface, what_is_not_in_the_grammar_is_named)
{
    static const char *const bad[] = {"^",   "=",     "^=", "eth0,", ",eth0", "eth0,,ib", "sixteen_bytes_xx",
                                      "a b", "=a,=b", ","};
    static const char *const good[] = {"eth0", "eth0,eth0", "=fifteen_bytes_x", "^=lo,docker", "auto"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(ri_iface_check(bad[i]), RING_ERR_CONFIG, "%s", bad[i]);
        cr_assert_not_null(strstr(ri_error_get(), "RING_SOCKET_IFNAME"));
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert_eq(ri_iface_check(good[i]), RING_OK, "%s", good[i]);
}

static struct ri_iface found(const char *name, unsigned flags, const char *address)
{
    struct ri_iface f = {.flags = flags};
    char text[RI_ADDRESS_TEXT];
    snprintf(f.name, sizeof f.name, "%s", name);
    snprintf(text, sizeof text, "%s:9", address);
    cr_assert(ri_address_parse(text, strlen(text), &f.addr), "%s", text);
    f.addr.port = 0;
    return f;
}

enum { UP = IFF_UP | IFF_RUNNING, COUNT = 9 };

static void machine(struct ri_iface list[COUNT])
{
    list[0] = found("lo", UP | IFF_LOOPBACK, "127.0.0.1");
    list[1] = found("docker0", UP, "172.17.0.1");
    list[2] = found("eth1", UP, "10.1.0.1");
    list[3] = found("eth0", UP, "10.0.0.1");
    list[4] = found("eth9", 0, "10.9.0.1");
    list[5] = found("ib0", IFF_UP, "10.2.0.1");
    list[6] = found("eth0", UP, "[fe80::1%eth0]");
    list[7] = found("eth0", UP, "[fd00::1]");
    list[8] = found("six", UP, "[fd06::1]");
}

struct wanted {
    const char *spec;
    uint64_t family;
    const char *route, *source; /* addresses, or NULL */
    const char *name, *first, *second, *why;
};

static const struct wanted table[] = {
    {"auto", RI_FAMILY_AUTO, NULL, NULL, "eth1", "10.1.0.1", "", "no default route"},
    {"auto", RI_FAMILY_AUTO, "10.0.0.1", NULL, "eth0", "10.0.0.1", "[fd00::1]", "carries the default route"},
    {"auto", RI_FAMILY_AUTO, "10.0.0.1", "10.1.0.1", "eth1", "10.1.0.1", "", "route to 10.5.5.5:7 leaves there"},
    {"auto", RI_FAMILY_AUTO, NULL, "127.0.0.1", "lo", "127.0.0.1", "", "leaves there"},
    {"auto", RI_FAMILY_IPV6, "10.0.0.1", NULL, "eth0", "[fd00::1]", "", "no default route"},
    {"eth", RI_FAMILY_AUTO, "10.0.0.1", NULL, "eth0", "10.0.0.1", "[fd00::1]", "RING_SOCKET_IFNAME=eth allows"},
    {"=eth1", RI_FAMILY_AUTO, "10.0.0.1", NULL, "eth1", "10.1.0.1", "", "allows"},
    {"docker", RI_FAMILY_AUTO, "10.0.0.1", NULL, "docker0", "172.17.0.1", "", "looks virtual"},
    {"=lo", RI_FAMILY_AUTO, "10.0.0.1", NULL, "lo", "127.0.0.1", "", "loopback"},
    {"^eth", RI_FAMILY_AUTO, "10.0.0.1", NULL, "six", "[fd06::1]", "", "is up"},
    {"^eth,six", RI_FAMILY_AUTO, NULL, NULL, "ib0", "10.2.0.1", "", "no carrier"},
    {"^eth,six,ib", RI_FAMILY_AUTO, NULL, NULL, "docker0", "172.17.0.1", "", "looks virtual"},
    {"^eth,six,ib,docker", RI_FAMILY_AUTO, NULL, NULL, NULL, NULL, NULL,
     "there are: lo, docker0, eth1, eth0, eth9 (down)"},
    {"eth9", RI_FAMILY_AUTO, NULL, NULL, NULL, NULL, NULL, "RING_SOCKET_IFNAME=eth9"},
    {"eth1", RI_FAMILY_IPV6, NULL, NULL, NULL, NULL, NULL, "IPv6"},
};

static struct ri_address address(const char *text) { return text ? found("x", 0, text).addr : (struct ri_address){0}; }

Test(iface, the_choice_follows_wish_route_and_kind)
{
    struct ri_iface list[COUNT];
    machine(list);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct wanted *t = &table[i];
        struct ri_iface_wish wish = {.spec = t->spec, .family = t->family};
        struct ri_iface_choice c;
        char text[RI_ADDRESS_TEXT];
        wish.default_route[0] = address(t->route);
        wish.source = address(t->source);
        ri_address_parse("10.5.5.5:7", 10, &wish.toward);
        const ring_status_t status = ri_iface_choose(list, COUNT, &wish, &c);
        cr_assert_eq(status, t->name ? RING_OK : RING_ERR_CONFIG, "case %zu", i);
        if (status) {
            cr_assert_not_null(strstr(ri_error_get(), t->why), "case %zu: %s", i, ri_error_get());
            continue;
        }
        cr_assert_str_eq(c.name, t->name, "case %zu", i);
        cr_assert_str_eq(ri_address_print(&c.addr[0], text), t->first, "case %zu", i);
        cr_assert_str_eq(c.count > 1 ? ri_address_print(&c.addr[1], text) : "", t->second, "case %zu", i);
        cr_assert_not_null(strstr(c.why, t->why), "case %zu: %s", i, c.why);
    }
}

Test(iface, a_machine_with_loopback_or_link_local_only_still_works)
{
    struct ri_iface list[2] = {found("lo", UP | IFF_LOOPBACK, "127.0.0.1"), found("eth0", UP, "[fe80::1%eth0]")};
    const struct ri_iface_wish wish = {.spec = "auto"};
    struct ri_iface_choice c;
    cr_assert_eq(ri_iface_choose(list, 1, &wish, &c), RING_OK);
    cr_assert_str_eq(c.name, "lo");
    cr_assert_eq(ri_iface_choose(list, 2, &wish, &c), RING_OK);
    cr_assert_str_eq(c.name, "eth0");
    cr_assert_str_eq(c.addr[0].scope, "eth0");
    cr_assert_eq(ri_iface_choose(list, 0, &wish, &c), RING_ERR_CONFIG);
}

static void expect_rails(const struct ri_iface_wish *wish, const char *names)
{
    struct ri_iface list[COUNT];
    struct ri_iface_choice c;
    char text[RI_ENDPOINT_ADDRS * 17] = "";
    machine(list);
    cr_assert_eq(ri_iface_choose(list, COUNT, wish, &c), RING_OK, "%s", ri_error_get());
    for (unsigned i = 0; i < c.count; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", c.of[i]);
        cr_assert_eq(c.addr[i].family, c.addr[0].family);
    }
    cr_assert_str_eq(text, names, "%s", wish->spec);
}

Test(iface, rails_are_interfaces_of_one_family_that_lead_somewhere)
{
    expect_rails(&(struct ri_iface_wish){.spec = "auto", .rails = 2}, "eth1 eth0");
    expect_rails(&(struct ri_iface_wish){.spec = "auto", .rails = 2, .default_route[0] = address("10.0.0.1")},
                 "eth0 eth1");
    expect_rails(&(struct ri_iface_wish){.spec = "auto", .rails = 4}, "eth1 eth0");
    expect_rails(&(struct ri_iface_wish){.spec = "eth,docker", .rails = 3}, "eth1 eth0 docker0");
    expect_rails(&(struct ri_iface_wish){.spec = "auto", .rails = 3, .family = RI_FAMILY_IPV6}, "eth0 six");
    expect_rails(&(struct ri_iface_wish){.spec = "=eth1", .rails = 2}, "eth1");
}

/* mine: addresses with their prefix lengths; theirs; the pairs that must come. */
static void expect_pairs(const char *const mine[], const uint8_t *bits, const char *const theirs[],
                         const char *const pairs[][2])
{
    struct ri_address here[RI_ENDPOINT_ADDRS];
    struct ri_endpoint there = {0};
    struct ri_rail rail[RI_ENDPOINT_ADDRS];
    unsigned n = 0, wanted = 0;
    char a[RI_ADDRESS_TEXT], b[RI_ADDRESS_TEXT];
    for (; mine[n]; n++)
        here[n] = address(mine[n]);
    for (unsigned i = 0; theirs[i]; i++)
        there.addr[i] = address(theirs[i]);
    while (pairs[wanted][0])
        wanted++;
    cr_assert_eq(ri_rail_pair(here, bits, n, &there, rail), wanted, "%s", mine[0]);
    for (unsigned i = 0; i < wanted; i++) {
        cr_assert_str_eq(ri_address_print(&rail[i].from, a), pairs[i][0]);
        cr_assert_str_eq(ri_address_print(&rail[i].to, b), pairs[i][1]);
    }
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BITS(...) ((const uint8_t[]){__VA_ARGS__})
#define PAIRS(...) ((const char *const[][2]){__VA_ARGS__, {NULL, NULL}})

Test(rail, networks_that_match_are_paired_then_the_rest_in_order)
{
    expect_pairs(TEXTS("10.1.0.1", "10.2.0.1"), BITS(24, 24), TEXTS("10.1.0.2", "10.2.0.2"),
                 PAIRS({"10.1.0.1", "10.1.0.2"}, {"10.2.0.1", "10.2.0.2"}));
    expect_pairs(TEXTS("10.1.0.1", "10.2.0.1"), BITS(24, 24), TEXTS("10.2.0.2", "10.1.0.2"),
                 PAIRS({"10.1.0.1", "10.1.0.2"}, {"10.2.0.1", "10.2.0.2"}));
    expect_pairs(TEXTS("10.3.0.1", "10.1.3.1", "10.4.0.1"), BITS(24, 23, 24), TEXTS("10.9.0.2", "10.1.2.2", "10.8.0.2"),
                 PAIRS({"10.1.3.1", "10.1.2.2"}, {"10.3.0.1", "10.9.0.2"}, {"10.4.0.1", "10.8.0.2"}));
    expect_pairs(TEXTS("10.1.0.1", "10.2.0.1"), BITS(24, 24), TEXTS("10.2.0.2"), PAIRS({"10.2.0.1", "10.2.0.2"}));
    expect_pairs(TEXTS("10.1.0.1", "10.1.0.2"), BITS(16, 16), TEXTS("10.1.0.3", "10.1.0.4", "10.1.0.5"),
                 PAIRS({"10.1.0.1", "10.1.0.3"}, {"10.1.0.2", "10.1.0.4"}));
    expect_pairs(TEXTS("[fd00::1]", "10.1.0.1"), BITS(64, 24), TEXTS("10.1.0.2", "[fd00::2]"),
                 PAIRS({"[fd00::1]", "[fd00::2]"}, {"10.1.0.1", "10.1.0.2"}));
    expect_pairs(TEXTS("[fd00::1]"), BITS(64), TEXTS("10.1.0.2"), ((const char *const[][2]){{NULL, NULL}}));
}

/* ---- the port ---- */

static uint8_t the_key[RI_KEY] = {1, 2, 3};

static bool key_of(void *owner, uint32_t from, uint8_t key_out[RI_KEY])
{
    memcpy(key_out, the_key, RI_KEY);
    return from < *(uint32_t *)owner;
}

struct caller {
    struct ri_port *port;
    struct ri_hello hello;
    bool via_unix;
    uint64_t deadline;
    ring_status_t status;
    int fd;
    char error[RI_ERROR_MAX];
    pthread_t thread;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    c->fd = -1;
    c->status =
        ri_port_connect(c->port, ri_port_endpoint(c->port), c->via_unix, &c->hello, the_key, NULL, c->deadline, &c->fd);
    snprintf(c->error, sizeof c->error, "%s", ri_error_get());
    return NULL;
}

static void start(struct caller *c) { cr_assert_eq(pthread_create(&c->thread, NULL, call, c), 0); }

static struct ri_port *open_port(void)
{
    struct ri_conf conf;
    struct ri_port *port = NULL;
    ri_conf_defaults(&conf);
    cr_assert_eq(ri_port_open(&conf, true, &port), RING_OK, "%s", ri_error_get());
    return port;
}

Test(port, ranks_meet_over_both_kinds_of_socket, .timeout = 20)
{
    uint32_t size = 4;
    struct ri_port *port = open_port();
    struct ri_member m = {.comm_id = 5, .rank = 1, .key = key_of, .owner = &size};
    ri_port_join(port, &m);
    for (int kind = 0; kind < 2; kind++) {
        struct caller c = {.port = port, .via_unix = kind, .deadline = ri_deadline(10 * RI_SECOND)};
        c.hello = (struct ri_hello){.comm_id = 5, .from = 2, .to = 1, .purpose = RI_FOR_LINK, .lane = (uint16_t)kind};
        int fd = -1, on = 0;
        socklen_t len = sizeof on;
        char byte = 0;
        start(&c);
        cr_assert_eq(ri_port_collect(port, &m, 2, RI_FOR_LINK, (uint16_t)kind, NULL, c.deadline, &fd), RING_OK, "%s",
                     ri_error_get());
        pthread_join(c.thread, NULL);
        cr_assert_eq(c.status, RING_OK, "%s", c.error);
        cr_assert_eq(send(fd, "x", 1, 0), 1);
        while (recv(c.fd, &byte, 1, 0) < 0)
            usleep(100);
        cr_assert_eq(byte, 'x', "what follows the welcome is the caller's");
        cr_assert(fcntl(c.fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFL) & O_NONBLOCK);
        cr_assert(fcntl(c.fd, F_GETFD) & FD_CLOEXEC && fcntl(fd, F_GETFD) & FD_CLOEXEC);
        cr_assert(kind || (!getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len) && on));
        cr_assert_eq(ri_port_peer_pid(fd), kind ? getpid() : 0);
        close(fd);
        close(c.fd);
    }
    ri_port_leave(port, &m);
    ri_port_close(port);
}

Test(port, who_comes_early_waits_for_the_rank_to_join, .timeout = 20)
{
    uint32_t size = 4;
    struct ri_port *port = open_port();
    struct ri_member m = {.comm_id = 5, .rank = 1, .key = key_of, .owner = &size};
    struct caller c = {.port = port, .deadline = ri_deadline(10 * RI_SECOND)};
    c.hello = (struct ri_hello){.comm_id = 5, .from = 0, .to = 1, .purpose = RI_FOR_CONTROL};
    int fd = -1;
    start(&c);
    usleep(150000);
    ri_port_join(port, &m);
    cr_assert_eq(ri_port_collect(port, &m, 0, RI_FOR_CONTROL, 0, NULL, c.deadline, &fd), RING_OK);
    pthread_join(c.thread, NULL);
    cr_assert_eq(c.status, RING_OK, "%s", c.error);
    close(fd);
    close(c.fd);
    ri_port_leave(port, &m);
    ri_port_close(port);
}

Test(port, looking_for_a_connection_does_not_wait, .timeout = 20)
{
    uint32_t size = 4;
    struct ri_port *port = open_port();
    struct ri_member m = {.comm_id = 5, .rank = 1, .key = key_of, .owner = &size};
    struct caller c = {.port = port, .deadline = ri_deadline(10 * RI_SECOND)};
    c.hello = (struct ri_hello){.comm_id = 5, .from = 2, .to = 1, .purpose = RI_FOR_LINK, .lane = 3};
    int fd = 7, other = 7;
    ri_port_join(port, &m);
    cr_assert_eq(ri_port_try_collect(port, &m, 2, RI_FOR_LINK, 3, &fd), RING_OK, "%s", ri_error_get());
    cr_assert_eq(fd, -1, "nobody has called");
    start(&c);
    while (fd < 0 && ri_now() < c.deadline)
        cr_assert_eq(ri_port_try_collect(port, &m, 2, RI_FOR_LINK, 3, &fd), RING_OK);
    pthread_join(c.thread, NULL);
    cr_assert_eq(c.status, RING_OK, "%s", c.error);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ri_port_try_collect(port, &m, 2, RI_FOR_LINK, 4, &other), RING_OK);
    cr_assert_eq(other, -1, "another lane has not come");
    other = 7;
    cr_assert_eq(ri_port_try_collect(port, &m, 2, RI_FOR_LINK, 3, &other), RING_OK);
    cr_assert_eq(other, -1, "it is handed out once");
    close(fd);
    close(c.fd);
    ri_port_leave(port, &m);
    ri_port_close(port);
}

Test(port, the_same_connection_is_taken_once, .timeout = 20)
{
    uint32_t size = 4;
    struct ri_port *port = open_port();
    struct ri_member m = {.comm_id = 5, .rank = 1, .key = key_of, .owner = &size};
    struct caller first = {.port = port, .deadline = ri_deadline(10 * RI_SECOND)}, second;
    first.hello = (struct ri_hello){.comm_id = 5, .from = 0, .to = 1, .purpose = RI_FOR_CONTROL};
    int fd = -1;
    ri_port_join(port, &m);
    start(&first);
    pthread_join(first.thread, NULL);
    cr_assert_eq(first.status, RING_OK, "%s", first.error);
    for (int collected = 0; collected < 2; collected++) {
        second = first;
        second.deadline = ri_deadline(200 * RI_MILLISECOND);
        start(&second);
        pthread_join(second.thread, NULL);
        cr_assert_eq(second.status, RING_ERR_TIMEOUT);
        cr_assert_not_null(strstr(second.error, "rank 1 at 127.0.0.1:"), "%s", second.error);
        cr_assert_not_null(strstr(second.error, "closed the connection"), "%s", second.error);
        if (!collected)
            cr_assert_eq(ri_port_collect(port, &m, 0, RI_FOR_CONTROL, 0, NULL, ri_deadline(RI_SECOND), &fd), RING_OK);
    }
    cr_assert_eq(send(fd, "x", 1, 0), 1, "the first is unharmed");
    close(fd);
    close(first.fd);
    ri_port_leave(port, &m);
    ri_port_close(port);
}

Test(port, waiting_ends_with_a_sentence, .timeout = 20)
{
    uint32_t size = 4;
    struct ri_port *port = open_port();
    struct ri_member m = {.comm_id = 5, .rank = 1, .key = key_of, .owner = &size};
    struct ri_endpoint nobody = {.unix_name = "ring-nobody"};
    struct ri_hello h = {.comm_id = 5, .from = 0, .to = 3, .purpose = RI_FOR_LINK};
    ri_abort_word word = 1;
    int fd = -1;
    ri_port_join(port, &m);
    cr_assert_eq(ri_port_collect(port, &m, 2, RI_FOR_LINK, 7, NULL, ri_deadline(50 * RI_MILLISECOND), &fd),
                 RING_ERR_TIMEOUT);
    cr_assert_not_null(strstr(ri_error_get(), "rank 2"));
    cr_assert_eq(ri_port_collect(port, &m, 2, RI_FOR_LINK, 7, &word, RI_NEVER, &fd), RING_ERR_ABORTED);
    ri_address_parse("127.0.0.1:1", 11, &nobody.addr[0]);
    cr_assert_eq(ri_port_connect(port, &nobody, false, &h, the_key, NULL, ri_deadline(50 * RI_MILLISECOND), &fd),
                 RING_ERR_TIMEOUT);
    cr_assert_not_null(strstr(ri_error_get(), "rank 3 at 127.0.0.1:1 "), "%s", ri_error_get());
    cr_assert_not_null(strstr(ri_error_get(), "Connection refused"), "%s", ri_error_get());
    cr_assert_eq(ri_port_connect(port, &nobody, true, &h, the_key, NULL, ri_deadline(50 * RI_MILLISECOND), &fd),
                 RING_ERR_TIMEOUT);
    cr_assert_not_null(strstr(ri_error_get(), "@ring-nobody"), "%s", ri_error_get());
    cr_assert_eq(ri_port_connect(port, &nobody, true, &h, the_key, &word, RI_NEVER, &fd), RING_ERR_ABORTED);
    cr_assert_eq(fd, -1);
    ri_port_leave(port, &m);
    ri_port_close(port);
}

Test(port, holders_share_one_door_and_the_last_one_closes_it, .timeout = 20)
{
    const int before = dup(0);
    close(before);
    for (int round = 0; round < 20; round++) {
        struct ri_port *a = open_port(), *b = open_port();
        cr_assert_arr_eq(ri_port_endpoint(a), ri_port_endpoint(b), sizeof(struct ri_endpoint));
        ri_port_close(a);
        ri_port_close(b);
    }
    cr_assert_eq(dup(0), before, "no descriptor is left");
}

static bool refused(const struct ri_endpoint *e)
{
    struct ri_hello h = {.comm_id = 5, .from = 0, .to = 1, .purpose = RI_FOR_LINK};
    int fd = -1;
    return ri_port_connect(NULL, e, false, &h, the_key, NULL, ri_deadline(50 * RI_MILLISECOND), &fd) ==
               RING_ERR_TIMEOUT &&
           strstr(ri_error_get(), "Connection refused");
}

static int be_child(int from_parent)
{
    char byte;
    if (read(from_parent, &byte, 1) != 0) /* until the parent has closed its port */
        return 1;
#if defined(__SANITIZE_THREAD__)
    return 0; /* ThreadSanitizer cannot follow threads of a forked child */
#endif
    uint32_t size = 4;
    struct ri_port *port = open_port(); /* a door and a thread of its own */
    struct ri_member m = {.comm_id = 5, .rank = 1, .key = key_of, .owner = &size};
    struct caller c = {.port = port, .deadline = ri_deadline(5 * RI_SECOND)};
    c.hello = (struct ri_hello){.comm_id = 5, .from = 0, .to = 1, .purpose = RI_FOR_CONTROL};
    int fd = -1;
    ri_port_join(port, &m);
    start(&c);
    const ring_status_t status = ri_port_collect(port, &m, 0, RI_FOR_CONTROL, 0, NULL, c.deadline, &fd);
    pthread_join(c.thread, NULL);
    ri_port_leave(port, &m);
    ri_port_close(port);
    return status || c.status;
}

Test(port, a_forked_child_does_not_keep_the_door_and_can_have_its_own, .timeout = 20)
{
    int to_child[2];
    struct ri_port *port = open_port();
    const struct ri_endpoint end = *ri_port_endpoint(port);
    cr_assert_eq(pipe(to_child), 0);
    const pid_t child = fork();
    if (!child) {
        close(to_child[1]);
        _exit(be_child(to_child[0]));
    }
    ri_port_close(port);
    cr_assert(refused(&end), "%s", ri_error_get());
    close(to_child[1]);
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

/* ---- port ranges ---- */

static int occupy(uint16_t *port)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*port)};
    socklen_t len = sizeof sa;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, 1)) {
        close(fd);
        return -1;
    }
    getsockname(fd, (struct sockaddr *)&sa, &len);
    *port = ntohs(sa.sin_port);
    return fd;
}

Test(range, what_is_not_a_range_is_named)
{
    static const char *const bad[] = {"",        "1",    "1-",   "-1",   "0-5", "5-4",
                                      "1-65536", "1-2x", " 1-2", "1 -2", "a-b", "1--2"};
    struct ri_conf conf;
    struct ri_port *port = NULL;
    ri_conf_defaults(&conf);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strcpy(conf.port_range, bad[i]);
        cr_assert_eq(ri_port_open(&conf, true, &port), RING_ERR_CONFIG, "%s", bad[i]);
        cr_assert_not_null(strstr(ri_error_get(), "RING_PORT_RANGE"));
        cr_assert_not_null(strstr(ri_error_get(), "LOW-HIGH"));
    }
    cr_assert_null(port);
}

Test(range, a_free_port_of_the_range_is_found_or_the_range_named)
{
    struct ri_conf conf;
    struct ri_port *port = NULL;
    uint16_t low = 0, high = 0;
    int a = -1, b = -1;
    while (a < 0 || b < 0) { /* two neighbours that are free */
        if (a >= 0)
            close(a);
        low = 0;
        a = occupy(&low);
        high = (uint16_t)(low + 1);
        b = low < UINT16_MAX ? occupy(&high) : -1;
    }
    ri_conf_defaults(&conf);
    snprintf(conf.port_range, sizeof conf.port_range, "%u-%u", low, high);
    cr_assert_eq(ri_port_open(&conf, true, &port), RING_ERR_LIMIT);
    cr_assert_not_null(strstr(ri_error_get(), conf.port_range), "%s", ri_error_get());
    cr_assert_not_null(strstr(ri_error_get(), "127.0.0.1"), "%s", ri_error_get());
    close(b);
    cr_assert_eq(ri_port_open(&conf, true, &port), RING_OK, "%s", ri_error_get());
    cr_assert_eq(ri_port_endpoint(port)->addr[0].port, high);
    ri_port_close(port);
    close(a);
}
