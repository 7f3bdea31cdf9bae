/* SPDX-License-Identifier: Apache-2.0 */
/* float16.c - sums and products of two float16 operands by instructions that compute in float16.
 *
 * A sum or product of two, rounded to float and then to float16, is the same as rounded once, because float has twice
 * the digits and two more (Figueroa, SIGNUM Newsletter 30(3), 1995); so these give the bits of kernels.c.  More
 * operands are added up in float, and so are kernels.c's: the table has the other cells empty. */
#include "lib/reduce/kernels.h"
#include "lib/reduce/small.h"

__extension__ typedef _Float16 vector __attribute__((vector_size(LANES_BYTES)));
enum { LANES = LANES_BYTES / 2 };

#define KERNEL(op, redop, value)                                                                          \
    static void op(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count)   \
    {                                                                                                     \
        size_t i = 0;                                                                                     \
        for (; count - i >= LANES; i += LANES) {                                                          \
            vector x, y;                                                                                  \
            memcpy(&x, (const uint16_t *)a + i, sizeof x);                                                \
            memcpy(&y, (const uint16_t *)b + i, sizeof y);                                                \
            x = (value);                                                                                  \
            memcpy((uint16_t *)dst + i, &x, sizeof x);                                                    \
        }                                                                                                 \
        if (i < count)                                                                                    \
            ri_kernels_plain[RING_FLOAT16][redop].reduce(r, (uint16_t *)dst + i, (const uint16_t *)a + i, \
                                                         (const uint16_t *)b + i, count - i);             \
    }
KERNEL(sum, RING_SUM, x + y)
KERNEL(prod, RING_PROD, x *y)

ri_kernel_table RI_KERNELS = {
    [RING_FLOAT16] = {[RING_SUM] = {.reduce = sum}, [RING_PROD] = {.reduce = prod}, [RING_AVG] = {.reduce = sum}},
};
