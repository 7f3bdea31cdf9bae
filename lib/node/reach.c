/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c - where a rank's buffers are for the others, and how they come to a byte of them.
 *
 * Ranks that are threads use addresses.  Others use offsets in the owner's heap (heap.h), which all have mapped; the
 * edges of a registered buffer, less than a page at each end, are private, and go through the owner's edge areas in the
 * segment: src edges are copied there before they are announced, and what others store into dst edges is copied from
 * there when all are through.  Every offset from a peer is checked against what is mapped. */
#include "lib/base/error.h"
#include "lib/node/inner.h"

enum { EDGE_HEAD, EDGE_TAIL };

static unsigned char *edge(const struct ri_node *node, uint32_t rank, bool dst, int which)
{
    return node->data + rank * node->data_stride + node->edges_at + (2 * (size_t)dst + (size_t)which) * RI_HEAP_PAGE;
}

static bool place(struct ri_node *node, const void *buffer, size_t bytes, bool dst)
{
    struct place *p = dst ? &node->dst[node->me] : &node->src[node->me];
    struct ri_heap_place found;
    if (node->s.one_process) {
        *p = (struct place){.at = (uintptr_t)buffer, .tail = bytes, .how = PLACE_ADDRESS};
        return true;
    }
    if (!node->heaps || !ri_heap_find(buffer, bytes, &node->hint[dst], &found))
        return false;
    *p = (struct place){.at = found.at, .tail = found.tail, .head = found.head, .how = PLACE_HEAP};
    return true;
}

bool ri_node_share_src(struct ri_node *node, size_t bytes)
{
    const unsigned char *src = node->op.call.src;
    const struct place *p = &node->src[node->me];
    if (bytes < node->direct_from || !place(node, src, bytes, false))
        return false;
    if (p->head)
        memcpy(edge(node, node->me, false, EDGE_HEAD), src, p->head);
    if (p->tail < bytes)
        memcpy(edge(node, node->me, false, EDGE_TAIL), src + p->tail, bytes - p->tail);
    return true;
}

bool ri_node_share_dst(struct ri_node *node, size_t bytes) { return place(node, node->op.call.dst, bytes, true); }

void ri_node_take_edges(struct ri_node *node, size_t from, size_t to, size_t bytes)
{
    unsigned char *dst = node->op.call.dst;
    const struct place *p = &node->dst[node->me];
    const size_t head = from < p->head ? (to < p->head ? to : p->head) - from : 0;
    const size_t tail = from > p->tail ? from : p->tail, end = to < bytes ? to : bytes;
    if (head)
        memcpy(dst + from, edge(node, node->me, true, EDGE_HEAD) + from, head);
    if (tail < end)
        memcpy(dst + tail, edge(node, node->me, true, EDGE_TAIL) + (tail - p->tail), end - tail);
}

/* Copied before it is used: what a peer writes into its line later does not matter. */
enum step ri_node_note_places(struct ri_node *node, uint32_t peer)
{
    const struct line *line = line_of(node, peer);
    struct place *src = &node->src[peer], *dst = &node->dst[peer];
    *src = line->at.src;
    *dst = line->at.dst;
    if (node->s.one_process || (node->heaps && src->head < RI_HEAP_PAGE && dst->head < RI_HEAP_PAGE &&
                                src->how == PLACE_HEAP && (dst->how == PLACE_HEAP || dst->how == PLACE_NONE)))
        return STEP_MOVED;
    node->op.status = ri_fail(RING_ERR_INTERNAL, "local rank %u announced memory that it does not share", peer);
    return STEP_FAILED;
}

unsigned char *ri_node_reach(struct ri_node *node, uint32_t rank, bool dst, size_t offset, size_t *bytes)
{
    const struct place *p = dst ? &node->dst[rank] : &node->src[rank];
    unsigned char *to;
    size_t most;
    if (p->how == PLACE_ADDRESS)
        return (unsigned char *)(uintptr_t)p->at + offset;
    if (offset < p->head) {
        to = edge(node, rank, dst, EDGE_HEAD) + offset;
        most = p->head - offset;
    } else if (offset < p->tail) {
        const uint64_t at = p->at + (offset - p->head), room = node->heaps[rank].bytes;
        to = node->heaps[rank].base + at;
        most = at < room ? (p->tail - offset < room - at ? p->tail - offset : room - at) : 0;
    } else {
        const size_t at = offset - p->tail;
        to = edge(node, rank, dst, EDGE_TAIL) + at;
        most = at < RI_HEAP_PAGE ? RI_HEAP_PAGE - at : 0;
    }
    if (p->how != PLACE_HEAP || !most) {
        node->op.status = ri_fail(RING_ERR_INTERNAL, "local rank %u announced memory that it does not share", rank);
        return NULL;
    }
    *bytes = *bytes < most ? *bytes : most;
    return to;
}
