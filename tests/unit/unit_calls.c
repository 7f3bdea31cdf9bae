/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective by every way that data can go: what lands where, blocks of any length, in place, and what is
 * refused.
 *
 * One oracle for all: element k of what rank `from` has for rank `to` is mark(from, to, k); reductions add marks up. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/ranks.h"
#include "tests/unit/slower.h"

enum { GUARD = 0x5a5a5a5a, GAP = 3 };

static uint32_t seed_of_all(void)
{
    const char *text = getenv("RING_TEST_SEED");
    return text ? (uint32_t)strtoul(text, NULL, 0) : 1;
}

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352d;
    x ^= x >> 15;
    x *= 0x846ca68b;
    return x ^ x >> 16;
}

static int32_t mark(uint32_t from, uint32_t to, size_t k)
{
    return (int32_t)(mix((uint32_t)k * 64 + from * 8 + to) & 0xffffff);
}

/* ---- a call and its buffers ------------------------------------------------------------------------------------ */

struct trial {
    ring_coll_t coll;
    uint32_t n, me, root;
    size_t count; /* of a regular block */
    bool in_place, uneven, scattered;
    uint32_t seed;
    size_t counts[MAX_RANKS][MAX_RANKS]; /* from, to: of all_to_allv; else [0][r] is of block r */
    size_t scounts[MAX_RANKS], sdispls[MAX_RANKS], rcounts[MAX_RANKS], rdispls[MAX_RANKS];
    int32_t *src, *dst, *memory, *want;
    size_t src_len, dst_len;
};

static bool reduces(ring_coll_t c)
{
    return c == RING_ALL_REDUCE || c == RING_REDUCE || c == RING_REDUCE_SCATTER || c == RING_REDUCE_SCATTERV;
}

static bool has(ring_coll_t c, const ring_coll_t *list)
{
    for (; *list != RING_BARRIER; list++)
        if (*list == c)
            return true;
    return false;
}

static bool src_blocks(ring_coll_t c)
{
    return has(c, (ring_coll_t[]){RING_REDUCE_SCATTER, RING_ALL_TO_ALL, RING_SCATTER, RING_REDUCE_SCATTERV,
                                  RING_ALL_TO_ALLV, RING_SCATTERV, RING_BARRIER});
}

static bool dst_blocks(ring_coll_t c)
{
    return has(c, (ring_coll_t[]){RING_ALL_GATHER, RING_ALL_TO_ALL, RING_GATHER, RING_ALL_GATHERV, RING_ALL_TO_ALLV,
                                  RING_GATHERV, RING_BARRIER});
}

static bool has_src(const struct trial *t)
{
    return t->me == t->root ||
           !has(t->coll, (ring_coll_t[]){RING_BROADCAST, RING_SCATTER, RING_SCATTERV, RING_BARRIER});
}

static bool has_dst(const struct trial *t)
{
    return t->me == t->root || !has(t->coll, (ring_coll_t[]){RING_REDUCE, RING_GATHER, RING_GATHERV, RING_BARRIER});
}

static bool pairwise(const struct trial *t) { return t->coll == RING_ALL_TO_ALL || t->coll == RING_ALL_TO_ALLV; }

static void lay_out(struct trial *t)
{
    size_t s = 0, d = 0;
    for (uint32_t from = 0; from < t->n; from++)
        for (uint32_t to = 0; to < t->n; to++) {
            const uint32_t chance = mix(t->seed + from * 37 + to * 101);
            t->counts[from][to] = !t->uneven ? t->count : chance % 4 ? chance / 4 % (2 * t->count + 1) : 0;
        }
    for (uint32_t r = 0; r < t->n; r++) {
        t->scounts[r] = pairwise(t) ? t->counts[t->me][r] : t->counts[0][r];
        t->rcounts[r] = pairwise(t) ? t->counts[r][t->me] : t->counts[0][r];
        t->sdispls[r] = s;
        t->rdispls[r] = d;
        s += t->scounts[r] + (t->scattered ? GAP : 0);
        d += t->rcounts[r] + (t->scattered ? GAP : 0);
    }
    t->src_len = src_blocks(t->coll) ? s : dst_blocks(t->coll) ? t->rcounts[t->me] : t->count;
    t->dst_len = dst_blocks(t->coll) ? d : src_blocks(t->coll) ? t->scounts[t->me] : t->count;
}

