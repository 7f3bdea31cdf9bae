/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - what one compilation of kernels.c exports: a table of functions by element type and operation. */
#ifndef RI_KERNELS_H
#define RI_KERNELS_H

#include "lib/reduce/reduce.h"

struct ri_kernel {
    ri_reduce_fn *reduce;
    ri_combine_fn *combine;
    ri_divide_fn *divide; /* AVG only */
};

typedef const struct ri_kernel ri_kernel_table[RI_DTYPES][RI_REDOPS];

extern ri_kernel_table ri_kernels_plain;
extern ri_kernel_table ri_kernels_avx2;
extern ri_kernel_table ri_kernels_avx512;

#endif
