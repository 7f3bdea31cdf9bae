/* SPDX-License-Identifier: Apache-2.0 */
/* api_calls.c - the exported collectives, messages, groups and operations: each brings its arguments into one form
 * (ring_call_t), which is checked and handed on in one place. */
#include "lib/api.h"
#include "lib/base/mem.h"
#include "lib/comm/arguments.h"

static const char *const colls[] = {
    [RING_ALL_REDUCE] = "all_reduce",
    [RING_REDUCE] = "reduce",
    [RING_BROADCAST] = "broadcast",
    [RING_REDUCE_SCATTER] = "reduce_scatter",
    [RING_ALL_GATHER] = "all_gather",
    [RING_ALL_TO_ALL] = "all_to_all",
    [RING_GATHER] = "gather",
    [RING_SCATTER] = "scatter",
    [RING_BARRIER] = "barrier",
    [RING_SEND] = "send",
    [RING_RECV] = "recv",
    [RING_REDUCE_SCATTERV] = "reduce_scatterv",
    [RING_ALL_GATHERV] = "all_gatherv",
    [RING_ALL_TO_ALLV] = "all_to_allv",
    [RING_GATHERV] = "gatherv",
    [RING_SCATTERV] = "scatterv",
};

const char *ring_coll_str(ring_coll_t coll)
{
    return (unsigned)coll < sizeof colls / sizeof *colls ? colls[coll] : NULL;
}

/* ---- the three ways in ----------------------------------------------------------------------------------------- */

/* The arrays of a blocking call: kept, so that it allocates nothing. */
static ring_status_t room_for(ring_comm_t *c, ring_coll_t coll, size_t **room_out)
{
    const size_t n = ri_arguments_room(c, coll);
    if (n && !c->room && !(c->room = ri_new(n, sizeof *c->room)))
        return ri_fail(RING_ERR_NOMEM, "no memory for the counts of %u ranks", c->size);
    *room_out = n ? c->room : NULL;
    return RING_OK;
}

/* An operation with its arguments checked. */
static ring_status_t make_op(ring_comm_t *c, const ring_call_t *given, struct ring_op **op_out)
{
    struct ring_op *op;
    ring_status_t status = ri_op_new(c, given->coll, &op);
    if (status)
        return status;
    const struct ri_call *again = ri_arguments_again(c, given);
    if (again)
        op->call = *again;
    else
        status = ri_arguments_check(c, given, ri_arguments_room(c, given->coll) ? op->room : NULL, &op->call);
    if (status)
        ri_op_discard(op);
    else
        *op_out = op;
    return status;
}

static ring_status_t note(ring_comm_t *c, const ring_call_t *given)
{
    struct ring_op *op = NULL;
    ring_status_t status = make_op(c, given, &op);
    if (!status && (status = ri_group_note(c, op, NULL)))
        ri_op_discard(op);
    return status;
}

static ring_status_t run_now(ring_comm_t *c, const ring_call_t *given)
{
    const struct ri_call *again =
        given->coll < RING_REDUCE_SCATTERV ? ri_arguments_again(c, given) : ri_arguments_again_arrays(c, given);
    struct ri_call call;
    size_t *room = NULL;
    if (again)
        return ri_op_run(c, again);
    ring_status_t status = room_for(c, given->coll, &room);
    if (!status)
        status = ri_arguments_check(c, given, room, &call);
    if (!status && (given->coll == RING_SEND || given->coll == RING_RECV) && call.root == c->rank)
        status = ri_fail(RING_ERR_INVALID,
                         "a blocking %s of rank %u with itself would wait for ever: put both sides into a "
                         "group, or start them",
                         colls[given->coll], c->rank);
    return status ? status : ri_op_run(c, &call);
}

static ring_status_t run(ring_comm_t *c, const ring_call_t *given)
{
    ring_status_t status = ri_enter_working(c);
    if (status)
        return status;
    status = c->group.depth ? note(c, given) : run_now(c, given);
    ri_leave(c);
    return status;
}

