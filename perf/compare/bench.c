/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - a collective of another library, measured as ring_perf measures ours: the same buffers, loop and
 * statistics; of the ranks' figures the largest.  Compiled and run by compare, with one of mpi.c and gloo.cc. usage:
 * bench COLLECTIVE COLD SIZE:ITERATIONS,SIZE:ITERATIONS...; rank 0 prints a line of JSON for each size, times in
 * microseconds; null when the library does not have the collective. */
#include "bench.h"

#include <string.h>

#include "loop.h"

struct areas {
    float *src, *dst;
    size_t bytes;
    uint64_t *stamps;
    size_t *arrays;
    bool cold;
};

static void die(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, LOOP_GUARD, bytes))
        die("no memory");
    memset(p, 0x7b, bytes);
    return p;
}

static const struct perf_coll *coll_named(const char *name)
{
    for (int i = 0; i < PERF_COLLS; i++)
        if (!strcmp(perf_colls[i].name, name))
            return &perf_colls[i];
    die("no such collective");
    return NULL;
}

/* Small whole numbers: no order of a sum rounds. */
static float value(size_t index, uint32_t rank) { return (float)((index * 7 + rank * 13) % 64); }

static float *at(float *area, const struct areas *a, size_t whole, uint64_t turn)
{
    const size_t bytes = whole * sizeof *area, pairs = loop_pairs(a->bytes, bytes, a->cold ? 0 : 1);
    return area + (turn % pairs * loop_stride(bytes) + LOOP_GUARD) / sizeof *area;
}

static void fill(const struct areas *a, const struct perf_case *what, const struct perf_shape *s)
{
    const size_t pairs = loop_pairs(a->bytes, what->whole * sizeof(float), a->cold ? 0 : 1);
    for (size_t k = 0; k < pairs; k++)
        for (size_t i = 0; i < s->sends; i++)
            at(a->src, a, what->whole, k)[i] = value(i, s->rank);
}

static void check(const struct perf_case *what, const struct perf_shape *s, const float *dst)
{
    if (what->coll->coll == RING_BROADCAST && what->root == (int64_t)s->rank)
        return; /* where a library has it in place only, root's dst stays as it was */
    for (uint32_t k = 0; k < perf_pieces(s, what); k++) {
        const struct perf_piece p = perf_piece_of(s, what, k);
        for (size_t i = 0; i < p.count; i++) {
            float expected = value(p.index + i, p.from);
            if (p.reduced)
                expected = 0;
            for (uint32_t r = 0; p.reduced && r < s->size; r++)
                expected += value(p.index + i, r);
            if (dst[p.at + i] < expected || dst[p.at + i] > expected)
                die("a result is wrong");
        }
    }
}

static void print(const struct loop_times *times, size_t size, uint32_t rank)
{
    double v[] = {times->mean, times->p50, times->p99, times->steady}, processor = times->processor;
    peer_largest(v, 4);
    peer_sum(&processor, 1);
    if (!rank)
        printf("{\"size\":%zu,\"time\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"steady\":%.4f,\"processor\":%.3f}\n", size,
               v[0] / 1e3, v[1] / 1e3, v[2] / 1e3, v[3] / 1e3, processor / 1e3);
    fflush(stdout);
}

static struct loop_times measure(const struct areas *a, const struct perf_case *what, uint64_t iters)
{
    const size_t pairs = loop_pairs(a->bytes, what->whole * sizeof(float), a->cold ? 0 : 1);
    const uint64_t warmup = loop_warmup(iters / 10 < 2 ? 2 : iters / 10, pairs, 1);
    struct loop loop;
    peer_barrier();
    uint64_t begun = loop_now();
    for (uint64_t i = 0; i < warmup; i++) {
        if (i == warmup / 2)
            begun = loop_now();
        peer_call(at(a->src, a, what->whole, i), at(a->dst, a, what->whole, i));
    }
    const double estimate = (double)(loop_now() - begun) / (double)(warmup - warmup / 2);
    peer_barrier();
    loop_begin(&loop, a->stamps, iters, estimate);
    for (uint64_t i = 0; i < iters; i++) {
        peer_call(at(a->src, a, what->whole, warmup + i), at(a->dst, a, what->whole, warmup + i));
        loop_tick(&loop);
    }
    return loop_end(&loop);
}

static void one_size(const struct areas *a, struct perf_case *what, size_t size, uint64_t iters, int rank, int ranks)
{
    struct perf_shape shape;
    what->whole = what->coll->coll == RING_BARRIER ? 0 : size / sizeof(float);
    perf_shape_init(&shape, what, (uint32_t)rank, (uint32_t)ranks, a->arrays);
    if (!peer_prepare(what, &shape)) {
        if (!rank)
            printf("null\n");
        return;
    }
    fill(a, what, &shape);
    const struct loop_times times = measure(a, what, iters);
    check(what, &shape, at(a->dst, a, what->whole, 0));
    print(&times, size, (uint32_t)rank);
    peer_done();
}

static void largest(const char *list, size_t *size_out, uint64_t *iters_out)
{
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char *end;
        const size_t size = strtoull(p, &end, 10);
        const uint64_t iters = *end == ':' ? strtoull(end + 1, NULL, 10) : 0;
        if (!iters)
            die("usage: bench COLLECTIVE COLD SIZE:ITERATIONS,...");
        *size_out = size > *size_out ? size : *size_out;
        *iters_out = iters > *iters_out ? iters : *iters_out;
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    peer_open(&argc, &argv, &rank, &ranks);
    if (argc != 4)
        die("usage: bench COLLECTIVE COLD SIZE:ITERATIONS,...");
    struct perf_case what = {.coll = coll_named(argv[1]), .dtype = RING_FLOAT, .redop = RING_SUM, .root = -1};
    struct areas a = {.cold = argv[2][0] == '1'};
    size_t most = 0;
    uint64_t iters = 0;
    largest(argv[3], &most, &iters);
    if (what.coll->rooted)
        what.root = 0;
    a.bytes = loop_area(most, a.cold ? 0 : 1);
    a.src = memory(a.bytes);
    a.dst = memory(a.bytes);
    a.stamps = memory((iters + 1) * sizeof *a.stamps);
    a.arrays = memory(2 * (size_t)ranks * sizeof *a.arrays);
    for (const char *p = argv[3]; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        one_size(&a, &what, strtoull(p, NULL, 10), strtoull(strchr(p, ':') + 1, NULL, 10), rank, ranks);
    peer_close();
    free(a.src);
    free(a.dst);
    free(a.stamps);
    free(a.arrays);
    return 0;
}
