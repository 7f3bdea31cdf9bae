/* SPDX-License-Identifier: Apache-2.0 */
/* lib/boot: tickets, and ranks (threads here) that meet by one. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/boot/blobs.h"
#include "lib/boot/boot.h"
#include "lib/boot/port.h"
#include "lib/boot/ranks.h"
#include "lib/boot/rendezvous.h"
#include "lib/boot/ticket.h"

/* ---- texts ---- */

Test(ticket, what_is_printed_is_parsed)
{
    struct ri_ticket t = {{0}, {{{0}}, ""}}, back;
    ring_uid_t uid;
    ri_random(t.key, sizeof t.key);
    ri_address_parse("255.255.255.255:65535", 21, &t.where.addr[0]);
    ri_address_parse("[2001:db8:1111:2222:3333:4444:5555:6666]:65535", 46, &t.where.addr[1]);
    ri_ticket_print(&t, &uid);
    cr_assert_null(strpbrk(uid.text, " \t\n"));
    cr_assert_eq(ri_ticket_parse(&uid, &back), RING_OK, "%s", ri_error_get());
    cr_assert_arr_eq(&back, &t, sizeof t);
    ri_address_parse("[fe80::1111:2222:3333:4444%fifteen_bytes_x]:65535", 49, &t.where.addr[2]);
    ri_ticket_print(&t, &uid); /* a third one does not fit, and is left out */
    cr_assert_eq(ri_ticket_parse(&uid, &back), RING_OK);
    cr_assert_eq(back.where.addr[2].family, 0);
}

Test(ticket, every_damage_is_seen_or_harmless)
{
    struct ri_ticket t = {{7}, {{{0}}, ""}}, back;
    ring_uid_t good, uid;
    ri_address_parse("10.0.0.1:4711", 13, &t.where.addr[0]);
    ri_ticket_print(&t, &good);
    static const char *const bad[] = {"", "x", "ring1-", "ring1-AAAA-10.0.0.1:1", "ring2-"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&uid, 0, sizeof uid);
        strcpy(uid.text, bad[i]);
        cr_assert_eq(ri_ticket_parse(&uid, &back), RING_ERR_INVALID, "%s", bad[i]);
        cr_assert_not_null(strstr(ri_error_get(), "ticket is damaged"));
    }
    for (size_t len = 0; len < strlen(good.text) - 4; len++) { /* cut short */
        uid = good;
        uid.text[len] = 0;
        cr_assert_eq(ri_ticket_parse(&uid, &back), RING_ERR_INVALID, "%zu", len);
    }
    memset(&uid, 'A', sizeof uid);
    cr_assert_eq(ri_ticket_parse(&uid, &back), RING_ERR_INVALID, "no end");
    cr_assert_null(strstr(ri_error_get(), "AAAA"));
}

Test(ticket, keys_differ_by_ticket_and_by_use)
{
    struct ri_ticket a = {{1}, {{{0}}, ""}}, b = {{2}, {{{0}}, ""}};
    struct ri_ticket_keys ka, kb;
    ri_ticket_derive(&a, &ka);
    ri_ticket_derive(&b, &kb);
    cr_assert_neq(ka.comm_id, kb.comm_id);
    cr_assert_neq(memcmp(ka.secret, kb.secret, RI_KEY), 0);
    cr_assert_neq(memcmp(ka.secret, ka.handshake, RI_KEY), 0);
}

Test(ranks, are_printed_as_people_write_them)
{
    bool in[2000] = {false};
    char text[64];
    in[2] = true;
    ri_ranks_print(in, 8, text, sizeof text);
    cr_assert_str_eq(text, "rank 2");
    in[5] = in[6] = in[7] = true;
    ri_ranks_print(in, 8, text, sizeof text);
    cr_assert_str_eq(text, "ranks 2, 5-7");
    for (int i = 0; i < 2000; i += 2)
        in[i] = true;
    ri_ranks_print(in, 2000, text, sizeof text);
    cr_assert_not_null(strstr(text, " more"), "%s", text);
}

Test(blobs, the_last_of_a_key_is_found_and_damage_ends_the_search)
{
    uint8_t bytes[64], blob[RI_BOOT_BLOB_MAX];
    size_t at = 0, len = 0;
    static const char *const puts[][2] = {{"a", "one"}, {"bb", "two"}, {"a", "three"}};
    for (int i = 0; i < 3; i++) {
        ri_blobs_write(bytes + at, puts[i][0], puts[i][1], strlen(puts[i][1]));
        at += ri_blobs_size(puts[i][0], strlen(puts[i][1]));
    }
    cr_assert(ri_blobs_find((struct ri_blobs){bytes, at}, "a", blob, &len));
    cr_assert_eq(len, 5);
    cr_assert_arr_eq(blob, "three", 5);
    cr_assert(ri_blobs_find((struct ri_blobs){bytes, at - 1}, "a", blob, &len));
    cr_assert_arr_eq(blob, "one", 3);
    cr_assert(!ri_blobs_find((struct ri_blobs){bytes, at}, "b", blob, &len));
    cr_assert_eq(ri_blobs_size("", 1), 0);
    cr_assert_eq(ri_blobs_size("k", RI_BOOT_BLOB_MAX + 1), 0);
}

