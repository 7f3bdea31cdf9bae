/* SPDX-License-Identifier: Apache-2.0 */
/* lib/node: ranks as threads on one mapping, as processes, and all in one thread, stepped in a random order.
 *
 * Results must have the oracle's bits (node_task.h) whatever way a call takes. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/node/inner.h"
#include "tests/unit/node_job.h"

/* ---- sums ------------------------------------------------------------------------------------------------------ */

Test(node, threads_agree_with_the_oracle_on_every_way, .timeout = 120)
{
    const uint64_t seed = first_seed();
    static const uint32_t sizes[] = {1, 2, 3, 4, 7, 17};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct job job;
        job_begin(&job, sizes[i]);
        job.seed = seed + i;
        job.tasks = (sizes[i] > 4 ? 60 : 150) / SLOWER;
        job.most = (4u << 20) / sizes[i];
        run_threads(&job, live);
        job_end(&job);
    }
}

Test(node, processes_agree_with_the_oracle_on_every_way, .timeout = 120)
{
    const uint64_t seed = first_seed();
    static const uint32_t sizes[] = {2, 3, 5, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct job job;
        job_begin(&job, sizes[i]);
        job.seed = seed + i;
        job.tasks = (sizes[i] > 4 ? 60 : 150) / SLOWER;
        job.most = (4u << 20) / sizes[i];
        run_processes(&job, live);
        job_end(&job);
    }
}

/* All ranks in this thread, stepped in an order of the seed: every interleaving of pieces may come up. */
static void step_task(struct job *job, struct ri_node **nodes, const struct task *t, uint64_t *state)
{
    struct buffers b[RANKS];
    bool begun[RANKS] = {false}, done[RANKS] = {false};
    uint32_t left = job->size;
    for (uint32_t r = 0; r < job->size; r++)
        buffers_make(&b[r], t, r, job->size);
    for (uint64_t steps = 0; left; steps++) {
        const uint32_t r = (uint32_t)(next(state) % job->size);
        bool moved = false;
        CHECK(steps < 10000000, "no end");
        if (done[r])
            continue;
        const struct ri_call call = call_for(t, &b[r], r);
        if (!begun[r]) {
            set_way(nodes[r], job, t);
            ri_node_begin(nodes[r], &call, NULL);
            begun[r] = true;
            continue;
        }
        const ring_status_t status = ri_node_step(nodes[r], &done[r], &moved);
        CHECK(status == RING_OK, "status %d", status);
        left -= done[r];
    }
    for (uint32_t r = 0; r < job->size; r++) {
        buffers_check(&b[r], t, r, job->size);
        buffers_free(&b[r]);
    }
}

