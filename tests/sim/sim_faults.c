/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that disagree, links that break: who hears what, and whose memory is touched. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "tests/sim/world.h"

static struct world w;

static ring_status_t state(const struct job *job, uint32_t rank, bool *done_out)
{
    *done_out = false;
    return ri_run_state(job->part[rank].run, done_out);
}

/* Turns until nothing has moved for long. */
static void exhaust(void)
{
    for (unsigned quiet = 0; quiet < 1000 * w.size; quiet++)
        if (world_turn(&w))
            quiet = 0;
}

static void end_failed(struct job *jobs, size_t n)
{
    world_cut_links(&w);
    for (size_t i = 0; i < n; i++)
        job_end(&w, &jobs[i]);
    world_close(&w);
}

/* ---- disagreement ---------------------------------------------------------------------------------------------- */

enum field { SEQ, COLL, DTYPE, REDOP, ALGO, ROOT, COUNT, EXTRA, FIELDS };

static void bend(struct ri_signature *s, enum field f)
{
    uint8_t *small[] = {[COLL] = &s->coll, [DTYPE] = &s->dtype, [REDOP] = &s->redop, [ALGO] = &s->algo};
    if (f == SEQ)
        s->seq++;
    else if (f == ROOT)
        s->root++;
    else if (f == COUNT)
        s->count++;
    else if (f == EXTRA)
        s->extra ^= UINT64_C(1) << 63;
    else
        ++*small[f];
}

static bool untouched(const struct part *p, bool in_place)
{
    for (size_t i = 0; i < p->bytes; i++)
        if (p->dst[i] != (in_place ? p->given[GUARD + i] : 0xa5))
            return false;
    return true;
}

/* With two ranks everything that arrives is from the one that differs, so nothing at all may change. */
static void two_ranks(const struct ri_algorithm *a, enum field f, size_t count, size_t seg, bool in_place)
{
    struct job job = {.algorithm = a,
                      .count = count,
                      .dtype = RING_INT32,
                      .redop = RING_SUM,
                      .in_place = in_place,
                      .exact = true,
                      .seg = seg};
    bool done;
    world_open(&w, 2, world_seed() + f);
    job_prepare(&w, &job);
    bend(&job.part[1].signature, f);
    job_start(&w, &job);
    exhaust();
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(state(&job, r, &done), RING_ERR_MISMATCH, "%s, field %d, rank %u", a->name, f, (unsigned)r);
        cr_assert_not(done);
        cr_assert_eq(w.member[r].mismatches, 1);
        cr_assert_eq(w.member[r].mismatch_peer, 1 - r);
        cr_assert_eq(ri_run_culprit(job.part[r].run), UINT32_MAX);
        cr_assert(untouched(&job.part[r], in_place), "%s, field %d, rank %u, %zu elements", a->name, f, (unsigned)r,
                  count);
    }
    job_check_guards(&w, &job);
    end_failed(&job, 1);
}

Test(mismatch, every_field_is_compared_before_data_is_believed, .timeout = 60)
{
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
        for (int f = 0; f < FIELDS && (*a)->coll == RING_ALL_REDUCE && (*a)->fits(&(struct ri_coll_args){.size = 2});
             f++)
            for (int in_place = 0; in_place < 2; in_place++) {
                two_ranks(*a, (enum field)f, 100, 1 << 20, in_place);
                two_ranks(*a, (enum field)f, 1, 1 << 20, in_place);
                two_ranks(*a, (enum field)f, 0, 1 << 20, in_place);
                two_ranks(*a, (enum field)f, 1000, 64, in_place);
                two_ranks(*a, (enum field)f, 100000, 1 << 20, in_place);
            }
}

static bool receives_from(const struct ri_sched *s, uint32_t peer)
{
    bool found = false;
    for (uint32_t i = 0; i < s->n; i++)
        found |= (s->step[i].op == RI_RECV || s->step[i].op == RI_RECV_REDUCE) && s->step[i].peer == peer &&
                 s->step[i].dst.len;
    return found;
}

/* Programs of different lengths: what one sends does not fit what the other expects. */
static void counts_differ(const struct ri_algorithm *a, uint32_t size, size_t count, size_t other, uint32_t odd)
{
    struct world *v = &w;
    struct job job = {.algorithm = a, .count = count, .dtype = RING_FLOAT, .exact = true, .seg = 256}, small = job;
    bool done;
    small.count = other;
    world_open(v, size, world_seed() + size);
    job_prepare(v, &job);
    job_prepare(v, &small);
    for (uint32_t r = 0; r < size; r++)
        job_start_on(v, r == odd ? &small : &job, r);
    exhaust();
    for (uint32_t r = 0; r < size; r++) {
        const struct job *mine = r == odd ? &small : &job;
        const ring_status_t status = state(mine, r, &done);
        cr_assert_not(done, "%s: rank %u of %u is done", a->name, (unsigned)r, (unsigned)size);
        if (r == odd || receives_from(&job.part[r].program, odd))
            cr_assert_eq(status, RING_ERR_MISMATCH, "%s, rank %u of %u", a->name, (unsigned)r, (unsigned)size);
        else
            cr_assert_eq(status, RING_OK, "%s, rank %u of %u", a->name, (unsigned)r, (unsigned)size);
    }
    job_check_guards(v, &job);
    job_check_guards(v, &small);
    world_cut_links(v);
    job_end(v, &job);
    end_failed(&small, 1);
}

