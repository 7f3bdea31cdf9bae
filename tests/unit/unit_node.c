/* SPDX-License-Identifier: Apache-2.0 */
/* lib/node: ranks as threads on one mapping, as processes, and all in one thread, stepped in a random order.
 *
 * Results must have the oracle's bits (node_task.h) whatever way a call takes. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/node/inner.h"
#include "tests/unit/node_task.h"

/* ---- a node and its ranks -------------------------------------------------------------------------------------- */

struct seen { /* what a rank was told */
    _Atomic uint32_t mismatches, stalls;
    uint32_t peer;
    struct ri_call mine, theirs;
};

struct job {
    uint32_t size;
    void *base;
    size_t bytes;
    int32_t pids[RANKS];
    bool one_process;
    int cma;
    struct ri_patience patience;
    ri_abort_word abort;
    uint64_t seed;
    size_t most;
    int tasks;
    uint64_t timeout;
    struct seen seen[RANKS];
    _Atomic uint32_t turn;
    int heap_fd[RANKS];
    _Atomic uint32_t heaps_shown, heaps_mapped;
};

static void job_begin(struct job *job, uint32_t size)
{
    memset(job, 0, sizeof *job);
    job->size = size;
    job->bytes = ri_node_bytes(size);
    job->base = mmap(NULL, job->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(job->base, MAP_FAILED);
    struct ri_processors mine;
    ri_processors_get(&mine);
    job->patience = ri_patience_for(size, ri_processors_count(&mine));
    job->timeout = 60 * RI_SECOND;
    job->cma = RI_CMA_AUTO;
    job->one_process = true;
    for (uint32_t r = 0; r < RANKS; r++)
        job->pids[r] = getpid();
}

static void job_end(struct job *job) { munmap(job->base, job->bytes); }

static void on_mismatch(void *owner, uint32_t peer, const struct ri_call *mine, const struct ri_call *theirs)
{
    struct seen *seen = owner;
    seen->mismatches++;
    seen->peer = peer;
    seen->mine = *mine;
    seen->theirs = *theirs;
}

static void on_stall(void *owner, uint64_t waited_ns)
{
    struct seen *seen = owner;
    CHECK(waited_ns >= 90 * RI_MILLISECOND, "%llu", (unsigned long long)waited_ns);
    seen->stalls++;
}

static struct ri_node *open_rank(struct job *job, uint32_t rank)
{
    const struct ri_node_setup setup = {.rank = rank,
                                        .size = job->size,
                                        .base = job->base,
                                        .abort = &job->abort,
                                        .patience = job->patience,
                                        .pids = job->pids,
                                        .one_process = job->one_process,
                                        .cma = job->cma,
                                        .mismatch = on_mismatch,
                                        .stalled = on_stall,
                                        .owner = &job->seen[rank]};
    struct ri_node *node = NULL;
    const ring_status_t status = ri_node_open(&setup, &node);
    CHECK(status == RING_OK, "%s", ri_error_get());
    return node;
}

static void wait_for_all(struct job *job, _Atomic uint32_t *count)
{
    atomic_fetch_add(count, 1);
    for (int ms = 0; atomic_load(count) < job->size; ms++) {
        CHECK(ms < 20000, "not all ranks have come");
        usleep(1000);
    }
}

/* As lib/comm does it, but with the descriptors taken from /proc. */
static void map_heaps(struct job *job, uint32_t rank, struct ri_heap_view *views)
{
    char path[64];
    CHECK(!ri_heap_fd(&job->heap_fd[rank]), "%s", ri_error_get());
    wait_for_all(job, &job->heaps_shown);
    for (uint32_t r = 0; r < job->size; r++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", job->pids[r], job->heap_fd[r]);
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0, "%s", path);
        CHECK(!ri_heap_map_peer(fd, &views[r]), "%s", ri_error_get());
    }
    wait_for_all(job, &job->heaps_mapped);
}

static void set_way(struct ri_node *node, const struct job *job, const struct task *t)
{
    node->forced = job->size > 1 ? t->way : NULL;
    for (int use = 0; use < USES; use++)
        node->pays[use] = t->pays;
}

