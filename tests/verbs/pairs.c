/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - queue pairs: making them, and each step from RESET to ready with all that it must say. */
#include "tests/verbs/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PSN_MOST = 0xffffff,
    QPN_MOST = 0xffffff,
    TO_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    TO_RTR = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
    TO_RTS = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* ---- making them ----------------------------------------------------------------------------------------------- */

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
    const struct provider_device *d = pv_device(pd->context);
    if (world.fatal[pv_index(pd->context)])
        return EIO;
    if (a->qp_type != IBV_QPT_RC || a->srq)
        return pv_violation(EOPNOTSUPP, "a queue pair of type %d, which the provider does not know", (int)a->qp_type);
    if (!a->send_cq || !a->recv_cq || a->send_cq->context != pd->context || a->recv_cq->context != pd->context)
        return pv_violation(EINVAL, "a queue pair without completion queues of its own context");
    if (!a->cap.max_send_wr && !a->cap.max_recv_wr)
        return pv_violation(EINVAL, "a queue pair without room for work");
    /* To ask for too much is a way to find what there is. */
    const uint32_t wr = (uint32_t)d->max_qp_wr, sge = (uint32_t)d->max_sge;
    const bool fits = a->cap.max_send_wr <= wr && a->cap.max_recv_wr <= wr && a->cap.max_send_sge <= sge &&
                      a->cap.max_recv_sge <= sge && a->cap.max_inline_data <= d->max_inline;
    return fits ? 0 : EINVAL;
}

static struct qp *create(struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
    struct qp *q = pv_new(QP, sizeof *q, offsetof(struct qp, object));
    if (!q)
        return NULL;
    q->device = pv_index(pd->context);
    q->base.context = pd->context;
    q->base.qp_context = a->qp_context;
    q->base.pd = pd;
    q->base.send_cq = a->send_cq;
    q->base.recv_cq = a->recv_cq;
    q->base.qp_num = world.next_qp[q->device]++;
    q->base.qp_type = a->qp_type;
    q->cap = a->cap;
    q->signal_all = a->sq_sig_all;
    q->sq.room = a->cap.max_send_wr;
    q->rq.room = a->cap.max_recv_wr;
    q->send = calloc((size_t)q->sq.room + 1, sizeof *q->send);
    q->recv = calloc((size_t)q->rq.room + 1, sizeof *q->recv);
    if (!q->send || !q->recv)
        abort();
    ((struct pd *)pd)->uses++;
    ((struct cq *)a->send_cq)->uses++;
    ((struct cq *)a->recv_cq)->uses++;
    world.epoch++;
    return q;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    pv_lock();
    int error = pv_fault(CALL_create_qp);
    if (!error)
        error = check_init(pd, attr);
    errno = error;
    struct qp *q = error ? NULL : create(pd, attr);
    pv_unlock();
    return q ? &q->base : NULL;
}

/* ---- unmaking them --------------------------------------------------------------------------------------------- */

/* Completions that nobody has polled go with their queue pair. */
static void clean(struct cq *cq, const struct qp *q)
{
    struct cqes rest = {0};
    for (struct cqe *e = pv_cqes_take(&cq->seen); e; e = pv_cqes_take(&cq->seen)) {
        if (e->qp != q) {
            pv_cqes_put(&rest, e);
            continue;
        }
        cq->held--;
        free(e);
    }
    cq->seen = rest;
}

void pv_qp_forget_work(struct qp *q)
{
    struct cq *cq[2] = {(struct cq *)q->base.recv_cq, (struct cq *)q->base.send_cq};
    for (int i = 0; i < 2; i++) {
        cq[i]->held -= (int)q->out[i].count;
        pv_cqes_free(&q->out[i]);
        clean(cq[i], q);
    }
    for (uint32_t i = 0; i < q->sq.room; i++) {
        free(q->send[i].inlined);
        q->send[i].inlined = NULL;
    }
    q->sq.freed = q->sq.done = q->sq.next;
    q->rq.freed = q->rq.done = q->rq.next;
}

void pv_qp_free(struct qp *q)
{
    pv_qp_forget_work(q);
    pv_queue_forget(&((struct context *)q->base.context)->events, q);
    ((struct pd *)q->base.pd)->uses--;
    ((struct cq *)q->base.send_cq)->uses--;
    ((struct cq *)q->base.recv_cq)->uses--;
    world.epoch++;
    free(q->send);
    free(q->recv);
    pv_free(QP, q);
}

