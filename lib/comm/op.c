/* SPDX-License-Identifier: Apache-2.0 */
/* op.c - operations: one call each.
 *
 * Operations are kept in the order they were started, which is the same on all ranks.  Those over links run side by
 * side in the engine; those by direct shared memory are done one after the other.  Progress is made by whoever waits or
 * tests, for all of them; for those of other communicators as well (help.c).  The blocking call by direct shared memory
 * with nothing else in flight goes straight to the node. */
#include "lib/comm/comm.h"

#include <string.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/comm/arguments.h"

#define STALL_LOOK (100 * RI_MILLISECOND)
/* Over links a look is a system call or two, and what arrives wakes the sleeper; so yield less than in shared memory.
 */
enum { LINK_YIELDS = 200 };

/* A few milliseconds late at most, and several times cheaper to ask. */
static uint64_t coarse_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * RI_SECOND + (uint64_t)t.tv_nsec;
}

/* Equal on all ranks: where blocks differ in length, the count is that of all of them, or none. */
void ri_op_signature(const struct ring_comm *c, const struct ri_call *call, uint32_t seq,
                     struct ri_signature *signature_out)
{
    *signature_out = (struct ri_signature){.magic = RI_SIGNATURE_MAGIC,
                                           .seq = seq,
                                           .coll = (uint8_t)ri_arguments_called(call),
                                           .dtype = (uint8_t)call->dtype,
                                           .redop = (uint8_t)call->redop,
                                           .root = call->root,
                                           .count = call->variable ? ri_program_count(c, call) : call->count};
}

/* Some calls wait for nobody, a broadcast's root for one, so that ranks may disagree on them and go on; when they leave
 * they compare this, and what the node remembers itself.  Of calls over links only: how a call comes to the node (at
 * once, or behind what is still in flight) is each rank's own affair. */
static void remember(struct ring_comm *c, const struct ri_call *call)
{
    const uint64_t what =
        (uint64_t)call->coll | (uint64_t)call->dtype << 8 | (uint64_t)call->redop << 16 | (uint64_t)call->root << 32;
    c->history = (c->history ^ what) * UINT64_C(0x9e3779b97f4a7c15) + (call->variable ? 0 : call->count);
    c->history ^= c->history >> 29;
}

bool ri_op_by_node(const struct ring_comm *c, const struct ri_call *call)
{
    return c->node && call->coll != RING_SEND && call->coll != RING_RECV &&
           (!c->rules.n || ri_program_leaves_to_node(c, call));
}

ring_status_t ri_op_choice(struct ring_comm *c, const struct ri_call *call, ring_choice_t *choice_out)
{
    struct ri_coll_args args;
    const struct ri_algorithm *a = NULL;
    if (c->size == 1)
        *choice_out = (ring_choice_t){.algorithm = "copy", .transport = "self"};
    else if (ri_op_by_node(c, call))
        *choice_out = (ring_choice_t){.algorithm = "node", .transport = "shm"};
    else if (ri_wires_open(c) || !(a = ri_program_choose(c, call, &args)))
        return a ? ri_fail(RING_ERR_NOMEM, "no memory for links")
                 : ri_fail(RING_ERR_UNSUPPORTED, "no algorithm does %s over links", ring_coll_str(call->coll));
    else
        *choice_out = (ring_choice_t){.algorithm = a->name, .transport = ri_wires_names(c)};
    return RING_OK;
}

static uint8_t algorithm_number(const struct ri_algorithm *a)
{
    uint8_t i = 0;
    while (ri_algorithms[i] != a)
        i++;
    return (uint8_t)(i + 1);
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

void ri_op_finish(struct ring_op *op, ring_status_t status)
{
    op->status = status;
    op->done = true;
    if (op->persistent)
        return;
    if (op->run)
        ri_program_put(op->program, op->run);
    op->run = NULL;
    ri_free(op->scratch);
    op->scratch = NULL;
}

/* Takes op, which *at points to, out of the list. */
static void unlink_at(struct ring_comm *c, struct ring_op **at)
{
    struct ring_op *op = *at;
    *at = op->next;
    if (!op->next)
        c->last = at;
    op->next = NULL;
}

void ri_op_finish_all(struct ring_comm *c, ring_status_t status)
{
    while (c->first) {
        struct ring_op *op = c->first;
        unlink_at(c, &c->first);
        ri_op_finish(op, status);
    }
    while (c->selves) {
        struct ring_op *op = c->selves;
        c->selves = op->next_self;
        ri_op_finish(op, status);
    }
}

static ring_status_t late(struct ring_comm *c, const struct ring_op *op)
{
    struct ri_signature s;
    char call[96], who[RI_FAILURE_TEXT / 2], limit[32] = "";
    ri_op_signature(c, &op->call, op->seq, &s);
    ri_call_text(&s, call, sizeof call);
    ri_stall_missing(c, RI_SECOND, who, sizeof who);
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_rows[i].offset == offsetof(struct ri_conf, op_timeout))
            ri_conf_print(&c->conf, &ri_conf_rows[i], limit, sizeof limit);
    ri_comm_raise(c, RING_ERR_TIMEOUT, UINT32_MAX,
                  "%s (operation %u) was not complete on %s after %s (RING_OP_TIMEOUT); not responding: %s", call,
                  op->seq, ri_comm_name(c, c->rank), limit, who);
    return ri_comm_verdict(c);
}