/* Element k of a block of src that is for rank `to`. */
static int32_t given(const struct trial *t, uint32_t from, uint32_t to, size_t k)
{
    return mark(from, src_blocks(t->coll) ? to : 7, k);
}

static void fill_src(struct trial *t)
{
    for (size_t i = 0; i < t->src_len; i++)
        t->src[i] = GUARD;
    if (!src_blocks(t->coll)) {
        for (size_t k = 0; k < t->src_len; k++)
            t->src[k] = given(t, t->me, 0, k);
        return;
    }
    for (uint32_t to = 0; to < t->n; to++)
        for (size_t k = 0; k < t->scounts[to]; k++)
            t->src[t->sdispls[to] + k] = given(t, t->me, to, k);
}

static void fill_want(struct trial *t)
{
    for (uint32_t from = 0; from < t->n && dst_blocks(t->coll); from++)
        for (size_t k = 0; k < t->rcounts[from]; k++)
            t->want[t->rdispls[from] + k] = given(t, from, t->me, k);
    for (size_t k = 0; k < t->dst_len && !dst_blocks(t->coll); k++) {
        uint32_t sum = 0;
        for (uint32_t from = 0; from < t->n; from++)
            sum += (uint32_t)given(t, from, t->me, k);
        t->want[k] = reduces(t->coll) ? (int32_t)sum : given(t, t->root, t->me, k);
    }
}

/* One memory for both in place, two parts of it otherwise; guards at all ends. */
static void make_buffers(struct trial *t)
{
    const size_t both = t->src_len + t->dst_len + 4 * GAP;
    t->memory = malloc(both * sizeof(int32_t));
    t->want = malloc((t->dst_len + GAP) * sizeof(int32_t));
    for (size_t i = 0; i < both; i++)
        t->memory[i] = GUARD;
    t->src = t->memory + GAP;
    t->dst = t->src + t->src_len + GAP;
    if (t->in_place && src_blocks(t->coll) && !dst_blocks(t->coll))
        t->dst = t->src + t->sdispls[t->me];
    else if (t->in_place && dst_blocks(t->coll) && !src_blocks(t->coll)) {
        t->dst = t->memory + GAP;
        t->src = t->dst + t->rdispls[t->me];
    } else if (t->in_place)
        t->dst = t->src;
    for (size_t i = 0; i < t->dst_len; i++)
        t->want[i] = GUARD;
    fill_src(t);
    fill_want(t);
}

static ring_call_t call_of(const struct trial *t)
{
    const bool displs = t->scattered && t->coll != RING_REDUCE_SCATTERV;
    const bool own = t->coll == RING_GATHERV || t->coll == RING_SCATTERV;
    return (ring_call_t){.coll = t->coll,
                         .dtype = RING_INT32,
                         .redop = RING_SUM,
                         .root = t->root,
                         .src = has_src(t) ? t->src : NULL,
                         .dst = has_dst(t) ? t->dst : NULL,
                         .count = own ? (t->coll == RING_GATHERV ? t->src_len : t->dst_len) : t->count,
                         .scounts = t->scounts,
                         .sdispls = displs ? t->sdispls : NULL,
                         .rcounts = t->rcounts,
                         .rdispls = displs ? t->rdispls : NULL};
}

