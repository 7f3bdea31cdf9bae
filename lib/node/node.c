/* SPDX-License-Identifier: Apache-2.0 */
/* node.c - opening a rank's view of its node, choosing the way of a call, and running it.
 *
 * Memory: the segment and what setup points to are the caller's; the rest is made in open and freed in close, nothing
 * in between.  Threads: one at a time. */
#include "lib/base/clock.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/node/inner.h"

/* Looks before the first pause: about as long as the peers' lines take to come when everybody is on time.  A piece of
 * work counts as some of them, so that a long operation comes to look at the abort word.  STAYS: pauses for which a
 * rank keeps a processor that it shares (spread.c), about as long as a switch takes. */
enum { EAGER_LOOKS = 192, EAGER_MOVE = 16, SPINS_LEAST = 32, STAYS = 200, EDGES = 4 };

/* ---- opening --------------------------------------------------------------------------------------------------- */

static size_t pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static size_t out_bytes_for(uint32_t size)
{
    const size_t units = SLOT / UNIT;
    return (units / size + (units % size != 0)) * UNIT;
}

static size_t edges_at_for(uint32_t size) { return pages(SLOTS * (size_t)SLOT + SLOTS * out_bytes_for(size)); }

static size_t stride_for(uint32_t size) { return pages(edges_at_for(size) + EDGES * (size_t)RI_HEAP_PAGE); }

size_t ri_node_bytes(uint32_t size)
{
    if (!size || size > RI_NODE_RANKS_MAX)
        return 0;
    return pages(size * sizeof(struct control)) + size * stride_for(size);
}

/* One phase against two: with one, every rank reads everything.  Where the two meet was measured on two ranks with a
 * processor each, and on eight that share two, where a phase costs a round of context switches. */
static size_t one_shot_max_for(uint32_t size, struct ri_patience patience)
{
    const size_t each = (patience.spins ? 16 << 10 : 64 << 10) / size;
    return each > 512 ? each : 512;
}

static void fill(struct ri_node *node, const struct ri_node_setup *setup)
{
    node->s = *setup;
    node->spins = setup->patience.spins;
    node->me = setup->rank;
    node->size = setup->size;
    node->control = setup->base;
    node->data = (unsigned char *)setup->base + pages(setup->size * sizeof(struct control));
    node->data_stride = stride_for(setup->size);
    node->edges_at = edges_at_for(setup->size);
    node->line_share = LINE_PAYLOAD / setup->size / 8 * 8;
    node->out_bytes = out_bytes_for(setup->size);
    node->one_shot_max = one_shot_max_for(setup->size, setup->patience);
    node->sub = setup->size > 1 ? SLOT / (setup->size - 1) / UNIT * UNIT : SLOT;
    for (int use = 0; use < USES; use++)
        node->pays[use] = (struct ri_pays){SIZE_MAX, SIZE_MAX, SIZE_MAX};
    node->direct_from = setup->one_process ? node->one_shot_max + 1 : SIZE_MAX;
    for (unsigned i = 0; i < PLANS; i++)
        node->plan[i].count = SIZE_MAX; /* of no call */
    for (unsigned t = 0; t < RI_DTYPES; t++)
        for (unsigned op = 0; op < RI_REDOPS; op++)
            node->red[t][op] = ri_reduction_for((ring_dtype_t)t, (ring_redop_t)op);
}

/* Each rank begins with the next one, so that not all read from the same; and with those near to it. */
static void order(struct ri_node *node)
{
    const uint32_t *groups = node->s.groups;
    uint32_t n = 0;
    for (int near = 1; near >= 0; near--)
        for (uint32_t i = 0; i < node->size; i++) {
            const uint32_t rank = (node->me + i) % node->size;
            if ((!groups || groups[rank] == groups[node->me]) == near)
                node->order[n++] = rank;
        }
}

ring_status_t ri_node_open(const struct ri_node_setup *setup, struct ri_node **node_out)
{
    if (!ri_node_bytes(setup->size) || setup->rank >= setup->size)
        return ri_fail(RING_ERR_INVALID, "rank %u of %u on a host: at most %d ranks can share memory", setup->rank,
                       setup->size, RI_NODE_RANKS_MAX);
    struct ri_node *node = ri_new(1, sizeof *node);
    if (node) {
        fill(node, setup);
        node->operands = ri_new(setup->size, sizeof *node->operands);
        node->results = ri_new(setup->size + 2, sizeof *node->results);
        node->src = ri_new(2 * (size_t)setup->size, sizeof *node->src);
        node->order = ri_new(2 * (size_t)setup->size, sizeof *node->order);
        node->again.places = ri_new(2 * (size_t)setup->size, sizeof *node->again.places);
        node->again.operands = ri_new(setup->size, sizeof *node->again.operands);
        node->again.results = ri_new(setup->size, sizeof *node->again.results);
        node->bounce = ri_new_aligned(4096, 2 * (size_t)PIECE);
    }
    if (!node || !node->operands || !node->results || !node->src || !node->order || !node->bounce ||
        !node->again.places || !node->again.operands || !node->again.results) {
        ri_node_close(node);
        return ri_fail(RING_ERR_NOMEM, "no memory for the node of %u ranks", setup->size);
    }
    node->dst = node->src + setup->size;
    node->kind = node->order + setup->size;
    node->again.looks = looks_for(node->s.patience, LOOKS_LONG);
    order(node);
    *node_out = node;
    return RING_OK;
}

