/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c - see arguments.h.  One table says what src and dst of every collective hold; all checks follow from it.
 *
 * Cost: a few branches for the regular forms, O(ranks) for those with arrays; less for what was right the last time. */
#include "lib/comm/arguments.h"

#include <string.h>

#include "lib/base/error.h"
#include "lib/comm/comm.h"

/* What a buffer holds: nothing, `count` elements, the rank's own block, the blocks of all ranks. */
enum shape { NOTHING, WHOLE, OWN, BLOCKS };
enum { ROOT_SRC = 1, ROOT_DST = 2, ROOTED = 4, REDUCES = 8, SARRAYS = 16, RARRAYS = 32, ANY_PEER = 64 };

static const struct form {
    ring_coll_t regular;
    enum shape src, dst;
    unsigned traits; /* ROOT_x: that buffer counts on root alone */
} forms[] = {
    [RING_ALL_REDUCE] = {RING_ALL_REDUCE, WHOLE, WHOLE, REDUCES},
    [RING_REDUCE] = {RING_REDUCE, WHOLE, WHOLE, REDUCES | ROOTED | ROOT_DST},
    [RING_BROADCAST] = {RING_BROADCAST, WHOLE, WHOLE, ROOTED | ROOT_SRC},
    [RING_REDUCE_SCATTER] = {RING_REDUCE_SCATTER, BLOCKS, OWN, REDUCES},
    [RING_ALL_GATHER] = {RING_ALL_GATHER, OWN, BLOCKS, 0},
    [RING_ALL_TO_ALL] = {RING_ALL_TO_ALL, BLOCKS, BLOCKS, 0},
    [RING_GATHER] = {RING_GATHER, OWN, BLOCKS, ROOTED | ROOT_DST},
    [RING_SCATTER] = {RING_SCATTER, BLOCKS, OWN, ROOTED | ROOT_SRC},
    [RING_BARRIER] = {RING_BARRIER, NOTHING, NOTHING, 0},
    [RING_SEND] = {RING_SEND, WHOLE, NOTHING, ANY_PEER},
    [RING_RECV] = {RING_RECV, NOTHING, WHOLE, ANY_PEER},
    [RING_REDUCE_SCATTERV] = {RING_REDUCE_SCATTER, BLOCKS, OWN, REDUCES | SARRAYS},
    [RING_ALL_GATHERV] = {RING_ALL_GATHER, OWN, BLOCKS, RARRAYS},
    [RING_ALL_TO_ALLV] = {RING_ALL_TO_ALL, BLOCKS, BLOCKS, SARRAYS | RARRAYS},
    [RING_GATHERV] = {RING_GATHER, OWN, BLOCKS, ROOTED | ROOT_DST | RARRAYS},
    [RING_SCATTERV] = {RING_SCATTER, BLOCKS, OWN, ROOTED | ROOT_SRC | SARRAYS},
};
enum { FORMS = sizeof forms / sizeof *forms };

bool ri_arguments_reduces(ring_coll_t coll) { return forms[coll].traits & REDUCES; }

ring_coll_t ri_arguments_called(const struct ri_call *call)
{
    unsigned coll = call->variable ? RING_REDUCE_SCATTERV : (unsigned)call->coll;
    while (coll < FORMS && forms[coll].regular != call->coll)
        coll++;
    return coll < FORMS ? (ring_coll_t)coll : call->coll;
}

static bool has_src(const struct ring_comm *c, const struct form *f, uint32_t root)
{
    return f->src != NOTHING && (!(f->traits & ROOT_SRC) || root == c->rank);
}

static bool has_dst(const struct ring_comm *c, const struct form *f, uint32_t root)
{
    return f->dst != NOTHING && (!(f->traits & ROOT_DST) || root == c->rank);
}

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

size_t ri_arguments_room(const struct ring_comm *c, ring_coll_t coll)
{
    return (unsigned)coll < FORMS && forms[coll].traits & (SARRAYS | RARRAYS) ? 4 * (size_t)c->size : 0;
}

static ring_status_t too_much(const char *what, size_t count, size_t esize)
{
    return ri_fail(RING_ERR_INVALID, "%s of %zu elements of %zu bytes is more than memory can hold", what, count,
                   esize);
}

