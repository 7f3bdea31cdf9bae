/* SPDX-License-Identifier: Apache-2.0 */
/* pull.c - a collective in one phase: every rank takes what it needs from the others, copying or reducing.
 *
 * A giver chooses, and announces, in what form it gives: in the line when that is enough for every taker; from where
 * src is, when the takers can read that; else through its input slots, a piece at a time.  What all takers get alike is
 * put there once; what is for one is put into that taker's part of the slot.  Takers go round by round: piece i of
 * every giver.  A rank does put 0, announce, put 1, round 0, put 2, round 1, ... and waits before put i until round
 * i-SLOTS is done by those who take that piece, so what it waits for was begun before: nobody can wait in a circle.  A
 * rank that only gives does not wait for the takers at the end, unless they read its own buffer: the slots are free
 * when they have counted the operation in `done`.
 *
 * A rank whose src is read where it is, and which is to write its result there (an all-reduce in place), waits in each
 * round until the piece has been taken; it never waits for one that does the same, for two of them share their buffers
 * (direct.c), and private ones that are in place go through slots.
 *
 * An exchange in place goes through slots: every piece has been put when what comes overwrites it.
 *
 * Cost: one phase; through slots every byte is copied twice, on two processors at the same time, else once. */
#include "lib/node/inner.h"

enum { PART_LEAST = 16 << 10, STRETCH = 4 << 20 }; /* bytes */
enum { STAGE_PUT = STAGE_HEARD, STAGE_ROUND, STAGE_LEAVE, STAGE_LEFT };

/* ---- giving ---------------------------------------------------------------------------------------------------- */

static size_t piece_bytes(const struct op *op, struct flow flow, uint64_t i)
{
    const size_t at = (size_t)i * op->unit;
    return at >= flow.bytes ? 0 : flow.bytes - at < op->unit ? flow.bytes - at : op->unit;
}

static void put_personal(struct ri_node *node, uint64_t i)
{
    const struct op *op = &node->op;
    for (uint32_t cursor = 1; cursor < node->size; cursor++) {
        const uint32_t peer = peer_at(node, cursor);
        const struct flow flow = ri_node_flow_to(node, peer);
        unsigned char *to = ri_node_sub_slot(node, node->me, peer, node->put + (uint32_t)i);
        if (!i && op->kind & KIND_HEADS)
            *(struct head *)(void *)to = (struct head){.begin = flow.at, .bytes = flow.bytes};
        if ((op->kind & KIND_MASK) == KIND_SLOT)
            copy_to_slot(to + HEAD, (const unsigned char *)op->call.src + flow.at + (size_t)i * op->unit,
                         piece_bytes(op, flow, i), pays_to_stream(node));
    }
}

static void put(struct ri_node *node, uint64_t i)
{
    const struct op *op = &node->op;
    if (op->personal)
        put_personal(node, i);
    else
        copy_to_slot(in_slot(node, node->me, node->put + (uint32_t)i),
                     (const unsigned char *)op->call.src + (size_t)i * op->unit,
                     piece_bytes(op, (struct flow){0, ri_node_most_given(node)}, i), pays_to_stream(node));
    ri_node_slot_taken(node, i);
}

/* Where the block for this rank is in a line. */
static size_t place_in_line(const struct ri_node *node, uint32_t from)
{
    return has_heads(node, from) ? block_in_line(line_of(node, from)->count, node->me).at : node->me * node->line_share;
}

static void put_line(struct ri_node *node, size_t bytes)
{
    unsigned char *to = line_of(node, node->me)->payload;
    struct op *op = &node->op;
    if (op->kind & KIND_HEADS) {
        op->lengths = ri_node_put_uneven(node, to, &op->call, op->red->esize);
        write_counters_beside(node, line_of(node, node->me));
    } else if (!op->personal)
        copy_few(to, op->call.src, bytes);
    else
        for (uint32_t r = 0; r < node->size; r++)
            copy_few(to + r * node->line_share, (const unsigned char *)op->call.src + r * bytes, bytes);
}

/* ---- choosing the form ----------------------------------------------------------------------------------------- */

static bool exchanges_in_place(const struct op *op)
{
    return op->call.coll == RING_ALL_TO_ALL && op->call.src == op->call.dst;
}

static bool may_be_read(const struct ri_node *node, size_t bytes)
{
    return node->op.call.coll != RING_ALL_REDUCE && !exchanges_in_place(&node->op) && bytes >= node->direct_from;
}

