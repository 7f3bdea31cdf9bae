/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - two-shot all-reduce on the callers' own buffers, among ranks that are threads of one process.
 *
 * Each rank reduces its share from all src and stores the result to all dst; nobody else touches that share, so in
 * place and apart are the same.  Cost: each rank reads bytes and writes bytes, no copies; two phases.  Addresses come
 * with the announcement; a rank may leave when all have stopped using its buffers. */
#include "lib/node/inner.h"

enum { STAGE_ANNOUNCED, STAGE_LEAVING };

static void begin(struct ri_node *node)
{
    struct line *mine = line_of(node, node->me);
    mine->at.src = (uintptr_t)node->op.call.src;
    mine->at.dst = (uintptr_t)node->op.call.dst;
    ri_node_announce(node);
}

static unsigned char *dst_of(const struct ri_node *node, uint32_t rank)
{
    return (unsigned char *)(uintptr_t)line_of(node, rank)->at.dst;
}

/* A block at a time, so that it is stored to the third and further ranks from cache. */
static void reduce_block(struct ri_node *node, size_t offset, size_t bytes)
{
    const uint32_t second = node->me ? 0 : 1;
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = (const unsigned char *)(uintptr_t)line_of(node, r)->at.src + offset;
    /* In place, the running result of more than two operands would overwrite one that is still to come. */
    unsigned char *sum = node->size == 2 ? dst_of(node, node->me) + offset : node->bounce;
    ri_node_combine(node, sum, node->size == 2 ? dst_of(node, second) + offset : NULL, bytes / node->op.red->esize);
    for (uint32_t r = 0; node->size > 2 && r < node->size; r++)
        memcpy(dst_of(node, r) + offset, sum, bytes);
}

static void reduce_share(struct ri_node *node)
{
    const size_t esize = node->op.red->esize, count = node->op.call.count;
    const size_t from = share_begin(node, count, node->me) * esize, to = share_begin(node, count, node->me + 1) * esize;
    for (size_t at = from; at < to; at += BLOCK)
        reduce_block(node, at, to - at < BLOCK ? to - at : BLOCK);
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    if (op->stage == STAGE_ANNOUNCED) {
        const enum step step = ri_node_all_announced(node);
        if (step != STEP_MOVED)
            return step;
        reduce_share(node);
        publish(node, counter_of(node, node->me, COUNTER_LEFT), ++node->left);
        op->stage = STAGE_LEAVING;
    }
    return ri_node_all_reached(node, COUNTER_LEFT, node->left) ? STEP_DONE : STEP_WAIT;
}

const struct way ri_node_direct = {.name = "direct", .begin = begin, .advance = advance};
