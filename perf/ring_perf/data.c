/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - inputs whose exact result is known whatever the order of the reduction, and the check of what came out.
 *
 * Every element takes one of 64 values: k = k(index, seed) picks a place in a table, and rank r takes the value r
 * places further.  So the result depends on k alone, and a table of 64 results does for any number of ranks and
 * elements.  The values are chosen so that no intermediate result, in any order, rounds or overflows a floating point
 * type: small multiples of 1/8 to add, powers of two and signs to multiply; the smallest types have room for few ranks'
 * ones only, so the others give zeros (exact up to 256 ranks for the smallest).  Integers wrap, which no order changes,
 * so theirs use all bits.  Comparison is of bits. */
#include "perf.h"

#include "number.h"

#include <inttypes.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#define STEP UINT64_C(0x9e3779b97f4a7c15)
static unsigned place(uint64_t index, uint64_t start) { return (unsigned)((index * STEP + start) >> 58); }

static bool is_real(ring_dtype_t dtype) { return dtype >= RING_FLOAT && dtype <= RING_FLOAT8_E5M2; }

static bool is_signed(ring_dtype_t dtype)
{
    return dtype == RING_INT8 || dtype == RING_INT16 || dtype == RING_INT32 || dtype == RING_INT64;
}

/* ---- real types: worked out in double, in which every step is exact ---- */

/* Whole numbers up to here are exact, and so are sums of eighths that stay below. */
static uint64_t exact_up_to(ring_dtype_t dtype)
{
    switch (dtype) {
    case RING_FLOAT16:
        return 1 << 11;
    case RING_BFLOAT16:
        return 1 << 8;
    case RING_FLOAT8_E4M3:
        return 1 << 4;
    case RING_FLOAT8_E5M2:
        return 1 << 3;
    default:
        return 1 << 22;
    }
}

static double real_input(unsigned i, ring_dtype_t dtype, ring_redop_t redop, uint32_t size)
{
    const uint64_t h = mix(i + 1), room = exact_up_to(dtype);
    if (number_is_small(dtype) && redop == RING_PROD)
        return h & 1 ? -1 : 1;
    if (number_is_small(dtype) && (redop == RING_MIN || redop == RING_MAX))
        return (double)(h % 17) - 8;
    if (redop == RING_PROD) {
        static const double factors[] = {2, 0.5, 0.25, 4};
        const double sign = h & 1 ? -1 : 1;
        return i % 4 == 0 && size <= 512 ? sign * factors[i / 4 % 4] : sign;
    }
    if (redop == RING_MIN || redop == RING_MAX)
        return (double)((int64_t)(h % 2000001) - 1000000) / 128 + 1.0 / 256;
    /* Twice as sparse as the room asks for, because steps of this length do not meet around the table's end. */
    if (size > room && i % (2 * size / room))
        return 0;
    const uint64_t share = room / size, limit = share > 1000 ? 1000 : share ? share : 1;
    return (double)((int64_t)(h % (2 * limit + 1)) - (int64_t)limit) / 8;
}