static ring_status_t prepare(ring_comm_t *c, const ring_call_t *given, bool persistent, ring_op_t **op_out)
{
    struct ring_op *op = NULL;
    if (!op_out)
        return ri_fail(RING_ERR_INVALID, "op_out is NULL");
    ring_status_t status = ri_enter_idle(c, "an operation");
    if (status)
        return status;
    if (!(status = make_op(c, given, &op))) {
        op->persistent = persistent;
        if ((status = ri_op_prepare(c, op)))
            ri_op_discard(op);
    }
    if (!status) {
        ri_op_hold(c, op);
        *op_out = op;
        if (!persistent) {
            ri_op_launch(c, op);
            (void)ri_op_progress(c);
        }
    }
    ri_leave(c);
    return status;
}

static ring_status_t start(ring_comm_t *c, const ring_call_t *given, ring_op_t **op_out)
{
    return prepare(c, given, false, op_out);
}

/* ---- collectives and messages ---------------------------------------------------------------------------------- */

ring_status_t ring_all_reduce(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                              ring_redop_t redop)
{
    return run(c, &(ring_call_t){
                      .coll = RING_ALL_REDUCE, .src = src, .dst = dst, .count = count, .dtype = dtype, .redop = redop});
}

ring_status_t ring_all_reduce_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                    ring_redop_t redop, ring_op_t **op_out)
{
    return start(
        c,
        &(ring_call_t){.coll = RING_ALL_REDUCE, .src = src, .dst = dst, .count = count, .dtype = dtype, .redop = redop},
        op_out);
}

ring_status_t ring_reduce(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                          ring_redop_t redop, uint32_t root)
{
    return run(
        c,
        &(ring_call_t){
            .coll = RING_REDUCE, .src = src, .dst = dst, .count = count, .dtype = dtype, .redop = redop, .root = root});
}

ring_status_t ring_reduce_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                ring_redop_t redop, uint32_t root, ring_op_t **op_out)
{
    return start(
        c,
        &(ring_call_t){
            .coll = RING_REDUCE, .src = src, .dst = dst, .count = count, .dtype = dtype, .redop = redop, .root = root},
        op_out);
}

ring_status_t ring_broadcast(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                             uint32_t root)
{
    return run(c, &(ring_call_t){
                      .coll = RING_BROADCAST, .src = src, .dst = dst, .count = count, .dtype = dtype, .root = root});
}

ring_status_t ring_broadcast_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                   uint32_t root, ring_op_t **op_out)
{
    return start(
        c, &(ring_call_t){.coll = RING_BROADCAST, .src = src, .dst = dst, .count = count, .dtype = dtype, .root = root},
        op_out);
}

ring_status_t ring_reduce_scatter(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                  ring_redop_t redop)
{
    return run(
        c, &(ring_call_t){
               .coll = RING_REDUCE_SCATTER, .src = src, .dst = dst, .count = count, .dtype = dtype, .redop = redop});
}

ring_status_t ring_reduce_scatter_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                        ring_redop_t redop, ring_op_t **op_out)
{
    return start(
        c,
        &(ring_call_t){
            .coll = RING_REDUCE_SCATTER, .src = src, .dst = dst, .count = count, .dtype = dtype, .redop = redop},
        op_out);
}

ring_status_t ring_all_gather(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype)
{
    return run(c, &(ring_call_t){.coll = RING_ALL_GATHER, .src = src, .dst = dst, .count = count, .dtype = dtype});
}

ring_status_t ring_all_gather_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                    ring_op_t **op_out)
{
    return start(c, &(ring_call_t){.coll = RING_ALL_GATHER, .src = src, .dst = dst, .count = count, .dtype = dtype},
                 op_out);
}

ring_status_t ring_all_to_all(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype)
{
    return run(c, &(ring_call_t){.coll = RING_ALL_TO_ALL, .src = src, .dst = dst, .count = count, .dtype = dtype});
}

ring_status_t ring_all_to_all_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                    ring_op_t **op_out)
{
    return start(c, &(ring_call_t){.coll = RING_ALL_TO_ALL, .src = src, .dst = dst, .count = count, .dtype = dtype},
                 op_out);
}

ring_status_t ring_gather(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype, uint32_t root)
{
    return run(
        c, &(ring_call_t){.coll = RING_GATHER, .src = src, .dst = dst, .count = count, .dtype = dtype, .root = root});
}

ring_status_t ring_gather_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                uint32_t root, ring_op_t **op_out)
{
    return start(
        c, &(ring_call_t){.coll = RING_GATHER, .src = src, .dst = dst, .count = count, .dtype = dtype, .root = root},
        op_out);
}

