/* SPDX-License-Identifier: Apache-2.0 */
/* lib/sched: the builder and its errors, successors, the hazard check on programs made for it. */
#include <criterion/criterion.h>

#include <stdlib.h>
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
    cr_assert_eq(ri_sched_hazards(&s, 0, NULL, 0), 0);
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
    ri_combine(&s, dst(0, 4), src(0, 3), dst(8, 4), 2, 0, 4, RI_NONE);
    expect_sticks(&s, "4 and 3 bytes");
    ri_combine(&s, dst(0, 4), src(0, 4), dst(8, 5), 2, 0, 8, RI_NONE);
    expect_sticks(&s, "4 and 5 bytes");
    ri_combine(&s, dst(0, 4), src(0, 4), dst(8, 4), 3, 0, 3, RI_NONE);
    expect_sticks(&s, "they may not overlap");
    ri_combine(&s, dst(0, 4), src(0, 4), dst(8, 4), 3, 3, 4, RI_NONE);
    expect_sticks(&s, "its own being number 3");
    ri_combine(&s, dst(0, 4), src(0, 4), dst(8, 4), 0, 0, 4, RI_NONE);
    expect_sticks(&s, "combines 0 operands");
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

Test(sched, a_peer_without_bytes_is_none_and_joins_are_made_when_needed)
{
    struct ri_sched s = {0};
    const ri_step_id a = ri_send(&s, 4, src(0, 0), RI_NONE), b = ri_recv(&s, 5, dst(0, 8), RI_NONE);
    cr_assert_eq(ri_join(&s, a, RI_NONE), a);
    cr_assert_eq(ri_join(&s, RI_NONE, b), b);
    cr_assert_eq(ri_join(&s, RI_NONE, RI_NONE), RI_NONE);
    const ri_step_id both = ri_join(&s, a, b);
    cr_assert_eq(both, 2);
    cr_assert_eq(s.step[both].after[0], a);
    cr_assert_eq(s.step[both].after[1], b);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(s.npeers, 1);
    cr_assert_eq(s.peers[0], 5);
    ri_sched_free(&s);
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
    struct ri_signature signature = {.magic = RI_SIGNATURE_MAGIC};
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
    cr_assert_null(mine, "a rank that only receives says nothing");
    signature.bytes = len;
    hello->sink(hello, 0, &signature, 16);
    hello->sink(hello, 16, (const char *)&signature + 16, sizeof signature - 16);
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

/* A link that is not there yet: nothing is posted; when it comes, everything. Sending alone needs no answer. */
Test(run, a_sender_says_who_it_is_and_hears_nothing)
{
    char memory[8] = {0};
    struct ri_link *links[] = {NULL, NULL};
    const struct ri_engine_setup setup = {.links = 2, .link = links, .link_of = same};
    const struct ri_signature signature = {.magic = RI_SIGNATURE_MAGIC, .bytes = 99};
    const struct ri_reduction reduction = {.reduce = copy, .esize = 1};
    struct ri_engine *e;
    struct ri_run *run;
    struct ri_sched s = {0};
    struct ri_queue done = {0};
    struct ri_signature said;
    bool is_done;
    sends = recvs = (struct ri_queue){0};
    ri_send(&s, 1, src(0, 8), ri_send(&s, 1, src(0, 0), RI_NONE));
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_engine_open(&setup, &e), RING_OK);
    cr_assert_eq(ri_run_new(e, &s, &run), RING_OK);
    ri_run_start(run, memory, memory, &reduction, &signature);
    cr_assert_eq(ri_engine_progress(e, &done), 0);
    cr_assert_null(ri_queue_take(&sends));
    links[1] = &wire;
    ri_engine_link_ready(e, 1);
    struct ri_xfer *hello = ri_queue_take(&sends), *data = ri_queue_take(&sends);
    cr_assert(hello && data && !ri_queue_take(&sends) && !ri_queue_take(&recvs));
    memcpy(&said, hello->buf, hello->len);
    cr_assert_eq(said.magic, RI_SIGNATURE_MAGIC);
    cr_assert_eq(said.bytes, 8);
    cr_assert_eq(data->len, 8);
    ri_queue_put(&done, hello);
    ri_queue_put(&done, data);
    ri_engine_progress(e, &done);
    cr_assert_eq(ri_run_state(run, &is_done), RING_OK);
    cr_assert(is_done);
    ri_run_free(run);
    ri_engine_close(e);
    ri_sched_free(&s);
}

/* ---- local work ------------------------------------------------------------------------------------------------ */

