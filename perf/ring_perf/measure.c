/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - one case: warm up, time every operation, then check results with fresh inputs.
 *
 * Buffers are ordinary heap memory, made once for the largest size.  Hot: one pair is used again and again.  Cold: the
 * memory is cut into many pairs, and each operation takes the next, so that its data has left the caches since its last
 * use.  Times of all ranks come together through the collective that is measured, with sums and maxima that cannot go
 * wrong unnoticed: the check of the case would fail first. */
#include "perf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, MOST_PAIRS = 16384, LEAST_COLD_PAIRS = 4 };
#define COLD_BYTES (UINT64_C(192) << 20) /* more than the caches of one processor that matters here */

struct perf_run {
    const struct perf_options *opt;
    ring_comm_t *comm;
    uint32_t rank, size;
    char *src, *dst; /* `area` bytes each */
    size_t area;
    uint64_t *stamps; /* iters + 1 points in time */
};

/* One case on its way. */
struct trial {
    struct perf_run *run;
    const struct perf_case *what;
    struct perf_pattern pattern;
    size_t bytes, stride, pairs;
    bool in_place;
};

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static size_t stride_of(size_t bytes) { return 2 * PERF_GUARD + (bytes + LINE - 1) / LINE * LINE; }

ring_status_t perf_run_open(const struct perf_options *opt, ring_comm_t *comm, struct perf_run **run_out)
{
    struct perf_run *run = calloc(1, sizeof *run);
    const size_t stride = stride_of(opt->max_bytes);
    const size_t cold = LEAST_COLD_PAIRS * stride > COLD_BYTES / 2 ? LEAST_COLD_PAIRS * stride : COLD_BYTES / 2;
    void *src = NULL, *dst = NULL;
    if (!run)
        return RING_ERR_NOMEM;
    *run = (struct perf_run){.opt = opt, .comm = comm, .rank = ring_comm_rank(comm), .size = ring_comm_size(comm)};
    run->area = opt->cold ? cold : stride;
    run->stamps = calloc(opt->iters + 1, sizeof *run->stamps);
    const int failed = posix_memalign(&src, PERF_GUARD, run->area) || posix_memalign(&dst, PERF_GUARD, run->area);
    run->src = src;
    run->dst = failed ? NULL : dst;
    if (failed || !run->stamps) {
        fprintf(stderr, "ring_perf: rank %" PRIu32 ": no memory for two buffers of %zu bytes; use a smaller -e\n",
                run->rank, run->area);
        perf_run_close(run);
        return RING_ERR_NOMEM;
    }
    *run_out = run;
    return RING_OK;
}

void perf_run_close(struct perf_run *run)
{
    if (!run)
        return;
    free(run->src);
    free(run->dst);
    free(run->stamps);
    free(run);
}

static char *src_of(const struct trial *t, uint64_t turn)
{
    char *area = t->in_place ? t->run->dst : t->run->src;
    return area + turn % t->pairs * t->stride + PERF_GUARD;
}

static char *dst_of(const struct trial *t, uint64_t turn)
{
    return t->run->dst + turn % t->pairs * t->stride + PERF_GUARD;
}

static ring_status_t operate(const struct trial *t, uint64_t turn)
{
    return ring_all_reduce(t->run->comm, src_of(t, turn), dst_of(t, turn), t->what->count, t->what->dtype,
                           t->what->redop);
}

/* Input, guards, and an output that cannot be mistaken for a result. */
static void prepare(const struct trial *t, uint64_t turn, uint64_t seed)
{
    char *src = src_of(t, turn), *dst = dst_of(t, turn);
    memset(dst, 0x7b, t->bytes);
    perf_guard_set(dst, t->bytes);
    perf_guard_set(src, t->bytes);
    perf_fill(&t->pattern, src, t->what->count, t->run->rank, seed);
}

/* All ranks have come here. */
static ring_status_t barrier(struct perf_run *run)
{
    int32_t one = 1, all = 0;
    return ring_all_reduce(run->comm, &one, &all, 1, RING_INT32, RING_SUM);
}

/* ---- checking ---- */

static void name_case(const struct trial *t, char *text, size_t cap)
{
    snprintf(text, cap, "rank %" PRIu32 ", %zu bytes, %s, %s, %s", t->run->rank, t->bytes,
             ring_dtype_str(t->what->dtype), ring_redop_str(t->what->redop), t->in_place ? "in place" : "out of place");
}

static uint64_t judge(const struct trial *t, const char *buffer, const struct perf_wrong *wrong)
{
    char name[160], expected[40], seen[40];
    if (!wrong->count)
        return 0;
    name_case(t, name, sizeof name);
    perf_value_print(t->what->dtype, wrong->expected, expected, sizeof expected);
    perf_value_print(t->what->dtype, wrong->seen, seen, sizeof seen);
    fprintf(stderr,
            "ring_perf: %s: %" PRIu64 " of %zu elements of the %s are wrong; first: index %" PRIu64
            ", expected %s, seen %s\n",
            name, wrong->count, t->what->count, buffer, wrong->index, expected, seen);
    return wrong->count;
}

static uint64_t judge_guard(const struct trial *t, const char *buffer, const char *data)
{
    char name[160];
    int64_t offset = 0;
    const uint64_t damaged = perf_guard_check(data, t->bytes, &offset);
    if (!damaged)
        return 0;
    name_case(t, name, sizeof name);
    fprintf(stderr, "ring_perf: %s: %" PRIu64 " bytes around the %s were changed; first: byte %" PRId64 " of it\n",
            name, damaged, buffer, offset);
    return damaged;
}

