/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_cost.c - how fast every kernel is: each set, element type and operation, in one run.
 *
 *     reduce_cost [WORD...]      only rows that contain every word, e.g. reduce_cost avx2 float16 sum
 *
 * Columns: two operands to one result (reduce), near (all in the first-level cache) and far (more than the last cache
 * holds); the same far with results past the caches; and two operands to two results, far, both ways.  GB/s count the
 * bytes of all operands and results.  The median of a few rounds; compare rows of one run.  Run by "meson test
 * --benchmark"; prints, and fails only for want of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/reduce/reduce.h"

enum { ROUNDS = 5, NEAR = 8 << 10, NEAR_TIMES = 200 };
enum { LEAST_FAR = 16 << 20, MOST_FAR = 128 << 20 };

static unsigned char *memory[4]; /* two operands, two results */
static size_t far_bytes;

enum column { REDUCE_NEAR, REDUCE_FAR, REDUCE_STREAM, TWICE_FAR, TWICE_STREAM, COLUMNS };
static const char *const titles[COLUMNS] = {"near", "far", "far past", "two far", "two past"};

static void once(const struct ri_reduction *r, enum column column)
{
    const size_t bytes = column == REDUCE_NEAR ? NEAR : far_bytes;
    const void *from[] = {memory[0], memory[1]};
    void *to[] = {memory[2], memory[3]};
    const struct ri_combine c = {.from = from,
                                 .to = to,
                                 .n = 2,
                                 .outs = column >= TWICE_FAR ? 2 : 1,
                                 .count = bytes / r->esize,
                                 .stream = column == REDUCE_STREAM || column == TWICE_STREAM};
    for (int i = 0; i < (column == REDUCE_NEAR ? NEAR_TIMES : 1); i++) {
        if (column <= REDUCE_FAR)
            r->reduce(r, to[0], from[0], from[1], c.count);
        else
            r->combine(r, &c);
    }
}

/* Of this thread on a processor: others that want it too do not count, as far as they leave the caches alone. */
static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double speed(const struct ri_reduction *r, enum column column)
{
    uint64_t took[ROUNDS];
    once(r, column);
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t from = now();
        once(r, column);
        took[i] = now() - from;
    }
    qsort(took, ROUNDS, sizeof *took, by_size);
    const double bytes = column == REDUCE_NEAR ? (double)NEAR * NEAR_TIMES : (double)far_bytes;
    return bytes * (column >= TWICE_FAR ? 4 : 3) / (double)(took[ROUNDS / 2] ? took[ROUNDS / 2] : 1);
}

static void row(size_t set, ring_dtype_t dtype, ring_redop_t redop, int words, char **word)
{
    char name[80];
    const struct ri_reduction r = ri_reduction_from(set, dtype, redop);
    snprintf(name, sizeof name, "%-11s %-12s %-5s", ri_kernel_set_name(set), ri_dtype_name(dtype),
             ri_redop_name(redop));
    for (int i = 0; i < words; i++) {
        char padded[90], spaced[90];
        snprintf(padded, sizeof padded, " %s ", name);
        snprintf(spaced, sizeof spaced, " %s ", word[i]);
        if (!strstr(padded, spaced))
            return;
    }
    printf("%s", name);
    for (int column = 0; column < COLUMNS; column++)
        printf("  %8.2f", speed(&r, (enum column)column));
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    /* All four buffers together are several times the last cache. */
    far_bytes = ri_cache_bytes() < LEAST_FAR ? LEAST_FAR : ri_cache_bytes() > MOST_FAR ? MOST_FAR : ri_cache_bytes();
    for (int i = 0; i < 4; i++) {
        if (!(memory[i] = aligned_alloc(4096, far_bytes)))
            return fprintf(stderr, "reduce_cost: no memory for %zu bytes\n", far_bytes), 1;
        memset(memory[i], 0x3c, far_bytes); /* about 1 in the floats of 16 and 8 bits, subnormal in none */
    }
    printf("GB/s; the last cache has %zu KiB, far buffers have %zu KiB each\n", ri_cache_bytes() >> 10,
           far_bytes >> 10);
    printf("%-11s %-12s %-5s", "set", "type", "op");
    for (int column = 0; column < COLUMNS; column++)
        printf("  %8s", titles[column]);
    printf("\n");
    for (unsigned dtype = 0; dtype < RI_DTYPES; dtype++)
        for (unsigned redop = 0; redop < RI_REDOPS; redop++)
            for (size_t set = 0; set < ri_kernel_sets(); set++)
                if (redop != RING_AVG && ri_redop_fits((ring_dtype_t)dtype, (ring_redop_t)redop))
                    row(set, (ring_dtype_t)dtype, (ring_redop_t)redop, argc - 1, argv + 1);
    return 0;
}
