/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - ring_perf: measure and check a collective over sizes, types and operations, with the habits of nccl-tests.
 *
 * Rank 0 prints; every rank checks its own data and exits non-zero when values were wrong on any. */
#include "perf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the watchdog of --timeout ---- */

struct watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ring_comm_t *comm;
    uint64_t seconds;
    bool running, over;
};

static void *watch(void *arg)
{
    struct watchdog *w = arg;
    struct timespec end;
    char reason[64];
    int status = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)w->seconds;
    pthread_mutex_lock(&w->lock);
    while (!w->over && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&w->changed, &w->lock, &end);
    if (!w->over) {
        snprintf(reason, sizeof reason, "ring_perf --timeout %llu has passed", (unsigned long long)w->seconds);
        ring_comm_abort(w->comm, reason);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void watchdog_start(struct watchdog *w, ring_comm_t *comm, uint64_t seconds)
{
    *w = (struct watchdog){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    w->comm = comm;
    w->seconds = seconds;
    w->running = seconds && !pthread_create(&w->thread, NULL, watch, w);
    if (seconds && !w->running)
        fprintf(stderr, "ring_perf: no thread for --timeout; going on without\n");
}

static void watchdog_stop(struct watchdog *w)
{
    if (!w->running)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}

/* ---- the sweep ---- */

struct sweep {
    const struct perf_options *opt;
    struct perf_run *run;
    struct perf_report *report; /* NULL except on rank 0 */
    uint32_t ranks;
    uint64_t wrong;
};

/* The k-th size; false when there is none. */
static bool size_of(const struct perf_options *o, uint64_t k, struct perf_size *size)
{
    if (o->size_count) {
        if (k < o->size_count)
            *size = o->sizes[k];
        return k < o->size_count;
    }
    uint64_t bytes = o->min_bytes;
    for (; o->step_factor && k && bytes && bytes <= o->max_bytes / o->step_factor; k--)
        bytes *= o->step_factor;
    if (o->step_factor ? k : k > (o->max_bytes - bytes) / o->step_bytes)
        return false;
    *size = (struct perf_size){o->step_factor ? bytes : bytes + k * o->step_bytes, 0, 0};
    return true;
}

static ring_status_t one_case(struct sweep *s, const struct perf_case *kind, const struct perf_size *size)
{
    struct perf_case what = *kind;
    struct perf_result result;
    what.whole = what.coll->coll == RING_BARRIER ? 0 : size->bytes / ring_dtype_size(what.dtype);
    perf_report_progress(s->report, &what, size->bytes);
    const ring_status_t status = perf_measure(s->run, &what, size, &result);
    if (status)
        return status;
    perf_report_row(s->report, &result);
    s->wrong += result.wrong[0] + result.wrong[1];
    return RING_OK;
}

static ring_status_t all_roots(struct sweep *s, struct perf_case *kind, const struct perf_size *size)
{
    const bool each = kind->coll->rooted && s->opt->root == PERF_ROOT_ALL;
    const uint32_t times = each ? s->ranks : 1;
    ring_status_t status = RING_OK;
    for (uint32_t root = 0; root < times && !status; root++) {
        kind->root = !kind->coll->rooted ? -1 : each ? (int64_t)root : s->opt->root;
        status = one_case(s, kind, size);
    }
    return status;
}

static ring_status_t all_sizes(struct sweep *s, struct perf_case *kind)
{
    struct perf_size size;
    ring_status_t status = RING_OK;
    for (uint64_t k = 0; !status && size_of(s->opt, k, &size); k++) {
        if (!size.iters)
            size = (struct perf_size){size.bytes, s->opt->iters, s->opt->warmup};
        status = all_roots(s, kind, &size);
        if (kind->coll->coll == RING_BARRIER)
            break;
    }
    return status;
}

/* A type is measured with each operation that is there for it; once, when nothing is reduced. */
static ring_status_t all_types(struct sweep *s, const struct perf_coll *coll)
{
    struct perf_case kind = {.coll = coll};
    ring_status_t status = RING_OK;
    perf_report_coll(s->report, coll);
    for (int dtype = 0; dtype < 64 && !status; dtype++)
        for (int redop = 0; redop < 64 && !status; redop++) {
            kind.dtype = (ring_dtype_t)dtype;
            kind.redop = (ring_redop_t)redop;
            if (!(s->opt->dtypes >> dtype & 1) || !(s->opt->redops >> redop & 1) ||
                (coll->reduces && !ring_redop_fits(kind.dtype, kind.redop)))
                continue;
            status = all_sizes(s, &kind);
            if (coll->coll == RING_BARRIER)
                return status;
            if (!coll->reduces)
                break;
        }
    return status;
}

static ring_status_t all_colls(struct sweep *s)
{
    ring_status_t status = RING_OK;
    for (int i = 0; i < PERF_COLLS && !status; i++)
        if (s->opt->colls >> i & 1)
            status = all_types(s, &perf_colls[i]);
    return status;
}

/* What cannot be known before the number of ranks is. */
static bool root_exists(const struct perf_options *opt, ring_comm_t *comm)
{
    const bool exists = opt->root < (int64_t)ring_comm_size(comm);
    if (!exists && !ring_comm_rank(comm))
        fprintf(stderr, "ring_perf: -r/--root %lld is not a rank: there are %u\n", (long long)opt->root,
                (unsigned)ring_comm_size(comm));
    return exists;
}

/* Rank 0 tries the file of -J and tells the others, so that no long run ends in nothing. */
static bool output_possible(const struct perf_options *opt, ring_comm_t *comm)
{
    int32_t bad = 0, any_bad = 0;
    if (!opt->json)
        return true;
    bad = !ring_comm_rank(comm) && !perf_report_possible(opt->json);
    const ring_status_t status = ring_all_reduce(comm, &bad, &any_bad, 1, RING_INT32, RING_MAX);
    if (status)
        fprintf(stderr, "ring_perf: %s: %s\n", ring_status_str(status), ring_last_error());
    return !status && !any_bad;
}

/* The exit code. */
static int sweep(const struct perf_options *opt, ring_comm_t *comm)
{
    struct sweep s = {.opt = opt, .ranks = ring_comm_size(comm)};
    struct watchdog dog;
    const uint32_t rank = ring_comm_rank(comm);
    ring_status_t status = perf_run_open(opt, comm, &s.run);
    if (!rank && !status && !(s.report = perf_report_open(opt, comm)))
        status = RING_ERR_NOMEM;
    if (status) {
        ring_comm_abort(comm, "a rank has no memory for its buffers");
        perf_run_close(s.run);
        return 1;
    }
    watchdog_start(&dog, comm, opt->timeout);
    status = perf_report_header(s.report);
    if (!status)
        status = all_colls(&s);
    watchdog_stop(&dog);
    const char *error = status ? ring_last_error() : NULL;
    if (error)
        fprintf(stderr, "ring_perf: rank %u: %s: %s\n", (unsigned)rank, ring_status_str(status), error);
    const int64_t reported = perf_report_close(s.report, error);
    perf_run_close(s.run);
    return status || s.wrong || reported ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct perf_options opt;
    ring_comm_t *comm;
    const int early = perf_options_read(&opt, argc, argv);
    if (early)
        return early == 1 ? 0 : 2;
    ring_status_t status = ring_comm_create(&comm);
    if (status) {
        fprintf(stderr, "ring_perf: cannot join the other ranks: %s: %s\n", ring_status_str(status), ring_last_error());
        return 1;
    }
    int code = root_exists(&opt, comm) && output_possible(&opt, comm) ? sweep(&opt, comm) : 2;
    status = ring_comm_destroy(comm);
    if (status && !code) {
        fprintf(stderr, "ring_perf: leaving: %s: %s\n", ring_status_str(status), ring_last_error());
        code = 1;
    }
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "ring_perf: cannot write to standard output\n");
        code = 1;
    }
    return code;
}