static int destroy(struct qp *q)
{
    const int error = pv_fault(CALL_destroy_qp);
    if (error)
        return error;
    if (q->async_got != q->async_acked)
        return pv_violation(EBUSY,
                            "queue pair 0x%x destroyed with %u of %u events acknowledged; it would wait for ever",
                            q->base.qp_num, q->async_acked, q->async_got);
    pv_qp_free(q);
    return 0;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
    pv_lock();
    const int error = destroy((struct qp *)qp);
    pv_unlock();
    return error;
}

/* ---- its states ------------------------------------------------------------------------------------------------ */

static const struct step {
    enum ibv_qp_state from, to;
    int required, optional;
} steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, TO_INIT},
    {IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR, IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static int check_mask(const struct qp *q, enum ibv_qp_state to, int mask)
{
    mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (to == IBV_QPS_ERR || to == IBV_QPS_RESET)
        return !mask ? 0 : pv_violation(EINVAL, "attributes 0x%x given on the way to state %d", mask, (int)to);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const struct step *s = &steps[i];
        if (s->from != q->state || s->to != to)
            continue;
        const int missing = s->required & ~mask, strange = mask & ~(s->required | s->optional);
        if (missing || strange)
            return pv_violation(EINVAL, "from state %d to %d: attributes 0x%x missing, 0x%x not allowed", (int)s->from,
                                (int)to, missing, strange);
        return 0;
    }
    return pv_violation(EINVAL, "no way leads from state %d to %d", (int)q->state, (int)to);
}

static bool is_zero(const union ibv_gid *gid)
{
    static const union ibv_gid zero;
    return !memcmp(gid, &zero, sizeof zero);
}

static int check_path(const struct qp *q, const struct ibv_ah_attr *ah)
{
    const struct provider_device *d = &world.shape.device[q->device];
    if (ah->port_num != PORT)
        return pv_violation(EINVAL, "an address for port %d", ah->port_num);
    if (ah->sl > 15)
        return pv_violation(EINVAL, "service level %d; there are 0 to 15", ah->sl);
    if (!ah->is_global) {
        if (!d->infiniband)
            return pv_violation(EINVAL, "an address without GID on Ethernet");
        return ah->dlid && ah->dlid < 0xc000 ? 0 : pv_violation(EINVAL, "LID 0x%x is nobody's", ah->dlid);
    }
    const struct provider_gid *own = pv_gid(q->device, ah->grh.sgid_index);
    if (!own || is_zero(&own->gid))
        return pv_violation(EINVAL, "GID %d of %s is empty", ah->grh.sgid_index, d->name);
    if (is_zero(&ah->grh.dgid))
        return pv_violation(EINVAL, "GID 0 as destination");
    if (!d->infiniband && !ah->grh.hop_limit)
        return pv_violation(EINVAL, "hop limit 0, with which no packet arrives");
    if (ah->grh.flow_label > 0xfffff)
        return pv_violation(EINVAL, "flow label 0x%x has more than 20 bits", ah->grh.flow_label);
    return 0;
}

/* A violation when a number is above what its field holds. */
static int check_most(const char *what, uint32_t value, uint32_t most)
{
    return value <= most ? 0 : pv_violation(EINVAL, "%s is %u; at most %u", what, value, most);
}

static int check_init_values(const struct ibv_qp_attr *a, int mask)
{
    if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index)
        return pv_violation(EINVAL, "partition key %d of a table of 1", a->pkey_index);
    if ((mask & IBV_QP_PORT) && a->port_num != PORT)
        return pv_violation(EINVAL, "port %d; a device has port %d", a->port_num, PORT);
    return 0;
}

static int check_rtr_values(const struct qp *q, const struct ibv_qp_attr *a)
{
    const struct provider_device *d = &world.shape.device[q->device];
    int e = check_path(q, &a->ah_attr);
    if (!e && (a->path_mtu < IBV_MTU_256 || a->path_mtu > d->active_mtu))
        e = pv_violation(EINVAL, "path MTU %d; the port's is %d", (int)a->path_mtu, (int)d->active_mtu);
    if (!e && (!a->dest_qp_num || a->dest_qp_num > QPN_MOST))
        e = pv_violation(EINVAL, "destination queue pair 0x%x", a->dest_qp_num);
    e = e ? e : check_most("rq_psn", a->rq_psn, PSN_MOST);
    e = e ? e : check_most("max_dest_rd_atomic", a->max_dest_rd_atomic, (uint32_t)d->max_rd_atomic);
    return e ? e : check_most("min_rnr_timer", a->min_rnr_timer, 31);
}

