/* SPDX-License-Identifier: Apache-2.0 */
/* signal.c - how ranks of a node tell each other how far they are: announcing, counting, sleeping and waking.
 *
 * Every word has one writer and is polled by the others.  A rank that gives up polling counts itself in `sleepers` of
 * the owner, looks once more, and sleeps on the word (futex).  The owner, after changing a word, looks at `sleepers`
 * with a read-modify-write: either that sees the sleeper, or the sleeper's last look sees the change.  Announcing puts
 * this off
 * (`owed`) until the rank itself must wait or has finished, because there it would stand between two cache misses that
 * otherwise overlap. */
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
    const uint32_t seen = atomic_load_explicit(node->awaited, memory_order_acquire);
    if ((int32_t)(seen - node->awaited_value) < 0)
        ri_word_sleep(node->awaited, seen, ms);
    count_as_sleeper(node, UINT32_MAX);
}

/* Coll, dtype and redop are small; a root is a rank of the node (more than 65535 would not map the segment). */
static uint32_t signature_of(const struct ri_call *call)
{
    return ((uint32_t)call->coll & 31) | ((uint32_t)call->dtype & 31) << 5 | ((uint32_t)call->redop & 63) << 10 |
           call->root << 16;
}

static struct ri_call call_of(uint32_t sig, uint64_t count)
{
    return (struct ri_call){.coll = (ring_coll_t)(sig & 31),
                                 .dtype = (ring_dtype_t)(sig >> 5 & 31),
                                 .redop = (ring_redop_t)(sig >> 10 & 63),
                                 .root = sig >> 16,
                                 .count = (size_t)count};
}

void ri_node_announce(struct ri_node *node)
{
    struct line *mine = line_of(node, node->me);
    struct control *c = control_of(node, node->me);
    node->op.sig = signature_of(&node->op.call);
    mine->sig = node->op.sig;
    mine->count = node->op.call.count;
    if (!node->s.patience.spins) {
        publish(node, &mine->seq, node->op.seq);
        return;
    }
    atomic_store_explicit(&mine->seq, node->op.seq, memory_order_release);
    node->owed = &mine->seq;
    if (atomic_load_explicit(&c->sleepers, memory_order_relaxed))
        ri_word_wake(&mine->seq);
}

void ri_node_announce_buffers(struct ri_node *node)
{
    struct line *mine = line_of(node, node->me);
    mine->at.src = (uintptr_t)node->op.call.src;
    mine->at.dst = (uintptr_t)node->op.call.dst;
    ri_node_announce(node);
}

static enum step disagree(struct ri_node *node, uint32_t peer, uint32_t sig, uint64_t count)
{
    const struct ri_call theirs = call_of(sig, count);
    node->op.status = RING_ERR_MISMATCH;
    if (node->s.mismatch)
        node->s.mismatch(node->s.owner, peer, &node->op.call, &theirs);
    return STEP_FAILED;
}

enum step ri_node_all_announced(struct ri_node *node)
{
    struct op *op = &node->op;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        struct line *line = line_of(node, peer);
        if (!reached(node, peer, &line->seq, op->seq))
            return STEP_WAIT;
        const uint32_t sig = line->sig;
        const uint64_t count = line->count;
        if (sig != op->sig || count != op->call.count)
            return disagree(node, peer, sig, count);
    }
    op->cursor = 1;
    return STEP_MOVED;
}

bool ri_node_all_reached(struct ri_node *node, enum counter which, uint32_t value)
{
    struct op *op = &node->op;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!reached(node, peer, counter_of(node, peer, which), value))
            return false;
    }
    op->cursor = 1;
    return true;
}

static bool behind(const _Atomic uint32_t *word, uint32_t value)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_relaxed) - value) < 0;
}

void ri_node_missing(const struct ri_node *node, uint64_t *bits, size_t words)
{
    bool any = false;
    memset(bits, 0, words * sizeof *bits);
    for (uint32_t r = 0; r < node->size && r / 64 < words; r++)
        if (r != node->me && behind(&line_of(node, r)->seq, node->op.seq)) {
            bits[r / 64] |= UINT64_C(1) << r % 64;
            any = true;
        }
    const uint32_t r = node->awaited_rank;
    if (!any && node->awaited && r / 64 < words && behind(node->awaited, node->awaited_value))
        bits[r / 64] |= UINT64_C(1) << r % 64;
}
