/* SPDX-License-Identifier: Apache-2.0 */
/* line.c - the smallest all-reduce: the payload travels in the cache line that announces the call.
 *
 * One-shot: every rank reads everybody's line and reduces for itself.  Cost: one cache miss per peer, one phase. */
#include "lib/node/inner.h"

/* Lengths up to a line, without a call: eight bytes at a time, the last eight overlapping those before. */
static void copy_few(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes < 8) {
        for (size_t i = 0; i < bytes; i++)
            to[i] = from[i];
        return;
    }
    for (size_t i = 0; i + 8 < bytes; i += 8)
        memcpy(to + i, from + i, 8);
    memcpy(to + bytes - 8, from + bytes - 8, 8);
}

static void begin(struct ri_node *node)
{
    copy_few(line_of(node, node->me)->payload, node->op.call.src, node->op.bytes);
    ri_node_announce(node);
}

/* The own operand is in the own line too, so the running result may be dst also in place. */
static void reduce(const struct ri_node *node)
{
    const struct ri_reduction *red = node->op.red;
    const size_t count = node->op.call.count;
    void *dst = node->op.call.dst;
    const void *left = line_of(node, 0)->payload;
    for (uint32_t r = 1; r < node->size; r++) {
        red->reduce(red, dst, left, line_of(node, r)->payload, count);
        left = dst;
    }
    if (red->divide)
        red->divide(dst, count, node->size);
}

static enum step advance(struct ri_node *node)
{
    const enum step step = ri_node_all_announced(node);
    if (step != STEP_MOVED)
        return step;
    if (node->op.bytes)
        reduce(node);
    return STEP_DONE;
}

const struct way ri_node_line = {.name = "line", .begin = begin, .advance = advance};
