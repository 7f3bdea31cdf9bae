/* SPDX-License-Identifier: Apache-2.0 */
/* Links whose devices, peers and greetings fail: all that was posted comes back, soon, and nothing is left behind. */
#include "tests/verbs/calls.h"
#include "tests/verbs/unit_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "transports/verbs/ctx.h"

enum { SOON = 2000 /* ms */, MESSAGES = 12, LONGEST = 300000 };

/* No queue pair reads or writes what has been given back. */
static void expect_stopped(const char *what, int number)
{
    struct provider_qp q[16];
    const size_t n = provider_control.queue_pairs(q, 16);
    cr_assert_leq(n, 16);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(q[i].state, IBV_QPS_ERR, "%s %d: a queue pair of device %d is in state %d", what, number,
                     q[i].device, (int)q[i].state);
}

/* What is posted to a link that is lost comes back too. */
static void expect_lost(struct rig *rig, const char *what, int number)
{
    cr_assert(link_run(rig, SOON), "%s %d: not all came back in %d ms", what, number, SOON);
    (void)link_judge(rig);
    for (int end = 0; end < 2; end++) {
        if (!rig->end[end].link[0])
            continue;
        const struct job *s = rig_send(rig, end, 0, 10, 1), *r = rig_recv(rig, end, 0, 10, 1, 0);
        cr_assert(link_run(rig, SOON), "%s %d: a lost link gives nothing back", what, number);
        rig_expect(s, RING_ERR_PEER_LOST);
        rig_expect(r, RING_ERR_PEER_LOST);
    }
    expect_stopped(what, number);
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

/* One end at least knows which device it was; the other may have seen no more than the end. */
static void expect_reason(const struct rig *rig, enum ibv_wc_status status)
{
    bool named = false;
    for (int end = 0; end < 2; end++) {
        const char *why = rig->end[end].link[0]->why;
        named |= !strncmp(why, "test", 4) && strstr(why, " port 1: ");
        cr_assert(status == IBV_WC_WR_FLUSH_ERR || !strstr(why, ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR)),
                  "%s of \"%s\" is no reason", why, ibv_wc_status_str(status));
    }
    cr_assert(named, "%s: \"%s\" and \"%s\"", ibv_wc_status_str(status), rig->end[0].link[0]->why,
              rig->end[1].link[0]->why);
}

static void one_device(struct provider_world *w) { w->devices = 1; }

