/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_bench.c - all-reduce of an MPI library, measured as ring_perf measures ours: same buffers, same loop, same
 * statistics.  Compiled and run by compare.
 * usage: mpi_bench BYTES ITERATIONS WARMUP COLD; one JSON line comes from rank 0, times in microseconds. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUARD = 4096, LINE = 64, MOST_PAIRS = 16384 };
#define COLD_BYTES ((size_t)96 << 20) /* of each of the two areas */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static char *new_area(size_t bytes)
{
    void *area = NULL;
    if (posix_memalign(&area, GUARD, bytes)) {
        fprintf(stderr, "mpi_bench: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return area;
}

static void fill(char *area, size_t bytes, int rank)
{
    float *x = (float *)area;
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        x[i] = (float)((i + (size_t)rank) % 64);
}

static void report(uint64_t *stamps, size_t iters, int rank, int size)
{
    double v[3] = {(double)(stamps[iters] - stamps[0]) / (double)iters, 0, 0}, sum[3];
    for (size_t i = 0; i < iters; i++)
        stamps[i] = stamps[i + 1] - stamps[i];
    qsort(stamps, iters, sizeof *stamps, by_value);
    v[1] = (double)stamps[iters / 2];
    v[2] = (double)stamps[iters - 1 - iters / 100];
    MPI_Reduce(v, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank)
        printf("{\"time\":%.3f,\"p50\":%.3f,\"p99\":%.3f}\n", sum[0] / size / 1e3, sum[1] / size / 1e3,
               sum[2] / size / 1e3);
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5) {
        fprintf(stderr, "usage: mpi_bench BYTES ITERATIONS WARMUP COLD\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const size_t bytes = strtoull(argv[1], NULL, 10), iters = strtoull(argv[2], NULL, 10);
    const size_t warmup = strtoull(argv[3], NULL, 10), cold = strtoull(argv[4], NULL, 10);
    const size_t stride = 2 * GUARD + (bytes + LINE - 1) / LINE * LINE;
    const size_t area = !cold ? stride : 4 * stride > COLD_BYTES ? 4 * stride : COLD_BYTES;
    const size_t fit = area / stride, pairs = fit > MOST_PAIRS ? MOST_PAIRS : fit;
    const int count = (int)(bytes / sizeof(float));
    char *src = new_area(area), *dst = new_area(area);
    uint64_t *stamps = calloc(iters + 1, sizeof *stamps);
    fill(src, area, rank);
    memset(dst, 0x7b, area);

    for (size_t i = 0; i < warmup; i++)
        MPI_Allreduce(src + i % pairs * stride + GUARD, dst + i % pairs * stride + GUARD, count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    stamps[0] = now();
    for (size_t i = 0; i < iters; i++) {
        const size_t at = (warmup + i) % pairs * stride + GUARD;
        MPI_Allreduce(src + at, dst + at, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        stamps[i + 1] = now();
    }
    const float *x = (const float *)(dst + warmup % pairs * stride + GUARD);
    float expected = 0;
    for (int r = 0; r < size; r++)
        expected += (float)(((warmup % pairs * stride + GUARD) / sizeof(float) + (size_t)r) % 64);
    wrong = count && x[0] != expected;
    if (wrong)
        fprintf(stderr, "mpi_bench: wrong result\n");
    report(stamps, iters, rank, size);
    free(src);
    free(dst);
    free(stamps);
    MPI_Finalize();
    return wrong;
}
