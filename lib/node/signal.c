/* SPDX-License-Identifier: Apache-2.0 */
/* signal.c - how ranks of a node tell each other how far they are: announcing, counting, sleeping and waking.
 *
 * Every word has one writer and is polled by the others.  A rank that gives up polling counts itself in `sleepers` of
 * the owner, looks once more, and sleeps on the word (futex).  The owner, after changing a word, looks at `sleepers`:
 * either that sees the sleeper, or the sleeper's last look sees the change, if there is a full memory barrier between
 * the two steps on each side.  On the owner's it would wait for the store to get its line from a peer who has just
 * looked at it, as long as the shortest call takes.  So where ranks have processors of their own and sleep rarely, the
 * sleeper makes the barrier for all (sleepers_fence); elsewhere the owner looks with a read-modify-write.
 *
 * Ranks agree on what they do.  Who reads a line compares its signature with its own call; as a rank that only gives
 * reads nobody, each line also has a hash of all signatures up to it, which is compared before the line is used again:
 * of two ranks, the first that would write over a line has compared it.  So a disagreement is found at the latest after
 * LINES more operations. */
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/node/inner.h"

enum { REPORT_EVERY_MS = 100 };

void ri_node_look_for_sleepers(struct ri_node *node, _Atomic uint32_t *word)
{
    if (atomic_fetch_add_explicit(&control_of(node, node->me)->sleepers, 0, memory_order_acq_rel))
        ri_word_wake(word);
}

static void count_as_sleeper(struct ri_node *node, uint32_t change)
{
    atomic_fetch_add_explicit(&control_of(node, node->awaited_rank)->sleepers, change, memory_order_acq_rel);
}

static void report_stall(struct ri_node *node)
{
    const uint64_t now = ri_now();
    if (!node->waiting_since) {
        node->waiting_since = now;
        node->report = now + REPORT_EVERY_MS * RI_MILLISECOND;
    }
    if (now < node->report)
        return;
    node->report = now + REPORT_EVERY_MS * RI_MILLISECOND;
    if (node->s.stalled)
        node->s.stalled(node->s.owner, now - node->waiting_since);
}

void ri_node_sleep(void *arg, int ms)
{
    struct ri_node *node = arg;
    if (!node->awaited)
        return;
    report_stall(node);
    count_as_sleeper(node, 1);
    if (node->sleepers_fence)
        ri_barrier_everywhere();
    const uint32_t seen = atomic_load_explicit(node->awaited, memory_order_acquire);
    if ((int32_t)(seen - node->awaited_value) < 0)
        ri_word_sleep(node->awaited, seen, ms);
    count_as_sleeper(node, UINT32_MAX);
}

/* ---- signatures ------------------------------------------------------------------------------------------------ */

/* Collectives, types and a root that maps the segment are small; an operation of the user's is known by its low bits.
 * What a collective does not use is left out. */
static ring_coll_t coll_as_called(const struct ri_call *call)
{
    const bool arrays = call->scounts || call->rcounts;
    switch (call->coll) {
    case RING_REDUCE_SCATTER:
        return arrays ? RING_REDUCE_SCATTERV : call->coll;
    case RING_ALL_GATHER:
        return arrays ? RING_ALL_GATHERV : call->coll;
    case RING_ALL_TO_ALL:
        return arrays ? RING_ALL_TO_ALLV : call->coll;
    default: /* gather and scatter: only root knows */
        return call->coll;
    }
}

uint32_t ri_node_signature(const struct ri_call *call)
{
    return ((uint32_t)coll_as_called(call) & 15) | ((uint32_t)call->dtype & 15) << 4 |
           (ri_node_combines(call->coll) ? ((uint32_t)call->redop & 255) << 8 : 0) |
           (call->root << ROOT_AT & SIGNATURE);
}

static struct ri_call call_of(uint32_t sig, uint64_t count)
{
    return (struct ri_call){.coll = (ring_coll_t)(sig & 15),
                            .dtype = (ring_dtype_t)(sig >> 4 & 15),
                            .redop = (ring_redop_t)(sig >> 8 & 255),
                            .root = (sig & SIGNATURE) >> ROOT_AT,
                            .count = (size_t)count};
}

