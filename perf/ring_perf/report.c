/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the table on standard output, as nccl-tests prints it, and the same as a JSON file.
 *
 * Rows come out as they are measured; the JSON text is kept in memory and written at the end, under another name first,
 * so that a reader never sees half of it. */
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
    uint64_t rows, wrong;
    double bus_sum; /* of two figures a row */
    char *json;
    size_t json_len;
    FILE *stream; /* into json; NULL when no file is wanted */
};

/* ---- JSON ---- */

static void json_text(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p >= 0x7f)
            fprintf(out, "\\u%04x", *p);
        else
            putc(*p, out);
    putc('"', out);
}

static void json_names(FILE *out, uint64_t bits, bool dtypes)
{
    const char *comma = "";
    putc('[', out);
    for (int i = 0; i < 64; i++) {
        if (!(bits >> i & 1))
            continue;
        fputs(comma, out);
        json_text(out, dtypes ? ring_dtype_str((ring_dtype_t)i) : ring_redop_str((ring_redop_t)i));
        comma = ",";
    }
    putc(']', out);
}

static void json_config(const struct perf_report *r)
{
    const struct perf_options *o = r->opt;
    static const char *const averages[] = {"rank0", "mean", "min", "max"};
    FILE *out = r->stream;
    fputs("{\"config\":{\"version\":", out);
    json_text(out, ring_version());
    fputs(",\"collective\":", out);
    json_text(out, ring_coll_str(o->coll));
    fprintf(out, ",\"ranks\":%" PRIu32 ",\"nodes\":%" PRIu32, r->size, ring_comm_node_count(r->comm));
    fprintf(out,
            ",\"min_bytes\":%" PRIu64 ",\"max_bytes\":%" PRIu64 ",\"step_bytes\":%" PRIu64 ",\"step_factor\":%" PRIu64,
            o->min_bytes, o->max_bytes, o->step_bytes, o->step_factor);
    fprintf(out, ",\"iters\":%" PRIu64 ",\"warmup_iters\":%" PRIu64 ",\"check\":%" PRIu64 ",\"cold\":%s", o->iters,
            o->warmup, o->checks, o->cold ? "true" : "false");
    fprintf(out, ",\"average\":\"%s\",\"types\":", averages[o->average]);
    json_names(out, o->dtypes, true);
    fputs(",\"redops\":", out);
    json_names(out, o->redops, false);
    fputs("},\"devices\":[", out);
}

static void json_peer(const struct perf_report *r, const ring_peer_t *peer)
{
    fprintf(r->stream, "%s{\"rank\":%" PRIu32 ",\"pid\":%" PRId32 ",\"host\":", peer->rank ? "," : "", peer->rank,
            peer->pid);
    json_text(r->stream, peer->host);
    fprintf(r->stream, ",\"node\":%" PRIu32 ",\"local_rank\":%" PRIu32 "}", peer->node, peer->local_rank);
}

/* GB/s (1e9) of algorithm bandwidth; 0 for what took no measurable time. */
static double alg_bw(const struct perf_result *x, int place)
{
    const double bytes = (double)(x->what.count * ring_dtype_size(x->what.dtype));
    return x->time[place].mean > 0 ? bytes / x->time[place].mean / 1e3 : 0;
}

/* The share of the buffer that each rank must send at least; one row for each collective. */
static double bus_factor(ring_coll_t coll, uint32_t size)
{
    const double n = (double)size;
    const double factors[] = {[RING_ALL_REDUCE] = 2 * (n - 1) / n};
    return factors[coll];
}

static void json_place(const struct perf_report *r, const struct perf_result *x, int place)
{
    const double alg = alg_bw(x, place);
    fprintf(r->stream,
            "{\"time\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"alg_bw\":%.6g,\"bus_bw\":%.6g,\"nwrong\":", x->time[place].mean,
            x->time[place].p50, x->time[place].p99, alg, alg * bus_factor(x->what.coll, r->size));
    if (x->checked)
        fprintf(r->stream, "%" PRIu64 "}", x->wrong[place]);
    else
        fputs("null}", r->stream);
}

static void json_row(const struct perf_report *r, const struct perf_result *x)
{
    FILE *out = r->stream;
    fprintf(out, "%s\n{\"size\":%zu,\"count\":%zu,\"type\":", r->rows ? "," : "",
            x->what.count * ring_dtype_size(x->what.dtype), x->what.count);
    json_text(out, ring_dtype_str(x->what.dtype));
    fputs(",\"redop\":", out);
    json_text(out, ring_redop_str(x->what.redop));
    fprintf(out, ",\"root\":%" PRId32 ",\"transport\":", x->what.root);
    json_text(out, x->choice.transport);
    fputs(",\"algorithm\":", out);
    json_text(out, x->choice.algorithm);
    fputs(",\"out_of_place\":", out);
    json_place(r, x, 0);
    fputs(",\"in_place\":", out);
    json_place(r, x, 1);
    putc('}', out);
}

