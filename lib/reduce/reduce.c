/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - which compilation of the kernels this processor runs.  Constant after start; any thread. */
#include "lib/reduce/reduce.h"

#include <stdatomic.h>

#include "lib/reduce/kernels.h"

static bool always(void) { return true; }

#if defined(__x86_64__)
#include <cpuid.h>

/* Of features that __builtin_cpu_supports() of some compilers does not know. */
static bool has_bit(unsigned leaf, unsigned reg, unsigned bit)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(leaf, 0, &r[0], &r[1], &r[2], &r[3]) && r[reg] >> bit & 1;
}
enum { ECX = 2, EDX = 3 };

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && has_bit(1, ECX, 29 /* F16C */); }

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#if RI_KERNELS_AVX512FP16
static bool has_avx512fp16(void) { return has_bit(7, EDX, 23); }
#endif
#elif defined(__aarch64__)
#include <sys/auxv.h>

static bool has_neon_fp16(void) { return getauxval(AT_HWCAP) & (1UL << 10 /* HWCAP_ASIMDHP */); }
static bool has_neon_bf16(void) { return getauxval(AT_HWCAP2) & (1UL << 14 /* HWCAP2_BF16 */); }
#endif

/* Each set needs what the ones before it need, so those that run are the first ones.  What a set leaves empty is as in
 * the set before it. */
static const struct {
    const char *name;
    bool (*runs)(void);
    ri_kernel_table *table;
} sets[] = {
    {"plain", always, &ri_kernels_plain},
#if defined(__x86_64__)
    {"sse2", always, &ri_kernels_sse2},
    {"avx2", has_avx2, &ri_kernels_avx2},
    {"avx512", has_avx512, &ri_kernels_avx512},
#if RI_KERNELS_AVX512FP16
    {"avx512fp16", has_avx512fp16, &ri_kernels_avx512fp16},
#endif
#elif defined(__aarch64__)
    {"neon", always, &ri_kernels_neon},
    {"neon_fp16", has_neon_fp16, &ri_kernels_neon_fp16},
    {"neon_bf16", has_neon_bf16, &ri_kernels_neon_bf16},
#endif
};

/* Asked once: a virtual machine's host answers what a processor can, and takes tens of microseconds for it.  Threads that
 * ask at the same time find the same. */
size_t ri_kernel_sets(void)
{
    static _Atomic size_t known;
    size_t n = atomic_load_explicit(&known, memory_order_relaxed);
    if (n)
        return n;
    while (n < sizeof sets / sizeof *sets && sets[n].runs())
        n++;
    atomic_store_explicit(&known, n, memory_order_relaxed);
    return n;
}

const char *ri_kernel_set_name(size_t set) { return set < sizeof sets / sizeof *sets ? sets[set].name : NULL; }

struct ri_reduction ri_reduction_from(size_t set, ring_dtype_t dtype, ring_redop_t redop)
{
    struct ri_kernel k = {0};
    for (size_t left = set + 1; left-- && !(k.reduce && k.combine);) {
        const struct ri_kernel *cell = &(*sets[left].table)[dtype][redop];
        k.reduce = k.reduce ? k.reduce : cell->reduce;
        k.combine = k.combine ? k.combine : cell->combine;
        k.divide = k.divide ? k.divide : cell->divide;
    }
    return (struct ri_reduction){.reduce = k.reduce,
                                 .combine = k.combine,
                                 .divide = k.divide,
                                 .esize = (uint32_t)ri_dtype_size(dtype),
                                 .dtype = dtype,
                                 .redop = redop};
}

struct ri_reduction ri_reduction_for(ring_dtype_t dtype, ring_redop_t redop)
{
    return ri_reduction_from(ri_kernel_sets() - 1, dtype, redop);
}