static uint32_t sig_in(const struct line *line)
{
    return atomic_load_explicit(&line->sig, memory_order_relaxed) & SIGNATURE;
}

uint64_t ri_node_history(const struct ri_node *node) { return node->history; }

/* All that is the same on all ranks. */
uint64_t ri_node_hashed(const struct ri_call *call, uint32_t sig, uint64_t count)
{
    return (ri_node_whole(call->coll) ? count * UINT64_C(0x9e3779b97f4a7c15) : 0) ^ sig;
}

/* ---- announcing ------------------------------------------------------------------------------------------------ */

void ri_node_announce(struct ri_node *node)
{
    struct op *op = &node->op;
    const uint64_t count = ri_node_count_to_announce(node);
    op->sig = ri_node_signature(&op->call);
    op->advance = op->way->advance;
    node->kind[node->me] = op->kind;
    note(node, op->seq, ri_node_hashed(&op->call, op->sig, count));
    write_line(line_of(node, node->me), op->sig | op->kind << KIND_AT, count);
    show_line(node, op->seq);
}

void ri_node_announce_places(struct ri_node *node)
{
    struct line *mine = line_of(node, node->me);
    write_places(node, mine, &node->src[node->me], &node->dst[node->me]);
    mine->src = (uintptr_t)node->op.call.src;
    mine->dst = (uintptr_t)node->op.call.dst;
    ri_node_announce(node);
}

/* ---- disagreement ---------------------------------------------------------------------------------------------- */

static enum step disagree(struct ri_node *node, uint32_t peer, uint32_t sig, uint64_t count)
{
    const struct ri_call theirs = call_of(sig, count);
    node->op.status = RING_ERR_MISMATCH;
    node->op.call.coll = coll_as_called(&node->op.call);
    if (node->s.mismatch)
        node->s.mismatch(node->s.owner, peer, &node->op.call, &theirs);
    return STEP_FAILED;
}

/* A call before this one was not the same: show the first that is still there, else what the peer does now. */
static enum step disagreed(struct ri_node *node, uint32_t peer)
{
    struct line *theirs = line_of(node, peer);
    for (uint32_t back = LINES - 1; back; back--) {
        const uint32_t seq = node->op.seq - back;
        struct line *a = &control_of(node, node->me)->line[seq % LINES],
                    *b = &control_of(node, peer)->line[seq % LINES];
        if (atomic_load(&a->seq) != seq || atomic_load(&b->seq) != seq ||
            (sig_in(a) == sig_in(b) &&
             (!ri_node_whole((ring_coll_t)(sig_in(a) & 15)) || atomic_load(&a->count) == atomic_load(&b->count))))
            continue;
        node->op.call = call_of(sig_in(a), atomic_load(&a->count));
        theirs = b;
        break;
    }
    return disagree(node, peer, sig_in(theirs), atomic_load(&theirs->count));
}

/* Was all the same up to operation `seq`, to which the peer has come?  If it has gone on so far that its line is no
 * longer there, it has looked for itself. */
static bool same_history(const struct ri_node *node, uint32_t peer, uint32_t seq)
{
    const uint64_t mine = atomic_load_explicit(&control_of(node, node->me)->history[seq % LINES], memory_order_relaxed);
    const uint64_t theirs = atomic_load_explicit(&control_of(node, peer)->history[seq % LINES], memory_order_relaxed);
    return theirs >> 32 != seq || mine == theirs;
}

/* ---- entering -------------------------------------------------------------------------------------------------- */

static bool has_come_to(const struct ri_node *node, uint32_t peer, uint32_t seq)
{
    const struct line *line = &control_of(node, peer)->line[seq % LINES];
    return not_before(atomic_load_explicit(&line->seq, memory_order_acquire), seq);
}

