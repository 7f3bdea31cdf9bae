/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - the operands of all ranks reduced into one result, in the order of the ranks.
 *
 * Block by block, so that the running result stays in the first-level cache: with N ranks each operand is read once
 * from where it lies, and the result is written once.  Cost: N loads and one or two stores per element. */
#include "lib/node/inner.h"

struct block {
    unsigned char *dst, *dst2;
    size_t offset, count;
};

static const void *operand(const struct ri_node *node, uint32_t rank, size_t offset)
{
    return (const unsigned char *)node->operands[rank] + offset;
}

static void combine_block(const struct ri_node *node, const struct block *b)
{
    const struct ri_reduction *red = node->op.red;
    const void *left = operand(node, 0, b->offset);
    const bool twice = b->dst2 && !red->divide;
    const uint32_t last = node->size - 1;
    for (uint32_t r = 1; r < last; r++) {
        red->reduce(b->dst, left, operand(node, r, b->offset), b->count);
        left = b->dst;
    }
    if (twice)
        red->reduce2(b->dst, b->dst2, left, operand(node, last, b->offset), b->count);
    else
        red->reduce(b->dst, left, operand(node, last, b->offset), b->count);
    if (red->divide)
        red->divide(b->dst, b->count, node->size);
    if (b->dst2 && !twice)
        memcpy(b->dst2, b->dst, b->count * red->esize);
}

void ri_node_combine(const struct ri_node *node, void *dst, void *dst2, size_t count)
{
    const size_t esize = node->op.red->esize, most = BLOCK / esize;
    for (size_t done = 0; done < count; done += most) {
        const size_t left = count - done;
        const struct block b = {.dst = (unsigned char *)dst + done * esize,
                                .dst2 = dst2 ? (unsigned char *)dst2 + done * esize : NULL,
                                .offset = done * esize,
                                .count = left < most ? left : most};
        combine_block(node, &b);
    }
}
