/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - how ranks move what is too long for a line: through slots, with plain stores or past the caches, or by
 * reading each other's memory (process_vm_readv), where they can.
 *
 * That may be forbidden (ptrace policy, user and pid namespaces, seccomp), and a pid may mean another process here than
 * there; so every rank reads a number from every peer, and only when all have read all the right numbers is it used.
 * Then all ways are run on real calls of two sizes, and timed: which one wins depends on caches, kernel and
 * mitigations, not on anything that could be looked up.  What is summed up is written anew each time, as a program
 * would; what is moved is not, as parameters are.  All ranks decide alike, from the slowest rank's times.  Sums go
 * through slots unless reading is clearly faster, because it loses more when two ranks come to run further apart than
 * they did here; moves are read when that is about as fast, because slots take the giver's time too.  What is read
 * passes through memory three times, and through slots, with stores past the caches, twice; so where reading has won,
 * it is timed once more at a size that leaves the caches.
 *
 * Where ranks outnumber processors nothing is timed, so that many ranks begin soon.  Every round through slots costs
 * switches there, so what would take more rounds than there are slots is read; sums went through slots faster at every
 * size that was measured.  Memory: scratch buffers, freed at the end. */

#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/node/inner.h"

enum { REPEATS = 6, REPEATS_LONG = 2 };
enum { STAGE_AGREED = 1, STAGE_NONCE, STAGE_TRIED, STAGE_TIMED, STAGE_TIMED_LONG };

/* Bytes from which buffers that can be reached are read where they are: below, a slot is as fast, and nobody waits. */
enum { DIRECT_LEAST = 8 << 10 };

/* What wins at the smallest one wins from LEAST on. */
static const size_t sizes[PROBE_SIZES] = {64 << 10, 512 << 10, 16 << 20};
enum { LEAST = 16 << 10, LONG = PROBE_SIZES - 1 };

static ring_status_t meet(struct ri_node *node, uint32_t stage, uint64_t deadline)
{
    struct ri_wait wait;
    _Atomic uint32_t *mine = &control_of(node, node->me)->probe;
    atomic_store_explicit(mine, stage, memory_order_release);
    ri_node_look_for_sleepers(node, mine);
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

/* What is compared, for each use: slots with plain stores, slots with stores past the caches, and reading. */
enum { PLAIN, STREAMED, READ };
enum { CLEARLY = 9, ABOUT = 11 }; /* tenths */

struct trial {
    float *src, *dst;
    uint64_t deadline;
    bool uses[USES], ways[PROBE_WAYS]; /* those that are timed */
    size_t first, last;                /* sizes that are timed */
    int repeats;
};

static void set_up(struct ri_node *node, enum use use, int way)
{
    struct ri_pays *p = &node->pays[use];
    p->stream_from = way == STREAMED ? 0 : SIZE_MAX;
    p->cma_from = way == READ ? 0 : SIZE_MAX;
    p->cma_to = SIZE_MAX;
    node->forced = use != USE_SUM || node->size == 2 ? &ri_node_pull : way == READ ? &ri_node_cma : &ri_node_two_shot;
}

/* Of a rank's block: all blocks together are as long as for two ranks. */
static size_t bytes_for(const struct ri_node *node, enum use use, size_t i)
{
    return use == USE_BLOCKS ? 2 * sizes[i] / node->size / sizeof(float) * sizeof(float) : sizes[i];
}

static ring_status_t time_way(struct ri_node *node, const struct trial *t, enum use use, int way, size_t i)
{
    static const ring_coll_t colls[USES] = {RING_BROADCAST, RING_ALL_GATHER, RING_ALL_REDUCE};
    const float *from_root = node->me == 0 ? t->dst : NULL;
    const struct ri_call call = {.coll = colls[use],
                                 .dtype = RING_FLOAT,
                                 .redop = use == USE_SUM ? RING_SUM : (ring_redop_t)0,
                                 .src = use == USE_BROADCAST ? from_root : t->src,
                                 .dst = t->dst,
                                 .count = bytes_for(node, use, i) / sizeof(float)};
    uint64_t *best = &control_of(node, node->me)->took_ns[use][way][i];
    for (size_t k = 0; k < call.count && use == USE_SUM; k++)
        t->src[k] = (float)k;
    set_up(node, use, way);
    const uint64_t from = ri_now();
    const ring_status_t status = ri_node_run(node, &call, NULL, ri_time_left(t->deadline));
    const uint64_t took = ri_now() - from;
    *best = *best && *best < took ? *best : took;
    return status;
}

/* The best of a few runs of each on this rank; not in turns, because each leaves the slots in another cache. */
static ring_status_t time_ways(struct ri_node *node, const struct trial *t)
{
    ring_status_t status = RING_OK;
    for (enum use use = 0; use < USES; use++)
        for (size_t i = t->first; i <= t->last; i++)
            for (int way = 0; way < PROBE_WAYS; way++)
                for (int k = 0; k < t->repeats && t->uses[use] && t->ways[way] && !status; k++)
                    status = time_way(node, t, use, way, i);
    node->forced = NULL;
    return status;
}

/* The same in scratch buffers; all ranks are through with it at the end. */
static ring_status_t run_trial(struct ri_node *node, struct trial *t, uint32_t stage)
{
    const size_t most = sizes[t->last];
    float *buffers = ri_new_aligned(4096, 3 * most); /* what is gathered takes two */
    if (!buffers)
        return ri_fail(RING_ERR_NOMEM, "no memory to time the ways of a node");
    t->dst = buffers;
    t->src = buffers + 2 * most / sizeof(float);
    const ring_status_t status = time_ways(node, t);
    ri_free(buffers);
    return status ? status : meet(node, stage, t->deadline);
}

/* Of all ranks. */
static uint64_t slowest(const struct ri_node *node, enum use use, int way, size_t i)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < node->size; r++) {
        const uint64_t took = control_of(node, r)->took_ns[use][way][i];
        most = took > most ? took : most;
    }
    return most;
}