/* What a failed operation means for the communicator: everybody learns of it, and all that is in flight ends. */
static ring_status_t fail(struct ring_comm *c, const struct ring_op *op, ring_status_t status)
{
    uint32_t culprit;
    switch (status) {
    case RING_ERR_ABORTED:
    case RING_ERR_MISMATCH:
        if (ri_comm_broken(c))
            break;
        ri_comm_raise(c, status, UINT32_MAX, "%s: ranks disagree on operation %u", ri_comm_name(c, c->rank), op->seq);
        break;
    case RING_ERR_PEER_LOST:
        culprit = op->run ? ri_run_culprit(op->run->run) : UINT32_MAX;
        ri_comm_suspect(c, culprit, ri_wires_why(c, culprit));
        break;
    case RING_ERR_TIMEOUT:
        late(c, op);
        break;
    default:
        ri_comm_raise(c, status, c->rank, "%s: %s", ri_comm_name(c, c->rank), ri_error_get());
    }
    status = ri_comm_verdict(c);
    ri_op_finish_all(c, status);
    return status;
}

/* ---- progress -------------------------------------------------------------------------------------------------- */

/* NULL: the node's own. */
static const struct ri_reduction *made_reduction(const struct ring_op *op)
{
    return (unsigned)op->call.redop >= RI_REDOP_MADE ? &op->reduction : NULL;
}

static ring_status_t step_node(struct ring_comm *c, struct ring_op *op, bool *done, unsigned *moved)
{
    bool went = false;
    if (!op->begun) {
        ri_node_begin(c->node, &op->call, made_reduction(op));
        op->begun = true;
    }
    const ring_status_t status = ri_node_step(c->node, done, &went);
    *moved += went;
    return status;
}

static ring_status_t look_at_ops(struct ring_comm *c, unsigned *moved)
{
    bool node_busy = false;
    for (struct ring_op **at = &c->first; *at;) {
        struct ring_op *op = *at;
        bool done = false;
        ring_status_t status = RING_OK;
        if (op->program)
            status = ri_run_state(op->run->run, &done);
        else if (!node_busy)
            status = step_node(c, op, &done, moved);
        if (status)
            return fail(c, op, status);
        node_busy |= !op->program && !done;
        if (done) {
            unlink_at(c, at);
            ri_op_finish(op, RING_OK);
            ++*moved;
        } else
            at = &op->next;
    }
    return RING_OK;
}

static ring_status_t progress(struct ring_comm *c, unsigned *moved)
{
    *moved = c->wires.engine ? ri_wires_progress(c) : 0;
    return look_at_ops(c, moved);
}

static void report_stall(struct ring_comm *c, const struct ring_op *op, uint64_t waited)
{
    struct ri_signature calls;
    ri_op_signature(c, &op->call, op->seq, &calls);
    ri_comm_stalled(c, &calls, waited);
}

/* Both kinds in flight: who sleeps for one looks after the other meanwhile. */
static void sleep_at_most_briefly(void *comm, int ms)
{
    (void)ms;
    ri_node_sleep(((struct ring_comm *)comm)->node, 1);
}

static bool links_busy(const struct ring_comm *c)
{
    const struct ring_op *op = c->first;
    while (op && !op->program)
        op = op->next;
    return op != NULL;
}

static ring_status_t wait_for(struct ring_comm *c, struct ring_op *op)
{
    struct ri_wait w;
    uint64_t begun = 0, look = 0;
    ri_sleep_fn *sleep = op->program ? ri_wires_sleep : links_busy(c) ? sleep_at_most_briefly : ri_node_sleep;
    void *arg = sleep == ri_node_sleep ? (void *)c->node : (void *)c;
    struct ri_patience patience = c->patience;
    if (op->program && patience.yields > LINK_YIELDS)
        patience.yields = LINK_YIELDS;
    ri_wait_begin(&w, &c->board->abort, op->deadline, patience);
    while (!op->done) {
        unsigned moved;
        ring_status_t status = progress(c, &moved);
        if (status || op->done)
            break;
        if (moved) {
            ri_wait_reset(&w);
            begun = 0;
            continue;
        }
        if ((status = ri_wait_round(&w, sleep, arg)))
            return fail(c, op, status);
        if (w.round < c->patience.spins)
            continue;
        const uint64_t now = coarse_now();
        begun = begun ? begun : now;
        if (now - begun >= STALL_LOOK && now >= look) {
            look = now + STALL_LOOK;
            report_stall(c, op, now - begun);
        }
    }
    ri_stall_over(c);
    return op->status;
}