/* ---- meeting ---- */

struct rank {
    const ring_uid_t *uid;
    uint32_t rank, size, fences;
    uint64_t time, delay;
    bool stay; /* do not close */
    struct ri_boot *boot;
    ring_status_t status;
    uint64_t took;
    char error[RI_ERROR_MAX];
    pthread_t thread;
};

static ring_status_t exchange(const struct rank *me, uint32_t fence, uint64_t deadline)
{
    struct ri_boot *b = me->boot;
    char key[RI_BOOT_KEY_MAX], said[64];
    uint8_t heard[RI_BOOT_BLOB_MAX];
    size_t len;
    snprintf(key, sizeof key, "card%u", fence);
    snprintf(said, sizeof said, "rank %u fence %u", me->rank, fence);
    ring_status_t status = b->ops->put(b, key, said, strlen(said));
    if (!status)
        status = b->ops->fence(b, deadline);
    for (uint32_t r = 0; r < me->size && !status; r++) {
        snprintf(said, sizeof said, "rank %u fence %u", r, fence);
        status = b->ops->get(b, r, key, heard, &len);
        if (!status && (len != strlen(said) || memcmp(heard, said, len)))
            status = ri_fail(RING_ERR_INTERNAL, "rank %u heard something else of rank %u", me->rank, r);
    }
    return status;
}

static void *be_rank(void *arg)
{
    struct rank *me = arg;
    struct ri_conf conf;
    ri_conf_defaults(&conf);
    conf.timeout = me->time;
    usleep((useconds_t)(me->delay / 1000));
    const uint64_t begin = ri_now(), deadline = ri_deadline(me->time);
    me->boot = NULL;
    me->status = ri_boot_open_uid(&conf, me->uid, me->rank, me->size, deadline, &me->boot);
    for (uint32_t f = 0; f < me->fences && !me->status; f++)
        me->status = exchange(me, f, deadline);
    me->took = ri_now() - begin;
    snprintf(me->error, sizeof me->error, "%s", me->status ? ri_error_get() : "");
    if (me->boot && !me->stay)
        me->boot->ops->close(me->boot);
    return NULL;
}

static ring_uid_t make_ticket(void)
{
    struct ri_conf conf;
    ring_uid_t uid = {{0}};
    ri_conf_defaults(&conf);
    conf.timeout = RI_SECOND;
    cr_assert_eq(ri_uid_create(&conf, &uid), RING_OK, "%s", ri_error_get());
    return uid;
}

static struct rank *ranks_of(const ring_uid_t *uid, uint32_t size)
{
    struct rank *all = calloc(size, sizeof *all);
    for (uint32_t r = 0; r < size; r++)
        all[r] = (struct rank){.uid = uid, .rank = r, .size = size, .fences = 3, .time = 20 * RI_SECOND};
    return all;
}

static void start(struct rank *r) { cr_assert_eq(pthread_create(&r->thread, NULL, be_rank, r), 0); }

static void run_all(struct rank *all, uint32_t from, uint32_t to)
{
    for (uint32_t r = from; r < to; r++)
        start(&all[r]);
    for (uint32_t r = from; r < to; r++)
        pthread_join(all[r].thread, NULL);
}

Test(uid, all_ranks_hear_all_ranks_in_every_fence, .timeout = 60)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ring_uid_t uid = make_ticket();
        struct rank *all = ranks_of(&uid, sizes[i]);
        all[sizes[i] / 2].delay = 30 * RI_MILLISECOND;
        run_all(all, 0, sizes[i]);
        for (uint32_t r = 0; r < sizes[i]; r++)
            cr_assert_eq(all[r].status, RING_OK, "size %u rank %u: %s", sizes[i], r, all[r].error);
        free(all);
    }
}

Test(uid, several_tickets_at_once_do_not_mix, .timeout = 60)
{
    const ring_uid_t a = make_ticket(), b = make_ticket();
    struct rank *all[2] = {ranks_of(&a, 4), ranks_of(&b, 4)};
    for (uint32_t r = 0; r < 4; r++)
        for (int t = 0; t < 2; t++)
            start(&all[t][r]);
    for (uint32_t r = 0; r < 4; r++)
        for (int t = 0; t < 2; t++) {
            pthread_join(all[t][r].thread, NULL);
            cr_assert_eq(all[t][r].status, RING_OK, "%s", all[t][r].error);
        }
    free(all[0]);
    free(all[1]);
}

