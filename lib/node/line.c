/* SPDX-License-Identifier: Apache-2.0 */
/* line.c - the smallest all-reduce, and the barrier: the payload travels in the cache line that announces the call.
 *
 * One-shot: every rank reads everybody's line and reduces for itself.  Cost: one cache miss per peer, one phase. */
#include "lib/node/inner.h"

static enum step begin(struct ri_node *node)
{
    node->op.hears_all = true;
    node->op.kind = KIND_LINE;
    copy_few(line_of(node, node->me)->payload, node->op.call.src, node->op.bytes);
    ri_node_announce(node);
    return STEP_MOVED;
}

/* The own operand is not read from the own line: that is on its way to a peer, and fetching it back would take as long
 * as the whole exchange. */
static const void *operand(const struct ri_node *node, uint32_t rank)
{
    return rank == node->me ? node->op.call.src : line_of(node, rank)->payload;
}

static void reduce(const struct ri_node *node)
{
    const struct ri_reduction *red = node->op.red;
    if (node->size == 2 && !red->divide) {
        red->reduce(red, node->op.call.dst, operand(node, 0), operand(node, 1), node->op.call.count);
        return;
    }
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = operand(node, r);
    node->results[0] = node->op.call.dst;
    ri_node_combine(node, 1, node->op.call.count, false);
}

static enum step advance(struct ri_node *node)
{
    const enum step step = ri_node_hear(node);
    if (step != STEP_MOVED)
        return step;
    if (node->op.bytes)
        reduce(node);
    return STEP_DONE;
}

const struct way ri_node_line = {.name = "line", .begin = begin, .advance = advance};