/* From ri_node_run(), which is where the time of the blocking call goes. */
void ri_op_stalled(void *comm, uint64_t waited)
{
    struct ring_comm *c = comm;
    if (c->first || !c->running)
        return; /* wait_for() looks after these; while the communicator is made there is no call yet */
    const struct ring_op op = {.comm = c, .call = *c->running, .seq = c->seq};
    report_stall(c, &op, waited);
}

unsigned ri_op_progress(struct ring_comm *c)
{
    unsigned moved;
    (void)progress(c, &moved); /* a failure is the operation's, and told when it is waited for */
    return moved;
}

/* ---- beginning ------------------------------------------------------------------------------------------------- */

ring_status_t ri_op_new(struct ring_comm *c, ring_coll_t coll, struct ring_op **op_out)
{
    struct ring_op *op = ri_new(1, sizeof *op + ri_arguments_room(c, coll) * sizeof *op->room);
    if (!op)
        return ri_fail(RING_ERR_NOMEM, "no memory for an operation");
    op->comm = c;
    op->handle = &op->newer;
    *op_out = op;
    return RING_OK;
}

/* Over links; on a node what is to be overwritten has been given before. */
static bool exchanges_in_place(struct ring_comm *c, const struct ri_call *call)
{
    return call->coll == RING_ALL_TO_ALL && call->src == call->dst && call->src && !ri_op_by_node(c, call);
}

/* What is multiplied first, or overwritten before it is read, goes to where nothing else is. */
static ring_status_t stand_in(struct ring_comm *c, struct ring_op *op)
{
    struct ri_call *call = &op->call;
    const bool scaled = ri_redop_scalar(c, call->redop);
    const size_t bytes = ri_arguments_extent(c, call).src;
    if (!bytes || (!scaled && !exchanges_in_place(c, call)))
        return RING_OK;
    op->given = call->src;
    if (scaled && call->coll == RING_ALL_REDUCE) {
        call->src = call->dst;
        return RING_OK;
    }
    if (!(op->scratch = ri_new_aligned(64, bytes)))
        return ri_fail(RING_ERR_NOMEM, "no memory for a copy of %zu bytes", bytes);
    call->src = op->scratch;
    return RING_OK;
}

static void fill_in(struct ring_comm *c, const struct ring_op *op)
{
    const size_t bytes = ri_arguments_extent(c, &op->call).src;
    const void *scalar = ri_redop_scalar(c, op->call.redop);
    void *to = (void *)(uintptr_t)op->call.src; /* our scratch, or the caller's dst */
    if (scalar)
        ri_scale(to, op->given, bytes / ring_dtype_size(op->call.dtype), op->call.dtype, scalar);
    else
        memcpy(to, op->given, bytes);
}

static bool to_itself(const struct ring_comm *c, const struct ri_call *call)
{
    return (call->coll == RING_SEND || call->coll == RING_RECV) && call->root == c->rank;
}

/* What the two ends of a message have to say of it is the same: which one of theirs it is, and what it carries. */
static uint32_t *messages_with(struct ring_comm *c, const struct ri_call *call)
{
    uint32_t **numbers = call->coll == RING_SEND ? &c->sent : &c->received;
    if (!*numbers)
        *numbers = ri_new(c->size, sizeof **numbers);
    return *numbers ? &(*numbers)[call->root] : NULL;
}

/* Others may wait for what could not begin here: unless the call can be made again, that is the end for all. */
static ring_status_t not_begun(struct ring_comm *c, ring_status_t status)
{
    if (!ri_comm_broken(c)) {
        if (status == RING_ERR_NOMEM || status == RING_ERR_INVALID)
            return status;
        ri_comm_raise(c, status, c->rank, "%s: %s", ri_comm_name(c, c->rank), ri_error_get());
    }
    return ri_comm_verdict(c);
}

ring_status_t ri_op_prepare(struct ring_comm *c, struct ring_op *op)
{
    const bool message = op->call.coll == RING_SEND || op->call.coll == RING_RECV;
    ring_status_t status = ri_comm_verdict(c); /* runs that failed are not to be taken again */
    if (status)
        return status;
    status = stand_in(c, op);
    op->reduction = ri_redop_reduction(c, op->call.dtype, op->call.redop);
    op->alone = c->size == 1 || to_itself(c, &op->call);
    op->done = true; /* until it is launched */
    if (!status && !op->alone && !ri_op_by_node(c, &op->call))
        status = ri_program_get(c, &op->call, &op->program, &op->run);
    if (!status && message && !op->alone && !messages_with(c, &op->call))
        status = ri_fail(RING_ERR_NOMEM, "no memory to number messages");
    if (!status)
        return RING_OK;
    if (op->run)
        ri_program_put(op->program, op->run);
    op->run = NULL;
    ri_free(op->scratch);
    op->scratch = NULL;
    return not_begun(c, status);
}

