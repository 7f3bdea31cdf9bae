/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - one call of a collective, made in each of the ways the library has: blocking, started, prepared.
 *
 * sendrecv is a function of its own when it blocks, and a send and a receive otherwise. */
#include "perf.h"

static ring_call_t part_of(const struct perf_case *what, const struct perf_shape *s)
{
    ring_call_t call = {.coll = what->coll->coll, .dtype = what->dtype, .count = s->count};
    call.redop = what->coll->reduces ? what->redop : RING_SUM;
    call.root = what->root < 0 ? 0 : (uint32_t)what->root;
    if (!what->coll->uneven)
        return call;
    if (what->coll->in_place != PERF_SRC_IN_DST) {
        call.scounts = s->blocks;
        call.sdispls = s->begins;
    }
    if (what->coll->in_place != PERF_DST_IN_SRC) {
        call.rcounts = s->blocks;
        call.rdispls = s->begins;
    }
    return call;
}

void perf_call_init(struct perf_call *c, const struct perf_case *what, const struct perf_shape *s)
{
    *c = (struct perf_call){.coll = what->coll, .parts = 1, .part = {part_of(what, s)}};
    if (what->coll->coll != RING_SEND)
        return;
    c->parts = 2;
    c->part[1] = c->part[0];
    c->part[1].coll = RING_RECV;
    c->part[0].root = (s->rank + 1) % s->size;
    c->part[1].root = (s->rank + s->size - 1) % s->size;
}

ring_status_t perf_call_block(ring_comm_t *comm, const struct perf_call *c, const void *src, void *dst)
{
    const ring_call_t *a = &c->part[0];
    switch (a->coll) {
    case RING_ALL_REDUCE:
        return ring_all_reduce(comm, src, dst, a->count, a->dtype, a->redop);
    case RING_REDUCE:
        return ring_reduce(comm, src, dst, a->count, a->dtype, a->redop, a->root);
    case RING_BROADCAST:
        return ring_broadcast(comm, src, dst, a->count, a->dtype, a->root);
    case RING_REDUCE_SCATTER:
        return ring_reduce_scatter(comm, src, dst, a->count, a->dtype, a->redop);
    case RING_ALL_GATHER:
        return ring_all_gather(comm, src, dst, a->count, a->dtype);
    case RING_ALL_TO_ALL:
        return ring_all_to_all(comm, src, dst, a->count, a->dtype);
    case RING_GATHER:
        return ring_gather(comm, src, dst, a->count, a->dtype, a->root);
    case RING_SCATTER:
        return ring_scatter(comm, src, dst, a->count, a->dtype, a->root);
    case RING_BARRIER:
        return ring_barrier(comm);
    case RING_REDUCE_SCATTERV:
        return ring_reduce_scatterv(comm, src, dst, a->scounts, a->dtype, a->redop);
    case RING_ALL_GATHERV:
        return ring_all_gatherv(comm, src, dst, a->rcounts, a->rdispls, a->dtype);
    case RING_ALL_TO_ALLV:
        return ring_all_to_allv(comm, src, a->scounts, a->sdispls, dst, a->rcounts, a->rdispls, a->dtype);
    case RING_GATHERV:
        return ring_gatherv(comm, src, a->count, dst, a->rcounts, a->rdispls, a->dtype, a->root);
    case RING_SCATTERV:
        return ring_scatterv(comm, src, a->scounts, a->sdispls, dst, a->count, a->dtype, a->root);
    default:
        return ring_sendrecv(comm, src, a->count, a->root, dst, c->part[1].count, c->part[1].root, a->dtype);
    }
}

static ring_status_t start(ring_comm_t *comm, const ring_call_t *a, const void *src, void *dst, ring_op_t **op_out)
{
    switch (a->coll) {
    case RING_ALL_REDUCE:
        return ring_all_reduce_start(comm, src, dst, a->count, a->dtype, a->redop, op_out);
    case RING_REDUCE:
        return ring_reduce_start(comm, src, dst, a->count, a->dtype, a->redop, a->root, op_out);
    case RING_BROADCAST:
        return ring_broadcast_start(comm, src, dst, a->count, a->dtype, a->root, op_out);
    case RING_REDUCE_SCATTER:
        return ring_reduce_scatter_start(comm, src, dst, a->count, a->dtype, a->redop, op_out);
    case RING_ALL_GATHER:
        return ring_all_gather_start(comm, src, dst, a->count, a->dtype, op_out);
    case RING_ALL_TO_ALL:
        return ring_all_to_all_start(comm, src, dst, a->count, a->dtype, op_out);
    case RING_GATHER:
        return ring_gather_start(comm, src, dst, a->count, a->dtype, a->root, op_out);
    case RING_SCATTER:
        return ring_scatter_start(comm, src, dst, a->count, a->dtype, a->root, op_out);
    case RING_BARRIER:
        return ring_barrier_start(comm, op_out);
    case RING_REDUCE_SCATTERV:
        return ring_reduce_scatterv_start(comm, src, dst, a->scounts, a->dtype, a->redop, op_out);
    case RING_ALL_GATHERV:
        return ring_all_gatherv_start(comm, src, dst, a->rcounts, a->rdispls, a->dtype, op_out);
    case RING_ALL_TO_ALLV:
        return ring_all_to_allv_start(comm, src, a->scounts, a->sdispls, dst, a->rcounts, a->rdispls, a->dtype, op_out);
    case RING_GATHERV:
        return ring_gatherv_start(comm, src, a->count, dst, a->rcounts, a->rdispls, a->dtype, a->root, op_out);
    case RING_SCATTERV:
        return ring_scatterv_start(comm, src, a->scounts, a->sdispls, dst, a->count, a->dtype, a->root, op_out);
    case RING_SEND:
        return ring_send_start(comm, src, a->count, a->dtype, a->root, op_out);
    default:
        return ring_recv_start(comm, dst, a->count, a->dtype, a->root, op_out);
    }
}

ring_status_t perf_call_start(ring_comm_t *comm, const struct perf_call *c, const void *src, void *dst,
                              ring_op_t *op[2])
{
    ring_status_t status = RING_OK;
    for (unsigned i = 0; i < c->parts && !status; i++)
        status = start(comm, &c->part[i], src, dst, &op[i]);
    return status;
}

ring_status_t perf_call_prepare(ring_comm_t *comm, const struct perf_call *c, const void *src, void *dst,
                                ring_op_t *op[2])
{
    ring_status_t status = RING_OK;
    for (unsigned i = 0; i < c->parts && !status; i++) {
        ring_call_t call = c->part[i];
        call.src = src;
        call.dst = dst;
        status = ring_op_prepare(comm, &call, &op[i]);
    }
    return status;
}