Test(node, steps_in_any_order_agree_with_the_oracle, .timeout = 120)
{
    uint64_t state = first_seed();
    for (uint32_t size = 1; size <= RANKS; size++) {
        struct job job;
        struct ri_node *nodes[RANKS];
        job_begin(&job, size);
        for (uint32_t r = 0; r < size; r++)
            nodes[r] = open_rank(&job, r);
        for (int i = 0; i < 60 / SLOWER; i++) {
            struct task t = pick_task(&state, size, (3u << 20) / size);
            t.shared = 0;
            step_task(&job, nodes, &t, &state);
        }
        for (uint32_t r = 0; r < size; r++)
            ri_node_close(nodes[r]);
        job_end(&job);
    }
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void live_small(struct job *job, uint32_t rank)
{
    struct ri_node *node = open_rank(job, rank);
    CHECK(!ri_node_probe(node, ri_deadline(job->timeout)), "%s", ri_error_get());
    CHECK(node->sleepers_fence == (job->patience.spins && ri_barrier_ready()), "who makes the barrier");
    for (int i = 0; i < job->tasks; i++) {
        const struct task t = {.seed = (uint64_t)i, .dtype = RING_INT32, .count = i % 3 ? 3 : 3000};
        run_task(node, job, &t, rank);
    }
    ri_node_close(node);
}

/* A lost wake-up costs 50 ms, so a few hundred of them would show. */
Test(node, ranks_that_only_sleep_are_woken, .timeout = 60)
{
    for (uint32_t i = 0; i < 4; i++) {
        struct job job;
        job_begin(&job, 4);
        job.patience = (struct ri_patience){.spins = i / 2, .yields = 0}; /* the owner looks, or the sleeper */
        job.tasks = 500 / SLOWER;
        const uint64_t from = ri_now();
        (i % 2 ? run_threads : run_processes)(&job, live_small);
        cr_assert_lt(ri_now() - from, 12 * RI_SECOND);
        job_end(&job);
    }
}

static ring_status_t run_alone(struct job *job, struct ri_node *node, size_t count, uint64_t timeout)
{
    static int32_t src[100000], dst[100000];
    const struct ri_call call = {.dtype = RING_INT32, .src = src, .dst = dst, .count = count};
    (void)job;
    return ri_node_run(node, &call, NULL, timeout);
}

Test(node, a_deadline_ends_a_wait_and_stalls_are_told, .timeout = 20)
{
    for (size_t count = 1; count <= 100000; count *= 100) {
        struct job job;
        job_begin(&job, 3);
        job.one_process = count != 10000;
        struct ri_node *node = open_rank(&job, 1);
        const uint64_t from = ri_now();
        cr_assert_eq(run_alone(&job, node, count, 350 * RI_MILLISECOND), RING_ERR_TIMEOUT);
        cr_assert_geq(ri_now() - from, 350 * RI_MILLISECOND);
        cr_assert_geq(job.seen[1].stalls, 1);
        cr_assert_leq(job.seen[1].stalls, 4);
        uint64_t missing = 0;
        ri_node_missing(node, &missing, 1);
        cr_assert_eq(missing, 5, "ranks 0 and 2 have not come, but 0x%llx", (unsigned long long)missing);
        ri_node_close(node);
        job_end(&job);
    }
}

static void *abort_soon(void *arg)
{
    struct job *job = arg;
    usleep(60000);
    atomic_store(&job->abort, 1);
    return NULL;
}

Test(node, the_abort_word_ends_a_wait, .timeout = 20)
{
    struct job job;
    pthread_t thread;
    job_begin(&job, 2);
    struct ri_node *node = open_rank(&job, 0);
    pthread_create(&thread, NULL, abort_soon, &job);
    const uint64_t from = ri_now();
    cr_assert_eq(run_alone(&job, node, 1, 20 * RI_SECOND), RING_ERR_ABORTED);
    cr_assert_lt(ri_now() - from, RI_SECOND);
    pthread_join(thread, NULL);
    ri_node_close(node);
    job_end(&job);
}

Test(node, those_who_are_behind_are_named_when_all_have_come, .timeout = 20)
{
    static float buffer[3][SLOT];
    struct job job;
    struct ri_node *nodes[3];
    job_begin(&job, 3);
    job.one_process = false;
    for (uint32_t r = 0; r < 3; r++) {
        const struct ri_call call = {.dtype = RING_FLOAT, .src = buffer[r], .dst = buffer[r], .count = SLOT};
        nodes[r] = open_rank(&job, r);
        ri_node_begin(nodes[r], &call, NULL);
    }
    bool done = false, moved = true;
    for (int i = 0; i < 100; i++) { /* ranks 0 and 1 go as far as they can */
        cr_assert_eq(ri_node_step(nodes[0], &done, &moved), RING_OK);
        cr_assert_eq(ri_node_step(nodes[1], &done, &moved), RING_OK);
        cr_assert_not(done);
    }
    uint64_t missing = 0;
    ri_node_missing(nodes[0], &missing, 1);
    cr_assert_eq(missing, 4);
    for (uint32_t r = 0; r < 3; r++)
        ri_node_close(nodes[r]);
    job_end(&job);
}

/* ---- disagreement ---------------------------------------------------------------------------------------------- */

enum { FIELDS = 4, ODD_RANK = 1 };

static struct ri_call differing_call(unsigned field, bool odd)
{
    struct ri_call call = {.dtype = RING_INT32, .redop = RING_SUM, .count = 3000};
    if (!odd)
        return call;
    switch (field) {
    case 0:
        call.coll = RING_ALL_GATHER;
        break;
    case 1:
        call.dtype = RING_INT8;
        break;
    case 2:
        call.redop = RING_MAX;
        break;
    default:
        call.count = 1;
    }
    return call;
}

static bool same_call(const struct ri_call *a, const struct ri_call *b)
{
    return a->coll == b->coll && a->dtype == b->dtype && a->redop == b->redop && a->root == b->root &&
           a->count == b->count;
}

static void live_disagreeing(struct job *job, uint32_t rank)
{
    unsigned char *src = malloc(3000 * 4), *dst = malloc(3000 * 4);
    struct ri_node *node = open_rank(job, rank);
    struct ri_call call = differing_call((unsigned)job->seed, rank == ODD_RANK);
    call.src = memset(src, 1, 3000 * 4);
    call.dst = memset(dst, 0x77, 3000 * 4);
    const ring_status_t status = ri_node_run(node, &call, NULL, RI_SECOND);
    CHECK(status == RING_ERR_MISMATCH, "rank %u: status %d", rank, status);
    for (size_t i = 0; i < 3000 * 4; i++)
        CHECK(dst[i] == 0x77, "dst was written");
    const struct seen *seen = &job->seen[rank];
    const struct ri_call theirs = differing_call((unsigned)job->seed, rank != ODD_RANK);
    CHECK(seen->mismatches == 1, "%u", seen->mismatches);
    CHECK((rank == ODD_RANK) == (seen->peer != ODD_RANK), "rank %u blames %u", rank, seen->peer);
    CHECK(same_call(&seen->mine, &call) && same_call(&seen->theirs, &theirs), "field %llu",
          (unsigned long long)job->seed);
    ri_node_close(node);
    free(src);
    free(dst);
}

Test(node, a_difference_in_any_field_is_a_mismatch_on_all_ranks, .timeout = 60)
{
    for (unsigned field = 0; field < FIELDS; field++)
        for (int threads = 0; threads < 2; threads++) {
            struct job job;
            job_begin(&job, 4);
            job.seed = field;
            (threads ? run_threads : run_processes)(&job, live_disagreeing);
            job_end(&job);
        }
}

/* Where a rank only gives, it looks at nobody in the operation itself, and finds out in one of the next. */
static void live_two_roots(struct job *job, uint32_t rank)
{
    struct ri_node *node = open_rank(job, rank);
    int32_t value[2] = {(int32_t)rank, 0};
    ring_status_t status = RING_OK;
    uint32_t calls = 0;
    for (; calls < 100 + LINES && !status; calls++) {
        const struct ri_call call = {.coll = RING_BROADCAST,
                                     .dtype = RING_INT32,
                                     .root = calls == 50 ? rank : 0,
                                     .src = value,
                                     .dst = value,
                                     .count = 1};
        const struct ri_call all = {.coll = RING_BARRIER};
        status = ri_node_run(node, calls == 51 && job->seed ? &all : &call, NULL, 5 * RI_SECOND);
    }
    const struct seen *seen = &job->seen[rank];
    CHECK(calls > 51 && calls <= 51 + LINES, "rank %u: status %d in call %u", rank, status, calls);
    CHECK(status == (seen->mismatches ? RING_ERR_MISMATCH : RING_ERR_ABORTED), "rank %u: status %d", rank, status);
    CHECK(job->seed || !seen->mismatches || (seen->mine.root == rank && seen->theirs.root == !rank), "roots %u and %u",
          seen->mine.root, seen->theirs.root);
    atomic_store(&job->abort, 1);
    ri_node_close(node);
}

Test(node, two_who_both_are_root_find_out, .timeout = 60)
{
    for (uint64_t barrier = 0; barrier < 2; barrier++) {
        struct job job;
        job_begin(&job, 2);
        job.seed = barrier;
        run_threads(&job, live_two_roots);
        cr_assert_geq(job.seen[0].mismatches + job.seen[1].mismatches, 1);
        job_end(&job);
    }
}

/* Nothing but lines and slots limits how far a root runs ahead; and what the others get is what was sent. */
Test(node, a_root_runs_ahead_of_the_others)
{
    static uint64_t sent[LINES + 100], got;
    struct job job;
    struct ri_node *nodes[2];
    job_begin(&job, 2);
    for (uint32_t r = 0; r < 2; r++)
        nodes[r] = open_rank(&job, r);
    struct ri_call call = {.coll = RING_BROADCAST, .dtype = RING_UINT64, .count = 1, .dst = &got};
    uint32_t ahead = 0, behind = 0;
    bool done = true, moved;
    while (done && ahead < LINES + 100) {
        sent[ahead] = mix(ahead);
        call.src = &sent[ahead];
        call.dst = &sent[ahead];
        ri_node_begin(nodes[0], &call, NULL);
        for (int i = 0; i < 10 && (!i || !done); i++)
            cr_assert_eq(ri_node_step(nodes[0], &done, &moved), RING_OK);
        ahead += done;
    }
    cr_assert_eq(ahead, LINES - 1);
    call.dst = &got;
    for (; behind < ahead; behind++) {
        cr_assert_eq(ri_node_run(nodes[1], &call, NULL, RI_SECOND), RING_OK);
        cr_assert_eq(got, mix(behind));
    }
    for (uint32_t r = 0; r < 2; r++)
        ri_node_close(nodes[r]);
    job_end(&job);
}

/* ---- dead and hostile peers ------------------------------------------------------------------------------------ */

static void live_dying(struct job *job, uint32_t rank)
{
    static float src[100000], dst[100000];
    const struct ri_call call = {.dtype = RING_FLOAT, .src = src, .dst = dst, .count = 100000};
    struct ri_node *node = open_rank(job, rank);
    node->forced = &ri_node_cma;
    if (rank) { /* come to the operation and die */
        ri_node_begin(node, &call, NULL);
        atomic_store(&job->turn, 1);
        _exit(0);
    }
    while (!atomic_load(&job->turn))
        usleep(1000);
    usleep(100000);
    const ring_status_t status = ri_node_run(node, &call, NULL, 5 * RI_SECOND);
    CHECK(status == RING_ERR_PEER_LOST, "status %d", status);
    CHECK(strstr(ri_error_get(), "local rank 1"), "%s", ri_error_get());
}

Test(node, reading_the_memory_of_a_dead_peer_says_so, .timeout = 20)
{
    struct job job;
    job_begin(&job, 2);
    run_processes(&job, live_dying);
    job_end(&job);
}

Test(node, an_address_that_a_peer_does_not_have_is_an_error)
{
    static float src[100000], dst[100000];
    struct job job;
    job_begin(&job, 2);
    struct ri_node *nodes[2];
    const struct ri_call call = {.dtype = RING_FLOAT, .src = src, .dst = dst, .count = 100000};
    bool done = false, moved = false;
    for (uint32_t r = 0; r < 2; r++) {
        nodes[r] = open_rank(&job, r);
        nodes[r]->forced = &ri_node_cma;
        ri_node_begin(nodes[r], &call, NULL);
    }
    line_of(nodes[0], 1)->src = 4096;
    cr_assert_eq(ri_node_step(nodes[0], &done, &moved), RING_OK);
    cr_assert_eq(ri_node_step(nodes[0], &done, &moved), RING_ERR_SYSTEM);
    cr_assert_not_null(strstr(ri_error_get(), "process_vm_readv"), "%s", ri_error_get());
    for (uint32_t r = 0; r < 2; r++)
        ri_node_close(nodes[r]);
    job_end(&job);
}

/* A peer that writes anything into its part of the segment at any time: this rank ends somehow, inside its buffers. */
static void scribble(struct job *job, struct ri_node *node, uint64_t *state)
{
    unsigned char *part = (unsigned char *)control_of(node, 1);
    for (int n = 0; n < 40; n++) {
        const uint64_t r = next(state);
        _Atomic uint32_t *word = (_Atomic uint32_t *)(void *)(part + r % (sizeof(struct control) / 4) * 4);
        atomic_store(word, r >> 32 & 3 ? (uint32_t)next(state) : node->op.seq + (uint32_t)(r >> 40 & 3));
    }
    if (next(state) % 2) { /* believable enough to get past the comparison */
        struct line *line = line_of(node, 1);
        line->sig = node->op.sig;
        line->count = node->op.call.count;
        atomic_store(&line->seq, node->op.seq);
    }
    (void)job;
}

Test(node, a_hostile_peer_harms_nobody, .timeout = 60)
{
    uint64_t state = first_seed();
    for (int i = 0; i < 300 / SLOWER; i++) {
        struct job job;
        job_begin(&job, 2);
        job.one_process = false;
        struct ri_node *node = open_rank(&job, 0);
        struct task t = pick_task(&state, 2, 600000);
        t.shared = 0;
        struct buffers b;
        buffers_make(&b, &t, 0, 2);
        const struct ri_call call = call_for(&t, &b, 0);
        bool done = false, moved = false;
        node->forced = t.way;
        ri_node_begin(node, &call, NULL);
        for (int n = 0; n < 60 && !done; n++) {
            scribble(&job, node, &state);
            const ring_status_t status = ri_node_step(node, &done, &moved);
            cr_assert(status == RING_OK || done);
        }
        const size_t esize = ri_dtype_size(t.dtype);
        memset(b.dst, 0xa5, holds(&t, 0, false) ? b.to.total * esize : 0);
        memset(b.src, 0xa5, holds(&t, 0, true) ? b.from.total * esize : 0);
        for (size_t k = 0; k < b.total; k++)
            cr_assert_eq(b.memory[k], 0xa5, "a byte outside the buffers changed");
        buffers_free(&b);
        ri_node_close(node);
        job_end(&job);
    }
}

/* ---- choice ---------------------------------------------------------------------------------------------------- */

static const char *path_of(const struct ri_node *node, size_t bytes)
{
    const struct ri_call call = {.dtype = RING_UINT8, .count = bytes};
    return ri_node_path(node, &call);
}

Test(node, the_way_depends_on_size_and_on_what_works)
{
    struct job job;
    job_begin(&job, 3);
    struct ri_node *node = open_rank(&job, 0);
    cr_assert_str_eq(path_of(node, 0), "line");
    cr_assert_str_eq(path_of(node, LINE_PAYLOAD), "line");
    cr_assert_str_eq(path_of(node, LINE_PAYLOAD + 1), "one-shot");
    cr_assert_str_eq(path_of(node, 1u << 30), "direct");
    ri_node_close(node);
    job.one_process = false;
    node = open_rank(&job, 0);
    cr_assert_str_eq(path_of(node, 1u << 30), "two-shot");
    node->pays[USE_SUM] = (struct ri_pays){.cma_from = 1 << 20, .cma_to = 1 << 21, .stream_from = SIZE_MAX};
    cr_assert_str_eq(path_of(node, 1u << 20), "cma");
    cr_assert_str_eq(path_of(node, (1u << 20) - 1), "two-shot");
    cr_assert_str_eq(path_of(node, 1u << 21), "two-shot");
    ri_node_close(node);
    job_end(&job);
    struct ri_node_setup setup = {.rank = 2, .size = 2};
    cr_assert_eq(ri_node_open(&setup, &node), RING_ERR_INVALID);
    cr_assert_eq(ri_node_bytes(0), 0);
    cr_assert_eq(ri_node_bytes(RI_NODE_RANKS_MAX + 1), 0);
    ri_node_close(NULL);
}

static void live_probing(struct job *job, uint32_t rank)
{
    static const int32_t nobody[RANKS];
    struct ri_node *node = open_rank(job, rank);
    if (job->seed) /* as in a pid namespace: one rank cannot see another */
        node->s.pids = rank == 1 ? nobody : job->pids;
    const ring_status_t status = ri_node_probe(node, ri_deadline(5 * RI_SECOND));
    if (job->seed) {
        CHECK(status == (job->cma == RI_CMA_ON ? RING_ERR_UNSUPPORTED : RING_OK), "status %d", status);
        CHECK(node->pays[USE_SUM].cma_from == SIZE_MAX, "%zu", node->pays[USE_SUM].cma_from);
    } else {
        CHECK(status == RING_OK, "status %d", status);
        CHECK(job->cma != RI_CMA_ON || node->pays[USE_SUM].cma_from == node->one_shot_max + 1, "%zu",
              node->pays[USE_SUM].cma_from);
        CHECK(job->cma != RI_CMA_OFF || node->pays[USE_SUM].cma_from == SIZE_MAX, "%zu", node->pays[USE_SUM].cma_from);
    }
    ri_node_close(node);
}

Test(node, the_probe_comes_to_the_same_answer_on_all_ranks, .timeout = 30)
{
    for (int cma = RI_CMA_AUTO; cma <= RI_CMA_OFF; cma++)
        for (int blind = 0; blind < 2; blind++) {
            struct job job;
            job_begin(&job, 3);
            job.cma = cma;
            job.seed = (uint64_t)blind && cma != RI_CMA_OFF;
            run_processes(&job, live_probing);
            job_end(&job);
        }
}

/* ---- stores past the caches ------------------------------------------------------------------------------------ */

/* As often as it takes to know, each way with its time; what it is then. */
static bool contest(struct ri_node *node, const void *dst, size_t own, uint64_t plain, uint64_t past)
{
    node->op.call.dst = (void *)(uintptr_t)dst;
    for (int i = 0; i < 2 * RUNS; i++) {
        const bool streams = ri_node_streams(node, own);
        cr_assert(node->recent.now, "run %d", i);
        cr_assert_eq(streams, i >= RUNS, "run %d", i);
        node->recent.took = streams ? past : plain;
        ri_node_streamed(node);
    }
    const bool streams = ri_node_streams(node, own);
    cr_assert_null(node->recent.now, "it is known by now");
    return streams;
}

Test(node, what_is_summed_up_again_soon_is_stored_as_was_faster)
{
    enum { SHORT = 16 << 10, US = 1000, SLOW = 1200 * US, FAST = 1000 * US, MANY = RECENT + 1 };
    static char buffer[2 * MANY];
    struct ri_node node = {.size = 2};
    size_t own = SHORT;
    while (own < ri_cache_bytes() / 8 && !ri_stream_pays(own, 2))
        own *= 2;
    const bool pays = ri_stream_pays(own, 2); /* if not, they never do, or no size decides */
    for (int i = 0; i < 3; i++) {
        node.op.call.dst = buffer;
        cr_assert_not(ri_node_streams(&node, SHORT), "what is near stays near");
        cr_assert_null(node.recent.now);
    }
    for (int i = 0; i < 3 * MANY; i++) {
        node.op.call.dst = buffer + i % MANY;
        cr_assert_eq(ri_node_streams(&node, own), pays, "one of too many to remember");
        cr_assert_null(node.recent.now);
    }
    if (!pays)
        return;
    node.op.call.dst = buffer;
    (void)ri_node_streams(&node, own);
    cr_assert_not(contest(&node, buffer, own, FAST, SLOW));
    node.op.call.dst = buffer + MANY;
    (void)ri_node_streams(&node, 2 * own);
    cr_assert(contest(&node, buffer + MANY, 2 * own, SLOW, FAST));
    node.op.call.src = node.op.call.dst;
    cr_assert(ri_node_streams(&node, 2 * own), "in place nothing is tried");
}
