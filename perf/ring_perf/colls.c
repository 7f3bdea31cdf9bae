/* SPDX-License-Identifier: Apache-2.0 */
/* colls.c - the collectives as ring_perf sees them: sizes, blocks and roots as nccl-tests means them, and from whose
 * input each part of an output must come.
 *
 * Counts of blocks are worked out the same on every rank, so that results are checked without talking. */
#include "perf.h"

#include "loop.h"

#define ROW(name, coll, bus, in_place, ...)    \
    {                                          \
        name, coll, bus, in_place, __VA_ARGS__ \
    }
#define PLAIN false, false, false, false
#define REDUCES .reduces = true
#define BLOCKS .blocks = true
#define ROOTED .rooted = true
#define UNEVEN .blocks = true, .uneven = true
const struct perf_coll perf_colls[PERF_COLLS] = {
    ROW("all_reduce", RING_ALL_REDUCE, PERF_BUS_TWICE, PERF_SAME, REDUCES),
    ROW("reduce", RING_REDUCE, PERF_BUS_ONE, PERF_SAME, REDUCES, ROOTED),
    ROW("broadcast", RING_BROADCAST, PERF_BUS_ONE, PERF_SAME, ROOTED),
    ROW("reduce_scatter", RING_REDUCE_SCATTER, PERF_BUS_OTHERS, PERF_DST_IN_SRC, REDUCES, BLOCKS),
    ROW("all_gather", RING_ALL_GATHER, PERF_BUS_OTHERS, PERF_SRC_IN_DST, BLOCKS),
    ROW("all_to_all", RING_ALL_TO_ALL, PERF_BUS_OTHERS, PERF_SAME, BLOCKS),
    ROW("gather", RING_GATHER, PERF_BUS_OTHERS, PERF_SRC_IN_DST, ROOTED, BLOCKS),
    ROW("scatter", RING_SCATTER, PERF_BUS_OTHERS, PERF_DST_IN_SRC, ROOTED, BLOCKS),
    ROW("barrier", RING_BARRIER, PERF_BUS_ONE, PERF_NOWHERE, PLAIN),
    ROW("reduce_scatterv", RING_REDUCE_SCATTERV, PERF_BUS_OTHERS, PERF_DST_IN_SRC, REDUCES, UNEVEN),
    ROW("all_gatherv", RING_ALL_GATHERV, PERF_BUS_OTHERS, PERF_SRC_IN_DST, UNEVEN),
    ROW("all_to_allv", RING_ALL_TO_ALLV, PERF_BUS_OTHERS, PERF_SAME, UNEVEN),
    ROW("gatherv", RING_GATHERV, PERF_BUS_OTHERS, PERF_SRC_IN_DST, ROOTED, UNEVEN),
    ROW("scatterv", RING_SCATTERV, PERF_BUS_OTHERS, PERF_DST_IN_SRC, ROOTED, UNEVEN),
    ROW("sendrecv", RING_SEND, PERF_BUS_ONE, PERF_NOWHERE, PLAIN),
};

double perf_bus_factor(const struct perf_coll *coll, uint32_t size)
{
    const double others = ((double)size - 1) / (double)size;
    return coll->bus == PERF_BUS_ONE ? 1 : coll->bus == PERF_BUS_OTHERS ? others : 2 * others;
}

static bool is_exchange(const struct perf_coll *coll)
{
    return coll->coll == RING_ALL_TO_ALL || coll->coll == RING_ALL_TO_ALLV;
}

/* The length of block `to` of rank `from`'s whole.  In an exchange every rank cuts its own whole, and such that what
 * goes one way is as long as what comes back: then an uneven one can be in place. */
static size_t block(const struct perf_case *what, uint32_t size, uint32_t from, uint32_t to)
{
    if (!what->coll->uneven)
        return what->whole / size;
    const uint32_t which = is_exchange(what->coll) ? (uint32_t)(((uint64_t)from + to) % size) : to;
    return loop_block(what->whole, size, which);
}