void ri_node_close(struct ri_node *node)
{
    if (!node)
        return;
    ri_free(node->again.results);
    ri_free(node->again.operands);
    ri_free(node->again.places);
    ri_free(node->bounce);
    ri_free(node->order);
    ri_free(node->src);
    ri_free(node->results);
    ri_free(node->operands);
    ri_free(node);
}

/* ---- choosing -------------------------------------------------------------------------------------------------- */

static enum step self_begin(struct ri_node *node)
{
    node->op.advance = node->op.way->advance;
    return STEP_MOVED;
}

static enum step self_advance(struct ri_node *node)
{
    const struct op *op = &node->op;
    const struct flow from = ri_node_flow_to(node, 0), to = ri_node_flow_from(node, 0);
    const unsigned char *src = (const unsigned char *)op->call.src + from.at;
    unsigned char *dst = (unsigned char *)op->call.dst + to.at;
    if (to.bytes && dst != src)
        memcpy(dst, src, to.bytes);
    return STEP_DONE;
}

static const struct way self = {.name = "self", .begin = self_begin, .advance = self_advance};

/* From what all ranks know alike, so that they choose alike. */
static const struct way *way_for(const struct ri_node *node, const struct ri_call *call, size_t bytes)
{
    if (node->size == 1)
        return &self;
    switch (call->coll) {
    case RING_BARRIER:
        return &ri_node_line;
    case RING_ALL_REDUCE:
        return bytes <= LINE_PAYLOAD ? &ri_node_line : bytes <= node->one_shot_max ? &ri_node_pull : &ri_node_shares;
    case RING_REDUCE:
        return bytes <= node->one_shot_max || node->size == 2 ? &ri_node_pull : &ri_node_shares;
    default:
        return &ri_node_pull;
    }
}

static size_t bytes_of(const struct ri_call *call)
{
    size_t bytes;
    return __builtin_mul_overflow(call->count, ri_dtype_size(call->dtype), &bytes) ? SIZE_MAX : bytes;
}

const char *ri_node_path(const struct ri_node *node, const struct ri_call *call)
{
    const struct way *way = way_for(node, call, bytes_of(call));
    const size_t bytes = bytes_of(call);
    if (way != &ri_node_pull && way != &ri_node_shares)
        return way->name;
    if (call->coll == RING_ALL_REDUCE && way == &ri_node_pull)
        return "one-shot";
    if (bytes <= LINE_PAYLOAD && !ri_node_personal(call->coll))
        return ri_node_line.name;
    if (bytes >= node->direct_from)
        return ri_node_direct.name;
    const struct ri_pays *pays = &node->pays[use_of(call->coll)];
    if (bytes >= pays->cma_from && bytes < pays->cma_to && (way == &ri_node_pull || call->coll == RING_ALL_REDUCE))
        return ri_node_cma.name;
    return way == &ri_node_shares && node->size > 2 ? ri_node_two_shot.name : "slots";
}

/* ---- running --------------------------------------------------------------------------------------------------- */

/* Operation node->seq, of which nothing is done yet. */
static void set_up(struct ri_node *node, const struct ri_call *call, const struct ri_reduction *red)
{
    struct op *op = &node->op;
    op->call = *call;
    op->red = red ? red : &node->red[call->dtype][ri_node_combines(call->coll) ? call->redop : RING_SUM];
    op->bytes = op->call.count * op->red->esize;
    op->way = node->forced ? node->forced : way_for(node, call, op->bytes);
    op->advance = ri_node_enter;
    op->seq = node->seq;
    op->stage = STAGE_ANNOUNCED;
    op->cursor = 1;
    op->i = 0;
    op->took_more = false;
}

static void begin(struct ri_node *node, const struct ri_call *call, const struct ri_reduction *red)
{
    node->seq++;
    set_up(node, call, red);
}

