/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c - all-reduce, and reduce to a root, in two phases: each rank reduces its share of the elements from
 * everybody, then those who want the result get it from everybody.
 *
 * How the operands are reached is agreed on from what all have announced: where they are, when every rank's buffers can
 * be reached (direct.c); with process_vm_readv where the probe found that this pays (cma.c); else through slots, of
 * which the first piece is already there with the announcement (two_shot.c).  Two ranks read as much of each other in
 * one phase as in two, so there the latter two are pull.c. */
#include "lib/node/inner.h"

static bool wants_result(const struct ri_node *node)
{
    return node->op.call.coll == RING_ALL_REDUCE || node->me == node->op.call.root;
}

static bool reachable(struct ri_node *node)
{
    const struct op *op = &node->op;
    node->dst[node->me] = (struct place){0};
    return ri_node_share_src(node, op->bytes) && (!wants_result(node) || ri_node_share_dst(node, op->bytes));
}

static enum step begin(struct ri_node *node)
{
    struct op *op = &node->op;
    if (reachable(node))
        return ri_node_direct.begin(node);
    if (node->size == 2)
        return ri_node_pull.begin(node);
    if (op->call.coll == RING_ALL_REDUCE && pays_to_read(node, op->bytes))
        return ri_node_cma.begin(node);
    return ri_node_two_shot.begin(node);
}

static const struct way *agreed(const struct ri_node *node)
{
    bool direct = true, remote = false;
    for (uint32_t r = 0; r < node->size; r++) {
        const uint32_t kind = kind_of(node, r);
        direct = direct && kind == KIND_DIRECT;
        remote = remote || kind == KIND_REMOTE;
    }
    return direct ? &ri_node_direct : node->size == 2 ? &ri_node_pull : remote ? &ri_node_cma : &ri_node_two_shot;
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    const enum step step = ri_node_hear(node);
    if (step != STEP_MOVED)
        return step;
    op->way = agreed(node);
    op->advance = op->way->advance;
    if (op->way == &ri_node_pull && op->kind == KIND_DIRECT)
        ri_node_pull_join(node);
    return STEP_MOVED;
}

const struct way ri_node_shares = {.name = "shares", .begin = begin, .advance = advance};
