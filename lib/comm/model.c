/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - what messages cost here: a short measurement when a communicator is made, by which algorithms are chosen.
 *
 * Ranks that are neighbours host by host exchange messages over the links that all-reduces use anyway: one small one
 * (latency), a burst of small ones (processor time of a message), a large one (bytes).  Edges within hosts and edges
 * across are two classes, measured one after the other, all edges of a class at once as a ring loads them.  Where the
 * edges of one class close the ring, a small message also goes round, to one neighbour and from the other: what the
 * exchange with both takes longer is the price of one more link.  Of every figure the best of a few tries is taken here
 * and then the worst of all ranks, so that all choose alike.  Cost: some 200 small messages and 4 large ones a
 * neighbour, a millisecond or two on fast links.  A communicator that is split off another takes its figures. */
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/comm/comm.h"

/* STEPS small exchanges are timed as one: in a single one a rank may find that its neighbours have sent already. */
enum { TRIES = 4, STEPS = 5, BURST = 8, SMALL = 8, LARGE = 256 << 10, OPS = 4 * BURST };

enum figure { SMALL_NS, BURST_NS, LARGE_NS, ROUND_NS, FIGURES };

enum pattern { BOTH_WAYS, ROUND };

struct probe {
    struct ring_comm *c;
    uint32_t peers[2], count; /* all of the class that is measured       */
    uint32_t next, prev;      /* in the ring, of whatever class          */
    unsigned char *memory;    /* LARGE to send, and LARGE a peer to receive */
    struct ring_op *op[OPS];
    uint32_t ops;
};

static ring_status_t add_message(struct probe *p, ring_coll_t coll, uint32_t peer, size_t bytes, unsigned char *at)
{
    struct ring_op *op;
    ring_status_t status = ri_op_new(p->c, coll, &op);
    if (status)
        return status;
    op->call = (struct ri_call){
        .coll = coll, .dtype = RING_UINT8, .root = p->peers[peer], .src = at, .dst = at, .count = bytes};
    op->persistent = true;
    if ((status = ri_op_prepare(p->c, op)))
        ri_op_discard(op);
    else
        p->op[p->ops++] = op;
    return status;
}

static void drop_messages(struct probe *p)
{
    while (p->ops)
        ri_op_discard(p->op[--p->ops]);
}

static ring_status_t add_messages(struct probe *p, enum pattern pattern, uint32_t messages, size_t bytes)
{
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < p->count * messages && !status; i++) {
        const uint32_t peer = i % p->count;
        if (pattern == BOTH_WAYS || p->peers[peer] == p->next)
            status = add_message(p, RING_SEND, peer, bytes, p->memory);
        if (!status && (pattern == BOTH_WAYS || p->peers[peer] == p->prev))
            status = add_message(p, RING_RECV, peer, bytes, p->memory + (1 + peer) * (size_t)LARGE);
    }
    return status;
}

static ring_status_t go_once(struct probe *p)
{
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < p->ops; i++)
        ri_op_launch(p->c, p->op[i]);
    for (uint32_t i = 0; i < p->ops && !status; i++)
        status = ri_op_wait(p->op[i]);
    return status;
}

static ring_status_t go(struct probe *p, uint32_t steps)
{
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < steps && !status; i++)
        status = go_once(p);
    return status;
}

/* Nanoseconds of `messages` messages of `bytes` to and from each peer at once, or to the next and from the other. */
static ring_status_t time_messages(struct probe *p, enum pattern pattern, uint32_t messages, size_t bytes,
                                   double *ns_out)
{
    const uint32_t steps = bytes == LARGE ? 1 : STEPS;
    ring_status_t status = add_messages(p, pattern, messages, bytes);
    double best = 1e18;
    for (int i = 0; i < TRIES && !status; i++) {
        const uint64_t from = ri_now();
        status = go(p, steps);
        const double took = (double)(ri_now() - from) / steps;
        best = took < best ? took : best;
    }
    drop_messages(p);
    if (!status)
        *ns_out = best;
    return status;
}

/* The neighbours in the order of hosts that are, or are not, on this rank's host. */
static void find_peers(struct probe *p, bool near)
{
    const struct ring_comm *c = p->c;
    const struct ri_layout *l = &c->layout;
    uint32_t at = l->first[c->node_index] + c->local_rank;
    const uint32_t both[2] = {l->order[(at + 1) % c->size], l->order[(at + c->size - 1) % c->size]};
    p->next = both[0];
    p->prev = both[1];
    p->count = 0;
    for (int i = 0; i < 2; i++)
        if ((l->node_of[both[i]] == c->node_index) == near && !(i && both[1] == both[0]))
            p->peers[p->count++] = both[i];
}

