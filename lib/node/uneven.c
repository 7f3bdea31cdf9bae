/* SPDX-License-Identifier: Apache-2.0 */
/* uneven.c - short blocks whose lengths are in arrays, in a line: the straight line of quick.c for them.
 *
 * Who gives each rank another block puts one behind the other and says in the count how long each is.  Who gathers
 * expects of every rank what its own array says; those ranks have no arrays, or each the same. */
#include "lib/node/inner.h"

bool ri_node_uneven_fits(const struct ri_node *node, const struct ri_call *call, size_t esize)
{
    size_t room = LINE_PAYLOAD / esize;
    if (node->size > FEW)
        return false;
    for (uint32_t r = 0; r < node->size; r++) {
        if (r == node->me)
            continue;
        if (call->scounts[r] > room)
            return false;
        room -= call->scounts[r];
    }
    return true;
}

uint64_t ri_node_put_uneven(const struct ri_node *node, unsigned char *payload, const struct ri_call *call,
                            size_t esize)
{
    uint64_t lengths = 0;
    for (uint32_t r = 0; r < node->size; r++) {
        const size_t bytes = r == node->me ? 0 : call->scounts[r] * esize;
        lengths |= (uint64_t)bytes << r * FEW_BITS;
        copy_few(payload, (const unsigned char *)call->src + call->sdispls[r] * esize, bytes);
        payload += bytes;
    }
    return lengths;
}

/* Goes first, see note(). */
static uint32_t begin(struct ri_node *node, const struct ri_call *call)
{
    const uint32_t sig = ri_node_signature(call);
    note(node, ++node->seq, ri_node_hashed(call, sig, 0));
    return sig;
}

static void announce(struct ri_node *node, uint32_t sig, uint64_t count)
{
    write_line(line_at(node, node->me), sig, count);
    show_line(node, node->seq);
}

/* Root's own block does not go into the line. */
static enum quick_end scatter(struct ri_node *node, const struct ri_call *call, size_t esize)
{
    const unsigned char *own = (const unsigned char *)call->src + call->sdispls[node->me] * esize;
    const size_t bytes = call->scounts[node->me] * esize;
    if (!ri_node_uneven_fits(node, call, esize) || !not_before(node->seen, node->seq + 1 - LINES + 1))
        return QUICK_NOT;
    const uint32_t sig = begin(node, call) | (uint32_t)(KIND_LINE | KIND_HEADS) << KIND_AT;
    announce(node, sig, ri_node_put_uneven(node, line_at(node, node->me)->payload, call, esize));
    if (bytes && own != call->dst)
        memcpy(call->dst, own, bytes);
    return QUICK_DONE;
}

static void sum_up(struct ri_node *node, const struct ri_call *call)
{
    node->results[0] = call->dst;
    node->op.red = &node->red[call->dtype][call->redop];
    ri_node_combine(node, 1, call->scounts[node->me], false);
}

/* All to all, and the sum of what all give to each. */
static enum quick_end exchange(struct ri_node *node, const struct ri_call *call, size_t esize)
{
    const uint32_t looks = looks_for(node->s.patience, LOOKS);
    const bool sums = call->coll == RING_REDUCE_SCATTER;
    const unsigned char *own = (const unsigned char *)call->src + call->sdispls[node->me] * esize;
    if (!ri_node_uneven_fits(node, call, esize) || node->seen != node->seq)
        return QUICK_NOT;
    const uint32_t sig = begin(node, call) | (uint32_t)(KIND_LINE | KIND_HEADS) << KIND_AT;
    write_counters_beside(node, line_at(node, node->me));
    announce(node, sig, ri_node_put_uneven(node, line_at(node, node->me)->payload, call, esize));
    for (uint32_t cursor = 0; cursor < node->size; cursor++) {
        const uint32_t r = peer_at(node, cursor);
        const size_t bytes = (sums ? call->scounts[node->me] : call->rcounts[r]) * esize;
        const unsigned char *from = r == node->me ? own : uneven_block(node, r, sig, bytes, looks);
        if (!from)
            return QUICK_ANNOUNCED;
        unsigned char *to = sums ? NULL : (unsigned char *)call->dst + call->rdispls[r] * esize;
        if (sums)
            node->operands[r] = from;
        else if (bytes && from != to)
            memcpy(to, from, bytes);
    }
    node->seen = node->seq;
    if (sums && call->scounts[node->me])
        sum_up(node, call);
    return QUICK_DONE;
}

static bool all_fit(const struct ri_node *node, const struct ri_call *call, size_t esize)
{
    for (uint32_t r = 0; r < node->size; r++)
        if (call->rcounts[r] > LINE_PAYLOAD / esize)
            return false;
    return true;
}

static enum quick_end gather(struct ri_node *node, const struct ri_call *call, size_t esize)
{
    const uint32_t looks = looks_for(node->s.patience, LOOKS);
    if (!all_fit(node, call, esize) || node->seen != node->seq)
        return QUICK_NOT;
    const uint32_t sig = begin(node, call) | (uint32_t)KIND_LINE << KIND_AT;
    if (call->coll == RING_ALL_GATHER)
        copy_few(line_at(node, node->me)->payload, call->src, call->rcounts[node->me] * esize);
    announce(node, sig, call->rcounts[node->me]);
    for (uint32_t cursor = 0; cursor < node->size; cursor++) {
        const uint32_t r = peer_at(node, cursor);
        struct line *line = line_at(node, r);
        unsigned char *to = (unsigned char *)call->dst + call->rdispls[r] * esize;
        if (r != node->me && !says(line, node->seq, sig, call->rcounts[r], looks))
            return QUICK_ANNOUNCED;
        const unsigned char *from = r == node->me ? call->src : line->payload;
        if (from != to)
            copy_few(to, from, call->rcounts[r] * esize);
    }
    node->seen = node->seq;
    return QUICK_DONE;
}

enum quick_end ri_node_quick_uneven(struct ri_node *node, const struct ri_call *call)
{
    const size_t esize = node->red[call->dtype][RING_SUM].esize;
    if (node->size == 1 || node->forced)
        return QUICK_NOT;
    if (call->coll == RING_SCATTER && call->scounts)
        return scatter(node, call, esize);
    if (call->coll == RING_ALL_TO_ALL || call->coll == RING_REDUCE_SCATTER)
        return exchange(node, call, esize);
    return call->rcounts && (call->coll == RING_GATHER || call->coll == RING_ALL_GATHER) ? gather(node, call, esize)
                                                                                         : QUICK_NOT;
}
