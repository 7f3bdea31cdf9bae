/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the loops that reduce, written once and compiled once per instruction set (lanes.h).
 *
 * RI_KERNELS is the table's name, given by the build, and RI_ONLY_BFLOAT16 says that a set differs from the one before
 * it in that type only.  Every set computes the same thing: one operation per element in
 * the order of the arguments, no contraction, no reassociation.  Integers wrap.  Minimum and maximum of a NaN is the
 * one NaN of the compiler, so that its bits do not depend on the set.  Floats of 16 and 8 bits are floats between load
 * and store, however many operands there are.
 *
 * A step takes a few vectors, goes through all operands with the running results in registers, and stores them to every
 * destination: each operand is loaded once and each result stored once, and as a step loads before it stores, a
 * destination may be an operand.  What is left over at the end, less than a vector, is done by the plain reference.
 * Any thread; no state. */
#include "lib/reduce/kernels.h"
#include "lib/reduce/small.h"

/* ---- operations on one vector ---------------------------------------------------------------------------------- */

enum { SUM = RING_SUM, PROD = RING_PROD, MIN = RING_MIN, MAX = RING_MAX };

/* For sums op is a constant. */
#define FLOATING_OPERATIONS(T, nan)                                \
    LANES_INLINE v_##T apply_##T(int op, v_##T x, v_##T y)         \
    {                                                              \
        switch (op) {                                              \
        case PROD:                                                 \
            return x * y;                                          \
        case MIN:                                                  \
            return PICK(x < y, x, PICK(y <= x, y, SPLAT(T, nan))); \
        case MAX:                                                  \
            return PICK(x > y, x, PICK(y >= x, y, SPLAT(T, nan))); \
        default:                                                   \
            return x + y;                                          \
        }                                                          \
    }
FLOATING_OPERATIONS(float, __builtin_nanf(""))
FLOATING_OPERATIONS(double, __builtin_nan(""))

#define ORDER_OPERATIONS(T) \
    LANES_INLINE v_##T apply_##T(int op, v_##T x, v_##T y) { return op == MIN ? PICK(x < y, x, y) : PICK(x > y, x, y); }
ORDER_OPERATIONS(int8_t)
ORDER_OPERATIONS(int16_t)
ORDER_OPERATIONS(int32_t)
ORDER_OPERATIONS(int64_t)