/* Bytes of the bounce buffer for one peer. */
static size_t bounce_room(const struct ri_node *node) { return 2 * (size_t)PIECE / (node->size - 1) / UNIT * UNIT; }

static bool gathers(const struct op *op) { return op->call.coll == RING_ALL_GATHER || op->call.coll == RING_GATHER; }

/* What is gathered in large blocks is stored past the caches when it comes through slots; where ranks share processors
 * that was worth more than rounds saved.  What is reduced is read into the bounce buffer, a piece of every peer; and
 * never from where results go. */
static bool may_be_read_remotely(const struct ri_node *node, size_t most)
{
    const struct op *op = &node->op;
    if (!pays_to_read(node, most) || exchanges_in_place(op) || (gathers(op) && op->stream && !node->s.patience.spins))
        return false;
    return !ri_node_combines(op->call.coll) || ((op->call.coll != RING_ALL_REDUCE || op->call.src != op->call.dst) &&
                                                (most < op->unit ? most : op->unit) <= bounce_room(node));
}

static uint32_t kind_for(struct ri_node *node, size_t most)
{
    const struct op *op = &node->op;
    const uint32_t heads = op->personal && op->call.scounts ? KIND_HEADS : 0;
    const bool fits = most <= (op->personal ? node->line_share : LINE_PAYLOAD) && !op->counts;
    if (!most ||
        (heads ? all_in_line(node, KIND_LINE | heads) && ri_node_uneven_fits(node, &op->call, op->red->esize) : fits))
        return KIND_LINE | heads;
    node->dst[node->me] = (struct place){0};
    if (may_be_read(node, most) && ri_node_share_src(node, ri_node_src_bytes(node)))
        return KIND_DIRECT | heads;
    if (may_be_read_remotely(node, most))
        return KIND_REMOTE | heads;
    return KIND_SLOT | heads;
}

static uint64_t pieces_in(size_t bytes, size_t unit) { return bytes / unit + (bytes % unit != 0); }

/* Root of a broadcast only writes and the others only read: in a few pieces they do it at the same time, if each has a
 * processor; else every piece is a switch more. */
static size_t part_of(const struct ri_node *node, size_t bytes)
{
    const size_t part = bytes / 4 / UNIT * UNIT;
    if (!node->s.patience.spins)
        return SLOT;
    return part < PART_LEAST ? PART_LEAST : part < SLOT ? part : SLOT;
}

/* Only root knows whether it gives in pieces, when its arrays say how long each block is. */
static bool scattered(const struct ri_node *node)
{
    return node->op.call.coll == RING_SCATTER && node->me != node->op.call.root;
}

static void shape(struct ri_node *node)
{
    struct op *op = &node->op;
    op->personal = ri_node_personal(op->call.coll);
    op->hears_all = !ri_node_rooted(op->call.coll) ||
                    (node->me == op->call.root && (op->call.coll == RING_REDUCE || op->call.coll == RING_GATHER));
    op->unit = op->personal                      ? (node->sub - HEAD) / 8 * 8
               : op->call.coll == RING_BROADCAST ? part_of(node, op->bytes)
                                                 : SLOT;
    op->stream = ri_stream_pays((ri_node_whole(op->call.coll) ? 2 : 1 + (size_t)node->size) * op->bytes, node->size);
    op->rounds = pieces_in(ri_node_most_taken(node), op->unit);
    op->counts = op->rounds > SLOTS || op->call.scounts || op->call.rcounts || scattered(node) ||
                 (op->call.coll == RING_ALL_REDUCE && op->bytes > node->one_shot_max);
    op->stage = STAGE_PUT;
}

static void prepare(struct ri_node *node)
{
    struct op *op = &node->op;
    const size_t most = ri_node_most_given(node);
    shape(node);
    op->kind = kind_for(node, most);
    op->pieces = (op->kind & KIND_MASK) == KIND_SLOT ? pieces_in(most, op->unit) : 0;
    if (op->kind & KIND_HEADS && !op->pieces && !all_in_line(node, op->kind))
        op->pieces = 1;
}

void ri_node_pull_join(struct ri_node *node)
{
    shape(node);
    node->op.pieces = 0;
}