static void start_run(struct ring_comm *c, struct ring_op *op)
{
    struct ri_signature signature;
    const bool message = op->call.coll == RING_SEND || op->call.coll == RING_RECV;
    ri_op_signature(c, &op->call, op->seq, &signature);
    signature.algo = algorithm_number(op->program->algorithm);
    if (message) {
        signature.seq = ++*messages_with(c, &op->call);
        signature.coll = RING_SEND;
        signature.algo = 0;
        signature.root = RI_ROOT_MESSAGE;
    }
    ri_run_start(op->run->run, op->call.src, op->call.dst, &op->reduction, &signature);
}

void ri_op_launch(struct ring_comm *c, struct ring_op *op)
{
    const bool message = op->call.coll == RING_SEND || op->call.coll == RING_RECV;
    op->deadline = coarse_now() + c->conf.op_timeout;
    op->status = RING_OK;
    op->done = op->begun = false;
    op->seq = message ? 0 : ++c->seq;
    if (!message && op->program)
        remember(c, &op->call);
    if (op->given)
        fill_in(c, op);
    if (op->alone) {
        if (message)
            ri_self_meet(c, op);
        else
            ri_self_run(c, op);
        return;
    }
    *c->last = op;
    c->last = &op->next;
    if (op->program)
        start_run(c, op);
}

/* ---- the calls ------------------------------------------------------------------------------------------------- */

static ring_status_t run_by_node(struct ring_comm *c, const struct ri_call *call)
{
    c->seq++;
    c->running = call;
    const ring_status_t status = ri_node_run(c->node, call, NULL, c->conf.op_timeout);
    if (!status) {
        ri_stall_over(c);
        return RING_OK;
    }
    const struct ring_op op = {.comm = c, .call = *call, .seq = c->seq};
    return fail(c, &op, status);
}

ring_status_t ri_op_run(struct ring_comm *c, const struct ri_call *call)
{
    if (!c->first && (unsigned)call->redop < RI_REDOPS && ri_op_by_node(c, call))
        return run_by_node(c, call);
    struct ring_op op = {.comm = c, .call = *call};
    const ring_status_t status = ri_op_prepare(c, &op);
    if (status)
        return status;
    ri_op_launch(c, &op);
    return wait_for(c, &op);
}

void ri_op_hold(struct ring_comm *c, struct ring_op *op)
{
    op->newer = c->handles;
    op->handle = &c->handles;
    if (c->handles)
        c->handles->handle = &op->newer;
    c->handles = op;
}

ring_status_t ri_op_test(struct ring_op *op, int *done_out)
{
    struct ring_comm *c = op->comm;
    unsigned moved;
    if (!op->done && ri_comm_broken(c))
        (void)fail(c, op, RING_ERR_ABORTED);
    if (!op->done)
        (void)progress(c, &moved);
    if (!op->done)
        (void)ri_wait_look_after_others();
    if (!op->done && coarse_now() >= op->deadline)
        (void)fail(c, op, RING_ERR_TIMEOUT);
    *done_out = op->done;
    return op->done && op->status ? ri_comm_verdict(c) : RING_OK;
}

ring_status_t ri_op_wait(struct ring_op *op)
{
    if (!op->done && op->alone)
        return ri_fail(RING_ERR_STATE, "a %s that meets nothing: rank %u must start the other side first",
                       op->call.coll == RING_SEND ? "send to itself" : "receive from itself", op->comm->rank);
    if (!op->done)
        (void)wait_for(op->comm, op);
    return op->status ? ri_comm_verdict(op->comm) : RING_OK;
}

void ri_op_discard(struct ring_op *op)
{
    if (op->run && op->comm)
        ri_program_put(op->program, op->run);
    ri_free(op->scratch);
    ri_free(op);
}

void ri_op_free(struct ring_op *op)
{
    *op->handle = op->newer;
    if (op->newer)
        op->newer->handle = op->handle;
    ri_op_discard(op);
}

void ri_op_orphan(struct ring_comm *c)
{
    while (c->handles) {
        struct ring_op *op = c->handles;
        c->handles = op->newer;
        op->comm = NULL;
        ri_free(op->run); /* what it holds goes with the engine */
        op->run = NULL;
        op->newer = NULL;
        op->handle = &op->newer; /* nobody points to it */
    }
}

void ri_op_drain(struct ring_comm *c)
{
    while (c->first)
        (void)wait_for(c, c->first);
}
