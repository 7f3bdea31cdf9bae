/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - whether ranks can read each other's memory (process_vm_readv), and at which sizes that pays.
 *
 * It may be forbidden (ptrace policy, user and pid namespaces, seccomp), and a pid may mean another process here than
 * there; so every rank reads a number from every peer, and only when all have read all the right numbers is it used.
 * Then both ways are run on real all-reduces of two sizes, with inputs written anew as a program would, and timed:
 * which one wins depends on caches, kernel and mitigations, not on anything that could be looked up.  All ranks decide
 * alike, from the slowest rank's times, and for slots unless reading is clearly faster: when two ranks come to run
 * further apart than they did here, it loses more.  Where ranks outnumber processors slots won at every size that was
 * measured, so nothing is timed there.  Memory: scratch buffers, freed at the end. */

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/node/inner.h"

enum { REPEATS = 4, STAGE_HEAPS = 1, STAGE_NONCE, STAGE_TRIED, STAGE_TIMED };

/* Bytes from which buffers that can be reached are read where they are: below, a slot is as fast, and nobody waits. */
enum { DIRECT_LEAST = 8 << 10 };

/* Bytes from which slots win again: what the peers read has left every cache, and slots have not. */
enum { CMA_MOST = 8 << 20 };

static const size_t sizes[PROBE_SIZES] = {128 << 10, 512 << 10};

static ring_status_t meet(struct ri_node *node, uint32_t stage, uint64_t deadline)
{
    struct ri_wait wait;
    publish(node, &control_of(node, node->me)->probe, stage);
    ri_wait_begin(&wait, node->s.abort, deadline, node->s.patience);
    for (uint32_t r = 0; r < node->size; r++)
        while (!reached(node, r, &control_of(node, r)->probe, stage)) {
            const ring_status_t status = ri_wait_round(&wait, ri_node_sleep, node);
            if (status)
                return status;
        }
    node->awaited = NULL;
    return RING_OK;
}

static bool read_all_nonces(struct ri_node *node)
{
    for (uint32_t r = 0; r < node->size; r++) {
        const struct control *c = control_of(node, r);
        uint64_t seen = 0;
        if (r == node->me)
            continue;
        if (!node->s.pids || node->s.pids[r] <= 0) {
            ri_log(RI_LOG_INFO, "local rank %u is in another pid namespace: its memory cannot be read", r);
            return false;
        }
        if (!ri_node_read_peer(node, r, &seen, c->nonce_at, sizeof seen) || seen != c->nonce) {
            ri_log(RI_LOG_INFO, "process_vm_readv of local rank %u (pid %d) does not work: %s", r, node->s.pids[r],
                   seen ? "another process has this number here" : ri_error_get());
            return false;
        }
    }
    return true;
}

/* RING_OK: *works_out is the same on all ranks. */
static ring_status_t try_reading(struct ri_node *node, uint64_t deadline, bool *works_out)
{
    const uint64_t nonce = ri_now() << 12 | node->me | 1;
    struct control *mine = control_of(node, node->me);
    mine->nonce = nonce;
    mine->nonce_at = (uintptr_t)&nonce;
    ring_status_t status = meet(node, STAGE_NONCE, deadline);
    if (status)
        return status;
    mine->works = read_all_nonces(node);
    if ((status = meet(node, STAGE_TRIED, deadline)))
        return status;
    bool works = true;
    for (uint32_t r = 0; r < node->size; r++)
        works = works && control_of(node, r)->works == 1;
    *works_out = works;
    return RING_OK;
}

struct trial {
    float *src, *dst;
    uint64_t deadline;
};

/* The best of a few runs, in nanoseconds. */
static ring_status_t time_way(struct ri_node *node, const struct trial *t, const struct way *way, size_t bytes,
                              uint64_t *best_out)
{
    const size_t count = bytes / sizeof(float);
    const struct ri_call call = {
        .coll = RING_ALL_REDUCE, .dtype = RING_FLOAT, .redop = RING_SUM, .src = t->src, .dst = t->dst, .count = count};
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < REPEATS; i++) {
        for (size_t k = 0; k < count; k++)
            t->src[k] = (float)i;
        const uint64_t from = ri_now();
        node->forced = way;
        const ring_status_t status = ri_node_run(node, &call, NULL, t->deadline);
        node->forced = NULL;
        if (status)
            return status;
        const uint64_t took = ri_now() - from;
        best = took < best ? took : best;
    }
    *best_out = best;
    return RING_OK;
}