static bool wins(const struct ri_node *node, enum use use, int way, int than, size_t i, uint64_t tenths)
{
    return slowest(node, use, way, i) <= slowest(node, use, than, i) / 10 * tenths;
}

/* The bytes from which a way takes at most so many tenths of another's time: whatever it wins, it wins at all larger
 * sizes too. */
static size_t wins_from(const struct ri_node *node, enum use use, int way, int than, uint64_t tenths)
{
    size_t first = LONG;
    while (first && wins(node, use, way, than, first - 1, tenths))
        first--;
    return first == LONG ? SIZE_MAX : first ? sizes[first] / 2 : LEAST;
}

static int best_slots(const struct ri_node *node, enum use use)
{
    return node->pays[use].stream_from == SIZE_MAX ? PLAIN : STREAMED;
}

static void decide(struct ri_node *node, enum use use, const struct trial *t)
{
    struct ri_pays *p = &node->pays[use];
    *p = (struct ri_pays){SIZE_MAX, SIZE_MAX, wins_from(node, use, STREAMED, PLAIN, CLEARLY)};
    if (t->ways[READ])
        p->cma_from = wins_from(node, use, READ, best_slots(node, use), use == USE_SUM ? CLEARLY : ABOUT);
}

/* Where what is read is in no cache any more. */
static void decide_long(struct ri_node *node, enum use use)
{
    if (!wins(node, use, READ, best_slots(node, use), LONG, use == USE_SUM ? CLEARLY : ABOUT))
        node->pays[use].cma_to = sizes[LONG] / 2;
}

static void tell_times(const struct ri_node *node, enum use use, size_t i)
{
    static const char *const names[USES] = {"broadcast", "gather", "sum up"};
    const struct ri_pays *p = &node->pays[use];
    ri_log(RI_LOG_DEBUG,
           "to %s %zu bytes takes %.1f us through slots, %.1f us with stores past the caches, %.1f us by "
           "process_vm_readv (0: not timed): %s",
           names[use], sizes[i], (double)slowest(node, use, PLAIN, i) / 1e3,
           (double)slowest(node, use, STREAMED, i) / 1e3, (double)slowest(node, use, READ, i) / 1e3,
           sizes[i] >= p->cma_from && sizes[i] < p->cma_to ? "the last"
           : sizes[i] >= p->stream_from                    ? "the second"
                                                           : "the first");
}