ring_status_t ring_scatter(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype, uint32_t root)
{
    return run(
        c, &(ring_call_t){.coll = RING_SCATTER, .src = src, .dst = dst, .count = count, .dtype = dtype, .root = root});
}

ring_status_t ring_scatter_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                 uint32_t root, ring_op_t **op_out)
{
    return start(
        c, &(ring_call_t){.coll = RING_SCATTER, .src = src, .dst = dst, .count = count, .dtype = dtype, .root = root},
        op_out);
}

ring_status_t ring_barrier(ring_comm_t *c) { return run(c, &(ring_call_t){.coll = RING_BARRIER}); }

ring_status_t ring_barrier_start(ring_comm_t *c, ring_op_t **op_out)
{
    return start(c, &(ring_call_t){.coll = RING_BARRIER}, op_out);
}

ring_status_t ring_reduce_scatterv(ring_comm_t *c, const void *src, void *dst, const size_t *counts, ring_dtype_t dtype,
                                   ring_redop_t redop)
{
    return run(
        c,
        &(ring_call_t){
            .coll = RING_REDUCE_SCATTERV, .src = src, .dst = dst, .scounts = counts, .dtype = dtype, .redop = redop});
}

ring_status_t ring_reduce_scatterv_start(ring_comm_t *c, const void *src, void *dst, const size_t *counts,
                                         ring_dtype_t dtype, ring_redop_t redop, ring_op_t **op_out)
{
    return start(
        c,
        &(ring_call_t){
            .coll = RING_REDUCE_SCATTERV, .src = src, .dst = dst, .scounts = counts, .dtype = dtype, .redop = redop},
        op_out);
}

ring_status_t ring_all_gatherv(ring_comm_t *c, const void *src, void *dst, const size_t *counts, const size_t *displs,
                               ring_dtype_t dtype)
{
    return run(
        c, &(ring_call_t){
               .coll = RING_ALL_GATHERV, .src = src, .dst = dst, .rcounts = counts, .rdispls = displs, .dtype = dtype});
}

ring_status_t ring_all_gatherv_start(ring_comm_t *c, const void *src, void *dst, const size_t *counts,
                                     const size_t *displs, ring_dtype_t dtype, ring_op_t **op_out)
{
    return start(
        c,
        &(ring_call_t){
            .coll = RING_ALL_GATHERV, .src = src, .dst = dst, .rcounts = counts, .rdispls = displs, .dtype = dtype},
        op_out);
}

ring_status_t ring_all_to_allv(ring_comm_t *c, const void *src, const size_t *scounts, const size_t *sdispls, void *dst,
                               const size_t *rcounts, const size_t *rdispls, ring_dtype_t dtype)
{
    return run(c, &(ring_call_t){.coll = RING_ALL_TO_ALLV,
                                 .src = src,
                                 .scounts = scounts,
                                 .sdispls = sdispls,
                                 .dst = dst,
                                 .rcounts = rcounts,
                                 .rdispls = rdispls,
                                 .dtype = dtype});
}

ring_status_t ring_all_to_allv_start(ring_comm_t *c, const void *src, const size_t *scounts, const size_t *sdispls,
                                     void *dst, const size_t *rcounts, const size_t *rdispls, ring_dtype_t dtype,
                                     ring_op_t **op_out)
{
    return start(c,
                 &(ring_call_t){.coll = RING_ALL_TO_ALLV,
                                .src = src,
                                .scounts = scounts,
                                .sdispls = sdispls,
                                .dst = dst,
                                .rcounts = rcounts,
                                .rdispls = rdispls,
                                .dtype = dtype},
                 op_out);
}

ring_status_t ring_gatherv(ring_comm_t *c, const void *src, size_t count, void *dst, const size_t *rcounts,
                           const size_t *rdispls, ring_dtype_t dtype, uint32_t root)
{
    return run(c, &(ring_call_t){.coll = RING_GATHERV,
                                 .src = src,
                                 .count = count,
                                 .dst = dst,
                                 .rcounts = rcounts,
                                 .rdispls = rdispls,
                                 .dtype = dtype,
                                 .root = root});
}