Test(mismatch, different_counts_are_heard_by_all_that_receive_and_end_nowhere_well, .timeout = 60)
{
    const struct ri_algorithm *ring = ri_algorithm_named(RING_ALL_REDUCE, "ring");
    const size_t pairs[][2] = {{1000, 998}, {1000, 1}, {1, 1000}, {5, 0}, {0, 5}, {40000, 39998}};
    for (uint32_t size = 2; size <= 5; size++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            for (uint32_t odd = 0; odd < size; odd++)
                counts_differ(ring, size, pairs[i][0], pairs[i][1], odd);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        counts_differ(ri_algorithm_named(RING_ALL_REDUCE, "exchange"), 2, pairs[i][0], pairs[i][1], 1);
        counts_differ(ri_algorithm_named(RING_ALL_REDUCE, "doubling"), 2, pairs[i][0], pairs[i][1], 0);
    }
}

Test(mismatch, earlier_operations_are_not_harmed_and_later_ones_fail, .timeout = 60)
{
    struct job jobs[3];
    bool done;
    world_open(&w, 3, world_seed());
    for (uint32_t i = 0; i < 3; i++) {
        jobs[i] = (struct job){.algorithm = ri_algorithm_named(RING_ALL_REDUCE, "ring"),
                               .count = 500,
                               .dtype = RING_DOUBLE,
                               .exact = true,
                               .seg = 400,
                               .seq = i};
        job_prepare(&w, &jobs[i]);
    }
    jobs[1].part[2].signature.redop = RING_MAX;
    for (uint32_t i = 0; i < 3; i++)
        job_start(&w, &jobs[i]);
    exhaust();
    job_check(&w, &jobs[0]);
    /* In a ring rank 0 receives from rank 2, rank 2 from rank 1, and rank 1, which nobody contradicts, waits. */
    for (uint32_t r = 0; r < 3; r++) {
        const ring_status_t want = r == 1 ? RING_OK : RING_ERR_MISMATCH;
        cr_assert_eq(state(&jobs[1], r, &done), want);
        cr_assert_not(done);
        cr_assert_eq(state(&jobs[2], r, &done), want);
        cr_assert_not(done);
        cr_assert_eq(w.member[r].mismatches, r != 1);
    }
    struct job late = jobs[2];
    job_prepare(&w, &late);
    job_start(&w, &late);
    for (uint32_t r = 0; r < 3; r++)
        cr_assert_eq(state(&late, r, &done), r == 1 ? RING_OK : RING_ERR_MISMATCH);
    world_cut_links(&w);
    job_end(&w, &late);
    end_failed(jobs, 3);
}

/* The calls agree, as far as they say, but not on how many bytes there are to move. */
Test(mismatch, lengths_are_compared_too, .timeout = 60)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        bool done;
        struct job job = {.algorithm = ri_algorithm_named(RING_ALL_REDUCE, "exchange"),
                          .count = 100,
                          .dtype = RING_INT32,
                          .in_place = in_place,
                          .exact = true,
                          .seg = 64};
        struct job small = job;
        small.count = 99;
        world_open(&w, 2, world_seed());
        job_prepare(&w, &job);
        job_prepare(&w, &small);
        small.part[1].signature.count = 100;
        job_start_on(&w, &job, 0);
        job_start_on(&w, &small, 1);
        exhaust();
        cr_assert_eq(state(&job, 0, &done), RING_ERR_MISMATCH);
        cr_assert_eq(state(&small, 1, &done), RING_ERR_MISMATCH);
        cr_assert(untouched(&job.part[0], in_place) && untouched(&small.part[1], in_place));
        world_cut_links(&w);
        job_end(&w, &job);
        end_failed(&small, 1);
    }
}

/* ---- links that come late --------------------------------------------------------------------------------------- */

/* Every link of every rank is missing at first; both ends of one come at different times, in any order. */
static void arrive_late(const struct ri_algorithm *a, uint32_t size)
{
    enum { JOBS = 2, MOST = WORLD_MAX * WORLD_MAX };
    struct job jobs[JOBS];
    struct ri_link *kept[MOST];
    uint32_t missing[MOST], left = 0;
    world_open(&w, size, world_seed() + 400 + size);
    for (uint32_t i = 0; i < size * size; i++)
        if ((kept[i] = w.member[i / size].link[i % size])) {
            missing[left++] = i;
            w.member[i / size].link[i % size] = NULL;
        }
    for (uint32_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){.algorithm = a, .count = 300, .dtype = RING_INT32, .exact = true, .seg = 128, .seq = i};
        job_prepare(&w, &jobs[i]);
        job_start(&w, &jobs[i]);
    }
    if (size > 1) {
        char text[128];
        ri_run_describe(jobs[0].part[0].run, text, sizeof text);
        cr_assert_not_null(strstr(text, "a link to rank"), "%s", text);
    }
    while (left) {
        for (uint64_t turns = world_chance(&w, 8); turns; turns--)
            world_turn(&w);
        const uint64_t pick = world_chance(&w, left);
        const uint32_t rank = missing[pick] / size, peer = missing[pick] % size;
        w.member[rank].link[peer] = kept[missing[pick]];
        ri_engine_link_ready(w.member[rank].engine, peer);
        missing[pick] = missing[--left];
    }
    cr_assert(world_settle(&w, jobs, JOBS), "%s, %u ranks, SIM_SEED=%llu", a->name, (unsigned)size,
              (unsigned long long)w.seed);
    for (uint32_t i = 0; i < JOBS; i++) {
        job_check(&w, &jobs[i]);
        job_end(&w, &jobs[i]);
    }
    world_close(&w);
}