/* Where it begins. */
static size_t begin(const struct perf_case *what, uint32_t size, uint32_t from, uint32_t to)
{
    size_t at = 0;
    if (!what->coll->uneven)
        return what->whole / size * to;
    for (uint32_t r = 0; r < to; r++)
        at += block(what, size, from, r);
    return at;
}

static bool at_root(const struct perf_shape *s, const struct perf_case *what) { return (int64_t)s->rank == what->root; }

/* What the two buffers hold. */
static void set_lengths(struct perf_shape *s, const struct perf_case *what, size_t all)
{
    const size_t mine = s->blocks[s->rank];
    const bool root = at_root(s, what);
    switch (what->coll->coll) {
    case RING_REDUCE:
        s->sends = what->whole;
        s->receives = root ? what->whole : 0;
        break;
    case RING_BROADCAST:
        s->sends = root ? what->whole : 0;
        s->receives = what->whole;
        break;
    case RING_REDUCE_SCATTER:
    case RING_REDUCE_SCATTERV:
        s->sends = all;
        s->receives = mine;
        break;
    case RING_ALL_GATHER:
    case RING_ALL_GATHERV:
        s->sends = mine;
        s->receives = all;
        break;
    case RING_GATHER:
    case RING_GATHERV:
        s->sends = mine;
        s->receives = root ? all : 0;
        break;
    case RING_SCATTER:
    case RING_SCATTERV:
        s->sends = root ? all : 0;
        s->receives = mine;
        break;
    default: /* all_reduce, all_to_all, barrier, sendrecv */
        s->sends = s->receives = what->coll->blocks ? all : what->whole;
    }
}

void perf_shape_init(struct perf_shape *s, const struct perf_case *what, uint32_t rank, uint32_t size, size_t *memory)
{
    const struct perf_coll *coll = what->coll;
    size_t all = 0;
    *s = (struct perf_shape){.rank = rank, .size = size, .blocks = memory, .begins = memory + size};
    for (uint32_t r = 0; r < size; r++) {
        s->blocks[r] = block(what, size, rank, r);
        s->begins[r] = all;
        all += s->blocks[r];
    }
    set_lengths(s, what, all);
    s->count = !coll->blocks ? what->whole : coll->uneven ? s->blocks[rank] : what->whole / size;
    s->shown = coll->blocks ? all : what->whole;
    s->shown_count = coll->uneven ? what->whole / size : s->count;
    /* Where nothing comes or goes, there is nothing to be inside of. */
    const bool both = s->sends && s->receives;
    s->in_place = both ? coll->in_place : PERF_NOWHERE;
    s->offset = s->in_place == PERF_SRC_IN_DST || s->in_place == PERF_DST_IN_SRC ? s->begins[rank] : 0;
}

uint32_t perf_pieces(const struct perf_shape *s, const struct perf_case *what)
{
    if (!s->receives || what->coll->coll == RING_BARRIER)
        return 0;
    const bool from_all = is_exchange(what->coll) || what->coll->in_place == PERF_SRC_IN_DST;
    return from_all ? s->size : 1;
}

struct perf_piece perf_piece_of(const struct perf_shape *s, const struct perf_case *what, uint32_t k)
{
    struct perf_piece p = {.count = s->receives, .reduced = what->coll->reduces};
    if (is_exchange(what->coll))
        return (struct perf_piece){s->begins[k], s->blocks[k], begin(what, s->size, k, s->rank), k, false};
    if (what->coll->in_place == PERF_SRC_IN_DST) /* the gathering ones */
        return (struct perf_piece){s->begins[k], s->blocks[k], 0, k, false};
    if (what->coll->in_place == PERF_DST_IN_SRC) /* the scattering ones */
        p.index = s->begins[s->rank];
    p.from = what->coll->rooted ? (uint32_t)what->root : s->rank ? s->rank - 1 : s->size - 1;
    return p;
}
