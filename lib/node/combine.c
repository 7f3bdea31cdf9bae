/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - the operands of all ranks reduced into results, in the order of the ranks.
 *
 * Each operand is read once, each result written once.  A range is cut where one of the buffers goes on elsewhere: at
 * most twice in a registered one. */
#include "lib/node/inner.h"

void ri_node_combine(const struct ri_node *node, uint32_t outs, size_t count, bool stream)
{
    const struct ri_reduction *red = node->op.red;
    const struct ri_combine c = {.from = node->operands,
                                 .to = node->results,
                                 .n = node->size,
                                 .outs = outs,
                                 .count = count,
                                 .divisor = red->divide ? node->size : 0,
                                 .stream = stream};
    if (count)
        red->combine(red, &c);
}

bool ri_node_combine_range(struct ri_node *node, const struct range *range)
{
    for (size_t at = range->begin; at < range->end;) {
        size_t bytes = range->end - at;
        const uint32_t outs = range->results(node, range->i, at, &bytes);
        for (uint32_t r = 0; outs && r < node->size; r++)
            if (!(node->operands[r] = range->operand(node, r, range->i, at, &bytes)))
                return false;
        if (!outs)
            return false;
        ri_node_combine(node, outs, bytes / node->op.red->esize, range->stream);
        at += bytes;
    }
    return true;
}