Test(late, runs_wait_for_links_that_are_not_there_yet, .timeout = 60)
{
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
        for (uint32_t size = 1; size <= 6; size++)
            if ((*a)->coll == RING_ALL_REDUCE && (*a)->fits(&(struct ri_coll_args){.size = size}))
                arrive_late(*a, size);
}

/* ---- broken links ---------------------------------------------------------------------------------------------- */

static void cut_at(const struct ri_algorithm *a, uint32_t one, uint32_t other, uint64_t bytes)
{
    enum { JOBS = 3 };
    struct job jobs[JOBS];
    unsigned ended = 0;
    w.knobs = (struct loop_knobs){.cut = true, .cut_one = one, .cut_other = other, .cut_after = bytes};
    world_open(&w, 5, world_seed() + bytes);
    for (uint32_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){.algorithm = a, .count = 2000, .dtype = RING_FLOAT, .exact = true, .seg = 500, .seq = i};
        job_prepare(&w, &jobs[i]);
        job_start(&w, &jobs[i]);
    }
    exhaust();
    for (uint32_t i = 0; i < JOBS; i++)
        for (uint32_t r = 0; r < 5; r++) {
            bool done;
            const ring_status_t status = state(&jobs[i], r, &done);
            if (r != one && r != other) {
                cr_assert_eq(status, RING_OK);
                continue;
            }
            if (done)
                continue;
            cr_assert_eq(status, RING_ERR_PEER_LOST, "%s, rank %u, operation %u", a->name, (unsigned)r, (unsigned)i);
            cr_assert_eq(ri_run_culprit(jobs[i].part[r].run), r == one ? other : one);
            ended++;
        }
    cr_assert_geq(ended, 1, "the link was not cut");
    for (uint32_t i = 0; i < JOBS; i++)
        job_check_guards(&w, &jobs[i]);
    end_failed(jobs, JOBS);
    w.knobs = (struct loop_knobs){0};
}

Test(broken, both_ends_of_a_broken_link_name_each_other, .timeout = 60)
{
    const struct ri_algorithm *ring = ri_algorithm_named(RING_ALL_REDUCE, "ring");
    const struct ri_algorithm *doubling = ri_algorithm_named(RING_ALL_REDUCE, "doubling");
    struct world chance = {.random = world_seed()};
    fprintf(stderr, "SIM_SEED=%llu\n", (unsigned long long)world_seed());
    for (int i = 0; i < 60; i++) {
        cut_at(ring, 2, 3, i < 3 ? 16u * (unsigned)i : world_chance(&chance, 3 * 12000));
        cut_at(doubling, 0, 2, i < 3 ? 16u * (unsigned)i : world_chance(&chance, 3 * 16000));
    }
}

/* ---- what people are told -------------------------------------------------------------------------------------- */

Test(describe, says_what_a_run_waits_for, .timeout = 60)
{
    char text[128];
    struct job job = {.algorithm = ri_algorithm_named(RING_ALL_REDUCE, "ring"),
                      .count = 30,
                      .dtype = RING_FLOAT,
                      .exact = true,
                      .seg = 4096,
                      .seq = 7};
    w.knobs.calm = true;
    world_open(&w, 3, world_seed());
    job_prepare(&w, &job);
    job_start_on(&w, &job, 0);
    job_start_on(&w, &job, 1);
    exhaust();
    ri_run_describe(job.part[0].run, text, sizeof text);
    cr_assert_str_eq(text, "rank 2 to begin operation 7");
    job_start_on(&w, &job, 2);
    for (int i = 0; i < 40; i++) { /* rank 0 does not move, but has sent its first chunk */
        for (uint32_t r = 1; r < 3; r++) {
            struct ri_queue done = {0};
            ri_transport_loop.progress(w.member[r].ctx, &done);
            ri_engine_progress(w.member[r].engine, &done);
        }
    }
    ri_run_describe(job.part[2].run, text, sizeof text);
    cr_assert_str_eq(text, "recv of 40 bytes from rank 1 (step 5 of 8)", "%s", text);
    cr_assert(world_settle(&w, &job, 1));
    ri_run_describe(job.part[2].run, text, sizeof text);
    cr_assert_str_eq(text, "nothing: it is done");
    job_check(&w, &job);
    job_end(&w, &job);
    world_close(&w);
}
