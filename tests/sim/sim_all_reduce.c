/* SPDX-License-Identifier: Apache-2.0 */
/* Every all-reduce, all ranks in one process, in random legal orders over the loop transport. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "tests/sim/world.h"

static struct world w;

/* Rows of other collectives are not for here. */
static bool all_reduces(const struct ri_algorithm *a, uint32_t size)
{
    return a->coll == RING_ALL_REDUCE && a->fits(&(struct ri_coll_args){.size = size, .esize = 1, .seg = 1});
}

static struct job random_job(const struct ri_algorithm *algorithm, size_t count, bool in_place)
{
    struct sim_layout none;
    struct job job = job_random(&w, algorithm, count, &none);
    job.layout = NULL;
    job.in_place = in_place;
    return job;
}

Test(all_reduce, every_type_and_operation, .timeout = 120)
{
    for (uint32_t size = 2; size <= 5; size++) {
        world_open(&w, size, world_seed() + size);
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
            for (int d = 0; d < RI_DTYPES; d++)
                for (int o = 0; o < RI_REDOPS; o++) {
                    struct job job = random_job(*a, 41, world_chance(&w, 2));
                    job.dtype = (ring_dtype_t)d;
                    job.redop = (ring_redop_t)o;
                    job.seg = 7 * ri_dtype_size(job.dtype);
                    if (ri_redop_fits(job.dtype, job.redop) && all_reduces(*a, size))
                        job_run(&w, &job);
                }
        world_close(&w);
    }
}

/* Beyond what is received before the signature has come, beyond a stream's window, beyond a slice of local work. */
Test(all_reduce, large_buffers_in_many_segments, .timeout = 120)
{
    const size_t segs[] = {1000, 70000, 1 << 20};
    for (uint32_t size = 1; size <= 5; size++)
        for (size_t s = 0; s < 3; s++) {
            world_open(&w, size, world_seed() + size);
            for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++) {
                struct job job = {.algorithm = *a,
                                  .count = 90001,
                                  .dtype = size % 2 ? RING_FLOAT : RING_INT16,
                                  .redop = RING_AVG,
                                  .in_place = s % 2,
                                  .exact = true,
                                  .seg = segs[s]};
                if (all_reduces(*a, size))
                    job_run(&w, &job);
            }
            world_close(&w);
        }
}

/* All ranks start the same operations in the same order, but not at the same time. */
static void start_scattered(struct job *jobs, size_t n)
{
    size_t started[WORLD_MAX] = {0}, left = n * w.size;
    while (left) {
        const uint32_t r = (uint32_t)world_chance(&w, w.size);
        if (started[r] < n && !world_chance(&w, 3)) {
            job_start_on(&w, &jobs[started[r]++], r);
            left--;
        }
        world_turn(&w);
    }
}

Test(all_reduce, several_in_flight_and_runs_used_again, .timeout = 120)
{
    enum { JOBS = 6, ROUNDS = 3 };
    static const char *const names[] = {"ring", "doubling"};
    for (uint32_t size = 1; size <= 9; size++) {
        struct job jobs[JOBS];
        world_open(&w, size, world_seed() + 100 + size);
        for (size_t i = 0; i < JOBS; i++) {
            jobs[i] = random_job(ri_algorithm_named(RING_ALL_REDUCE, names[world_chance(&w, 2)]),
                                 (size_t)world_chance(&w, 500), world_chance(&w, 2));
            job_prepare(&w, &jobs[i]);
        }
        for (int round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < JOBS; i++) {
                job_refill(&w, &jobs[i]);
                for (uint32_t r = 0; r < size; r++)
                    jobs[i].part[r].signature.seq = (uint32_t)(round * JOBS) + (uint32_t)i;
            }
            start_scattered(jobs, JOBS);
            cr_assert(world_settle(&w, jobs, JOBS), "stands still, SIM_SEED=%llu", (unsigned long long)w.seed);
            for (size_t i = 0; i < JOBS; i++)
                job_check(&w, &jobs[i]);
        }
        for (size_t i = 0; i < JOBS; i++)
            job_end(&w, &jobs[i]);
        world_close(&w);
    }
}

/* Signed zeros and NaNs of several payloads: whatever the order, all ranks have the same bits. */
Test(all_reduce, minimum_and_maximum_give_all_ranks_the_same_bits, .timeout = 60)
{
    static const uint32_t odd[] = {0x00000000, 0x80000000, 0x7fc00001, 0xffc00002, 0x7f800000, 0xff800000, 0x3f800000};
    for (uint32_t size = 2; size <= 7; size++) {
        world_open(&w, size, world_seed() + 200 + size);
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
            for (int o = RING_MIN; o <= RING_MAX; o++) {
                struct job job = {.algorithm = *a,
                                  .count = 200,
                                  .dtype = RING_FLOAT,
                                  .redop = (ring_redop_t)o,
                                  .in_place = world_chance(&w, 2),
                                  .seg = 100};
                if (!all_reduces(*a, size))
                    continue;
                job_prepare(&w, &job);
                for (uint32_t r = 0; r < size; r++)
                    for (size_t i = 0; i < job.count; i++)
                        memcpy(job.part[r].src + 4 * i, &odd[world_chance(&w, 7)], 4);
                job_start(&w, &job);
                cr_assert(world_settle(&w, &job, 1));
                for (uint32_t r = 1; r < size; r++)
                    cr_assert_arr_eq(job.part[r].dst, job.part[0].dst, job.part[r].bytes, "%s, %u ranks, %s",
                                     (*a)->name, (unsigned)size, ri_redop_name(job.redop));
                job_end(&w, &job);
            }
        world_close(&w);
    }
}

/* Bytes sent, signatures apart: the ring's are 2 (n - 1) / n of the buffer, the least there is. */
Test(all_reduce, bytes_on_the_links_are_what_theory_says, .timeout = 60)
{
    for (uint32_t size = 2; size <= 8; size++) {
        const size_t count = 840 * 4; /* divisible by 2 .. 8 */
        struct job job = {.algorithm = ri_algorithm_named(RING_ALL_REDUCE, "ring"),
                          .count = count,
                          .dtype = RING_FLOAT,
                          .redop = RING_SUM,
                          .exact = true,
                          .seg = 4 * count / size};
        world_open(&w, size, world_seed() + 300 + size);
        loop_reset_counts();
        job_run(&w, &job);
        for (uint32_t r = 0; r < size; r++) {
            const struct loop_counts seen = loop_counts_of(r);
            cr_assert_eq(seen.bytes, 2 * (size - 1) * (4 * count / size) + sizeof(struct ri_signature));
            cr_assert_eq(seen.messages, 2 * (size - 1) + 1);
        }
        job.algorithm = ri_algorithm_named(RING_ALL_REDUCE, "doubling");
        job.seg = 4 * count;
        if (!(size & (size - 1))) {
            loop_reset_counts();
            job_run(&w, &job);
            const uint64_t steps = size == 2 ? 1 : size == 4 ? 2 : 3;
            cr_assert_eq(loop_counts_of(0).bytes, steps * (4 * count + sizeof(struct ri_signature)));
            cr_assert_eq(loop_counts_of(0).messages, 2 * steps);
        }
        world_close(&w);
    }
}
