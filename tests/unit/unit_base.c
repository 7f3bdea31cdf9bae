/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base: settings, errors, memory, segments, waiting, the background thread. */
#include <criterion/criterion.h>
#include <sched.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/loop.h"
#include "lib/base/mem.h"
#include "lib/base/seg.h"
#include "lib/base/wait.h"

static const struct ri_conf_row *row(const char *variable)
{
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (!strcmp(ri_conf_rows[i].variable, variable))
            return &ri_conf_rows[i];
    cr_assert(0, "no setting %s", variable);
    return NULL;
}

Test(conf, every_default_is_printed_as_written_or_equal)
{
    struct ri_conf conf, again;
    ri_conf_defaults(&conf);
    for (size_t i = 0; i < ri_conf_row_count; i++) {
        char text[RI_CONF_TEXT_MAX];
        ri_conf_print(&conf, &ri_conf_rows[i], text, sizeof text);
        ri_conf_defaults(&again);
        cr_assert_eq(ri_conf_set(&again, &ri_conf_rows[i], text), RING_OK, "%s=%s", ri_conf_rows[i].variable, text);
        cr_assert_arr_eq(&again, &conf, sizeof conf, "%s=%s", ri_conf_rows[i].variable, text);
    }
}

Test(conf, numbers_take_the_whole_text_the_unit_and_the_range)
{
    struct ri_conf conf;
    static const char *const bad[] = {
        "",  " ",     "abc", "4MB", "1e6", "-1", "+1", "0x10", "1 2", "1\n", "1.5K", "K", "99999999999999999999",
        "0", "1025G", "64k"};
    ri_conf_defaults(&conf);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(ri_conf_set(&conf, row("RING_SEGMENT"), bad[i]), RING_ERR_CONFIG, "\"%s\"", bad[i]);
        cr_assert_not_null(strstr(ri_error_get(), "RING_SEGMENT"));
        cr_assert_not_null(strstr(ri_error_get(), "1K to 1G"));
    }
    cr_assert_eq(conf.segment, 256u << 10);
    cr_assert_eq(ri_conf_set(&conf, row("RING_SEGMENT"), "2M"), RING_OK);
    cr_assert_eq(conf.segment, 2u << 20);
    cr_assert_eq(ri_conf_set(&conf, row("RING_TIMEOUT"), "1500ms"), RING_OK);
    cr_assert_eq(conf.timeout, 1500 * RI_MILLISECOND);
    cr_assert_eq(ri_conf_set(&conf, row("RING_TIMEOUT"), "7"), RING_OK);
    cr_assert_eq(conf.timeout, 7 * RI_SECOND);
}

Test(conf, choices_and_texts_are_checked)
{
    struct ri_conf conf;
    char longer[RI_CONF_TEXT_MAX + 1];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    ri_conf_defaults(&conf);
    cr_assert_eq(ri_conf_set(&conf, row("RING_LOG"), "inf"), RING_ERR_CONFIG);
    cr_assert_not_null(strstr(ri_error_get(), "error|warn|info|debug"));
    cr_assert_eq(ri_conf_set(&conf, row("RING_LOG"), "debug"), RING_OK);
    cr_assert_eq(conf.log, RI_LOG_DEBUG);
    cr_assert_eq(ri_conf_set(&conf, row("RING_ALGO"), longer), RING_ERR_CONFIG);
    cr_assert_eq(ri_conf_set(&conf, row("RING_ALGO"), ""), RING_ERR_CONFIG);
}

Test(conf, the_environment_is_read_and_a_wrong_value_named)
{
    struct ri_conf conf;
    setenv("RING_TCP_SOCKETS", "4", 1);
    cr_assert_eq(ri_conf_load(&conf), RING_OK);
    cr_assert_eq(conf.tcp_sockets, 4);
    setenv("RING_TCP_SOCKETS", "17", 1);
    cr_assert_eq(ri_conf_load(&conf), RING_ERR_CONFIG);
    cr_assert_str_eq(ri_error_get(),
                     "RING_TCP_SOCKETS=\"17\" is not accepted: it takes a whole number, 1 to 16 (default 1)");
}

Test(error, a_sentence_may_be_built_from_the_last_one)
{
    cr_assert_eq(ri_fail(RING_ERR_INVALID, "inner"), RING_ERR_INVALID);
    cr_assert_eq(ri_fail(RING_ERR_SYSTEM, "outer: %s", ri_error_get()), RING_ERR_SYSTEM);
    cr_assert_str_eq(ri_error_get(), "outer: inner");
    cr_assert_str_eq(ring_status_str(RING_ERR_MISMATCH), "ranks disagree on the call");
    cr_assert_str_eq(ring_status_str((ring_status_t)-999), "unknown status");
}

Test(mem, the_chosen_allocation_and_all_later_ones_fail)
{
    ri_mem_fail_at(2);
    void *first = ri_new(3, 5);
    cr_assert_not_null(first);
    cr_assert_null(ri_new(1, 1));
    cr_assert_null(ri_new_aligned(64, 100));
    ri_mem_fail_at(0);
    void *aligned = ri_new_aligned(64, 100);
    cr_assert_eq((uintptr_t)aligned % 64, 0);
    cr_assert_null(ri_resize(NULL, SIZE_MAX, 2));
    ri_free(aligned);
    ri_free(first);
}

