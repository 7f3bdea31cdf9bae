/* SPDX-License-Identifier: Apache-2.0 */
/* Which RDMA devices, ports and GIDs are used: the settings, tables as devices have them, and both ends of a link. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "transports/verbs/gid.h"

static uint64_t seed_of_all(void)
{
    const char *text = getenv("RING_TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : ri_now();
    fprintf(stderr, "RING_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static unsigned chance(uint64_t *state, unsigned below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((*state >> 33) % below);
}

static void expect_text(const char *text, const char *part)
{
    cr_assert(strstr(text, part), "\"%s\" is not in \"%s\"", part, text);
}

/* ---- RING_IB_HCA ----------------------------------------------------------------------------------------------- */

Test(hca, names_and_ports)
{
    static const struct {
        const char *spec, *device;
        unsigned port;
        bool wanted;
    } rows[] = {
        {"auto", "mlx5_0", 1, true},
        {"auto", "rxe_eth0", 0, true},
        {"mlx5_0", "mlx5_0", 1, true},
        {"mlx5_0", "mlx5_0", 2, true},
        {"mlx5_1", "mlx5_10", 1, true}, /* a prefix */
        {"=mlx5_1", "mlx5_10", 1, false},
        {"=mlx5_1", "mlx5_1", 1, true},
        {"mlx5_10", "mlx5_1", 1, false},
        {"mlx4,mlx5_1:2", "mlx4_0", 1, true},
        {"mlx4,mlx5_1:2", "mlx5_1", 1, false},
        {"mlx4,mlx5_1:2", "mlx5_1", 2, true},
        {"mlx4,mlx5_1:2", "mlx5_1", 0, true},
        {"mlx4,mlx5_1:2", "mlx5_0", 0, false},
        {"=mlx5_0:1,mlx5_1:255", "mlx5_1", 255, true},
        {"=mlx5_0:1,mlx5_1:255", "mlx5_11", 255, false},
        {"^mlx5", "mlx5_0", 1, false},
        {"^mlx5", "mlx5_0", 0, false},
        {"^mlx5", "rxe0", 1, true},
        {"^=mlx5_1", "mlx5_1", 1, false},
        {"^=mlx5_1", "mlx5_10", 1, true},
        {"^mlx5_0:1", "mlx5_0", 1, false},
        {"^mlx5_0:1", "mlx5_0", 2, true},
        {"^mlx5_0:1", "mlx5_0", 0, true},
        {"^=a:1,b", "a", 2, true},
        {"^=a:1,b", "b", 2, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verbs_hca hca;
        cr_assert_eq(verbs_hca_parse(rows[i].spec, &hca), RING_OK, "%s: %s", rows[i].spec, ri_error_get());
        cr_assert_eq(verbs_hca_wanted(&hca, rows[i].device, rows[i].port), rows[i].wanted, "%s: %s port %u",
                     rows[i].spec, rows[i].device, rows[i].port);
    }
}

Test(hca, what_is_not_in_the_grammar)
{
    static const char *const bad[] = {"",     "^",    "=",     "^=",     ",",       "mlx5_0,",    ",mlx5_0",
                                      "a,,b", "=^a",  "^^a",   "a,=b",   "a,^b",    "a b",        "a/b",
                                      "a:",   "a:0",  "a:256", "a:-1",   "a:1x",    "a:0001",     "a:1:2",
                                      ":1",   "a: 1", "a\tb",  "a:1,b:", "a:99999", "caf\xc3\xa9"};
    struct verbs_hca hca, before;
    memset(&hca, 7, sizeof hca);
    before = hca;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(verbs_hca_parse(bad[i], &hca), RING_ERR_CONFIG, "\"%s\" is accepted", bad[i]);
        expect_text(ri_error_get(), "RING_IB_HCA=\"");
        expect_text(ri_error_get(), bad[i]);
        expect_text(ri_error_get(), "mlx5_0,mlx5_1:1 are prefixes");
        cr_assert_eq(memcmp(&hca, &before, sizeof hca), 0, "\"%s\" was written", bad[i]);
    }
}

