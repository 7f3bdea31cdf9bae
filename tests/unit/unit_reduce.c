/* SPDX-License-Identifier: Apache-2.0 */
/* lib/reduce: every kernel set against an oracle that computes one element at a time in wide types. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/reduce/reduce.h"
#include "perf/ring_perf/number.h"
#include "tests/unit/slower.h"

__extension__ typedef __int128 wide; /* holds every element and sum exactly */
__extension__ typedef unsigned __int128 uwide;

enum { MOST = 300, GUARD = 64, DIVISOR = 7 };

static uint64_t seed;

static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void choose_seed(void)
{
    const char *text = getenv("TEST_SEED");
    seed = text ? strtoull(text, NULL, 0) : ((uint64_t)time(NULL) << 1 | 1);
    const char *filled = getenv("MALLOC_PERTURB_"); /* meson fills fresh memory with another byte each time */
    fprintf(stderr, "TEST_SEED=%llu%s%s\n", (unsigned long long)seed, filled ? " MALLOC_PERTURB_=" : "",
            filled ? filled : "");
}

static bool is_signed(ring_dtype_t t) { return t <= RING_UINT64 && t % 2 == 0; }

/* Little-endian integers of any width, sign-extended when the type is signed. */
static wide load_int(ring_dtype_t t, const void *p)
{
    const size_t size = ri_dtype_size(t);
    uint64_t u = 0;
    memcpy(&u, p, size);
    if (is_signed(t) && u >> (8 * size - 1))
        return (wide)u - ((wide)1 << (8 * size));
    return u;
}

static void store_int(ring_dtype_t t, void *p, wide value)
{
    const uint64_t u = (uint64_t)(uwide)value;
    memcpy(p, &u, ri_dtype_size(t));
}

/* All types but double are computed in float. */
static double oracle_float(ring_dtype_t t, ring_redop_t op, double x, double y)
{
    switch (op) {
    case RING_PROD:
        return t == RING_DOUBLE ? x * y : (double)((float)x * (float)y);
    case RING_MIN:
        return isnan(x) || isnan(y) ? NAN : x < y ? x : y;
    case RING_MAX:
        return isnan(x) || isnan(y) ? NAN : x > y ? x : y;
    default:
        return t == RING_DOUBLE ? x + y : (double)((float)x + (float)y);
    }
}

static wide oracle_int(ring_redop_t op, wide x, wide y)
{
    switch (op) {
    case RING_PROD:
        return (wide)((uwide)x * (uwide)y);
    case RING_MIN:
        return x < y ? x : y;
    case RING_MAX:
        return x > y ? x : y;
    case RING_BAND:
        return x & y;
    case RING_BOR:
        return x | y;
    case RING_BXOR:
        return x ^ y;
    case RING_LAND:
        return x && y;
    case RING_LOR:
        return x || y;
    case RING_LXOR:
        return !x != !y;
    default:
        return x + y;
    }
}

static void oracle(ring_dtype_t t, ring_redop_t op, void *dst, const void *a, const void *b)
{
    if (ri_dtype_is_float(t))
        number_put(t, dst, oracle_float(t, op, number_get(t, a), number_get(t, b)));
    else
        store_int(t, dst, oracle_int(op, load_int(t, a), load_int(t, b)));
}

static void oracle_divide(ring_dtype_t t, void *dst, uint32_t n)
{
    if (ri_dtype_is_float(t))
        number_put(t, dst, number_divide(t, number_get(t, dst), n));
    else
        store_int(t, dst, load_int(t, dst) / n);
}

static void random_element(ring_dtype_t t, void *p)
{
    static const double odd[] = {0.0,    -0.0, 1.0,    -1.0,    INFINITY, -INFINITY, NAN,   1e300, -1e300,
                                 1e-310, 3e38, -1e-42, 65519.9, -6e-8,    464,       57344, 0.0019};
    const uint64_t r = next();
    if (ri_dtype_is_float(t) && r % 4 == 1) /* any bits, so any number and NaN */
        store_int(t, p, next());
    else if (ri_dtype_is_float(t))
        number_put(t, p, r % 4 ? (double)(int64_t)next() / 1e17 : odd[next() % (sizeof odd / sizeof *odd)]);
    else if (r % 4)
        store_int(t, p, next());
    else { /* the ends of the range and their neighbours */
        const size_t bits = 8 * ri_dtype_size(t);
        static const int near[] = {0, -1, 1};
        store_int(t, p, (r & 8 ? (wide)1 << (bits - 1) : 0) + near[next() % 3]);
    }
}