static uint64_t slowest(const struct ri_node *node, bool cma, size_t i)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < node->size; r++) {
        const struct control *c = control_of(node, r);
        const uint64_t took = cma ? c->cma_took[i] : c->slots_took[i];
        most = took > most ? took : most;
    }
    return most;
}

static ring_status_t time_both(struct ri_node *node, const struct trial *t)
{
    struct control *mine = control_of(node, node->me);
    for (size_t i = 0; i < PROBE_SIZES; i++) {
        ring_status_t status = time_way(node, t, &ri_node_two_shot, sizes[i], &mine->slots_took[i]);
        if (!status)
            status = time_way(node, t, &ri_node_cma, sizes[i], &mine->cma_took[i]);
        if (status)
            return status;
    }
    const ring_status_t status = meet(node, STAGE_TIMED, t->deadline);
    if (status)
        return status;
    size_t first = PROBE_SIZES;
    while (first && slowest(node, true, first - 1) <= slowest(node, false, first - 1) / 10 * 9)
        first--;
    node->cma_from = first == PROBE_SIZES ? SIZE_MAX : sizes[first];
    node->cma_to = CMA_MOST;
    return RING_OK;
}

static ring_status_t find_where_it_pays(struct ri_node *node, uint64_t deadline)
{
    const size_t most = sizes[PROBE_SIZES - 1];
    float *buffers = ri_new_aligned(4096, 2 * most);
    if (!buffers)
        return ri_fail(RING_ERR_NOMEM, "no memory to time the ways of a node");
    const struct trial t = {.src = buffers, .dst = buffers + most / sizeof(float), .deadline = deadline};
    const ring_status_t status = time_both(node, &t);
    ri_free(buffers);
    for (size_t i = 0; i < PROBE_SIZES && !status; i++)
        ri_log(RI_LOG_DEBUG, "%zu bytes take %.1f us through slots, %.1f us by process_vm_readv: %s", sizes[i],
               (double)slowest(node, false, i) / 1e3, (double)slowest(node, true, i) / 1e3,
               sizes[i] >= node->cma_from ? "the latter from here on" : "slots");
    return status;
}

/* Heaps are used when every rank has those of all others. */
static ring_status_t agree_on_heaps(struct ri_node *node, uint64_t deadline)
{
    const struct ri_heap_view *mine = node->s.heaps;
    bool all = mine != NULL;
    for (uint32_t r = 0; all && r < node->size; r++)
        all = mine[r].base != NULL;
    control_of(node, node->me)->heaps = all;
    const ring_status_t status = meet(node, STAGE_HEAPS, deadline);
    for (uint32_t r = 0; r < node->size && !status; r++)
        all = all && control_of(node, r)->heaps == 1;
    if (!status && all) {
        node->heaps = mine;
        node->direct_from = DIRECT_LEAST;
    }
    return status;
}

ring_status_t ri_node_probe(struct ri_node *node, uint64_t deadline)
{
    if (node->size == 1 || node->s.one_process)
        return RING_OK;
    bool works = false;
    ring_status_t status = agree_on_heaps(node, deadline);
    if (status || node->s.cma == RI_CMA_OFF)
        return status;
    if ((status = try_reading(node, deadline, &works)))
        return status;
    if (!works && node->s.cma == RI_CMA_ON)
        return ri_fail(RING_ERR_UNSUPPORTED, "RING_CMA=on, but the ranks of this host cannot read each other's memory "
                                             "with process_vm_readv; auto does without");
    if (!works || (node->s.cma == RI_CMA_AUTO && !node->s.patience.spins))
        return RING_OK;
    if (node->s.cma == RI_CMA_ON) {
        node->cma_from = node->one_shot_max + 1;
        return RING_OK;
    }
    return find_where_it_pays(node, deadline);
}