ring_status_t ring_gatherv_start(ring_comm_t *c, const void *src, size_t count, void *dst, const size_t *rcounts,
                                 const size_t *rdispls, ring_dtype_t dtype, uint32_t root, ring_op_t **op_out)
{
    return start(c,
                 &(ring_call_t){.coll = RING_GATHERV,
                                .src = src,
                                .count = count,
                                .dst = dst,
                                .rcounts = rcounts,
                                .rdispls = rdispls,
                                .dtype = dtype,
                                .root = root},
                 op_out);
}

ring_status_t ring_scatterv(ring_comm_t *c, const void *src, const size_t *scounts, const size_t *sdispls, void *dst,
                            size_t count, ring_dtype_t dtype, uint32_t root)
{
    return run(c, &(ring_call_t){.coll = RING_SCATTERV,
                                 .src = src,
                                 .scounts = scounts,
                                 .sdispls = sdispls,
                                 .dst = dst,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = root});
}

ring_status_t ring_scatterv_start(ring_comm_t *c, const void *src, const size_t *scounts, const size_t *sdispls,
                                  void *dst, size_t count, ring_dtype_t dtype, uint32_t root, ring_op_t **op_out)
{
    return start(c,
                 &(ring_call_t){.coll = RING_SCATTERV,
                                .src = src,
                                .scounts = scounts,
                                .sdispls = sdispls,
                                .dst = dst,
                                .count = count,
                                .dtype = dtype,
                                .root = root},
                 op_out);
}

ring_status_t ring_send(ring_comm_t *c, const void *src, size_t count, ring_dtype_t dtype, uint32_t peer)
{
    return run(c, &(ring_call_t){.coll = RING_SEND, .src = src, .count = count, .dtype = dtype, .root = peer});
}

ring_status_t ring_send_start(ring_comm_t *c, const void *src, size_t count, ring_dtype_t dtype, uint32_t peer,
                              ring_op_t **op_out)
{
    return start(c, &(ring_call_t){.coll = RING_SEND, .src = src, .count = count, .dtype = dtype, .root = peer},
                 op_out);
}

ring_status_t ring_recv(ring_comm_t *c, void *dst, size_t count, ring_dtype_t dtype, uint32_t peer)
{
    return run(c, &(ring_call_t){.coll = RING_RECV, .dst = dst, .count = count, .dtype = dtype, .root = peer});
}

ring_status_t ring_recv_start(ring_comm_t *c, void *dst, size_t count, ring_dtype_t dtype, uint32_t peer,
                              ring_op_t **op_out)
{
    return start(c, &(ring_call_t){.coll = RING_RECV, .dst = dst, .count = count, .dtype = dtype, .root = peer},
                 op_out);
}

/* Both sides are noted, or neither. */
static ring_status_t note_both(ring_comm_t *c, const ring_call_t *send, const ring_call_t *recv)
{
    struct ring_op *one = NULL, *other = NULL;
    ring_status_t status = make_op(c, send, &one);
    if (!status)
        status = make_op(c, recv, &other);
    if (!status)
        status = ri_group_note(c, one, other);
    if (status && one)
        ri_op_discard(one);
    if (status && other)
        ri_op_discard(other);
    return status;
}

