/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - shares on the callers' own buffers, when every rank can reach all of them.
 *
 * Each rank reduces its share from all src and stores the result to the dst of all who want it; nobody else touches
 * that share, so in place and apart are the same.  Cost: each rank reads bytes and writes bytes, no copies; two phases.
 * Places come with the announcement; a rank may leave when all have stopped using its buffers. */
#include "lib/node/inner.h"

enum { STAGE_LEAVING = STAGE_HEARD + 1 };

static enum step begin(struct ri_node *node)
{
    struct op *op = &node->op;
    op->hears_all = true;
    op->kind = KIND_DIRECT;
    ri_node_announce_places(node);
    return STEP_MOVED;
}

static uint32_t find_results(struct ri_node *node, size_t offset)
{
    const struct op *op = &node->op;
    if (op->call.coll != RING_ALL_REDUCE) {
        node->results[0] = mapped(&node->dst[op->call.root], offset);
        return 1;
    }
    for (uint32_t i = 0; i < node->size; i++) /* the own first: it is in this processor's cache */
        node->results[i] = mapped(&node->dst[peer_at(node, i)], offset);
    return node->size;
}

/* Piece op.i of the own share; false when there is none left. */
static bool reduce_piece(struct ri_node *node)
{
    struct op *op = &node->op;
    const size_t esize = op->red->esize, count = op->call.count;
    const size_t from = share_begin(node, count, node->me) * esize, to = share_begin(node, count, node->me + 1) * esize;
    const size_t at = from + (size_t)op->i * PIECE, bytes = to - at < PIECE ? to - at : PIECE;
    if (at >= to)
        return false;
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = mapped(&node->src[r], at);
    ri_node_combine(node, find_results(node, at), bytes / esize, op->bytes >= node->stream_from);
    op->i++;
    return true;
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    enum step step;
    switch (op->stage) {
    case STAGE_ANNOUNCED:
        step = ri_node_hear(node);
        op->stage = step == STEP_MOVED ? STAGE_HEARD : STAGE_ANNOUNCED;
        return step;
    case STAGE_HEARD:
        if (!reduce_piece(node)) {
            tell(node, COUNTER_DONE, op->seq);
            op->stage = STAGE_LEAVING;
        }
        return STEP_MOVED;
    default:
        return ri_node_done(node, EVERYBODY, op->seq) ? STEP_DONE : STEP_WAIT;
    }
}

const struct way ri_node_direct = {.name = "direct", .begin = begin, .advance = advance};
