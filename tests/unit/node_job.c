/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/node_job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"

void job_begin(struct job *job, uint32_t size)
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

void job_end(struct job *job) { munmap(job->base, job->bytes); }

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

struct ri_node *open_rank(struct job *job, uint32_t rank)
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
void map_heaps(struct job *job, uint32_t rank, struct ri_heap_view *views)
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

void set_way(struct ri_node *node, const struct job *job, const struct task *t)
{
    node->forced = job->size > 1 ? t->way : NULL;
    for (int use = 0; use < USES; use++)
        node->pays[use] = t->pays;
}

void run_task(struct ri_node *node, const struct job *job, const struct task *t, uint32_t rank)
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
void live(struct job *job, uint32_t rank)
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

void run_threads(struct job *job, void (*life)(struct job *job, uint32_t rank))
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
void run_processes(struct job *job, void (*life)(struct job *job, uint32_t rank))
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
