/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h - the arithmetic: element types, reduction operations, and the kernels chosen for this processor.
 *
 * Kernels work on whole elements; pointers need only the alignment of the element.  dst may be equal to a or b (in
 * place), other overlaps are not allowed.  All kernels give the same bits as the plain C reference: one operation per
 * element, in the order of the arguments. */
#ifndef RI_REDUCE_H
#define RI_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

enum { RI_DTYPES = RING_FLOAT8_E5M2 + 1, RI_REDOPS = RING_LXOR + 1 };

bool ri_dtype_ok(ring_dtype_t dtype);
bool ri_redop_ok(ring_redop_t redop);
bool ri_dtype_is_float(ring_dtype_t dtype);
bool ri_redop_fits(ring_dtype_t dtype, ring_redop_t redop); /* both are right, and there is a kernel for the pair */
size_t ri_dtype_size(ring_dtype_t dtype);                   /* bytes; 0 when it is none */
const char *ri_dtype_name(ring_dtype_t dtype);              /* NULL when it is none     */
const char *ri_redop_name(ring_redop_t redop);              /* NULL when it is none     */

struct ri_reduction;

/* dst[i] = a[i] op b[i].  dst may be a or b. */
typedef void ri_reduce_fn(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count);
/* dst[i] /= n, integers toward zero */
typedef void ri_divide_fn(void *dst, size_t count, uint32_t n);

/* Many operands at once: to[k][i] = from[0][i] op from[1][i] op ... from[n - 1][i], in this order, then divided by
 * `divisor` if that is not 0, for each k < outs.  Every operand is read once and every result written once; floats of
 * 16 and 8 bits are accumulated in float and rounded once.  to[k] may be one of the operands, but no other overlap. */
struct ri_combine {
    const void *const *from;
    void *const *to;
    uint32_t n, outs; /* at least 1 */
    size_t count;     /* elements   */
    uint32_t divisor; /* of an average; 0: none */
    bool stream;      /* results that are no operands go past the caches; visible after the next release store */
};
typedef void ri_combine_fn(const struct ri_reduction *r, const struct ri_combine *c);

/* What a collective needs to reduce, looked up once. AVG adds and then divides. */
struct ri_reduction {
    ri_reduce_fn *reduce;
    ri_combine_fn *combine;
    ri_divide_fn *divide; /* NULL unless AVG */
    uint32_t esize;       /* bytes of an element */
    ring_dtype_t dtype;
    ring_redop_t redop;
    ring_reduce_fn *user; /* of an operation made by ring_redop_create(), else NULL */
    void *context;
};
struct ri_reduction ri_reduction_for(ring_dtype_t dtype, ring_redop_t redop); /* all NULL when they do not fit */
/* By a function of the caller's; no divide. */
struct ri_reduction ri_reduction_user(ring_dtype_t dtype, ring_reduce_fn *fn, void *context);

/* dst[i] = src[i] * *factor, which is one element.  dst may be src. */
void ri_scale(void *dst, const void *src, size_t count, ring_dtype_t dtype, const void *factor);

/* Whether ri_combine.stream pays for a rank that itself reads and writes `own` bytes, operands and results, between two
 * uses of the same memory, as do the others of the `ranks` (at least 1) on this host.  The first call that the sizes of
 * the caches do not decide takes about 4 ms. */
bool ri_stream_pays(size_t own, uint32_t ranks);
size_t ri_cache_bytes(void);        /* the last cache; 0: unknown, then streaming never pays */
size_t ri_second_cache_bytes(void); /* 0: unknown                                            */

/* The kernel sets of this build that this processor can run, best last; 0 is the plain C reference. For tests and
 * ring_info. */
size_t ri_kernel_sets(void);
const char *ri_kernel_set_name(size_t set);
struct ri_reduction ri_reduction_from(size_t set, ring_dtype_t dtype, ring_redop_t redop);

#endif
