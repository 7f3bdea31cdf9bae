/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the loops that reduce, written once in plain C and compiled once per instruction set.
 *
 * RI_KERNELS is the table's name, given by the build.  The compiler vectorises; the text has no intrinsics, so that
 * every set computes the same thing: one operation per element in the order of the arguments, no contraction, no
 * reassociation. Integers wrap: they are computed in an unsigned type of at least 32 bits, because promotion to int
 * would overflow. Minimum and maximum of a NaN is the one NaN of the compiler, so that its bits do not depend on how a
 * loop was compiled. Cost: loads two and stores one element (two for the reduce2 forms).  Any thread; no state. */
#include "lib/reduce/kernels.h"

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

#define KERNEL(T, op, value)                                                                 \
    static void op##_##T(void *dst, const void *a, const void *b, size_t count)              \
    {                                                                                        \
        m_##T *d = dst;                                                                      \
        const m_##T *as = a, *bs = b;                                                        \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                       \
        {                                                                                    \
            const T x = as[i], y = bs[i];                                                    \
            d[i] = (value);                                                                  \
        }                                                                                    \
    }                                                                                        \
    static void op##2_##T(void *dst, void *dst2, const void *a, const void *b, size_t count) \
    {                                                                                        \
        m_##T *d = dst, *d2 = dst2;                                                          \
        const m_##T *as = a, *bs = b;                                                        \
        if (!d2) {                                                                           \
            op##_##T(dst, a, b, count);                                                      \
            return;                                                                          \
        }                                                                                    \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                       \
        {                                                                                    \
            const T x = as[i], y = bs[i];                                                    \
            d[i] = d2[i] = (value);                                                          \
        }                                                                                    \
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

#define ROW(T)                                                                             \
    {                                                                                      \
        [RING_SUM] = {sum_##T, sum2_##T, NULL}, [RING_PROD] = {prod_##T, prod2_##T, NULL}, \
        [RING_MIN] = {min_##T, min2_##T, NULL}, [RING_MAX] = {max_##T, max2_##T, NULL},    \
        [RING_AVG] = {sum_##T, sum2_##T, div_##T},                                         \
    }

ri_kernel_table RI_KERNELS = {
    [RING_INT8] = ROW(int8_t),     [RING_UINT8] = ROW(uint8_t),   [RING_INT16] = ROW(int16_t),
    [RING_UINT16] = ROW(uint16_t), [RING_INT32] = ROW(int32_t),   [RING_UINT32] = ROW(uint32_t),
    [RING_INT64] = ROW(int64_t),   [RING_UINT64] = ROW(uint64_t), [RING_FLOAT] = ROW(float),
    [RING_DOUBLE] = ROW(double),
};