static void check_element(ring_dtype_t t, ring_redop_t op, const char *set, size_t i, const void *seen, const void *due)
{
    if (!memcmp(seen, due, ri_dtype_size(t)))
        return;
    const bool both_nan = ri_dtype_is_float(t) && isnan(number_get(t, due)) && isnan(number_get(t, seen));
    cr_assert(both_nan, "%s %s %s: element %zu is wrong", set, ri_dtype_name(t), ri_redop_name(op), i);
}

/* Memory that starts `elements` past a 64-byte line, with guards around. */
struct box {
    _Alignas(64) unsigned char bytes[GUARD + 64 + MOST * 8 + GUARD];
    unsigned char *at;
    size_t len;
};

static void box_make(struct box *b, ring_dtype_t t, size_t count)
{
    memset(b->bytes, 0xa5, sizeof b->bytes);
    b->at = b->bytes + GUARD + next() % (64 / ri_dtype_size(t)) * ri_dtype_size(t);
    b->len = count * ri_dtype_size(t);
    for (size_t i = 0; i < count; i++)
        random_element(t, b->at + i * ri_dtype_size(t));
}

static bool all_guard(const unsigned char *from, const unsigned char *end)
{
    while (from < end && *from == 0xa5)
        from++;
    return from == end;
}

static void box_check_guards(const struct box *b)
{
    cr_assert(all_guard(b->bytes, b->at) && all_guard(b->at + b->len, b->bytes + sizeof b->bytes),
              "a kernel wrote outside its buffer");
}

enum form { APART, ON_FIRST, ON_SECOND, TWICE, COMBINED, FORMS };

static void run_form(enum form form, const struct ri_reduction *r, struct box *d, struct box *d2, struct box *a,
                     struct box *b, size_t count)
{
    void *dst = form == ON_FIRST ? a->at : form == ON_SECOND ? b->at : d->at;
    if (form == TWICE || form == COMBINED)
        r->combine(r, &(struct ri_combine){.from = (const void *[]){a->at, b->at},
                                           .n = 2,
                                           .to = (void *[]){dst, d2->at},
                                           .outs = form == TWICE ? 2 : 1,
                                           .count = count});
    else
        r->reduce(r, dst, a->at, b->at, count);
    if (dst != d->at)
        memcpy(d->at, dst, d->len);
    if (form != TWICE)
        memcpy(d2->at, d->at, d->len);
}

static void try_once(size_t set, ring_dtype_t t, ring_redop_t op, enum form form)
{
    static struct box a, b, d, d2, due;
    const size_t count = next() % 3 ? next() % 40 : next() % MOST, size = ri_dtype_size(t);
    const struct ri_reduction r = ri_reduction_from(set, t, op);
    struct box *all[] = {&a, &b, &d, &d2, &due};
    for (size_t i = 0; i < 5; i++)
        box_make(all[i], t, count);
    for (size_t i = 0; i < count; i++)
        oracle(t, op, due.at + i * size, a.at + i * size, b.at + i * size);
    run_form(form, &r, &d, &d2, &a, &b, count);
    if (r.divide) {
        r.divide(d.at, count, DIVISOR);
        r.divide(d2.at, count, DIVISOR);
        for (size_t i = 0; i < count; i++)
            oracle_divide(t, due.at + i * size, DIVISOR);
    }
    for (size_t i = 0; i < count; i++) {
        check_element(t, op, ri_kernel_set_name(set), i, d.at + i * size, due.at + i * size);
        check_element(t, op, ri_kernel_set_name(set), i, d2.at + i * size, due.at + i * size);
    }
    for (size_t i = 0; i < 4; i++)
        box_check_guards(all[i]);
}

