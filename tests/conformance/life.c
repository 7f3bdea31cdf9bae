/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport promises about links that end, half-made ones, sleeping, threads and leaks. */
#include "tests/conformance/rig.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"

static const char small[] = "RING_SHM_BUFFER=4K RING_TCP_SOCKETS=3";

static void steps(struct rig_end *e, int n)
{
    for (int i = 0; i < n; i++)
        rig_step(e);
}

/* Until end e has nothing out; the other end does not move. */
static void finish(struct rig *rig, int end)
{
    struct rig_end *e = &rig->end[end];
    rig_run_end(e, false);
    cr_assert_str_empty(e->problem, "%s", e->problem);
}

/* ---- links that break ------------------------------------------------------------------------------------------ */

static void break_in_the_middle(const struct ri_transport *t, const char *settings, uint32_t unit)
{
    struct rig rig;
    struct job *lost[5];
    const size_t len = (size_t)(RIG_SLOW ? 24 : 40) << 20; /* more than goes across until the end */
    rig_open(&rig, t, 1, settings);
    const struct job *whole = rig_recv(&rig, 0, 0, 1000, 1, 0);
    lost[0] = rig_recv(&rig, 0, 0, len, 2, unit);
    lost[1] = rig_recv(&rig, 0, 0, 10, 3, 0);
    lost[2] = rig_send(&rig, 0, 0, len, 4);
    rig_send(&rig, 1, 0, 1000, 1);
    rig_send(&rig, 1, 0, len, 2);
    rig_recv(&rig, 1, 0, len, 4, 0);
    for (int i = 0; i < 20 || !whole->back; i++) {
        rig_step(&rig.end[0]);
        rig_step(&rig.end[1]);
    }
    rig_disconnect(&rig, 1, 0);
    finish(&rig, 0);
    rig_expect(whole, RING_OK);
    lost[3] = rig_send(&rig, 0, 0, 5, 5);
    lost[4] = rig_recv(&rig, 0, 0, 5, 5, 0);
    finish(&rig, 0);
    for (int i = 0; i < 5; i++)
        rig_expect(lost[i], RING_ERR_PEER_LOST);
    rig_close(&rig);
}

CHECK(a_broken_link_fails_what_is_posted_and_what_comes_later)
{
    break_in_the_middle(t, "", 0);
    if (rig_repeats(t))
        break_in_the_middle(t, small, 0);
    break_in_the_middle(t, small, 4);
}

CHECK(what_was_sent_before_the_end_arrives)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    for (uint32_t i = 0; i < 10; i++)
        rig_send(&rig, 1, 0, 500, i);
    for (int i = 0; i < 5000 && rig.end[1].out; i++) {
        rig_step(&rig.end[1]);
        rig_step(&rig.end[0]);
    }
    cr_assert_eq(rig.end[1].out, 0);
    rig_disconnect(&rig, 1, 0);
    steps(&rig.end[0], 2000);
    struct job *got[11];
    for (uint32_t i = 0; i < 11; i++)
        got[i] = rig_recv(&rig, 0, 0, 500, i, 0);
    finish(&rig, 0);
    for (int i = 0; i < 11; i++)
        rig_expect(got[i], i < 10 ? RING_OK : RING_ERR_PEER_LOST);
    cr_assert_str_empty(rig.end[0].link[0]->why, "the other end knows why: %s", rig.end[0].link[0]->why);
    rig_close(&rig);
}

CHECK(other_links_live_on)
{
    struct rig rig;
    rig_open(&rig, t, 3, small);
    struct job *lost = rig_recv(&rig, 0, 1, 100, 1, 0);
    rig_disconnect(&rig, 1, 1);
    for (uint32_t link = 0; link < 3; link += 2) {
        rig_send(&rig, 1, link, 100000, link);
        rig_recv(&rig, 0, link, 100000, link, 4);
    }
    rig_run(&rig);
    rig_expect(lost, RING_ERR_PEER_LOST);
    lost->x.status = RING_OK; /* and all others did not fail */
    for (const struct job *j = rig.end[0].jobs; j; j = j->next)
        if (j != lost)
            rig_expect(j, RING_OK);
    rig_close(&rig);
}

/* A child of fork() holds every descriptor; the peer must see the end all the same, and the set must forget the link.
 */
