/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - all-reduce through slots of the segment, for buffers that are private to their rank.
 *
 * one-shot: copy everything into the own slot, announce; when all have, reduce all slots.  One phase; each rank reads
 * size * bytes.
 *
 * two-shot, in chunks that fill a slot: (a) copy in what the others reduce, (b) reduce the own share of the chunk from
 * everybody into dst and the own out slot, (c) fetch the other shares from the out slots.  A rank does
 *     a0 a1 b0 | b1 c0 a2 | b2 c1 a3 | ...
 * so that what it waits for was begun a phase ago.  Two slots of each kind are enough: a(c+2) follows c(c), before
 * which everybody had done b(c), the last reading of in slot c; and b(c+2) waits for everybody's a(c+2), which follows
 * their c(c), the last reading of out slot c.  Each rank copies 2 (N-1)/N of the bytes and reduces 1/N, all in cache.
 */
#include "lib/node/inner.h"
#include "lib/node/stream.h"

/* ---- one-shot -------------------------------------------------------------------------------------------------- */

static void one_shot_begin(struct ri_node *node)
{
    memcpy(in_slot(node, node->me, node->op.seq), node->op.call.src, node->op.bytes);
    ri_node_announce(node);
}

/* The own slot serves as the own operand: in place, dst is written before src would have been read. */
static enum step one_shot_advance(struct ri_node *node)
{
    const enum step step = ri_node_all_announced(node);
    if (step != STEP_MOVED)
        return step;
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = in_slot(node, r, node->op.seq);
    ri_node_combine(node, node->op.call.dst, NULL, node->op.call.count);
    return STEP_DONE;
}

const struct way ri_node_one_shot = {.name = "one-shot", .begin = one_shot_begin, .advance = one_shot_advance};

/* ---- two-shot -------------------------------------------------------------------------------------------------- */

struct chunk {
    size_t at, count; /* elements */
    uint32_t turn;    /* which of the two slots */
};

static uint64_t chunks_of(const struct ri_node *node) { return (node->op.bytes + CHUNK - 1) / CHUNK; }

static struct chunk chunk_of(const struct ri_node *node, uint64_t i)
{
    const size_t most = CHUNK / node->op.red->esize, at = (size_t)i * most, left = node->op.call.count - at;
    return (struct chunk){.at = at, .count = left < most ? left : most, .turn = node->op.seq + (uint32_t)i};
}

/* Bytes [from, to) of the chunk, counted in elements, into the own in slot. */
static void copy_in_part(struct ri_node *node, const struct chunk *c, size_t from, size_t to)
{
    const size_t esize = node->op.red->esize;
    stream_copy(in_slot(node, node->me, c->turn) + from * esize,
                (const unsigned char *)node->op.call.src + (c->at + from) * esize, (to - from) * esize);
}

static void copy_in(struct ri_node *node, uint64_t i)
{
    const struct chunk c = chunk_of(node, i);
    copy_in_part(node, &c, 0, share_begin(node, c.count, node->me));
    copy_in_part(node, &c, share_begin(node, c.count, node->me + 1), c.count);
}

static void reduce_share(struct ri_node *node, uint64_t i)
{
    const struct chunk c = chunk_of(node, i);
    const size_t esize = node->op.red->esize;
    const size_t from = share_begin(node, c.count, node->me), to = share_begin(node, c.count, node->me + 1);
    const size_t offset = (c.at + from) * esize;
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = in_slot(node, r, c.turn) + from * esize;
    node->operands[node->me] = (const unsigned char *)node->op.call.src + offset;
    ri_node_combine(node, (unsigned char *)node->op.call.dst + offset, out_slot(node, node->me, c.turn), to - from);
}

static void fetch_share(struct ri_node *node, uint64_t i, uint32_t rank)
{
    const struct chunk c = chunk_of(node, i);
    const size_t esize = node->op.red->esize;
    const size_t from = share_begin(node, c.count, rank), to = share_begin(node, c.count, rank + 1);
    memcpy((unsigned char *)node->op.call.dst + (c.at + from) * esize, out_slot(node, rank, c.turn),
           (to - from) * esize);
}

static void two_shot_begin(struct ri_node *node)
{
    copy_in(node, 0);
    ri_node_announce(node);
}

enum { STAGE_ANNOUNCED, STAGE_COPY_IN, STAGE_REDUCE, STAGE_FETCH };

/* a(i) for i > 0; the first was announced with the call. */
static enum step two_shot_copy_in(struct ri_node *node, uint64_t i)
{
    if (i < chunks_of(node)) {
        copy_in(node, i);
        publish(node, counter_of(node, node->me, COUNTER_IN), node->in + (uint32_t)i);
    }
    node->op.stage = STAGE_REDUCE;
    return STEP_MOVED;
}

/* b(i) */
static enum step two_shot_reduce(struct ri_node *node, uint64_t i)
{
    if (i < chunks_of(node)) {
        if (i && !ri_node_all_reached(node, COUNTER_IN, node->in + (uint32_t)i))
            return STEP_WAIT;
        reduce_share(node, i);
        publish(node, counter_of(node, node->me, COUNTER_OUT), node->out + (uint32_t)i + 1);
    }
    node->op.stage = i ? STAGE_FETCH : STAGE_REDUCE;
    node->op.i = i;
    return STEP_MOVED;
}

/* c(i), share by share as they come */
static enum step two_shot_fetch(struct ri_node *node, uint64_t i)
{
    struct op *op = &node->op;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!reached(node, peer, counter_of(node, peer, COUNTER_OUT), node->out + (uint32_t)i + 1))
            return STEP_WAIT;
        fetch_share(node, i, peer);
    }
    op->cursor = 1;
    op->stage = STAGE_COPY_IN;
    return STEP_MOVED;
}

static enum step two_shot_end(struct ri_node *node)
{
    const uint32_t chunks = (uint32_t)chunks_of(node);
    node->in += chunks - 1;
    node->out += chunks;
    return STEP_DONE;
}

/* op.i is the latest chunk whose turn to be reduced has come; it runs one past the last, and fetching one behind it. */
static enum step two_shot_advance(struct ri_node *node)
{
    struct op *op = &node->op;
    switch (op->stage) {
    case STAGE_ANNOUNCED: { /* a1 b0 */
        const enum step step = ri_node_all_announced(node);
        if (step != STEP_MOVED)
            return step;
        two_shot_copy_in(node, 1);
        return two_shot_reduce(node, 0);
    }
    case STAGE_REDUCE:
        return two_shot_reduce(node, op->i + 1);
    case STAGE_FETCH:
        return two_shot_fetch(node, op->i - 1);
    default: /* STAGE_COPY_IN */
        if (op->i == chunks_of(node))
            return two_shot_end(node);
        return two_shot_copy_in(node, op->i + 1);
    }
}

const struct way ri_node_two_shot = {.name = "two-shot", .begin = two_shot_begin, .advance = two_shot_advance};
