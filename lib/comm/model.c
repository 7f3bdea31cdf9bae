/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - what messages cost here: a short measurement when a communicator is made, by which algorithms are chosen.
 *
 * Ranks that are neighbours host by host exchange messages over the links that all-reduces use anyway: one small one
 * (latency), a burst of small ones (processor time of a message), a large one (bytes).  Edges within hosts and edges
 * across are two classes, measured one after the other, all edges of a class at once as a ring loads them.  Where the
 * edges of one class close the ring, a small message also goes round, to one neighbour and from the other: what the
 * exchange with both takes longer is the price of one more link.  Of every figure the best of a few tries is taken here
 * and then the worst of all ranks, so that all choose alike.  Figures that only another busy program can explain
 * (figures.c) are measured again, a few times.  Cost: some 200 small messages and 4 large ones a neighbour, a
 * millisecond or two on fast links.  A communicator that is split off another takes its figures. */
#include <string.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/coll/hosts.h"
#include "lib/comm/comm.h"
#include "lib/comm/figures.h"

/* STEPS small exchanges are timed as one: in a single one a rank may find that its neighbours have sent already. */
enum { TRIES = 4, STEPS = 5, BURST = RI_FIGURE_BURST, SMALL = 8, LARGE = RI_FIGURE_LARGE, OPS = 4 * BURST };

/* A busy machine gets some more chances, a slow network does not: one round over it takes longer than this. */
enum { ROUNDS = 5 };
#define LONG_ENOUGH (120 * RI_MILLISECOND)
#define REST (10 * RI_MILLISECOND)

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

/* Nanoseconds of `messages` messages of `bytes` to and from each peer at once, or to the next and from the other; less
 * than *ns, if that is known. */
static ring_status_t time_messages(struct probe *p, enum pattern pattern, uint32_t messages, size_t bytes, double *ns)
{
    const uint32_t steps = bytes == LARGE ? 1 : STEPS;
    ring_status_t status = add_messages(p, pattern, messages, bytes);
    double best = *ns > 0 ? *ns : 1e18;
    for (int i = 0; i < TRIES && !status; i++) {
        const uint64_t from = ri_now();
        status = go(p, steps);
        const double took = (double)(ri_now() - from) / steps;
        best = took < best ? took : best;
    }
    drop_messages(p);
    if (!status)
        *ns = best;
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

static ring_status_t time_class(struct probe *p, bool near, struct ri_class *figures)
{
    find_peers(p, near);
    if (!p->count)
        return RING_OK;
    ring_status_t status = time_messages(p, BOTH_WAYS, 1, SMALL, &figures->small);
    if (!status && closes(p->c))
        status = time_messages(p, ROUND, 1, SMALL, &figures->round);
    if (!status)
        status = time_messages(p, BOTH_WAYS, BURST, SMALL, &figures->burst);
    return status ? status : time_messages(p, BOTH_WAYS, 1, LARGE, &figures->large);
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

static ring_status_t agree(struct ring_comm *c, const struct ri_figures *mine, struct ri_figures *worst_out)
{
    const struct ri_call call = {.coll = RING_ALL_REDUCE,
                                 .dtype = RING_DOUBLE,
                                 .redop = RING_MAX,
                                 .src = mine,
                                 .dst = worst_out,
                                 .count = sizeof *mine / sizeof(double)};
    return ri_op_run(c, &call);
}

/* All that there is to measure; what a round before has found stays where it is less. */
static ring_status_t measure_once(struct probe *p, struct ri_figures *mine)
{
    ring_status_t status = time_class(p, true, &mine->near);
    return status ? status : time_class(p, false, &mine->far);
}

/* Who has slept is let in at once by the scheduler, and for long enough to measure undisturbed. */
static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = REST}, NULL); }

static ring_status_t measure(struct probe *p, bool *believed_out)
{
    const uint64_t begun = ri_now();
    const uint32_t crowd = ri_crowd_of(&p->c->layout).most;
    struct ri_figures mine = {.reduce_byte = time_reduction(p)}, worst = {.took = 0};
    ring_status_t status = RING_OK;
    bool enough = false;
    for (int round = 0; round < ROUNDS && !enough && !status; round++) {
        if (round)
            rest();
        status = measure_once(p, &mine);
        mine.took = (double)(ri_now() - begun);
        if (!status && !(status = agree(p->c, &mine, &worst)))
            enough = ri_figures_believable(&worst, crowd) || worst.took > (double)LONG_ENOUGH;
    }
    if (status)
        return status;
    ri_figures_apply(&worst, crowd, &p->c->wires.model);
    *believed_out = ri_figures_believable(&worst, crowd);
    return RING_OK;
}

static void tell(const struct ring_comm *c, bool believed)
{
    const struct ri_cost_model *m = &c->wires.model;
    ri_log(RI_LOG_INFO,
           "links: %.1f us and %.3f ns/byte, within a host %.1f us and %.3f ns/byte; %.2f us a message, %.2f us a "
           "link more, %.3f ns/byte to reduce",
           m->latency / 1e3, m->byte, m->near_latency / 1e3, m->near_byte, m->message / 1e3, m->link / 1e3,
           m->reduce_byte);
    if (!believed)
        ri_log(RI_LOG_INFO,
               "links: other programs kept the processors, so some of these figures are what the transports "
               "usually take, not what was measured");
}

ring_status_t ri_model_find(struct ring_comm *c)
{
    if (!c->wires.engine || !c->wires.count)
        return RING_OK;
    bool believed = true;
    if (c->parent && c->parent->wires.count)
        c->wires.model = c->parent->wires.model;
    else {
        struct probe p = {.c = c, .memory = ri_new_aligned(64, 3 * (size_t)LARGE)};
        const ring_status_t status =
            p.memory ? measure(&p, &believed) : ri_fail(RING_ERR_NOMEM, "no memory to measure links");
        ri_free(p.memory);
        if (status)
            return status;
        ri_program_close(c); /* what was built by other figures */
        c->seq = 0;          /* the program's first call is the first */
        c->history = 0;
    }
    if (c->rank == 0)
        tell(c, believed);
    return RING_OK;
}