static double real_combine(double a, double b, ring_redop_t redop)
{
    switch (redop) {
    case RING_PROD:
        return a * b;
    case RING_MIN:
        return a < b ? a : b;
    case RING_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

static uint64_t real_bits(ring_dtype_t dtype, double value)
{
    uint64_t bits = 0;
    number_put(dtype, &bits, value); /* little-endian */
    return bits;
}

/* ---- integers: 64-bit words, cut to the width of the type ---- */

static uint64_t cut(ring_dtype_t dtype, uint64_t bits)
{
    const unsigned unused = 64 - 8 * (unsigned)ring_dtype_size(dtype);
    return is_signed(dtype) ? (uint64_t)((int64_t)(bits << unused) >> unused) : bits << unused >> unused;
}

static uint64_t whole_input(unsigned i, ring_dtype_t dtype, ring_redop_t redop, uint32_t size)
{
    const uint64_t h = mix(i + 1);
    if (redop == RING_PROD)
        return cut(dtype, h | 1); /* odd: a product never becomes zero for good */
    if (redop >= RING_LAND)
        return cut(dtype, h & 0x80 ? 0 : h >> 8); /* some are false */
    if (redop != RING_AVG)
        return cut(dtype, h);
    const uint64_t limit = size < 63 ? 126 / size : 1; /* the sum does not wrap, as long as ranks are few */
    return is_signed(dtype) ? h % (2 * limit + 1) - limit : h % (limit + 1);
}

static uint64_t whole_combine(uint64_t a, uint64_t b, ring_dtype_t dtype, ring_redop_t redop)
{
    const bool less = is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
    switch (redop) {
    case RING_PROD:
        return cut(dtype, a * b);
    case RING_MIN:
        return less ? a : b;
    case RING_MAX:
        return less ? b : a;
    case RING_BAND:
        return a & b;
    case RING_BOR:
        return a | b;
    case RING_BXOR:
        return a ^ b;
    case RING_LAND:
        return a && b;
    case RING_LOR:
        return a || b;
    case RING_LXOR:
        return !a != !b;
    default:
        return cut(dtype, a + b);
    }
}

static uint64_t whole_divide(ring_dtype_t dtype, uint64_t sum, uint32_t size)
{
    return is_signed(dtype) ? (uint64_t)((int64_t)sum / (int64_t)size) : sum / size;
}

/* ---- the tables ---- */

static uint64_t real_result(unsigned k, ring_dtype_t dtype, ring_redop_t redop, uint32_t size)
{
    double value = real_input(k, dtype, redop, size);
    for (uint32_t r = 1; r < size; r++)
        value = real_combine(value, real_input((k + r) % PERF_VALUES, dtype, redop, size), redop);
    return real_bits(dtype, redop == RING_AVG ? number_divide(dtype, value, size) : value);
}

static uint64_t whole_result(unsigned k, ring_dtype_t dtype, ring_redop_t redop, uint32_t size)
{
    const uint64_t first = whole_input(k, dtype, redop, size);
    uint64_t value = redop >= RING_LAND ? first != 0 : first; /* the truth of one, too */
    for (uint32_t r = 1; r < size; r++)
        value = whole_combine(value, whole_input((k + r) % PERF_VALUES, dtype, redop, size), dtype, redop);
    return redop == RING_AVG ? whole_divide(dtype, value, size) : value;
}

/* Raw values are compared as loaded from memory: without the sign in the unused bytes. */
static uint64_t unsign(uint64_t bits, size_t esize)
{
    return esize == 8 ? bits : bits & ((UINT64_C(1) << 8 * esize) - 1);
}

void perf_pattern_init(struct perf_pattern *p, ring_dtype_t dtype, ring_redop_t redop, uint32_t size)
{
    p->dtype = dtype;
    p->esize = ring_dtype_size(dtype);
    for (unsigned k = 0; k < PERF_VALUES; k++) {
        const bool real = is_real(dtype);
        const uint64_t in =
            real ? real_bits(dtype, real_input(k, dtype, redop, size)) : whole_input(k, dtype, redop, size);
        const uint64_t out = real ? real_result(k, dtype, redop, size) : whole_result(k, dtype, redop, size);
        p->in[k] = unsign(in, p->esize);
        p->out[k] = unsign(out, p->esize);
    }
}

/* ---- fill and check ---- */

/* The table turned so that this rank's values stand at k. */
static void turn(const uint64_t table[PERF_VALUES], uint32_t by, uint64_t turned[PERF_VALUES])
{
    for (unsigned k = 0; k < PERF_VALUES; k++)
        turned[k] = table[(k + by) % PERF_VALUES];
}

#define FILL(type)                                                                                           \
    static void fill_##type(void *data, size_t count, const uint64_t table[PERF_VALUES], uint64_t start)     \
    {                                                                                                        \
        type *to = data, values[PERF_VALUES];                                                                \
        for (unsigned k = 0; k < PERF_VALUES; k++)                                                           \
            values[k] = (type)table[k];                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = values[place(i, start)];                                                                 \
    }                                                                                                        \
    static struct perf_wrong check_##type(const void *data, size_t count, const uint64_t table[PERF_VALUES], \
                                          uint64_t start)                                                    \
    {                                                                                                        \
        const type *from = data;                                                                             \
        struct perf_wrong wrong = {0, 0, 0, 0};                                                              \
        for (size_t i = 0; i < count; i++) {                                                                 \
            const uint64_t expected = table[place(i, start)];                                                \
            if (from[i] != expected && !wrong.count++)                                                       \
                wrong = (struct perf_wrong){1, i, expected, from[i]};                                        \
        }                                                                                                    \
        return wrong;                                                                                        \
    }
FILL(uint8_t)
FILL(uint16_t)
FILL(uint32_t)
FILL(uint64_t)

void perf_fill(const struct perf_pattern *p, void *data, size_t count, uint32_t rank, uint64_t seed)
{
    const uint64_t start = mix(seed);
    uint64_t values[PERF_VALUES];
    turn(p->in, rank, values);
    switch (p->esize) {
    case 1:
        fill_uint8_t(data, count, values, start);
        break;
    case 2:
        fill_uint16_t(data, count, values, start);
        break;
    case 4:
        fill_uint32_t(data, count, values, start);
        break;
    default:
        fill_uint64_t(data, count, values, start);
    }
}

static struct perf_wrong check(size_t esize, const void *data, size_t count, const uint64_t *values, uint64_t start)
{
    switch (esize) {
    case 1:
        return check_uint8_t(data, count, values, start);
    case 2:
        return check_uint16_t(data, count, values, start);
    case 4:
        return check_uint32_t(data, count, values, start);
    default:
        return check_uint64_t(data, count, values, start);
    }
}

/* place() of data's element 0, when that is element `index`. */
static uint64_t start_at(uint64_t seed, size_t index) { return mix(seed) + index * STEP; }

struct perf_wrong perf_check_input(const struct perf_pattern *p, const void *data, size_t count, size_t index,
                                   uint32_t rank, uint64_t seed)
{
    uint64_t values[PERF_VALUES];
    turn(p->in, rank, values);
    return check(p->esize, data, count, values, start_at(seed, index));
}

struct perf_wrong perf_check_result(const struct perf_pattern *p, const void *data, size_t count, size_t index,
                                    uint64_t seed)
{
    return check(p->esize, data, count, p->out, start_at(seed, index));
}

void perf_value_print(ring_dtype_t dtype, uint64_t bits, char *text, size_t cap)
{
    if (is_real(dtype))
        snprintf(text, cap, "%.*g", dtype == RING_DOUBLE ? 17 : 9, number_get(dtype, &bits));
    else if (is_signed(dtype))
        snprintf(text, cap, "%" PRId64, (int64_t)cut(dtype, bits));
    else
        snprintf(text, cap, "%" PRIu64, bits);
}

/* ---- guards ---- */

static unsigned char guard_byte(size_t i) { return (unsigned char)(0xa5 ^ (i * 37)); }

void perf_guard_set(void *data, size_t bytes)
{
    unsigned char *before = (unsigned char *)data - PERF_GUARD, *after = (unsigned char *)data + bytes;
    for (size_t i = 0; i < PERF_GUARD; i++)
        before[i] = after[i] = guard_byte(i);
}

uint64_t perf_guard_check(const void *data, size_t bytes, int64_t *offset_out)
{
    const unsigned char *before = (const unsigned char *)data - PERF_GUARD,
                        *after = (const unsigned char *)data + bytes;
    uint64_t damaged = 0;
    for (size_t i = 0; i < PERF_GUARD; i++)
        if (before[i] != guard_byte(i) && !damaged++)
            *offset_out = (int64_t)i - PERF_GUARD;
    for (size_t i = 0; i < PERF_GUARD; i++)
        if (after[i] != guard_byte(i) && !damaged++)
            *offset_out = (int64_t)(bytes + i);
    return damaged;
}
