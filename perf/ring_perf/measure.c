/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - one case: warm up, time every operation, then check results with fresh inputs.
 *
 * Buffers are made once for the largest size: ordinary heap memory, the same registered with the library, or memory of
 * the library's.  Hot: one pair is used again and again.  Cold: the memory is cut into many pairs, and each operation
 * takes the next, so that its data has left the caches since its last use.  Times of all ranks come together through an
 * all-reduce whose sums and maxima cannot go wrong unnoticed when it is what is measured: the check of the case would
 * fail first.  The loop is that of perf/loop.h. */
#include "perf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "loop.h"

enum { PREPARED_MAX = 256 }; /* pairs when operations are prepared, of which each has its own */

struct perf_run {
    const struct perf_options *opt;
    ring_comm_t *comm;
    uint32_t rank, size;
    char *src, *dst; /* `area` bytes each */
    size_t area, at_least;
    bool registered[2];
    uint64_t *stamps; /* iters + 1 points in time   */
    size_t *arrays;   /* blocks and where they begin */
    ring_op_t **ops;  /* two for each call of a turn; when prepared, of all pairs */
};

/* One case on its way. */
struct trial {
    struct perf_run *run;
    const struct perf_case *what;
    struct perf_pattern pattern;
    struct perf_shape shape;
    struct perf_call call;
    size_t src_bytes, dst_bytes, stride, pairs;
    uint64_t iters, warmup;
    bool in_place;
};

/* ---- memory ---- */

static uint64_t most_iters(const struct perf_options *opt)
{
    uint64_t most = opt->iters;
    for (uint64_t i = 0; i < opt->size_count; i++)
        most = opt->sizes[i].iters > most ? opt->sizes[i].iters : most;
    return most;
}

static uint64_t most_bytes(const struct perf_options *opt)
{
    uint64_t most = opt->size_count ? 0 : opt->max_bytes;
    for (uint64_t i = 0; i < opt->size_count; i++)
        most = opt->sizes[i].bytes > most ? opt->sizes[i].bytes : most;
    return most;
}

/* Pairs that are asked for, 0: as many as leave the caches. */
static size_t pairs_wanted(const struct perf_options *opt)
{
    const size_t wanted = opt->buffers ? opt->buffers : opt->cold ? 0 : 1;
    return wanted && wanted < opt->group ? opt->group : wanted;
}

static ring_status_t get_area(struct perf_run *run, char **area, bool *registered)
{
    void *memory = NULL;
    ring_status_t status = RING_OK;
    if (run->opt->memory == PERF_ALLOC)
        status = ring_mem_alloc(run->area, &memory);
    else if (posix_memalign(&memory, PERF_GUARD, run->area))
        status = RING_ERR_NOMEM;
    if (status) {
        fprintf(stderr, "ring_perf: rank %" PRIu32 ": no memory for two buffers of %zu bytes%s%s; use a smaller -e\n",
                run->rank, run->area, run->opt->memory == PERF_ALLOC ? ": " : "",
                run->opt->memory == PERF_ALLOC ? ring_last_error() : "");
        return status;
    }
    *area = memory;
    memset(memory, 0, run->area);
    if (run->opt->memory == PERF_REGISTERED) {
        status = ring_mem_register(memory, run->area);
        *registered = !status;
        if (status)
            fprintf(stderr, "ring_perf: rank %" PRIu32 ": buffers cannot be registered: %s\n", run->rank,
                    ring_last_error());
    }
    return status;
}

static void put_area(const struct perf_run *run, char *area, bool registered)
{
    if (run->opt->memory == PERF_ALLOC) {
        if (ring_mem_free(area))
            fprintf(stderr, "ring_perf: rank %" PRIu32 ": %s\n", run->rank, ring_last_error());
        return;
    }
    if (registered && ring_mem_deregister(area))
        fprintf(stderr, "ring_perf: rank %" PRIu32 ": %s\n", run->rank, ring_last_error());
    free(area);
}

ring_status_t perf_run_open(const struct perf_options *opt, ring_comm_t *comm, struct perf_run **run_out)
{
    struct perf_run *run = calloc(1, sizeof *run);
    ring_status_t status = RING_OK;
    if (!run)
        return RING_ERR_NOMEM;
    *run = (struct perf_run){.opt = opt, .comm = comm, .rank = ring_comm_rank(comm), .size = ring_comm_size(comm)};
    run->area = loop_area(most_bytes(opt), pairs_wanted(opt));
    run->stamps = calloc(most_iters(opt) + 1, sizeof *run->stamps);
    run->arrays = calloc(2 * (size_t)run->size, sizeof *run->arrays);
    const size_t calls = opt->persistent ? PREPARED_MAX + opt->group : opt->group;
    run->ops = calloc(2 * calls, sizeof *run->ops);
    if (!run->stamps || !run->arrays || !run->ops)
        status = RING_ERR_NOMEM;
    if (!status)
        status = get_area(run, &run->src, &run->registered[0]);
    if (!status)
        status = get_area(run, &run->dst, &run->registered[1]);
    if (status)
        perf_run_close(run);
    else
        *run_out = run;
    return status;
}

