/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - which algorithm, and in what pieces.
 *
 * Every algorithm tells its cost in the latency-bandwidth model; the cheapest that fits is taken, the first in the
 * table when two cost the same.  All ranks must come to the same choice, so it depends on nothing but its arguments:
 * lib/comm sees to it that these agree. */
#include "lib/coll/coll.h"

#include <string.h>

#include "lib/coll/hosts.h"
#include "lib/coll/tree.h"

enum {
    STEPS = 10000,       /* of a program, roughly                                       */
    PER_SEGMENT = 4,     /* steps: send, receive and reduce, in two laps                */
    IN_FLIGHT = 4,       /* segments of a part, so that one travels while one is added  */
    SMALLEST = 32 << 10, /* below this a message costs more than the overlap brings     */
};

/* How much slower each further flow into one receiver makes them all: an assumption, small enough that it decides only
 * where an algorithm among neighbours needs as many bytes. */
static const double CROWD = 0.01;

bool ri_fits_any(const struct ri_coll_args *a)
{
    (void)a;
    return true;
}

const struct ri_algorithm *ri_algorithm_named(ring_coll_t coll, const char *name)
{
    for (const struct ri_algorithm *const *p = ri_algorithms; *p; p++)
        if ((*p)->coll == coll && !strcmp((*p)->name, name))
            return *p;
    return NULL;
}

static bool reduces(ring_coll_t coll)
{
    return coll == RING_ALL_REDUCE || coll == RING_REDUCE || coll == RING_REDUCE_SCATTER;
}

/* Where nothing is reduced, all give the same bits. */
static bool suits(const struct ri_algorithm *p, const struct ri_coll_args *a)
{
    return (p->ordered || !a->ordered || !reduces(p->coll)) && p->fits(a);
}

const struct ri_algorithm *ri_algorithm_choose(ring_coll_t coll, const struct ri_coll_args *a,
                                               const struct ri_cost_model *m, const char *forced)
{
    const struct ri_algorithm *best = forced ? ri_algorithm_named(coll, forced) : NULL;
    double least = 0;
    if (best && suits(best, a))
        return best;
    best = NULL;
    for (const struct ri_algorithm *const *p = ri_algorithms; *p; p++) {
        if ((*p)->coll != coll || !suits(*p, a))
            continue;
        const double cost = (*p)->cost(a, m);
        if (!best || cost < least) {
            best = *p;
            least = cost;
        }
    }
    return best;
}

static size_t divide_up(size_t a, size_t b) { return a / b + (a % b != 0); }

size_t ri_segment_for(size_t bytes, uint32_t parts, uint32_t esize, size_t limit)
{
    const size_t ranks = parts ? parts : 1;
    const size_t part = divide_up(bytes, ranks);
    const size_t most = STEPS / (PER_SEGMENT * ranks);     /* segments of a part */
    const size_t least = divide_up(part, most ? most : 1); /* bytes, by the number of steps */
    size_t seg = part / IN_FLIGHT > SMALLEST ? part / IN_FLIGHT : SMALLEST;
    if (seg > limit)
        seg = limit;
    if (seg < least)
        return least > SIZE_MAX - esize ? SIZE_MAX / esize * esize : divide_up(least, esize) * esize;
    return seg < esize ? esize : seg / esize * esize;
}

