/* SPDX-License-Identifier: Apache-2.0 */
/* again.c - an all-reduce of buffers that all ranks reach, on the same buffers as the last such one, in a straight
 * line: what shares.c and direct.c do when everybody is on time, for the caller who waits.
 *
 * A training program reduces the same buffers again and again.  What the last call found out is kept: where everybody's
 * buffers are, and the operands and results of this rank's share.  The call is announced as direct.c announces it, and
 * each peer's announcement is compared with the one before; so when a peer has other buffers now, or is late, the call
 * goes on there.  Kept only when the share is short and all stays near, since beyond that nothing is saved, and nowhere
 * in an edge of a registered buffer. */
#include "lib/node/inner.h"

enum { NEAR = 12 << 10 }; /* bytes, of two buffers: half of a first-level cache */

void ri_node_remember(struct ri_node *node, size_t at, size_t bytes)
{
    const struct op *op = &node->op;
    struct again *a = &node->again;
    a->count = 0;
    const struct place *src = &node->src[node->me], *dst = &node->dst[node->me];
    if (op->call.coll != RING_ALL_REDUCE || op->red->user || src->head || dst->head || src->tail < op->bytes ||
        dst->tail < op->bytes || ri_stream_pays(2 * op->bytes, node->size))
        return;
    for (uint32_t k = 0; k < node->size; k++) {
        const uint32_t r = peer_at(node, k);
        size_t from = bytes, to = bytes;
        a->operands[r] = ri_node_reach(node, r, false, at, &from);
        a->results[k] = ri_node_reach(node, r, true, at, &to); /* the own first, as in direct.c */
        if (from < bytes || to < bytes)
            return;
        a->places[2 * r] = node->src[r];
        a->places[2 * r + 1] = node->dst[r];
    }
    a->call = op->call;
    a->red = op->red;
    a->sig = op->sig | (uint32_t)KIND_DIRECT << KIND_AT;
    a->hashed = ri_node_hashed(&op->call, op->sig, op->call.count);
    a->share = bytes / op->red->esize;
    a->version = ri_heap_version();
    a->count = op->call.count;
}

static bool is_again(const struct ri_node *node, const struct ri_call *call)
{
    const struct again *a = &node->again;
    return call->count == a->count && call->src == a->call.src && call->dst == a->call.dst &&
           call->dtype == a->call.dtype && call->redop == a->call.redop && node->seen == node->seq && !node->forced &&
           (node->s.one_process || a->version == ri_heap_version());
}

static bool agrees(const struct ri_node *node, uint32_t peer)
{
    const struct again *a = &node->again;
    struct line *line = line_at(node, peer);
    return says(line, node->seq, a->sig, a->count, a->looks) &&
           !memcmp(&line->at.src, &a->places[2 * peer], 2 * sizeof *a->places);
}

static bool all_agree(const struct ri_node *node)
{
    for (uint32_t cursor = 1; cursor < node->size; cursor++)
        if (!agrees(node, peer_at(node, cursor)))
            return false;
    return true;
}

static bool all_are_done(const struct ri_node *node)
{
    for (uint32_t cursor = 1; cursor < node->size; cursor++)
        if (!comes(&control_of(node, peer_at(node, cursor))->done, node->seq, node->again.looks))
            return false;
    return true;
}

static void announce(struct ri_node *node)
{
    const struct again *a = &node->again;
    const uint32_t seq = ++node->seq;
    struct line *mine = line_at(node, node->me);
    note(node, seq, a->hashed);
    write_places(node, mine, &a->places[2 * node->me], &a->places[2 * node->me + 1]);
    write_line(mine, a->sig, a->count);
    show_line(node, seq);
}

/* While the announcements travel there is time to bring the beginning of the own buffers near. */
static void bring_near(const struct again *a, uint32_t me)
{
    const size_t bytes = a->share * a->red->esize, most = bytes < NEAR ? bytes : NEAR;
    for (size_t i = 0; i < most; i += UNIT) {
        __builtin_prefetch((const char *)a->operands[me] + i);
        __builtin_prefetch((const char *)a->results[0] + i, 1);
    }
}

enum quick_end ri_node_again(struct ri_node *node, const struct ri_call *call)
{
    const struct again *a = &node->again;
    if (!is_again(node, call))
        return QUICK_NOT;
    announce(node);
    bring_near(a, node->me);
    if (!all_agree(node))
        return QUICK_ANNOUNCED;
    node->seen = node->seq;
    const struct ri_combine c = {.from = a->operands,
                                 .to = a->results,
                                 .n = node->size,
                                 .outs = node->size,
                                 .count = a->share,
                                 .divisor = a->red->divide ? node->size : 0};
    if (a->share)
        a->red->combine(a->red, &c);
    tell(node, COUNTER_DONE, node->seq);
    return all_are_done(node) ? QUICK_DONE : QUICK_LEAVING;
}

/* What was announced here, from where it was left. */
void ri_node_again_take_over(struct ri_node *node, enum quick_end end)
{
    struct op *op = &node->op;
    op->stream = false;
    op->kind = KIND_DIRECT;
    node->src[node->me] = node->again.places[2 * node->me];
    node->dst[node->me] = node->again.places[2 * node->me + 1];
    if (end == QUICK_LEAVING)
        ri_node_direct_join(node);
}