CHECK(a_forked_child_does_not_keep_a_link_alive)
{
    struct rig rig;
    int hold[2];
    rig_open(&rig, t, 2, small);
    struct job *lost = rig_recv(&rig, 0, 0, 100, 1, 0);
    struct job *rest = rig_recv(&rig, 1, 1, 100, 2, 0);
    steps(&rig.end[0], 10);
    steps(&rig.end[1], 10);
    for (int end = 0; end < 2; end++)
        if (t->arm(rig.end[end].ctx)) /* so that the sockets are watched */
            t->disarm(rig.end[end].ctx);
    cr_assert(!pipe(hold));
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (!child) {
        char end;
        close(hold[1]);
        _exit(read(hold[0], &end, 1) != 0);
    }
    rig_disconnect(&rig, 1, 0);
    rig_run_end(&rig.end[0], true);
    rig_expect(lost, RING_ERR_PEER_LOST);
    rig_disconnect(&rig, 0, 0);
    const struct job *last = rig_recv(&rig, 0, 1, 100, 3, 0);
    steps(&rig.end[0], 10);
    if (t->arm(rig.end[0].ctx))
        t->disarm(rig.end[0].ctx);
    rig_send(&rig, 0, 1, 100, 2);
    rig_send(&rig, 1, 1, 100, 3);
    rig_run(&rig);
    rig_expect(rest, RING_OK);
    rig_expect(last, RING_OK);
    close(hold[0]);
    close(hold[1]);
    waitpid(child, NULL, 0);
    rig_close(&rig);
}

/* ---- half-made things ------------------------------------------------------------------------------------------ */

CHECK(a_peer_that_never_connects)
{
    for (int end = 0; end < 2; end++) {
        struct rig rig;
        int fds[2][16];
        rig_open_ends(&rig, t, small);
        const uint32_t n = rig_sockets(&rig, fds[0], fds[1]);
        for (uint32_t i = 0; i < n; i++)
            close(fds[!end][i]);
        cr_assert_eq(rig_connect(&rig, end, fds[end], n), RING_OK, "%s", ri_error_get());
        if (n) {
            rig_send(&rig, end, 0, 1 << 20, 1);
            rig_recv(&rig, end, 0, 10, 1, 0);
            finish(&rig, end);
            for (const struct job *j = rig.end[end].jobs; j; j = j->next)
                cr_assert(j->x.status == RING_ERR_PEER_LOST || (j->sends && j->x.status == RING_OK));
        }
        rig_close(&rig);
    }
}

CHECK(disconnect_in_any_state)
{
    for (int state = 0; state < 4; state++) {
        struct rig rig;
        rig_open(&rig, t, 2, small);
        if (state > 0)
            rig_send(&rig, 0, 0, 1 << 20, 1);
        if (state > 1)
            rig_recv(&rig, 1, 0, 1 << 20, 1, 0);
        if (state > 2)
            for (int i = 0; i < 3; i++) {
                rig_step(&rig.end[0]);
                rig_step(&rig.end[1]);
            }
        rig_close(&rig);
    }
}

CHECK(close_before_open_and_disconnect_before_connect)
{
    struct rig rig;
    rig_open_ends(&rig, t, "");
    struct ri_link *l = ri_new(1, t->link_size);
    l->ctx = rig.end[0].ctx;
    t->disconnect(l);
    ri_free(l);
    struct ri_tctx *never = ri_new(1, t->ctx_size);
    never->transport = t;
    never->conf = &rig.end[0].conf;
    t->close(never);
    ri_free(never);
    rig_close(&rig);
}

CHECK(no_memory_is_an_error_and_loses_nothing)
{
    const unsigned before = rig_descriptors();
    for (uint64_t n = 1; n < 8; n++) {
        struct rig rig;
        int fds[2][16];
        rig_open_ends(&rig, t, small);
        const uint32_t count = rig_sockets(&rig, fds[0], fds[1]);
        ri_mem_fail_at(n + 1); /* the first one is the link's, which the rig makes */
        const ring_status_t status = rig_connect(&rig, 0, fds[0], count);
        ri_mem_fail_at(0);
        cr_assert(status == RING_OK || status == RING_ERR_NOMEM, "%s", ring_status_str(status));
        for (uint32_t i = 0; i < count; i++)
            close(fds[1][i]);
        rig_close(&rig);
    }
    cr_assert_eq(rig_descriptors(), before);
}

CHECK(two_hundred_times_without_a_descriptor_more)
{
    const unsigned before = rig_descriptors();
    for (uint32_t i = 0; i < (RIG_SLOW ? 12 : 200); i++) {
        struct rig rig;
        rig_open(&rig, t, 1, small);
        if (i % 3) {
            rig_send(&rig, 0, 0, 10, i);
            rig_recv(&rig, 1, 0, 10, i, 0);
            if (i % 3 == 1)
                rig_run(&rig);
        }
        rig_close(&rig);
    }
    cr_assert_eq(rig_descriptors(), before);
}

/* ---- sleeping and threads -------------------------------------------------------------------------------------- */

struct half {
    struct rig_end *end;
    bool sleep;
};

static void *run_half(void *arg)
{
    const struct half *h = arg;
    rig_run_end(h->end, h->sleep);
    return NULL;
}

static void in_two_threads(struct rig *rig, bool sleep)
{
    pthread_t thread;
    struct half one = {&rig->end[1], sleep};
    cr_assert(!pthread_create(&thread, NULL, run_half, &one));
    rig_run_end(&rig->end[0], sleep);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++)
        cr_assert_str_empty(rig->end[i].problem, "end %d: %s", i, rig->end[i].problem);
    rig_expect_all(rig, RING_OK);
}

