/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c - who gives what to whom: every collective as blocks that takers take from givers.
 *
 *     collective        a rank gives            to        a taker
 *     all_reduce        all of src              everybody reduces
 *     reduce            all of src              root      reduces
 *     reduce_scatter    a block for each taker  everybody reduces
 *     broadcast         root: all of src        everybody copies
 *     scatter           root: a block for each  everybody copies
 *     gather            its block               root      copies
 *     all_gather        its block               everybody copies
 *     all_to_all        a block for each taker  everybody copies
 *
 * A rank knows what its own call says: of the arrays only its side is there, so what a giver gives may have to be taken
 * from its announcement.  Pure functions of the operation; no memory, any thread. */
#include "lib/node/inner.h"

uint32_t ri_node_taker(const struct ri_node *node)
{
    return ri_node_to_root(node->op.call.coll) ? node->op.call.root : EVERYBODY;
}

static bool flows(const struct ri_call *call, uint32_t from, uint32_t to)
{
    return (!ri_node_from_root(call->coll) || from == call->root) &&
           (!ri_node_to_root(call->coll) || to == call->root) && call->coll != RING_BARRIER;
}

bool ri_node_gives(const struct ri_node *node, uint32_t to) { return flows(&node->op.call, node->me, to); }

bool ri_node_takes(const struct ri_node *node, uint32_t from) { return flows(&node->op.call, from, node->me); }

static struct flow scaled(const struct ri_node *node, struct ri_cut cut)
{
    const size_t esize = node->op.red->esize;
    return (struct flow){.at = cut.begin * esize, .bytes = cut.count * esize};
}

/* The block of `rank` in src. */
static struct flow given(const struct ri_node *node, uint32_t rank)
{
    const struct ri_call *call = &node->op.call;
    return scaled(node, ri_block_of(call->scounts, call->sdispls, call->count, rank));
}

/* The block of `rank` in dst. */
static struct flow taken(const struct ri_node *node, uint32_t rank)
{
    const struct ri_call *call = &node->op.call;
    return scaled(node, ri_block_of(call->rcounts, call->rdispls, call->count, rank));
}

struct flow ri_node_flow_to(const struct ri_node *node, uint32_t to)
{
    const struct ri_call *call = &node->op.call;
    if (!ri_node_gives(node, to))
        return (struct flow){0, 0};
    if (ri_node_personal(call->coll))
        return given(node, to);
    if (call->coll == RING_ALL_GATHER || (call->coll == RING_GATHER && node->me == call->root))
        return (struct flow){0, taken(node, node->me).bytes};
    return (struct flow){0, node->op.bytes};
}

struct flow ri_node_flow_from(const struct ri_node *node, uint32_t from)
{
    const struct ri_call *call = &node->op.call;
    if (!ri_node_takes(node, from))
        return (struct flow){0, 0};
    switch (call->coll) {
    case RING_ALL_GATHER:
    case RING_GATHER:
    case RING_ALL_TO_ALL:
        return taken(node, from);
    case RING_REDUCE_SCATTER:
        return (struct flow){0, given(node, node->me).bytes};
    case RING_SCATTER: /* root gives itself what its arrays say */
        return (struct flow){0, node->me == from ? given(node, from).bytes : node->op.bytes};
    default:
        return (struct flow){0, node->op.bytes};
    }
}

size_t ri_node_src_bytes(const struct ri_node *node)
{
    const struct ri_call *call = &node->op.call;
    size_t end = 0;
    if (!ri_node_personal(call->coll))
        return ri_node_most_given(node);
    if (!call->scounts)
        return node->size * node->op.bytes;
    for (uint32_t r = 0; r < node->size; r++) {
        const struct flow block = given(node, r);
        end = block.bytes && block.at + block.bytes > end ? block.at + block.bytes : end;
    }
    return end;
}

static size_t longest(const struct ri_node *node, struct flow (*block)(const struct ri_node *, uint32_t), bool mine)
{
    size_t most = 0;
    for (uint32_t r = 0; r < node->size; r++) {
        const size_t bytes = r != node->me || mine ? block(node, r).bytes : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t ri_node_most_given(const struct ri_node *node)
{
    const struct ri_call *call = &node->op.call;
    if (ri_node_to_root(call->coll) ? node->me == call->root : !ri_node_gives(node, node->order[1]))
        return 0;
    if (ri_node_personal(call->coll))
        return call->scounts ? longest(node, given, false) : node->op.bytes;
    return ri_node_flow_to(node, ri_node_to_root(call->coll) ? call->root : node->order[1]).bytes;
}

size_t ri_node_most_taken(const struct ri_node *node)
{
    const struct ri_call *call = &node->op.call;
    const uint32_t from = ri_node_from_root(call->coll) ? call->root : node->me;
    if (!ri_node_takes(node, from))
        return 0;
    if (call->rcounts && (call->coll == RING_ALL_GATHER || call->coll == RING_ALL_TO_ALL || call->coll == RING_GATHER))
        return longest(node, taken, true);
    return ri_node_flow_from(node, from).bytes;
}

uint64_t ri_node_count_to_announce(const struct ri_node *node)
{
    const struct ri_call *call = &node->op.call;
    if (call->coll == RING_ALL_GATHER || (call->coll == RING_GATHER && node->me == call->root))
        return ri_block_of(call->rcounts, call->rdispls, call->count, node->me).count;
    if (node->op.kind & KIND_HEADS && all_in_line(node, node->op.kind))
        return node->op.lengths;
    return call->coll == RING_BARRIER || (ri_node_personal(call->coll) && call->scounts) ? 0 : call->count;
}

bool ri_node_count_fits(const struct ri_node *node, uint32_t from, uint64_t *theirs_out)
{
    const struct ri_call *call = &node->op.call;
    const struct line *line = &control_of(node, from)->line[node->op.seq % LINES];
    if (!ri_node_whole(call->coll) && !ri_node_takes(node, from))
        return true;
    *theirs_out = atomic_load_explicit(&line->count, memory_order_relaxed);
    if (has_heads(node, from))
        *theirs_out = (all_in_line(node, node->kind[from]) ? block_in_line(*theirs_out, node->me).bytes
                                                           : ri_node_head_of(node, from)->bytes) /
                      node->op.red->esize;
    switch (call->coll) {
    case RING_REDUCE_SCATTER:
    case RING_ALL_TO_ALL:
    case RING_ALL_GATHER:
    case RING_GATHER:
        return *theirs_out == ri_node_flow_from(node, from).bytes / node->op.red->esize;
    default:
        return *theirs_out == call->count;
    }
}
