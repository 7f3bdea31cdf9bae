/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - see shape.h.  Says by itself, without looking into lib/coll, what include/ring/ring.h promises of each. */
#include "tests/sim/shape.h"

#include <string.h>

uint64_t sim_chance(uint64_t *random, uint64_t below)
{
    uint64_t z = *random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* Hosts are numbered in order of their lowest rank, and no host is empty. */
void sim_lay_out(struct sim_layout *l, uint32_t size, uint32_t nodes, uint64_t *random)
{
    uint32_t number[SHAPE_MAX], n = 0;
    memset(number, 0xff, sizeof number);
    l->layout = (struct ri_layout){.node_of = l->node_of, .order = l->order, .first = l->first};
    for (uint32_t r = 0; r < size; r++) {
        uint32_t *node = &number[sim_chance(random, nodes)];
        if (*node == UINT32_MAX)
            *node = l->layout.nodes++;
        l->node_of[r] = *node;
    }
    for (uint32_t node = 0; node < l->layout.nodes; node++) {
        l->first[node] = n;
        for (uint32_t r = 0; r < size; r++)
            if (l->node_of[r] == node)
                l->order[n++] = r;
    }
    l->first[l->layout.nodes] = n;
}

bool shape_has_blocks(ring_coll_t coll)
{
    return coll == RING_REDUCE_SCATTER || coll == RING_ALL_GATHER || coll == RING_ALL_TO_ALL || coll == RING_GATHER ||
           coll == RING_SCATTER;
}

bool shape_reduces(ring_coll_t coll)
{
    return coll == RING_ALL_REDUCE || coll == RING_REDUCE || coll == RING_REDUCE_SCATTER;
}

bool shape_in_place_allowed(ring_coll_t coll)
{
    return coll != RING_ALL_TO_ALL && coll != RING_BARRIER && coll != RING_SEND && coll != RING_RECV;
}

/* The length of the block that goes from one rank to another; by chance when variable. */
static size_t length(const struct shape *sh, uint64_t *random)
{
    if (!sh->variable)
        return sh->count;
    return sim_chance(random, 4) ? (size_t)sim_chance(random, sh->count + 1) : 0;
}

/* Places in any order, with gaps. */
static void place(const struct shape *sh, const size_t *counts, size_t *displs, uint64_t *random)
{
    const uint32_t start = sh->variable ? (uint32_t)sim_chance(random, sh->size) : 0;
    size_t at = 0;
    for (uint32_t i = 0; i < sh->size; i++) {
        const uint32_t r = (start + i) % sh->size;
        at += sh->variable && sim_chance(random, 3) == 0 ? (size_t)sim_chance(random, 4) : 0;
        displs[r] = at;
        at += counts[r];
    }
}

void shape_make(struct shape *sh, uint64_t *random)
{
    for (uint32_t i = 0; i < sh->size; i++) {
        const size_t own = length(sh, random);
        for (uint32_t j = 0; j < sh->size; j++) {
            if (sh->coll == RING_ALL_TO_ALL)
                sh->sends[i][j] = length(sh, random);
            else if (sh->coll == RING_REDUCE_SCATTER || sh->coll == RING_SCATTER)
                sh->sends[j][i] = own;
            else
                sh->sends[i][j] = own;
        }
    }
    for (uint32_t i = 0; i < sh->size; i++)
        for (uint32_t j = 0; j < sh->size; j++)
            sh->receives[j][i] = sh->sends[i][j];
    for (uint32_t r = 0; r < sh->size; r++) {
        place(sh, sh->sends[r], sh->sdispls[r], random);
        place(sh, sh->receives[r], sh->rdispls[r], random);
    }
}

/* ---- one rank's view ------------------------------------------------------------------------------------------- */

static uint32_t sender(const struct shape *sh) { return (sh->root + 1) % sh->size; }

static bool has_many_src(const struct shape *sh, uint32_t rank)
{
    return sh->coll == RING_REDUCE_SCATTER || sh->coll == RING_ALL_TO_ALL ||
           (sh->coll == RING_SCATTER && rank == sh->root);
}

static bool has_many_dst(const struct shape *sh, uint32_t rank)
{
    return sh->coll == RING_ALL_GATHER || sh->coll == RING_ALL_TO_ALL || (sh->coll == RING_GATHER && rank == sh->root);
}

struct ri_coll_args shape_args(const struct shape *sh, uint32_t rank, ring_dtype_t dtype, size_t seg)
{
    struct ri_call call = {
        .coll = sh->coll, .dtype = dtype, .root = sh->root, .count = sh->count, .variable = sh->variable};
    if (sh->coll == RING_SEND && rank == sh->root)
        call.root = sender(sh);
    if (sh->variable) {
        const size_t wrong = 123457; /* says nothing where there are arrays */
        call.count = sh->coll == RING_GATHER    ? sh->sends[rank][sh->root]
                     : sh->coll == RING_SCATTER ? sh->receives[rank][sh->root]
                                                : wrong;
        if (has_many_src(sh, rank)) {
            call.scounts = sh->sends[rank];
            call.sdispls = sh->sdispls[rank];
        }
        if (has_many_dst(sh, rank)) {
            call.rcounts = sh->receives[rank];
            call.rdispls = sh->rdispls[rank];
        }
    }
    struct ri_coll_args args = ri_coll_args_for(&call, rank, sh->size, sh->layout, seg);
    args.seg = seg;
    return args;
}

const struct ri_algorithm *shape_algorithm(const struct shape *sh, const struct ri_algorithm *a, uint32_t rank)
{
    if (sh->coll != RING_SEND || rank == sender(sh))
        return a;
    return rank == sh->root ? ri_algorithm_named(RING_RECV, a->name) : NULL;
}

static size_t extent(const struct shape *sh, const size_t *counts, const size_t *displs)
{
    size_t end = 0;
    for (uint32_t r = 0; r < sh->size; r++)
        end = displs[r] + counts[r] > end ? displs[r] + counts[r] : end;
    return end;
}

size_t shape_src(const struct shape *sh, uint32_t rank)
{
    if (has_many_src(sh, rank))
        return extent(sh, sh->sends[rank], sh->sdispls[rank]);
    switch (sh->coll) {
    case RING_BARRIER:
        return 0;
    case RING_BROADCAST:
        return rank == sh->root ? sh->count : 0;
    case RING_SEND:
        return rank == sender(sh) ? sh->count : 0;
    case RING_SCATTER:
        return 0;
    case RING_ALL_GATHER:
    case RING_GATHER:
        return sh->sends[rank][sh->root];
    default:
        return sh->count;
    }
}

size_t shape_dst(const struct shape *sh, uint32_t rank)
{
    if (has_many_dst(sh, rank))
        return extent(sh, sh->receives[rank], sh->rdispls[rank]);
    switch (sh->coll) {
    case RING_BARRIER:
        return 0;
    case RING_REDUCE:
    case RING_SEND:
        return rank == sh->root ? sh->count : 0;
    case RING_GATHER:
        return 0;
    case RING_REDUCE_SCATTER:
    case RING_SCATTER:
        return sh->receives[rank][sh->root];
    default:
        return sh->count;
    }
}

bool shape_place(const struct shape *sh, uint32_t rank, int64_t *src_at_out)
{
    const bool rooted =
        sh->coll == RING_REDUCE || sh->coll == RING_BROADCAST || sh->coll == RING_GATHER || sh->coll == RING_SCATTER;
    if (!sh->in_place || (rooted && rank != sh->root))
        return false;
    *src_at_out = has_many_dst(sh, rank)   ? (int64_t)sh->rdispls[rank][rank]
                  : has_many_src(sh, rank) ? -(int64_t)sh->sdispls[rank][rank]
                                           : 0;
    return true;
}

void shape_flow(const struct shape *sh, uint32_t rank, uint32_t from, struct ri_cut *src_out, struct ri_cut *dst_out)
{
    const bool only_root = sh->coll == RING_BROADCAST || sh->coll == RING_SCATTER;
    const bool to_root = sh->coll == RING_REDUCE || sh->coll == RING_GATHER;
    size_t n = shape_has_blocks(sh->coll) ? sh->sends[from][rank] : sh->count;
    if ((only_root && from != sh->root) || (to_root && rank != sh->root) || sh->coll == RING_BARRIER ||
        (sh->coll == RING_SEND && (rank != sh->root || from != sender(sh))))
        n = 0;
    *src_out = (struct ri_cut){has_many_src(sh, from) ? sh->sdispls[from][rank] : 0, n};
    *dst_out = (struct ri_cut){has_many_dst(sh, rank) ? sh->rdispls[rank][from] : 0, n};
}