ring_status_t ring_sendrecv(ring_comm_t *c, const void *src, size_t scount, uint32_t to, void *dst, size_t rcount,
                            uint32_t from, ring_dtype_t dtype)
{
    const ring_call_t send = {.coll = RING_SEND, .src = src, .count = scount, .dtype = dtype, .root = to};
    const ring_call_t recv = {.coll = RING_RECV, .dst = dst, .count = rcount, .dtype = dtype, .root = from};
    ring_status_t status = ri_enter_working(c);
    if (status)
        return status;
    status = note_both(c, &send, &recv);
    if (!status && !c->group.depth)
        status = ri_group_end(c);
    ri_leave(c);
    return status;
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

ring_status_t ring_group_start(ring_comm_t *c)
{
    const ring_status_t status = ri_enter_working(c);
    if (status)
        return status;
    c->group.depth++;
    ri_leave(c);
    return RING_OK;
}

ring_status_t ring_group_end(ring_comm_t *c)
{
    ring_status_t status = ri_enter(c);
    if (status)
        return status;
    if (!c->group.depth)
        status = ri_fail(RING_ERR_STATE, "there is no group to end: ring_group_start() was not called");
    else if (!--c->group.depth)
        status = ri_group_end(c);
    ri_leave(c);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

ring_status_t ring_op_prepare(ring_comm_t *c, const ring_call_t *call, ring_op_t **op_out)
{
    return call ? prepare(c, call, true, op_out) : ri_fail(RING_ERR_INVALID, "call is NULL");
}

/* Its communicator was destroyed, which completed it. */
static ring_status_t outlived(const ring_op_t *op)
{
    return op->status ? ri_fail(op->status, "the operation failed before its communicator was destroyed") : RING_OK;
}

static ring_status_t start_again(ring_comm_t *c, ring_op_t *op)
{
    if (!op->persistent)
        return ri_fail(RING_ERR_STATE, "only an operation made by ring_op_prepare() can be started again");
    if (!op->done)
        return ri_fail(RING_ERR_STATE, "the operation is still under way: wait for it before it is started again");
    ri_op_launch(c, op);
    (void)ri_op_progress(c);
    return RING_OK;
}

ring_status_t ring_op_start(ring_op_t *op)
{
    if (!op || !op->comm)
        return op ? ri_fail(RING_ERR_STATE, "the communicator of this operation was destroyed")
                  : ri_fail(RING_ERR_INVALID, "the operation is NULL");
    ring_comm_t *c = op->comm;
    ring_status_t status = ri_enter_idle(c, "an operation");
    if (status)
        return status;
    status = start_again(c, op);
    ri_leave(c);
    return status;
}

ring_status_t ring_op_test(ring_op_t *op, int *done_out)
{
    if (!op || !done_out)
        return ri_fail(RING_ERR_INVALID, "%s is NULL", op ? "done_out" : "the operation");
    ring_comm_t *c = op->comm;
    if (!c) {
        *done_out = 1;
        return outlived(op);
    }
    ring_status_t status = ri_enter(c);
    if (status)
        return status;
    status = ri_op_test(op, done_out);
    ri_leave(c);
    return status;
}

ring_status_t ring_op_wait(ring_op_t *op)
{
    if (!op)
        return ri_fail(RING_ERR_INVALID, "the operation is NULL");
    ring_comm_t *c = op->comm;
    if (!c)
        return outlived(op);
    ring_status_t status = ri_enter(c);
    if (status)
        return status;
    status = ri_op_wait(op);
    ri_leave(c);
    return status;
}

void ring_op_free(ring_op_t *op)
{
    if (!op)
        return;
    ring_comm_t *c = op->comm;
    if (c && !op->done && !op->alone && ring_op_wait(op) == RING_ERR_BUSY)
        return; /* another thread is inside: the operation stays, as it would be written to */
    if (c && op->alone && !op->done)
        ri_self_forget(c, op);
    ri_op_free(op);
}

ring_status_t ring_comm_choice(ring_comm_t *c, ring_coll_t coll, size_t count, ring_dtype_t dtype, ring_redop_t redop,
                               ring_choice_t *choice_out)
{
    const ring_coll_t regular[] = {[RING_REDUCE_SCATTERV] = RING_REDUCE_SCATTER,
                                   [RING_ALL_GATHERV] = RING_ALL_GATHER,
                                   [RING_ALL_TO_ALLV] = RING_ALL_TO_ALL,
                                   [RING_GATHERV] = RING_GATHER,
                                   [RING_SCATTERV] = RING_SCATTER};
    if (!choice_out)
        return ri_fail(RING_ERR_INVALID, "choice_out is NULL");
    if (!ring_coll_str(coll))
        return ri_fail(RING_ERR_INVALID, "coll %d is none of ring_coll_t", (int)coll);
    if (!ri_dtype_ok(dtype))
        return ri_fail(RING_ERR_INVALID, "dtype %d is none of ring_dtype_t (0 to %d)", (int)dtype, RI_DTYPES - 1);
    ring_status_t status = ri_enter(c);
    if (status)
        return status;
    if (!(status = ri_redop_check(c, dtype, redop)))
        status = ri_op_choice(c,
                              &(struct ri_call){.coll = coll < RING_REDUCE_SCATTERV ? coll : regular[coll],
                                                .dtype = dtype,
                                                .redop = redop,
                                                .count = count,
                                                .root = c->size > 1 && !c->rank},
                              choice_out);
    ri_leave(c);
    return status;
}
