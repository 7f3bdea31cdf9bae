/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the table on standard output, as nccl-tests prints it; rows come out as they are measured. */
#include "perf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct perf_report {
    const struct perf_options *opt;
    ring_comm_t *comm;
    uint32_t size;
    bool terminal;
    uint64_t figures, wrong, checked;
    double bus_sum;
    struct perf_json *json; /* NULL when no file is wanted */
};

double perf_alg_bw(const struct perf_result *x, int place)
{
    const double bytes = (double)(x->shown * ring_dtype_size(x->what.dtype));
    return x->time[place].mean > 0 ? bytes / x->time[place].mean / 1e3 : 0;
}

static void print_columns(void)
{
    printf("#\n# %10s  %12s  %8s  %6s  %6s  %30s  %31s\n", "", "", "", "", "", "out-of-place          ",
           "in-place           ");
    printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int place = 0; place < 2; place++)
        printf("  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    printf("\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int place = 0; place < 2; place++)
        printf("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    printf("\n");
    fflush(stdout);
}

void perf_number_print(double value, int width, char *text, size_t cap)
{
    int digits = 2;
    snprintf(text, cap, "%*.*f", width, digits, value);
    while (digits && (int)strlen(text) > width)
        snprintf(text, cap, "%*.*f", width, --digits, value);
}

static void print_place(const struct perf_report *r, const struct perf_result *x, int place)
{
    char time[32], alg[32], bus[32], wrong[32] = "N/A";
    if (!x->there[place]) {
        printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    perf_number_print(x->time[place].mean, 7, time, sizeof time);
    perf_number_print(perf_alg_bw(x, place), 6, alg, sizeof alg);
    perf_number_print(perf_alg_bw(x, place) * perf_bus_factor(x->what.coll, r->size), 6, bus, sizeof bus);
    if (x->checked)
        snprintf(wrong, sizeof wrong, "%" PRIu64, x->wrong[place]);
    printf("  %s  %s  %s  %6s", time, alg, bus, wrong);
}

static void clear_progress(const struct perf_report *r)
{
    if (r->terminal)
        fprintf(stderr, "\r\033[K");
}

void perf_report_progress(struct perf_report *r, const struct perf_case *what, size_t bytes)
{
    if (!r || !r->terminal)
        return;
    fprintf(stderr, "\r\033[Kmeasuring %s, %zu bytes, %s, %s ...", what->coll->name, bytes, ring_dtype_str(what->dtype),
            what->coll->reduces ? ring_redop_str(what->redop) : "none");
}

void perf_report_row(struct perf_report *r, const struct perf_result *x)
{
    if (!r)
        return;
    const bool typed = x->what.coll->coll != RING_BARRIER;
    clear_progress(r);
    printf("%12zu  %12zu  %8s  %6s  %6" PRId64, x->shown * ring_dtype_size(x->what.dtype), x->shown_count,
           typed ? ring_dtype_str(x->what.dtype) : "none",
           x->what.coll->reduces ? ring_redop_str(x->what.redop) : "none", x->what.root);
    print_place(r, x, 0);
    print_place(r, x, 1);
    printf("\n");
    fflush(stdout);
    if (r->json)
        perf_json_row(r->json, x, r->size);
    r->checked += x->checked;
    for (int place = 0; place < 2; place++) {
        r->wrong += x->wrong[place];
        r->figures += x->there[place];
        r->bus_sum += x->there[place] ? perf_alg_bw(x, place) * perf_bus_factor(x->what.coll, r->size) : 0;
    }
}

/* ---- begin and end ---- */

/* For appending, so that what a run before has left is there until this one has something better.  A pipe is not tried:
 * its reader would see the end. */
bool perf_report_possible(const char *path)
{
    struct stat st;
    if (!stat(path, &st) && S_ISFIFO(st.st_mode))
        return true;
    FILE *file = fopen(path, "a");
    if (!file)
        fprintf(stderr, "ring_perf: -J/--output_file \"%s\" cannot be written: %s\n", path, strerror(errno));
    else
        fclose(file);
    return file != NULL;
}

struct perf_report *perf_report_open(const struct perf_options *opt, ring_comm_t *comm)
{
    struct perf_report *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r =
        (struct perf_report){.opt = opt, .comm = comm, .size = ring_comm_size(comm), .terminal = isatty(STDERR_FILENO)};
    if (opt->json)
        r->json = perf_json_open(opt);
    if (opt->json && !r->json) {
        free(r);
        return NULL;
    }
    return r;
}

ring_status_t perf_report_header(struct perf_report *r)
{
    ring_status_t status = RING_OK;
    if (!r)
        return RING_OK;
    const struct perf_options *o = r->opt;
    printf("# ring_perf, libring %s\n# Collective test starting: %s_perf\n", ring_version(), o->name);
    printf("# nThread 1 minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64 "(%s) warmup iters: %" PRIu64
           " iters: %" PRIu64 " agg iters: %" PRIu64 " validation: %" PRIu64 " cold: %" PRIu64 "\n#\n# Using ranks\n",
           o->min_bytes, o->max_bytes, o->step_factor ? o->step_factor : o->step_bytes,
           o->step_factor ? "factor" : "bytes", o->warmup, o->iters, o->group, o->checks, o->cold);
    if (r->json)
        perf_json_config(r->json, r->comm);
    for (uint32_t i = 0; i < r->size && !status; i++) {
        ring_peer_t peer;
        status = ring_comm_peer(r->comm, i, &peer);
        if (status)
            continue;
        printf("#  Rank %2" PRIu32 " Group  0 Pid %6" PRId32 " on %10s node %2" PRIu32 " local rank %2" PRIu32 "\n", i,
               peer.pid, peer.host, peer.node, peer.local_rank);
        if (r->json)
            perf_json_peer(r->json, &peer);
    }
    print_columns();
    return status;
}

void perf_report_coll(struct perf_report *r, const struct perf_coll *coll)
{
    if (!r || !(r->opt->colls & (r->opt->colls - 1)))
        return;
    clear_progress(r);
    printf("# %s\n", coll->name);
}

int64_t perf_report_close(struct perf_report *r, const char *error)
{
    if (!r)
        return 0;
    const double average = r->figures ? r->bus_sum / (double)r->figures : 0;
    int64_t result = r->wrong > INT64_MAX ? INT64_MAX : (int64_t)r->wrong;
    clear_progress(r);
    if (!error) {
        if (r->checked)
            printf("# Out of bounds values : %" PRIu64 " %s\n", r->wrong, r->wrong ? "FAILED" : "OK");
        else
            printf("# Out of bounds values : N/A, no result was checked%s\n", r->opt->checks ? "" : " (-c 0)");
        printf("# Avg bus bandwidth    : %g\n#\n", average);
        printf("# Collective test concluded: %s_perf\n", r->opt->name);
        fflush(stdout);
    }
    if (r->json)
        result = perf_json_close(r->json, r->checked ? result : -1, average, error) ? result : -1;
    free(r);
    return result;
}
