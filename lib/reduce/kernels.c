/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the loops that reduce, written once in plain C and compiled once per instruction set.
 *
 * RI_KERNELS is the table's name, given by the build.  The compiler vectorises; the text has no intrinsics, so that
 * every set computes the same thing: one operation per element in the order of the arguments, no contraction, no
 * reassociation. Integers wrap: they are computed in an unsigned type of at least 32 bits, because promotion to int
 * would overflow. Minimum and maximum of a NaN is the one NaN of the compiler, so that its bits do not depend on how a
 * loop was compiled. Cost: loads two and stores one element.  Any thread; no state. */
#include "lib/reduce/kernels.h"
#include "lib/reduce/small.h"

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

/* Small floats are named by their format, and stored in integers. */
typedef m_uint16_t m_f16;
typedef m_uint16_t m_bf16;
typedef m_uint8_t m_e4m3;
typedef m_uint8_t m_e5m2;

/* W: the type to compute in; WIDEN and NARROW: from what is stored to W and back. */
#define SAME(x) (x)
#define FROM_F16(x) small_widen(x, 5, 10, 0)
#define TO_F16(x) (uint16_t) small_narrow(x, 5, 10, 0)
#define FROM_E5M2(x) small_widen(x, 5, 2, 0)
#define TO_E5M2(x) (uint8_t) small_narrow(x, 5, 2, 0)
#define FROM_E4M3(x) small_widen(x, 4, 3, 1)
#define TO_E4M3(x) (uint8_t) small_narrow(x, 4, 3, 1)
#define FROM_BF16(x) small_widen_bf16(x)
#define TO_BF16(x) (uint16_t) small_narrow_bf16(x)

#define KERNEL(T, W, WIDEN, NARROW, op, value)                                                                \
    static void op##_##T(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count) \
    {                                                                                                         \
        m_##T *d = dst;                                                                                       \
        const m_##T *as = a, *bs = b;                                                                         \
        (void)r;                                                                                              \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                                        \
        {                                                                                                     \
            const W x = WIDEN(as[i]), y = WIDEN(bs[i]);                                                       \
            d[i] = NARROW(value);                                                                             \
        }                                                                                                     \
    }

#define DIVISION(T, W, WIDEN, NARROW, value)                 \
    static void div_##T(void *dst, size_t count, uint32_t n) \
    {                                                        \
        m_##T *d = dst;                                      \
        for (size_t i = 0; i < count; i++) {                 \
            const W x = WIDEN(d[i]);                         \
            d[i] = NARROW(value);                            \
        }                                                    \
    }

/* U: the unsigned type to compute in. */
#define INTEGER(T, U, quotient)                              \
    KERNEL(T, T, SAME, SAME, sum, (T)((U)x + (U)y))          \
    KERNEL(T, T, SAME, SAME, prod, (T)((U)x * (U)y))         \
    KERNEL(T, T, SAME, SAME, min, x < y ? x : y)             \
    KERNEL(T, T, SAME, SAME, max, x > y ? x : y)             \
    KERNEL(T, T, SAME, SAME, band, (T)(x & y))               \
    KERNEL(T, T, SAME, SAME, bor, (T)(x | y))                \
    KERNEL(T, T, SAME, SAME, bxor, (T)(x ^ y))               \
    KERNEL(T, T, SAME, SAME, land, (T)((x != 0) & (y != 0))) \
    KERNEL(T, T, SAME, SAME, lor, (T)((x | y) != 0))         \
    KERNEL(T, T, SAME, SAME, lxor, (T)((x != 0) ^ (y != 0))) \
    DIVISION(T, T, SAME, SAME, quotient)

#define FLOATING(T, W, WIDEN, NARROW, nan)                         \
    KERNEL(T, W, WIDEN, NARROW, sum, x + y)                        \
    KERNEL(T, W, WIDEN, NARROW, prod, x *y)                        \
    KERNEL(T, W, WIDEN, NARROW, min, x < y ? x : y <= x ? y : nan) \
    KERNEL(T, W, WIDEN, NARROW, max, x > y ? x : y >= x ? y : nan) \
    DIVISION(T, W, WIDEN, NARROW, x / (W)n)

/* Exact up to 32 bits: a quotient that is no whole number is at least 1/n away from one, and a double errs by less. */
INTEGER(int8_t, uint32_t, (int8_t)((double)x / n))
INTEGER(uint8_t, uint32_t, (uint8_t)((double)x / n))
INTEGER(int16_t, uint32_t, (int16_t)((double)x / n))
INTEGER(uint16_t, uint32_t, (uint16_t)((double)x / n))
INTEGER(int32_t, uint32_t, (int32_t)((double)x / n))
INTEGER(uint32_t, uint32_t, (uint32_t)((double)x / n))
INTEGER(int64_t, uint64_t, x / (int64_t)n)
INTEGER(uint64_t, uint64_t, x / n)
FLOATING(float, float, SAME, SAME, __builtin_nanf(""))
FLOATING(double, double, SAME, SAME, __builtin_nan(""))
FLOATING(f16, float, FROM_F16, TO_F16, __builtin_nanf(""))
FLOATING(bf16, float, FROM_BF16, TO_BF16, __builtin_nanf(""))
FLOATING(e4m3, float, FROM_E4M3, TO_E4M3, __builtin_nanf(""))
FLOATING(e5m2, float, FROM_E5M2, TO_E5M2, __builtin_nanf(""))

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

#define ROW(T)                                                                      \
    [RING_SUM] = {sum_##T, combine, NULL}, [RING_PROD] = {prod_##T, combine, NULL}, \
    [RING_MIN] = {min_##T, combine, NULL}, [RING_MAX] = {max_##T, combine, NULL},   \
    [RING_AVG] = {sum_##T, combine, div_##T}

#define INTEGER_ROW(T)                                                                            \
    {                                                                                             \
        ROW(T), [RING_BAND] = {band_##T, combine, NULL}, [RING_BOR] = {bor_##T, combine, NULL},   \
                [RING_BXOR] = {bxor_##T, combine, NULL}, [RING_LAND] = {land_##T, combine, NULL}, \
                [RING_LOR] = {lor_##T, combine, NULL}, [RING_LXOR] = {lxor_##T, combine, NULL},   \
    }

ri_kernel_table RI_KERNELS = {
    [RING_INT8] = INTEGER_ROW(int8_t),     [RING_UINT8] = INTEGER_ROW(uint8_t),   [RING_INT16] = INTEGER_ROW(int16_t),
    [RING_UINT16] = INTEGER_ROW(uint16_t), [RING_INT32] = INTEGER_ROW(int32_t),   [RING_UINT32] = INTEGER_ROW(uint32_t),
    [RING_INT64] = INTEGER_ROW(int64_t),   [RING_UINT64] = INTEGER_ROW(uint64_t), [RING_FLOAT] = {ROW(float)},
    [RING_DOUBLE] = {ROW(double)},         [RING_FLOAT16] = {ROW(f16)},           [RING_BFLOAT16] = {ROW(bf16)},
    [RING_FLOAT8_E4M3] = {ROW(e4m3)},      [RING_FLOAT8_E5M2] = {ROW(e5m2)},
};
