/* SPDX-License-Identifier: Apache-2.0 */
/* user.c - reductions made of other functions: a caller's operation, and a factor for a sum.
 *
 * A caller's function takes two operands, so many are combined through a block on the stack that stays in the nearest
 * cache.  Nothing is rounded but by that function.  Any thread, if the caller's function may run in any. */
#include "lib/reduce/reduce.h"

#include <string.h>

enum { BLOCK = 4096 };

static void reduce_by_user(const struct ri_reduction *r, void *dst, const void *a, const void *b, size_t count)
{
    if (count)
        r->user(dst, a, b, count, r->dtype, r->context);
}

static void combine_block(const struct ri_reduction *r, const struct ri_combine *c, size_t at, size_t count)
{
    _Alignas(64) unsigned char sum[BLOCK];
    const size_t offset = at * r->esize, bytes = count * r->esize;
    const void *left = (const unsigned char *)c->from[0] + offset;
    for (uint32_t i = 1; i < c->n; i++, left = sum)
        r->user(sum, left, (const unsigned char *)c->from[i] + offset, count, r->dtype, r->context);
    for (uint32_t k = 0; k < c->outs; k++)
        if ((unsigned char *)c->to[k] + offset != left)
            memcpy((unsigned char *)c->to[k] + offset, left, bytes);
}

static void combine_by_user(const struct ri_reduction *r, const struct ri_combine *c)
{
    const size_t most = BLOCK / r->esize;
    for (size_t at = 0; at < c->count; at += most)
        combine_block(r, c, at, c->count - at < most ? c->count - at : most);
}

struct ri_reduction ri_reduction_user(ring_dtype_t dtype, ring_reduce_fn *fn, void *context)
{
    return (struct ri_reduction){.reduce = reduce_by_user,
                                 .combine = combine_by_user,
                                 .esize = (uint32_t)ri_dtype_size(dtype),
                                 .dtype = dtype,
                                 .user = fn,
                                 .context = context};
}

/* Products with a block that is full of the factor. */
void ri_scale(void *dst, const void *src, size_t count, ring_dtype_t dtype, const void *factor)
{
    _Alignas(64) unsigned char factors[BLOCK];
    const struct ri_reduction r = ri_reduction_for(dtype, RING_PROD);
    const size_t most = BLOCK / r.esize;
    for (size_t i = 0; i < most && i < count; i++)
        memcpy(factors + i * r.esize, factor, r.esize);
    for (size_t at = 0; at < count; at += most)
        r.reduce(&r, (unsigned char *)dst + at * r.esize, (const unsigned char *)src + at * r.esize, factors,
                 count - at < most ? count - at : most);
}
