/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the results as a JSON file: what was asked for, who took part, and a member for each row of the table.
 *
 * The text is kept in memory and written at the end, into the file itself, not renamed onto it: the name may be a
 * device, a pipe or a link. */
#include "perf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct perf_json {
    const struct perf_options *opt;
    uint64_t peers, rows;
    char *text;
    size_t len;
    FILE *out; /* into text */
};

static void put_text(FILE *out, const char *text)
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

static void put_member(FILE *out, const char *name, const char *text)
{
    fprintf(out, ",\"%s\":", name);
    put_text(out, text);
}

static void put_names(FILE *out, const char *name, uint64_t bits, bool dtypes)
{
    const char *comma = "";
    fprintf(out, ",\"%s\":[", name);
    for (int i = 0; i < 64; i++) {
        if (!(bits >> i & 1))
            continue;
        fputs(comma, out);
        put_text(out, dtypes ? ring_dtype_str((ring_dtype_t)i) : ring_redop_str((ring_redop_t)i));
        comma = ",";
    }
    putc(']', out);
}

struct perf_json *perf_json_open(const struct perf_options *opt)
{
    struct perf_json *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->opt = opt;
    j->out = open_memstream(&j->text, &j->len);
    if (j->out)
        return j;
    free(j);
    return NULL;
}

static const char *way(const struct perf_options *o)
{
    return o->persistent ? "persistent" : o->start ? "started" : o->group > 1 ? "group" : "blocking";
}

void perf_json_config(struct perf_json *j, const ring_comm_t *comm)
{
    static const char *const averages[] = {"rank0", "mean", "min", "max"};
    static const char *const memories[] = {"malloc", "registered", "alloc"};
    const struct perf_options *o = j->opt;
    FILE *out = j->out;
    fputs("{\"config\":{\"version\":", out);
    put_text(out, ring_version());
    put_member(out, "collective", o->name);
    fprintf(out, ",\"ranks\":%" PRIu32 ",\"nodes\":%" PRIu32, ring_comm_size(comm), ring_comm_node_count(comm));
    fprintf(out,
            ",\"min_bytes\":%" PRIu64 ",\"max_bytes\":%" PRIu64 ",\"step_bytes\":%" PRIu64 ",\"step_factor\":%" PRIu64,
            o->min_bytes, o->max_bytes, o->step_bytes, o->step_factor);
    fprintf(out, ",\"iters\":%" PRIu64 ",\"warmup_iters\":%" PRIu64 ",\"check\":%" PRIu64 ",\"cold\":%s", o->iters,
            o->warmup, o->checks, o->cold ? "true" : "false");
    fprintf(out, ",\"buffers\":%" PRIu64 ",\"group\":%" PRIu64, o->buffers, o->group);
    put_member(out, "memory", memories[o->memory]);
    put_member(out, "way", way(o));
    put_member(out, "average", averages[o->average]);
    put_names(out, "types", o->dtypes, true);
    put_names(out, "redops", o->redops, false);
    fputs("},\"devices\":[", out);
}

void perf_json_peer(struct perf_json *j, const ring_peer_t *peer)
{
    fprintf(j->out, "%s{\"rank\":%" PRIu32 ",\"pid\":%" PRId32, j->peers++ ? "," : "", peer->rank, peer->pid);
    put_member(j->out, "host", peer->host);
    fprintf(j->out, ",\"node\":%" PRIu32 ",\"local_rank\":%" PRIu32 "}", peer->node, peer->local_rank);
}

static void put_place(FILE *out, const struct perf_result *x, int place, uint32_t size)
{
    const struct perf_time *t = &x->time[place];
    const double alg = perf_alg_bw(x, place);
    if (!x->there[place]) {
        fputs("null", out);
        return;
    }
    fprintf(out, "{\"time\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"steady\":%.4f,\"processor\":%.3f", t->mean, t->p50, t->p99,
            t->steady, t->processor);
    fprintf(out, ",\"alg_bw\":%.6g,\"bus_bw\":%.6g,\"nwrong\":", alg, alg * perf_bus_factor(x->what.coll, size));
    if (x->checked)
        fprintf(out, "%" PRIu64 "}", x->wrong[place]);
    else
        fputs("null}", out);
}

void perf_json_row(struct perf_json *j, const struct perf_result *x, uint32_t size)
{
    FILE *out = j->out;
    fputs(j->rows++ ? "," : j->peers ? "],\"results\":[" : "", out);
    fprintf(out, "\n{\"size\":%zu,\"count\":%zu", x->shown * ring_dtype_size(x->what.dtype), x->shown_count);
    put_member(out, "collective", x->what.coll->name);
    put_member(out, "type", ring_dtype_str(x->what.dtype));
    put_member(out, "redop", x->what.coll->reduces ? ring_redop_str(x->what.redop) : "none");
    fprintf(out, ",\"root\":%" PRId64, x->what.root);
    put_member(out, "transport", x->choice.transport);
    put_member(out, "algorithm", x->choice.algorithm);
    fputs(",\"out_of_place\":", out);
    put_place(out, x, 0, size);
    fputs(",\"in_place\":", out);
    put_place(out, x, 1, size);
    putc('}', out);
}

bool perf_json_close(struct perf_json *j, int64_t wrong, double average, const char *error)
{
    fputs(j->rows ? "]" : "],\"results\":[]", j->out);
    fputs(",\n\"out_of_bounds\":", j->out);
    if (wrong >= 0)
        fprintf(j->out, "%" PRId64, wrong);
    else
        fputs("null", j->out);
    fprintf(j->out, ",\"average_bus_bandwidth\":%.6g", average);
    if (error)
        put_member(j->out, "error", error);
    else
        fputs(",\"error\":null", j->out);
    fputs("}\n", j->out);
    const bool whole = !fclose(j->out);
    FILE *file = whole ? fopen(j->opt->json, "w") : NULL;
    bool ok = file && fwrite(j->text, 1, j->len, file) == j->len;
    if (file && fclose(file))
        ok = false;
    if (!ok)
        fprintf(stderr, "ring_perf: cannot write \"%s\": %s\n", j->opt->json, strerror(errno));
    free(j->text);
    free(j);
    return ok;
}
