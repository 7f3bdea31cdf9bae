/* SPDX-License-Identifier: Apache-2.0 */
/* lib/node: calls whose blocks fit into lines or nearly, in any order, with arrays and without, on time and late. */
#include <criterion/criterion.h>

#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "tests/unit/node_job.h"

/* Every rank goes on by itself; now and then one is so late that its peers leave the straight line. */
static void live_short(struct job *job, uint32_t rank)
{
    struct ri_node *node = open_rank(job, rank);
    uint64_t state = job->seed, mine = mix(job->seed + rank);
    int straight = 0;
    for (int i = 0; i < job->tasks; i++) {
        struct task t = pick_task(&state, job->size, 4 * LINE_PAYLOAD);
        t.way = NULL;
        t.shared = 0;
        t.pays = (struct ri_pays){SIZE_MAX, SIZE_MAX, SIZE_MAX};
        if (next(&mine) % 32 == 0)
            usleep(300);
        run_task(node, job, &t, rank);
        straight += node->op.seq != node->seq;
    }
    CHECK(straight, "no call of rank %u went in a straight line", rank);
    ri_node_close(node);
}

Test(node_short, calls_in_any_order_on_time_and_late, .timeout = 120)
{
    const uint64_t seed = first_seed();
    static const uint32_t sizes[] = {2, 3, 4, FEW, FEW + 1};
    for (uint32_t i = 0; i < 20; i++) {
        struct job job;
        job_begin(&job, sizes[i % 5]);
        job.seed = seed + i;
        job.tasks = 800 / SLOWER;
        if (i >= 10)
            job.patience = (struct ri_patience){1, 0};
        (i / 5 % 2 ? run_threads : run_processes)(&job, live_short);
        job_end(&job);
    }
}

/* What a rank awaits and what it is given, in elements; one of the peers of rank 0 is wrong about its own. */
static void live_disagreeing(struct job *job, uint32_t rank)
{
    static const size_t displs[] = {0, 2, 5};
    const bool scatters = job->seed % 2, late = job->seed / 2 % 2, wrong = rank == 1;
    size_t counts[] = {2, 3, 1};
    int32_t many[6] = {0}, own[4] = {0};
    struct ri_node *node = open_rank(job, rank);
    struct ri_call call = {.coll = scatters ? RING_SCATTER : RING_GATHER, .dtype = RING_INT32, .variable = true};
    call.count = counts[rank] + wrong;
    call.src = scatters ? many : own;
    call.dst = scatters ? own : many;
    if (rank == 0) {
        *(scatters ? &call.scounts : &call.rcounts) = counts;
        *(scatters ? &call.sdispls : &call.rdispls) = displs;
    }
    if (late && rank == (scatters ? 0 : 1))
        usleep(3000);
    const bool told = scatters ? wrong : rank == 0; /* who looks at the other */
    const ring_status_t status = ri_node_run(node, &call, NULL, RI_SECOND);
    CHECK(status == (told ? RING_ERR_MISMATCH : RING_OK), "rank %u: status %d", rank, status);
    const struct seen *seen = &job->seen[rank];
    const size_t theirs = scatters ? 3 : 4;
    CHECK(!told || (seen->mismatches == 1 && seen->theirs.count == theirs), "told of %zu", seen->theirs.count);
    ri_node_close(node);
}

Test(node_short, a_block_of_another_length_is_a_mismatch_for_who_takes_it, .timeout = 60)
{
    for (unsigned i = 0; i < 8; i++) {
        struct job job;
        job_begin(&job, 3);
        job.seed = i;
        (i / 4 ? run_threads : run_processes)(&job, live_disagreeing);
        job_end(&job);
    }
}

enum { LONG_BLOCK = 700000 };