Test(reduce, every_set_type_and_operation_agrees_with_the_oracle, .init = choose_seed)
{
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        for (unsigned t = 0; t < RI_DTYPES; t++)
            for (unsigned op = 0; op < RI_REDOPS; op++)
                for (unsigned form = 0; form < FORMS && ri_redop_fits((ring_dtype_t)t, (ring_redop_t)op); form++)
                    for (int n = 0; n < 25 / SLOWER; n++)
                        try_once(set, (ring_dtype_t)t, (ring_redop_t)op, (enum form)form);
}

/* ---- many operands --------------------------------------------------------------------------------------------- */

enum { OPERANDS = 9, OUTS = 3, LARGE = 9000 /* more than a block of integers to divide */ };

struct many { /* operands and destinations, each at its own alignment of the element */
    unsigned char memory[OPERANDS + OUTS][64 + LARGE * 8 + GUARD], *at[OPERANDS + OUTS];
    const void *from[OPERANDS];
    void *to[OUTS];
    struct ri_combine c;
};

static void many_make(struct many *m, ring_dtype_t t)
{
    const size_t size = ri_dtype_size(t);
    m->c = (struct ri_combine){.from = m->from,
                               .to = m->to,
                               .n = (uint32_t)(1 + next() % OPERANDS),
                               .outs = (uint32_t)(1 + next() % OUTS),
                               .count = next() % 4   ? next() % 40
                                        : next() % 8 ? next() % MOST
                                                     : next() % LARGE,
                               .stream = next() % 2};
    const bool level = next() % 2; /* destinations that can be streamed to together */
    for (size_t i = 0; i < OPERANDS + OUTS; i++) {
        m->at[i] = m->memory[i] + (level ? 0 : next() % (64 / size) * size);
        memset(m->memory[i], 0xa5, 64 + m->c.count * size + GUARD);
        for (size_t k = 0; k < m->c.count && i < m->c.n; k++)
            random_element(t, m->at[i] + k * size);
    }
    for (uint32_t i = 0; i < m->c.n; i++)
        m->from[i] = m->at[i];
    for (uint32_t k = 0; k < m->c.outs; k++)
        m->to[k] = m->at[OPERANDS + k];
    if (next() % 2) /* in place */
        m->to[next() % m->c.outs] = m->at[next() % m->c.n];
}

/* Floats of 16 and 8 bits stay floats until the end. */
static void oracle_many(ring_dtype_t t, ring_redop_t op, const struct many *m, unsigned char *due)
{
    const size_t size = ri_dtype_size(t);
    for (size_t i = 0; i < m->c.count; i++) {
        unsigned char *to = due + i * size;
        double sum = number_is_small(t) ? number_get(t, m->at[0] + i * size) : 0;
        memcpy(to, m->at[0] + i * size, size);
        for (uint32_t k = 1; k < m->c.n; k++) {
            sum = number_is_small(t) ? oracle_float(t, op, sum, number_get(t, m->at[k] + i * size)) : 0;
            oracle(t, op, to, to, m->at[k] + i * size);
        }
        if (number_is_small(t))
            number_put(t, to, m->c.divisor ? number_divide(t, sum, m->c.divisor) : sum);
        else if (m->c.divisor)
            oracle_divide(t, to, m->c.divisor);
    }
}

static void try_many(size_t set, ring_dtype_t t, ring_redop_t op)
{
    static struct many m;
    static unsigned char due[LARGE * 8];
    const struct ri_reduction r = ri_reduction_from(set, t, op);
    const size_t size = ri_dtype_size(t);
    many_make(&m, t);
    m.c.divisor = op == RING_AVG && next() % 4 ? 1 + (uint32_t)(next() % 9) : 0;
    oracle_many(t, op, &m, due);
    r.combine(&r, &m.c);
    for (uint32_t k = 0; k < m.c.outs; k++) {
        const unsigned char *seen = m.to[k];
        for (size_t i = 0; i < m.c.count; i++)
            check_element(t, op, ri_kernel_set_name(set), i, seen + i * size, due + i * size);
    }
    for (size_t i = 0; i < OPERANDS + OUTS; i++) {
        const bool used = i < m.c.n || (i >= OPERANDS && m.to[i - OPERANDS] == m.at[i]);
        const unsigned char *end = m.at[i] + m.c.count * size;
        cr_assert(all_guard(m.memory[i], m.at[i]) && all_guard(used ? end : m.at[i], end + GUARD),
                  "a kernel wrote outside its buffer");
    }
}