/* What quick.c or again.c has announced, from there on. */
static void take_over(struct ri_node *node, const struct ri_call *call, enum quick_end end)
{
    struct op *op = &node->op;
    set_up(node, call, NULL);
    if (op->way == &ri_node_pull)
        ri_node_pull_join(node);
    else
        op->hears_all = true;
    op->sig = ri_node_signature(call);
    op->kind = KIND_LINE;
    op->stage = STAGE_ANNOUNCED;
    op->advance = op->way->advance;
    if (op->way == &ri_node_shares)
        ri_node_again_take_over(node, end);
    node->kind[node->me] = op->kind;
}

static ring_status_t ended(struct ri_node *node, enum step step)
{
    node->awaited = NULL;
    node->waiting_since = 0;
    return step == STEP_FAILED ? node->op.status : RING_OK;
}

/* Found while beginning, told when stepped. */
static enum step failed(struct ri_node *node)
{
    (void)node;
    return STEP_FAILED;
}

/* Go on until the operation waits for something that does not come at once. */
static enum step advance_eagerly(struct ri_node *node)
{
    enum step step = node->op.advance(node);
    if (step == STEP_MOVED)
        step = node->op.advance(node);
    for (int looks = node->s.patience.spins ? EAGER_LOOKS : 0; looks > 0 && step < STEP_DONE;
         looks -= step == STEP_MOVED ? EAGER_MOVE : 1)
        step = node->op.advance(node);
    return step;
}

/* Pausing pays only while the awaited rank runs at the same time.  When it does not (it computes, or other programs
 * have its processor and this rank stands in its way), waits outlast the pauses, so allow fewer and come to yield
 * sooner. */
static void learn_patience(struct ri_node *node, const struct ri_wait *wait)
{
    if (!wait->round || !node->s.patience.spins)
        return;
    if (wait->round > wait->patience.spins) {
        node->spins = node->spins / 2 > SPINS_LEAST ? node->spins / 2 : SPINS_LEAST;
        ri_node_spread(node);
    } else {
        node->spins += (node->s.patience.spins - node->spins) / 8;
        node->outwaited = node->outwaited > 0 ? 0 : node->outwaited;
    }
}

/* An operation that moved has work to do and does not wait; so the abort word is looked at here. */
static ring_status_t went_on(struct ri_node *node, struct ri_wait *wait)
{
    learn_patience(node, wait);
    ri_wait_reset(wait);
    node->waiting_since = 0;
    return node->s.abort && atomic_load_explicit(node->s.abort, memory_order_relaxed) ? RING_ERR_ABORTED : RING_OK;
}

/* From where advance_eagerly() left off to the end. */
static ring_status_t finish(struct ri_node *node, enum step step, uint64_t timeout)
{
    struct ri_wait wait;
    ri_wait_begin(&wait, node->s.abort, ri_deadline(timeout), node->s.patience);
    wait.patience.spins = node->spins;
    uint32_t stays = 0;
    while (step < STEP_DONE) {
        ring_status_t status = RING_OK;
        if (step == STEP_MOVED) {
            status = went_on(node, &wait);
            stays = 0;
        } else if (!node->s.patience.spins && stays < STAYS && ri_node_may_stay(node)) {
            stays++;
            ri_pause();
        } else
            status = ri_wait_round(&wait, ri_node_sleep, node);
        if (status)
            return status;
        step = node->op.advance(node);
    }
    learn_patience(node, &wait);
    return ended(node, step);
}

ring_status_t ri_node_run(struct ri_node *node, const struct ri_call *call, const struct ri_reduction *red,
                          uint64_t timeout)
{
    enum quick_end end = red ? QUICK_NOT : ri_node_quick(node, call);
    if (end == QUICK_NOT && !red && call->coll == RING_ALL_REDUCE)
        end = ri_node_again(node, call);
    if (end == QUICK_DONE)
        return RING_OK;
    if (end == QUICK_NOT)
        begin(node, call, red);
    else
        take_over(node, call, end);
    const enum step step = advance_eagerly(node);
    return step >= STEP_DONE ? ended(node, step) : finish(node, step, timeout);
}

void ri_node_begin(struct ri_node *node, const struct ri_call *call, const struct ri_reduction *red)
{
    begin(node, call, red);
    if (node->op.advance(node) == STEP_FAILED)
        node->op.advance = failed;
}

ring_status_t ri_node_step(struct ri_node *node, bool *done_out, bool *moved_out)
{
    const enum step step = node->op.advance(node);
    *done_out = step >= STEP_DONE;
    *moved_out = step != STEP_WAIT;
    if (step >= STEP_DONE)
        return ended(node, step);
    if (step == STEP_MOVED)
        node->waiting_since = 0;
    return RING_OK;
}
