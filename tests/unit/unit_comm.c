/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface with threads as ranks: all in one process, so that the sanitizers see what ranks do to each
 * other. Every case runs by every way that data can go. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <ring/ring.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/comm/figures.h"
#include "perf/ring_perf/number.h"
#include "tests/unit/ranks.h"
#include "tests/unit/slower.h"

/* ThreadSanitizer looks at every third count. */
enum { STEP = SLOWER > 2 ? 3 : 1 };

/* ---- every type and operation ---------------------------------------------------------------------------------- */

/* Element i on rank r, small enough that sums and products of 8 ranks are exact in every type: floats of 8 bits have
 * but 3 for the number. */
static int value(ring_dtype_t dtype, uint32_t r, size_t i)
{
    const int any = (int)((i * 7 + r * 3) % 5);
    return number_is_small(dtype) ? (any < 2 ? -1 : 1) : any + (int)((r + i) % 2);
}

static double combined(double x, double y, ring_redop_t redop)
{
    switch (redop) {
    case RING_PROD:
        return x * y;
    case RING_MIN:
        return fmin(x, y);
    case RING_MAX:
        return fmax(x, y);
    case RING_BAND:
        return (int)x & (int)y;
    case RING_BOR:
        return (int)x | (int)y;
    case RING_BXOR:
        return (int)x ^ (int)y;
    case RING_LAND:
        return x != 0 && y != 0;
    case RING_LOR:
        return x != 0 || y != 0;
    case RING_LXOR:
        return (x != 0) != (y != 0);
    default:
        return x + y;
    }
}

static double expected(uint32_t n, size_t i, ring_dtype_t dtype, ring_redop_t redop)
{
    double x = value(dtype, 0, i);
    for (uint32_t r = 1; r < n; r++)
        x = combined(x, value(dtype, r, i), redop);
    if (n == 1 && redop >= RING_LAND && redop <= RING_LXOR)
        return x != 0;
    return redop == RING_AVG ? x / n : x;
}

/* Integers: stored from double, wrapping like the type does. */
#define TYPES(X)             \
    X(RING_INT8, int8_t)     \
    X(RING_UINT8, uint8_t)   \
    X(RING_INT16, int16_t)   \
    X(RING_UINT16, uint16_t) \
    X(RING_INT32, int32_t)   \
    X(RING_UINT32, uint32_t) \
    X(RING_INT64, int64_t)   \
    X(RING_UINT64, uint64_t)

static void store(void *p, size_t i, ring_dtype_t dtype, double v)
{
    switch (dtype) {
#define X(name, type)                      \
    case name:                             \
        ((type *)p)[i] = (type)(int64_t)v; \
        break;
        TYPES(X)
#undef X
    default:
        number_put(dtype, (unsigned char *)p + i * ring_dtype_size(dtype), v);
    }
}

static void one_call(struct rank *r, ring_dtype_t dtype, ring_redop_t redop, size_t count, bool in_place)
{
    const size_t esize = ring_dtype_size(dtype), bytes = count * esize + 1;
    unsigned char *src = malloc(bytes), *dst = malloc(bytes), *want = malloc(bytes);
    src[bytes - 1] = dst[bytes - 1] = want[bytes - 1] = 0x77;
    for (size_t i = 0; i < count; i++) {
        store(src, i, dtype, value(dtype, r->rank, i));
        store(want, i, dtype, expected(r->job->size, i, dtype, redop));
    }
    unsigned char *out = in_place ? src : dst;
    WORKS(ring_all_reduce(r->comm, src, out, count, dtype, redop));
    const bool wrong = memcmp(out, want, bytes);
    for (size_t i = 0; wrong && i < bytes; i++) /* an assertion takes longer than what it is about */
        cr_assert_eq(out[i], want[i], "%s %s of %zu on rank %u of %u by %s: byte %zu", ring_dtype_str(dtype),
                     ring_redop_str(redop), count, r->rank, r->job->size, ((const struct way *)r->job->arg)->name, i);
    for (size_t i = 0; i < count && !in_place; i++)
        store(want, i, dtype, value(dtype, r->rank, i));
    cr_assert(in_place || !memcmp(src, want, bytes), "the send buffer changed");
    free(src);
    free(dst);
    free(want);
}