static void check_result(const struct rank *r, const struct trial *t, const char *how)
{
    const char *way = ((const struct way *)r->job->arg)->name;
    const bool wrong = has_dst(t) && memcmp(t->dst, t->want, t->dst_len * sizeof *t->dst);
    for (size_t i = 0; wrong && i < t->dst_len; i++) /* an assertion takes longer than what it is about */
        cr_assert_eq(t->dst[i], t->want[i],
                     "%s%s by %s, %s, %u ranks, root %u, count %zu, seed %u: rank %u, element %zu: %d instead of %d",
                     ring_coll_str(t->coll), t->in_place ? " in place" : "", way, how, t->n, t->root, t->count, t->seed,
                     t->me, i, t->dst[i], t->want[i]);
    for (size_t i = 0; i < GAP; i++)
        cr_assert_eq(t->memory[i], GUARD, "%s wrote before its buffer", ring_coll_str(t->coll));
    for (size_t i = 0; i < GAP; i++)
        cr_assert_eq(t->memory[t->src_len + t->dst_len + 2 * GAP + i], GUARD, "%s wrote behind its buffer",
                     ring_coll_str(t->coll));
    bool changed = false;
    for (size_t k = 0; k < t->src_len && !t->in_place && !src_blocks(t->coll); k++)
        changed |= t->src[k] != given(t, t->me, 0, k);
    cr_assert_not(changed, "%s changed its source", ring_coll_str(t->coll));
}

/* By the named function, which is what most people call. */
static ring_status_t call_by_name(ring_comm_t *c, const ring_call_t *k)
{
    switch (k->coll) {
    case RING_ALL_REDUCE:
        return ring_all_reduce(c, k->src, k->dst, k->count, k->dtype, k->redop);
    case RING_REDUCE:
        return ring_reduce(c, k->src, k->dst, k->count, k->dtype, k->redop, k->root);
    case RING_BROADCAST:
        return ring_broadcast(c, k->src, k->dst, k->count, k->dtype, k->root);
    case RING_REDUCE_SCATTER:
        return ring_reduce_scatter(c, k->src, k->dst, k->count, k->dtype, k->redop);
    case RING_ALL_GATHER:
        return ring_all_gather(c, k->src, k->dst, k->count, k->dtype);
    case RING_ALL_TO_ALL:
        return ring_all_to_all(c, k->src, k->dst, k->count, k->dtype);
    case RING_GATHER:
        return ring_gather(c, k->src, k->dst, k->count, k->dtype, k->root);
    case RING_SCATTER:
        return ring_scatter(c, k->src, k->dst, k->count, k->dtype, k->root);
    case RING_REDUCE_SCATTERV:
        return ring_reduce_scatterv(c, k->src, k->dst, k->scounts, k->dtype, k->redop);
    case RING_ALL_GATHERV:
        return ring_all_gatherv(c, k->src, k->dst, k->rcounts, k->rdispls, k->dtype);
    case RING_ALL_TO_ALLV:
        return ring_all_to_allv(c, k->src, k->scounts, k->sdispls, k->dst, k->rcounts, k->rdispls, k->dtype);
    case RING_GATHERV:
        return ring_gatherv(c, k->src, k->count, k->dst, k->rcounts, k->rdispls, k->dtype, k->root);
    case RING_SCATTERV:
        return ring_scatterv(c, k->src, k->scounts, k->sdispls, k->dst, k->count, k->dtype, k->root);
    default:
        return ring_barrier(c);
    }
}

static void run_started(ring_comm_t *c, const ring_call_t *k, bool persistent)
{
    ring_op_t *op;
    int done = 0;
    WORKS(ring_op_prepare(c, k, &op));
    WORKS(ring_op_start(op));
    if (persistent)
        WORKS(ring_op_wait(op));
    while (!done)
        WORKS(ring_op_test(op, &done));
    ring_op_free(op);
}

