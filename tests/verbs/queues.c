/* SPDX-License-Identifier: Apache-2.0 */
/* queues.c - completion queues: what comes into them, who is woken, and who polls. */
#include "tests/verbs/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ----------------------------------------------------------------------------------------------------- */

void pv_cqes_put(struct cqes *list, struct cqe *e)
{
    e->next = NULL;
    if (list->last)
        list->last->next = e;
    else
        list->first = e;
    list->last = e;
    list->count++;
}

struct cqe *pv_cqes_take(struct cqes *list)
{
    struct cqe *e = list->first;
    if (!e)
        return NULL;
    list->first = e->next;
    if (!list->first)
        list->last = NULL;
    list->count--;
    return e;
}

void pv_cqes_free(struct cqes *list)
{
    for (struct cqe *e = pv_cqes_take(list); e; e = pv_cqes_take(list))
        free(e);
}

/* ---- what comes in --------------------------------------------------------------------------------------------- */

/* A queue that is overrun is of no use any more, nor is what completes to it. */
static void overrun(struct cq *cq)
{
    pv_violation(0, "more completions than the %d that a completion queue has room for", cq->base.cqe);
    cq->dead = true;
    pv_async(cq->base.context, IBV_EVENT_CQ_ERR, cq);
    for (struct object *o = world.all[QP]; o; o = o->next) {
        struct qp *q = o->self;
        const bool alive = q->state != IBV_QPS_RESET && q->state != IBV_QPS_ERR;
        if (alive && (q->base.send_cq == &cq->base || q->base.recv_cq == &cq->base)) {
            pv_fail(q);
            pv_async(q->base.context, IBV_EVENT_QP_FATAL, q);
        }
    }
}

void pv_complete(struct qp *q, bool send, uint64_t slot, const struct ibv_wc *wc, bool solicited, uint64_t read)
{
    struct cq *cq = (struct cq *)(send ? q->base.send_cq : q->base.recv_cq);
    world.count.failures += wc->status != IBV_WC_SUCCESS;
    if (cq->dead)
        return;
    if (cq->held == cq->base.cqe) {
        overrun(cq);
        return;
    }
    struct cqe *e = calloc(1, sizeof *e);
    if (!e)
        abort();
    e->wc = *wc;
    e->qp = q;
    e->send = send;
    e->solicited = solicited || wc->status != IBV_WC_SUCCESS;
    e->slot = slot;
    e->read = read;
    cq->held++;
    pv_cqes_put(&q->out[send], e);
}

void pv_show(struct cq *cq, struct cqe *e)
{
    pv_cqes_put(&cq->seen, e);
    if (cq->armed == NOT_ARMED || (cq->armed == ARMED_SOLICITED && !e->solicited))
        return;
    cq->armed = NOT_ARMED;
    world.count.notified++;
    pv_queue_put(&((struct channel *)cq->base.channel)->events, cq, NULL);
}

/* ---- who polls ------------------------------------------------------------------------------------------------- */

static void see(const struct cqe *e)
{
    struct work *w = e->send ? &e->qp->sq : &e->qp->rq;
    if (w->freed <= e->slot)
        w->freed = e->slot + 1;
}

static int poll_some(struct cq *cq, int most, struct ibv_wc *wc)
{
    int n = 0;
    if (most < 0 || (most && !wc))
        return -pv_violation(EINVAL, "%d completions polled for, to %p", most, (void *)wc);
    pv_tick();
    if (cq->dead)
        return -EIO;
    for (; n < most && cq->seen.first; n++) {
        struct cqe *e = pv_cqes_take(&cq->seen);
        cq->held--;
        see(e);
        if (e->read)
            pv_uncover(e->read);
        wc[n] = e->wc;
        free(e);
    }
    world.count.completions += (uint64_t)n;
    return n;
}

int pv_poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    pv_lock();
    const int error = pv_fault(CALL_poll_cq);
    const int n = error ? -error : poll_some((struct cq *)cq, most, wc);
    pv_unlock();
    return n;
}

