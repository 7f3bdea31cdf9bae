/* SPDX-License-Identifier: Apache-2.0 */
/* op.c - operations: one collective call each.
 *
 * Operations are kept in the order they were started, which is the same on all ranks.  Those over links run side by
 * side in the engine; those by direct shared memory are done one after the other.  Progress is made by whoever waits or
 * tests, for all of them.  The blocking call by direct shared memory with nothing else in flight goes straight to the
 * node. */
#include "lib/comm/comm.h"

#include <string.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

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

void ri_op_signature(const struct ring_comm *c, const struct ri_call *call, uint32_t seq, uint8_t algo,
                     struct ri_signature *signature_out)
{
    (void)c;
    *signature_out = (struct ri_signature){.magic = RI_SIGNATURE_MAGIC,
                                           .seq = seq,
                                           .coll = (uint8_t)call->coll,
                                           .dtype = (uint8_t)call->dtype,
                                           .redop = (uint8_t)call->redop,
                                           .algo = algo,
                                           .root = call->root,
                                           .count = call->count};
}

static uint8_t algorithm_number(const struct ri_algorithm *a)
{
    uint8_t i = 0;
    while (ri_algorithms[i] != a)
        i++;
    return (uint8_t)(i + 1);
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

static void finish(struct ring_op *op, ring_status_t status)
{
    op->status = status;
    op->done = true;
    if (op->program && op->run)
        ri_program_put(op->program, op->run);
    op->run = NULL;
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

static void finish_all(struct ring_comm *c, ring_status_t status)
{
    while (c->first) {
        struct ring_op *op = c->first;
        unlink_at(c, &c->first);
        finish(op, status);
    }
}

static ring_status_t late(struct ring_comm *c, const struct ring_op *op)
{
    struct ri_signature s;
    char call[96], who[RI_FAILURE_TEXT / 2], limit[32] = "";
    ri_op_signature(c, &op->call, op->seq, 0, &s);
    ri_call_text(&s, call, sizeof call);
    ri_stall_missing(c, RI_SECOND, who, sizeof who);
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_rows[i].offset == offsetof(struct ri_conf, op_timeout))
            ri_conf_print(&c->conf, &ri_conf_rows[i], limit, sizeof limit);
    ri_comm_raise(c, RING_ERR_TIMEOUT, UINT32_MAX,
                  "operation %u, %s, was not complete on %s after %s (RING_OP_TIMEOUT); not responding: %s", op->seq,
                  call, ri_comm_name(c, c->rank), limit, who);
    return ri_comm_verdict(c);
}

/* What a failed operation means for the communicator: everybody learns of it, and all that is in flight ends. */
static ring_status_t fail(struct ring_comm *c, const struct ring_op *op, ring_status_t status)
{
    switch (status) {
    case RING_ERR_ABORTED:
    case RING_ERR_MISMATCH:
        if (ri_comm_broken(c))
            break;
        ri_comm_raise(c, status, UINT32_MAX, "%s: ranks disagree on operation %u", ri_comm_name(c, c->rank), op->seq);
        break;
    case RING_ERR_PEER_LOST:
        ri_comm_suspect(c, op->run ? ri_run_culprit(op->run->run) : UINT32_MAX, "its connection was lost");
        break;
    case RING_ERR_TIMEOUT:
        late(c, op);
        break;
    default:
        ri_comm_raise(c, status, c->rank, "%s: %s", ri_comm_name(c, c->rank), ri_error_get());
    }
    status = ri_comm_verdict(c);
    finish_all(c, status);
    return status;
}

/* ---- progress -------------------------------------------------------------------------------------------------- */

static ring_status_t step_node(struct ring_comm *c, struct ring_op *op, bool *done, unsigned *moved)
{
    bool went = false;
    if (!op->begun) {
        ri_node_begin(c->node, &op->call, NULL);
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
            finish(op, RING_OK);
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
    ri_op_signature(c, &op->call, op->seq, 0, &calls);
    ri_comm_stalled(c, &calls, waited);
}

static ring_status_t wait_for(struct ring_comm *c, struct ring_op *op)
{
    struct ri_wait w;
    uint64_t begun = 0, look = 0;
    ri_sleep_fn *sleep = op->program ? ri_wires_sleep : ri_node_sleep;
    void *arg = op->program ? (void *)c : (void *)c->node;
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

/* ---- the calls ------------------------------------------------------------------------------------------------- */

/* A job of one, and only there. */
static void run_alone(const struct ri_call *call)
{
    if (call->count && call->src != call->dst)
        memcpy(call->dst, call->src, call->count * ring_dtype_size(call->dtype));
}

static ring_status_t begin(struct ring_comm *c, struct ring_op *op, const struct ri_call *call)
{
    *op = (struct ring_op){.comm = c, .call = *call, .deadline = coarse_now() + c->conf.op_timeout, .status = RING_OK};
    if (!c->node) {
        const ring_status_t status = ri_program_get(c, call, &op->program, &op->run);
        if (status)
            return status;
    }
    op->seq = ++c->seq;
    if (op->program) {
        struct ri_signature signature;
        const struct ri_reduction reduction = ri_reduction_for(call->dtype, call->redop);
        ri_op_signature(c, call, op->seq, algorithm_number(op->program->algorithm), &signature);
        ri_run_start(op->run->run, call->src, call->dst, &reduction, &signature);
    }
    *c->last = op;
    c->last = &op->next;
    return RING_OK;
}

ring_status_t ri_op_run(struct ring_comm *c, const struct ri_call *call)
{
    struct ring_op op;
    if (c->size == 1) {
        run_alone(call);
        return RING_OK;
    }
    if (c->node && !c->first) {
        c->seq++;
        c->running = call;
        const ring_status_t status = ri_node_run(c->node, call, NULL, coarse_now() + c->conf.op_timeout);
        ri_stall_over(c);
        if (!status)
            return RING_OK;
        op = (struct ring_op){.comm = c, .call = *call, .seq = c->seq};
        return fail(c, &op, status);
    }
    const ring_status_t status = begin(c, &op, call);
    return status ? status : wait_for(c, &op);
}

/* Handles are kept in a list, so that destroying the communicator can tell them. */
static void hold(struct ring_comm *c, struct ring_op *op)
{
    op->newer = c->handles;
    op->handle = &c->handles;
    if (c->handles)
        c->handles->handle = &op->newer;
    c->handles = op;
}

ring_status_t ri_op_start(struct ring_comm *c, const struct ri_call *call, struct ring_op **op_out)
{
    struct ring_op *op = ri_new(1, sizeof *op);
    ring_status_t status = op ? RING_OK : ri_fail(RING_ERR_NOMEM, "no memory for an operation");
    if (!status && c->size == 1) {
        run_alone(call);
        *op = (struct ring_op){.comm = c, .done = true};
    } else if (!status) {
        unsigned moved;
        status = begin(c, op, call);
        if (!status)
            (void)progress(c, &moved); /* a failure is the operation's, and told when it is waited for */
    }
    if (status)
        ri_free(op);
    else {
        hold(c, op);
        *op_out = op;
    }
    return status;
}

ring_status_t ri_op_test(struct ring_op *op, int *done_out)
{
    struct ring_comm *c = op->comm;
    unsigned moved;
    if (!op->done && ri_comm_broken(c))
        (void)fail(c, op, RING_ERR_ABORTED);
    if (!op->done)
        (void)progress(c, &moved);
    if (!op->done && coarse_now() >= op->deadline)
        (void)fail(c, op, RING_ERR_TIMEOUT);
    *done_out = op->done;
    return op->done && op->status ? ri_comm_verdict(c) : RING_OK;
}

ring_status_t ri_op_wait(struct ring_op *op)
{
    if (!op->done)
        (void)wait_for(op->comm, op);
    return op->status ? ri_comm_verdict(op->comm) : RING_OK;
}

void ri_op_free(struct ring_op *op)
{
    *op->handle = op->newer;
    if (op->newer)
        op->newer->handle = op->handle;
    ri_free(op);
}

void ri_op_orphan(struct ring_comm *c)
{
    while (c->handles) {
        struct ring_op *op = c->handles;
        c->handles = op->newer;
        op->comm = NULL;
        op->newer = NULL;
        op->handle = &op->newer; /* nobody points to it */
    }
}

void ri_op_drain(struct ring_comm *c)
{
    while (c->first)
        (void)wait_for(c, c->first);
}
