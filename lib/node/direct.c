/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - two-shot all-reduce on the callers' own buffers, among ranks that are threads of one process.
 *
 * Each rank reduces its share from all src and stores the result to all dst; nobody else touches that share, so in
 * place and apart are the same.  Cost: each rank reads bytes and writes bytes, no copies; two phases.  Addresses come
 * with the announcement; a rank may leave when all have stopped using its buffers. */
#include "lib/node/inner.h"
#include "lib/node/stream.h"

enum { STAGE_ANNOUNCED, STAGE_REDUCE, STAGE_LEAVING };

/* A block of the own share, while it is in cache to everybody. */
static void reduce_block(struct ri_node *node, size_t offset, size_t bytes)
{
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = (const unsigned char *)(uintptr_t)line_of(node, r)->at.src + offset;
    unsigned char *mine = (unsigned char *)node->op.call.dst + offset;
    ri_node_combine(node, mine, NULL, bytes / node->op.red->esize);
    for (uint32_t cursor = 1; cursor < node->size; cursor++) {
        const struct line *peer = line_of(node, peer_at(node, cursor));
        stream_copy((unsigned char *)(uintptr_t)peer->at.dst + offset, mine, bytes);
    }
}

/* Piece op.i of the own share; false when there is none left. */
static bool reduce_piece(struct ri_node *node)
{
    const size_t esize = node->op.red->esize, count = node->op.call.count;
    const size_t from = share_begin(node, count, node->me) * esize, to = share_begin(node, count, node->me + 1) * esize;
    const size_t begin_at = from + (size_t)node->op.i * PIECE;
    if (begin_at >= to)
        return false;
    const size_t end_at = to - begin_at < PIECE ? to : begin_at + PIECE;
    for (size_t at = begin_at; at < end_at; at += BLOCK)
        reduce_block(node, at, end_at - at < BLOCK ? end_at - at : BLOCK);
    node->op.i++;
    return true;
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    enum step step;
    switch (op->stage) {
    case STAGE_ANNOUNCED:
        step = ri_node_all_announced(node);
        if (step == STEP_MOVED)
            op->stage = STAGE_REDUCE;
        return step;
    case STAGE_REDUCE:
        if (!reduce_piece(node)) {
            publish(node, counter_of(node, node->me, COUNTER_LEFT), ++node->left);
            op->stage = STAGE_LEAVING;
        }
        return STEP_MOVED;
    default:
        return ri_node_all_reached(node, COUNTER_LEFT, node->left) ? STEP_DONE : STEP_WAIT;
    }
}

const struct way ri_node_direct = {.name = "direct", .begin = ri_node_announce_buffers, .advance = advance};