/* Into the file itself, not renamed onto it: the name may be a device, a pipe or a link. */
static bool json_save(struct perf_report *r)
{
    if (fclose(r->stream))
        return false;
    FILE *file = fopen(r->opt->json, "w");
    bool ok = file && fwrite(r->json, 1, r->json_len, file) == r->json_len;
    if (file && fclose(file))
        ok = false;
    if (!ok)
        fprintf(stderr, "ring_perf: cannot write \"%s\": %s\n", r->opt->json, strerror(errno));
    return ok;
}

/* ---- the table ---- */

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
    perf_number_print(x->time[place].mean, 7, time, sizeof time);
    perf_number_print(alg_bw(x, place), 6, alg, sizeof alg);
    perf_number_print(alg_bw(x, place) * bus_factor(x->what.coll, r->size), 6, bus, sizeof bus);
    if (x->checked)
        snprintf(wrong, sizeof wrong, "%" PRIu64, x->wrong[place]);
    printf("  %s  %s  %s  %6s", time, alg, bus, wrong);
}

static void clear_progress(const struct perf_report *r)
{
    if (r->terminal)
        fprintf(stderr, "\r\033[K");
}

void perf_report_progress(struct perf_report *r, const struct perf_case *what, const char *doing)
{
    if (!r || !r->terminal)
        return;
    fprintf(stderr, "\r\033[K%s %zu bytes, %s, %s ...", doing, what->count * ring_dtype_size(what->dtype),
            ring_dtype_str(what->dtype), ring_redop_str(what->redop));
}

void perf_report_row(struct perf_report *r, const struct perf_result *x)
{
    if (!r)
        return;
    clear_progress(r);
    printf("%12zu  %12zu  %8s  %6s  %6" PRId32, x->what.count * ring_dtype_size(x->what.dtype), x->what.count,
           ring_dtype_str(x->what.dtype), ring_redop_str(x->what.redop), x->what.root);
    print_place(r, x, 0);
    print_place(r, x, 1);
    printf("\n");
    fflush(stdout);
    if (r->stream)
        json_row(r, x);
    r->rows++;
    for (int place = 0; place < 2; place++) {
        r->wrong += x->wrong[place];
        r->bus_sum += alg_bw(x, place) * bus_factor(x->what.coll, r->size);
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
        r->stream = open_memstream(&r->json, &r->json_len);
    if (opt->json && !r->stream) {
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
    printf("# ring_perf, libring %s\n# Collective test starting: %s_perf\n", ring_version(), ring_coll_str(o->coll));
    printf("# nThread 1 minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64 "(%s) warmup iters: %" PRIu64
           " iters: %" PRIu64 " agg iters: 1 validation: %" PRIu64 " cold: %" PRIu64 "\n#\n# Using ranks\n",
           o->min_bytes, o->max_bytes, o->step_factor ? o->step_factor : o->step_bytes,
           o->step_factor ? "factor" : "bytes", o->warmup, o->iters, o->checks, o->cold);
    if (r->stream)
        json_config(r);
    for (uint32_t i = 0; i < r->size && !status; i++) {
        ring_peer_t peer;
        status = ring_comm_peer(r->comm, i, &peer);
        if (status)
            continue;
        printf("#  Rank %2" PRIu32 " Group  0 Pid %6" PRId32 " on %10s node %2" PRIu32 " local rank %2" PRIu32 "\n", i,
               peer.pid, peer.host, peer.node, peer.local_rank);
        if (r->stream)
            json_peer(r, &peer);
    }
    if (r->stream)
        fputs("],\"results\":[", r->stream);
    print_columns();
    return status;
}

int64_t perf_report_close(struct perf_report *r, const char *error)
{
    if (!r)
        return 0;
    const double average = r->rows ? r->bus_sum / (2 * (double)r->rows) : 0;
    int64_t result = r->wrong > INT64_MAX ? INT64_MAX : (int64_t)r->wrong;
    clear_progress(r);
    if (!error) {
        if (r->opt->checks)
            printf("# Out of bounds values : %" PRIu64 " %s\n", r->wrong, r->wrong ? "FAILED" : "OK");
        else
            printf("# Out of bounds values : N/A, no result was checked (-c 0)\n");
        printf("# Avg bus bandwidth    : %g\n#\n", average);
        printf("# Collective test concluded: %s_perf\n", ring_coll_str(r->opt->coll));
        fflush(stdout);
    }
    if (r->stream) {
        fputs("],\n\"out_of_bounds\":", r->stream);
        if (r->opt->checks)
            fprintf(r->stream, "%" PRIu64, r->wrong);
        else
            fputs("null", r->stream);
        fprintf(r->stream, ",\"average_bus_bandwidth\":%.6g,\"error\":", average);
        if (error)
            json_text(r->stream, error);
        else
            fputs("null", r->stream);
        fputs("}\n", r->stream);
        result = json_save(r) ? result : -1;
    }
    free(r->json);
    free(r);
    return result;
}
