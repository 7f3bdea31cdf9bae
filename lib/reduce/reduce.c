/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - which compilation of the kernels this processor runs.  Constant after start; any thread. */
#include "lib/reduce/reduce.h"

#include "lib/reduce/kernels.h"

static bool always(void) { return true; }

#if RI_KERNELS_X86
static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/* Each set needs what the ones before it need, so those that run are the first ones. */
static const struct {
    const char *name;
    bool (*runs)(void);
    ri_kernel_table *table;
} sets[] = {
    {"plain", always, &ri_kernels_plain},
#if RI_KERNELS_X86
    {"avx2", has_avx2, &ri_kernels_avx2},
    {"avx512", has_avx512, &ri_kernels_avx512},
#endif
};

size_t ri_kernel_sets(void)
{
    size_t n = 0;
    while (n < sizeof sets / sizeof *sets && sets[n].runs())
        n++;
    return n;
}

const char *ri_kernel_set_name(size_t set) { return set < sizeof sets / sizeof *sets ? sets[set].name : NULL; }

struct ri_reduction ri_reduction_from(size_t set, ring_dtype_t dtype, ring_redop_t redop)
{
    const struct ri_kernel *k = &(*sets[set].table)[dtype][redop];
    return (struct ri_reduction){.reduce = k->reduce,
                                 .combine = k->combine,
                                 .divide = k->divide,
                                 .esize = (uint32_t)ri_dtype_size(dtype),
                                 .dtype = dtype};
}

struct ri_reduction ri_reduction_for(ring_dtype_t dtype, ring_redop_t redop)
{
    return ri_reduction_from(ri_kernel_sets() - 1, dtype, redop);
}
