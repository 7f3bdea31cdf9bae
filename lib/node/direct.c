/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - shares on the callers' own buffers, when every rank can reach all of them.
 *
 * Each rank reduces its share from all src and stores the result to the dst of all who want it; nobody else touches
 * that share, so in place and apart are the same.  Cost: each rank reads bytes and writes bytes, no copies; two phases.
 * Places come with the announcement; a rank may leave when all have stopped using its buffers. */
#include "lib/base/clock.h"
#include "lib/node/inner.h"

enum { STAGE_LEAVING = STAGE_HEARD + 1 };

static enum step begin(struct ri_node *node)
{
    struct op *op = &node->op;
    op->hears_all = true;
    op->stream = ri_node_streams(node, 2 * op->bytes);
    op->kind = KIND_DIRECT;
    ri_node_announce_places(node);
    return STEP_MOVED;
}

static bool wants_result(const struct ri_node *node, uint32_t rank)
{
    return node->op.call.coll == RING_ALL_REDUCE || rank == node->op.call.root;
}

/* The share of this rank. */
static struct flow share_of(const struct ri_node *node)
{
    const size_t esize = node->op.red->esize, count = node->op.call.count;
    const size_t from = share_begin(node, count, node->me) * esize;
    return (struct flow){.at = from, .bytes = share_begin(node, count, node->me + 1) * esize - from};
}

static const void *operand(struct ri_node *node, uint32_t rank, uint64_t i, size_t at, size_t *bytes)
{
    const size_t offset = share_of(node).at + (size_t)i * PIECE + at;
    return rank == node->me ? (const unsigned char *)node->op.call.src + offset
                            : ri_node_reach(node, rank, false, offset, bytes);
}

/* The own first: it is in this processor's cache. */
static uint32_t find_results(struct ri_node *node, uint64_t i, size_t at, size_t *bytes)
{
    const size_t offset = share_of(node).at + (size_t)i * PIECE + at;
    uint32_t n = 0;
    for (uint32_t k = 0; k < node->size; k++) {
        const uint32_t rank = peer_at(node, k);
        if (!wants_result(node, rank))
            continue;
        node->results[n] = rank == node->me ? (unsigned char *)node->op.call.dst + offset
                                            : ri_node_reach(node, rank, true, offset, bytes);
        if (!node->results[n++])
            return 0;
    }
    return n;
}

/* Piece op.i of the own share. */
static enum step reduce_piece(struct ri_node *node, size_t left)
{
    struct op *op = &node->op;
    const struct range range = {.operand = operand,
                                .results = find_results,
                                .i = op->i++,
                                .end = left < PIECE ? left : PIECE,
                                .stream = op->stream};
    const uint64_t from = node->recent.now ? ri_now() : 0;
    const bool combined = ri_node_combine_range(node, &range);
    if (node->recent.now)
        node->recent.took += ri_now() - from;
    return combined ? STEP_MOVED : STEP_FAILED;
}

/* What the others have stored is all of dst but the own share. */
static enum step leave(struct ri_node *node)
{
    if (!ri_node_done(node, EVERYBODY, node->op.seq))
        return STEP_WAIT;
    const size_t bytes = node->op.bytes;
    const struct flow share = share_of(node);
    if (wants_result(node, node->me) && !node->s.one_process) {
        ri_node_take_edges(node, 0, share.at, bytes);
        ri_node_take_edges(node, share.at + share.bytes, bytes, bytes);
    }
    return STEP_DONE;
}

static enum step reduce_or_leave(struct ri_node *node)
{
    struct op *op = &node->op;
    const struct flow share = share_of(node);
    const size_t done = (size_t)op->i * PIECE;
    if (done < share.bytes)
        return reduce_piece(node, share.bytes - done);
    tell(node, COUNTER_DONE, op->seq);
    ri_node_streamed(node);
    if (share.bytes <= PIECE)
        ri_node_remember(node, share.at, share.bytes);
    op->stage = STAGE_LEAVING;
    return STEP_MOVED;
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    switch (op->stage) {
    case STAGE_ANNOUNCED:
        return ri_node_hear(node);
    case STAGE_HEARD:
        return reduce_or_leave(node);
    default:
        return leave(node);
    }
}

void ri_node_direct_join(struct ri_node *node)
{
    node->op.way = &ri_node_direct;
    node->op.advance = advance;
    node->op.stage = STAGE_LEAVING;
}

const struct way ri_node_direct = {.name = "direct", .begin = begin, .advance = advance};