Test(reduce, many_operands_are_rounded_once, .init = choose_seed)
{
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        for (unsigned t = 0; t < RI_DTYPES; t++)
            for (unsigned op = 0; op < RI_REDOPS; op++)
                for (int n = 0; n < 60 / SLOWER && ri_redop_fits((ring_dtype_t)t, (ring_redop_t)op); n++)
                    try_many(set, (ring_dtype_t)t, (ring_redop_t)op);
}

/* 1 + 2^-11 sixteen times: each alone is rounded away in float16, together they are not. */
Test(reduce, a_sum_of_many_keeps_what_each_addition_would_lose)
{
    uint16_t one[40], little[40], sum[40];
    const void *from[17];
    for (size_t i = 0; i < 40; i++)
        one[i] = 0x3c00, little[i] = 0x1000;
    for (size_t k = 0; k < 17; k++)
        from[k] = k ? little : one;
    for (size_t set = 0; set < ri_kernel_sets(); set++) {
        const struct ri_reduction r = ri_reduction_from(set, RING_FLOAT16, RING_SUM);
        r.combine(&r, &(struct ri_combine){.from = from, .n = 17, .to = (void *[]){sum}, .outs = 1, .count = 40});
        for (size_t i = 0; i < 40; i++)
            cr_assert_eq(sum[i], 0x3c08, "%s: %x", ri_kernel_set_name(set), sum[i]);
    }
}

/* Some codes, as the standards and other libraries have them. */
Test(reduce, known_codes_of_small_floats)
{
    static const struct {
        ring_dtype_t dtype;
        uint16_t bits;
        double value;
    } known[] = {
        {RING_FLOAT16, 0x3c00, 1},         {RING_FLOAT16, 0x7bff, 65504},     {RING_FLOAT16, 0x0001, 0x1p-24},
        {RING_FLOAT16, 0xfc00, -INFINITY}, {RING_BFLOAT16, 0x3f80, 1},        {RING_BFLOAT16, 0x7f7f, 0x1.fep127},
        {RING_BFLOAT16, 0x0001, 0x1p-133}, {RING_FLOAT8_E4M3, 0x38, 1},       {RING_FLOAT8_E4M3, 0x7e, 448},
        {RING_FLOAT8_E4M3, 0x01, 0x1p-9},  {RING_FLOAT8_E4M3, 0x78, 256},     {RING_FLOAT8_E5M2, 0x3c, 1},
        {RING_FLOAT8_E5M2, 0x7b, 57344},   {RING_FLOAT8_E5M2, 0x01, 0x1p-16}, {RING_FLOAT8_E5M2, 0x7c, INFINITY},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t bits = 0; /* little-endian */
        number_put(known[i].dtype, &bits, known[i].value);
        cr_assert_eq(bits, known[i].bits, "row %zu: %llx", i, (unsigned long long)bits);
        cr_assert_eq(number_get(known[i].dtype, &bits), known[i].value, "row %zu", i);
    }
}

static uint16_t sum_of(size_t set, ring_dtype_t t, uint16_t a, uint16_t b)
{
    uint16_t sum = 0;
    const struct ri_reduction r = ri_reduction_from(set, t, RING_SUM);
    r.reduce(&r, &sum, &a, &b, 1);
    return sum;
}

/* PyTorch and ml_dtypes do the same when they convert: nothing saturates. */
Test(reduce, overflow_of_small_floats_shows)
{
    for (size_t set = 0; set < ri_kernel_sets(); set++) {
        cr_assert_eq(sum_of(set, RING_FLOAT8_E4M3, 0x7e, 0x58), 0x7e); /* 448 + 16: half way, to even      */
        cr_assert_eq(sum_of(set, RING_FLOAT8_E4M3, 0x7e, 0x59), 0x7f); /* 448 + 18: there is no infinity   */
        cr_assert_eq(sum_of(set, RING_FLOAT8_E4M3, 0xfe, 0xfe) & 0x7f, 0x7f);
        cr_assert_eq(sum_of(set, RING_FLOAT8_E5M2, 0x7b, 0x6b), 0x7b);   /* 57344 + 3584                     */
        cr_assert_eq(sum_of(set, RING_FLOAT8_E5M2, 0x7b, 0x6c), 0x7c);   /* 57344 + 4096                     */
        cr_assert_eq(sum_of(set, RING_FLOAT16, 0xfbff, 0xcc00), 0xfc00); /* -65504 - 16                    */
        cr_assert_eq(sum_of(set, RING_BFLOAT16, 0x7f7f, 0x7b00), 0x7f80);
    }
}