/* All edges are of one class.  In a chain the first would send ahead, and nobody would wait for anything. */
static bool closes(const struct ring_comm *c) { return c->size > 2 && (c->nodes == 1 || c->nodes == c->size); }

static ring_status_t time_class(struct probe *p, bool near, double figures[FIGURES])
{
    find_peers(p, near);
    if (!p->count)
        return RING_OK;
    ring_status_t status = time_messages(p, BOTH_WAYS, 1, SMALL, &figures[SMALL_NS]);
    if (!status && closes(p->c))
        status = time_messages(p, ROUND, 1, SMALL, &figures[ROUND_NS]);
    if (!status)
        status = time_messages(p, BOTH_WAYS, BURST, SMALL, &figures[BURST_NS]);
    return status ? status : time_messages(p, BOTH_WAYS, 1, LARGE, &figures[LARGE_NS]);
}

static double time_reduction(const struct probe *p)
{
    const struct ri_reduction sum = ri_reduction_for(RING_FLOAT, RING_SUM);
    unsigned char *a = p->memory, *b = a + LARGE, *to = b + LARGE;
    double best = 1e18;
    for (int i = 0; i < TRIES; i++) {
        const uint64_t from = ri_now();
        sum.reduce(&sum, to, a, b, LARGE / sizeof(float));
        const double took = (double)(ri_now() - from);
        best = took < best ? took : best;
    }
    return best / LARGE;
}

static double above(double x, double least) { return x > least ? x : least; }

/* From two figures of one class to a latency and a byte; the message's own cost is known. */
static void fit(const double f[FIGURES], double message, double *latency, double *byte)
{
    const double one = f[ROUND_NS] > 0 && f[ROUND_NS] < f[SMALL_NS] ? f[ROUND_NS] : f[SMALL_NS];
    if (one <= 0)
        return; /* no rank has such a neighbour */
    *latency = above(one - 2 * message, one / 4);
    *byte = above(f[LARGE_NS] - f[SMALL_NS], 1) / LARGE;
}

static ring_status_t agree(struct ring_comm *c, double *figures, size_t count)
{
    const struct ri_call call = {.coll = RING_ALL_REDUCE,
                                 .dtype = RING_DOUBLE,
                                 .redop = RING_MAX,
                                 .src = figures,
                                 .dst = figures,
                                 .count = count};
    return ri_op_run(c, &call);
}

static ring_status_t measure(struct probe *p)
{
    struct ri_cost_model *m = &p->c->wires.model;
    struct {
        double far[FIGURES], near[FIGURES], reduce_byte;
    } f = {{0}, {0}, time_reduction(p)};
    ring_status_t status = time_class(p, true, f.near);
    if (!status)
        status = time_class(p, false, f.far);
    if (!status)
        status = agree(p->c, f.far, sizeof f / sizeof(double));
    if (status)
        return status;
    const double *slow = f.far[SMALL_NS] > 0 ? f.far : f.near;
    m->message = above((slow[BURST_NS] - slow[SMALL_NS]) / (2 * (BURST - 1)), 20);
    m->link = slow[ROUND_NS] > 0 ? above(slow[SMALL_NS] - slow[ROUND_NS] - 2 * m->message, 0) : 0;
    m->reduce_byte = f.reduce_byte;
    fit(slow, m->message, &m->latency, &m->byte);
    m->near_latency = m->latency;
    m->near_byte = m->byte;
    fit(f.near, above((f.near[BURST_NS] - f.near[SMALL_NS]) / (2 * (BURST - 1)), 20), &m->near_latency, &m->near_byte);
    return RING_OK;
}

static void tell(const struct ring_comm *c)
{
    const struct ri_cost_model *m = &c->wires.model;
    ri_log(RI_LOG_INFO,
           "links: %.1f us and %.3f ns/byte, within a host %.1f us and %.3f ns/byte; %.2f us a message, %.2f us a "
           "link more, %.3f ns/byte to reduce",
           m->latency / 1e3, m->byte, m->near_latency / 1e3, m->near_byte, m->message / 1e3, m->link / 1e3,
           m->reduce_byte);
}

ring_status_t ri_model_find(struct ring_comm *c)
{
    if (!c->wires.engine || !c->wires.count)
        return RING_OK;
    if (c->parent && c->parent->wires.count)
        c->wires.model = c->parent->wires.model;
    else {
        struct probe p = {.c = c, .memory = ri_new_aligned(64, 3 * (size_t)LARGE)};
        const ring_status_t status = p.memory ? measure(&p) : ri_fail(RING_ERR_NOMEM, "no memory to measure links");
        ri_free(p.memory);
        if (status)
            return status;
        ri_program_close(c); /* what was built by other figures */
        c->seq = 0;          /* the program's first call is the first */
        c->history = 0;
    }
    if (c->rank == 0)
        tell(c);
    return RING_OK;
}