static enum step begin(struct ri_node *node)
{
    struct op *op = &node->op;
    if (!op->stage)
        prepare(node);
    if (op->pieces && !ri_node_slot_free(node, 0))
        return STEP_WAIT;
    op->stage = STAGE_ANNOUNCED;
    const size_t most = all_in_line(node, op->kind) ? ri_node_most_given(node) : 0;
    if (most || (op->kind & KIND_HEADS && all_in_line(node, op->kind))) {
        put_line(node, most);
        ri_node_announce(node);
        return STEP_MOVED;
    }
    if (op->pieces)
        put(node, 0);
    ri_node_announce_places(node);
    return STEP_MOVED;
}

/* ---- taking ---------------------------------------------------------------------------------------------------- */

/* A block of which this rank is the giver too. */
static const unsigned char *own_block(const struct ri_node *node, uint64_t i)
{
    return (const unsigned char *)node->op.call.src + ri_node_flow_to(node, node->me).at + (size_t)i * node->op.unit;
}

/* Where what `from` gives this rank begins in its src. */
static size_t begin_in_src(const struct ri_node *node, uint32_t from)
{
    if (!node->op.personal)
        return 0;
    return has_heads(node, from) ? (size_t)ri_node_head_of(node, from)->begin : node->me * node->op.bytes;
}

static bool piece_is_there(struct ri_node *node, uint32_t from, uint64_t i)
{
    if (!i || kind_of(node, from) != KIND_SLOT)
        return true;
    return reached(node, from, counter_of(node, from, COUNTER_PUT), line_of(node, from)->at.put + (uint32_t)i + 1);
}

/* Where a piece of what a rank gives this one is read to before it is reduced. */
static unsigned char *bounce_of(const struct ri_node *node, uint32_t from)
{
    return node->bounce + (from < node->me ? from : from - 1) * bounce_room(node);
}

/* Byte `at` of piece i of what a rank gives this one, where it is mapped. */
static const void *operand(struct ri_node *node, uint32_t from, uint64_t i, size_t at, size_t *bytes)
{
    if (from == node->me)
        return own_block(node, i) + at;
    const struct line *line = line_of(node, from);
    const uint32_t turn = line->at.put + (uint32_t)i;
    switch (kind_of(node, from)) {
    case KIND_REMOTE:
        return bounce_of(node, from) + at;
    case KIND_LINE:
        return line->payload + (node->op.personal ? place_in_line(node, from) : 0) + at;
    case KIND_DIRECT:
        return ri_node_reach(node, from, false, begin_in_src(node, from) + (size_t)i * node->op.unit + at, bytes);
    default:
        return (node->op.personal ? ri_node_sub_slot(node, from, node->me, turn) + HEAD : in_slot(node, from, turn)) +
               at;
    }
}

static unsigned char *piece_in_dst(const struct ri_node *node, struct flow flow, uint64_t i)
{
    return (unsigned char *)node->op.call.dst + flow.at + (size_t)i * node->op.unit;
}

static enum step read_remote(struct ri_node *node, uint32_t from, uint64_t i, void *to, size_t bytes)
{
    const uint64_t at = line_of(node, from)->src + begin_in_src(node, from) + (uint64_t)i * node->op.unit;
    return ri_node_read_peer(node, from, to, at, bytes) ? STEP_MOVED : STEP_FAILED;
}

static bool is_in_slots(const struct ri_node *node, uint32_t from)
{
    const uint32_t kind = kind_of(node, from);
    return kind != KIND_DIRECT && kind != KIND_REMOTE;
}

/* Bytes to copy in round i.  Nobody waits for a piece of what is read where it is, so there one round copies for many;
 * not for all, so that a long copy comes to look at the abort word, and not over what is to be given yet. */
static size_t round_bytes(const struct ri_node *node, uint32_t from, struct flow flow, uint64_t i)
{
    const struct op *op = &node->op;
    const uint64_t rounds =
        is_in_slots(node, from) || from == node->me || exchanges_in_place(op) ? 1 : STRETCH / op->unit;
    const size_t at = (size_t)i * op->unit, most = (size_t)rounds * op->unit;
    if (at >= flow.bytes || i % rounds)
        return 0;
    return flow.bytes - at < most ? flow.bytes - at : most;
}

static enum step copy_piece(struct ri_node *node, uint32_t from, uint64_t i)
{
    const struct flow flow = ri_node_flow_from(node, from);
    const size_t bytes = round_bytes(node, from, flow, i);
    unsigned char *to = piece_in_dst(node, flow, i);
    if (bytes && from != node->me) {
        if (kind_of(node, from) == KIND_REMOTE)
            return read_remote(node, from, i, to, bytes);
        if (!piece_is_there(node, from, i))
            return STEP_WAIT;
    }
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at;
        const void *source = operand(node, from, i, at, &part);
        if (!source)
            return STEP_FAILED;
        if (source != to + at)
            copy_long(to + at, source, part, node->op.stream);
    }
    return STEP_MOVED;
}