/* The engine knows no link; runs until done. */
static void run_alone(const struct ri_sched *s, const void *from, void *to, ring_dtype_t dtype, ring_redop_t redop)
{
    const struct ri_engine_setup setup = {.link_of = same};
    const struct ri_signature signature = {.magic = RI_SIGNATURE_MAGIC};
    const struct ri_reduction reduction = ri_reduction_for(dtype, redop);
    struct ri_engine *e;
    struct ri_run *run;
    struct ri_queue none = {0};
    bool done = false;
    cr_assert_eq(ri_engine_open(&setup, &e), RING_OK);
    cr_assert_eq(ri_run_new(e, s, &run), RING_OK);
    for (int again = 0; again < 2; again++) {
        ri_run_start(run, from, to, &reduction, &signature);
        cr_assert_eq(ri_run_state(run, &done), RING_OK);
        while (!done && ri_engine_progress(e, &none))
            cr_assert_eq(ri_run_state(run, &done), RING_OK);
        cr_assert_eq(ri_run_state(run, &done), RING_OK);
        cr_assert(done, "it stands still");
    }
    ri_run_free(run);
    ri_engine_close(e);
}

/* Operands far larger than a slice, the own one first, in the middle and last, averaged at the end or not. */
Test(local, combining_takes_all_operands_in_order)
{
    enum { N = 5, COUNT = 30011, LEN = COUNT * 8, STRIDE = LEN + 64 };
    int64_t *from = ri_new(N, LEN), *to = ri_new(1, LEN);
    for (size_t i = 0; i < (size_t)N * COUNT; i++)
        from[i] = (int64_t)(i * 2654435761u % 1000) - 300;
    for (uint32_t own = 0; own < N; own++)
        for (int final = 0; final < 2; final++) {
            struct ri_sched s = {.ranks = N};
            struct ri_span all = ri_tmp(&s, (size_t)N * STRIDE), each = {RI_TMP, all.off, LEN};
            ri_step_id come = RI_NONE;
            for (uint32_t k = 0; k < N; k++) {
                const struct ri_span there = {RI_TMP, all.off + k * (size_t)STRIDE, LEN};
                if (k != own)
                    come = ri_join(&s, come, ri_copy(&s, there, src((size_t)k * LEN, LEN), RI_NONE));
            }
            come = ri_combine(&s, dst(0, LEN), src((size_t)own * LEN, LEN), each, N, own, STRIDE, come);
            if (final)
                ri_final(&s, come);
            cr_assert_eq(ri_sched_done(&s), RING_OK);
            cr_assert_eq(ri_sched_hazards(&s, RI_APART, NULL, 0), 0);
            run_alone(&s, from, to, RING_INT64, RING_AVG);
            for (size_t i = 0; i < COUNT; i++) {
                int64_t sum = 0;
                for (uint32_t k = 0; k < N; k++)
                    sum += from[k * COUNT + i];
                cr_assert_eq(to[i], final ? sum / N : sum, "element %zu, own operand %u", i, (unsigned)own);
            }
            ri_sched_free(&s);
        }
    ri_free(from);
    ri_free(to);
}

/* Deeper than any stack would bear if one step called the next. */
Test(local, a_long_chain_without_work_ends_and_orders)
{
    const char from[4] = "abc";
    char to[4] = "";
    struct ri_sched s = {0};
    ri_step_id last = RI_NONE;
    for (uint32_t i = 0; i < 300000; i++)
        last = i % 3 ? ri_join(&s, last, last) : ri_copy(&s, dst(0, 0), src(0, 0), last);
    ri_copy(&s, dst(0, 4), src(0, 4), last);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    run_alone(&s, from, to, RING_INT8, RING_SUM);
    cr_assert_str_eq(to, "abc");
    ri_sched_free(&s);
}

Test(print, every_kind_of_step)
{
    static const char want[] = "    0  recv         tmp[0,8) from 3\n"
                               "    1  send         src[0,8) to 3\n"
                               "    2  join           after 0, 1\n"
                               "    3  combine      dst[0,8) = 3 operands tmp[0,8) + 64 k, operand 1 src[0,8), final"
                               "  after 2\n";
    char *text = NULL;
    size_t len = 0;
    struct ri_sched s = {0};
    const struct ri_span first = {RI_TMP, 0, 8};
    const ri_step_id come = ri_recv(&s, 3, first, RI_NONE), sent = ri_send(&s, 3, src(0, 8), RI_NONE);
    ri_final(&s, ri_combine(&s, dst(0, 8), src(0, 8), first, 3, 1, 64, ri_join(&s, come, sent)));
    FILE *out = open_memstream(&text, &len);
    ri_sched_print(&s, out);
    fclose(out);
    cr_assert_str_eq(text, want, "%s", text);
    free(text);
    ri_sched_free(&s);
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
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, why, sizeof why), 2);
    cr_assert_str_eq(why, "step 1 writes dst[4,12) and step 2 writes dst[8,16), and nothing orders them");
    cr_assert_eq(ri_sched_hazards(&s, 0, why, sizeof why), 3);
    cr_assert_str_eq(why, "step 0 reads src[0,8) and step 1 writes dst[4,12), and nothing orders them");
    ri_sched_free(&s);
}

