/* SPDX-License-Identifier: Apache-2.0 */
/* Links that lose one of their rails, and go on over the others: nothing is lost, doubled or out of order. */
#include "tests/verbs/unit_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "transports/verbs/ctx.h"

enum { SOON = 2000 /* ms */, MESSAGES = LINK_SLOW ? 12 : 30, LONGEST = 700000 };

static uint64_t first_seed(void)
{
    const char *given = getenv("SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 1000;
    fprintf(stderr, "SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* ---- what goes wrong ------------------------------------------------------------------------------------------- */

static void port_down(int device) { provider_control.set_port(device, IBV_PORT_DOWN); }
static void all_silent(int device) { provider_control.silence(device, 0, true); }

static void one_silent(int device)
{
    struct provider_qp q[64];
    const size_t n = provider_control.queue_pairs(q, 64);
    for (size_t i = 0; i < n && i < 64; i++)
        if (q[i].device == device) {
            provider_control.silence(device, q[i].qp_num, true);
            return;
        }
}

/* Of whichever queue comes next. */
static void retries_exceeded(int device)
{
    (void)device;
    provider_control.fail_completion(5, IBV_WC_RETRY_EXC_ERR);
}

static void flushed(int device)
{
    (void)device;
    provider_control.fail_completion(2, IBV_WC_WR_FLUSH_ERR);
}

static void send_refused(int device)
{
    (void)device;
    provider_control.fail_call("ibv_post_send", 3, 1, ENOMEM);
}

static void receive_refused(int device)
{
    (void)device;
    provider_control.fail_call("ibv_post_recv", 3, 1, ENOMEM);
}

static void (*const troubles[])(int device) = {port_down, all_silent,   one_silent,     retries_exceeded,
                                               flushed,   send_refused, receive_refused};
enum { TROUBLES = sizeof troubles / sizeof *troubles };

static const struct verbs_link *link_of(const struct rig *rig, int end)
{
    return (const struct verbs_link *)rig->end[end].link[0];
}

static void expect_lost_rails(const struct rig *rig, uint32_t rails, const char *what)
{
    for (int end = 0; end < 2; end++) {
        const struct verbs_link *l = link_of(rig, end);
        cr_assert_eq(l->lost_rails, rails, "%s: end %d has lost %u rails", what, end, l->lost_rails);
        cr_assert_eq(l->moving, 0, "%s: end %d is not done", what, end);
        cr_assert_not(l->broken);
    }
}

/* ---- nothing is lost ------------------------------------------------------------------------------------------- */

static void steps_of(struct rig *rig, uint64_t *random, int steps)
{
    for (int k = 0; k < steps; k++)
        rig_step(&rig->end[rig_random(random) & 1]);
}

static void settle(struct rig *rig)
{
    const uint64_t deadline = ri_deadline(RI_SECOND);
    while ((link_of(rig, 0)->moving || link_of(rig, 1)->moving) && ri_now() < deadline)
        for (int end = 0; end < 2; end++)
            rig_step(&rig->end[end]);
}

static void lose_one(const struct link_kind *kind, size_t trouble, uint64_t seed)
{
    struct rig rig;
    char text[512] = "";
    uint64_t random = seed;
    link_open(&rig, seed, kind->change, kind->settings);
    const uint32_t rails = link_of(&rig, 0)->rails;
    if (rails > 1) {
        link_post(&rig, &random, MESSAGES, LONGEST);
        steps_of(&rig, &random, (int)(rig_random(&random) % 200));
        troubles[trouble]((int)(rig_random(&random) % rails));
        cr_assert(link_run(&rig, 5 * SOON), "%s, trouble %zu, SEED=%llu: not all came back", kind->name, trouble,
                  (unsigned long long)seed);
        link_post(&rig, &random, MESSAGES, LONGEST);
        cr_assert(link_run(&rig, 5 * SOON), "%s, trouble %zu, SEED=%llu: not all came back", kind->name, trouble,
                  (unsigned long long)seed);
        rig_expect_all(&rig, RING_OK);
        settle(&rig);
        expect_lost_rails(&rig, 1, kind->name);
    }
    rig_close(&rig);
    cr_assert_eq(provider_control.violations(text, sizeof text), 0, "%s: %s", kind->name, text);
}

Test(verbs, a_lost_rail_loses_no_message, .timeout = 200)
{
    const uint64_t first = first_seed();
    for (size_t k = 0; k < LINK_KINDS; k++)
        for (size_t t = 0; t < TROUBLES; t++)
            for (uint64_t seed = first; seed < first + (LINK_SLOW ? 1 : 3); seed++)
                lose_one(&link_kinds[k], t, seed);
}

static void four(struct provider_world *w) { w->devices = 4; }

/* One after the other, or while the work of the one before is not moved yet. */
static void lose_three(uint64_t seed, const char *settings, int apart)
{
    static void (*const some[])(int device) = {port_down, all_silent, send_refused, receive_refused};
    struct rig rig;
    uint64_t random = seed;
    link_open(&rig, seed, four, settings);
    cr_assert_eq(link_of(&rig, 0)->rails, 4);
    const int from = (int)(rig_random(&random) % 4);
    link_post(&rig, &random, MESSAGES, LONGEST);
    for (int i = 0; i < 3; i++) {
        steps_of(&rig, &random, (int)(rig_random(&random) % (uint64_t)apart));
        some[rig_random(&random) % 4]((from + i) % 4);
    }
    link_post(&rig, &random, MESSAGES, LONGEST);
    cr_assert(link_run(&rig, 5 * SOON), "SEED=%llu: not all came back", (unsigned long long)seed);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

Test(verbs, the_last_rail_carries_all, .timeout = 200)
{
    const uint64_t first = first_seed();
    for (uint64_t seed = first; seed < first + (LINK_SLOW ? 3 : 20); seed++)
        for (int apart = 1; apart < 400; apart *= 10) {
            lose_three(seed, "", apart);
            lose_three(seed, "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1", apart);
        }
}

static void silence_both(int device)
{
    (void)device;
    all_silent(0);
    all_silent(1);
}

/* Also when the second is lost because of what the first one left. */
Test(verbs, without_a_rail_the_link_ends, .timeout = 100)
{
    uint64_t random = first_seed();
    for (int steps = 0; steps < (LINK_SLOW ? 20 : 200); steps += 1 + steps) {
        struct rig rig;
        link_open(&rig, random, NULL, "");
        link_post(&rig, &random, 4 * MESSAGES, LONGEST);
        steps_of(&rig, &random, steps);
        silence_both(0);
        cr_assert(link_run(&rig, SOON));
        (void)link_judge(&rig);
        const struct job *j = rig_send(&rig, 0, 0, 100, 1), *k = rig_recv(&rig, 0, 0, 100, 1, 0);
        cr_assert(link_run(&rig, SOON));
        rig_expect(j, RING_ERR_PEER_LOST);
        rig_expect(k, RING_ERR_PEER_LOST);
        rig_close(&rig);
    }
}

/* ---- the other end --------------------------------------------------------------------------------------------- */

/* It computes, and looks only later. */
Test(verbs, an_idle_peer_is_waited_for, .timeout = 60)
{
    struct rig rig;
    uint64_t random = 11;
    link_open(&rig, 11, NULL, "");
    for (uint32_t i = 0; i < 3; i++)
        rig_send(&rig, 0, 0, i ? 100 : LONGEST, i);
    steps_of(&rig, &random, 20);
    port_down(0);
    const uint64_t until = ri_deadline(RI_SECOND);
    while (ri_now() < until)
        rig_step(&rig.end[0]);
    cr_assert_eq(link_of(&rig, 0)->lost_rails, 1);
    cr_assert_not(link_of(&rig, 0)->broken);
    for (uint32_t i = 0; i < 3; i++)
        rig_recv(&rig, 1, 0, i ? 100 : LONGEST, i, 0);
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    expect_lost_rails(&rig, 1, "idle");
    rig_close(&rig);
}

/* Who waits for it sleeps meanwhile. */
Test(verbs, a_peer_that_computes_costs_no_processor, .timeout = 60)
{
    struct rig rig;
    link_open(&rig, 14, NULL, "");
    const struct job *j = rig_recv(&rig, 0, 0, 100, 1, 0);
    port_down(0);
    while (!link_of(&rig, 0)->loss[0].said)
        rig_step(&rig.end[0]);
    cr_assert_eq(link_of(&rig, 0)->moving, 1);
    struct rig_end *e = &rig.end[0];
    bool sleeps = false;
    for (int i = 0; i < 100 && !sleeps; i++, rig_step(e)) {
        sleeps = e->t->arm(e->ctx);
        e->t->disarm(e->ctx);
    }
    cr_assert(sleeps, "nobody may sleep before the peer has looked");
    rig_send(&rig, 1, 0, 100, 1);
    rig_run(&rig);
    rig_expect(j, RING_OK);
    rig_close(&rig);
}

/* Nothing is under way over the rail that is left, so nothing but the empty write can tell. */
Test(verbs, a_peer_that_is_gone_is_not_waited_for, .timeout = 60)
{
    struct rig rig;
    link_open(&rig, 12, NULL, "");
    const struct job *j = rig_recv(&rig, 0, 0, 100, 1, 0);
    silence_both(0);
    port_down(0);
    const uint64_t begin = ri_now();
    while (rig.end[0].out && ri_now() - begin < 5 * RI_SECOND)
        rig_step(&rig.end[0]);
    cr_assert_lt(ri_now() - begin, SOON * RI_MILLISECOND);
    rig_expect(j, RING_ERR_PEER_LOST);
    rig_close(&rig);
}

/* It sends nothing, and so do the devices, but an empty write now and then. */
Test(verbs, who_only_waits_learns_that_the_peer_is_gone, .timeout = 60)
{
    struct rig rig;
    link_open(&rig, 13, NULL, "");
    const struct job *j = rig_recv(&rig, 0, 0, 100, 1, 0);
    const uint64_t rest = ri_deadline(RI_SECOND);
    unsigned moved = 0;
    (void)rig_step(&rig.end[0]);
    const struct provider_counters before = link_counted();
    while (ri_now() < rest)
        moved += rig_step(&rig.end[0]);
    cr_assert_eq(rig.end[0].out, 1, "a peer that is there is waited for");
    cr_assert_geq(link_counted().wr[IBV_WR_RDMA_WRITE] - before.wr[IBV_WR_RDMA_WRITE], 2, "without a question");
    cr_assert_eq(moved, 0, "an answer is no progress: else nobody would say that all wait for each other");
    silence_both(0);
    while (rig.end[0].out && ri_now() < rest + 5 * RI_SECOND)
        rig_step(&rig.end[0]);
    cr_assert_lt(ri_now() - rest, SOON * RI_MILLISECOND);
    rig_expect(j, RING_ERR_PEER_LOST);
    rig_close(&rig);
}

Test(verbs, a_peer_may_go_while_a_rail_is_lost, .timeout = 100)
{
    uint64_t random = first_seed();
    for (int steps = 0; steps < (LINK_SLOW ? 30 : 120); steps++) {
        struct rig rig;
        link_open(&rig, (uint64_t)steps, NULL, steps % 2 ? "" : "RING_IB_QPS_PER_CONNECTION=2");
        link_post(&rig, &random, MESSAGES, LONGEST);
        steps_of(&rig, &random, 30);
        port_down(steps / 2 % 2);
        steps_of(&rig, &random, steps);
        link_leave(&rig);
        cr_assert(link_run(&rig, SOON), "after %d steps", steps);
        (void)link_judge(&rig);
        rig_close(&rig);
    }
}

/* What arrives before the peer goes has arrived, also when its last words come over one rail. */
Test(verbs, what_was_sent_before_the_end_arrives, .timeout = 60)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rig rig;
        uint64_t random = seed;
        link_open(&rig, seed, NULL, "");
        for (uint32_t i = 0; i < 6; i++) {
            rig_send(&rig, 1, 0, 1000 * i, i);
            rig_recv(&rig, 0, 0, 1000 * i, i, 0);
        }
        steps_of(&rig, &random, (int)seed);
        port_down(0);
        while (rig.end[1].out)
            for (int end = 0; end < 2; end++)
                rig_step(&rig.end[end]);
        rig_disconnect(&rig, 1, 0);
        cr_assert(link_run(&rig, SOON));
        rig_expect_all(&rig, RING_OK);
        rig_close(&rig);
    }
}

/* ---- words that make no sense ---------------------------------------------------------------------------------- */

static void put(unsigned char *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> 8 * i);
}

/* A rail that is not, a lane that has heard more than was told or less than is known, too few lanes, and twice. */
Test(verbs, a_loss_that_cannot_be_ends_the_link, .timeout = 60)
{
    static const struct {
        uint32_t bytes, rail, heard[2];
        int times;
    } words[] = {{13, 2, {1, 1}, 1}, {13, UINT32_MAX, {1, 1}, 1}, {13, 0, {1000, 1}, 1}, {13, 0, {1, 0xffffffff}, 1},
                 {9, 0, {1, 0}, 1},  {5, 0, {0, 0}, 1},           {1, 0, {0, 0}, 1},     {13, 0, {1, 0}, 2}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct rig rig;
        unsigned char bytes[17] = {0};
        link_open(&rig, i, NULL, "RING_IB_QPS_PER_CONNECTION=2");
        put(bytes, words[i].bytes);
        bytes[4] = 5;
        put(bytes + 5, words[i].rail);
        put(bytes + 9, words[i].heard[0]);
        put(bytes + 13, words[i].heard[1]);
        for (int k = 0; k < words[i].times; k++)
            cr_assert_eq(send(link_of(&rig, 1)->fd, bytes, 4 + words[i].bytes, 0), 4 + (ssize_t)words[i].bytes);
        const struct job *j = rig_recv(&rig, 0, 0, 10, 1, 0);
        cr_assert(link_run(&rig, SOON), "words %zu", i);
        rig_expect(j, RING_ERR_PEER_LOST);
        rig_close(&rig);
    }
}

/* ---- after that ------------------------------------------------------------------------------------------------ */

/* A new link is made without the port that is down. */
Test(verbs, a_new_link_leaves_out_what_is_down)
{
    struct rig rig;
    int mine[16], theirs[16];
    link_world(1, NULL);
    rig_open_ends(&rig, link_transport(), "");
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t n = rig_sockets(&rig, mine, theirs);
        cr_assert_eq(rig_connect(&rig, 0, mine, n), RING_OK, "%s", ri_error_get());
        cr_assert_eq(rig_connect(&rig, 1, theirs, n), RING_OK, "%s", ri_error_get());
        rig_send(&rig, 0, k, LONGEST, 1);
        rig_recv(&rig, 1, k, LONGEST, 1, 0);
        rig_run(&rig);
        cr_assert_eq(((const struct verbs_link *)rig.end[0].link[k])->rails, 2 - k);
        port_down(0);
    }
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}
