/* SPDX-License-Identifier: Apache-2.0 */
/* lib/node: the same all-reduce on the same shared buffers again and again, with everything that may come between. */
#include <criterion/criterion.h>

#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "tests/unit/node_job.h"

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

Test(node_again, calls_on_the_same_buffers_again_and_on_others, .timeout = 120)
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