Test(hazard, order_is_transitive_and_shared_spans_are_one_pair)
{
    struct ri_sched s = {0};
    const ri_step_id a = ri_recv(&s, 1, dst(0, 8), RI_NONE), b = ri_send(&s, 1, src(0, 1), a);
    ri_send(&s, 1, dst(0, 8), b);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, NULL, 0), 0);
    ri_sched_free(&s);
    ri_reduce(&s, dst(0, 8), dst(0, 8), dst(8, 8), RI_NONE);
    ri_reduce(&s, dst(8, 8), dst(0, 8), dst(8, 8), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, NULL, 0), 1);
    ri_sched_free(&s);
}

Test(hazard, every_operand_of_a_combination_is_read)
{
    char why[200];
    const struct ri_span first = {RI_TMP, 0, 8};
    struct ri_sched s = {0};
    ri_combine(&s, dst(0, 8), src(0, 8), first, 4, 1, 16, RI_NONE);
    ri_recv(&s, 1, (struct ri_span){RI_TMP, 8, 24}, RI_NONE); /* where the own operand would lie, and between */
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, 0, why, sizeof why), 0, "%s", why);
    ri_sched_free(&s);
    ri_combine(&s, dst(0, 8), src(0, 8), first, 4, 1, 16, RI_NONE);
    ri_recv(&s, 1, (struct ri_span){RI_TMP, 55, 8}, RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, why, sizeof why), 1);
    cr_assert_str_eq(why, "step 0 reads tmp[48,56) and step 1 writes tmp[55,63), and nothing orders them");
    ri_sched_free(&s);
}

/* As all_gather in place: SRC is a block of DST. */
Test(hazard, one_buffer_may_begin_inside_the_other)
{
    struct ri_sched s = {0};
    ri_send(&s, 1, src(0, 8), RI_NONE);
    ri_recv(&s, 1, dst(8, 8), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, 0, NULL, 0), 0);
    cr_assert_eq(ri_sched_hazards(&s, 1, NULL, 0), 1);
    cr_assert_eq(ri_sched_hazards(&s, 15, NULL, 0), 1);
    cr_assert_eq(ri_sched_hazards(&s, 16, NULL, 0), 0);
    cr_assert_eq(ri_sched_hazards(&s, -8, NULL, 0), 0);
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, NULL, 0), 0);
    ri_sched_free(&s);
}

Test(hazard, a_copy_onto_itself_touches_nothing)
{
    struct ri_sched s = {0};
    ri_send(&s, 1, src(0, 8), RI_NONE);
    ri_copy(&s, dst(16, 8), src(0, 8), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, 16, NULL, 0), 0);
    cr_assert_eq(ri_sched_hazards(&s, 12, NULL, 0), 2);
    ri_sched_free(&s);
}

Test(hazard, a_step_may_work_in_place_but_not_shifted)
{
    char why[200];
    struct ri_sched s = {0};
    ri_copy(&s, dst(0, 8), src(0, 8), RI_NONE);
    ri_copy(&s, dst(8, 8), src(12, 8), RI_NONE);
    cr_assert_eq(ri_sched_done(&s), RING_OK);
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, NULL, 0), 0);
    cr_assert_eq(ri_sched_hazards(&s, 0, why, sizeof why), 1);
    cr_assert_str_eq(why, "step 1 writes dst[8,16) and step 1 reads src[12,20), and nothing orders them");
    cr_assert_eq(ri_sched_hazards(&s, -4, why, sizeof why), 1);
    cr_assert_str_eq(why, "step 0 reads src[0,8) and step 0 writes dst[0,8), and nothing orders them");
    ri_mem_fail_at(2);
    cr_assert_eq(ri_sched_hazards(&s, 0, why, sizeof why), SIZE_MAX);
    ri_mem_fail_at(0);
    ri_sched_free(&s);
}
