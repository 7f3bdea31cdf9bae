/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the loops that reduce, written once in plain C and compiled once per instruction set.
 *
 * RI_KERNELS is the table's name, given by the build.  The compiler vectorises; the text has no intrinsics, so that
 * every set computes the same thing: one operation per element in the order of the arguments, no contraction, no
 * reassociation. Integers wrap: they are computed in an unsigned type of at least 32 bits, because promotion to int
 * would overflow. Minimum and maximum of a NaN is the one NaN of the compiler, so that its bits do not depend on how a
 * loop was compiled. Cost: loads two and stores one element.  Any thread; no state. */
#include "lib/reduce/kernels.h"

#include <string.h>

/* dst may be equal to a source, so no iteration depends on another: without this the in-place case would be scalar. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Buffers come as void and pass through byte arrays in shared memory. */
#define ELEMENT(T) typedef T __attribute__((may_alias)) m_##T
ELEMENT(int8_t);
ELEMENT(uint8_t);
ELEMENT(int16_t);
ELEMENT(uint16_t);
ELEMENT(int32_t);
ELEMENT(uint32_t);
ELEMENT(int64_t);
ELEMENT(uint64_t);
ELEMENT(float);
ELEMENT(double);

#define KERNEL(T, op, value)                                                                                         \
    static void op##_##T(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count)        \
    {                                                                                                                \
        m_##T *d = dst;                                                                                              \
        const m_##T *as = a, *bs = b;                                                                                \
        (void)r;                                                                                                     \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                                               \
        {                                                                                                            \
            const T x = as[i], y = bs[i];                                                                            \
            d[i] = (value);                                                                                          \
        }                                                                                                            \
    }

#define DIVISION(T, value)                                   \
    static void div_##T(void *dst, size_t count, uint32_t n) \
    {                                                        \
        m_##T *d = dst;                                      \
        for (size_t i = 0; i < count; i++) {                 \
            const T x = d[i];                                \
            d[i] = (value);                                  \
        }                                                    \
    }

/* W: the type to compute in. */
#define INTEGER(T, W)                 \
    KERNEL(T, sum, (T)((W)x + (W)y))  \
    KERNEL(T, prod, (T)((W)x * (W)y)) \
    KERNEL(T, min, x < y ? x : y)     \
    KERNEL(T, max, x > y ? x : y)

#define FLOATING(T, nan)                         \
    KERNEL(T, sum, x + y)                        \
    KERNEL(T, prod, x *y)                        \
    KERNEL(T, min, x < y ? x : y <= x ? y : nan) \
    KERNEL(T, max, x > y ? x : y >= x ? y : nan) \
    DIVISION(T, x / (T)n)

INTEGER(int8_t, uint32_t)
INTEGER(uint8_t, uint32_t)
INTEGER(int16_t, uint32_t)
INTEGER(uint16_t, uint32_t)
INTEGER(int32_t, uint32_t)
INTEGER(uint32_t, uint32_t)
INTEGER(int64_t, uint64_t)
INTEGER(uint64_t, uint64_t)
FLOATING(float, __builtin_nanf(""))
FLOATING(double, __builtin_nan(""))

/* Exact up to 32 bits: a quotient that is no whole number is at least 1/n away from one, and a double errs by less. */
DIVISION(int8_t, (int8_t)((double)x / n))
DIVISION(uint8_t, (uint8_t)((double)x / n))
DIVISION(int16_t, (int16_t)((double)x / n))
DIVISION(uint16_t, (uint16_t)((double)x / n))
DIVISION(int32_t, (int32_t)((double)x / n))
DIVISION(uint32_t, (uint32_t)((double)x / n))
DIVISION(int64_t, x / (int64_t)n)
DIVISION(uint64_t, x / n)

/* A block at a time, which stays in cache while all operands are added to it. */
static void combine(const struct ri_reduction *r, const struct ri_combine *c)
{
    enum { BLOCK = 4096 };
    _Alignas(64) unsigned char sum[BLOCK];
    const size_t most = BLOCK / r->esize;
    for (size_t at = 0; at < c->count; at += most) {
        const size_t count = c->count - at < most ? c->count - at : most, offset = at * r->esize;
        memcpy(sum, (const unsigned char *)c->from[0] + offset, count * r->esize);
        for (uint32_t i = 1; i < c->n; i++)
            r->reduce(r, sum, sum, (const unsigned char *)c->from[i] + offset, count);
        if (c->divisor && r->divide)
            r->divide(sum, count, c->divisor);
        for (uint32_t k = 0; k < c->outs; k++)
            memcpy((unsigned char *)c->to[k] + offset, sum, count * r->esize);
    }
}

#define ROW(T)                                                                                 \
    {                                                                                          \
        [RING_SUM] = {sum_##T, combine, NULL}, [RING_PROD] = {prod_##T, combine, NULL},        \
        [RING_MIN] = {min_##T, combine, NULL}, [RING_MAX] = {max_##T, combine, NULL},          \
        [RING_AVG] = {sum_##T, combine, div_##T},                                              \
    }

ri_kernel_table RI_KERNELS = {
    [RING_INT8] = ROW(int8_t),     [RING_UINT8] = ROW(uint8_t),   [RING_INT16] = ROW(int16_t),
    [RING_UINT16] = ROW(uint16_t), [RING_INT32] = ROW(int32_t),   [RING_UINT32] = ROW(uint32_t),
    [RING_INT64] = ROW(int64_t),   [RING_UINT64] = ROW(uint64_t), [RING_FLOAT] = ROW(float),
    [RING_DOUBLE] = ROW(double),
};
