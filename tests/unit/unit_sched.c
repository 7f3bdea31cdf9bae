/* SPDX-License-Identifier: Apache-2.0 */
/* lib/sched: the builder and its errors, successors, the hazard check on programs made for it. */
#include <criterion/criterion.h>

#include <string.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/sched/engine.h"
#include "lib/sched/sched.h"

static struct ri_span dst(size_t off, size_t len) { return (struct ri_span){RI_DST, off, len}; }

static struct ri_span src(size_t off, size_t len) { return (struct ri_span){RI_SRC, off, len}; }

Test(sched, done_lists_successors_and_peers)
{
    struct ri_sched s = {0};
    const ri_step_id a = ri_recv(&s, 9, dst(0, 8), RI_NONE), b = ri_recv(&s, 3, dst(8, 8), RI_NONE);
    const ri_step_id c = ri_also(&s, ri_send(&s, 3, dst(0, 16), a), b), d = ri_send(&s, 7, dst(0, 8), a);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    const uint32_t first[] = {0, 2, 3, 3, 3}, next[] = {c, d, c}, peers[] = {3, 7, 9};
    cr_assert_arr_eq(s.first_next, first, sizeof first);
    cr_assert_arr_eq(s.next, next, sizeof next);
    cr_assert_eq(s.npeers, 3);
    cr_assert_arr_eq(s.peers, peers, sizeof peers);
    ri_sched_free(&s);
    cr_assert_null(s.step);
    ri_sched_free(&s);
}

Test(sched, an_empty_program_is_fine)
{
    struct ri_sched s = {0};
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(s.npeers, 0);
    cr_assert_eq(s.first_next[0], 0);
    cr_assert_eq(ri_sched_hazards(&s, true, NULL, 0), 0);
    ri_sched_free(&s);
}

Test(sched, scratch_is_aligned_and_counted)
{
    struct ri_sched s = {0};
    cr_assert_eq(ri_tmp(&s, 10).off, 0);
    cr_assert_eq(ri_tmp(&s, 100).off, 64);
    cr_assert_eq(ri_tmp(&s, 0).off, 192);
    cr_assert_eq(s.tmp_len, 192);
    ri_tmp(&s, SIZE_MAX - 200);
    cr_assert_eq(ri_sched_done(&s), RING_ERR_NOMEM);
    ri_sched_free(&s);
}

static void expect_sticks(struct ri_sched *s, const char *word)
{
    cr_assert_eq(s->status, RING_ERR_INTERNAL);
    cr_assert_not_null(strstr(ri_error_get(), word), "%s", ri_error_get());
    cr_assert_eq(ri_send(s, 1, src(0, 4), RI_NONE), RI_NONE, "nothing is added after an error");
    cr_assert_null(ri_ids(s, 1));
    ri_final(s, RI_NONE);
    ri_swap(s, RI_NONE);
    ri_also(s, RI_NONE, 0);
    cr_assert_eq(ri_sched_done(s), RING_ERR_INTERNAL);
    ri_sched_free(s);
}

Test(sched, wrong_programs_are_refused)
{
    struct ri_sched s = {0};
    ri_send(&s, 1, src(0, 4), 0);
    expect_sticks(&s, "only earlier steps");
    ri_also(&s, ri_send(&s, 1, src(0, 4), RI_NONE), 0);
    expect_sticks(&s, "only earlier steps");
    ri_copy(&s, dst(0, 4), src(0, 8), RI_NONE);
    expect_sticks(&s, "4 and 8 bytes");
    ri_reduce(&s, dst(0, 4), src(0, 4), src(0, 5), RI_NONE);
    expect_sticks(&s, "4 and 5 bytes");
    ri_recv_reduce(&s, 1, dst(0, 4), src(0, 3), RI_NONE);
    expect_sticks(&s, "4 and 3 bytes");
    const ri_step_id a = ri_send(&s, 1, src(0, 4), RI_NONE), b = ri_send(&s, 1, src(0, 4), a);
    ri_also(&s, ri_also(&s, ri_send(&s, 1, src(0, 4), a), b), a);
    expect_sticks(&s, "more than two");
}