/* How far a peer has come, of `need` and later until now, by halves; false: not so far, and this is now waited for. */
static bool come_to(struct ri_node *node, uint32_t peer, uint32_t need, uint32_t *seq_out)
{
    uint32_t low = need, high = node->op.seq;
    if (!reached(node, peer, &control_of(node, peer)->line[need % LINES].seq, need))
        return false;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (has_come_to(node, peer, middle))
            low = middle;
        else
            high = middle;
    }
    *seq_out = low;
    return true;
}

/* A rank writes the line of operation k only when everybody has come to k-LINES+1.  Most operations look at everybody
 * anyway; only one who runs ahead looks here, once in LINES-1 operations, and compares what it has not seen. */
static enum step see_all(struct ri_node *node)
{
    struct op *op = &node->op;
    const uint32_t need = op->seq - LINES + 1;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        uint32_t seq;
        if (!come_to(node, peer, need, &seq))
            return STEP_WAIT;
        if (!same_history(node, peer, seq))
            return disagreed(node, peer);
        if (op->cursor == 1 || not_before(op->least, seq))
            op->least = seq;
    }
    op->cursor = 1;
    node->seen = op->least;
    return STEP_MOVED;
}

enum step ri_node_enter(struct ri_node *node)
{
    if (!not_before(node->seen, node->op.seq - LINES + 1)) {
        const enum step step = see_all(node);
        if (step != STEP_MOVED)
            return step;
    }
    return node->op.way->begin(node);
}

/* ---- hearing --------------------------------------------------------------------------------------------------- */

static enum step look_at(struct ri_node *node, uint32_t peer)
{
    struct op *op = &node->op;
    struct line *line = line_of(node, peer);
    uint64_t theirs = 0;
    node->kind[peer] = atomic_load_explicit(&line->sig, memory_order_relaxed) >> KIND_AT;
    if (sig_in(line) != op->sig)
        return disagree(node, peer, sig_in(line), atomic_load_explicit(&line->count, memory_order_relaxed));
    if (!ri_node_count_fits(node, peer, &theirs))
        return disagree(node, peer, op->sig, theirs);
    if (op->hears_all && node->seen != op->seq - 1 && !same_history(node, peer, op->seq))
        return disagreed(node, peer);
    op->took_more = op->took_more || !all_in_line(node, node->kind[peer]);
    return kind_of(node, peer) == KIND_DIRECT ? ri_node_note_places(node, peer) : STEP_MOVED;
}

enum step ri_node_hear(struct ri_node *node)
{
    struct op *op = &node->op;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!op->hears_all && !ri_node_takes(node, peer))
            continue;
        if (!reached(node, peer, &line_of(node, peer)->seq, op->seq))
            return STEP_WAIT;
        const enum step step = look_at(node, peer);
        if (step != STEP_MOVED)
            return step;
    }
    op->cursor = 1;
    op->stage = STAGE_HEARD;
    if (op->hears_all)
        node->seen = op->seq;
    return STEP_MOVED;
}

bool ri_node_done(struct ri_node *node, uint32_t rank, uint32_t seq)
{
    struct op *op = &node->op;
    if (rank != EVERYBODY)
        return rank == node->me || reached(node, rank, &control_of(node, rank)->done, seq);
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!reached(node, peer, &control_of(node, peer)->done, seq))
            return false;
    }
    op->cursor = 1;
    return true;
}

static bool behind(const _Atomic uint32_t *word, uint32_t value)
{
    return !not_before(atomic_load_explicit(word, memory_order_relaxed), value);
}

/* Those that have not come to an operation in which all meet; else the one that is waited for. */
void ri_node_missing(const struct ri_node *node, uint64_t *bits, size_t words)
{
    bool any = false;
    memset(bits, 0, words * sizeof *bits);
    for (uint32_t r = 0; node->op.hears_all && r < node->size && r / 64 < words; r++)
        if (r != node->me && behind(&line_of(node, r)->seq, node->op.seq)) {
            bits[r / 64] |= UINT64_C(1) << r % 64;
            any = true;
        }
    const uint32_t r = node->awaited_rank;
    if (!any && node->awaited && r / 64 < words && behind(node->awaited, node->awaited_value))
        bits[r / 64] |= UINT64_C(1) << r % 64;
}
