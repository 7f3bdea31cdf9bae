/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - what one compilation of kernels.c exports: a table of functions by element type and operation.
 *
 * Rows of floats have no operations on bits and truth.  Only the plain table has `rest`, with which vector kernels do
 * what is less than a vector: elements from <= i < end of a combination. */
#ifndef RI_KERNELS_H
#define RI_KERNELS_H

#include "lib/reduce/reduce.h"

/* What the build says of a set. */
#ifndef RI_LANES_PLAIN
#define RI_LANES_PLAIN 0
#endif
#ifndef RI_ONLY_BFLOAT16
#define RI_ONLY_BFLOAT16 0
#endif
#ifndef RI_KERNELS_AVX512FP16
#define RI_KERNELS_AVX512FP16 0
#endif

struct ri_kernel {
    ri_reduce_fn *reduce;
    ri_combine_fn *combine;
    ri_divide_fn *divide; /* AVG only */
    void (*rest)(int redop, const struct ri_combine *c, size_t from, size_t end);
};

typedef const struct ri_kernel ri_kernel_table[RI_DTYPES][RI_REDOPS];

extern ri_kernel_table ri_kernels_plain;
extern ri_kernel_table ri_kernels_sse2;
extern ri_kernel_table ri_kernels_avx2;
extern ri_kernel_table ri_kernels_avx512;
extern ri_kernel_table ri_kernels_avx512fp16;
extern ri_kernel_table ri_kernels_neon;
extern ri_kernel_table ri_kernels_neon_fp16;
extern ri_kernel_table ri_kernels_neon_bf16;

#endif