static ring_status_t find_what_pays(struct ri_node *node, bool reads, uint64_t deadline)
{
    struct trial t = {.deadline = deadline,
                      .uses = {true, true, true},
                      .ways = {true, true, [READ] = reads},
                      .last = LONG - 1,
                      .repeats = REPEATS};
    ring_status_t status = run_trial(node, &t, STAGE_TIMED);
    bool again = false;
    struct ri_pays found[USES];
    for (enum use use = 0; use < USES && !status; use++) {
        decide(node, use, &t);
        found[use] = node->pays[use];
        t.uses[use] = found[use].cma_from != SIZE_MAX;
        again = again || t.uses[use];
    }
    if (again && !status) {
        t.first = t.last = LONG;
        t.repeats = REPEATS_LONG;
        status = run_trial(node, &t, STAGE_TIMED_LONG);
    }
    for (enum use use = 0; use < USES && !status; use++) {
        node->pays[use] = found[use];
        if (t.uses[use])
            decide_long(node, use);
        for (size_t i = 0; i <= t.last; i++)
            tell_times(node, use, i);
    }
    return status;
}

static void read_what_takes_rounds(struct ri_node *node)
{
    node->pays[USE_BROADCAST].cma_from = SLOTS * (size_t)SLOT + 1;
    node->pays[USE_BLOCKS].cma_from = SLOTS * node->sub + 1;
}

static bool has_all_heaps(const struct ri_node *node)
{
    const struct ri_heap_view *mine = node->s.heaps;
    bool all = mine && !node->s.one_process;
    for (uint32_t r = 0; all && r < node->size; r++)
        all = mine[r].base != NULL;
    return all;
}

/* Heaps are used when every rank has those of all others; and who goes to sleep makes the barrier for all when all take
 * part in that, and sleep rarely. */
static ring_status_t agree(struct ri_node *node, uint64_t deadline)
{
    struct control *mine = control_of(node, node->me);
    bool heaps = true, fence = true;
    mine->heaps = has_all_heaps(node);
    mine->fence = node->s.patience.spins && ri_barrier_ready();
    const ring_status_t status = meet(node, STAGE_AGREED, deadline);
    for (uint32_t r = 0; r < node->size && !status; r++) {
        heaps = heaps && control_of(node, r)->heaps == 1;
        fence = fence && control_of(node, r)->fence == 1;
    }
    if (!status && heaps) {
        node->heaps = node->s.heaps;
        node->direct_from = DIRECT_LEAST;
    }
    node->sleepers_fence = !status && fence;
    return status;
}

/* *reads_out: all ranks can read each other's memory. */
static ring_status_t agree_on_reading(struct ri_node *node, uint64_t deadline, bool *reads_out)
{
    *reads_out = false;
    if (node->s.cma == RI_CMA_OFF)
        return RING_OK;
    const ring_status_t status = try_reading(node, deadline, reads_out);
    if (!status && !*reads_out && node->s.cma == RI_CMA_ON)
        return ri_fail(RING_ERR_UNSUPPORTED, "RING_CMA=on, but the ranks of this host cannot read each other's memory "
                                             "with process_vm_readv; auto does without");
    return status;
}

ring_status_t ri_node_probe(struct ri_node *node, uint64_t deadline)
{
    if (node->size == 1)
        return RING_OK;
    bool reads = false;
    ring_status_t status = agree(node, deadline);
    if (status || node->s.one_process)
        return status;
    status = agree_on_reading(node, deadline, &reads);
    if (!status && node->s.patience.spins)
        status = find_what_pays(node, reads, deadline);
    else if (reads)
        read_what_takes_rounds(node);
    for (enum use use = 0; use < USES && !status && node->s.cma == RI_CMA_ON; use++) {
        node->pays[use].cma_from = node->one_shot_max + 1;
        node->pays[use].cma_to = SIZE_MAX;
    }
    return status;
}
