/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - single elements of the floating point types as double and back, by plain arithmetic on numbers.
 *
 * For programs that make and check data: slow, and on purpose not the way the library does it.  number_put() rounds
 * once, to nearest, ties to even; what is too large becomes an infinity, or NaN where there are none. */
#ifndef PERF_NUMBER_H
#define PERF_NUMBER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ring/ring.h>

/* Of the floats of 16 and 8 bits: bits of exponent and fraction, and whether all but one code of a sign are numbers. */
struct number_format {
    int exp, mant;
    bool finite;
};

static inline struct number_format number_format_of(ring_dtype_t dtype)
{
    static const struct number_format formats[] = {{5, 10, false}, {8, 7, false}, {4, 3, true}, {5, 2, false}};
    return formats[dtype - RING_FLOAT16];
}

static inline bool number_is_small(ring_dtype_t dtype) { return dtype >= RING_FLOAT16 && dtype <= RING_FLOAT8_E5M2; }

static inline double number_from_small(struct number_format f, unsigned bits)
{
    const unsigned fraction = bits & ((1u << f.mant) - 1), exponent = bits >> f.mant & ((1u << f.exp) - 1);
    const unsigned top = (1u << f.exp) - 1;
    const int least = 2 - (1 << (f.exp - 1)); /* exponent of the smallest normal number */
    const double sign = bits >> (f.exp + f.mant) & 1 ? -1 : 1;
    if (exponent == top && (f.finite ? fraction == (1u << f.mant) - 1 : fraction))
        return (double)NAN;
    if (exponent == top && !f.finite)
        return sign * (double)INFINITY;
    const unsigned whole = exponent ? fraction | 1u << f.mant : fraction;
    return sign * ldexp(whole, least - f.mant + (exponent ? (int)exponent - 1 : 0));
}

static inline unsigned number_to_small(struct number_format f, double value)
{
    const unsigned sign = signbit(value) ? 1u << (f.exp + f.mant) : 0;
    const unsigned none = f.finite ? (1u << (f.exp + f.mant)) - 1 : ((1u << f.exp) - 1) << f.mant;
    const int least = 2 - (1 << (f.exp - 1));
    int exponent;
    if (isnan(value))
        return f.finite ? none : none | 1u << (f.mant - 1);
    frexp(value, &exponent);
    exponent = value == 0 || exponent - 1 < least ? least : exponent - 1;
    if (isinf(value) || exponent > -least + 1 + f.finite)
        return sign | none;
    const unsigned bits =
        ((unsigned)(exponent - least) << f.mant) + (unsigned)nearbyint(ldexp(fabs(value), f.mant - exponent));
    return sign | (bits < none ? bits : none);
}

static inline double number_get(ring_dtype_t dtype, const void *from)
{
    float narrow;
    double value;
    uint16_t bits = 0;
    if (number_is_small(dtype)) /* little-endian */
        return memcpy(&bits, from, ring_dtype_size(dtype)), number_from_small(number_format_of(dtype), bits);
    if (dtype == RING_FLOAT)
        return memcpy(&narrow, from, sizeof narrow), (double)narrow;
    return memcpy(&value, from, sizeof value), value;
}

static inline void number_put(ring_dtype_t dtype, void *to, double value)
{
    const float narrow = (float)value;
    const uint16_t bits = number_is_small(dtype) ? (uint16_t)number_to_small(number_format_of(dtype), value) : 0;
    memcpy(to,
           dtype == RING_FLOAT    ? (const void *)&narrow
           : dtype == RING_DOUBLE ? (const void *)&value
                                  : &bits,
           ring_dtype_size(dtype));
}

/* One division in the type to compute in, which is float for all but double. */
static inline double number_divide(ring_dtype_t dtype, double value, double by)
{
    return dtype == RING_DOUBLE ? value / by : (double)((float)value / (float)by);
}

#endif