/* Copies counts and displacements (NULL: one block after the other); every block ends below half the address space. */
static ring_status_t take_arrays(const struct ring_comm *c, const char *what, const size_t *counts,
                                 const size_t *displs, size_t esize, size_t *room)
{
    size_t next = 0;
    if (!counts)
        return ri_fail(RING_ERR_INVALID, "%scounts is NULL", what);
    for (uint32_t r = 0; r < c->size; r++) {
        const size_t begin = displs ? displs[r] : next;
        size_t end, bytes;
        if (__builtin_add_overflow(begin, counts[r], &end) || __builtin_mul_overflow(end, esize, &bytes) ||
            bytes > SIZE_MAX / 2)
            return too_much("a block", counts[r], esize);
        room[r] = counts[r];
        room[c->size + r] = begin;
        next = end;
    }
    return RING_OK;
}

static ring_status_t take_all_arrays(const struct ring_comm *c, const struct form *f, const ring_call_t *given,
                                     size_t esize, size_t *room, struct ri_call *call)
{
    ring_status_t status = RING_OK;
    if (f->traits & SARRAYS && has_src(c, f, call->root)) {
        status = take_arrays(c, "s", given->scounts, f->traits & REDUCES ? NULL : given->sdispls, esize, room);
        call->scounts = room;
        call->sdispls = room + c->size;
    }
    if (!status && f->traits & RARRAYS && has_dst(c, f, call->root)) {
        room += 2 * (size_t)c->size;
        status = take_arrays(c, "r", given->rcounts, given->rdispls, esize, room);
        call->rcounts = room;
        call->rdispls = room + c->size;
    }
    return status;
}

/* Of gatherv and scatterv the own block's length is said twice on root, of all_to_allv on every rank; of the others
 * only in the arrays. */