static void run_task(struct ri_node *node, const struct job *job, const struct task *t, uint32_t rank)
{
    struct buffers b;
    buffers_make(&b, t, rank, job->size);
    const struct ri_call call = call_for(t, &b, rank);
    set_way(node, job, t);
    const ring_status_t status = ri_node_run(node, &call, NULL, job->timeout);
    CHECK(status == RING_OK, "rank %u: %s of %zu elements, way %s, form %u, stage %u: status %d: %s", rank,
          ring_coll_str(t->coll), t->count, node->op.way->name, node->op.kind, node->op.stage, status, ri_error_get());
    node->forced = NULL;
    buffers_check(&b, t, rank, job->size);
    buffers_free(&b);
}

/* A rank's life: open, probe, the tasks of the seed, close. */
static void live(struct job *job, uint32_t rank)
{
    struct ri_heap_view views[RANKS] = {{0}};
    struct ri_node *node = open_rank(job, rank);
    if (!job->one_process) {
        map_heaps(job, rank, views);
        node->s.heaps = views;
    }
    uint64_t state = job->seed;
    const ring_status_t status = ri_node_probe(node, ri_deadline(job->timeout));
    CHECK(status == RING_OK, "rank %u: probe: status %d: %s", rank, status, ri_error_get());
    for (int i = 0; i < job->tasks; i++) {
        struct task t = pick_task(&state, job->size, job->most);
        t.shared = job->one_process ? 0 : t.shared;
        run_task(node, job, &t, rank);
    }
    ri_node_close(node);
    for (uint32_t r = 0; r < job->size; r++)
        ri_heap_unmap_peer(&views[r]);
}

struct rank {
    struct job *job;
    void (*life)(struct job *job, uint32_t rank);
    uint32_t rank;
    pthread_t thread;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    r->life(r->job, r->rank);
    return NULL;
}