static int check_rts_values(const struct qp *q, const struct ibv_qp_attr *a)
{
    int e = check_most("sq_psn", a->sq_psn, PSN_MOST);
    e = e ? e : check_most("timeout", a->timeout, 31);
    e = e ? e : check_most("retry_cnt", a->retry_cnt, 7);
    e = e ? e : check_most("rnr_retry", a->rnr_retry, 7);
    e = e ? e : check_most("max_rd_atomic", a->max_rd_atomic, (uint32_t)world.shape.device[q->device].max_rd_atomic);
    if (!e && !a->timeout)
        e = pv_violation(EINVAL, "timeout 0, which waits for ever");
    return e;
}

static int check_step(struct qp *q, const struct ibv_qp_attr *a, enum ibv_qp_state to, int mask)
{
    if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != q->state)
        return pv_violation(EINVAL, "state %d said to be current; it is %d", (int)a->cur_qp_state, (int)q->state);
    int e = check_mask(q, to, mask);
    e = e ? e : check_init_values(a, mask);
    if (!e && to == IBV_QPS_RTR)
        e = check_rtr_values(q, a);
    if (!e && to == IBV_QPS_RTS && q->state == IBV_QPS_RTR)
        e = check_rts_values(q, a);
    return e;
}

/* Each attribute that the mask names. */
static void take(struct ibv_qp_attr *own, const struct ibv_qp_attr *a, int mask)
{
    own->pkey_index = mask & IBV_QP_PKEY_INDEX ? a->pkey_index : own->pkey_index;
    own->port_num = mask & IBV_QP_PORT ? a->port_num : own->port_num;
    own->qp_access_flags = mask & IBV_QP_ACCESS_FLAGS ? a->qp_access_flags : own->qp_access_flags;
    own->ah_attr = mask & IBV_QP_AV ? a->ah_attr : own->ah_attr;
    own->path_mtu = mask & IBV_QP_PATH_MTU ? a->path_mtu : own->path_mtu;
    own->dest_qp_num = mask & IBV_QP_DEST_QPN ? a->dest_qp_num : own->dest_qp_num;
    own->rq_psn = mask & IBV_QP_RQ_PSN ? a->rq_psn : own->rq_psn;
    own->max_dest_rd_atomic = mask & IBV_QP_MAX_DEST_RD_ATOMIC ? a->max_dest_rd_atomic : own->max_dest_rd_atomic;
    own->min_rnr_timer = mask & IBV_QP_MIN_RNR_TIMER ? a->min_rnr_timer : own->min_rnr_timer;
    own->sq_psn = mask & IBV_QP_SQ_PSN ? a->sq_psn : own->sq_psn;
    own->timeout = mask & IBV_QP_TIMEOUT ? a->timeout : own->timeout;
    own->retry_cnt = mask & IBV_QP_RETRY_CNT ? a->retry_cnt : own->retry_cnt;
    own->rnr_retry = mask & IBV_QP_RNR_RETRY ? a->rnr_retry : own->rnr_retry;
    own->max_rd_atomic = mask & IBV_QP_MAX_QP_RD_ATOMIC ? a->max_rd_atomic : own->max_rd_atomic;
}

static void enter(struct qp *q, const struct ibv_qp_attr *a, enum ibv_qp_state to, int mask)
{
    world.epoch++;
    take(&q->attr, a, mask);
    if (to == IBV_QPS_ERR && q->state != IBV_QPS_RESET && q->state != IBV_QPS_ERR)
        pv_fail(q);
    if (to == IBV_QPS_RESET) {
        pv_qp_forget_work(q);
        q->attr = (struct ibv_qp_attr){0};
        q->established = false;
        q->lonely_since = q->rnr_until = 0;
        q->rnr_tries = 0;
    }
    q->state = q->base.state = to;
}

/* A device that failed lets its queue pairs be put away and nothing else; then nothing is wrong with asking. */
EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct qp *q = (struct qp *)qp;
    pv_lock();
    const enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : q->state;
    const bool away = to == IBV_QPS_ERR || to == IBV_QPS_RESET;
    int error = pv_fault(CALL_modify_qp);
    if (!error && world.fatal[q->device] && !away)
        error = EIO;
    if (!error && q->state == IBV_QPS_ERR && q->base.state != IBV_QPS_ERR && !away)
        error = EINVAL; /* it failed by itself, which its owner may not know yet */
    if (!error)
        error = check_step(q, attr, to, mask);
    if (!error)
        enter(q, attr, to, mask);
    pv_unlock();
    return error;
}
