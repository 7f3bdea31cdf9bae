/* SPDX-License-Identifier: Apache-2.0 */
/* quick.c - the short call in a straight line: what line.c and pull.c do when all that is given fits into lines and
 * everybody is on time, for the caller who waits.
 *
 * It announces in the form that they announce in, so the ranks need not agree on it; and when a peer is late, or its
 * line is not what is expected, the call goes on in them, from having announced.  What it saves is the state that lets
 * a call be left and taken up again, and finding out the same for every call: half of the instructions of the shortest
 * one. */
#include "lib/node/inner.h"

static const struct plan *make_plan(struct ri_node *node, const struct ri_call *call)
{
    struct plan *p = &node->plan[call->coll % PLANS];
    const ring_coll_t coll = call->coll;
    const bool root = node->me == call->root, rooted = ri_node_rooted(coll);
    const uint32_t sig = ri_node_signature(call);
    *p = (struct plan){
        .coll = coll, .dtype = call->dtype, .redop = call->redop, .root = call->root, .count = call->count};
    p->red = &node->red[call->dtype][ri_node_combines(coll) ? call->redop : RING_SUM];
    p->personal = ri_node_personal(coll);
    p->combines = ri_node_combines(coll);
    p->hears_all = !rooted || (root && ri_node_to_root(coll));
    p->share = p->personal ? node->line_share : 0;
    p->looks = looks_for(node->s.patience, LOOKS);
    p->fits = node->size > 1 && call->count <= (p->personal ? node->line_share : LINE_PAYLOAD) / p->red->esize;
    p->bytes = p->fits ? call->count * p->red->esize : 0;
    p->gives = p->bytes && (!rooted || root == ri_node_from_root(coll));
    p->takes = ri_node_from_root(coll) && !root;
    p->sig = sig | (uint32_t)KIND_LINE << KIND_AT;
    p->hashed = ri_node_hashed(call, sig, call->count);
    return p;
}

static inline const struct plan *plan_for(struct ri_node *node, const struct ri_call *call)
{
    const struct plan *p = &node->plan[call->coll % PLANS];
    return p->count == call->count && p->coll == call->coll && p->dtype == call->dtype && p->redop == call->redop &&
                   p->root == call->root
               ? p
               : make_plan(node, call);
}

static inline void give(const struct ri_node *node, const struct plan *p, const unsigned char *src)
{
    unsigned char *to = line_at(node, node->me)->payload;
    if (!p->personal)
        copy_few(to, src, p->bytes);
    else
        for (uint32_t r = 0; r < node->size; r++)
            copy_few(to + r * p->share, src + r * p->bytes, p->bytes);
}

/* What a rank gives this one; not from the own line, see line.c. */
static inline const unsigned char *given_by(const struct ri_node *node, const struct plan *p, uint32_t rank,
                                            const unsigned char *src)
{
    return rank != node->me ? line_at(node, rank)->payload + node->me * p->share
                            : src + (p->personal ? rank * p->bytes : 0);
}

static inline bool agrees(const struct ri_node *node, const struct plan *p, uint32_t peer)
{
    return says(line_at(node, peer), node->seq, p->sig, p->count, p->looks);
}

static inline bool all_agree(const struct ri_node *node, const struct plan *p)
{
    for (uint32_t cursor = 1; cursor < node->size; cursor++)
        if (!agrees(node, p, peer_at(node, cursor)))
            return false;
    return true;
}

static inline void combine(struct ri_node *node, const struct plan *p, const struct ri_call *call)
{
    if (node->size == 2 && !p->red->divide) {
        p->red->reduce(p->red, call->dst, given_by(node, p, 0, call->src), given_by(node, p, 1, call->src), p->count);
        return;
    }
    for (uint32_t r = 0; r < node->size; r++)
        node->operands[r] = given_by(node, p, r, call->src);
    node->results[0] = call->dst;
    node->op.red = p->red;
    ri_node_combine(node, 1, p->count, false);
}

static inline void collect(const struct ri_node *node, const struct plan *p, const struct ri_call *call)
{
    unsigned char *to = call->dst;
    for (uint32_t r = 0; r < node->size; r++, to += p->bytes) {
        const unsigned char *from = given_by(node, p, r, call->src);
        if (from != to)
            copy_few(to, from, p->bytes);
    }
}

/* When root's arrays say how long each block is; its line has been waited for. */
static inline const unsigned char *uneven_from_root(const struct ri_node *node, const struct plan *p)
{
    return p->coll == RING_SCATTER && node->size <= FEW
               ? uneven_block(node, p->root, p->sig | (uint32_t)KIND_HEADS << KIND_AT, p->bytes, 0)
               : NULL;
}

/* On root from its src. */
static inline bool take_from_root(const struct ri_node *node, const struct plan *p, const struct ri_call *call)
{
    const unsigned char *from = given_by(node, p, p->root, call->src);
    if (p->takes && !agrees(node, p, p->root) && !(from = uneven_from_root(node, p)))
        return false;
    if (from != call->dst)
        copy_few(call->dst, from, p->bytes);
    return true;
}

static inline bool take(struct ri_node *node, const struct plan *p, const struct ri_call *call)
{
    if (ri_node_from_root(p->coll))
        return take_from_root(node, p, call);
    if (!p->hears_all)
        return true;
    if (!all_agree(node, p))
        return false;
    node->seen = node->seq;
    if (p->bytes && p->combines)
        combine(node, p, call);
    else if (p->bytes)
        collect(node, p, call);
    return true;
}

enum quick_end ri_node_quick(struct ri_node *node, const struct ri_call *call)
{
    if (call->scounts || call->rcounts)
        return ri_node_quick_uneven(node, call);
    const struct plan *p = plan_for(node, call);
    const uint32_t seq = node->seq + 1;
    if (!p->fits || node->forced || (p->hears_all ? node->seen != node->seq : !not_before(node->seen, seq - LINES + 1)))
        return QUICK_NOT;
    node->seq = seq;
    note(node, seq, p->hashed);
    if (p->gives)
        give(node, p, call->src);
    else
        write_counters(node, line_at(node, node->me));
    write_line(line_at(node, node->me), p->sig, p->count);
    show_line(node, seq);
    return take(node, p, call) ? QUICK_DONE : QUICK_ANNOUNCED;
}