Test(seg, a_segment_is_sealed_and_mapped_once_in_a_process)
{
    struct ri_seg *made, *adopted;
    cr_assert_eq(ri_seg_create("test", 10000, &made), RING_OK);
    cr_assert_eq(ri_seg_bytes(made), 12288);
    cr_assert_neq(ftruncate(ri_seg_fd(made), 0), 0);
    cr_assert_eq(ri_seg_adopt(dup(ri_seg_fd(made)), 12288, &adopted), RING_OK);
    cr_assert_eq(ri_seg_base(made), ri_seg_base(adopted));
    ri_seg_close(made);
    ((char *)ri_seg_base(adopted))[12287] = 1;
    ri_seg_close(adopted);
}

Test(seg, what_is_not_a_sealed_segment_of_that_size_is_refused)
{
    struct ri_seg *seg = NULL, *made;
    const int plain = memfd_create("plain", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(plain, 4096), 0);
    cr_assert_eq(ri_seg_adopt(plain, 4096, &seg), RING_ERR_INVALID);
    cr_assert_eq(fcntl(plain, F_GETFD), -1, "the descriptor is taken over on failure too");
    cr_assert_eq(ri_seg_create("test", 4096, &made), RING_OK);
    cr_assert_eq(ri_seg_adopt(dup(ri_seg_fd(made)), 4097, &seg), RING_ERR_INVALID);
    cr_assert_null(seg);
    ri_seg_close(made);
}

Test(seg, descriptors_travel_with_their_message)
{
    int pair[2], fd = -2;
    char text[5];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    cr_assert_eq(ri_fd_recv(pair[1], &fd, text, 5), 0);
    cr_assert_eq(ri_fd_send(pair[0], pair[0], "hello", 5), RING_OK);
    cr_assert_eq(ri_fd_recv(pair[1], &fd, text, 5), 1);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    cr_assert_eq(ri_fd_send(pair[0], -1, "hello", 5), RING_OK);
    cr_assert_eq(ri_fd_recv(pair[1], &fd, text, 5), 1);
    cr_assert_eq(fd, -1);
    close(pair[0]);
    cr_assert_eq(ri_fd_recv(pair[1], &fd, text, 5), -1);
    close(pair[1]);
}

Test(wait, pausing_pays_only_with_a_processor_for_each)
{
    cr_assert_gt(ri_patience_for(2, 2).spins, 0);
    cr_assert_gt(ri_patience_for(1, 8).spins, 0);
    cr_assert_eq(ri_patience_for(3, 2).spins, 0);
}

Test(wait, processors_are_those_that_the_process_is_bound_to)
{
    struct ri_processors all, one;
    cpu_set_t set;
    ri_processors_get(&all);
    cr_assert_geq(ri_processors_count(&all), 1);
    CPU_ZERO(&set);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&set); i++)
        if (i < 64 * RI_PROCESSOR_WORDS && all.word[i / 64] >> i % 64 & 1)
            CPU_SET(i, &set);
    cr_assert_eq(sched_setaffinity(0, sizeof set, &set), 0);
    ri_processors_get(&one);
    cr_assert_eq(ri_processors_count(&one), 1);
}

Test(wait, ends_at_the_deadline_and_at_an_abort)
{
    struct ri_wait w;
    ri_abort_word word = 0;
    ring_status_t status;
    const uint64_t begin = ri_now();
    ri_wait_begin(&w, &word, ri_deadline(30 * RI_MILLISECOND), ri_patience_for(1000, 1));
    while (!(status = ri_wait_round(&w, NULL, NULL)))
        ;
    cr_assert_eq(status, RING_ERR_TIMEOUT);
    cr_assert_geq(ri_now() - begin, 30 * RI_MILLISECOND);
    cr_assert_leq(ri_now() - begin, 200 * RI_MILLISECOND);
    ri_wait_begin(&w, &word, RI_NEVER, ri_patience_for(1, 1));
    atomic_store(&word, 1);
    cr_assert_eq(ri_wait_round(&w, NULL, NULL), RING_ERR_ABORTED);
}

struct counter {
    struct ri_watch watch;
    struct ri_timer timer;
    _Atomic int seen, ticks;
};
static void on_ready(struct ri_watch *w, uint32_t events)
{
    struct counter *c = (struct counter *)((char *)w - offsetof(struct counter, watch));
    uint64_t n;
    if (events & EPOLLIN && read(w->fd, &n, sizeof n) == sizeof n)
        c->seen++;
}
static void on_tick(struct ri_timer *t, uint64_t now)
{
    struct counter *c = (struct counter *)((char *)t - offsetof(struct counter, timer));
    (void)now;
    c->ticks++;
}

Test(loop, watches_and_timers_run_until_removed, .timeout = 30)
{
    for (int round = 0; round < 50; round++) {
        struct counter c = {.watch = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .ready = on_ready},
                            .timer = {.period = RI_MILLISECOND, .fire = on_tick}};
        const uint64_t one = 1;
        cr_assert_eq(ri_loop_hold(), RING_OK);
        cr_assert_eq(ri_loop_add(&c.watch, EPOLLIN), RING_OK);
        ri_loop_timer_add(&c.timer);
        cr_assert_eq(write(c.watch.fd, &one, sizeof one), (ssize_t)sizeof one);
        while (!c.seen || c.ticks < 3)
            usleep(100);
        ri_loop_remove(&c.watch);
        ri_loop_timer_remove(&c.timer);
        const int seen = c.seen, ticks = c.ticks;
        cr_assert_eq(write(c.watch.fd, &one, sizeof one), (ssize_t)sizeof one);
        usleep(2000);
        cr_assert_eq(c.seen, seen);
        cr_assert_eq(c.ticks, ticks);
        ri_loop_release();
        close(c.watch.fd);
    }
}
