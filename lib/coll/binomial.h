/* SPDX-License-Identifier: Apache-2.0 */
/* binomial.h - the binomial tree over the ranks, numbered from the root on: below a number v lie the numbers from v on,
 * as many as the lowest bit of v says, so that what a rank passes on is one stretch of blocks.  log2(n) hops deep. */
#ifndef RI_BINOMIAL_H
#define RI_BINOMIAL_H

#include "lib/coll/coll.h"

struct ri_binomial {
    uint32_t number; /* 0: the root */
    uint32_t held;   /* numbers below it and itself; its children begin at number + 1, + 2, + 4 ... */
};

static inline struct ri_binomial ri_binomial_of(const struct ri_coll_args *a)
{
    const uint32_t v = (a->rank + a->size - a->root) % a->size, most = a->size - v;
    const uint32_t below = v & -v;
    return (struct ri_binomial){v, v && below < most ? below : most};
}

static inline uint32_t ri_binomial_rank(const struct ri_coll_args *a, uint32_t number)
{
    return (number + a->root) % a->size;
}

static inline uint32_t ri_binomial_parent(const struct ri_coll_args *a, struct ri_binomial b)
{
    return ri_binomial_rank(a, b.number & (b.number - 1));
}

/* How many numbers the child `far` numbers on holds. */
static inline uint32_t ri_binomial_child(struct ri_binomial b, uint32_t far)
{
    return far < b.held - far ? far : b.held - far;
}

/* The blocks of `count` numbers from `number` on, as the root's buffer holds them by rank: the first .. of them in a
 * row, and how many remain for the buffer's begin. */
static inline struct ri_cut ri_binomial_row(const struct ri_coll_args *a, uint32_t number, uint32_t count,
                                            uint32_t *rest_out)
{
    const uint32_t first = ri_binomial_rank(a, number);
    const uint32_t row = count < a->size - first ? count : a->size - first;
    *rest_out = count - row;
    return (struct ri_cut){first * a->count, row * a->count};
}

/* Whole blocks go the way of log2(n) hops, which the last of them to leave the root, or reach it, all wait for. */
static inline double ri_binomial_cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const double block = (double)a->count * a->esize;
    double total = m->reduce_byte * block * a->size; /* copies */
    for (uint32_t far = 1; far < a->size; far *= 2)
        total += ri_cost_of(m, 1, block * (far < a->size - far ? far : a->size - far));
    return total;
}

#endif