/* With another device some of them do not: unit_link_move.c. */
Test(verbs, a_failed_completion_ends_the_link, .timeout = 100)
{
    static const enum ibv_wc_status statuses[] = {
        IBV_WC_LOC_LEN_ERR,    IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR,     IBV_WC_WR_FLUSH_ERR,
        IBV_WC_MW_BIND_ERR,    IBV_WC_BAD_RESP_ERR,  IBV_WC_LOC_ACCESS_ERR,   IBV_WC_REM_INV_REQ_ERR,
        IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,    IBV_WC_RETRY_EXC_ERR,    IBV_WC_RNR_RETRY_EXC_ERR,
        IBV_WC_REM_ABORT_ERR,  IBV_WC_FATAL_ERR,     IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_GENERAL_ERR};
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        for (uint64_t nth = 1; nth < 40; nth += 1 + nth / (LINK_SLOW ? 1 : 3)) {
            struct rig rig;
            link_open(&rig, nth, one_device, nth % 2 ? "" : "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1");
            provider_control.fail_completion(nth, statuses[i]);
            if (nth % 3 == 0) /* and the queue pairs cannot be stopped */
                provider_control.fail_call("ibv_modify_qp", 1, 0, EIO);
            link_post(&rig, &random, MESSAGES, LONGEST);
            expect_lost(&rig, "completion", (int)nth);
            expect_reason(&rig, statuses[i]);
            rig_close(&rig);
        }
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

/* Without asserts: each step may fail. */
static bool try_open(struct rig *rig, int i, const char *library)
{
    struct rig_end *e = &rig->end[i];
    e->t = link_transport();
    ri_conf_defaults(&e->conf);
    snprintf(e->conf.ib_library, sizeof e->conf.ib_library, "%s", library);
    e->conf.ib_qps = 2;
    e->ctx = ri_new(1, e->t->ctx_size);
    e->ctx->transport = e->t;
    e->ctx->conf = &e->conf;
    return e->t->open(e->ctx) == RING_OK;
}

void link_put_away(struct rig *rig)
{
    for (int i = 0; i < 2; i++) {
        struct rig_end *e = &rig->end[i];
        for (uint32_t k = 0; k < e->links; k++)
            rig_disconnect(rig, i, k);
        if (e->ctx)
            e->t->close(e->ctx);
        ri_free(e->ctx);
        for (struct job *j = e->jobs, *next; j; j = next) {
            next = j->next;
            free(j->memory);
            free(j);
        }
    }
}

static void give_all_back(struct rig *rig, const struct provider_call *c, unsigned nth)
{
    char text[512] = "";
    link_put_away(rig);
    if (c->gives)
        (void)provider_control.reset(1);
    const struct provider_counters n = link_counted();
    cr_assert_eq(n.qps + n.mrs + n.cqs + n.pds + n.channels + n.contexts + n.devices, 0, "%s %u: not all is given back",
                 c->name, nth);
    cr_assert_eq(provider_control.violations(text, sizeof text), 0, "%s %u: %s", c->name, nth, text);
}

enum phase { FROM_OPEN, FROM_CONNECT, IN_TRAFFIC, PHASES };

static void fail_in(enum phase phase, enum phase when, const struct provider_call *c, unsigned nth, unsigned times)
{
    if (phase == when)
        cr_assert(provider_control.fail_call(c->name, nth, times, nth % 2 ? ENOMEM : EIO), "%s", c->name);
}

static void one_failing_call(const struct provider_call *c, unsigned nth, unsigned times, enum phase when)
{
    struct rig rig = {0};
    int fds[2][16];
    uint64_t random = nth;
    link_world(nth, NULL);
    fail_in(FROM_OPEN, when, c, nth, times);
    const bool first = try_open(&rig, 0, VERBS_LIBRARY), second = try_open(&rig, 1, VERBS_LIBRARY);
    if (first && second) {
        fail_in(FROM_CONNECT, when, c, nth, times);
        const uint32_t n = rig_sockets(&rig, fds[0], fds[1]);
        for (int i = 0; i < 2; i++)
            cr_assert_eq(rig_connect(&rig, i, fds[i], n), RING_OK);
        if (when == IN_TRAFFIC) {
            link_meet(&rig);
            fail_in(IN_TRAFFIC, when, c, nth, times);
        }
        link_post(&rig, &random, MESSAGES, LONGEST);
        cr_assert(link_run(&rig, SOON), "%s %u, %u times: not all came back in %d ms", c->name, nth, times, SOON);
        (void)link_judge(&rig);
    }
    give_all_back(&rig, c, nth);
}

Test(verbs, any_call_may_fail, .timeout = 200)
{
    static const unsigned nths[] = {1, 2, 3, 4, 7, 11, 30};
    for (size_t i = 0; i < PROVIDER_CALLS; i++)
        for (size_t n = 0; n < (LINK_SLOW ? 2 : sizeof nths / sizeof *nths); n++)
            for (unsigned times = 0; times < 2; times++)
                for (enum phase when = FROM_OPEN; when < PHASES; when++)
                    one_failing_call(&provider_calls[i], nths[n], times, when);
}

/* ---- devices --------------------------------------------------------------------------------------------------- */

static void port_down(void) { provider_control.set_port(0, IBV_PORT_DOWN); }
static void device_fatal(void) { provider_control.raise(0, IBV_EVENT_DEVICE_FATAL); }
static void all_silent(void) { provider_control.silence(0, 0, true); }
static void one_silent(void)
{
    struct provider_qp q[1];
    cr_assert_geq(provider_control.queue_pairs(q, 1), 1);
    provider_control.silence(q[0].device, q[0].qp_num, true);
}

Test(verbs, a_device_that_fails_ends_its_links, .timeout = 100)
{
    void (*const troubles[])(void) = {port_down, device_fatal, all_silent, one_silent};
    uint64_t random = 3;
    for (int i = 0; i < 4; i++)
        for (int steps = 0; steps < 200; steps += 1 + steps) {
            struct rig rig;
            link_open(&rig, (uint64_t)steps, one_device, "");
            link_post(&rig, &random, 4 * MESSAGES, LONGEST);
            for (int k = 0; k < steps; k++)
                rig_step(&rig.end[k & 1]);
            troubles[i]();
            if (i < 2 || steps < 8)
                expect_lost(&rig, "trouble", i);
            cr_assert(link_run(&rig, SOON));
            (void)link_judge(&rig);
            rig_close(&rig);
        }
}

/* ---- greetings ------------------------------------------------------------------------------------------------- */

Test(verbs, a_peer_may_go_at_any_time, .timeout = 100)
{
    uint64_t random = 5;
    for (int steps = 0; steps < 40; steps++) {
        struct rig rig;
        link_world((uint64_t)steps, NULL);
        rig_open(&rig, link_transport(), 1, "");
        link_post(&rig, &random, MESSAGES, LONGEST);
        for (int k = 0; k < steps; k++)
            rig_step(&rig.end[rig_random(&random) & 1]);
        link_leave(&rig);
        expect_lost(&rig, "steps", steps);
        rig_close(&rig);
    }
}

/* The link that is gone is not looked after any more, and the other one is. */
Test(verbs, a_goodbye_that_nobody_takes, .timeout = 60)
{
    struct rig rig;
    link_world(1, NULL);
    rig_open(&rig, link_transport(), 2, "");
    link_meet(&rig);
    const struct job *j = rig_recv(&rig, 0, 1, 100, 1, 0);
    rig_step(&rig.end[0]);
    const struct verbs_link *l = (struct verbs_link *)rig.end[0].link[0];
    cr_assert_eq(send(l->fd, "", 1, MSG_NOSIGNAL), 1); /* unread, so that its end resets the connection */
    rig_disconnect(&rig, 1, 0);
    rig_disconnect(&rig, 0, 0);
    rig_send(&rig, 1, 1, 100, 1);
    rig_run(&rig);
    rig_expect(j, RING_OK);
    rig_close(&rig);
}

/* End 0, and the other end of its socket. */
static int open_alone(struct rig *rig)
{
    int mine[16], theirs[16];
    rig_open_ends(rig, link_transport(), "");
    rig_sockets(rig, mine, theirs);
    cr_assert_eq(rig_connect(rig, 0, mine, 1), RING_OK);
    rig_send(rig, 0, 0, 100, 1);
    rig_recv(rig, 0, 0, 100, 1, 0);
    return theirs[0];
}

Test(verbs, what_is_no_greeting_ends_the_link, .timeout = 100)
{
    const char *given = getenv("SEED");
    uint64_t random = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 1000;
    fprintf(stderr, "SEED=%llu\n", (unsigned long long)random);
    for (int round = 0; round < (LINK_SLOW ? 60 : 300); round++) {
        struct rig rig;
        unsigned char bytes[2000];
        const size_t n = rig_random(&random) % (sizeof bytes + 1);
        link_world((uint64_t)round, NULL);
        const int fd = open_alone(&rig);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)rig_random(&random);
        if (n > 8 && round % 2) { /* so that the length may be right, and the kind */
            memset(bytes, 0, 4);
            bytes[round % 4 == 1 ? 0 : 3] = (unsigned char)(n > 200 ? 200 : n - 4);
            bytes[4] = (unsigned char)(1 + rig_random(&random) % 4);
        }
        cr_assert_eq(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
        for (int k = 0; k < 20; k++)
            rig_step(&rig.end[0]);
        close(fd);
        expect_lost(&rig, "round", round);
        rig_close(&rig);
    }
}

/* Who carries the greeting, and changes a bit of it, or ends it. */
struct wire {
    int fd[2];
    size_t carried[2], flip_at, cut_at;
    unsigned bit;
    bool cut;
};

static void pass_on(struct wire *w)
{
    for (int from = 0; from < 2 && !w->cut; from++) {
        unsigned char bytes[4096];
        const ssize_t n = recv(w->fd[from], bytes, sizeof bytes, MSG_DONTWAIT);
        if (n <= 0)
            continue;
        for (size_t i = 0; i < (size_t)n && !w->cut; i++, w->carried[from]++) {
            if (!from && w->carried[0] == w->flip_at)
                bytes[i] ^= (unsigned char)(1u << w->bit);
            w->cut = !from && w->carried[0] == w->cut_at;
            if (!w->cut)
                (void)!send(w->fd[!from], &bytes[i], 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static void cut_wire(struct wire *w)
{
    for (int i = 0; i < 2; i++)
        shutdown(w->fd[i], SHUT_RDWR);
    w->cut = true;
}

/* A greeting is not proof against its bytes being changed, for nobody can but the two; but whatever it says, all comes
 * back, and no device is asked for what cannot be.  A wrong address or key is the other device's to refuse. */
static size_t spoilt_greeting(size_t flip_at, size_t cut_at, unsigned bit)
{
    struct rig rig;
    int mine[2][16], theirs[2][16];
    uint64_t random = flip_at;
    char text[512] = "";
    link_world(flip_at, NULL);
    rig_open_ends(&rig, link_transport(), "");
    for (int i = 0; i < 2; i++) {
        rig_sockets(&rig, mine[i], theirs[i]);
        cr_assert_eq(rig_connect(&rig, i, mine[i], 1), RING_OK);
    }
    struct wire w = {{theirs[0][0], theirs[1][0]}, .flip_at = flip_at, .cut_at = cut_at, .bit = bit};
    link_post(&rig, &random, 4, 20000);
    const uint64_t patience = ri_deadline(40 * RI_MILLISECOND), end = ri_deadline(2 * RI_SECOND);
    while ((rig.end[0].out || rig.end[1].out) && ri_now() < end) {
        for (int i = 0; i < 2; i++)
            rig_step(&rig.end[i]);
        if (!w.cut)
            pass_on(&w);
        if (w.cut || ri_now() > patience)
            cut_wire(&w);
    }
    cr_assert(!rig.end[0].out && !rig.end[1].out, "bit %u of byte %zu, cut at %zu", bit, flip_at, cut_at);
    close(w.fd[0]);
    close(w.fd[1]);
    link_put_away(&rig);
    if (provider_control.violations(text, sizeof text))
        cr_assert(!strncmp(text, "remote access", 13), "bit %u of byte %zu: %s", bit, flip_at, text);
    return w.carried[0];
}

Test(verbs, a_spoilt_greeting_ends_the_link_or_not, .timeout = 200)
{
    const char *given = getenv("SEED");
    uint64_t random = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 1000;
    fprintf(stderr, "SEED=%llu\n", (unsigned long long)random);
    const size_t whole = spoilt_greeting(SIZE_MAX, SIZE_MAX, 0);
    cr_assert_geq(whole, 100);
    for (size_t at = 0; at < whole; at += 1 + rig_random(&random) % (LINK_SLOW ? 40 : 6)) {
        spoilt_greeting(at, SIZE_MAX, (unsigned)(rig_random(&random) % 8));
        spoilt_greeting(SIZE_MAX, at, 0);
    }
}

/* ---- ends that do not go together ------------------------------------------------------------------------------ */

int link_listen(int *kept_out)
{
    const int file = memfd_create("log", MFD_CLOEXEC);
    cr_assert_geq(file, 0);
    fflush(stderr);
    *kept_out = dup(STDERR_FILENO);
    dup2(file, STDERR_FILENO);
    return file;
}

void link_heard(int file, int kept, char *text_out, size_t cap)
{
    dup2(kept, STDERR_FILENO);
    close(kept);
    const ssize_t n = pread(file, text_out, cap - 1, 0);
    text_out[n > 0 ? n : 0] = 0;
    close(file);
}

unsigned link_times_said(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

static void set_of_end(struct rig *rig, int end, void (*change)(struct ri_conf *conf))
{
    struct rig_end *e = &rig->end[end];
    e->t->close(e->ctx);
    change(&e->conf);
    cr_assert_eq(e->t->open(e->ctx), RING_OK, "%s", ri_error_get());
}

static void two_pairs(struct ri_conf *conf) { conf->ib_qps = 2; }
static void split(struct ri_conf *conf) { conf->ib_split = 1; }
static void first_device(struct ri_conf *conf) { strcpy(conf->ib_hca, "test0"); }
static void second_device(struct ri_conf *conf) { strcpy(conf->ib_hca, "test1"); }

static void second_is_infiniband(struct provider_world *w)
{
    static const uint8_t raw[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, 1};
    w->device[1].infiniband = true;
    w->device[1].gids = 1;
    w->device[1].gid[0] = (struct provider_gid){.index = 0, .type = IBV_GID_TYPE_IB};
    memcpy(w->device[1].gid[0].gid.raw, raw, sizeof raw);
}
static void second_is_iwarp(struct provider_world *w) { w->device[1].no_imm = true; }
static void second_is_tiny(struct provider_world *w) { w->device[1].max_msg_sz = 2048; }

static const struct misfit {
    shape_fn *world;
    void (*first)(struct ri_conf *conf), (*second)(struct ri_conf *conf);
    const char *said;
} misfits[] = {
    {NULL, first_device, two_pairs, "RING_IB_QPS_PER_CONNECTION"},
    {NULL, first_device, split, "RING_IB_SPLIT"},
    {second_is_infiniband, first_device, second_device, "InfiniBand"},
    {second_is_iwarp, first_device, second_device, "iWARP"},
    {second_is_tiny, first_device, second_device, "2048 bytes"},
};

Test(verbs, ends_that_do_not_go_together_say_why, .timeout = 60)
{
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        struct rig rig;
        int mine[16], theirs[16], kept;
        char text[4096];
        link_world(i, misfits[i].world);
        rig_open_ends(&rig, link_transport(), "");
        set_of_end(&rig, 0, misfits[i].first);
        set_of_end(&rig, 1, misfits[i].second);
        const uint32_t n = rig_sockets(&rig, mine, theirs);
        cr_assert_eq(rig_connect(&rig, 0, mine, n), RING_OK);
        cr_assert_eq(rig_connect(&rig, 1, theirs, n), RING_OK);
        const int file = link_listen(&kept);
        const struct job *j = rig_send(&rig, 0, 0, 10, 1), *k = rig_recv(&rig, 1, 0, 10, 1, 0);
        const bool back = link_run(&rig, SOON);
        link_heard(file, kept, text, sizeof text);
        cr_assert(back, "misfit %zu", i);
        rig_expect(j, RING_ERR_PEER_LOST);
        rig_expect(k, RING_ERR_PEER_LOST);
        cr_assert_eq(link_times_said(text, misfits[i].said), 2, "both ends are to say %s, and said: %s",
                     misfits[i].said, text);
        rig_close(&rig);
    }
}
