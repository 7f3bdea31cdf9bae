/* SPDX-License-Identifier: Apache-2.0 */
/* line.c - the smallest all-reduce: the payload travels in the cache line that announces the call.
 *
 * One-shot: every rank reads everybody's line and reduces for itself.  Cost: one cache miss per peer, one phase. */
#include "lib/node/inner.h"

static void begin(struct ri_node *node)
{
    if (node->op.bytes)
        memcpy(line_of(node, node->me)->payload, node->op.call.src, node->op.bytes);
    ri_node_announce(node);
}

/* The next line was read last when peers did the operation before the previous one, so it can be taken back now, while
 * the peers' lines are on their way. */
static void fetch_next_line(struct ri_node *node)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(control_of(node, node->me)->line[(node->op.seq + 1) % LINES]));
#else
    __builtin_prefetch(&control_of(node, node->me)->line[(node->op.seq + 1) % LINES], 1);
#endif
}

static void reduce(const struct ri_node *node)
{
    _Alignas(16) unsigned char sum[LINE_PAYLOAD];
    const struct ri_reduction *red = node->op.red;
    const size_t count = node->op.call.count;
    const void *left = line_of(node, 0)->payload;
    for (uint32_t r = 1; r < node->size; r++) {
        red->reduce(sum, left, line_of(node, r)->payload, count);
        left = sum;
    }
    if (red->divide)
        red->divide(sum, count, node->size);
    memcpy(node->op.call.dst, sum, node->op.bytes);
}

static enum step advance(struct ri_node *node)
{
    if (!node->op.stage) {
        fetch_next_line(node);
        node->op.stage = 1;
    }
    const enum step step = ri_node_all_announced(node);
    if (step != STEP_MOVED)
        return step;
    if (node->op.bytes)
        reduce(node);
    return STEP_DONE;
}

const struct way ri_node_line = {.name = "line", .begin = begin, .advance = advance};