static void all_types(struct rank *r)
{
    static const size_t counts[] = {1, 1000, 20011};
    for (int d = 0; ring_dtype_str((ring_dtype_t)d); d++)
        for (int o = 0; ring_redop_str((ring_redop_t)o); o++)
            for (size_t i = (size_t)(d + o) % STEP; i < sizeof counts / sizeof *counts; i += STEP)
                if (ring_redop_fits((ring_dtype_t)d, (ring_redop_t)o))
                    one_call(r, (ring_dtype_t)d, (ring_redop_t)o, counts[i], (d + o + (int)i) % 2);
}

Test(comm, every_type_and_operation_by_every_way, .timeout = 200) { by_every_way((uint32_t[]){1, 2, 5, 0}, all_types); }

/* Truth is 1 or 0, whatever the call and the number of ranks. */
static void truth(struct rank *r)
{
    static const ring_redop_t redops[] = {RING_LAND, RING_LOR, RING_LXOR};
    const uint32_t n = r->job->size;
    for (int i = 0; i < 3; i++) {
        int32_t src[16], dst[2] = {-1, -1};
        size_t counts[MAX_RANKS];
        const bool want = redops[i] != RING_LXOR || n % 2;
        for (uint32_t k = 0; k < 2 * n; k++)
            src[k] = k % 2 ? 0 : 6;
        for (uint32_t k = 0; k < n; k++)
            counts[k] = 2;
        WORKS(ring_reduce_scatter(r->comm, src, dst, 2, RING_INT32, redops[i]));
        cr_assert(dst[0] == want && !dst[1], "%d and %d", dst[0], dst[1]);
        dst[0] = -1;
        WORKS(ring_reduce_scatterv(r->comm, src, dst, counts, RING_INT32, redops[i]));
        cr_assert(dst[0] == want && !dst[1], "%d and %d", dst[0], dst[1]);
        WORKS(ring_reduce(r->comm, src, src, 2, RING_INT32, redops[i], 0));
        cr_assert(r->rank || (src[0] == want && !src[1]), "%d and %d", src[0], src[1]);
    }
}

Test(comm, truth_is_one_or_nothing, .timeout = 60) { by_every_way((uint32_t[]){1, 2, 3, 0}, truth); }

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

static void many_sizes(struct rank *r)
{
    for (size_t count = 0; count < 40; count += STEP)
        one_call(r, RING_INT32, RING_SUM, count, count % 2);
    for (size_t count = 41; count < 300000; count = count * (STEP > 1 ? 13 : 5) / 2 + 1)
        one_call(r, RING_FLOAT, RING_AVG, count, count % 2);
}

Test(comm, every_number_of_ranks, .timeout = 200) { by_every_way((uint32_t[]){1, 2, 3, 4, 6, 7, 8, 0}, many_sizes); }

static void average_truncates(struct rank *r)
{
    int32_t x[2] = {r->rank ? -4 : -3, r->rank ? 4 : 3};
    uint64_t big = UINT64_C(1) << 62;
    WORKS(ring_all_reduce(r->comm, x, x, 2, RING_INT32, RING_AVG));
    cr_assert_eq(x[0], -3);
    cr_assert_eq(x[1], 3);
    WORKS(ring_all_reduce(r->comm, &big, &big, 1, RING_UINT64, RING_AVG));
    cr_assert_eq(big, UINT64_C(1) << 62);
}

Test(comm, integer_average_truncates_toward_zero) { by_every_way((uint32_t[]){2, 0}, average_truncates); }

static void not_a_number(struct rank *r)
{
    float x[3] = {r->rank == 1 ? NAN : 1.0f, (float)r->rank, r->rank == 0 ? INFINITY : 0.0f};
    float y[3];
    WORKS(ring_all_reduce(r->comm, x, y, 3, RING_FLOAT, RING_MAX));
    cr_assert(isnan(y[0]) && y[1] == (float)(r->job->size - 1) && isinf(y[2]));
    WORKS(ring_all_reduce(r->comm, x, y, 3, RING_FLOAT, RING_MIN));
    cr_assert(isnan(y[0]) && y[1] == 0 && y[2] == 0);
}