void perf_run_close(struct perf_run *run)
{
    if (!run)
        return;
    put_area(run, run->src, run->registered[0]);
    put_area(run, run->dst, run->registered[1]);
    free(run->stamps);
    free(run->arrays);
    free(run->ops);
    free(run);
}

/* ---- one operation ---- */

static char *outer(const struct trial *t, char *area, uint64_t turn)
{
    const uint64_t pair = t->pairs > 1 ? turn % t->pairs : 0; /* a division would be a part of the shortest call */
    return area + pair * t->stride + LOOP_GUARD;
}

static char *src_of(const struct trial *t, uint64_t turn)
{
    const bool inside = t->in_place && t->shape.in_place == PERF_SRC_IN_DST;
    const bool shared = t->in_place && t->shape.in_place != PERF_NOWHERE;
    return outer(t, shared ? t->run->dst : t->run->src, turn) + (inside ? t->shape.offset * t->pattern.esize : 0);
}

static char *dst_of(const struct trial *t, uint64_t turn)
{
    const bool inside = t->in_place && t->shape.in_place == PERF_DST_IN_SRC;
    return outer(t, t->run->dst, turn) + (inside ? t->shape.offset * t->pattern.esize : 0);
}

static ring_status_t finish(ring_op_t **ops, uint64_t count, bool keep)
{
    ring_status_t first = RING_OK;
    for (uint64_t i = 0; i < count; i++) {
        const ring_status_t status = ops[i] ? ring_op_wait(ops[i]) : RING_OK;
        first = first ? first : status;
        if (!keep) {
            ring_op_free(ops[i]);
            ops[i] = NULL;
        }
    }
    return first;
}

static ring_status_t operate_prepared(const struct trial *t, uint64_t turn)
{
    struct perf_run *run = t->run;
    const uint64_t group = run->opt->group;
    ring_status_t status = RING_OK;
    for (uint64_t k = 0; k < group && !status; k++) {
        ring_op_t **op = run->ops + 2 * ((turn * group + k) % t->pairs);
        for (unsigned i = 0; i < 2 && op[i] && !status; i++)
            status = ring_op_start(op[i]);
    }
    for (uint64_t k = 0; k < group && !status; k++)
        status = finish(run->ops + 2 * ((turn * group + k) % t->pairs), 2, true);
    return status;
}

static ring_status_t operate_started(const struct trial *t, uint64_t first)
{
    struct perf_run *run = t->run;
    ring_status_t status = RING_OK;
    for (uint64_t k = 0; k < run->opt->group && !status; k++)
        status = perf_call_start(run->comm, &t->call, src_of(t, first + k), dst_of(t, first + k), run->ops + 2 * k);
    const ring_status_t ended = finish(run->ops, 2 * run->opt->group, false);
    return status ? status : ended;
}

static ring_status_t operate_group(const struct trial *t, uint64_t first)
{
    struct perf_run *run = t->run;
    ring_status_t status = ring_group_start(run->comm);
    for (uint64_t k = 0; k < run->opt->group && !status; k++)
        status = perf_call_block(run->comm, &t->call, src_of(t, first + k), dst_of(t, first + k));
    const ring_status_t ended = ring_group_end(run->comm);
    return status ? status : ended;
}

/* Turn after turn, each of as many calls as --group says. */
static ring_status_t operate(const struct trial *t, uint64_t turn)
{
    struct perf_run *run = t->run;
    const uint64_t group = run->opt->group;
    if (run->opt->persistent)
        return operate_prepared(t, turn);
    if (run->opt->start)
        return operate_started(t, turn * group);
    if (group > 1)
        return operate_group(t, turn * group);
    return perf_call_block(run->comm, &t->call, src_of(t, turn), dst_of(t, turn));
}

static ring_status_t prepare_ops(const struct trial *t)
{
    struct perf_run *run = t->run;
    ring_status_t status = RING_OK;
    for (size_t i = 0; i < t->pairs && !status; i++)
        status = perf_call_prepare(run->comm, &t->call, src_of(t, i), dst_of(t, i), run->ops + 2 * i);
    return status;
}

static void free_ops(const struct trial *t)
{
    for (size_t i = 0; t->run->opt->persistent && i < 2 * t->pairs; i++) {
        ring_op_free(t->run->ops[i]);
        t->run->ops[i] = NULL;
    }
}

/* ---- inputs and guards ---- */