/* All but minimum and maximum give the same bits whether there is a sign or not. */
#define INTEGER_OPERATIONS(T)                              \
    LANES_INLINE v_##T apply_##T(int op, v_##T x, v_##T y) \
    {                                                      \
        switch (op) {                                      \
        case PROD:                                         \
            return (v_##T)TIMES(x, y);                     \
        case MIN:                                          \
            return PICK(x < y, x, y);                      \
        case MAX:                                          \
            return PICK(x > y, x, y);                      \
        case RING_BAND:                                    \
            return x & y;                                  \
        case RING_BOR:                                     \
            return x | y;                                  \
        case RING_BXOR:                                    \
            return x ^ y;                                  \
        case RING_LAND:                                    \
            return (v_##T)((x != 0) & (y != 0)) & 1;       \
        case RING_LOR:                                     \
            return (v_##T)((x | y) != 0) & 1;              \
        case RING_LXOR:                                    \
            return (v_##T)((x != 0) ^ (y != 0)) & 1;       \
        default:                                           \
            return (v_##T)(x + y);                         \
        }                                                  \
    }
INTEGER_OPERATIONS(uint8_t)
INTEGER_OPERATIONS(uint16_t)
INTEGER_OPERATIONS(uint32_t)
INTEGER_OPERATIONS(uint64_t)

/* ---- elements as they are stored ------------------------------------------------------------------------------- */

/* Buffers come as void and pass through byte arrays in shared memory; they have the alignment of an element. */
#define STORED(name, T, V)                                                   \
    LANES_INLINE void ask_for_##name(const void *from, size_t i)             \
    {                                                                        \
        __builtin_prefetch((const unsigned char *)from + i * sizeof(T));     \
    }                                                                        \
    LANES_INLINE V load_##name(const void *from, size_t i)                   \
    {                                                                        \
        V x;                                                                 \
        memcpy(&x, (const unsigned char *)from + i * sizeof(T), sizeof x);   \
        return x;                                                            \
    }                                                                        \
    LANES_INLINE void store_##name(void *to, size_t i, V x, int past_caches) \
    {                                                                        \
        unsigned char *at = (unsigned char *)to + i * sizeof(T);             \
        if (LANES_STREAM && past_caches)                                     \
            lanes_stream(at, &x, sizeof x);                                  \
        else                                                                 \
            memcpy(at, &x, sizeof x);                                        \
    }
STORED(int8_t, int8_t, v_int8_t)
STORED(uint8_t, uint8_t, v_uint8_t)
STORED(int16_t, int16_t, v_int16_t)
STORED(uint16_t, uint16_t, v_uint16_t)
STORED(int32_t, int32_t, v_int32_t)
STORED(uint32_t, uint32_t, v_uint32_t)
STORED(int64_t, int64_t, v_int64_t)
STORED(uint64_t, uint64_t, v_uint64_t)
STORED(float, float, v_float)
STORED(double, double, v_double)
STORED(half, uint16_t, lanes_half)
STORED(quarter, uint8_t, lanes_quarter)

#define SMALL_STORED(name, width)                                                                                     \
    LANES_INLINE void ask_for_##name(const void *from, size_t i) { ask_for_##width(from, i); }                        \
    LANES_INLINE v_float load_##name(const void *from, size_t i) { return small_from_##name(load_##width(from, i)); } \
    LANES_INLINE void store_##name(void *to, size_t i, v_float x, int past_caches)                                    \
    {                                                                                                                 \
        store_##width(to, i, small_to_##name(x), past_caches);                                                        \
    }
SMALL_STORED(f16, half)
#if SMALL_PAIRS
LANES_INLINE void ask_for_bf16(const void *from, size_t i) { ask_for_half(from, i); }
LANES_INLINE v_pair load_bf16(const void *from, size_t i)
{
    v_uint32_t w;
    memcpy(&w, (const uint16_t *)from + i, sizeof w);
    return small_from_pairs(w);
}
LANES_INLINE void store_bf16(void *to, size_t i, v_pair x, int past_caches)
{
    const v_uint32_t w = small_to_pairs(x);
    if (LANES_STREAM && past_caches)
        lanes_stream((uint16_t *)to + i, &w, sizeof w);
    else
        memcpy((uint16_t *)to + i, &w, sizeof w);
}
#else
SMALL_STORED(bf16, half)
#endif
SMALL_STORED(e4m3, quarter)
SMALL_STORED(e5m2, quarter)

/* ---- the loop -------------------------------------------------------------------------------------------------- */

/* dst may be equal to a source, so no iteration depends on another: without this the plain set would be scalar. */
#if defined(__clang__) && RI_LANES_PLAIN
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif RI_LANES_PLAIN
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

/* AHEAD: elements between asking for an operand and loading it, where results are stored past the caches and operands
 * so come from memory: what a processor asks for by itself ends with a page, and the next one's first lines come late.
 * (256 floats took 0 to 27 % off an all-reduce of 64 MiB on a virtual EPYC, in five comparisons.) */
enum { STEP = 4, LINE = 64, MASKS = 64, AHEAD = 256 };

LANES_INLINE bool is_operand(const struct ri_combine *c, const void *to)
{
    uint32_t i = 0;
    while (i < c->n && c->from[i] != to)
        i++;
    return i < c->n;
}

/* Which destinations are stored to past the caches, when the first begins a line: a bit for each of the first 64.  Not
 * one that is an operand: its lines have just been loaded, and a store past the caches throws them out first. */
LANES_INLINE uint64_t streamable(const struct ri_combine *c, size_t offset)
{
    uint64_t mask = 0;
    for (uint32_t k = 0; k < c->outs && k < MASKS; k++)
        mask |= (uint64_t)(((uintptr_t)c->to[k] + offset) % LINE == 0 && !is_operand(c, c->to[k])) << k;
    return mask;
}

/* name: as stored; T: as computed; lanes: elements of a vector; DIVIDE(x): x over the divisor. */
#define LOOP(name, T, lanes, DIVIDE)                                                                           \
    LANES_INLINE void vectors_##name(int op, const struct ri_combine *c, size_t i, int vectors, uint64_t past) \
    {                                                                                                          \
        v_##T x[STEP];                                                                                         \
        for (uint32_t k = 0; past && k < c->n; k++)                                                            \
            for (int j = 0; j < vectors; j++)                                                                  \
                ask_for_##name(c->from[k], i + (size_t)j * (lanes) + AHEAD);                                   \
        for (int j = 0; j < vectors; j++)                                                                      \
            x[j] = load_##name(c->from[0], i + (size_t)j * (lanes));                                           \
        for (uint32_t k = 1; k < c->n; k++)                                                                    \
            for (int j = 0; j < vectors; j++)                                                                  \
                x[j] = apply_##T(op, x[j], load_##name(c->from[k], i + (size_t)j * (lanes)));                  \
        for (int j = 0; j < vectors && c->divisor; j++)                                                        \
            x[j] = DIVIDE(x[j]);                                                                               \
        for (uint32_t k = 0; k < c->outs; k++)                                                                 \
            for (int j = 0; j < vectors; j++)                                                                  \
                store_##name(c->to[k], i + (size_t)j * (lanes), x[j], k < MASKS && (past >> k & 1));           \
    }                                                                                                          \
    /* Returns where it ended, less than a vector before the end. */                                           \
    LANES_INLINE size_t loop_##name(int op, const struct ri_combine *c, size_t i, size_t end, uint64_t past)   \
    {                                                                                                          \
        for (; (lanes) > 1 && end - i >= STEP * (lanes); i += STEP * (lanes))                                  \
            vectors_##name(op, c, i, STEP, past);                                                              \
        INDEPENDENT for (; end - i >= (lanes); i += (lanes)) vectors_##name(op, c, i, 1, past);                \
        return i;                                                                                              \
    }
#define UNDIVIDED(x) (x) /* integer quotients need more than a vector holds: see average() */
#define DIVIDED_FLOAT(x) ((x) / SPLAT(float, c->divisor))
#define DIVIDED_DOUBLE(x) ((x) / SPLAT(double, c->divisor))
#if SMALL_PAIRS
#define DIVIDED_PAIR(x) ((v_pair){DIVIDED_FLOAT((x).even), DIVIDED_FLOAT((x).odd)})
LANES_INLINE v_pair apply_pair(int op, v_pair x, v_pair y)
{
    return (v_pair){apply_float(op, x.even, y.even), apply_float(op, x.odd, y.odd)};
}
LOOP(bf16, pair, LANES_OF(uint16_t), DIVIDED_PAIR)
#else
LOOP(bf16, float, LANES_OF(float), DIVIDED_FLOAT)
#endif
#if !RI_ONLY_BFLOAT16
LOOP(int8_t, int8_t, LANES_OF(int8_t), UNDIVIDED)
LOOP(uint8_t, uint8_t, LANES_OF(uint8_t), UNDIVIDED)
LOOP(int16_t, int16_t, LANES_OF(int16_t), UNDIVIDED)
LOOP(uint16_t, uint16_t, LANES_OF(uint16_t), UNDIVIDED)
LOOP(int32_t, int32_t, LANES_OF(int32_t), UNDIVIDED)
LOOP(uint32_t, uint32_t, LANES_OF(uint32_t), UNDIVIDED)
LOOP(int64_t, int64_t, LANES_OF(int64_t), UNDIVIDED)
LOOP(uint64_t, uint64_t, LANES_OF(uint64_t), UNDIVIDED)
LOOP(float, float, LANES_OF(float), DIVIDED_FLOAT)
LOOP(double, double, LANES_OF(double), DIVIDED_DOUBLE)
LOOP(f16, float, LANES_OF(float), DIVIDED_FLOAT)
LOOP(e4m3, float, LANES_OF(float), DIVIDED_FLOAT)
LOOP(e5m2, float, LANES_OF(float), DIVIDED_FLOAT)
#endif

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* The elements before the first line of the first destination, so that whole lines are stored past the caches. */
static size_t head_of(const struct ri_combine *c, size_t esize)
{
    const size_t head = -(uintptr_t)c->to[0] % LINE / esize;
    return head < c->count ? head : c->count;
}

/* Elements from <= i < end. */
#if RI_LANES_PLAIN
#define REST(name, dtype)                                                                \
    static void rest_##name(int op, const struct ri_combine *c, size_t from, size_t end) \
    {                                                                                    \
        loop_##name(op, c, from, end, 0);                                                \
    }
#define REST_OF(name) rest_##name
#else
#define REST(name, dtype)                                                                \
    static void rest_##name(int op, const struct ri_combine *c, size_t from, size_t end) \
    {                                                                                    \
        if (from < end)                                                                  \
            ri_kernels_plain[dtype][op].rest(op, c, from, end);                          \
    }
#define REST_OF(name) NULL
#endif

#define TWO_OPERANDS(dst, a, b, n_elements)                                                           \
    {                                                                                                 \
        .from = (const void *[]){a, b}, .n = 2, .to = (void *[]){dst}, .outs = 1, .count = n_elements \
    }

/* Two operands, and one result or two: what two ranks do.  A description that nobody else sees is kept in registers,
 * and its numbers are known to the compiler, which is up to twice as fast as the loop for any number near a cache. */
#define SUMS_TO(name, results, all, ...)                                                                         \
    LANES_INLINE size_t sums_to_##results##_##name(const struct ri_combine *c, size_t from, uint64_t past)       \
    {                                                                                                            \
        const struct ri_combine two = {.from = (const void *[]){c->from[0], c->from[1]},                         \
                                       .n = 2,                                                                   \
                                       .to = (void *[]){__VA_ARGS__},                                            \
                                       .outs = results,                                                          \
                                       .count = c->count};                                                       \
        return past ? loop_##name(SUM, &two, from, two.count, all) : loop_##name(SUM, &two, from, two.count, 0); \
    }
#define SUMS(name)                                                                                            \
    SUMS_TO(name, 1, 1, c->to[0])                                                                             \
    SUMS_TO(name, 2, 3, c->to[0], c->to[1])                                                                   \
    LANES_INLINE size_t sums_##name(const struct ri_combine *c, size_t from, uint64_t past)                   \
    {                                                                                                         \
        const bool two = c->n == 2 && !c->divisor;                                                            \
        return two && c->outs == 1                               ? sums_to_1_##name(c, from, past)            \
               : two && c->outs == 2 && (past == 0 || past == 3) ? sums_to_2_##name(c, from, past)            \
                                                                 : loop_##name(SUM, c, from, c->count, past); \
    }

/* Sums have code of their own, and so averages.  The other operations share a loop that looks at `op` for every vector:
 * a quarter of the speed of sums near, the same far, and a third of the code that all of them on all types would be. */
#define COMBINE(kind, name, op, END)                                                              \
    static void kind##_##name##_combine(const struct ri_reduction *r, const struct ri_combine *c) \
    {                                                                                             \
        const bool stream = LANES_STREAM && c->stream;                                            \
        const size_t head = stream ? head_of(c, r->esize) : 0;                                    \
        const uint64_t past = stream ? streamable(c, head * r->esize) : 0;                        \
        if (head)                                                                                 \
            rest_##name(op, c, 0, head);                                                          \
        rest_##name(op, c, END, c->count);                                                        \
        if (past)                                                                                 \
            lanes_stream_end();                                                                   \
    }
#define COMBINE_SUM(name) SUMS(name) COMBINE(sum, name, SUM, sums_##name(c, head, past))
#define COMBINE_ANY(name) COMBINE(any, name, (int)r->redop, loop_##name((int)r->redop, c, head, c->count, past))

/* Two operands and one result, known to the compiler.  The rest gets a description of its own: one that nobody else
 * sees is kept in registers. */
#define REDUCE_SMALL(name)                                                                                 \
    static void sum_##name##_reduce(const struct ri_reduction *r, void *dst, const void *a, const void *b, \
                                    size_t count)                                                          \
    {                                                                                                      \
        const struct ri_combine c = TWO_OPERANDS(dst, a, b, count);                                        \
        const size_t end = loop_##name(SUM, &c, 0, count, 0);                                              \
        (void)r;                                                                                           \
        if (end < count) {                                                                                 \
            const struct ri_combine left = TWO_OPERANDS(dst, a, b, count);                                 \
            rest_##name(SUM, &left, end, count);                                                           \
        }                                                                                                  \
    }

#if RI_LANES_PLAIN
#define REDUCE_NATIVE(T) REDUCE_SMALL(T)
#else
/* Less than a vector of sums of two operands, where an element needs no conversion: parts of half a vector, a quarter
 * and so on, and the bits of `count` say which.  A handful of instructions, which the smallest collectives notice. */
#define PART(T, n)                                                    \
    if (LANES_OF(T) > (n) && (count & (n))) {                         \
        typedef T part __attribute__((vector_size((n) * sizeof(T)))); \
        part x, y;                                                    \
        memcpy(&x, a, sizeof x);                                      \
        memcpy(&y, b, sizeof y);                                      \
        x = x + y;                                                    \
        memcpy(dst, &x, sizeof x);                                    \
        a += sizeof x;                                                \
        b += sizeof x;                                                \
        dst += sizeof x;                                              \
    }
#define FEW(T)                                                                                                  \
    LANES_INLINE void few_##T(unsigned char *dst, const unsigned char *a, const unsigned char *b, size_t count) \
    {                                                                                                           \
        PART(T, 32)                                                                                             \
        PART(T, 16)                                                                                             \
        PART(T, 8)                                                                                              \
        PART(T, 4)                                                                                              \
        PART(T, 2)                                                                                              \
        PART(T, 1)                                                                                              \
    }
#define REDUCE_NATIVE(T)                                                                                              \
    FEW(T)                                                                                                            \
    static void sum_##T##_reduce(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count) \
    {                                                                                                                 \
        (void)r;                                                                                                      \
        size_t end = 0;                                                                                               \
        if (count >= LANES_OF(T)) {                                                                                   \
            const struct ri_combine c = TWO_OPERANDS(dst, a, b, count);                                               \
            end = loop_##T(SUM, &c, 0, count, 0);                                                                     \
        }                                                                                                             \
        few_##T((unsigned char *)dst + end * sizeof(T), (const unsigned char *)a + end * sizeof(T),                   \
                (const unsigned char *)b + end * sizeof(T), count - end);                                             \
    }
#endif

static void any_reduce(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count)
{
    r->combine(r, &(struct ri_combine)TWO_OPERANDS(dst, a, b, count));
}

#define FLOATING(name, dtype, REDUCE)                                                                               \
    REST(name, dtype)                                                                                               \
    REDUCE(name)                                                                                                    \
    COMBINE_SUM(name)                                                                                               \
    COMBINE_ANY(name)                                                                                               \
    static void div_##name(void *dst, size_t count, uint32_t n)                                                     \
    {                                                                                                               \
        const struct ri_combine c = {                                                                               \
            .from = (const void *[]){dst}, .n = 1, .to = (void *[]){dst}, .outs = 1, .count = count, .divisor = n}; \
        rest_##name(SUM, &c, loop_##name(SUM, &c, 0, count, 0), count);                                             \
    }
FLOATING(bf16, RING_BFLOAT16, REDUCE_SMALL)
#if !RI_ONLY_BFLOAT16
FLOATING(float, RING_FLOAT, REDUCE_NATIVE)
FLOATING(double, RING_DOUBLE, REDUCE_NATIVE)
FLOATING(f16, RING_FLOAT16, REDUCE_SMALL)
FLOATING(e4m3, RING_FLOAT8_E4M3, REDUCE_SMALL)
FLOATING(e5m2, RING_FLOAT8_E5M2, REDUCE_SMALL)

/* Quotients: what is vectorised here the compiler has vectorised.  An average of integers is divided block by block,
 * where the first destination has just been written. */
enum { BLOCK = 4096 };

#define AVERAGE(T, U, quotient)                                                                                \
    typedef T __attribute__((may_alias)) m_##T;                                                                \
    static void div_##T(void *dst, size_t count, uint32_t n)                                                   \
    {                                                                                                          \
        m_##T *d = dst;                                                                                        \
        for (size_t i = 0; i < count; i++) {                                                                   \
            const T x = d[i];                                                                                  \
            d[i] = (quotient);                                                                                 \
        }                                                                                                      \
    }                                                                                                          \
    static void avg_##T##_combine(const struct ri_reduction *r, const struct ri_combine *c)                    \
    {                                                                                                          \
        const struct ri_combine one = {.from = c->from, .n = c->n, .to = c->to, .outs = 1, .count = c->count}; \
        (void)r;                                                                                               \
        for (size_t i = 0; i < c->count; i += BLOCK) {                                                         \
            const size_t end = c->count - i < BLOCK ? c->count : i + BLOCK;                                    \
            rest_##U(SUM, &one, loop_##U(SUM, &one, i, end, 0), end);                                          \
            if (c->divisor)                                                                                    \
                div_##T((T *)c->to[0] + i, end - i, c->divisor);                                               \
            for (uint32_t k = 1; k < c->outs; k++)                                                             \
                memcpy((T *)c->to[k] + i, (T *)c->to[0] + i, (end - i) * sizeof(T));                           \
        }                                                                                                      \
    }

#define SIGNED(T, U, dtype, quotient) \
    REST(T, dtype)                    \
    COMBINE_ANY(T)                    \
    AVERAGE(T, U, quotient)

#define UNSIGNED(T, dtype, quotient) \
    REST(T, dtype)                   \
    REDUCE_NATIVE(T)                 \
    COMBINE_SUM(T)                   \
    COMBINE_ANY(T)                   \
    AVERAGE(T, T, quotient)

/* Exact up to 32 bits: a quotient that is no whole number is at least 1/n away from one, and a double errs by less. */
UNSIGNED(uint8_t, RING_UINT8, (uint8_t)((double)x / n))
UNSIGNED(uint16_t, RING_UINT16, (uint16_t)((double)x / n))
UNSIGNED(uint32_t, RING_UINT32, (uint32_t)((double)x / n))
UNSIGNED(uint64_t, RING_UINT64, x / n)
SIGNED(int8_t, uint8_t, RING_INT8, (int8_t)((double)x / n))
SIGNED(int16_t, uint16_t, RING_INT16, (int16_t)((double)x / n))
SIGNED(int32_t, uint32_t, RING_INT32, (int32_t)((double)x / n))
SIGNED(int64_t, uint64_t, RING_INT64, x / (int64_t)n)
#endif

/* ---- the table ------------------------------------------------------------------------------------------------- */

#define SUM_CELL(name)                                                 \
    {                                                                  \
        sum_##name##_reduce, sum_##name##_combine, NULL, REST_OF(name) \
    }
#define CELL(name)                                            \
    {                                                         \
        any_reduce, any_##name##_combine, NULL, REST_OF(name) \
    }

#define FLOAT_ROW(name)                                                                                          \
    {                                                                                                            \
        [RING_SUM] = SUM_CELL(name), [RING_PROD] = CELL(name), [RING_MIN] = CELL(name), [RING_MAX] = CELL(name), \
        [RING_AVG] = {sum_##name##_reduce, sum_##name##_combine, div_##name, NULL},                              \
    }

/* All but minimum and maximum are the same with a sign and without. */
#define INTEGER_ROW(T, U)                                                                            \
    {                                                                                                \
        [RING_SUM] = SUM_CELL(U), [RING_PROD] = CELL(U), [RING_MIN] = CELL(T), [RING_MAX] = CELL(T), \
        [RING_AVG] = {sum_##U##_reduce, avg_##T##_combine, div_##T, NULL}, [RING_BAND] = CELL(U),    \
        [RING_BOR] = CELL(U), [RING_BXOR] = CELL(U), [RING_LAND] = CELL(U), [RING_LOR] = CELL(U),    \
        [RING_LXOR] = CELL(U),                                                                       \
    }

ri_kernel_table RI_KERNELS = {
    [RING_BFLOAT16] = FLOAT_ROW(bf16),
#if !RI_ONLY_BFLOAT16
    [RING_INT8] = INTEGER_ROW(int8_t, uint8_t),
    [RING_UINT8] = INTEGER_ROW(uint8_t, uint8_t),
    [RING_INT16] = INTEGER_ROW(int16_t, uint16_t),
    [RING_UINT16] = INTEGER_ROW(uint16_t, uint16_t),
    [RING_INT32] = INTEGER_ROW(int32_t, uint32_t),
    [RING_UINT32] = INTEGER_ROW(uint32_t, uint32_t),
    [RING_INT64] = INTEGER_ROW(int64_t, uint64_t),
    [RING_UINT64] = INTEGER_ROW(uint64_t, uint64_t),
    [RING_FLOAT] = FLOAT_ROW(float),
    [RING_DOUBLE] = FLOAT_ROW(double),
    [RING_FLOAT16] = FLOAT_ROW(f16),
    [RING_FLOAT8_E4M3] = FLOAT_ROW(e4m3),
    [RING_FLOAT8_E5M2] = FLOAT_ROW(e5m2),
#endif
};