static void one_trial(struct rank *r, struct trial *t, unsigned how)
{
    static const char *const names[] = {"called", "waited for", "tested", "in a group"};
    lay_out(t);
    make_buffers(t);
    const ring_call_t k = call_of(t);
    if (how == 0)
        WORKS(call_by_name(r->comm, &k));
    else if (how < 3)
        run_started(r->comm, &k, how == 1);
    else {
        WORKS(ring_group_start(r->comm));
        WORKS(call_by_name(r->comm, &k));
        WORKS(ring_group_end(r->comm));
    }
    check_result(r, t, names[how]);
    free(t->memory);
    free(t->want);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static const ring_coll_t all[] = {RING_ALL_REDUCE, RING_REDUCE,      RING_BROADCAST,       RING_REDUCE_SCATTER,
                                  RING_ALL_GATHER, RING_ALL_TO_ALL,  RING_GATHER,          RING_SCATTER,
                                  RING_BARRIER,    RING_ALL_GATHERV, RING_REDUCE_SCATTERV, RING_ALL_TO_ALLV,
                                  RING_GATHERV,    RING_SCATTERV};
enum { COLLS = sizeof all / sizeof *all };

static struct trial random_trial(const struct rank *r, uint32_t i)
{
    static const size_t counts[] = {0, 1, 2, 5, 100, 1000, 9000, 70000}; /* ThreadSanitizer: all but the last */
    const uint32_t seed = mix(seed_of_all() * 1000 + i);
    struct trial t = {.coll = all[i % COLLS], .n = r->job->size, .me = r->rank, .seed = seed};
    t.count = counts[seed % (SLOWER > 2 ? 7 : 8)];
    t.root = seed / 8 % t.n;
    t.in_place = seed / 64 % 2;
    t.uneven = t.coll > RING_RECV;
    t.scattered = t.uneven && t.coll != RING_REDUCE_SCATTERV && seed / 128 % 2;
    if (t.coll == RING_ALL_TO_ALLV)
        t.in_place = false;
    if (t.in_place &&
        has(t.coll, (ring_coll_t[]){RING_GATHER, RING_SCATTER, RING_GATHERV, RING_SCATTERV, RING_BARRIER}))
        t.in_place = t.me == t.root;
    if (t.coll == RING_BARRIER)
        t.count = 0;
    return t;
}

static void many_trials(struct rank *r)
{
    for (uint32_t i = 0; i < (SLOWER > 1 ? 2 : 4) * COLLS; i++) {
        struct trial t = random_trial(r, i);
        one_trial(r, &t, mix(t.seed) % 4);
    }
}

Test(calls, every_collective_by_every_way, .timeout = 200)
{
    fprintf(stderr, "# seed %u (RING_TEST_SEED)\n", seed_of_all());
    by_every_way((uint32_t[]){1, 2, 3, 5, 8, 0}, many_trials);
}

/* ---- a rank comes late: those that wait compare their calls ----------------------------------------------------- */

static void late_for_each(struct rank *r)
{
    for (uint32_t i = 0; i < COLLS; i++) {
        struct trial t = {.coll = all[i], .n = r->job->size, .me = r->rank, .seed = mix(seed_of_all() + i)};
        if (t.coll <= RING_RECV)
            continue;
        t.uneven = true;
        t.count = 100;
        t.root = t.n - 1;
        if (r->rank == t.n - 1)
            nap_ms(300);
        one_trial(r, &t, i % 2);
    }
}

Test(calls, of_uneven_blocks_with_a_late_rank, .timeout = 100) { by_every_way((uint32_t[]){3, 0}, late_for_each); }

/* ---- rooted calls run ahead, and nothing is overwritten -------------------------------------------------------- */

static void loop_from_root(struct rank *r)
{
    for (uint32_t i = 0; i < 300; i++) {
        int32_t x = (int32_t)i, y = -1, sum = 0;
        const uint32_t root = i / 100 % r->job->size;
        WORKS(ring_broadcast(r->comm, &x, &y, 1, RING_INT32, root));
        cr_assert_eq(y, (int32_t)i);
        WORKS(ring_reduce(r->comm, &x, r->rank == root ? &sum : NULL, 1, RING_INT32, RING_SUM, root));
        cr_assert_eq(sum, r->rank == root ? (int32_t)(i * r->job->size) : 0);
    }
}

Test(calls, loops_of_rooted_calls, .timeout = 100) { by_every_way((uint32_t[]){2, 5, 0}, loop_from_root); }

/* Every rank takes itself for the root: nobody waits, so all go on; but they do not part in peace.  First all have
 * joined, which who is late may hear of no more. */
static void differing_roots(struct rank *r)
{
    int32_t x = 1;
    ring_status_t status = ring_barrier(r->comm);
    if (!status)
        status = ring_broadcast(r->comm, &x, &x, 1, RING_INT32, r->rank);
    if (!status)
        status = ring_comm_destroy(r->comm);
    else
        (void)ring_comm_destroy(r->comm);
    cr_assert_eq(status, RING_ERR_MISMATCH, "%s", ring_last_error());
    r->comm = NULL;
}

Test(calls, ranks_that_broadcast_from_differing_roots, .timeout = 60)
{
    by_every_way((uint32_t[]){2, 3, 0}, differing_roots);
}

/* ---- the same bits in every run -------------------------------------------------------------------------------- */

/* Results of one rank by each way, to be compared with the first's. */
struct bits {
    const struct way *way;
    ring_dtype_t dtype;
    unsigned char *reduced, *scattered;
    size_t count;
};

/* Numbers whose sums depend on the order and on every rounding. */
static void awkward(void *p, ring_dtype_t dtype, size_t count, uint32_t rank)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t x = mix((uint32_t)i * 8 + rank);
        if (dtype == RING_FLOAT)
            ((float *)p)[i] = (float)(int32_t)x / (float)(1 << x % 30);
        else
            ((uint16_t *)p)[i] = (uint16_t)(x & 0x83ff) | (uint16_t)((8 + x / 65536 % 12) << 10); /* float16, finite */
    }
}