Test(uid, ranks_of_a_ticket_agree_on_its_identity, .timeout = 60)
{
    const ring_uid_t uid = make_ticket();
    struct rank *all = ranks_of(&uid, 2);
    all[0].stay = all[1].stay = true;
    run_all(all, 0, 2);
    cr_assert_eq(all[0].boot->comm_id, all[1].boot->comm_id);
    cr_assert_arr_eq(all[0].boot->secret, all[1].boot->secret, RI_SECRET);
    cr_assert_neq(all[0].boot->toward.ss_family, 0);
    all[0].boot->ops->close(all[0].boot);
    all[1].boot->ops->close(all[1].boot);
    free(all);
}

Test(uid, missing_ranks_are_named_to_everybody, .timeout = 60)
{
    const ring_uid_t uid = make_ticket();
    struct rank *all = ranks_of(&uid, 8);
    for (uint32_t r = 0; r < 4; r++)
        all[r].time = 500 * RI_MILLISECOND;
    all[2].time = 20 * RI_SECOND; /* it hears it from the others */
    run_all(all, 0, 4);
    for (uint32_t r = 0; r < 4; r++) {
        cr_assert_eq(all[r].status, RING_ERR_TIMEOUT, "rank %u: %s", r, all[r].error);
        cr_assert_not_null(strstr(all[r].error, "ranks 4-7 did not arrive within"), "%s", all[r].error);
        cr_assert_leq(all[r].took, 1500 * RI_MILLISECOND);
    }
    cr_assert_str_eq(all[0].error, "ranks 4-7 did not arrive within 500ms (RING_TIMEOUT)");
    run_all(all, 5, 6); /* too late: it hears why */
    cr_assert_eq(all[5].status, RING_ERR_TIMEOUT, "%s", all[5].error);
    cr_assert_not_null(strstr(all[5].error, "ranks 4-7 did not arrive"), "%s", all[5].error);
    free(all);
}

Test(uid, a_rank_is_taken_once, .timeout = 60)
{
    const ring_uid_t uid = make_ticket();
    struct rank *all = ranks_of(&uid, 3), second = all[1];
    start(&all[0]);
    start(&all[1]);
    usleep(100000);
    start(&second);
    pthread_join(second.thread, NULL);
    cr_assert_eq(second.status, RING_ERR_INVALID);
    cr_assert_not_null(strstr(second.error, "rank 1 is taken"), "%s", second.error);
    start(&all[2]);
    for (uint32_t r = 0; r < 3; r++) {
        pthread_join(all[r].thread, NULL);
        cr_assert_eq(all[r].status, RING_OK, "rank %u: %s", r, all[r].error);
    }
    free(all);
}

Test(uid, ranks_that_disagree_on_the_size_are_both_named, .timeout = 60)
{
    const ring_uid_t uid = make_ticket();
    struct rank *all = ranks_of(&uid, 4);
    all[3].size = 5;
    all[3].delay = 100 * RI_MILLISECOND;
    all[1].delay = all[2].delay = 30 * RI_MILLISECOND;
    run_all(all, 0, 4);
    for (uint32_t r = 0; r < 4; r++) {
        cr_assert_eq(all[r].status, RING_ERR_INVALID, "rank %u: %s", r, all[r].error);
        cr_assert_str_eq(all[r].error, "rank 3 says there are 5 ranks, rank 0 says 4");
    }
    free(all);
}

Test(uid, wrong_arguments_are_named, .timeout = 60)
{
    const ring_uid_t uid = make_ticket();
    ring_uid_t damaged = uid;
    struct ri_conf conf;
    struct ri_boot *boot = NULL;
    ri_conf_defaults(&conf);
    cr_assert_eq(ri_boot_open_uid(&conf, &uid, 4, 4, RI_NEVER, &boot), RING_ERR_INVALID);
    cr_assert_not_null(strstr(ri_error_get(), "rank 4"), "%s", ri_error_get());
    cr_assert_eq(ri_boot_open_uid(&conf, &uid, 0, 0, RI_NEVER, &boot), RING_ERR_INVALID);
    cr_assert_not_null(strstr(ri_error_get(), "size 0"), "%s", ri_error_get());
    cr_assert_eq(ri_boot_open_uid(&conf, &uid, 0, UINT32_MAX, RI_NEVER, &boot), RING_ERR_INVALID);
    cr_assert_eq(ri_boot_open_uid(&conf, NULL, 0, 1, RI_NEVER, &boot), RING_ERR_INVALID);
    damaged.text[0] = 'R';
    cr_assert_eq(ri_boot_open_uid(&conf, &damaged, 0, 1, RI_NEVER, &boot), RING_ERR_INVALID);
    damaged = uid;
    damaged.text[10] = damaged.text[10] == 'A' ? 'B' : 'A'; /* another key: nobody there knows it */
    cr_assert_eq(ri_boot_open_uid(&conf, &damaged, 0, 1, ri_deadline(100 * RI_MILLISECOND), &boot), RING_ERR_TIMEOUT);
    cr_assert_not_null(strstr(ri_error_get(), "the maker of the ticket at "), "%s", ri_error_get());
    cr_assert_null(boot);
}