/* Short blocks come in the line or beside long ones, whose giver waits for all who take. */
static void live_mixed(struct job *job, uint32_t rank)
{
    struct ri_node *node = open_rank(job, rank);
    int32_t *many = calloc(LONG_BLOCK + 8, sizeof *many), *own = calloc(LONG_BLOCK, sizeof *own);
    for (int i = 0; i < job->tasks; i++) {
        const size_t third = i % 3 ? (size_t)i % 3 : LONG_BLOCK;
        const size_t counts[] = {2, 3, third}, displs[] = {0, 2, 5};
        struct ri_call call = {.coll = RING_SCATTER, .dtype = RING_INT32, .variable = true, .dst = own};
        call.count = counts[rank];
        for (size_t k = 0; k < third + 5 && !rank; k++)
            many[k] = (int32_t)k + i;
        if (rank == 0) {
            call.src = many;
            call.scounts = counts;
            call.sdispls = displs;
        }
        CHECK(!ri_node_run(node, &call, NULL, job->timeout), "rank %u, call %d: %s", rank, i, ri_error_get());
        for (size_t k = 0; k < counts[rank]; k++)
            CHECK(own[k] == (int32_t)(displs[rank] + k) + i, "rank %u, call %d: element %zu is %d", rank, i, k, own[k]);
        const int32_t words[12] = {1 << 20, 1 << 20, 1 << 20, 1 << 20}; /* what such a line keeps is no counter */
        const struct ri_call sum = {.dtype = RING_INT32, .redop = RING_MAX, .src = words, .dst = own, .count = 12};
        for (int k = 0; k < 2; k++) /* so that every line is used for every call */
            CHECK(!ri_node_run(node, &sum, NULL, job->timeout), "%s", ri_error_get());
    }
    free(many);
    free(own);
    ri_node_close(node);
}

/* The same where all give to all: only rank 0 gives rank 2 a long one. */
static size_t exchanged(int i, uint32_t from, uint32_t to)
{
    return from == 0 && to == 2 && i % 3 == 0 ? LONG_BLOCK : (size_t)(from + to + (uint32_t)i) % 4;
}

static void live_exchanging(struct job *job, uint32_t rank)
{
    struct ri_node *node = open_rank(job, rank);
    int32_t *src = calloc(LONG_BLOCK + 8, sizeof *src), *dst = calloc(LONG_BLOCK + 8, sizeof *dst);
    for (int i = 0; i < job->tasks; i++) {
        size_t scounts[3], sdispls[3], rcounts[3], rdispls[3], s = 0, d = 0;
        for (uint32_t r = 0; r < 3; r++) {
            sdispls[r] = s;
            rdispls[r] = d;
            s += scounts[r] = exchanged(i, rank, r);
            d += rcounts[r] = exchanged(i, r, rank);
        }
        for (size_t k = 0; k < s; k++)
            src[k] = (int32_t)(k + rank * 7 + (uint32_t)i);
        const struct ri_call call = {.coll = RING_ALL_TO_ALL,
                                     .dtype = RING_INT32,
                                     .variable = true,
                                     .src = src,
                                     .dst = dst,
                                     .count = scounts[rank],
                                     .scounts = scounts,
                                     .sdispls = sdispls,
                                     .rcounts = rcounts,
                                     .rdispls = rdispls};
        CHECK(!ri_node_run(node, &call, NULL, job->timeout), "rank %u, call %d: %s", rank, i, ri_error_get());
        for (uint32_t r = 0; r < 3; r++) {
            size_t at = 0;
            for (uint32_t before = 0; before < rank; before++)
                at += exchanged(i, r, before);
            for (size_t k = 0; k < rcounts[r]; k++)
                CHECK(dst[rdispls[r] + k] == (int32_t)(at + k + r * 7 + (uint32_t)i), "rank %u, call %d: from %u", rank,
                      i, r);
        }
    }
    free(src);
    free(dst);
    ri_node_close(node);
}

static void run_three(void (*life)(struct job *job, uint32_t rank))
{
    for (int threads = 0; threads < 2; threads++) {
        struct job job;
        job_begin(&job, 3);
        job.tasks = 700 / SLOWER;
        job.timeout = 20 * RI_SECOND;
        (threads ? run_threads : run_processes)(&job, life);
        job_end(&job);
    }
}

Test(node_short, an_exchange_of_short_blocks_and_a_long_one, .timeout = 60) { run_three(live_exchanging); }

Test(node_short, short_blocks_beside_long_ones, .timeout = 60) { run_three(live_mixed); }
