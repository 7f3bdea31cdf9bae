/* SPDX-License-Identifier: Apache-2.0 */
/* small.h - floats of 16 and 8 bits to float and back, as integer arithmetic without branches.
 *
 * What small_widen() takes and small_narrow() gives are the bits in the low end of a word.  Widening is exact;
 * narrowing rounds to nearest, ties to even.  The one addition of floats aligns a subnormal number's bits and is exact
 * or does the rounding; it never meets a subnormal float, so that a program that has the processor treat those as zero
 * gets the same.  NaN becomes the one quiet NaN of its type. */
#ifndef RI_SMALL_H
#define RI_SMALL_H

#include <stdint.h>
#include <string.h>

static inline float small_as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t small_as_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* A type with `exp` bits of exponent and `mant` of fraction; finite: all exponents are of numbers, and only the largest
 * code of each sign is NaN. */
#define SMALL_REBIAS(exp) ((uint32_t)(127 - ((1 << ((exp)-1)) - 1)) << 23)
#define SMALL_LEAST(exp) (SMALL_REBIAS(exp) + (UINT32_C(1) << 23)) /* its smallest normal number, as a float */

static inline float small_widen(uint32_t h, unsigned exp, unsigned mant, int finite)
{
    const uint32_t sign = h >> (exp + mant) << 31, code = h & ((UINT32_C(1) << (exp + mant)) - 1);
    const uint32_t mag = code << (23 - mant), top = ((UINT32_C(1) << exp) - 1) << 23;
    const uint32_t normal = mag + SMALL_REBIAS(exp);
    const uint32_t subnormal = small_as_bits(small_as_float(mag + SMALL_LEAST(exp)) - small_as_float(SMALL_LEAST(exp)));
    uint32_t bits = mag < UINT32_C(1) << 23 ? subnormal : normal;
    if (finite)
        bits = code == (UINT32_C(1) << (exp + mant)) - 1 ? 0x7fc00000 : bits;
    else
        bits = mag >= top ? (mag - top) | 0x7f800000 : bits;
    return small_as_float(sign | bits);
}

static inline uint32_t small_narrow(float f, unsigned exp, unsigned mant, int finite)
{
    const uint32_t u = small_as_bits(f), sign = u >> 31 << (exp + mant), mag = u & 0x7fffffff;
    const uint32_t half = (UINT32_C(1) << (22 - mant)) - 1, odd = mag >> (23 - mant) & 1;
    const uint32_t normal = (mag - SMALL_REBIAS(exp) + half + odd) >> (23 - mant);
    /* A unit in the last place of this number is the smallest subnormal one. */
    const uint32_t align = SMALL_LEAST(exp) + ((23 - mant) << 23);
    const uint32_t subnormal = small_as_bits(small_as_float(mag) + small_as_float(align)) - align;
    const uint32_t infinity = finite ? (UINT32_C(1) << (exp + mant)) - 1 : ((UINT32_C(1) << exp) - 1) << mant;
    const uint32_t quiet = finite ? infinity : infinity | UINT32_C(1) << (mant - 1);
    uint32_t code = mag < SMALL_LEAST(exp) ? subnormal : normal;
    code = code > infinity ? infinity : code;
    return mag > 0x7f800000 ? quiet : sign | code;
}

static inline float small_widen_bf16(uint32_t h) { return small_as_float(h << 16); }

static inline uint32_t small_narrow_bf16(float f)
{
    const uint32_t u = small_as_bits(f);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

#endif