/* Where the guards of a buffer stand: around the outer one when one buffer lies in the other. */
static size_t extent(const struct trial *t) { return t->src_bytes > t->dst_bytes ? t->src_bytes : t->dst_bytes; }

static bool shares(const struct trial *t) { return t->in_place && t->shape.in_place != PERF_NOWHERE; }

/* Input, guards, and an output that cannot be mistaken for a result. */
static void fill(const struct trial *t, uint64_t turn, uint64_t seed)
{
    char *src = outer(t, t->run->src, turn), *dst = outer(t, t->run->dst, turn);
    const size_t dst_bytes = shares(t) ? extent(t) : t->dst_bytes;
    memset(dst, 0x7b, dst_bytes);
    perf_guard_set(dst, dst_bytes);
    if (!shares(t))
        perf_guard_set(src, t->src_bytes);
    perf_fill(&t->pattern, src_of(t, turn), t->shape.sends, t->run->rank, seed);
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
    const struct perf_case *w = t->what;
    char root[32] = "";
    if (w->root >= 0)
        snprintf(root, sizeof root, ", root %" PRId64, w->root);
    snprintf(text, cap, "rank %" PRIu32 ", %s, %zu bytes, %s%s%s%s, %s", t->run->rank, w->coll->name,
             t->shape.shown * t->pattern.esize, ring_dtype_str(w->dtype), w->coll->reduces ? ", " : "",
             w->coll->reduces ? ring_redop_str(w->redop) : "", root, t->in_place ? "in place" : "out of place");
}

/* at: where the wrong elements' part begins in the buffer. */
static uint64_t judge(const struct trial *t, const char *buffer, size_t elements, size_t at,
                      const struct perf_wrong *wrong)
{
    char name[200], expected[40], seen[40];
    if (!wrong->count)
        return 0;
    name_case(t, name, sizeof name);
    perf_value_print(t->what->dtype, wrong->expected, expected, sizeof expected);
    perf_value_print(t->what->dtype, wrong->seen, seen, sizeof seen);
    fprintf(stderr,
            "ring_perf: %s: %" PRIu64 " of %zu elements of the %s are wrong; first: index %" PRIu64
            ", expected %s, seen %s\n",
            name, wrong->count, elements, buffer, at + wrong->index, expected, seen);
    return wrong->count;
}

static uint64_t judge_guard(const struct trial *t, const char *buffer, const char *data, size_t bytes)
{
    char name[200];
    int64_t offset = 0;
    const uint64_t damaged = perf_guard_check(data, bytes, &offset);
    if (!damaged)
        return 0;
    name_case(t, name, sizeof name);
    fprintf(stderr, "ring_perf: %s: %" PRIu64 " bytes around the %s were changed; first: byte %" PRId64 " of it\n",
            name, damaged, buffer, offset);
    return damaged;
}

static uint64_t judge_result(const struct trial *t, uint64_t turn, uint64_t seed)
{
    const struct perf_shape *s = &t->shape;
    const char *dst = dst_of(t, turn);
    uint64_t wrong = 0;
    for (uint32_t k = 0; k < perf_pieces(s, t->what); k++) {
        const struct perf_piece p = perf_piece_of(s, t->what, k);
        const char *data = dst + p.at * t->pattern.esize;
        const struct perf_wrong found = p.reduced ? perf_check_result(&t->pattern, data, p.count, p.index, seed)
                                                  : perf_check_input(&t->pattern, data, p.count, p.index, p.from, seed);
        wrong += judge(t, "result", s->receives, p.at, &found);
    }
    return wrong;
}

/* --inject-error: the last rank damages its own memory, to show that the check sees it. */
static void inject(const struct trial *t, uint64_t turn)
{
    const struct perf_options *opt = t->run->opt;
    if (opt->inject == PERF_INJECT_NONE || t->run->rank != t->run->size - 1)
        return;
    if (opt->inject == PERF_INJECT_GUARD)
        outer(t, t->run->dst, turn)[shares(t) ? extent(t) : t->dst_bytes] ^= 1;
    else if (opt->inject == PERF_INJECT_SEND && t->shape.sends && !shares(t))
        src_of(t, turn)[0] ^= 1;
    else if (opt->inject == PERF_INJECT_ELEMENT && opt->inject_index < t->shape.receives)
        dst_of(t, turn)[opt->inject_index * t->pattern.esize] ^= 1;
}