Test(hca, long_names_and_many)
{
    char text[RI_CONF_TEXT_MAX];
    struct verbs_hca hca;
    memset(text, 'a', VERBS_NAME);
    text[VERBS_NAME] = '\0';
    cr_assert_eq(verbs_hca_parse(text, &hca), RING_ERR_CONFIG);
    text[VERBS_NAME - 1] = '\0';
    cr_assert_eq(verbs_hca_parse(text, &hca), RING_OK);
    cr_assert(verbs_hca_wanted(&hca, text, 1));
    size_t at = 0;
    for (int i = 0; i < VERBS_HCA_WORDS; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%sd%d:1", i ? "," : "", i);
    cr_assert_eq(verbs_hca_parse(text, &hca), RING_OK);
    snprintf(text + at, sizeof text - at, ",more");
    cr_assert_eq(verbs_hca_parse(text, &hca), RING_ERR_CONFIG);
}

Test(gid, the_index_setting)
{
    static const struct {
        const char *text;
        int index; /* -2: refused */
    } rows[] = {{"auto", -1}, {"0", 0},     {"3", 3},     {"255", 255},  {"007", 7},        {"256", -2},
                {"-1", -2},   {"", -2},     {"3 ", -2},   {" 3", -2},    {"+3", -2},        {"0x3", -2},
                {"3,4", -2},  {"Auto", -2}, {"1000", -2}, {"00003", -2}, {"4294967297", -2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int index = -2;
        const ring_status_t status = verbs_gid_index(rows[i].text, &index);
        cr_assert_eq(status, rows[i].index == -2 ? RING_ERR_CONFIG : RING_OK, "\"%s\"", rows[i].text);
        cr_assert_eq(index, rows[i].index, "\"%s\": %d", rows[i].text, index);
        if (status) {
            expect_text(ri_error_get(), "RING_IB_GID_INDEX");
            expect_text(ri_error_get(), "0 to 255");
        }
    }
}

/* ---- one GID --------------------------------------------------------------------------------------------------- */

static struct verbs_gid gid(const char *address, unsigned index, unsigned type, unsigned prefix)
{
    struct verbs_gid g = {.index = (uint8_t)index, .type = (uint8_t)type, .prefix = (uint8_t)prefix};
    cr_assert_eq(inet_pton(AF_INET6, address, g.gid), 1, "%s", address);
    return g;
}

enum { IB = VERBS_GID_IB, V1 = VERBS_GID_ROCE_V1, V2 = VERBS_GID_ROCE_V2, XX = VERBS_GID_UNKNOWN };

Test(gid, classes)
{
    static const struct {
        const char *address;
        enum verbs_gid_class class;
        bool ipv4;
    } rows[] = {
        {"::", VERBS_GID_ZERO, false},
        {"fe80::", VERBS_GID_ZERO, false},
        {"::ffff:0.0.0.0", VERBS_GID_ZERO, true},
        {"fe80::1", VERBS_GID_LINK_LOCAL, false},
        {"febf::1", VERBS_GID_LINK_LOCAL, false},
        {"fec0::1", VERBS_GID_IPV6, false},
        {"fd00::1", VERBS_GID_IPV6, false},
        {"2001:db8::1", VERBS_GID_IPV6, false},
        {"::1", VERBS_GID_IPV6, false},
        {"::ffff:10.0.0.1", VERBS_GID_IPV4, true},
        {"::ffff:169.254.1.1", VERBS_GID_LINK_LOCAL, true},
        {"::ffff:169.253.1.1", VERBS_GID_IPV4, true},
        {"::ffff:127.0.0.1", VERBS_GID_LINK_LOCAL, true},
        {"::fffe:10.0.0.1", VERBS_GID_IPV6, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct verbs_gid g = gid(rows[i].address, 0, V2, 0);
        cr_assert_eq(verbs_gid_class(&g), rows[i].class, "%s", rows[i].address);
        cr_assert_eq(verbs_gid_is_ipv4(&g), rows[i].ipv4, "%s", rows[i].address);
    }
}

Test(gid, as_text)
{
    char text[VERBS_GID_TEXT];
    struct verbs_gid g = gid("::ffff:10.0.0.1", 3, V2, 0);
    cr_assert_str_eq(verbs_gid_print(&g, text), "::ffff:10.0.0.1 (index 3, RoCE v2)");
    g = gid("fe80::2:c903:0:1", 0, IB, 0);
    cr_assert_str_eq(verbs_gid_print(&g, text), "fe80::2:c903:0:1 (index 0, InfiniBand)");
    g = gid("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 255, XX, 0);
    cr_assert_str_eq(verbs_gid_print(&g, text), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff (index 255, type unknown)");
    g.type = 200;
    expect_text(verbs_gid_print(&g, text), "type unknown");
}

Test(gid, types_that_are_not_told)
{
    struct verbs_gid t[] = {gid("fe80::1", 0, XX, 0),         gid("fe80::1", 1, XX, 0),
                            gid("::ffff:10.0.0.1", 2, XX, 0), gid("::ffff:10.0.0.1", 3, XX, 0),
                            gid("fd00::1", 4, XX, 0),         gid("fd00::2", 5, V2, 0),
                            gid("fd00::2", 6, XX, 0)};
    static const uint8_t want[] = {V1, V2, V1, V2, XX, V2, XX};
    verbs_gid_guess(t, 7);
    for (int i = 0; i < 7; i++)
        cr_assert_eq(t[i].type, want[i], "%d: %u", i, t[i].type);
}

Test(gid, networks_of_interfaces)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET}, m4 = {.sin_family = AF_INET};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6}, m6 = {.sin6_family = AF_INET6};
    inet_pton(AF_INET, "10.1.2.3", &a4.sin_addr);
    inet_pton(AF_INET, "255.255.240.0", &m4.sin_addr);
    inet_pton(AF_INET6, "fd00::5", &a6.sin6_addr);
    inet_pton(AF_INET6, "ffff:ffff:ffff:ffff::", &m6.sin6_addr);
    struct ifaddrs none = {0};
    struct ifaddrs six = {.ifa_next = &none, .ifa_addr = (struct sockaddr *)&a6, .ifa_netmask = (struct sockaddr *)&m6};
    struct ifaddrs four = {.ifa_next = &six, .ifa_addr = (struct sockaddr *)&a4, .ifa_netmask = (struct sockaddr *)&m4};
    struct verbs_gid t[] = {gid("::ffff:10.1.2.3", 0, V2, 0), gid("::ffff:10.1.2.4", 1, V2, 0),
                            gid("fd00::5", 2, V2, 0), gid("fd00::6", 3, V2, 0)};
    verbs_gid_networks(t, 4, &four);
    cr_assert_eq(t[0].prefix, 96 + 20);
    cr_assert_eq(t[1].prefix, 0);
    cr_assert_eq(t[2].prefix, 64);
    cr_assert_eq(t[3].prefix, 0);
    verbs_gid_networks(t, 4, NULL);
    cr_assert_eq(t[0].prefix, 96 + 20);
}

/* ---- what may be used ------------------------------------------------------------------------------------------ */

Test(gid, what_the_settings_leave)
{
    const struct verbs_gid t[] = {gid("fe80::1", 0, V1, 0),         gid("fe80::1", 1, V2, 0),
                                  gid("::ffff:10.0.0.1", 2, V1, 0), gid("::ffff:10.0.0.1", 3, V2, 0),
                                  gid("fd00::1", 4, V1, 0),         gid("fd00::1", 5, V2, 0)};
    static const struct {
        int index;
        uint64_t family;
        unsigned count, first;
        const char *why;
    } rows[] = {{-1, RI_FAMILY_AUTO, 6, 3, ""},
                {-1, RI_FAMILY_IPV4, 2, 3, ""},
                {-1, RI_FAMILY_IPV6, 4, 5, ""},
                {0, RI_FAMILY_AUTO, 1, 0, ""},
                {4, RI_FAMILY_IPV4, 1, 4, ""}, /* an index says more than a family */
                {6, RI_FAMILY_AUTO, 0, 0, "RING_IB_GID_INDEX=6"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verbs_gid out[VERBS_GID_SENT];
        char why[VERBS_WHY] = "";
        const unsigned n = verbs_gid_usable(t, 6, rows[i].index, rows[i].family, out, why);
        cr_assert_eq(n, rows[i].count, "row %zu: %u", i, n);
        cr_assert(!n || out[0].index == rows[i].first, "row %zu: %u", i, out[0].index);
        expect_text(why, rows[i].why);
    }
    struct verbs_gid out[VERBS_GID_SENT];
    char why[VERBS_WHY];
    cr_assert_eq(verbs_gid_usable(t + 4, 2, -1, RI_FAMILY_IPV4, out, why), 0);
    expect_text(why, "RING_SOCKET_FAMILY=ipv4");
    cr_assert_eq(verbs_gid_usable(t, 0, -1, RI_FAMILY_AUTO, out, why), 0);
    expect_text(why, "no GID");
    const struct verbs_gid ib = gid("fe80::1", 0, IB, 0);
    cr_assert_eq(verbs_gid_usable(&ib, 1, -1, RI_FAMILY_IPV4, out, why), 1, "InfiniBand has no family");
}

Test(gid, of_too_many_the_better_ones_are_told)
{
    struct verbs_gid t[VERBS_GID_TABLE], out[VERBS_GID_SENT];
    char why[VERBS_WHY];
    for (unsigned i = 0; i < VERBS_GID_TABLE; i++)
        t[i] = gid(i == 200 ? "::ffff:10.0.0.1" : "fe80::1", i, i % 2 ? V1 : V2, 0);
    cr_assert_eq(verbs_gid_usable(t, VERBS_GID_TABLE, -1, RI_FAMILY_AUTO, out, why), VERBS_GID_SENT);
    cr_assert_eq(out[0].index, 200);
    cr_assert_eq(out[1].index, 0);
    cr_assert_eq(out[2].index, 2);
}

/* ---- pairs ----------------------------------------------------------------------------------------------------- */

struct table {
    struct {
        const char *address;
        unsigned index, type, prefix;
    } row[8];
};

static unsigned fill(const struct table *t, struct verbs_gid *out)
{
    unsigned n = 0;
    for (; n < 8 && t->row[n].address; n++)
        out[n] = gid(t->row[n].address, t->row[n].index, t->row[n].type, t->row[n].prefix);
    return n;
}

/* In this order: host, then what stands in its table. */
static const struct table rxe1 = {{{"fe80::1", 0, V2, 64}, {"::ffff:10.0.0.1", 1, V2, 120}, {"fd00::1", 2, V2, 64}}};
static const struct table rxe2 = {{{"fe80::2", 0, V2, 64}, {"::ffff:10.0.0.2", 1, V2, 120}, {"fd00::2", 2, V2, 64}}};
static const struct table rxe6 = {{{"fe80::3", 0, V2, 64}, {"fd00::3", 1, V2, 64}}};
static const struct table bare = {{{"fe80::4", 0, V1, 64}, {"fe80::4", 1, V2, 64}}};
static const struct table auto4 = {{{"::ffff:169.254.3.4", 1, V2, 112}, {"fe80::5", 0, V2, 64}}};
static const struct table mlx1 = {{{"fe80::11", 0, V1, 64},
                                   {"fe80::11", 1, V2, 64},
                                   {"::ffff:10.0.0.11", 2, V1, 120},
                                   {"::ffff:10.0.0.11", 3, V2, 120}}};
static const struct table mlx2 = {{{"fe80::12", 0, V1, 64},
                                   {"fe80::12", 1, V2, 64},
                                   {"::ffff:192.168.0.12", 2, V1, 120},
                                   {"::ffff:192.168.0.12", 3, V2, 120},
                                   {"::ffff:10.0.0.12", 4, V1, 120},
                                   {"::ffff:10.0.0.12", 5, V2, 120}}};
static const struct table old1 = {{{"fe80::13", 0, V1, 64}, {"::ffff:10.0.0.13", 1, V1, 120}}};
/* Networks are not known: what is most alike. */
static const struct table far1 = {{{"::ffff:10.0.0.1", 0, V2, 0}, {"::ffff:172.16.0.1", 1, V2, 0}}};
static const struct table far2 = {{{"::ffff:192.168.0.2", 0, V2, 0}, {"::ffff:172.16.0.2", 1, V2, 0}}};
static const struct table known = {{{"::ffff:10.0.0.9", 0, V2, 96 + 30}, {"::ffff:10.0.1.9", 1, V2, 120}}};
static const struct table known2 = {{{"::ffff:10.0.0.14", 0, V2, 96 + 30}, {"::ffff:10.0.1.200", 1, V2, 120}}};
static const struct table box1 = {{{"::ffff:10.0.0.21", 2, XX, 0}}};
static const struct table ib1 = {{{"fe80::2:c903:0:1", 0, IB, 0}, {"fe80::2:c903:0:101", 1, IB, 0}}};
static const struct table ib2 = {{{"fe80::2:c903:0:2", 0, IB, 0}}};
static const struct table bridge1 = {{{"::ffff:172.17.0.1", 0, V2, 112}, {"fd00::1", 1, V2, 64}}};
static const struct table bridge2 = {{{"::ffff:172.17.0.1", 0, V2, 112}, {"fd00::2", 1, V2, 64}}};

Test(gid, pairs)
{
    static const struct {
        const struct table *a, *b;
        int mine, theirs; /* indices; -1: none */
    } rows[] = {
        {&rxe1, &rxe2, 1, 1},       {&rxe1, &rxe6, 2, 1},  {&rxe1, &bare, 0, 1},   {&bare, &mlx1, 1, 1},
        {&mlx1, &mlx2, 3, 5},       {&mlx1, &old1, 2, 1},  {&rxe1, &old1, -1, -1}, {&far1, &far2, 1, 1},
        {&known, &known2, 1, 1},    {&mlx1, &box1, 3, 2},  {&old1, &box1, 1, 2},   {&box1, &rxe1, 2, 1},
        {&ib1, &ib2, 0, 0},         {&ib1, &rxe1, -1, -1}, {&auto4, &rxe1, 0, 0},  {&auto4, &far1, -1, -1},
        {&bridge1, &bridge2, 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verbs_gid a[8], b[8];
        unsigned x = 99, y = 99, n = fill(rows[i].a, a), m = fill(rows[i].b, b);
        const bool found = verbs_gid_pair(a, n, b, m, false, &x, &y);
        cr_assert_eq(found, rows[i].mine >= 0, "row %zu", i);
        if (found)
            cr_assert(a[x].index == rows[i].mine && b[y].index == rows[i].theirs, "row %zu: %u and %u", i, a[x].index,
                      b[y].index);
        else
            cr_assert(x == 99 && y == 99, "row %zu: written", i);
    }
}

Test(gid, one_device_talks_to_itself)
{
    struct verbs_gid a[8];
    unsigned x, y, n = fill(&mlx2, a);
    cr_assert(verbs_gid_pair(a, n, a, n, true, &x, &y));
    cr_assert(x == y && a[x].index == 3);
    cr_assert_not(verbs_gid_pair(a, n, a, n, false, &x, &y), "those of another device are not ours to reach");
}

static void forced(const struct table *ours, int index, const struct table *other, unsigned mine, unsigned theirs)
{
    struct verbs_gid a[8], b[8], use[VERBS_GID_SENT];
    char why[VERBS_WHY];
    unsigned x, y, n = fill(ours, a), m = fill(other, b);
    n = verbs_gid_usable(a, n, index, RI_FAMILY_AUTO, use, why);
    cr_assert(verbs_gid_pair(use, n, b, m, false, &x, &y), "index %d", index);
    cr_assert(use[x].index == mine && b[y].index == theirs, "index %d: %u and %u", index, use[x].index, b[y].index);
    cr_assert(verbs_gid_pair(b, m, use, n, false, &x, &y), "index %d", index);
    cr_assert(use[y].index == mine && b[x].index == theirs, "index %d: %u and %u", index, use[y].index, b[x].index);
}

Test(gid, an_index_that_is_set_is_followed_by_the_other_end)
{
    forced(&mlx1, 2, &mlx2, 2, 4);
    forced(&mlx1, 0, &mlx2, 0, 0);
    forced(&mlx2, 3, &mlx1, 3, 3);
    forced(&rxe1, 2, &rxe2, 2, 2);
}

static struct verbs_gid any_gid(uint64_t *state)
{
    static const char *const addresses[] = {
        "fe80::1", "fe80::2", "::ffff:10.0.0.1", "::ffff:10.0.0.2", "::ffff:10.0.1.1",    "::ffff:172.16.0.1",
        "fd00::1", "fd00::2", "fd00:1::1",       "2001:db8::1",     "::ffff:169.254.1.1", "::ffff:169.254.1.2",
        "::",      "fe80::"};
    static const unsigned prefixes[] = {0, 64, 120, 128, 112, 0};
    return gid(addresses[chance(state, 14)], chance(state, chance(state, 2) ? 256 : 4),
               chance(state, 8) ? 1 + chance(state, 3) : 0, prefixes[chance(state, 6)]);
}

Test(gid, both_ends_come_to_the_same_pair)
{
    const uint64_t seed = seed_of_all();
    uint64_t state = seed;
    unsigned found = 0;
    for (unsigned round = 0; round < 40000; round++) {
        struct verbs_gid a[12], b[12];
        const unsigned n = chance(&state, 13), m = chance(&state, 13);
        const bool one = chance(&state, 2);
        unsigned x = 0, y = 0, u = 0, v = 0;
        for (unsigned i = 0; i < n; i++)
            a[i] = any_gid(&state);
        for (unsigned i = 0; i < m; i++)
            b[i] = i < n && !chance(&state, 3) ? a[chance(&state, n)] : any_gid(&state);
        const bool here = verbs_gid_pair(a, n, b, m, one, &x, &y), there = verbs_gid_pair(b, m, a, n, one, &u, &v);
        cr_assert(here == there && x == v && y == u, "seed %llu, round %u: %d (%u, %u) and %d (%u, %u)",
                  (unsigned long long)seed, round, here, x, y, there, v, u);
        found += here;
    }
    cr_assert_gt(found, 10000, "%u", found);
}

/* ---- ports ----------------------------------------------------------------------------------------------------- */

static struct verbs_end end(const char *device, uint64_t guid, uint32_t speed, const struct table *t)
{
    struct verbs_end e = {.port = 1, .mtu = IBV_MTU_1024, .guid = guid, .speed = speed, .immediate = true};
    snprintf(e.device, sizeof e.device, "%s", device);
    e.max_message = 1U << 30;
    e.gids = fill(t, e.gid);
    e.infiniband = e.gids && e.gid[0].type == IB;
    e.lid = e.infiniband ? (uint16_t)(guid + 1) : 0;
    return e;
}

#define ADDRESS(name, text, bits) static const struct table name = {{{text, 3, V2, bits}}}
ADDRESS(red1, "::ffff:10.1.0.1", 112);
ADDRESS(red2, "::ffff:10.1.0.2", 112);
ADDRESS(blue1, "::ffff:10.2.0.1", 112);
ADDRESS(blue2, "::ffff:10.2.0.2", 112);
ADDRESS(red3, "::ffff:10.1.0.3", 112);
ADDRESS(red4, "::ffff:10.1.0.4", 112);
ADDRESS(grey2, "::ffff:10.9.0.2", 112);

struct want {
    const struct table *mine[4], *theirs[4];
    uint32_t speed[4]; /* of mine */
    unsigned count, pair[4][2];
};

static void expect_rails(const struct want *w, size_t row)
{
    struct verbs_end a[4], b[4];
    struct verbs_joint out[VERBS_RAILS_MOST], back[VERBS_RAILS_MOST];
    unsigned n = 0, m = 0;
    for (; n < 4 && w->mine[n]; n++)
        a[n] = end("mlx5_0", 10 + n, w->speed[n] ? w->speed[n] : 100000, w->mine[n]);
    for (; m < 4 && w->theirs[m]; m++)
        b[m] = end("mlx5_0", 20 + m, 100000, w->theirs[m]);
    cr_assert_eq(verbs_rails(a, n, b, m, out), w->count, "row %zu", row);
    cr_assert_eq(verbs_rails(b, m, a, n, back), w->count, "row %zu", row);
    for (unsigned i = 0; i < w->count; i++) {
        cr_assert(out[i].mine == w->pair[i][0] && out[i].theirs == w->pair[i][1], "row %zu, rail %u: %u to %u", row, i,
                  out[i].mine, out[i].theirs);
        cr_assert(back[i].mine == w->pair[i][1] && back[i].theirs == w->pair[i][0], "row %zu, rail %u", row, i);
    }
}

Test(rails, which_ports_go_together)
{
    static const struct want rows[] = {
        {{&red1}, {&red2}, {0}, 1, {{0, 0}}},
        {{&red1, &blue1}, {&red2, &blue2}, {0}, 2, {{0, 0}, {1, 1}}},
        {{&red1, &blue1}, {&blue2, &red2}, {0}, 2, {{0, 1}, {1, 0}}}, /* the order is that of the sets of GIDs */
        {{&red1, &blue1}, {&red2, &grey2}, {0}, 1, {{0, 0}}},         /* no rail that may lead nowhere */
        {{&red1}, {&grey2}, {0}, 1, {{0, 0}}},                        /* unless there is no other */
        {{&red1, &red3}, {&red2, &red4}, {0}, 2, {{0, 0}, {1, 1}}},   /* of one network: by place */
        {{&red1, &red3}, {&red2}, {0}, 1, {{0, 0}}},
        {{&red1, &red3}, {&red2}, {25000, 100000}, 1, {{1, 0}}},        /* the faster */
        {{&red1, &red3}, {&red2, &red4}, {10000, 100000}, 1, {{1, 1}}}, /* one that is slow would hold up the other */
        {{&ib1}, {&ib2}, {0}, 1, {{0, 0}}},
        {{&ib1, &red1}, {&red2, &ib2}, {100000, 50000}, 1, {{0, 1}}}, /* of one kind */
        {{&ib1, &red1}, {&red2, &ib2}, {50000, 100000}, 1, {{1, 0}}},
        {{&ib1}, {&red2}, {0}, 0, {{0}}},
        {{NULL}, {&red2}, {0}, 0, {{0}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_rails(&rows[i], i);
}

Test(rails, at_most_so_many_and_each_with_its_own_on_one_host)
{
    struct verbs_end a[VERBS_PORTS];
    struct verbs_joint out[VERBS_RAILS_MOST];
    static const struct table *const tables[] = {&red1, &blue1, &red2, &blue2, &red3, &red4, &grey2, &mlx1};
    for (unsigned i = 0; i < VERBS_PORTS; i++)
        a[i] = end("mlx5_0", i, 100000, tables[i]);
    cr_assert_eq(verbs_rails(a, VERBS_PORTS, a, VERBS_PORTS, out), VERBS_RAILS_MOST);
    for (unsigned i = 0; i < VERBS_RAILS_MOST; i++)
        cr_assert(out[i].mine == i && out[i].theirs == i, "rail %u: %u to %u", i, out[i].mine, out[i].theirs);
}

Test(rails, what_a_rail_is)
{
    struct verbs_end a = end("mlx5_0", 1, 100000, &ib1), b = end("mlx5_0", 2, 100000, &ib2);
    struct verbs_joint r[VERBS_RAILS_MOST];
    char text[512];
    a.mtu = IBV_MTU_4096;
    b.max_message = 1U << 20;
    cr_assert_eq(verbs_rails(&a, 1, &b, 1, r), 1);
    cr_assert(!r->grh && r->mtu == IBV_MTU_1024 && r->max_message == 1U << 20);
    verbs_joint_explain(&a, &b, r, text, sizeof text);
    expect_text(text, "both in one subnet");
    b.grh = true;
    cr_assert_eq(verbs_rails(&a, 1, &b, 1, r), 1);
    cr_assert(r->grh, "the peer wants one");
    b.grh = false;
    b.gid[0].gid[7] = 9;
    cr_assert_eq(verbs_rails(&a, 1, &b, 1, r), 1);
    cr_assert(r->grh, "another subnet");
    verbs_joint_explain(&a, &b, r, text, sizeof text);
    expect_text(text, "router");
    b.immediate = false;
    cr_assert_eq(verbs_rails(&a, 1, &b, 1, r), 0, "iWARP goes with iWARP");
}

Test(rails, reasons)
{
    static const struct {
        const struct table *a, *b;
        const char *part;
    } rows[] = {
        {&rxe1, &rxe2, "mlx5_0:1 ::ffff:10.0.0.1 (index 1, RoCE v2) to mlx5_1:1 ::ffff:10.0.0.2 (index 1, RoCE v2)"},
        {&rxe1, &rxe2, "IPv4, both in one network"},
        {&red1, &grey2, "IPv4, not known to be in one network"},
        {&rxe1, &rxe6, "IPv6, both in one network"},
        {&rxe1, &bare, "link-local, as nothing else goes together"},
        {&mlx1, &old1, "one end has no RoCE v2 there"}};
    struct verbs_end a, b;
    struct verbs_joint r[VERBS_RAILS_MOST];
    char text[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        a = end("mlx5_0", 1, 1, rows[i].a);
        b = end("mlx5_1", 2, 1, rows[i].b);
        cr_assert_eq(verbs_rails(&a, 1, &b, 1, r), 1, "row %zu", i);
        verbs_joint_explain(&a, &b, r, text, sizeof text);
        expect_text(text, rows[i].part);
    }
    a = end("a", 1, 1, &ib1);
    b = end("b", 2, 1, &red1);
    verbs_rails_none(&a, 1, &b, 1, text, sizeof text);
    expect_text(text, "are InfiniBand and the peer's RoCE");
    verbs_rails_none(&a, 1, &b, 0, text, sizeof text);
    expect_text(text, "the peer has no RDMA port");
    verbs_rails_none(&a, 0, &b, 1, text, sizeof text);
    expect_text(text, "this end has no RDMA port");
    a = end("a", 1, 1, &old1);
    verbs_rails_none(&a, 1, &b, 1, text, sizeof text);
    expect_text(text, "no GID of this end goes with one of the peer's");
    a.gids = 0;
    verbs_rails_none(&a, 1, &b, 1, text, sizeof text);
    expect_text(text, "a:1 has no GID");
}

static struct verbs_end any_end(uint64_t *state, unsigned number)
{
    static const struct table empty;
    static const uint32_t speeds[] = {10000, 25000, 100000};
    struct verbs_end e = end("dev", number, speeds[chance(state, 3)], &empty);
    snprintf(e.device, sizeof e.device, "dev%u", number % 10);
    e.mtu = (uint8_t)(1 + chance(state, 5));
    e.port = (uint8_t)(1 + number % 2);
    e.infiniband = !chance(state, 5);
    e.immediate = chance(state, 8);
    e.grh = !chance(state, 4);
    e.gids = chance(state, 6);
    for (unsigned i = 0; i < e.gids; i++) {
        e.gid[i] = any_gid(state);
        if (e.infiniband)
            e.gid[i].type = IB;
    }
    return e;
}

static void expect_same_rails(const struct verbs_joint *a, const struct verbs_joint *b, unsigned n, uint64_t seed,
                              unsigned round)
{
    unsigned mine = 0, theirs = 0;
    for (unsigned i = 0; i < n; i++) {
        cr_assert(a[i].mine == b[i].theirs && a[i].theirs == b[i].mine && a[i].my_gid == b[i].their_gid &&
                      a[i].their_gid == b[i].my_gid && a[i].mtu == b[i].mtu && a[i].grh == b[i].grh &&
                      a[i].max_message == b[i].max_message,
                  "seed %llu, round %u, rail %u: %u to %u and %u to %u", (unsigned long long)seed, round, i, a[i].mine,
                  a[i].theirs, b[i].theirs, b[i].mine);
        cr_assert_not((mine >> a[i].mine & 1) || (theirs >> a[i].theirs & 1), "seed %llu, round %u: a port twice",
                      (unsigned long long)seed, round);
        mine |= 1U << a[i].mine;
        theirs |= 1U << a[i].theirs;
    }
}

static void share_gids(struct verbs_end *ends, unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        if (ends[i].infiniband == ends[0].infiniband) {
            ends[i].gids = ends[0].gids;
            memcpy(ends[i].gid, ends[0].gid, sizeof ends[i].gid);
        }
}

static void number_alike(struct verbs_end *ends, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        snprintf(ends[i].device, sizeof ends[i].device, "mlx5_%u", i);
        ends[i].port = 1;
        ends[i].guid = 0;
    }
}

Test(rails, both_ends_come_to_the_same_rails)
{
    const uint64_t seed = seed_of_all();
    uint64_t state = seed;
    unsigned found = 0;
    for (unsigned round = 0; round < 8000; round++) {
        struct verbs_end a[VERBS_PORTS], b[VERBS_PORTS];
        struct verbs_joint out[VERBS_RAILS_MOST], back[VERBS_RAILS_MOST];
        const unsigned n = chance(&state, VERBS_PORTS + 1), m = chance(&state, VERBS_PORTS + 1);
        const bool one_host = chance(&state, 2);
        for (unsigned i = 0; i < n; i++)
            a[i] = any_end(&state, i);
        const bool shared = chance(&state, 2); /* several devices over one network interface */
        share_gids(a, shared ? n : 0);
        for (unsigned i = 0; i < m; i++) /* on one host the same ports, or some of them, in any order */
            b[i] = one_host && (i + round) % VERBS_PORTS < n ? a[(i + round) % VERBS_PORTS] : any_end(&state, 30 + i);
        share_gids(b, shared && !one_host ? m : 0);
        if (!one_host && chance(&state, 2)) { /* virtual functions without a GUID, named alike on all hosts */
            number_alike(a, n);
            number_alike(b, m);
        }
        const unsigned here = verbs_rails(a, n, b, m, out), there = verbs_rails(b, m, a, n, back);
        cr_assert_eq(here, there, "seed %llu, round %u: %u and %u", (unsigned long long)seed, round, here, there);
        expect_same_rails(out, back, here, seed, round);
        found += here;
    }
    cr_assert_gt(found, 2000, "%u", found);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

static size_t encoded(uint8_t *bytes, size_t cap)
{
    const struct verbs_end ends[] = {end("mlx5_0", UINT64_C(0x0102030405060708), 400000, &mlx2),
                                     end("rxe_eth0", 2, 1000, &rxe1), end("ib0", 3, 200000, &ib1)};
    return verbs_ends_encode(ends, 3, bytes, cap);
}

Test(bytes, there_and_back)
{
    uint8_t bytes[VERBS_ENDS_BYTES], again[VERBS_ENDS_BYTES];
    struct verbs_end ends[VERBS_PORTS];
    unsigned n = 9;
    const size_t len = encoded(bytes, sizeof bytes);
    cr_assert_gt(len, 0);
    cr_assert(verbs_ends_decode(bytes, len, ends, &n));
    cr_assert_eq(n, 3);
    cr_assert(!strcmp(ends[0].device, "mlx5_0") && ends[0].guid == UINT64_C(0x0102030405060708) &&
              ends[0].speed == 400000 && ends[0].gids == 6 && ends[0].immediate && !ends[0].infiniband &&
              ends[0].max_message == 1U << 30);
    cr_assert(ends[2].infiniband && ends[2].lid == 4 && ends[1].gid[1].prefix == 120);
    cr_assert_eq(verbs_ends_encode(ends, n, again, sizeof again), len);
    cr_assert_eq(memcmp(again, bytes, len), 0);
    bytes[0] = 0;
    cr_assert(verbs_ends_decode(bytes, 1, ends, &n));
    cr_assert_eq(n, 0);
}

Test(bytes, the_largest_fits)
{
    uint8_t bytes[VERBS_ENDS_BYTES];
    struct verbs_end ends[VERBS_PORTS + 1], back[VERBS_PORTS];
    unsigned n;
    for (unsigned i = 0; i <= VERBS_PORTS; i++) {
        ends[i] = end("x", i, 1, &rxe1);
        memset(ends[i].device, 'x', VERBS_NAME - 1);
        ends[i].gids = VERBS_GID_SENT;
    }
    const size_t len = verbs_ends_encode(ends, VERBS_PORTS, bytes, sizeof bytes);
    cr_assert(len > VERBS_ENDS_BYTES - 2 * VERBS_PORTS && verbs_ends_decode(bytes, len, back, &n) && n == VERBS_PORTS);
    cr_assert_eq(verbs_ends_encode(ends, VERBS_PORTS + 1, bytes, sizeof bytes), 0);
    cr_assert_eq(verbs_ends_encode(ends, VERBS_PORTS, bytes, len - 1), 0);
    ends[0].gids++;
    cr_assert_eq(verbs_ends_encode(ends, 1, bytes, sizeof bytes), 0);
}

/* On the heap and of just this length, so that a look beyond is seen. */
static bool decodes(const uint8_t *bytes, size_t len, struct verbs_end *ends, unsigned *n)
{
    uint8_t *copy = malloc(len + !len);
    cr_assert(copy);
    memcpy(copy, bytes, len);
    const bool good = verbs_ends_decode(copy, len, ends, n);
    free(copy);
    return good;
}

Test(bytes, cut_short_at_every_length)
{
    uint8_t bytes[VERBS_ENDS_BYTES];
    struct verbs_end ends[VERBS_PORTS], before[VERBS_PORTS];
    unsigned n = 77;
    const size_t len = encoded(bytes, sizeof bytes);
    memset(ends, 5, sizeof ends);
    memcpy(before, ends, sizeof ends);
    for (size_t cut = 0; cut < len; cut++)
        cr_assert_not(decodes(bytes, cut, ends, &n), "%zu of %zu bytes", cut, len);
    bytes[len] = 0;
    cr_assert_not(decodes(bytes, len + 1, ends, &n), "a byte too many");
    cr_assert(n == 77 && !memcmp(ends, before, sizeof ends), "written");
}

Test(bytes, fields_out_of_range)
{
    static const struct {
        unsigned at, value;
    } rows[] = {{0, VERBS_PORTS + 1},
                {0, 2},
                {1, VERBS_NAME},
                {2, 1},
                {4, 0},
                {9, 0},
                {10, 8},
                {11, 0},
                {11, 6},
                {30, 9},
                {30, 11},
                {30, VERBS_GID_SENT + 1},
                {48, VERBS_GID_UNKNOWN + 1},
                {49, 129}};
    struct verbs_end e = end("mlx5_0", 1, 1, &rxe1), ends[VERBS_PORTS];
    uint8_t bytes[VERBS_ENDS_BYTES];
    unsigned n;
    e.gids = 10;
    const size_t len = verbs_ends_encode(&e, 1, bytes, sizeof bytes);
    cr_assert(decodes(bytes, len, ends, &n));
    cr_assert(bytes[30] == 10 && bytes[48] == V2 && bytes[49] == 64, "the places below are others");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint8_t before = bytes[rows[i].at];
        bytes[rows[i].at] = (uint8_t)rows[i].value;
        cr_assert_not(decodes(bytes, len, ends, &n), "row %zu", i);
        bytes[rows[i].at] = before;
    }
    memset(bytes + len, 0, sizeof bytes - len);
    bytes[30] = VERBS_GID_SENT + 1;
    cr_assert_not(decodes(bytes, 31 + 19 * (VERBS_GID_SENT + 1), ends, &n), "more than there is room for");
}

Test(bytes, anything_at_all)
{
    const uint64_t seed = seed_of_all();
    uint64_t state = seed;
    uint8_t good[VERBS_ENDS_BYTES], bytes[VERBS_ENDS_BYTES], again[VERBS_ENDS_BYTES];
    const size_t len = encoded(good, sizeof good);
    unsigned accepted = 0;
    for (unsigned round = 0; round < 50000; round++) {
        struct verbs_end ends[VERBS_PORTS];
        struct verbs_joint rails[VERBS_RAILS_MOST];
        unsigned n = 0;
        memcpy(bytes, good, len);
        for (unsigned i = chance(&state, 4); i < 4; i++)
            bytes[chance(&state, (unsigned)len)] = (uint8_t)chance(&state, 256);
        if (!decodes(bytes, len, ends, &n))
            continue;
        accepted++;
        cr_assert_eq(verbs_ends_encode(ends, n, again, sizeof again), len);
        cr_assert_eq(memcmp(again, bytes, len), 0, "seed %llu, round %u", (unsigned long long)seed, round);
        cr_assert_leq(verbs_rails(ends, n, ends, n, rails), VERBS_RAILS_MOST);
    }
    cr_assert(accepted > 100 && accepted < 50000, "%u", accepted);
}