static ring_status_t long_program(struct ri_sched *s)
{
    ri_step_id *ids = ri_ids(s, 200);
    for (uint32_t i = 0; i < 200; i++) {
        const ri_step_id id = ri_send(s, i, src(i, 1), i && ids ? ids[i - 1] : RI_NONE);
        if (ids)
            ids[i] = id;
    }
    return ri_sched_done(s);
}

Test(sched, every_allocation_may_fail)
{
    struct ri_sched s = {0};
    uint64_t n = 0;
    ring_status_t status;
    do {
        ri_mem_fail_at(++n);
        status = long_program(&s);
        ri_mem_fail_at(0);
        cr_assert(status == RING_OK || status == RING_ERR_NOMEM);
        cr_assert(status == RING_OK || strstr(ri_error_get(), "no memory"));
        ri_sched_free(&s);
    } while (status != RING_OK);
    cr_assert_geq(n, 10, "only %d allocations were made to fail", (int)n);
}

static uint32_t same(const void *arg, uint32_t peer)
{
    (void)arg;
    return peer;
}

Test(run, every_allocation_may_fail)
{
    struct ri_engine_setup setup = {.links = 200, .link_of = same};
    struct ri_engine *e = NULL;
    struct ri_run *run = NULL;
    struct ri_sched s = {0};
    uint64_t n = 0;
    ri_mem_fail_at(1);
    cr_assert_eq(ri_engine_open(&setup, &e), RING_ERR_NOMEM);
    ri_mem_fail_at(0);
    cr_assert_eq(ri_engine_open(&setup, &e), RING_OK);
    cr_assert_eq(long_program(&s), RING_OK);
    do {
        cr_assert_null(run);
        ri_mem_fail_at(++n);
    } while (ri_run_new(e, &s, &run) == RING_ERR_NOMEM);
    ri_mem_fail_at(0);
    cr_assert_not_null(run);
    cr_assert_geq(n, 8);
    ri_run_free(run);
    ri_engine_close(e);
    setup.links = 199;
    run = NULL;
    cr_assert_eq(ri_engine_open(&setup, &e), RING_OK);
    cr_assert_eq(ri_run_new(e, &s, &run), RING_ERR_INTERNAL);
    cr_assert_not_null(strstr(ri_error_get(), "rank 199"));
    cr_assert_null(run);
    ri_engine_close(e);
    ri_sched_free(&s);
}

/* ---- a transport that only writes down what is posted ---------------------------------------------------------- */

static struct ri_queue sends, recvs;

static void note_send(struct ri_link *l, struct ri_xfer *x)
{
    (void)l;
    ri_queue_put(&sends, x);
}

static void note_recv(struct ri_link *l, struct ri_xfer *x)
{
    (void)l;
    ri_queue_put(&recvs, x);
}

static const struct ri_transport notes = {.send = note_send, .recv = note_recv};
static struct ri_tctx ctx = {.transport = &notes};
static struct ri_link wire = {.ctx = &ctx};

static void copy(const struct ri_reduction *r, void *to, const void *a, const void *b, size_t count)
{
    (void)r, (void)a;
    memcpy(to, b, count);
}

