/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - the operands of all ranks reduced into results, in the order of the ranks; each operand is read once. */
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