/* All pairs, so every code is widened and every rounding there is is done. */
Test(reduce, floats_of_8_bits_exhaustively)
{
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        for (unsigned t = RING_FLOAT8_E4M3; t <= RING_FLOAT8_E5M2; t++)
            for (unsigned op = RING_SUM; op <= RING_AVG; op++) {
                const struct ri_reduction r = ri_reduction_from(set, (ring_dtype_t)t, (ring_redop_t)op);
                for (unsigned x = 0; x < 256; x++) {
                    uint8_t a[256], b[256], seen[256], due;
                    for (unsigned y = 0; y < 256; y++)
                        a[y] = (uint8_t)x, b[y] = (uint8_t)y;
                    r.reduce(&r, seen, a, b, 256);
                    if (r.divide)
                        r.divide(seen, 256, x % 16 + 1);
                    for (unsigned y = 0; y < 256; y++) {
                        oracle((ring_dtype_t)t, (ring_redop_t)op, &due, &a[y], &b[y]);
                        if (r.divide)
                            oracle_divide((ring_dtype_t)t, &due, x % 16 + 1);
                        check_element((ring_dtype_t)t, (ring_redop_t)op, ri_kernel_set_name(set), x << 8 | y, &seen[y],
                                      &due);
                    }
                }
            }
}

/* Every code widened, and a rounding of each: divided by 1 it is itself. */
Test(reduce, floats_of_16_bits_exhaustively)
{
    enum { CODES = 1 << 16 };
    static uint16_t seen[CODES];
    static const uint32_t divisors[] = {1, 3, 1u << 31};
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        for (unsigned t = RING_FLOAT16; t <= RING_BFLOAT16; t++)
            for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
                for (unsigned i = 0; i < CODES; i++)
                    seen[i] = (uint16_t)i;
                ri_reduction_from(set, (ring_dtype_t)t, RING_AVG).divide(seen, CODES, divisors[d]);
                for (unsigned i = 0; i < CODES; i++) {
                    uint16_t due = (uint16_t)i;
                    oracle_divide((ring_dtype_t)t, &due, divisors[d]);
                    check_element((ring_dtype_t)t, RING_AVG, ri_kernel_set_name(set), i, &seen[i], &due);
                }
            }
}

Test(reduce, minimum_and_maximum_of_nan_have_the_same_bits_in_every_set_and_order)
{
    const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7fc12345, 0x7f812345 /* signalling */};
    uint32_t first = 0;
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        for (size_t n = 0; n < 4; n++)
            for (unsigned op = RING_MIN; op <= RING_MAX; op++) {
                uint32_t a[67], b[67];
                for (size_t i = 0; i < 67; i++) {
                    a[i] = i % 2 ? nans[n] : 0x40000000;
                    b[i] = i % 2 ? 0x40000000 : nans[n];
                }
                const struct ri_reduction r = ri_reduction_from(set, RING_FLOAT, (ring_redop_t)op);
                r.reduce(&r, a, a, b, 67);
                first = first ? first : a[0];
                cr_assert_eq(first & 0x7fc00000, 0x7fc00000, "not a quiet NaN");
                for (size_t i = 0; i < 67; i++)
                    cr_assert_eq(a[i], first);
            }
}

