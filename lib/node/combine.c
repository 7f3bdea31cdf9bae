/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - the operands of all ranks reduced into one result, in the order of the ranks.
 *
 * Block by block, so that the running result stays in the first-level cache: each operand is read once from where it
 * lies, and the result is written once, and once more for the peers.  The running result is kept apart from dst,
 * because in place dst is an operand that is still to come. */
#include "lib/node/inner.h"
#include "lib/node/stream.h"

static const void *operand(const struct ri_node *node, uint32_t rank, size_t offset)
{
    return (const unsigned char *)node->operands[rank] + offset;
}

static void combine_block(const struct ri_node *node, void *dst, size_t offset, size_t count)
{
    const struct ri_reduction *red = node->op.red;
    const void *left = operand(node, 0, offset);
    const uint32_t last = node->size - 1;
    for (uint32_t r = 1; r < last; r++) {
        red->reduce(red, node->bounce, left, operand(node, r, offset), count);
        left = node->bounce;
    }
    red->reduce(red, dst, left, operand(node, last, offset), count);
    if (red->divide)
        red->divide(dst, count, node->size);
}

void ri_node_combine(const struct ri_node *node, void *dst, void *shared, size_t count)
{
    const size_t esize = node->op.red->esize, most = BLOCK / esize;
    for (size_t done = 0; done < count; done += most) {
        const size_t left = count - done, now = left < most ? left : most, offset = done * esize;
        combine_block(node, (unsigned char *)dst + offset, offset, now);
        if (shared)
            stream_copy((unsigned char *)shared + offset, (unsigned char *)dst + offset, now * esize);
    }
}
