/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - when a slot of this rank may be written again, and where in it is what.
 *
 * A slot is used by turns, in one operation and from one to the next.  Whoever wrote it remembers for which operation
 * and for whom: when these have counted that operation in `done`, or have been seen in a later one, the slot is free.
 * Waiting for that is waiting for earlier operations, so it may be done before an operation is announced. */
#include "lib/node/inner.h"

bool ri_node_slot_free(struct ri_node *node, uint64_t i)
{
    const uint32_t turn = (node->put + (uint32_t)i) % SLOTS, used = node->slot_used[turn];
    if (!used || not_before(node->seen, used + 1))
        return true;
    return ri_node_done(node, node->slot_taker[turn], used);
}

void ri_node_slot_taken(struct ri_node *node, uint64_t i)
{
    const uint32_t turn = (node->put + (uint32_t)i) % SLOTS;
    node->slot_used[turn] = node->op.seq;
    node->slot_taker[turn] = ri_node_taker(node);
}

unsigned char *ri_node_sub_slot(const struct ri_node *node, uint32_t from, uint32_t to, uint32_t turn)
{
    return in_slot(node, from, turn) + (to < from ? to : to - 1) * node->sub;
}

const struct head *ri_node_head_of(const struct ri_node *node, uint32_t from)
{
    return (const struct head *)(void *)ri_node_sub_slot(node, from, node->me, line_of(node, from)->at.put);
}

bool ri_node_piece_taken(struct ri_node *node, uint64_t i)
{
    struct op *op = &node->op;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (ri_node_flow_to(node, peer).bytes <= i * op->unit)
            continue;
        struct line *line = line_of(node, peer);
        if (!reached(node, peer, &line->seq, op->seq) ||
            !reached(node, peer, counter_of(node, peer, COUNTER_TOOK), took_before(node, line) + (uint32_t)i + 1))
            return false;
    }
    op->cursor = 1;
    return true;
}
