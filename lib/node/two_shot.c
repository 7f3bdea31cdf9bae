/* SPDX-License-Identifier: Apache-2.0 */
/* two_shot.c - shares through slots of the segment, for buffers that are private to their rank.
 *
 * In chunks that fill a slot: (a) copy in what the others reduce, (b) reduce the own share of the chunk from everybody
 * into the own out slot, and into dst if the result is wanted here, (c) fetch the other shares from the out slots.  A
 * rank does
 *     a0 a1 b0 | b1 c0 a2 | b2 c1 a3 | ...
 * so that what it waits for was begun a phase ago.  Two slots of each kind are enough: a(c+2) follows c(c), before
 * which everybody had done b(c), the last reading of in slot c; and b(c+2) waits for everybody's a(c+2), which follows
 * their c(c), the last reading of out slot c.  Who does not want the result goes through c too, without copying.  At
 * the end everybody is through with this rank's input slots; with its output slots when all have come to a later
 * operation. A rank whose src can be reached has it read there instead of copying in.
 *
 * Each rank copies 2 (N-1)/N of the bytes and reduces 1/N, all in cache. */
#include "lib/node/inner.h"

struct chunk {
    size_t at, count; /* elements */
};

static uint64_t chunks_of(const struct ri_node *node) { return (node->op.bytes + SLOT - 1) / SLOT; }

static struct chunk chunk_of(const struct ri_node *node, uint64_t i)
{
    const size_t most = SLOT / node->op.red->esize, at = (size_t)i * most, left = node->op.call.count - at;
    return (struct chunk){.at = at, .count = left < most ? left : most};
}

/* Elements [from, to) of the chunk into the own in slot. */
static void copy_in_part(struct ri_node *node, uint64_t i, size_t from, size_t to)
{
    const size_t esize = node->op.red->esize;
    copy_to_slot(in_slot(node, node->me, node->put + (uint32_t)i) + from * esize,
                 (const unsigned char *)node->op.call.src + (chunk_of(node, i).at + from) * esize, (to - from) * esize,
                 pays_to_stream(node));
}

static void copy_in(struct ri_node *node, uint64_t i)
{
    const struct chunk c = chunk_of(node, i);
    copy_in_part(node, i, 0, share_begin(node, c.count, node->me));
    copy_in_part(node, i, share_begin(node, c.count, node->me + 1), c.count);
}

static bool wants_result(const struct ri_node *node)
{
    return node->op.call.coll == RING_ALL_REDUCE || node->me == node->op.call.root;
}

/* Where the own share of chunk i begins, in elements of the chunk. */
static size_t own_begin(const struct ri_node *node, uint64_t i)
{
    return share_begin(node, chunk_of(node, i).count, node->me);
}

static const void *operand(struct ri_node *node, uint32_t rank, uint64_t i, size_t at, size_t *bytes)
{
    const size_t esize = node->op.red->esize, from = own_begin(node, i) * esize + at;
    const size_t offset = chunk_of(node, i).at * esize + from;
    if (rank == node->me)
        return (const unsigned char *)node->op.call.src + offset;
    if (kind_of(node, rank) == KIND_DIRECT)
        return ri_node_reach(node, rank, false, offset, bytes);
    return in_slot(node, rank, line_of(node, rank)->at.put + (uint32_t)i) + from;
}

/* Byte `at` of the own share of chunk i, in the out slot and in dst. */
static unsigned char *own_out(const struct ri_node *node, uint64_t i, size_t at)
{
    return out_slot(node, node->me, node->out + (uint32_t)i) + at;
}

static unsigned char *own_dst(const struct ri_node *node, uint64_t i, size_t at)
{
    return (unsigned char *)node->op.call.dst + (chunk_of(node, i).at + own_begin(node, i)) * node->op.red->esize + at;
}

static uint32_t find_results(struct ri_node *node, uint64_t i, size_t at, size_t *bytes)
{
    (void)bytes;
    node->results[0] = wants_result(node) ? own_dst(node, i, at) : own_out(node, i, at);
    return 1;
}

/* A block at a time, which goes from the first-level cache into the out slot. */
static bool reduce_share(struct ri_node *node, uint64_t i)
{
    const size_t end = share_begin(node, chunk_of(node, i).count, node->me + 1);
    const size_t bytes = (end - own_begin(node, i)) * node->op.red->esize;
    for (size_t at = 0; at < bytes; at += BLOCK) {
        const size_t block = bytes - at < BLOCK ? bytes - at : BLOCK;
        const struct range range = {
            .operand = operand, .results = find_results, .i = i, .begin = at, .end = at + block};
        if (!ri_node_combine_range(node, &range))
            return false;
        if (wants_result(node))
            copy_to_slot(own_out(node, i, at), own_dst(node, i, at), block, pays_to_stream(node));
    }
    return true;
}