/* What can be seen already wakes nobody. */
int pv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    struct cq *c = (struct cq *)cq;
    pv_lock();
    int error = pv_fault(CALL_req_notify_cq);
    if (!error && !cq->channel)
        error = pv_violation(EINVAL, "events of a completion queue asked for that has no channel");
    if (!error && (c->armed != ARMED))
        c->armed = solicited_only ? ARMED_SOLICITED : ARMED;
    if (!error)
        pv_tick();
    pv_unlock();
    return error;
}

/* ---- making them ----------------------------------------------------------------------------------------------- */

static int check_cq(struct ibv_context *context, int entries, const struct ibv_comp_channel *channel, int vector)
{
    if (world.fatal[pv_index(context)])
        return EIO;
    if (channel && channel->context != context)
        return pv_violation(EINVAL, "a completion queue made with the channel of another context");
    if (vector < 0 || vector >= context->num_comp_vectors)
        return pv_violation(EINVAL, "completion vector %d of %d", vector, context->num_comp_vectors);
    return entries < 1 || entries > pv_device(context)->max_cqe ? EINVAL : 0;
}

static struct cq *create(struct ibv_context *context, int entries, void *owner, struct ibv_comp_channel *channel)
{
    struct cq *cq = pv_new(CQ, sizeof *cq, offsetof(struct cq, object));
    if (!cq)
        return NULL;
    cq->base.context = context;
    cq->base.channel = channel;
    cq->base.cq_context = owner;
    cq->base.cqe = entries;
    ((struct context *)context)->uses++;
    if (channel)
        channel->refcnt++;
    return cq;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *owner,
                                    struct ibv_comp_channel *channel, int vector)
{
    pv_lock();
    int error = pv_fault(CALL_create_cq);
    if (!error)
        error = check_cq(context, entries, channel, vector);
    errno = error;
    struct cq *cq = error ? NULL : create(context, entries, owner, channel);
    pv_unlock();
    return cq ? &cq->base : NULL;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int entries)
{
    struct cq *c = (struct cq *)cq;
    pv_lock();
    int error = pv_fault(CALL_resize_cq);
    if (!error)
        error = check_cq(cq->context, entries, cq->channel, 0);
    if (!error && entries < c->held)
        error = pv_violation(EINVAL, "a completion queue that holds %d shrunk to %d", c->held, entries);
    if (!error)
        cq->cqe = entries;
    pv_unlock();
    return error;
}

void pv_cq_free(struct cq *cq)
{
    ((struct context *)cq->base.context)->uses--;
    pv_queue_forget(&((struct context *)cq->base.context)->events, cq);
    if (cq->base.channel) {
        pv_queue_forget(&((struct channel *)cq->base.channel)->events, cq);
        cq->base.channel->refcnt--;
    }
    pv_cqes_free(&cq->seen);
    pv_free(CQ, cq);
}

static int destroy(struct cq *cq)
{
    const int error = pv_fault(CALL_destroy_cq);
    if (error)
        return error;
    if (cq->uses)
        return pv_violation(EBUSY, "a completion queue destroyed that queue pairs use %d times", cq->uses);
    if (cq->got != cq->acked || cq->async_got != cq->async_acked)
        return pv_violation(EBUSY,
                            "a completion queue destroyed with events that are not acknowledged: %u of %u, "
                            "asynchronous %u of %u; it would wait for ever",
                            cq->acked, cq->got, cq->async_acked, cq->async_got);
    pv_cq_free(cq);
    return 0;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
    pv_lock();
    const int error = destroy((struct cq *)cq);
    pv_unlock();
    return error;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const texts[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
        [IBV_WC_BAD_RESP_ERR] = "bad response error",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_GENERAL_ERR] = "general error",
    };
    pv_lock();
    (void)pv_fault(CALL_wc_status_str);
    pv_unlock();
    const size_t at = (size_t)status;
    return at < sizeof texts / sizeof *texts && texts[at] ? texts[at] : "unknown";
}
