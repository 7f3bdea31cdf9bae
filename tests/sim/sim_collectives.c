/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm of every collective, all ranks in one process, in random legal orders over the loop transport. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "tests/sim/world.h"

static struct world w;
static struct sim_layout layout;

/* RING_RECV's rows are the other half of RING_SEND's. */
static void run_if_it_fits(const struct ri_algorithm *a, size_t count, bool variable)
{
    struct job job = job_random(&w, a, count, &layout);
    job.variable = variable;
    if (a->coll != RING_RECV && job_fits(&w, &job))
        job_run(&w, &job);
}

Test(collectives, every_algorithm_at_every_size_and_count, .timeout = 200)
{
    fprintf(stderr, "SIM_SEED=%llu\n", (unsigned long long)world_seed());
    for (uint32_t size = 1; size <= WORLD_MAX; size++) {
        const size_t counts[] = {0, 1, 2, size - 1, size, size + 1, 2 * size - 1, 97, 331};
        world_open(&w, size, world_seed() + size);
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int again = 0; again < 2; again++)
                    run_if_it_fits(*a, counts[c], false);
        world_close(&w);
    }
}

Test(collectives, blocks_of_any_length_anywhere, .timeout = 200)
{
    const size_t counts[] = {1, 2, 7, 40, 200};
    for (uint32_t size = 1; size <= WORLD_MAX; size++) {
        world_open(&w, size, world_seed() + 100 + size);
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts && shape_has_blocks((*a)->coll); c++)
                for (int again = 0; again < 3; again++)
                    run_if_it_fits(*a, counts[c], true);
        world_close(&w);
    }
}

/* Beyond what is received before the signature has come, beyond a stream's window, beyond a slice of local work. */
Test(collectives, large_blocks_in_many_segments, .timeout = 200)
{
    const size_t segs[] = {1000, 70000, 1 << 20};
    for (uint32_t size = 1; size <= 5; size++)
        for (size_t s = 0; s < 3; s++) {
            world_open(&w, size, world_seed() + 200 + size);
            for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++) {
                struct job job = job_random(&w, *a, 30001, &layout);
                job.dtype = size % 2 ? RING_FLOAT : RING_INT16;
                job.redop = RING_AVG;
                job.exact = true;
                job.seg = segs[s];
                job.variable = shape_has_blocks(job.algorithm->coll) && s % 2;
                if ((*a)->coll != RING_RECV && job_fits(&w, &job))
                    job_run(&w, &job);
            }
            world_close(&w);
        }
}

/* All ranks start the same operations in the same order, whatever they are, but not at the same time. */
Test(collectives, different_ones_in_flight_together, .timeout = 200)
{
    enum { JOBS = 8, ROUNDS = 12 };
    static struct job jobs[JOBS];
    static struct sim_layout layouts[JOBS];
    uint32_t rows = 0;
    while (ri_algorithms[rows])
        rows++;
    for (uint32_t size = 2; size <= 9; size++)
        for (int round = 0; round < ROUNDS; round++) {
            size_t started[WORLD_MAX] = {0}, n = 0;
            world_open(&w, size, world_seed() + 300 + size * ROUNDS + (uint32_t)round);
            while (n < JOBS) {
                const struct ri_algorithm *a = ri_algorithms[world_chance(&w, rows)];
                jobs[n] = job_random(&w, a, (size_t)world_chance(&w, 300), &layouts[n]);
                jobs[n].seq = (uint32_t)n;
                jobs[n].variable = shape_has_blocks(a->coll) && world_chance(&w, 2);
                if (a->coll != RING_RECV && job_fits(&w, &jobs[n]))
                    job_prepare(&w, &jobs[n++]);
            }
            for (size_t left = n * size; left; world_turn(&w)) {
                const uint32_t r = (uint32_t)world_chance(&w, size);
                if (started[r] < n && !world_chance(&w, 3)) {
                    job_start_on(&w, &jobs[started[r]++], r);
                    left--;
                }
            }
            cr_assert(world_settle(&w, jobs, n), "stands still, SIM_SEED=%llu", (unsigned long long)w.seed);
            for (size_t i = 0; i < n; i++) {
                job_check(&w, &jobs[i]);
                job_end(&w, &jobs[i]);
            }
            world_close(&w);
        }
}