static enum step copy_round(struct ri_node *node, uint64_t i)
{
    struct op *op = &node->op;
    for (; op->cursor <= node->size; op->cursor++) {
        const enum step step = copy_piece(node, peer_at(node, op->cursor % node->size), i);
        if (step != STEP_MOVED)
            return step;
    }
    op->cursor = 1;
    return STEP_MOVED;
}

static uint32_t find_result(struct ri_node *node, uint64_t i, size_t at, size_t *bytes)
{
    (void)bytes;
    node->results[0] = (unsigned char *)node->op.call.dst + (size_t)i * node->op.unit + at;
    return 1;
}

static enum step combine_round(struct ri_node *node, uint64_t i)
{
    struct op *op = &node->op;
    const size_t bytes = piece_bytes(op, ri_node_flow_from(node, node->me), i);
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!piece_is_there(node, peer, i))
            return STEP_WAIT;
        if (kind_of(node, peer) == KIND_REMOTE &&
            read_remote(node, peer, i, bounce_of(node, peer), bytes) == STEP_FAILED)
            return STEP_FAILED;
    }
    op->cursor = 1;
    const struct range range = {.operand = operand, .results = find_result, .i = i, .end = bytes, .stream = op->stream};
    return ri_node_combine_range(node, &range) ? STEP_MOVED : STEP_FAILED;
}

/* ---- the way --------------------------------------------------------------------------------------------------- */

static bool overwrites_src(const struct op *op)
{
    return op->call.coll == RING_ALL_REDUCE && op->call.src == op->call.dst && (op->kind & KIND_MASK) == KIND_DIRECT;
}

static enum step put_next(struct ri_node *node)
{
    struct op *op = &node->op;
    const uint64_t i = op->i + 1;
    if (i < op->pieces) {
        if (i < SLOTS ? !ri_node_slot_free(node, i) : !ri_node_piece_taken(node, i - SLOTS))
            return STEP_WAIT;
        put(node, i);
        tell(node, COUNTER_PUT, node->put + (uint32_t)i + 1);
    }
    if (overwrites_src(op) && op->i < op->rounds && !ri_node_piece_taken(node, op->i))
        return STEP_WAIT;
    op->stage = STAGE_ROUND;
    return STEP_MOVED;
}

static enum step take_round(struct ri_node *node)
{
    struct op *op = &node->op;
    if (op->i < op->rounds) {
        const enum step step = ri_node_combines(op->call.coll) ? combine_round(node, op->i) : copy_round(node, op->i);
        if (step != STEP_MOVED)
            return step;
        if (op->counts)
            tell(node, COUNTER_TOOK, node->took + (uint32_t)op->i + 1);
    }
    op->i++;
    op->stage = op->i < op->rounds || op->i < op->pieces ? STAGE_PUT : STAGE_LEAVE;
    return STEP_MOVED;
}

static bool is_read_in_place(const struct op *op)
{
    const uint32_t kind = op->kind & KIND_MASK;
    return kind == KIND_DIRECT || kind == KIND_REMOTE;
}

static enum step leave(struct ri_node *node)
{
    struct op *op = &node->op;
    node->put += (uint32_t)op->pieces;
    node->took += op->counts ? (uint32_t)op->rounds : 0;
    if (op->took_more)
        tell(node, COUNTER_DONE, op->seq);
    op->stage = STAGE_LEFT;
    return is_read_in_place(op) ? STEP_MOVED : STEP_DONE;
}

static enum step hear(struct ri_node *node)
{
    const enum step step = ri_node_hear(node);
    if (step == STEP_MOVED && scattered(node) && kind_of(node, node->op.call.root) == KIND_LINE)
        node->op.counts = false;
    return step;
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    switch (op->stage) {
    case STAGE_ANNOUNCED:
        return hear(node);
    case STAGE_PUT:
        return put_next(node);
    case STAGE_ROUND:
        return take_round(node);
    case STAGE_LEAVE:
        return leave(node);
    default:
        return ri_node_done(node, ri_node_taker(node), op->seq) ? STEP_DONE : STEP_WAIT;
    }
}

const struct way ri_node_pull = {.name = "pull", .begin = begin, .advance = advance};