Test(comm, a_nan_on_any_rank_gives_nan) { by_every_way((uint32_t[]){2, 3, 0}, not_a_number); }

/* All ranks get the same bits even where the order of additions matters. */
static void same_bits(struct rank *r)
{
    enum { COUNT = 20000 };
    static float kept[MAX_RANKS][COUNT];
    float *mine = kept[r->rank];
    for (size_t i = 0; i < COUNT; i++)
        mine[i] = sinf((float)(i * 31 + r->rank * 17)) * powf(10, (float)((i + r->rank) % 12));
    WORKS(ring_all_reduce(r->comm, mine, mine, COUNT, RING_FLOAT, RING_SUM));
    int64_t ready = 1;
    WORKS(ring_all_reduce(r->comm, &ready, &ready, 1, RING_INT64, RING_SUM));
    cr_assert_eq(memcmp(mine, kept[0], sizeof kept[0]), 0);
    WORKS(ring_all_reduce(r->comm, &ready, &ready, 1, RING_INT64, RING_SUM));
}

Test(comm, all_ranks_get_the_same_bits) { by_every_way((uint32_t[]){2, 5, 8, 0}, same_bits); }

/* ---- operations in flight -------------------------------------------------------------------------------------- */

static void in_flight(struct rank *r)
{
    enum { OPS = 7, COUNT = 5000 };
    ring_op_t *op[OPS];
    int32_t *x = malloc(sizeof *x * OPS * COUNT);
    for (int round = 0; round < 5; round++) {
        for (size_t k = 0; k < OPS; k++) {
            for (size_t i = 0; i < COUNT; i++)
                x[k * COUNT + i] = (int32_t)(r->rank + k + i);
            WORKS(ring_all_reduce_start(r->comm, x + k * COUNT, x + k * COUNT, COUNT >> (k % 3 * 4), RING_INT32,
                                        RING_SUM, &op[k]));
        }
        for (size_t j = 0; j < OPS; j++) {
            const size_t k = (j * 3 + (size_t)round + r->rank) % (size_t)OPS; /* another order on every rank */
            int done = 0;
            while (j % 2 && !done)
                WORKS(ring_op_test(op[k], &done));
            WORKS(ring_op_wait(op[k]));
            ring_op_free(op[k]);
            const uint32_t n = r->job->size;
            for (size_t i = 0; i < (size_t)COUNT >> (k % 3 * 4); i++)
                cr_assert_eq(x[k * COUNT + i], (int32_t)(n * (n - 1) / 2 + n * (k + i)));
        }
    }
    free(x);
}

Test(comm, operations_complete_in_any_order, .timeout = 60) { by_every_way((uint32_t[]){1, 2, 4, 0}, in_flight); }

static void freed_early(struct rank *r)
{
    int32_t x[100] = {1};
    ring_op_t *op;
    WORKS(ring_all_reduce_start(r->comm, x, x, 100, RING_INT32, RING_SUM, &op));
    ring_op_free(op); /* waits */
    cr_assert_eq(x[0], (int32_t)r->job->size);
    WORKS(ring_all_reduce_start(r->comm, x, x, 100, RING_INT32, RING_MAX, &op));
    WORKS(ring_comm_destroy(r->comm)); /* completes it */
    r->comm = NULL;
    int done = 0;
    WORKS(ring_op_test(op, &done));
    WORKS(ring_op_wait(op));
    cr_assert_eq(done, 1);
    ring_op_free(op);
}

Test(comm, free_and_destroy_complete_what_is_in_flight) { by_every_way((uint32_t[]){2, 3, 0}, freed_early); }

/* ---- misuse ---------------------------------------------------------------------------------------------------- */

#define REFUSED(call, code, word) \
    cr_assert_eq((call), (code)); \
    cr_assert(strstr(ring_last_error(), (word)), "%s", ring_last_error())