static ring_status_t check_once(const struct trial *t, uint64_t turn, uint64_t seed, uint64_t *wrong)
{
    const uint64_t group = t->run->opt->group;
    for (uint64_t k = 0; k < group; k++)
        fill(t, turn * group + k, seed + k);
    const ring_status_t status = operate(t, turn);
    if (status)
        return status;
    inject(t, turn * group);
    for (uint64_t k = 0; k < group; k++) {
        const uint64_t pair = turn * group + k;
        *wrong += judge_result(t, pair, seed + k);
        *wrong += judge_guard(t, "result", outer(t, t->run->dst, pair), shares(t) ? extent(t) : t->dst_bytes);
        if (shares(t))
            continue;
        const char *src = src_of(t, pair);
        const struct perf_wrong input = perf_check_input(&t->pattern, src, t->shape.sends, 0, t->run->rank, seed + k);
        *wrong += judge(t, "send buffer", t->shape.sends, 0, &input);
        *wrong += judge_guard(t, "send buffer", src, t->src_bytes);
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

/* The ranks' numbers become one, as -a says; processor time is always that of all. */
static ring_status_t over_ranks(struct perf_run *run, struct loop_times *times, struct perf_time *time_out)
{
    const ring_redop_t redops[] = {RING_SUM, RING_AVG, RING_MIN, RING_MAX};
    double v[] = {times->mean, times->p50, times->p99, times->steady}, processor = times->processor;
    if (run->opt->average == PERF_RANK0 && run->rank)
        memset(v, 0, sizeof v);
    ring_status_t status =
        ring_all_reduce(run->comm, v, v, sizeof v / sizeof *v, RING_DOUBLE, redops[run->opt->average]);
    if (!status)
        status = ring_all_reduce(run->comm, &processor, &processor, 1, RING_DOUBLE, RING_SUM);
    const double unit = 1e3 * (double)run->opt->group; /* a turn is as many calls */
    if (!status)
        *time_out = (struct perf_time){v[0] / unit, v[1] / unit, v[2] / unit, v[3] / unit, processor / unit};
    return status;
}

static ring_status_t time_all(const struct trial *t, struct perf_time *time_out)
{
    struct perf_run *run = t->run;
    const uint64_t warmup = t->warmup;
    ring_status_t status = barrier(run);
    uint64_t begun = loop_now();
    for (uint64_t i = 0; i < warmup && !status; i++) {
        if (i == warmup / 2)
            begun = loop_now();
        status = operate(t, i);
    }
    struct loop loop;
    const double estimate = warmup ? (double)(loop_now() - begun) / (double)(warmup - warmup / 2) : 0;
    if (!status)
        status = barrier(run);
    loop_begin(&loop, run->stamps, t->iters, estimate);
    for (uint64_t i = 0; i < t->iters && !status; i++) {
        status = operate(t, warmup + i);
        loop_tick(&loop);
    }
    if (status)
        return status;
    struct loop_times times = loop_end(&loop);
    return over_ranks(run, &times, time_out);
}

static ring_status_t try_place(struct trial *t, struct perf_result *result, int place)
{
    struct perf_run *run = t->run;
    ring_status_t status = RING_OK;
    t->in_place = place;
    for (uint64_t i = 0; i < t->pairs; i++)
        fill(t, i, 1);
    if (run->opt->persistent)
        status = prepare_ops(t);
    if (!status)
        status = time_all(t, &result->time[place]);
    if (!status && result->checked)
        status = check_all(t, &result->wrong[place]);
    free_ops(t);
    result->there[place] = !status;
    return status;
}

ring_status_t perf_measure(struct perf_run *run, const struct perf_case *what, const struct perf_size *size,
                           struct perf_result *result_out)
{
    struct perf_result result = {.what = *what, .checked = run->opt->checks > 0 && what->coll->coll != RING_BARRIER};
    struct trial t = {.run = run, .what = what, .iters = size->iters, .warmup = size->warmup};
    perf_pattern_init(&t.pattern, what->dtype, what->coll->reduces ? what->redop : RING_MIN, run->size);
    perf_shape_init(&t.shape, what, run->rank, run->size, run->arrays);
    perf_call_init(&t.call, what, &t.shape);
    t.src_bytes = t.shape.sends * t.pattern.esize;
    t.dst_bytes = t.shape.receives * t.pattern.esize;
    const size_t outermost = what->whole * t.pattern.esize;
    t.stride = loop_stride(outermost);
    t.pairs = loop_pairs(run->area, outermost, pairs_wanted(run->opt));
    if (run->opt->persistent && t.pairs > PREPARED_MAX)
        t.pairs = run->opt->group > PREPARED_MAX ? run->opt->group : PREPARED_MAX;
    t.warmup = loop_warmup(size->warmup, t.pairs, run->opt->group);
    result.shown = t.shape.shown;
    result.shown_count = t.shape.shown_count;
    ring_status_t status =
        ring_comm_choice(run->comm, what->coll->coll, t.shape.count, what->dtype, what->redop, &result.choice);
    for (int place = 0; place < 2 && !status; place++)
        if (!place || what->coll->in_place != PERF_NOWHERE)
            status = try_place(&t, &result, place);
    if (!status)
        *result_out = result;
    return status;
}