static void run_threads(struct job *job, void (*life)(struct job *job, uint32_t rank))
{
    struct rank ranks[RANKS];
    for (uint32_t r = 0; r < job->size; r++) {
        ranks[r] = (struct rank){.job = job, .life = life, .rank = r};
        cr_assert_eq(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < job->size; r++)
        pthread_join(ranks[r].thread, NULL);
}

/* Children wait at a pipe until the parent knows all pids. */
static void run_processes(struct job *job, void (*life)(struct job *job, uint32_t rank))
{
    struct job *shared = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int gate[2], bad = 0;
    cr_assert_eq(pipe(gate), 0);
    *shared = *job;
    shared->one_process = false;
    for (uint32_t r = 0; r < job->size; r++) {
        const pid_t pid = fork();
        if (!pid) {
            char c;
            close(gate[1]);
            if (read(gate[0], &c, 1))
                _exit(2);
            life(shared, r);
            _exit(0);
        }
        shared->pids[r] = pid;
    }
    close(gate[0]);
    close(gate[1]);
    for (uint32_t r = 0; r < job->size; r++) {
        int status;
        cr_assert_eq(waitpid(shared->pids[r], &status, 0), shared->pids[r]);
        bad += status != 0;
    }
    cr_assert_eq(bad, 0, "%d of %u processes failed", bad, job->size);
    *job = *shared;
    munmap(shared, sizeof *shared);
}

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

/* ---- the same buffers again ------------------------------------------------------------------------------------ */

enum { SETS = 2, MOST_AGAIN = 40000 }; /* buffers of a rank; elements of each */

struct own { /* a rank's memory that its peers reach */
    int32_t *src[SETS], *dst[SETS];
    uint64_t state; /* of what differs among ranks */
};

static int32_t *get_memory(const struct job *job)
{
    void *memory = NULL;
    if (job->one_process)
        memory = malloc(MOST_AGAIN * sizeof(int32_t));
    else
        CHECK(!ri_heap_alloc(MOST_AGAIN * sizeof(int32_t), &memory), "%s", ri_error_get());
    CHECK(memory, "no memory");
    return memory;
}

static void put_memory(const struct job *job, int32_t *memory)
{
    if (job->one_process)
        free(memory);
    else
        CHECK(!ri_heap_free(memory), "%s", ri_error_get());
}

/* A round: what all ranks do is in `what`.  Mostly the last call again; now and then one rank has another buffer, or
 * the same address is other memory, or a rank is late, or it is another call. */
static void call_again(struct job *job, struct ri_node *node, struct own *own, uint64_t what, size_t *count)
{
    const uint64_t mine = next(&own->state);
    const uint32_t set = mine % 16 == 0, rank = node->me;
    const bool in_place = mine % 16 == 1, other = what % 8 == 0;
    const ring_redop_t redop = other && what % 16 == 0 ? RING_MAX : RING_SUM;
    if (what % 8 == 1)
        *count = 5000 + (what >> 8) % (MOST_AGAIN - 5000);
    if (mine % 16 == 2) {
        put_memory(job, own->dst[0]);
        own->dst[0] = get_memory(job);
    }
    if (mine % 32 == 3)
        usleep(300);
    int32_t *dst = own->dst[set], *src = in_place ? dst : own->src[set];
    for (size_t i = 0; i < *count; i++)
        src[i] = (int32_t)(mix(what + i) % 1000) + (int32_t)rank;
    const struct ri_call call = {.dtype = RING_INT32, .redop = redop, .src = src, .dst = dst, .count = *count};
    const ring_status_t status = ri_node_run(node, &call, NULL, job->timeout);
    CHECK(status == RING_OK, "status %d: %s", status, ri_error_get());
    const int32_t last = (int32_t)job->size - 1, ranks = last * (last + 1) / 2;
    for (size_t i = 0; i < *count; i++) {
        const int32_t each = (int32_t)(mix(what + i) % 1000);
        const int32_t wanted = redop == RING_MAX ? each + last : each * (int32_t)job->size + ranks;
        CHECK(dst[i] == wanted, "rank %u: element %zu of %zu is %d instead of %d", rank, i, *count, dst[i], wanted);
    }
}

/* Another collective on the same memory: the peers announce other places. */
static void call_between(struct job *job, struct ri_node *node, struct own *own)
{
    const struct ri_call call = {.coll = RING_ALL_GATHER,
                                 .dtype = RING_INT32,
                                 .src = own->src[0],
                                 .dst = own->dst[1],
                                 .count = MOST_AGAIN / job->size};
    CHECK(!ri_node_run(node, &call, NULL, job->timeout), "%s", ri_error_get());
}

/* Whatever is kept for the next call is all there. */
static void check_kept(const struct ri_node *node)
{
    for (uint32_t r = 0; node->again.count && r < node->size; r++)
        CHECK(node->again.operands[r] && node->again.results[r], "kept a call without the buffers of rank %u", r);
}

static void live_again(struct job *job, uint32_t rank)
{
    struct ri_heap_view views[RANKS] = {{0}};
    struct ri_node *node = open_rank(job, rank);
    struct own own = {.state = mix(job->seed + rank)};
    size_t count = 16384;
    uint64_t state = job->seed;
    uint32_t kept = 0;
    if (!job->one_process) {
        map_heaps(job, rank, views);
        node->s.heaps = views;
    }
    CHECK(!ri_node_probe(node, ri_deadline(job->timeout)), "%s", ri_error_get());
    for (int i = 0; i < SETS; i++) {
        own.src[i] = get_memory(job);
        own.dst[i] = get_memory(job);
    }
    for (int i = 0; i < job->tasks; i++) {
        const uint64_t what = next(&state);
        if (what % 8 == 2)
            call_between(job, node, &own);
        call_again(job, node, &own, what, &count);
        check_kept(node);
        kept += node->again.count == count;
    }
    CHECK(kept > (uint32_t)job->tasks / 2, "rank %u kept a call for the next one %u times of %d", rank, kept,
          job->tasks);
    for (int i = 0; i < SETS; i++) {
        put_memory(job, own.src[i]);
        put_memory(job, own.dst[i]);
    }
    ri_node_close(node);
    for (uint32_t r = 0; r < job->size; r++)
        ri_heap_unmap_peer(&views[r]);
}

Test(node, calls_on_the_same_buffers_again_and_on_others, .timeout = 120)
{
    const uint64_t seed = first_seed();
    static const uint32_t sizes[] = {2, 3, 5};
    for (uint32_t i = 0; i < 12; i++) {
        struct job job;
        job_begin(&job, sizes[i % 3]);
        job.seed = seed + i;
        job.tasks = 400 / SLOWER;
        if (i >= 6)
            job.patience = (struct ri_patience){1, 0};
        (i / 3 % 2 ? run_threads : run_processes)(&job, live_again);
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