/* What is posted behind a signature that has not come: long ones wait, short ones go through a sink. */
static void receive_ahead(size_t len, struct ri_span to, bool reduces, bool posted, bool through_a_sink)
{
    static char memory[RI_STRIPE];
    struct ri_link *const links[] = {&wire};
    const struct ri_engine_setup setup = {
        .links = 2, .link = (struct ri_link *const[]){NULL, links[0]}, .link_of = same};
    const struct ri_signature signature = {.magic = RI_SIGNATURE_MAGIC};
    const struct ri_reduction reduction = {.reduce = copy, .esize = 1};
    struct ri_engine *e;
    struct ri_run *run;
    struct ri_sched s = {0};
    struct ri_queue done = {0};
    bool is_done;
    sends = recvs = (struct ri_queue){0};
    to.len = len;
    s.tmp_len = to.slot == RI_TMP ? len : 0;
    if (reduces)
        ri_recv_reduce(&s, 1, to, to, RI_NONE);
    else
        ri_recv(&s, 1, to, RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_engine_open(&setup, &e), RING_OK);
    cr_assert_eq(ri_run_new(e, &s, &run), RING_OK);
    ri_run_start(run, memory, memory, &reduction, &signature);
    struct ri_xfer *hello = ri_queue_take(&recvs), *data = ri_queue_take(&recvs), *mine = ri_queue_take(&sends);
    cr_assert_eq(data != NULL, posted, "%zu bytes", len);
    hello->sink(hello, 0, &signature, 16);
    hello->sink(hello, 16, (const char *)&signature + 16, 16);
    ri_queue_put(&done, mine);
    ri_queue_put(&done, hello);
    ri_engine_progress(e, &done);
    if (!posted)
        data = ri_queue_take(&recvs);
    cr_assert_not_null(data);
    cr_assert_eq(data->sink != NULL, through_a_sink);
    cr_assert_eq(ri_run_state(run, &is_done), RING_OK);
    cr_assert_not(is_done);
    ri_queue_put(&done, data);
    ri_engine_progress(e, &done);
    cr_assert_eq(ri_run_state(run, &is_done), RING_OK);
    cr_assert(is_done);
    ri_run_free(run);
    ri_engine_close(e);
    ri_sched_free(&s);
}

Test(run, what_can_overtake_the_signature_waits_for_it)
{
    const struct ri_span user = {RI_DST, 0, 0}, scratch = {RI_TMP, 0, 0};
    receive_ahead(RI_STRIPE - 1, user, false, true, true);
    receive_ahead(RI_STRIPE, user, false, false, false);
    receive_ahead(RI_STRIPE - 1, user, true, true, true);
    receive_ahead(RI_STRIPE, user, true, false, true);
    receive_ahead(RI_STRIPE - 1, scratch, false, true, false);
    receive_ahead(RI_STRIPE, scratch, false, true, false);
    receive_ahead(RI_STRIPE, scratch, true, false, true);
}

Test(hazard, each_kind_of_conflict_is_counted_once)
{
    char why[200];
    struct ri_sched s = {0};
    ri_send(&s, 1, src(0, 8), RI_NONE);
    ri_recv(&s, 1, dst(4, 8), RI_NONE);
    ri_recv(&s, 1, dst(8, 8), RI_NONE);
    ri_send(&s, 1, dst(12, 1), RI_NONE);
    ri_send(&s, 1, dst(16, 9), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, false, why, sizeof why), 2);
    cr_assert_str_eq(why, "step 1 writes dst[4,12) and step 2 writes dst[8,16), and nothing orders them");
    cr_assert_eq(ri_sched_hazards(&s, true, why, sizeof why), 3);
    cr_assert_str_eq(why, "step 0 reads dst[0,8) and step 1 writes dst[4,12), and nothing orders them");
    ri_sched_free(&s);
}

Test(hazard, order_is_transitive_and_shared_spans_are_one_pair)
{
    struct ri_sched s = {0};
    const ri_step_id a = ri_recv(&s, 1, dst(0, 8), RI_NONE), b = ri_send(&s, 1, src(0, 1), a);
    ri_send(&s, 1, dst(0, 8), b);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, false, NULL, 0), 0);
    ri_sched_free(&s);
    ri_reduce(&s, dst(0, 8), dst(0, 8), dst(8, 8), RI_NONE);
    ri_reduce(&s, dst(8, 8), dst(0, 8), dst(8, 8), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, false, NULL, 0), 1);
    ri_sched_free(&s);
}

Test(hazard, a_step_may_work_in_place_but_not_shifted)
{
    char why[200];
    struct ri_sched s = {0};
    ri_copy(&s, dst(0, 8), src(0, 8), RI_NONE);
    ri_copy(&s, dst(8, 8), src(12, 8), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, false, NULL, 0), 0);
    cr_assert_eq(ri_sched_hazards(&s, true, why, sizeof why), 1);
    cr_assert_str_eq(why, "step 1 writes dst[8,16) and step 1 reads dst[12,20), and nothing orders them");
    ri_mem_fail_at(2);
    cr_assert_eq(ri_sched_hazards(&s, true, why, sizeof why), SIZE_MAX);
    ri_mem_fail_at(0);
    ri_sched_free(&s);
}