static void reduce_awkward(struct rank *r)
{
    const struct bits *b = r->job->arg;
    const size_t esize = ring_dtype_size(b->dtype), n = r->job->size;
    unsigned char *src = malloc(n * b->count * esize), *dst = malloc(b->count * esize);
    awkward(src, b->dtype, n * b->count, r->rank);
    WORKS(ring_all_reduce(r->comm, src, dst, b->count, b->dtype, RING_SUM));
    if (!r->rank)
        memcpy(b->reduced, dst, b->count * esize);
    WORKS(ring_reduce_scatter(r->comm, src, dst, b->count, b->dtype, RING_AVG));
    if (!r->rank)
        memcpy(b->scattered, dst, b->count * esize);
    free(src);
    free(dst);
}

static void compare_ways(uint32_t size, ring_dtype_t dtype, size_t count)
{
    const size_t bytes = count * ring_dtype_size(dtype);
    struct bits first = {.dtype = dtype, .count = count, .reduced = malloc(bytes), .scattered = malloc(bytes)};
    struct bits b = {.dtype = dtype, .count = count, .reduced = malloc(bytes), .scattered = malloc(bytes)};
    for (int w = 0; w < WAYS; w++) {
        if (!way_takes(&ways[w], size))
            continue;
        go_by(&ways[w]);
        run_ranks(size, reduce_awkward, w ? &b : &first);
        go_back(&ways[w]);
        cr_assert(!w || !memcmp(first.reduced, b.reduced, bytes), "%s gives other bits than %s", ways[w].name,
                  ways[0].name);
        cr_assert(!w || !memcmp(first.scattered, b.scattered, bytes), "%s gives other averages than %s", ways[w].name,
                  ways[0].name);
    }
    free(first.reduced);
    free(first.scattered);
    free(b.reduced);
    free(b.scattered);
}

Test(calls, deterministic_by_every_way, .timeout = 200)
{
    setenv("RING_DETERMINISTIC", "1", 1);
    for (uint32_t size = 2; size <= 5; size += 3)
        for (size_t count = 3; count < 300000; count *= 77) {
            compare_ways(size, RING_FLOAT, count);
            compare_ways(size, RING_FLOAT16, count);
        }
    unsetenv("RING_DETERMINISTIC");
}

