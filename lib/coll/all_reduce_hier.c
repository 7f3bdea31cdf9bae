/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_hier.c - hosts with several ranks: reduce-scatter within each host, one ring per local rank across the
 * hosts on its share, all-gather within each host.
 *
 * The buffer is cut into as many shares as the emptiest host has ranks.  On each host rank l of them adds up share l of
 * all its ranks, reduces that with the ranks l of the other hosts (ring.h), and gives the result to its neighbours; on
 * fuller hosts the others only give and take.  A host sends and receives 2 (h - 1) / h of the buffer for h hosts, less
 * than in a flat ring, in 2 (h - 1) steps instead of 2 (n - 1), through as many connections as there are shares.
 *
 * A share is cut as its ring cuts it, into chunks and segments, and each segment goes its way through all three parts
 * by itself, in the order in which the ring needs and yields chunks, so that work inside hides behind that across.
 *
 * All bits of a result are made on one rank, so all ranks get the same.  No scratch memory. */
#include "lib/coll/hosts.h"
#include "lib/coll/ring.h"
#include "lib/coll/tree.h"

struct plan {
    struct ri_sched *s;
    const struct ri_coll_args *a;
    uint32_t hosts, host;    /* how many, and which is ours                         */
    uint32_t locals, me;     /* how many ranks it has, and which of them this is    */
    uint32_t shares;         /* ranks of every host that carry one: the first ones  */
    size_t segments, pieces; /* of a chunk, and of a share                          */
    ri_step_id *made;        /* by piece of our share: what added up the host's     */
    ri_step_id *whole;       /*                        what brought the result      */
    ri_step_id *gave;        /* by share and piece: what has read it in SRC         */
};

static uint32_t local(const struct plan *p, uint32_t host, uint32_t index)
{
    const struct ri_layout *l = p->a->layout;
    return l->order[l->first[host] + index];
}

/* The ring that carries a share. */
static struct ri_ring ring_of(const struct plan *p, uint32_t share)
{
    const uint32_t next = (p->host + 1) % p->hosts, prev = (p->host + p->hosts - 1) % p->hosts;
    return (struct ri_ring){.size = p->hosts,
                            .place = p->host,
                            .next = local(p, next, share),
                            .prev = local(p, prev, share),
                            .part = ri_cut_of(p->a->count, p->shares, share),
                            .segments = p->segments,
                            .own = p->locals > 1 ? RI_DST : RI_SRC,
                            .made = p->locals > 1 ? p->made : NULL,
                            .whole = p->whole};
}

static struct ri_span piece(const struct plan *p, enum ri_slot slot, uint32_t share, uint32_t chunk, size_t i)
{
    const struct ri_ring ring = ring_of(p, share);
    return ri_ring_span(p->a, &ring, slot, chunk, i);
}

/* One piece of every share: give those of the others, and add up what comes for our own. */
static void gather_in(struct plan *p, uint32_t chunk, size_t i)
{
    const size_t at = chunk * p->segments + i;
    for (uint32_t k = 1; k < p->locals && p->s->status == RING_OK; k++) {
        const uint32_t to = (p->me + k) % p->locals;
        if (to < p->shares)
            p->gave[to * p->pieces + at] =
                ri_send(p->s, local(p, p->host, to), piece(p, RI_SRC, to, chunk, i), RI_NONE);
    }
    for (uint32_t k = 1; k < p->locals && p->me < p->shares && p->s->status == RING_OK; k++)
        p->made[at] = ri_recv_reduce(p->s, local(p, p->host, (p->me + p->locals - k) % p->locals),
                                     piece(p, RI_DST, p->me, chunk, i),
                                     piece(p, k == 1 ? RI_SRC : RI_DST, p->me, chunk, i), p->made[at]);
}

static void hand_out(struct plan *p, uint32_t chunk, size_t i)
{
    const size_t at = chunk * p->segments + i;
    for (uint32_t k = 1; k < p->locals && p->me < p->shares && p->s->status == RING_OK; k++)
        ri_send(p->s, local(p, p->host, (p->me + k) % p->locals), piece(p, RI_DST, p->me, chunk, i), p->whole[at]);
    for (uint32_t k = 1; k < p->locals && p->s->status == RING_OK; k++) {
        const uint32_t from = (p->me + p->locals - k) % p->locals;
        if (from < p->shares)
            ri_recv(p->s, local(p, p->host, from), piece(p, RI_DST, from, chunk, i), p->gave[from * p->pieces + at]);
    }
}

/* The ring sends chunk `host` first and has `host + 1` first. */
static void all_parts(struct plan *p)
{
    for (uint32_t k = 0; k < p->hosts; k++)
        for (size_t i = 0; i < p->segments; i++)
            gather_in(p, (p->host + p->hosts - k) % p->hosts, i);
    if (p->me < p->shares) {
        const struct ri_ring ring = ring_of(p, p->me);
        ri_ring_laps(p->s, p->a, &ring);
    }
    for (uint32_t k = 0; k < p->hosts; k++)
        for (size_t i = 0; i < p->segments; i++)
            hand_out(p, (p->host + 1 + p->hosts - k) % p->hosts, i);
}

static size_t segments_of(const struct ri_coll_args *a, uint32_t shares)
{
    return ri_segments(a, ri_cut_of(ri_cut_of(a->count, shares, 0).count, a->layout->nodes, 0).count);
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_layout *l = a->layout;
    const uint32_t host = l->node_of[a->rank];
    struct plan p = {.s = s,
                     .a = a,
                     .hosts = l->nodes,
                     .host = host,
                     .locals = ri_host_ranks(l, host),
                     .me = ri_position_of(a, a->rank) - l->first[host],
                     .shares = ri_crowd_of(l).least};
    s->ranks = a->size;
    if (!a->count)
        return ri_build_tokens(s, a, build);
    p.segments = segments_of(a, p.shares);
    p.pieces = p.hosts * p.segments;
    p.made = ri_ids(s, p.pieces);
    p.whole = ri_ids(s, p.pieces);
    p.gave = ri_ids(s, p.shares * p.pieces);
    all_parts(&p);
    return ri_sched_done(s);
}

static bool fits(const struct ri_coll_args *a)
{
    return a->layout && a->layout->nodes > 1 && a->layout->nodes < a->size;
}

/* Inside and across overlap, but for the first segment on its way in and the last on its way out. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const struct ri_crowd crowd = ri_crowd_of(a->layout);
    const double hosts = a->layout->nodes, others = crowd.most - 1, bytes = (double)a->count * a->esize;
    const double share = bytes / crowd.least, chunk = share / hosts;
    const double segments = (double)segments_of(a, crowd.least), first = chunk / segments;
    const double messages = 2 * hosts * segments * others + 2 * (hosts - 1) * segments;
    const double across = 2 * (hosts - 1) * (m->latency + bytes / hosts * m->byte + chunk / 2 * m->reduce_byte);
    const double inside = others * share * (2 * m->near_byte + m->reduce_byte);
    return 2 * m->near_latency + 2 * others * first * m->near_byte + 2 * m->message * messages +
           (across > inside ? across : inside);
}

const struct ri_algorithm ri_algorithm_all_reduce_hier = {
    .name = "hier",
    .help = "within each host, then a ring per local rank across hosts, then within again: for several ranks a host",
    .coll = RING_ALL_REDUCE,
    .fits = fits,
    .cost = cost,
    .build = build,
};