static void be_process(const ring_uid_t *uid, uint32_t rank, uint32_t size)
{
    struct rank me = {.uid = uid, .rank = rank, .size = size, .fences = 1, .time = 20 * RI_SECOND, .stay = true};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_rank(&me);
    pause();
}

/* Children are made before this process has any thread of the library. */
Test(uid, a_rank_that_dies_is_named_within_a_second, .timeout = 60)
{
    int pipes[2];
    ring_uid_t uid;
    cr_assert_eq(pipe(pipes), 0);
    const pid_t child = fork();
    if (!child) {
        if (read(pipes[0], &uid, sizeof uid) == sizeof uid)
            be_process(&uid, 2, 4);
        _exit(1);
    }
    uid = make_ticket();
    cr_assert_eq(write(pipes[1], &uid, sizeof uid), (ssize_t)sizeof uid);
    struct rank *all = ranks_of(&uid, 4);
    start(&all[0]);
    start(&all[1]);
    usleep(300000);
    const uint64_t begin = ri_now();
    kill(child, SIGKILL);
    for (uint32_t r = 0; r < 2; r++) {
        pthread_join(all[r].thread, NULL);
        cr_assert_eq(all[r].status, RING_ERR_PEER_LOST, "%s", all[r].error);
        cr_assert_not_null(strstr(all[r].error, "rank 2 was lost"), "%s", all[r].error);
    }
    cr_assert_leq(ri_now() - begin, RI_SECOND);
    waitpid(child, NULL, 0);
    free(all);
}

Test(uid, a_maker_that_dies_ends_the_wait, .timeout = 60)
{
    int pipes[2];
    ring_uid_t uid;
    cr_assert_eq(pipe(pipes), 0);
    const pid_t maker = fork();
    if (!maker) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        uid = make_ticket();
        if (write(pipes[1], &uid, sizeof uid) == sizeof uid)
            pause();
        _exit(1);
    }
    cr_assert_eq(read(pipes[0], &uid, sizeof uid), (ssize_t)sizeof uid);
    struct rank *all = ranks_of(&uid, 3);
    start(&all[0]);
    start(&all[1]);
    usleep(300000);
    kill(maker, SIGKILL);
    for (uint32_t r = 0; r < 2; r++) {
        pthread_join(all[r].thread, NULL);
        cr_assert_eq(all[r].status, RING_ERR_PEER_LOST, "%s", all[r].error);
        cr_assert_not_null(strstr(all[r].error, "the maker of the ticket"), "%s", all[r].error);
        cr_assert_leq(all[r].took, 2 * RI_SECOND);
    }
    waitpid(maker, NULL, 0);
    free(all);
}

Test(uid, a_rank_that_leaves_early_is_named, .timeout = 60)
{
    const ring_uid_t uid = make_ticket();
    struct rank *all = ranks_of(&uid, 3);
    all[2].fences = 1; /* the others have three */
    run_all(all, 0, 3);
    cr_assert_eq(all[2].status, RING_OK, "%s", all[2].error);
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(all[r].status, RING_ERR_PEER_LOST, "%s", all[r].error);
        cr_assert_not_null(strstr(all[r].error, "rank 2 left"), "%s", all[r].error);
    }
    free(all);
}

static int free_descriptor(void)
{
    const int fd = dup(0);
    close(fd);
    return fd;
}

Test(uid, nothing_is_left_after_the_ranks_have_met, .timeout = 60)
{
    const int before = free_descriptor();
    for (int round = 0; round < 20; round++) {
        const ring_uid_t uid = make_ticket();
        struct rank *all = ranks_of(&uid, 2);
        run_all(all, 0, 2);
        cr_assert_eq(all[0].status, RING_OK, "%s", all[0].error);
        free(all);
    }
    const uint64_t deadline = ri_deadline(5 * RI_SECOND);
    while (free_descriptor() != before && ri_now() < deadline)
        usleep(1000); /* the port of a used ticket closes in the background */
    cr_assert_eq(free_descriptor(), before);
}