static void exchange(const struct ri_transport *t, const char *settings, bool sleep)
{
    static const size_t len[] = {8, 100000, 0, 5, 65536, 32, 300000, 1, 70000, 4096};
    struct rig rig;
    rig_open(&rig, t, 2, settings);
    for (int end = 0; end < 2; end++)
        for (uint32_t i = 0; i < 60; i++) {
            const size_t n = len[i % 10];
            rig_recv(&rig, end, i % 2, n, i, n % 8 || i % 3 ? 0 : 8);
            rig_send(&rig, end, i % 2, n, i);
        }
    in_two_threads(&rig, sleep);
    rig_close(&rig);
}

CHECK(two_threads_as_two_ranks)
{
    exchange(t, "", false);
    if (rig_repeats(t))
        exchange(t, small, false);
}

CHECK(sleepers_are_woken_for_data_and_for_room)
{
    exchange(t, "", true);
    if (rig_repeats(t))
        exchange(t, small, true);
}

struct late {
    struct rig *rig;
    void (*what)(struct rig *rig);
};

static void *do_late(void *arg)
{
    const struct late *l = arg;
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    l->what(l->rig);
    return NULL;
}

/* End 0 sleeps and is woken, well before the 5 s that the rig's poll gives it, by what end 1 does 50 ms later. */
static void woken_by(struct rig *rig, void (*what)(struct rig *rig))
{
    pthread_t thread;
    struct late late = {rig, what};
    cr_assert(!pthread_create(&thread, NULL, do_late, &late));
    const uint64_t start = ri_now();
    rig_run_end(&rig->end[0], true);
    cr_assert_lt(ri_now() - start, 3 * RI_SECOND);
    pthread_join(thread, NULL);
    cr_assert_str_empty(rig->end[0].problem, "%s", rig->end[0].problem);
}

static void send_late(struct rig *rig)
{
    rig_send(rig, 1, 0, 1000, 1);
    rig_run_end(&rig->end[1], false);
}

static void leave_late(struct rig *rig) { rig_disconnect(rig, 1, 0); }

CHECK(a_late_message_wakes)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    const struct job *j = rig_recv(&rig, 0, 0, 1000, 1, 0);
    woken_by(&rig, send_late);
    rig_expect(j, RING_OK);
    rig_close(&rig);
}

CHECK(a_peer_that_goes_wakes)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    const struct job *j = rig_recv(&rig, 0, 0, 1000, 1, 0);
    woken_by(&rig, leave_late);
    rig_expect(j, RING_ERR_PEER_LOST);
    rig_close(&rig);
}

static void settle(struct rig *rig)
{
    for (int i = 0; i < 50; i++) {
        rig_step(&rig->end[0]);
        rig_step(&rig->end[1]);
    }
}

/* What came early on a link nobody waits for must not turn a sleep on another link into a busy loop. */
CHECK(early_data_on_another_link_does_not_keep_awake)
{
    struct rig rig;
    rig_open(&rig, t, 2, "");
    for (uint32_t link = 0; link < 2; link++) {
        rig_recv(&rig, 0, link, 10, link, 0);
        settle(&rig);
        if (t->arm(rig.end[0].ctx)) /* so that link 1 has been slept on before */
            t->disarm(rig.end[0].ctx);
        rig_send(&rig, 1, link, 10, link);
        rig_run(&rig);
    }
    rig_send(&rig, 1, 1, 10, 9);
    rig_recv(&rig, 0, 0, 10, 9, 0);
    settle(&rig);
    int awake = 0;
    for (int i = 0; i < 10; i++) {
        rig_step(&rig.end[0]);
        if (!t->arm(rig.end[0].ctx)) {
            awake++;
            continue;
        }
        struct pollfd p = {.fd = t->wait_fd(rig.end[0].ctx), .events = POLLIN};
        awake += poll(&p, 1, 10) > 0;
        t->disarm(rig.end[0].ctx);
    }
    cr_assert_leq(awake, 3, "woken %d times of 10 for nothing", awake);
    rig_send(&rig, 1, 0, 10, 9);
    rig_recv(&rig, 0, 1, 10, 9, 0);
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(arm_says_when_there_is_work)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    rig_send(&rig, 1, 0, 100, 1);
    rig_recv(&rig, 1, 0, 0, 1, 0);
    cr_assert_not(t->arm(rig.end[1].ctx) && t->wait_fd(rig.end[1].ctx) < 0);
    settle(&rig);
    rig_recv(&rig, 0, 0, 100, 1, 0);
    rig_send(&rig, 0, 0, 0, 1);
    cr_assert_not(t->arm(rig.end[0].ctx), "an empty message waits to be reported");
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}
