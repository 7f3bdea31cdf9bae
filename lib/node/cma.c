/* SPDX-License-Identifier: Apache-2.0 */
/* cma.c - shares of an all-reduce that are read from the peers' private buffers with process_vm_readv (cross memory
 * attach).
 *
 * Each rank goes through its share piece by piece: read the piece of every peer into a buffer that stays in cache,
 * reduce from there into dst, count it in `out`.  Behind that it reads the results of the other shares from the peers'
 * dst, while they are still in a cache.  In place is safe: a piece of a peer's share is overwritten by its result only
 * after the peer has counted it, that is, has read it.  Cost: per rank bytes read and written by the kernel's copy, 2
 * (N-1)/N of them, no slots, and three phases whatever the size; a call per peer and piece, and the kernel pins the
 * pages. */
#include <errno.h>
#include <sys/uio.h>

#include "lib/base/error.h"
#include "lib/node/inner.h"

enum { STAGE_FETCH = STAGE_HEARD + 1, STAGE_LEAVING };

/* ---- reading --------------------------------------------------------------------------------------------------- */

static bool read_failed(struct ri_node *node, uint32_t rank, uint64_t from, size_t bytes)
{
    if (errno == ESRCH)
        node->op.status = ri_fail(RING_ERR_PEER_LOST, "local rank %u (pid %d) is gone", rank, node->s.pids[rank]);
    else
        node->op.status = ri_fail_errno("process_vm_readv of %zu bytes at 0x%llx of local rank %u (pid %d)", bytes,
                                        (unsigned long long)from, rank, node->s.pids[rank]);
    return false;
}

bool ri_node_read_peer(struct ri_node *node, uint32_t rank, void *to, uint64_t from, size_t bytes)
{
    while (bytes) {
        const struct iovec here = {.iov_base = to, .iov_len = bytes};
        const struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = bytes};
        const ssize_t n = process_vm_readv(node->s.pids[rank], &here, 1, &there, 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EFAULT;
        if (n <= 0)
            return read_failed(node, rank, from, bytes);
        to = (unsigned char *)to + n;
        from += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

struct part {
    size_t offset, bytes; /* of the buffers; bytes 0 when the share has no such piece */
};

/* The pieces of all peers must fit into the bounce buffer together. */
static size_t piece_for(const struct ri_node *node)
{
    const size_t each = 2 * (size_t)PIECE / (node->size - 1) / UNIT * UNIT;
    return each < PIECE ? each : PIECE;
}

static struct part piece_of(const struct ri_node *node, uint32_t rank, uint64_t i)
{
    const size_t esize = node->op.red->esize, count = node->op.call.count, most = piece_for(node);
    const size_t from = share_begin(node, count, rank) * esize, to = share_begin(node, count, rank + 1) * esize;
    const size_t at = from + (size_t)i * most;
    if (at >= to)
        return (struct part){.offset = to, .bytes = 0};
    return (struct part){.offset = at, .bytes = to - at < most ? to - at : most};
}

/* The first share is the longest. */
static uint64_t pieces_of(const struct ri_node *node)
{
    const size_t longest = share_begin(node, node->op.call.count, 1) * node->op.red->esize, most = piece_for(node);
    return (longest + most - 1) / most;
}

static bool reduce_piece(struct ri_node *node, uint64_t i)
{
    const struct part p = piece_of(node, node->me, i);
    unsigned char *next = node->bounce;
    for (uint32_t r = 0; p.bytes && r < node->size; r++) {
        if (r == node->me) {
            node->operands[r] = (const unsigned char *)node->op.call.src + p.offset;
            continue;
        }
        if (!ri_node_read_peer(node, r, next, line_of(node, r)->src + p.offset, p.bytes))
            return false;
        node->operands[r] = next;
        next += p.bytes;
    }
    node->results[0] = (unsigned char *)node->op.call.dst + p.offset;
    if (p.bytes)
        ri_node_combine(node, 1, p.bytes / node->op.red->esize, false);
    return true;
}

static bool fetch_piece(struct ri_node *node, uint64_t i, uint32_t rank)
{
    const struct part p = piece_of(node, rank, i);
    return !p.bytes || ri_node_read_peer(node, rank, (unsigned char *)node->op.call.dst + p.offset,
                                         line_of(node, rank)->dst + p.offset, p.bytes);
}

/* ---- the way --------------------------------------------------------------------------------------------------- */

static enum step begin(struct ri_node *node)
{
    node->op.hears_all = true;
    node->op.kind = KIND_REMOTE;
    ri_node_announce_places(node);
    return STEP_MOVED;
}

/* op.i pieces are reduced; past the last, only fetching is left. */
static enum step reduce_next(struct ri_node *node)
{
    struct op *op = &node->op;
    if (op->i < pieces_of(node)) {
        if (!reduce_piece(node, op->i))
            return STEP_FAILED;
        tell(node, COUNTER_OUT, node->out + (uint32_t)op->i + 1);
    }
    op->stage = op->i++ ? STAGE_FETCH : STAGE_HEARD;
    return STEP_MOVED;
}

/* Piece op.i - 2 of all peers: one behind the latest that was reduced here. */
static enum step fetch_previous(struct ri_node *node)
{
    struct op *op = &node->op;
    const uint64_t i = op->i - 2;
    for (; op->cursor < node->size; op->cursor++) {
        const uint32_t peer = peer_at(node, op->cursor);
        if (!reached(node, peer, counter_of(node, peer, COUNTER_OUT), line_of(node, peer)->at.out + (uint32_t)i + 1))
            return STEP_WAIT;
        if (!fetch_piece(node, i, peer))
            return STEP_FAILED;
    }
    op->cursor = 1;
    op->stage = STAGE_HEARD;
    if (i + 1 == pieces_of(node)) {
        op->stage = STAGE_LEAVING;
        node->out += (uint32_t)pieces_of(node);
        tell(node, COUNTER_DONE, op->seq);
    }
    return STEP_MOVED;
}

static enum step advance(struct ri_node *node)
{
    struct op *op = &node->op;
    switch (op->stage) {
    case STAGE_ANNOUNCED:
        return ri_node_hear(node);
    case STAGE_HEARD:
        return reduce_next(node);
    case STAGE_FETCH:
        return fetch_previous(node);
    default:
        return ri_node_done(node, EVERYBODY, op->seq) ? STEP_DONE : STEP_WAIT;
    }
}

const struct way ri_node_cma = {.name = "cma", .begin = begin, .advance = advance};