size_t ri_longest(const struct ri_coll_args *a, const size_t *counts)
{
    size_t most = counts ? 0 : a->count;
    for (uint32_t r = 0; counts && r < a->size; r++)
        most = counts[r] > most ? counts[r] : most;
    return most;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t sum_of(const struct ri_coll_args *a, const size_t *counts)
{
    uint64_t sum = counts ? 0 : times(a->count, a->size);
    for (uint32_t r = 0; counts && r < a->size; r++)
        sum += counts[r];
    return sum;
}

uint64_t ri_coll_bytes(ring_coll_t coll, const struct ri_coll_args *a)
{
    switch (coll) {
    case RING_ALL_GATHER:
        return times(sum_of(a, a->rcounts), a->esize);
    case RING_REDUCE_SCATTER:
        return times(sum_of(a, a->scounts), a->esize);
    case RING_ALL_TO_ALL:
    case RING_GATHER:
    case RING_SCATTER:
        return a->variable ? 0 : times(sum_of(a, NULL), a->esize);
    case RING_BARRIER:
        return 0;
    default:
        return times(a->count, a->esize);
    }
}

/* In how many parts the buffer is on its way at once, and how long all parts are if they are as long as the longest. */
static size_t segment_of(ring_coll_t coll, const struct ri_coll_args *a, size_t limit)
{
    const uint32_t depth = ri_tree_depth(a->size);
    uint64_t bytes = ri_coll_bytes(coll, a);
    uint32_t parts = a->size;
    if (coll == RING_ALL_GATHER || coll == RING_REDUCE_SCATTER)
        bytes = times(times(ri_longest(a, coll == RING_ALL_GATHER ? a->rcounts : a->scounts), a->size), a->esize);
    else if (coll == RING_BROADCAST || coll == RING_REDUCE)
        parts = depth ? depth : 1;
    else if (coll == RING_SEND || coll == RING_RECV)
        parts = 1;
    else if (a->variable) /* nobody waits for a part of these, and not all know how long they are */
        return limit > a->esize ? limit / a->esize * a->esize : a->esize;
    return ri_segment_for(bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX - a->esize, parts, a->esize, limit);
}

struct ri_coll_args ri_coll_args_for(const struct ri_call *call, uint32_t rank, uint32_t size,
                                     const struct ri_layout *layout, size_t limit)
{
    struct ri_coll_args a = {.rank = rank,
                             .size = size,
                             .count = call->count,
                             .esize = (uint32_t)ring_dtype_size(call->dtype),
                             .root = call->root,
                             .variable = call->variable,
                             .scounts = call->scounts,
                             .sdispls = call->sdispls,
                             .rcounts = call->rcounts,
                             .rdispls = call->rdispls,
                             .layout = layout};
    a.seg = segment_of(call->coll, &a, limit);
    return a;
}

/* Of the bytes that a host sends in a ring, how many times as many leave it when all its ranks send to all others. */
static double host_load(const struct ri_coll_args *a)
{
    const double most = ri_crowd_of(a->layout).most;
    const double load = a->layout && a->layout->nodes > 1 ? most * (a->size - most) / (a->size - 1) : 1;
    return load > 1 ? load : 1;
}

double ri_cost_direct(const struct ri_coll_args *a, const struct ri_cost_model *m, double messages, double bytes)
{
    const double others = a->size - 1;
    const double crowd = a->size > 2 ? 1 + CROWD * (others - 1) : 1;
    const double links = (others - 1) * m->link;
    return others ? links + ri_cost_of(m, others * messages, others * bytes * host_load(a) * crowd) : 0;
}

static void keep(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut all = {0, a->count};
    ri_copy(s, ri_bytes_of(a, RI_DST, all), ri_bytes_of(a, RI_SRC, all), RI_NONE);
}

ring_status_t ri_build_alone(struct ri_sched *s, const struct ri_coll_args *a)
{
    keep(s, a);
    return ri_sched_done(s);
}

void ri_keep_own(struct ri_sched *s, const struct ri_coll_args *a)
{
    if (a->rank == a->root)
        keep(s, a);
}

ring_status_t ri_build_own(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut own = ri_src_block(a, a->rank);
    ri_copy(s, ri_bytes_of(a, RI_DST, (struct ri_cut){0, own.count}), ri_bytes_of(a, RI_SRC, own), RI_NONE);
    return ri_sched_done(s);
}

static void move_to(struct ri_span token, struct ri_span *x)
{
    if (x->slot != RI_TMP)
        *x = (struct ri_span){RI_TMP, token.off + x->off, x->len};
}

ring_status_t ri_build_tokens(struct ri_sched *s, const struct ri_coll_args *a,
                              ring_status_t (*build)(struct ri_sched *s, const struct ri_coll_args *a))
{
    struct ri_coll_args one = *a;
    const struct ri_span token = ri_tmp(s, a->esize);
    one.count = 1;
    const ring_status_t status = build(s, &one);
    for (uint32_t i = 0; i < s->n; i++) {
        move_to(token, &s->step[i].dst);
        move_to(token, &s->step[i].a);
        move_to(token, &s->step[i].b);
    }
    return status;
}