static ring_status_t find_own(const struct ring_comm *c, const struct form *f, struct ri_call *call)
{
    const size_t *counts = f->dst == BLOCKS ? call->rcounts : call->scounts;
    if (!counts)
        return RING_OK;
    if (f->src == f->dst && call->scounts[c->rank] != counts[c->rank])
        return ri_fail(RING_ERR_INVALID, "what rank %u sends to itself has %zu elements in scounts and %zu in rcounts",
                       c->rank, call->scounts[c->rank], counts[c->rank]);
    if (f->traits & ROOTED && counts[c->rank] != call->count)
        return ri_fail(RING_ERR_INVALID, "count is %zu, but root's own block has %zu elements in %scounts[%u]",
                       call->count, counts[c->rank], f->dst == BLOCKS ? "r" : "s", c->rank);
    call->count = counts[c->rank];
    return RING_OK;
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static size_t extent(const struct ring_comm *c, enum shape shape, const size_t *counts, const size_t *displs,
                     size_t count, size_t esize)
{
    size_t end = 0;
    if (shape != BLOCKS)
        return shape == NOTHING ? 0 : count * esize;
    if (!counts)
        return c->size * count * esize;
    for (uint32_t r = 0; r < c->size; r++)
        if (counts[r] && displs[r] + counts[r] > end)
            end = displs[r] + counts[r];
    return end * esize;
}

struct ri_extent ri_arguments_extent(const struct ring_comm *c, const struct ri_call *call)
{
    const struct form *f = &forms[call->coll];
    const size_t esize = ring_dtype_size(call->dtype);
    return (struct ri_extent){
        has_src(c, f, call->root) ? extent(c, f->src, call->scounts, call->sdispls, call->count, esize) : 0,
        has_dst(c, f, call->root) ? extent(c, f->dst, call->rcounts, call->rdispls, call->count, esize) : 0};
}

/* Where this rank's own part lies in the other buffer. */
static size_t own_offset(const struct ring_comm *c, const struct ri_call *call, const size_t *displs, size_t esize)
{
    return (displs ? displs[c->rank] : c->rank * call->count) * esize;
}

static bool in_place(const struct ring_comm *c, const struct form *f, const struct ri_call *call, size_t esize)
{
    const char *src = call->src, *dst = call->dst;
    if (f->src == OWN && f->dst == BLOCKS)
        return src == dst + own_offset(c, call, call->rdispls, esize);
    if (f->src == BLOCKS && f->dst == OWN)
        return dst == src + own_offset(c, call, call->sdispls, esize);
    if (src == dst && call->scounts)
        return !memcmp(call->scounts, call->rcounts, 2 * (size_t)c->size * sizeof *call->scounts);
    return src == dst;
}

static ring_status_t check_buffer(const char *what, const void *p, size_t bytes, size_t esize)
{
    if (bytes && !p)
        return ri_fail(RING_ERR_INVALID, "%s is NULL for %zu elements", what, bytes / esize);
    if (bytes && (uintptr_t)p % esize)
        return ri_fail(RING_ERR_INVALID, "%s is not aligned to its element of %zu bytes", what, esize);
    return RING_OK;
}

static ring_status_t check_apart(const struct ring_comm *c, const struct form *f, const struct ri_call *call,
                                 size_t esize, struct ri_extent x)
{
    const uintptr_t s = (uintptr_t)call->src, d = (uintptr_t)call->dst;
    if (!x.src || !x.dst || s >= d + x.dst || d >= s + x.src || in_place(c, f, call, esize))
        return RING_OK;
    const uintptr_t end = s + x.src < d + x.dst ? s + x.src : d + x.dst;
    return ri_fail(RING_ERR_INVALID, "src and dst overlap by %zu bytes: they must be apart, or %s",
                   end - (s > d ? s : d),
                   f->src == f->dst   ? "equal"
                   : f->dst == BLOCKS ? "src the own block of dst"
                                      : "dst the own block of src");
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static ring_status_t check_values(const struct ring_comm *c, const struct form *f, const ring_call_t *given)
{
    if (!ri_dtype_ok(given->dtype))
        return ri_fail(RING_ERR_INVALID, "dtype %d is none of ring_dtype_t (0 to %d)", (int)given->dtype,
                       RI_DTYPES - 1);
    if (f->traits & REDUCES) {
        const ring_status_t status = ri_redop_check(c, given->dtype, given->redop);
        if (status)
            return status;
    }
    if (f->traits & (ROOTED | ANY_PEER) && given->root >= c->size)
        return ri_fail(RING_ERR_INVALID, "%s %u is none of the %u ranks", f->traits & ROOTED ? "root" : "peer",
                       given->root, c->size);
    return RING_OK;
}

static ring_status_t all_checks(const struct ring_comm *c, const ring_call_t *given, size_t *room,
                                struct ri_call *call_out)
{
    if ((unsigned)given->coll >= FORMS)
        return ri_fail(RING_ERR_INVALID, "coll %d is none of ring_coll_t (0 to %d)", (int)given->coll, FORMS - 1);
    const struct form *f = &forms[given->coll];
    struct ri_call call = {.coll = f->regular};
    if (f->src == NOTHING && f->dst == NOTHING) {
        call.dtype = RING_UINT8;
        *call_out = call;
        return RING_OK;
    }
    ring_status_t status = check_values(c, f, given);
    if (status)
        return status;
    const size_t esize = ri_dtype_size(given->dtype), most = SIZE_MAX / 2 / esize;
    if (given->count > (f->src == BLOCKS || f->dst == BLOCKS ? most / c->size : most) && !room)
        return too_much("a count", given->count, esize);
    call.dtype = given->dtype;
    call.redop = f->traits & REDUCES ? given->redop : (ring_redop_t)0;
    call.root = f->traits & (ROOTED | ANY_PEER) ? given->root : 0;
    call.count = given->count;
    call.variable = f->traits & (SARRAYS | RARRAYS);
    call.src = has_src(c, f, call.root) ? given->src : NULL;
    call.dst = has_dst(c, f, call.root) ? given->dst : NULL;
    if (room && ((status = take_all_arrays(c, f, given, esize, room, &call)) || (status = find_own(c, f, &call))))
        return status;
    if (call.count > most)
        return too_much("a count", call.count, esize);
    const struct ri_extent x = ri_arguments_extent(c, &call);
    if ((status = check_buffer("src", call.src, x.src, esize)) ||
        (status = check_buffer("dst", call.dst, x.dst, esize)) || (status = check_apart(c, f, &call, esize, x)))
        return status;
    *call_out = call;
    return RING_OK;
}

/* ---- the same again -------------------------------------------------------------------------------------------- */

static struct ri_shape shape_of(const struct ring_comm *c, const struct ri_call *call)
{
    const struct form *f = &forms[call->coll];
    const struct ri_extent x = ri_arguments_extent(c, call);
    const size_t esize = ri_dtype_size(call->dtype);
    struct ri_shape shape = {
        .call = *call, .src_bytes = x.src, .dst_bytes = x.dst, .unaligned = esize - 1, .may_meet = true};
    if (f->src == OWN && f->dst == BLOCKS)
        shape.in_place = own_offset(c, call, call->rdispls, esize);
    else if (f->src == BLOCKS && f->dst == OWN)
        shape.in_place = -(uintptr_t)own_offset(c, call, call->sdispls, esize);
    else
        shape.may_meet = !call->scounts || !memcmp(call->scounts, call->rcounts, 2 * (size_t)c->size * sizeof(size_t));
    return shape;
}

static void remember(struct ring_comm *c, const ring_call_t *given, const size_t *room, const struct ri_call *call)
{
    if ((unsigned)call->redop >= RI_REDOPS)
        return;
    if ((unsigned)call->coll < RI_SHAPES && !call->variable && call->count)
        c->shape[call->coll] = shape_of(c, call);
    if (room && room == c->room) {
        c->arrays = shape_of(c, call);
        c->arrays_given = *given;
    }
}

/* The same as before, on these buffers; NULL: they are not right, or that remains to be seen. */
static const struct ri_call *on_buffers(struct ri_shape *shape, const ring_call_t *given)
{
    const uintptr_t s = shape->src_bytes ? (uintptr_t)given->src : 0;
    const uintptr_t d = shape->dst_bytes ? (uintptr_t)given->dst : 0;
    if ((s | d) & shape->unaligned || (shape->src_bytes && !s) || (shape->dst_bytes && !d))
        return NULL;
    if (s && d && s < d + shape->dst_bytes && d < s + shape->src_bytes &&
        !(shape->may_meet && s - d == shape->in_place))
        return NULL;
    shape->call.src = (const void *)s;
    shape->call.dst = (void *)d;
    return &shape->call;
}

const struct ri_call *ri_arguments_again(struct ring_comm *c, const ring_call_t *given)
{
    struct ri_shape *shape = &c->shape[(unsigned)given->coll < RI_SHAPES ? given->coll : 0];
    const struct ri_call *call = &shape->call;
    if (call->coll != given->coll || call->count != given->count || call->dtype != given->dtype ||
        call->redop != given->redop || call->root != given->root)
        return NULL;
    return on_buffers(shape, given);
}

/* Given now and then, and what was kept of the latter when it counts: counts, and behind them displacements. */
static bool same_arrays(const struct ring_comm *c, const size_t *counts, const size_t *displs,
                        const size_t *displs_then, const size_t *kept)
{
    if (!kept)
        return true;
    if (!counts || !displs != !displs_then)
        return false;
    for (uint32_t r = 0; r < c->size; r++)
        if (counts[r] != kept[r] || (displs && displs[r] != kept[c->size + r]))
            return false;
    return true;
}

const struct ri_call *ri_arguments_again_arrays(struct ring_comm *c, const ring_call_t *given)
{
    const ring_call_t *then = &c->arrays_given;
    const struct ri_call *call = &c->arrays.call;
    if (!call->variable || then->coll != given->coll || then->count != given->count || then->dtype != given->dtype ||
        then->redop != given->redop || then->root != given->root)
        return NULL;
    const bool reduces = forms[then->coll].traits & REDUCES; /* then there are no displacements to look at */
    if (!same_arrays(c, given->scounts, reduces ? NULL : given->sdispls, reduces ? NULL : then->sdispls,
                     call->scounts) ||
        !same_arrays(c, given->rcounts, given->rdispls, then->rdispls, call->rcounts))
        return NULL;
    return on_buffers(&c->arrays, given);
}

ring_status_t ri_arguments_check(struct ring_comm *c, const ring_call_t *given, size_t *room, struct ri_call *call_out)
{
    if (room && room == c->room)
        c->arrays.call.variable = false; /* it is written over */
    const ring_status_t status = all_checks(c, given, room, call_out);
    if (!status)
        remember(c, given, room, call_out);
    return status;
}
