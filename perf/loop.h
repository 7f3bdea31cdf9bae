/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - what every program that measures a collective does alike, ours and those of the peers: how buffers are laid
 * out and gone round, how blocks differ in the variable-count forms, when the clock is read, and what is made of it.
 *
 * All ranks leave a barrier and run one loop of iterations; each rank's figures then become one (the programs take the
 * largest of the ranks).  The clock is read after every operation, or after every sixteenth when an operation is so
 * short that reading a clock would be a part of the figure; p50 and p99 are then over means of sixteen.
 * C and C++; no library but libc; one thread. */
#ifndef RING_PERF_LOOP_H
#define RING_PERF_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum {
    LOOP_GUARD = 4096, /* bytes on both sides of a buffer */
    LOOP_LINE = 64,
    LOOP_PAIRS_MAX = 16384,
    LOOP_COLD_PAIRS_MIN = 4,
    LOOP_BLOCKS = 15,
    LOOP_SHORT_NS = 2000,
    LOOP_SHORT_OPS = 16
};
#define LOOP_COLD_BYTES ((size_t)96 << 20) /* of each area: together more than the caches that matter here */

/* ---- buffers: an area of src and one of dst, cut into pairs, each buffer between two guards ---- */

static inline size_t loop_stride(size_t bytes)
{
    return 2 * LOOP_GUARD + (bytes + LOOP_LINE - 1) / LOOP_LINE * LOOP_LINE;
}

/* Bytes of an area for buffers of up to `most`: for `pairs` of them, or enough that they leave the caches (0). */
static inline size_t loop_area(size_t most, size_t pairs)
{
    const size_t stride = loop_stride(most), least = LOOP_COLD_PAIRS_MIN * stride;
    return pairs ? pairs * stride : least > LOOP_COLD_BYTES ? least : LOOP_COLD_BYTES;
}

static inline size_t loop_pairs(size_t area, size_t bytes, size_t pairs)
{
    const size_t fit = area / loop_stride(bytes);
    return pairs ? pairs : fit > LOOP_PAIRS_MAX ? (size_t)LOOP_PAIRS_MAX : fit;
}

/* Operations before the timed ones: with several pairs each has been used once by then, so that what the first use of
 * memory costs (page faults, mappings) is in no figure. */
static inline uint64_t loop_warmup(uint64_t wanted, size_t pairs, uint64_t pairs_in_one)
{
    const uint64_t all = (pairs + pairs_in_one - 1) / pairs_in_one;
    return pairs > 1 && wanted < all ? all : wanted;
}

/* ---- blocks of the variable-count forms: one, two, three, one, two, ... shares of the whole ---- */

static inline size_t loop_shares(size_t blocks) { return blocks / 3 * 6 + (blocks % 3 == 2 ? 3 : blocks % 3); }

static inline size_t loop_block(size_t whole, size_t blocks, size_t block)
{
    const size_t shares = loop_shares(blocks), mine = 1 + block % 3;
    return whole / shares * mine + whole % shares * mine / shares;
}

/* ---- time ---- */

static inline uint64_t loop_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Processor time of this process with all its threads, in nanoseconds. */
static inline double loop_processor(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return ((double)r.ru_utime.tv_sec + (double)r.ru_stime.tv_sec) * 1e9 +
           ((double)r.ru_utime.tv_usec + (double)r.ru_stime.tv_usec) * 1e3;
}

struct loop {
    uint64_t *stamps; /* room for iters + 1 */
    uint64_t iters, every, left, taken;
    double processor;
};

/* Nanoseconds for one operation.  steady: the median over up to fifteen equal parts of the loop of the mean in each; it
 * forgets what a busy machine did in a few parts, and is right where operations of a loop overlap. */
struct loop_times {
    double mean, p50, p99, steady, processor;
};
enum { LOOP_FIGURES = sizeof(struct loop_times) / sizeof(double) };

/* After the barrier.  estimate: what an operation took while warming up, in nanoseconds; 0: not known. */
static inline void loop_begin(struct loop *l, uint64_t *stamps, uint64_t iters, double estimate)
{
    const int brief = estimate > 0 && estimate < LOOP_SHORT_NS && iters >= 8 * LOOP_SHORT_OPS;
    l->stamps = stamps;
    l->every = brief ? (uint64_t)LOOP_SHORT_OPS : 1;
    l->iters = iters;
    l->left = l->every;
    l->taken = 0;
    l->processor = loop_processor();
    stamps[0] = loop_now();
}

/* After each operation. */
static inline void loop_tick(struct loop *l)
{
    if (--l->left)
        return;
    l->stamps[++l->taken] = loop_now();
    l->left = l->every;
}

static inline int loop_by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static inline double loop_steady(const struct loop *l)
{
    const uint64_t n = l->taken, parts = n < LOOP_BLOCKS ? n : (uint64_t)LOOP_BLOCKS;
    uint64_t took[LOOP_BLOCKS];
    for (uint64_t k = 0; k < parts; k++) {
        const uint64_t from = n * k / parts, to = n * (k + 1) / parts;
        took[k] = (l->stamps[to] - l->stamps[from]) * 16 / (to - from);
    }
    qsort(took, parts, sizeof *took, loop_by_value);
    return (double)took[parts / 2] / 16 / (double)l->every;
}

/* After the last operation; the stamps are used up. */
static inline struct loop_times loop_end(struct loop *l)
{
    const uint64_t n = l->taken, ops = n * l->every;
    uint64_t *t = l->stamps;
    struct loop_times times;
    times.processor = (loop_processor() - l->processor) / (double)l->iters;
    times.mean = (double)(t[n] - t[0]) / (double)ops;
    times.steady = loop_steady(l);
    for (uint64_t i = 0; i < n; i++)
        t[i] = t[i + 1] - t[i];
    qsort(t, n, sizeof *t, loop_by_value);
    times.p50 = (double)t[n / 2] / (double)l->every;
    times.p99 = (double)t[n - 1 - n / 100] / (double)l->every;
    return times;
}

#endif