/* ---- who waits for whom ---------------------------------------------------------------------------------------- */

static bool waits_for_all(ring_coll_t coll)
{
    return coll == RING_BARRIER || coll == RING_ALL_REDUCE || coll == RING_ALL_GATHER || coll == RING_ALL_TO_ALL ||
           coll == RING_REDUCE_SCATTER;
}

/* One rank does not come: nobody may be done, however few elements there are. */
static void expect_nobody_done(const struct ri_algorithm *a, size_t count, bool variable)
{
    struct job job = job_random(&w, a, count, &layout);
    const uint32_t missing = (uint32_t)world_chance(&w, w.size);
    bool done;
    job.variable = variable && shape_has_blocks(a->coll);
    if (!job_fits(&w, &job))
        return;
    job_prepare(&w, &job);
    for (uint32_t r = 0; r < w.size; r++)
        if (r != missing)
            job_start_on(&w, &job, r);
    for (unsigned quiet = 0; quiet < 300 * w.size; quiet++)
        if (world_turn(&w))
            quiet = 0;
    for (uint32_t r = 0; r < w.size; r++)
        cr_assert(r == missing || (ri_run_state(job.part[r].run, &done) == RING_OK && !done),
                  "%s %s: rank %u of %u is done without rank %u, count %zu, SIM_SEED=%llu", ring_coll_str(a->coll),
                  a->name, (unsigned)r, (unsigned)w.size, (unsigned)missing, count, (unsigned long long)w.seed);
    job_start_on(&w, &job, missing);
    cr_assert(world_settle(&w, &job, 1));
    job_check(&w, &job);
    job_end(&w, &job);
}

Test(collectives, nobody_is_done_before_all_have_come, .timeout = 200)
{
    for (uint32_t size = 2; size <= 9; size++) {
        world_open(&w, size, world_seed() + 400 + size);
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
            for (int i = 0; i < 6 && waits_for_all((*a)->coll); i++)
                expect_nobody_done(*a, (size_t)(i / 2), i % 2);
        world_close(&w);
    }
}

/* ---- disagreement ---------------------------------------------------------------------------------------------- */

static bool receives_from(const struct ri_sched *s, uint32_t peer)
{
    bool found = false;
    for (uint32_t i = 0; i < s->n; i++)
        found |=
            ri_communicates(&s->step[i]) && s->step[i].op != RI_SEND && s->step[i].peer == peer && s->step[i].dst.len;
    return found;
}

/* One rank means another call: whoever receives from it hears so, and so does it of all it receives from. */
static void expect_heard(const struct ri_algorithm *a)
{
    struct job job = job_random(&w, a, 40, &layout);
    const uint32_t odd = (uint32_t)world_chance(&w, w.size);
    bool done;
    if (!job_fits(&w, &job))
        return;
    job_prepare(&w, &job);
    job.part[odd].signature.extra++;
    job_start(&w, &job);
    for (unsigned quiet = 0; quiet < 300 * w.size; quiet++)
        if (world_turn(&w))
            quiet = 0;
    for (uint32_t r = 0; r < w.size; r++) {
        bool hears = receives_from(&job.part[r].program, odd);
        for (uint32_t peer = 0; peer < w.size && r == odd; peer++)
            hears |= receives_from(&job.part[r].program, peer);
        if (hears)
            cr_assert(ri_run_state(job.part[r].run, &done) == RING_ERR_MISMATCH && !done,
                      "%s %s: rank %u of %u does not hear of rank %u, SIM_SEED=%llu", ring_coll_str(a->coll), a->name,
                      (unsigned)r, (unsigned)w.size, (unsigned)odd, (unsigned long long)w.seed);
    }
    job_check_guards(&w, &job);
    world_cut_links(&w);
    job_end(&w, &job);
}

Test(collectives, whoever_receives_from_a_rank_that_differs_hears_so, .timeout = 200)
{
    for (uint32_t size = 2; size <= 7; size++)
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++) {
            world_open(&w, size, world_seed() + 500 + size);
            if ((*a)->coll != RING_RECV)
                expect_heard(*a);
            world_close(&w);
        }
}