Test(reduce, average_truncates_toward_zero_for_large_divisors_too)
{
    const uint32_t divisors[] = {1, 2, 3, 1000, 65536, 2147483647, 2147483648u, 4294967295u};
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        for (size_t n = 0; n < sizeof divisors / sizeof *divisors; n++) {
            int32_t i32[3] = {INT32_MIN, -7, INT32_MAX};
            uint32_t u32[2] = {UINT32_MAX, 7};
            int64_t i64[2] = {INT64_MIN, INT64_MAX};
            uint64_t u64[1] = {UINT64_MAX};
            const uint32_t d = divisors[n];
            ri_reduction_from(set, RING_INT32, RING_AVG).divide(i32, 3, d);
            ri_reduction_from(set, RING_UINT32, RING_AVG).divide(u32, 2, d);
            ri_reduction_from(set, RING_INT64, RING_AVG).divide(i64, 2, d);
            ri_reduction_from(set, RING_UINT64, RING_AVG).divide(u64, 1, d);
            cr_assert_eq(i32[0], (int32_t)(INT32_MIN / (int64_t)d));
            cr_assert_eq(i32[1], (int32_t)(-7 / (int64_t)d));
            cr_assert_eq(i32[2], (int32_t)(INT32_MAX / (int64_t)d));
            cr_assert_eq(u32[0], UINT32_MAX / d);
            cr_assert_eq(i64[0], INT64_MIN / (int64_t)d);
            cr_assert_eq(i64[1], INT64_MAX / (int64_t)d);
            cr_assert_eq(u64[0], UINT64_MAX / d);
        }
}

Test(reduce, the_best_set_is_the_last_one_that_runs)
{
    cr_assert_geq(ri_kernel_sets(), 1);
    cr_assert_str_eq(ri_kernel_set_name(0), "plain");
    const struct ri_reduction best = ri_reduction_for(RING_FLOAT, RING_SUM),
                              last = ri_reduction_from(ri_kernel_sets() - 1, RING_FLOAT, RING_SUM);
    cr_assert_eq(best.reduce, last.reduce);
    cr_assert_eq(best.esize, 4);
    cr_assert_null(best.divide);
    cr_assert_null(ri_kernel_set_name(1000));
    cr_assert_null(ri_reduction_for(RING_FLOAT, RING_BAND).reduce, "there is no such kernel");
    cr_assert_null(ri_reduction_from(0, RING_FLOAT, RING_BAND).combine);
    char names[200] = "";
    for (size_t set = 0; set < ri_kernel_sets(); set++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", set ? " " : "", ri_kernel_set_name(set));
    fprintf(stderr, "kernel sets: %s\n", names);
    if (getenv("TEST_SETS")) /* of a processor that the caller knows */
        cr_assert_str_eq(names, getenv("TEST_SETS"));
}

Test(reduce, names_and_sizes_end_where_the_types_end)
{
    for (int t = 0; t < RI_DTYPES; t++) {
        cr_assert_not_null(ri_dtype_name((ring_dtype_t)t));
        cr_assert_neq(ri_dtype_size((ring_dtype_t)t), 0);
    }
    for (int op = 0; op < RI_REDOPS; op++)
        cr_assert_not_null(ri_redop_name((ring_redop_t)op));
    cr_assert_null(ri_dtype_name((ring_dtype_t)RI_DTYPES));
    cr_assert_null(ri_redop_name((ring_redop_t)RI_REDOPS));
    cr_assert_eq(ri_dtype_size((ring_dtype_t)-1), 0);
    cr_assert_eq(ri_dtype_size(RING_UINT16), 2);
    cr_assert_str_eq(ri_dtype_name(RING_DOUBLE), "double");
    cr_assert_str_eq(ri_redop_name(RING_AVG), "avg");
    cr_assert_not(ri_dtype_ok((ring_dtype_t)-1));
    cr_assert_not(ri_redop_ok((ring_redop_t)-1));
    cr_assert(ri_redop_fits(RING_UINT8, RING_LXOR));
    cr_assert(ri_redop_fits(RING_FLOAT8_E5M2, RING_AVG));
    cr_assert_not(ri_redop_fits(RING_FLOAT, RING_BAND));
    cr_assert_not(ri_redop_fits((ring_dtype_t)RI_DTYPES, RING_SUM));
    cr_assert_not(ri_redop_fits(RING_INT32, (ring_redop_t)RI_REDOPS));
}

/* Subtraction, so that the order of the operands shows; the context counts the calls. */
static void subtract(void *dst, const void *a, const void *b, size_t count, ring_dtype_t dtype, void *context)
{
    int32_t *d = dst;
    const int32_t *x = a, *y = b;
    cr_assert_eq(dtype, RING_INT32);
    ++*(int *)context;
    for (size_t i = 0; i < count; i++)
        d[i] = x[i] - y[i];
}

Test(reduce, a_users_function_gets_operands_in_order_and_its_context)
{
    enum { COUNT = 5000 }; /* more than a block */
    static int32_t a[COUNT], b[COUNT], c[COUNT], d[COUNT], e[COUNT];
    int calls = 0;
    const struct ri_reduction r = ri_reduction_user(RING_INT32, subtract, &calls);
    for (int i = 0; i < COUNT; i++)
        a[i] = i * 100, b[i] = i * 7, c[i] = i;
    cr_assert_null(r.divide);
    r.reduce(&r, d, a, b, COUNT);
    cr_assert_eq(calls, 1);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(d[i], i * 93);
    r.reduce(&r, d, a, b, 0);
    cr_assert_eq(calls, 1, "called for nothing");
    r.combine(&r, &(struct ri_combine){
                      .from = (const void *[]){a, b, c}, .n = 3, .to = (void *[]){b, e}, .outs = 2, .count = COUNT});
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(b[i], i * 92);
        cr_assert_eq(e[i], i * 92);
    }
    calls = 0;
    r.combine(&r, &(struct ri_combine){
                      .from = (const void *[]){a}, .n = 1, .to = (void *[]){a, e}, .outs = 2, .count = COUNT});
    cr_assert_eq(calls, 0);
    cr_assert_arr_eq(a, e, sizeof a);
}