static void fetch_share(struct ri_node *node, uint64_t i, uint32_t rank)
{
    const struct chunk c = chunk_of(node, i);
    const size_t esize = node->op.red->esize;
    const size_t from = share_begin(node, c.count, rank), to = share_begin(node, c.count, rank + 1);
    copy_long((unsigned char *)node->op.call.dst + (c.at + from) * esize,
              out_slot(node, rank, line_of(node, rank)->at.out + (uint32_t)i), (to - from) * esize, node->op.stream);
}

static enum step begin(struct ri_node *node)
{
    struct op *op = &node->op;
    if (!ri_node_slot_free(node, 0))
        return STEP_WAIT;
    op->hears_all = true;
    op->stream = ri_stream_pays(2 * op->bytes, node->size);
    op->kind = KIND_SLOT;
    copy_in(node, 0);
    ri_node_announce_places(node);
    return STEP_MOVED;
}

enum { STAGE_REDUCE = STAGE_HEARD + 1, STAGE_FETCH, STAGE_COPY_IN };

static bool copies_in(const struct ri_node *node) { return (node->op.kind & KIND_MASK) == KIND_SLOT; }

/* a(i) for i > 0; the first was announced with the call.  Counted even if there is nothing to copy, as it says that
 * c(i-2) is done. */
static enum step put_chunk(struct ri_node *node, uint64_t i)
{
    if (i < chunks_of(node)) {
        if (copies_in(node) && i < SLOTS && !ri_node_slot_free(node, i))
            return STEP_WAIT;
        if (copies_in(node))
            copy_in(node, i);
        tell(node, COUNTER_PUT, node->put + (uint32_t)i + 1);
    }
    node->op.stage = STAGE_REDUCE;
    return STEP_MOVED;
}

static bool all_put(struct ri_node *node, uint64_t i)
{
    struct op *op = &node->op;
    for (; i && op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!reached(node, peer, counter_of(node, peer, COUNTER_PUT), line_of(node, peer)->at.put + (uint32_t)i + 1))
            return false;
    }
    op->cursor = 1;
    return true;
}

/* b(i) */
static enum step reduce_chunk(struct ri_node *node, uint64_t i)
{
    if (i < chunks_of(node)) {
        if (!all_put(node, i))
            return STEP_WAIT;
        if (!reduce_share(node, i))
            return STEP_FAILED;
        tell(node, COUNTER_OUT, node->out + (uint32_t)i + 1);
    }
    node->op.stage = i ? STAGE_FETCH : STAGE_REDUCE;
    node->op.i = i;
    return STEP_MOVED;
}

/* c(i), share by share as they come */
static enum step fetch_chunk(struct ri_node *node, uint64_t i)
{
    struct op *op = &node->op;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!reached(node, peer, counter_of(node, peer, COUNTER_OUT), line_of(node, peer)->at.out + (uint32_t)i + 1))
            return STEP_WAIT;
        if (wants_result(node))
            fetch_share(node, i, peer);
    }
    op->cursor = 1;
    op->stage = STAGE_COPY_IN;
    return STEP_MOVED;
}

static enum step end(struct ri_node *node)
{
    const uint32_t chunks = (uint32_t)chunks_of(node);
    node->put += chunks;
    node->out += chunks;
    return STEP_DONE;
}

/* op.i is the latest chunk whose turn to be reduced has come; it runs one past the last, and fetching one behind it. */
static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    enum step step;
    switch (op->stage) {
    case STAGE_ANNOUNCED:
        return ri_node_hear(node);
    case STAGE_HEARD: /* a1 b0 */
        step = put_chunk(node, 1);
        return step == STEP_MOVED ? reduce_chunk(node, 0) : step;
    case STAGE_REDUCE:
        return reduce_chunk(node, op->i + 1);
    case STAGE_FETCH:
        return fetch_chunk(node, op->i - 1);
    default: /* STAGE_COPY_IN */
        if (op->i == chunks_of(node))
            return end(node);
        return put_chunk(node, op->i + 1);
    }
}

const struct way ri_node_two_shot = {.name = "two-shot", .begin = begin, .advance = advance};