/* --inject-error: the last rank damages its own memory, to show that the check sees it. */
static void inject(const struct trial *t, uint64_t turn)
{
    const struct perf_options *opt = t->run->opt;
    if (opt->inject == PERF_INJECT_NONE || t->run->rank != t->run->size - 1)
        return;
    if (opt->inject == PERF_INJECT_GUARD)
        dst_of(t, turn)[t->bytes] ^= 1;
    else if (opt->inject == PERF_INJECT_SEND && t->what->count && !t->in_place)
        src_of(t, turn)[0] ^= 1;
    else if (opt->inject == PERF_INJECT_ELEMENT && opt->inject_index < t->what->count)
        dst_of(t, turn)[opt->inject_index * t->pattern.esize] ^= 1;
}

static ring_status_t check_once(const struct trial *t, uint64_t turn, uint64_t seed, uint64_t *wrong)
{
    prepare(t, turn, seed);
    const ring_status_t status = operate(t, turn);
    if (status)
        return status;
    inject(t, turn);
    const char *src = src_of(t, turn), *dst = dst_of(t, turn);
    const struct perf_wrong result = perf_check_result(&t->pattern, dst, t->what->count, seed);
    *wrong += judge(t, "result", &result) + judge_guard(t, "result", dst);
    if (!t->in_place) {
        const struct perf_wrong input = perf_check_input(&t->pattern, src, t->what->count, t->run->rank, seed);
        *wrong += judge(t, "send buffer", &input) + judge_guard(t, "send buffer", src);
    }
    return RING_OK;
}

static ring_status_t check_all(const struct trial *t, uint64_t *wrong_out)
{
    uint64_t mine = 0, all = 0;
    ring_status_t status = RING_OK;
    for (uint64_t i = 0; i < t->run->opt->checks && !status; i++)
        status = check_once(t, i, 2 + i, &mine);
    if (!status)
        status = ring_all_reduce(t->run->comm, &mine, &all, 1, RING_UINT64, RING_SUM);
    if (!status)
        *wrong_out = all > mine ? all : mine;
    return status;
}

/* ---- timing ---- */

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The ranks' numbers become one, as -a says. */
static ring_status_t over_ranks(struct perf_run *run, double *values, size_t count)
{
    const ring_redop_t redops[] = {RING_SUM, RING_AVG, RING_MIN, RING_MAX};
    if (run->opt->average == PERF_RANK0 && run->rank)
        memset(values, 0, count * sizeof *values);
    return ring_all_reduce(run->comm, values, values, count, RING_DOUBLE, redops[run->opt->average]);
}

/* Turns the stamps into what one operation took. */
static ring_status_t summarise(struct perf_run *run, struct perf_time *time_out)
{
    const uint64_t n = run->opt->iters;
    uint64_t *t = run->stamps;
    double v[3] = {(double)(t[n] - t[0]) / (double)n, 0, 0};
    for (uint64_t i = 0; i < n; i++)
        t[i] = t[i + 1] - t[i];
    qsort(t, n, sizeof *t, by_value);
    v[1] = (double)t[n / 2];
    v[2] = (double)t[n - 1 - n / 100];
    const ring_status_t status = over_ranks(run, v, 3);
    if (!status)
        *time_out = (struct perf_time){v[0] / 1e3, v[1] / 1e3, v[2] / 1e3};
    return status;
}

static ring_status_t time_all(const struct trial *t, struct perf_time *time_out)
{
    struct perf_run *run = t->run;
    const uint64_t warmup = run->opt->warmup, iters = run->opt->iters;
    ring_status_t status = RING_OK;
    for (uint64_t i = 0; i < t->pairs; i++)
        prepare(t, i, 1);
    for (uint64_t i = 0; i < warmup && !status; i++)
        status = operate(t, i);
    if (!status)
        status = barrier(run);
    run->stamps[0] = now();
    for (uint64_t i = 0; i < iters && !status; i++) {
        status = operate(t, warmup + i);
        run->stamps[i + 1] = now();
    }
    return status ? status : summarise(run, time_out);
}

static size_t pairs_for(const struct perf_run *run, size_t stride)
{
    const size_t fit = run->area / stride;
    return !run->opt->cold ? 1 : fit > MOST_PAIRS ? MOST_PAIRS : fit;
}

ring_status_t perf_measure(struct perf_run *run, const struct perf_case *what, struct perf_result *result_out)
{
    struct perf_result result = {.what = *what, .checked = run->opt->checks > 0};
    struct trial t = {.run = run, .what = what};
    ring_status_t status =
        ring_comm_choice(run->comm, what->coll, what->count, what->dtype, what->redop, &result.choice);
    perf_pattern_init(&t.pattern, what->dtype, what->redop, run->size);
    t.bytes = what->count * t.pattern.esize;
    t.stride = stride_of(t.bytes);
    t.pairs = pairs_for(run, t.stride);
    for (int place = 0; place < 2 && !status; place++) {
        t.in_place = place;
        status = time_all(&t, &result.time[place]);
        if (!status && result.checked)
            status = check_all(&t, &result.wrong[place]);
    }
    if (!status)
        *result_out = result;
    return status;
}