Test(reduce, scaling_is_a_product_with_one_factor, .init = choose_seed)
{
    enum { COUNT = 4099 }; /* more than a block of any type */
    static unsigned char src[COUNT * 8], seen[COUNT * 8];
    for (unsigned t = 0; t < RI_DTYPES; t++) {
        const ring_dtype_t dtype = (ring_dtype_t)t;
        const size_t size = ri_dtype_size(dtype);
        unsigned char factor[8], due[8];
        random_element(dtype, factor);
        for (size_t i = 0; i < COUNT; i++)
            random_element(dtype, src + i * size);
        ri_scale(seen, src, COUNT, dtype, factor);
        for (size_t i = 0; i < COUNT; i++) {
            oracle(dtype, RING_PROD, due, src + i * size, factor);
            check_element(dtype, RING_PROD, "scale", i, seen + i * size, due);
        }
        ri_scale(src, src, COUNT, dtype, factor);
        cr_assert_arr_eq(src, seen, COUNT * size);
    }
}

/* Between the second-level cache and the last one a measurement decides, which may come out either way. */
Test(reduce, streaming_pays_beyond_the_last_cache_and_not_within_the_nearest)
{
    enum { RANKS = 4 };
    const size_t cache = ri_cache_bytes();
    cr_assert_not(ri_stream_pays(0, 1));
    cr_assert_not(ri_stream_pays(16 << 10, 1));
    cr_assert_not(ri_stream_pays(16 << 10, UINT32_MAX), "what is near stays near however many ranks there are");
    cr_assert_eq(ri_stream_pays(SIZE_MAX, 1), cache != 0);
    cr_assert_eq(ri_stream_pays(cache + 1, 1), cache != 0);
    cr_assert(ri_stream_pays(cache + 1, RANKS) == (cache != 0), "ranks share the last cache");
    cr_assert(cache == 0 || (cache >= 64 << 10 && cache < (size_t)64 << 30), "%zu bytes is no cache", cache);
}

Test(reduce, whether_streaming_pays_has_one_border_and_stays)
{
    bool seen[64];
    for (int i = 0; i < 64; i++)
        seen[i] = ri_stream_pays((size_t)1 << i, 2);
    for (int i = 1; i < 64; i++)
        cr_assert(seen[i] || !seen[i - 1], "it pays for 2^%d bytes and not for twice as many", i - 1);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(ri_stream_pays((size_t)1 << i, 2), seen[i], "2^%d bytes", i);
}

Test(reduce, without_memory_to_measure_in_the_last_cache_decides)
{
    const size_t cache = ri_cache_bytes();
    ri_mem_fail_at(1);
    const bool within = ri_stream_pays(cache, 1), beyond = ri_stream_pays(cache + 1, 1);
    ri_mem_fail_at(0);
    cr_assert_not(within);
    cr_assert_eq(beyond, cache != 0);
}