static void wrong_arguments(struct rank *r)
{
    float x[64] = {0}, y[64] = {0};
    ring_comm_t *c = r->comm;
    ring_op_t *op;
    ring_peer_t peer;
    REFUSED(ring_all_reduce(NULL, x, y, 1, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "communicator");
    REFUSED(ring_all_reduce(c, NULL, y, 1, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "src");
    REFUSED(ring_all_reduce(c, x, NULL, 1, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "dst");
    REFUSED(ring_all_reduce(c, x, y, 1, (ring_dtype_t)99, RING_SUM), RING_ERR_INVALID, "dtype 99");
    REFUSED(ring_all_reduce(c, x, y, 1, RING_FLOAT, (ring_redop_t)-1), RING_ERR_INVALID, "redop -1");
    REFUSED(ring_all_reduce(c, x, y, 1, RING_FLOAT, RING_BXOR), RING_ERR_INVALID,
            "bxor is for integers, not for float");
    REFUSED(ring_all_reduce(c, x, x + 10, 11, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "overlap by 4 bytes");
    REFUSED(ring_all_reduce(c, x + 1, x, 2, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "overlap by 4 bytes");
    REFUSED(ring_all_reduce(c, x, y, SIZE_MAX / 2, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "more than memory");
    REFUSED(ring_all_reduce(c, (char *)x + 1, y, 1, RING_FLOAT, RING_SUM), RING_ERR_INVALID, "not aligned");
    REFUSED(ring_all_reduce_start(c, x, y, 1, RING_FLOAT, RING_SUM, NULL), RING_ERR_INVALID, "op_out");
    REFUSED(ring_all_reduce_start(c, x, x + 1, 4, RING_FLOAT, RING_SUM, &op), RING_ERR_INVALID, "overlap");
    REFUSED(ring_comm_peer(c, r->job->size, &peer), RING_ERR_INVALID, "size");
    REFUSED(ring_op_wait(NULL), RING_ERR_INVALID, "NULL");
    ring_op_free(NULL);
    WORKS(ring_comm_destroy(NULL));
    WORKS(ring_all_reduce(c, NULL, NULL, 0, RING_FLOAT, RING_SUM)); /* and nothing of it did harm */
    WORKS(ring_all_reduce(c, x, x + 10, 10, RING_FLOAT, RING_SUM));
    WORKS(ring_comm_peer(c, 0, &peer));
    cr_assert(peer.rank == 0 && peer.pid > 0 && peer.host[0]);
    cr_assert_str_eq(ring_comm_error(c), "");
}

Test(comm, wrong_arguments_are_named_and_harmless) { by_every_way((uint32_t[]){2, 0}, wrong_arguments); }

Test(comm, wrong_tickets)
{
    ring_comm_t *c = NULL;
    ring_uid_t uid = {"nonsense"};
    REFUSED(ring_comm_create_uid(&uid, 0, 2, &c), RING_ERR_INVALID, "ticket");
    REFUSED(ring_comm_create_uid(&uid, 2, 2, &c), RING_ERR_INVALID, "rank 2");
    REFUSED(ring_comm_create_uid(NULL, 0, 1, &c), RING_ERR_INVALID, "uid");
    REFUSED(ring_uid_create(NULL), RING_ERR_INVALID, "uid_out");
    memset(uid.text, 'x', sizeof uid.text);
    REFUSED(ring_comm_create_uid(&uid, 0, 2, &c), RING_ERR_INVALID, "no end");
    cr_assert_null(c);
}

struct intruder {
    ring_op_t *op;
    _Atomic int busy, other;
    _Atomic bool stop;
};

/* Testing does no harm when it is let in. */
static void *intrude(void *arg)
{
    struct intruder *in = arg;
    int done;
    while (!atomic_load(&in->stop)) {
        const ring_status_t status = ring_op_test(in->op, &done);
        if (status)
            atomic_fetch_add(status == RING_ERR_BUSY ? &in->busy : &in->other, 1);
        nap_ms(1);
    }
    return NULL;
}

/* Rank 0 sits inside a call for a while, because rank 1 comes late. */
static void two_threads(struct rank *r)
{
    struct intruder in = {0};
    pthread_t t;
    float x = 1;
    if (r->rank == 1) {
        nap_ms(300);
        WORKS(ring_all_reduce(r->comm, &x, &x, 1, RING_FLOAT, RING_SUM));
        return;
    }
    WORKS(ring_all_reduce_start(r->comm, &x, &x, 1, RING_FLOAT, RING_SUM, &in.op));
    cr_assert_eq(pthread_create(&t, NULL, intrude, &in), 0);
    ring_status_t status;
    while ((status = ring_op_wait(in.op)) == RING_ERR_BUSY)
        ;
    atomic_store(&in.stop, true);
    pthread_join(t, NULL);
    cr_assert_eq(status, RING_OK, "%s", ring_last_error());
    cr_assert_gt(atomic_load(&in.busy), 0);
    cr_assert_eq(atomic_load(&in.other), 0);
    cr_assert_eq(x, 2);
    ring_op_free(in.op);
}

Test(comm, a_second_thread_is_told_and_harms_nothing, .timeout = 60)
{
    for (size_t w = 0; w < 4; w++) {
        go_by(&ways[w]);
        run_ranks(2, two_threads, &ways[w]);
        go_back(&ways[w]);
    }
}

/* Two communicators, used by two threads of one process at the same time. */
static void *one_job(void *arg)
{
    run_ranks(3, in_flight, arg);
    return NULL;
}

Test(comm, two_communicators_from_two_threads, .timeout = 60)
{
    for (size_t w = 0; w < 4; w++) {
        pthread_t t;
        go_by(&ways[w]);
        cr_assert_eq(pthread_create(&t, NULL, one_job, (void *)(uintptr_t)&ways[w]), 0);
        one_job((void *)(uintptr_t)&ways[w]);
        pthread_join(t, NULL);
        go_back(&ways[w]);
    }
}

/* ---- failure --------------------------------------------------------------------------------------------------- */

static void disagreeing(struct rank *r)
{
    float x[256] = {0};
    const size_t count = r->rank == 1 ? 200 : 100;
    /* Who is late in the first may hear there already how the second ended. */
    const ring_status_t first = ring_all_reduce(r->comm, x, x, 256, RING_FLOAT, RING_SUM);
    cr_assert(first == RING_OK || first == RING_ERR_MISMATCH, "%s", ring_last_error());
    REFUSED(ring_all_reduce(r->comm, x, x, count, RING_FLOAT, RING_SUM), RING_ERR_MISMATCH, "rank 1 (");
    cr_assert(strstr(ring_last_error(), "200 float (sum)") && strstr(ring_last_error(), "100 float (sum)"), "%s",
              ring_last_error());
    REFUSED(ring_all_reduce(r->comm, x, x, 1, RING_FLOAT, RING_SUM), RING_ERR_MISMATCH, "rank 1 (");
    cr_assert_str_eq(ring_comm_error(r->comm), ring_last_error());
}

Test(comm, ranks_that_disagree_all_hear_it, .timeout = 60) { by_every_way((uint32_t[]){2, 5, 0}, disagreeing); }

static void aborted(struct rank *r)
{
    float x[16] = {0};
    ring_status_t status = ring_all_reduce(r->comm, x, x, 16, RING_FLOAT, RING_SUM); /* all have joined */
    if (r->rank == 1)
        ring_comm_abort(r->comm, "had enough");
    while (!status)
        status = ring_all_reduce(r->comm, x, x, 16, RING_FLOAT, RING_SUM);
    cr_assert_eq(status, RING_ERR_ABORTED);
    cr_assert(strstr(ring_last_error(), "rank 1 (") && strstr(ring_last_error(), "had enough"), "%s",
              ring_last_error());
}

Test(comm, abort_ends_every_rank, .timeout = 60) { by_every_way((uint32_t[]){2, 4, 0}, aborted); }

static void nothing(struct rank *r) { (void)r; }

Test(comm, missing_ranks_are_listed_at_the_deadline, .timeout = 30)
{
    setenv("RING_TIMEOUT", "700ms", 1);
    struct job j = {.size = 5, .present = 3, .body = nothing};
    run_job(&j);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(j.rank[i].status, RING_ERR_TIMEOUT, "%s", j.rank[i].text);
        cr_assert(strstr(j.rank[i].text, "3") && strstr(j.rank[i].text, "4") && strstr(j.rank[i].text, "RING_TIMEOUT"),
                  "%s", j.rank[i].text);
    }
}

/* Every allocation of creating, running and leaving fails once: an error each time, no crash, nothing lost (the address
 * sanitizer looks). */
static void sum_once(struct rank *r)
{
    float x[100] = {0};
    const ring_status_t status = ring_all_reduce(r->comm, x, x, 100, RING_FLOAT, RING_SUM);
    if (status)
        ring_comm_abort(r->comm, "no memory");
}

static void starve(const struct way *w)
{
    bool hit = true;
    /* Further on most are messages of the measurement of links, one like the other. */
    for (uint64_t n = 1; hit; n += n < 120 ? 1 : 7) {
        struct job j = {.size = 2, .present = 2, .body = sum_once, .arg = w};
        ri_mem_fail_at(0);
        const uint64_t before = ri_mem_count();
        ri_mem_fail_at(n);
        if (ring_uid_create(&j.uid)) {
            cr_assert(strstr(ring_last_error(), "memory"), "%s", ring_last_error());
            continue;
        }
        start_job(&j);
        ri_mem_fail_at(0);
        hit = ri_mem_count() - before >= n;
        if (!hit && (j.rank[0].status == RING_ERR_TIMEOUT || j.rank[1].status == RING_ERR_TIMEOUT)) {
            setenv("RING_TIMEOUT", "20s", 1); /* nothing failed, but the machine is busy */
            hit = true;
            continue;
        }
        for (uint32_t i = 0; i < 2; i++)
            cr_assert(hit || !j.rank[i].status, "allocation %" PRIu64 ": %s", n, j.rank[i].text);
    }
}

Test(comm, no_memory_at_any_point, .timeout = 200)
{
    setenv("RING_TIMEOUT", "300ms", 1); /* some failures look like a rank that never comes */
    for (size_t w = 0; w < 4; w += 3) {
        go_by(&ways[w]);
        starve(&ways[w]);
        go_back(&ways[w]);
    }
}

static void facts(struct rank *r)
{
    ring_choice_t choice, message;
    cr_assert_eq(ring_comm_rank(r->comm), r->rank);
    cr_assert_eq(ring_comm_size(r->comm), r->job->size);
    cr_assert_eq(ring_comm_local_rank(r->comm), r->rank);
    cr_assert_eq(ring_comm_local_size(r->comm), r->job->size);
    cr_assert_eq(ring_comm_node(r->comm), 0);
    cr_assert_eq(ring_comm_node_count(r->comm), 1);
    WORKS(ring_comm_choice(r->comm, RING_ALL_REDUCE, 1 << 20, RING_FLOAT, RING_SUM, &choice));
    const struct way *w = r->job->arg;
    if (!strcmp(w->name, "tcp") || !strcmp(w->name, "shm") || !strcmp(w->name, "verbs"))
        cr_assert_str_eq(choice.transport, w->name);
    /* The first message between two ranks makes their link: its transport is known before. */
    WORKS(ring_comm_choice(r->comm, RING_SEND, 1, RING_FLOAT, RING_SUM, &message));
    cr_assert(!strcmp(message.transport, "shm") || !strcmp(message.transport, "tcp") ||
                  !strcmp(message.transport, w->name),
              "\"%s\"", message.transport);
    cr_assert_str_eq(message.algorithm, "direct");
    if (!strcmp(w->name, "node") || !strcmp(w->name, "ring") || !strcmp(w->name, "doubling"))
        cr_assert_str_eq(choice.algorithm, w->name);
}

Test(comm, facts_and_choices) { by_every_way((uint32_t[]){2, 3, 0}, facts); }

Test(comm, choice_of_one_rank)
{
    ring_comm_t *comm;
    ring_choice_t choice;
    setenv("RING_BOOT", "single", 1);
    cr_assert_eq(ring_comm_create(&comm), RING_OK);
    cr_assert_eq(ring_comm_choice(comm, RING_SEND, 1, RING_FLOAT, RING_SUM, &choice), RING_OK);
    cr_assert_str_eq(choice.algorithm, "copy");
    cr_assert_str_eq(choice.transport, "self");
    cr_assert_eq(ring_comm_destroy(comm), RING_OK);
    unsetenv("RING_BOOT");
}

/* ---- what is made of measured times ---- */

static const struct ri_cost_model rated = {.latency = 10e3, .byte = 0.35, .near_latency = 1e3, .near_byte = 0.1};

Test(figures, give_latency_and_bytes)
{
    const struct ri_figures f = {.far = {.small = 20e3, .burst = 27e3, .large = 20e3 + 0.5 * RI_FIGURE_LARGE},
                                 .near = {.small = 2e3, .burst = 3.4e3, .large = 2e3 + 0.2 * RI_FIGURE_LARGE}};
    struct ri_cost_model m = rated;
    cr_assert(ri_figures_believable(&f, 2));
    ri_figures_apply(&f, 2, &m);
    cr_assert_float_eq(m.message, 500, 1e-6);
    cr_assert_float_eq(m.latency, 19e3, 1e-6);
    cr_assert_float_eq(m.byte, 0.5, 1e-6);
    cr_assert_float_eq(m.near_latency, 1.8e3, 1e-6);
    cr_assert_float_eq(m.near_byte, 0.2, 1e-6);
}

/* A burst holds a small message, so it bounds what one takes. */
Test(figures, a_disturbed_small_message_gives_way_to_the_burst)
{
    const struct ri_figures f = {.near = {.small = 4e6, .burst = 10e3, .large = 90e3}};
    struct ri_cost_model m = rated;
    cr_assert(ri_figures_believable(&f, 2));
    ri_figures_apply(&f, 2, &m);
    cr_assert(m.latency > 9e3 && m.latency <= 10e3, "%f", m.latency);
    cr_assert_float_eq(m.byte, 80e3 / RI_FIGURE_LARGE, 1e-6);
    cr_assert_float_eq(m.near_byte, m.byte, 1e-9);
}

Test(figures, what_cannot_be_leaves_the_model_as_it_is)
{
    static const struct ri_figures bad[] = {
        {.near = {.small = 4313e3, .burst = 4400e3, .large = 4000e3}}, /* a large message as fast as a small one */
        {.near = {.small = 4e6, .burst = 5e6, .large = 9e6}},          /* slices of the scheduler */
        {.near = {.small = 10e3, .burst = 11e3, .large = 4.5e6}},
        {.far = {.small = 50e6, .burst = 51e6, .large = 40e6}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ri_cost_model m = rated;
        cr_assert(!ri_figures_believable(&bad[i], 2), "%zu", i);
        ri_figures_apply(&bad[i], 2, &m);
        cr_assert_eq(m.latency, rated.latency, "%zu", i);
        cr_assert_eq(m.byte, rated.byte, "%zu", i);
    }
}

/* Nothing is known of how slow a network is, and of many ranks on few processors little. */
Test(figures, slow_is_believed_where_it_may_be)
{
    const struct ri_figures wide = {.far = {.small = 50e6, .burst = 51e6, .large = 60e6}};
    const struct ri_figures crowded = {.near = {.small = 400e3, .burst = 900e3, .large = 5e6}};
    cr_assert(ri_figures_believable(&wide, 1));
    cr_assert(ri_figures_believable(&crowded, 16));
    cr_assert(!ri_figures_believable(&crowded, 2));
}

Test(comm, texts_of_every_status)
{
    cr_assert_str_eq(ring_status_str(RING_OK), "success");
    cr_assert_str_eq(ring_status_str((ring_status_t)-99), "unknown status");
    for (int s = RING_ERR_INTERNAL; s < 0; s++)
        cr_assert_str_neq(ring_status_str((ring_status_t)s), "unknown status");
    cr_assert_null(ring_dtype_str((ring_dtype_t)14));
    cr_assert_eq(ring_dtype_size((ring_dtype_t)14), 0);
    cr_assert_null(ring_redop_str((ring_redop_t)11));
    cr_assert_null(ring_coll_str((ring_coll_t)16));
    cr_assert_str_eq(ring_coll_str(RING_ALL_REDUCE), "all_reduce");
}