/* ---- what is refused ------------------------------------------------------------------------------------------- */

#define REFUSED(call, words)                                                                      \
    do {                                                                                          \
        cr_assert_eq((call), RING_ERR_INVALID, "%s was not refused", #call);                      \
        cr_assert_not_null(strstr(ring_last_error(), words), "%s: %s", #call, ring_last_error()); \
    } while (0)

static void refusals(struct rank *r)
{
    int32_t a[64] = {0}, b[64] = {0};
    const size_t counts[2] = {3, 4}, huge[2] = {SIZE_MAX / 2, SIZE_MAX / 2}, others[2] = {4, 4};
    ring_comm_t *c = r->comm;
    ring_op_t *op;
    REFUSED(ring_broadcast(c, a, b, 4, RING_INT32, 2), "root 2");
    REFUSED(ring_reduce(c, a, b, 4, RING_INT32, RING_SUM, 9), "root 9");
    REFUSED(ring_send(c, a, 4, RING_INT32, 2), "peer 2");
    REFUSED(ring_send(c, a, 4, RING_INT32, r->rank), "itself");
    REFUSED(ring_all_gather(c, a, NULL, 4, RING_INT32), "dst is NULL");
    REFUSED(ring_all_gather(c, a, a, 4 + !r->rank, (ring_dtype_t)77), "dtype");
    REFUSED(ring_all_gather(c, a + 1, a, 4, RING_INT32), "overlap");
    REFUSED(ring_all_to_all(c, a, a + 1, 4, RING_INT32), "overlap");
    REFUSED(ring_reduce_scatter(c, a, a + 1 + 4 * r->rank, 4, RING_INT32, RING_SUM), "overlap");
    REFUSED(ring_all_gather(c, a, b, SIZE_MAX / 4, RING_INT32), "memory can hold");
    REFUSED(ring_all_gatherv(c, a, b, NULL, NULL, RING_INT32), "counts is NULL");
    REFUSED(ring_all_gatherv(c, a, b, huge, NULL, RING_INT32), "memory can hold");
    REFUSED(ring_all_to_allv(c, a, counts, NULL, b, NULL, NULL, RING_INT32), "counts is NULL");
    REFUSED(ring_all_to_allv(c, a, counts, NULL, b, r->rank ? (size_t[]){3, 5} : others, NULL, RING_INT32), "itself");
    if (!r->rank)
        REFUSED(ring_gatherv(c, a, 5, b, counts, NULL, RING_INT32, 0), "own block");
    REFUSED(ring_all_reduce(c, (char *)a + 1, b, 4, RING_INT32, RING_SUM), "aligned");
    REFUSED(ring_op_prepare(c, &(ring_call_t){.coll = (ring_coll_t)99}, &op), "coll 99");
    REFUSED(ring_all_reduce(c, a, b, 4, RING_INT32, (ring_redop_t)200), "redop 200");
    /* What the collective has no use for is not looked at. */
    const ring_call_t k = {.coll = RING_REDUCE_SCATTERV,
                           .dtype = RING_INT32,
                           .src = a,
                           .dst = b,
                           .scounts = others,
                           .sdispls = huge,
                           .rcounts = (const size_t *)1};
    WORKS(ring_op_prepare(c, &k, &op));
    ring_op_free(op);
    WORKS(ring_barrier(c)); /* and nothing was lost */
}

/* A call like the last one is checked in another way: for every collective, one that works, and then what differs from
 * it in a single thing. */
static void refusals_after_their_like(struct rank *r)
{
    int32_t a[64] = {0}, b[64] = {0};
    ring_comm_t *c = r->comm;
    for (int i = 0; i < 2; i++) {
        WORKS(ring_all_reduce(c, a, b, 4, RING_INT32, RING_SUM));
        REFUSED(ring_all_reduce(c, (char *)a + 2, b, 4, RING_INT32, RING_SUM), "aligned");
        REFUSED(ring_all_reduce(c, a, (char *)b + 1, 4, RING_INT32, RING_SUM), "aligned");
        REFUSED(ring_all_reduce(c, NULL, b, 4, RING_INT32, RING_SUM), "src is NULL");
        REFUSED(ring_all_reduce(c, a, NULL, 4, RING_INT32, RING_SUM), "dst is NULL");
        REFUSED(ring_all_reduce(c, a, a + 3, 4, RING_INT32, RING_SUM), "overlap by 4 bytes");
        REFUSED(ring_all_reduce(c, a + 3, a, 4, RING_INT32, RING_SUM), "overlap by 4 bytes");
        REFUSED(ring_all_reduce(c, a, b, 4, (ring_dtype_t)99, RING_SUM), "dtype 99");
        REFUSED(ring_all_reduce(c, a, b, 4, RING_INT32, (ring_redop_t)99), "redop 99");
        WORKS(ring_all_reduce(c, a, a, 4, RING_INT32, RING_SUM));
        WORKS(ring_reduce(c, a, r->rank ? NULL : b, 4, RING_INT32, RING_SUM, 0));
        REFUSED(ring_reduce(c, a, b, 4, RING_INT32, RING_SUM, 2), "root 2");
        if (!r->rank)
            REFUSED(ring_reduce(c, a, NULL, 4, RING_INT32, RING_SUM, 0), "dst is NULL");
        WORKS(ring_broadcast(c, r->rank ? NULL : a, b, 4, RING_INT32, 0));
        if (!r->rank)
            REFUSED(ring_broadcast(c, NULL, b, 4, RING_INT32, 0), "src is NULL");
        WORKS(ring_all_gather(c, a, b, 4, RING_INT32));
        REFUSED(ring_all_gather(c, b + 2, b, 4, RING_INT32), "overlap");
        WORKS(ring_all_gather(c, b + 4 * r->rank, b, 4, RING_INT32));
        WORKS(ring_reduce_scatter(c, a, b, 4, RING_INT32, RING_SUM));
        REFUSED(ring_reduce_scatter(c, a, a + 2, 4, RING_INT32, RING_SUM), "overlap");
        WORKS(ring_all_to_all(c, a, b, 4, RING_INT32));
        REFUSED(ring_all_to_all(c, a, a + 8 - 1, 4, RING_INT32), "overlap");
        WORKS(ring_scatter(c, r->rank ? NULL : a, b, 4, RING_INT32, 0));
        REFUSED(ring_scatter(c, a, NULL, 4, RING_INT32, 0), "dst is NULL");
        WORKS(ring_gather(c, a, r->rank ? NULL : b, 4, RING_INT32, 0));
        REFUSED(ring_gather(c, NULL, b, 4, RING_INT32, 0), "src is NULL");
    }
    WORKS(ring_barrier(c));
}

Test(calls, refuse_what_differs_from_the_last_call, .timeout = 60)
{
    by_every_way((uint32_t[]){2, 0}, refusals_after_their_like);
}

/* The same of calls with arrays: what is compared is their content, so they may change where they are. */
static void arrays_that_change(struct rank *r)
{
    int32_t a[16], b[16];
    size_t counts[2] = {2, 3}, displs[2] = {0, 4};
    ring_comm_t *c = r->comm;
    for (int i = 0; i < 16; i++)
        a[i] = 100 * (int)r->rank + i;
    for (int round = 0; round < 4; round++)
        for (int apart = 0; apart < 2; apart++)
            for (int again = 0; again < 2; again++) {
                counts[0] = 2 + (size_t)(round & 1);
                displs[1] = 4 + (size_t)(round >> 1);
                memset(b, 0, sizeof b);
                WORKS(ring_all_gatherv(c, a, b, counts, apart ? displs : NULL, RING_INT32));
                const size_t second = apart ? displs[1] : counts[0];
                for (size_t k = 0; k < 16; k++) {
                    const int32_t want = k < counts[0]                           ? (int32_t)k
                                         : k >= second && k < second + counts[1] ? 100 + (int32_t)(k - second)
                                                                                 : 0;
                    cr_assert_eq(b[k], want, "round %d: element %zu is %d, not %d", round, k, b[k], want);
                }
            }
}

Test(calls, arrays_may_change_where_they_are, .timeout = 60) { by_every_way((uint32_t[]){2, 0}, arrays_that_change); }

static void refusals_after_their_like_with_arrays(struct rank *r)
{
    int32_t a[64] = {0}, b[64] = {0};
    size_t counts[2] = {3, 4}, others[2] = {4, 4}, huge[2] = {SIZE_MAX / 2, SIZE_MAX / 2}, displs[2] = {0, 8};
    ring_comm_t *c = r->comm;
    for (int i = 0; i < 2; i++) {
        WORKS(ring_all_gatherv(c, a, b, counts, NULL, RING_INT32));
        REFUSED(ring_all_gatherv(c, a, b, NULL, NULL, RING_INT32), "counts is NULL");
        WORKS(ring_all_gatherv(c, a, b, counts, NULL, RING_INT32));
        REFUSED(ring_all_gatherv(c, a, b, huge, NULL, RING_INT32), "memory can hold");
        WORKS(ring_all_gatherv(c, a, b, counts, displs, RING_INT32));
        REFUSED(ring_all_gatherv(c, a, b, counts, huge, RING_INT32), "memory can hold");
        WORKS(ring_all_gatherv(c, a, b, counts, displs, RING_INT32));
        REFUSED(ring_all_gatherv(c, a, (char *)b + 2, counts, displs, RING_INT32), "aligned");
        REFUSED(ring_all_gatherv(c, NULL, b, counts, displs, RING_INT32), "src is NULL");
        REFUSED(ring_all_gatherv(c, b + 1, b, counts, displs, RING_INT32), "overlap");
        WORKS(ring_all_gatherv(c, b + displs[r->rank], b, counts, displs, RING_INT32));
        REFUSED(ring_all_gatherv(c, b + displs[!r->rank], b, counts, displs, RING_INT32), "overlap");
        WORKS(ring_reduce_scatterv(c, a, b, others, RING_INT32, RING_SUM));
        REFUSED(ring_reduce_scatterv(c, a, a + 2, others, RING_INT32, RING_SUM), "overlap");
        WORKS(ring_reduce_scatterv(c, a, a + 4 * r->rank, others, RING_INT32, RING_SUM));
        WORKS(ring_all_to_allv(c, a, others, NULL, b, others, NULL, RING_INT32));
        WORKS(ring_all_to_allv(c, a, others, NULL, a, others, NULL, RING_INT32));
        REFUSED(ring_all_to_allv(c, a, others, NULL, a, others, displs, RING_INT32), "overlap");
        WORKS(ring_all_to_allv(c, a, others, NULL, b, others, displs, RING_INT32));
        REFUSED(ring_all_to_allv(c, a, others, NULL, a, others, displs, RING_INT32), "overlap");
        WORKS(ring_gatherv(c, a, counts[r->rank], b, r->rank ? NULL : counts, NULL, RING_INT32, 0));
        if (!r->rank)
            REFUSED(ring_gatherv(c, a, 5, b, counts, NULL, RING_INT32, 0), "own block");
        WORKS(ring_scatterv(c, a, r->rank ? NULL : counts, NULL, b, counts[r->rank], RING_INT32, 0));
        if (!r->rank)
            REFUSED(ring_scatterv(c, a, counts, NULL, b, 4, RING_INT32, 0), "own block");
    }
    WORKS(ring_barrier(c));
}

Test(calls, refuse_what_differs_from_the_last_call_with_arrays, .timeout = 60)
{
    by_every_way((uint32_t[]){2, 0}, refusals_after_their_like_with_arrays);
}

Test(calls, refuse_what_makes_no_sense, .timeout = 60) { by_every_way((uint32_t[]){2, 0}, refusals); }
