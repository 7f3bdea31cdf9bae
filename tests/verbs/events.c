/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - events of devices and of completion channels: how they wait, are read and acknowledged. */
#include "tests/verbs/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- queues of events ------------------------------------------------------------------------------------------ */

/* A socket, because its reader's O_NONBLOCK does not matter to us. */
bool pv_queue_open(struct queue *q)
{
    *q = (struct queue){.fd = {-1, -1}};
    return !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, q->fd);
}

void pv_queue_close(struct queue *q)
{
    while (q->first) {
        struct event *e = q->first;
        q->first = e->next;
        free(e);
    }
    close(q->fd[0]);
    close(q->fd[1]);
}

static void wake(struct queue *q)
{
    if (send(q->fd[1], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
        pv_violation(0, "nobody reads the events of file descriptor %d", q->fd[0]);
}

void pv_queue_put(struct queue *q, void *about, const struct ibv_async_event *async)
{
    struct event **at = &q->first, *e = calloc(1, sizeof *e);
    if (!e)
        abort();
    e->about = about;
    if (async)
        e->async = *async;
    if (!q->first)
        wake(q);
    while (*at)
        at = &(*at)->next;
    *at = e;
}

void pv_queue_forget(struct queue *q, const void *about)
{
    const bool any = q->first;
    for (struct event **at = &q->first; *at;) {
        struct event *e = *at;
        if (e->about == about) {
            *at = e->next;
            free(e);
        } else
            at = &e->next;
    }
    char byte;
    if (any && !q->first)
        (void)!recv(q->fd[0], &byte, 1, MSG_DONTWAIT);
}

/* Without the lock, because it waits; what it returns is the caller's, and the lock is held then.  NULL: errno says
 * why, and the lock is not held. */
static struct event *take(struct queue *q)
{
    for (;;) {
        char byte;
        const ssize_t n = recv(q->fd[0], &byte, 1, 0);
        if (n != 1) {
            errno = n ? errno : EIO;
            return NULL;
        }
        pv_lock();
        struct event *e = q->first;
        if (e) {
            q->first = e->next;
            if (q->first)
                wake(q);
            return e;
        }
        pv_unlock(); /* its object went between the byte and the lock */
    }
}

/* ---- of devices ------------------------------------------------------------------------------------------------ */

static bool about_cq(enum ibv_event_type event) { return event == IBV_EVENT_CQ_ERR; }

static bool about_qp(enum ibv_event_type event)
{
    return event == IBV_EVENT_QP_FATAL || event == IBV_EVENT_QP_REQ_ERR || event == IBV_EVENT_QP_ACCESS_ERR ||
           event == IBV_EVENT_COMM_EST;
}

void pv_async(struct ibv_context *context, enum ibv_event_type event, void *about)
{
    struct ibv_async_event async = {.event_type = event};
    if (about_cq(event))
        async.element.cq = about;
    else if (about_qp(event))
        async.element.qp = about;
    else
        async.element.port_num = PORT;
    world.count.async_events++;
    pv_queue_put(&((struct context *)context)->events, about, &async);
}

/* Of whose events it is; the device's own are its context's. */
static void count_async(const struct ibv_async_event *e, bool ack)
{
    struct cq *cq = about_cq(e->event_type) ? (struct cq *)e->element.cq : NULL;
    struct qp *qp = about_qp(e->event_type) ? (struct qp *)e->element.qp : NULL;
    unsigned *got = cq ? &cq->async_got : qp ? &qp->async_got : NULL;
    unsigned *acked = cq ? &cq->async_acked : qp ? &qp->async_acked : NULL;
    if (got && !ack)
        ++*got;
    if (got && ack && ++*acked > *got)
        pv_violation(0, "an event %d acknowledged more often than it came", (int)e->event_type);
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    pv_lock();
    const int error = pv_fault(CALL_get_async_event);
    pv_unlock();
    errno = error;
    struct event *e = error ? NULL : take(&((struct context *)context)->events);
    if (!e)
        return -1;
    *event = e->async;
    count_async(event, false);
    pv_unlock();
    free(e);
    return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    pv_lock();
    (void)pv_fault(CALL_ack_async_event);
    count_async(event, true);
    pv_unlock();
}

EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
    static const char *const texts[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error",
        [IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
        [IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_GID_CHANGE] = "GID table change",
    };
    pv_lock();
    (void)pv_fault(CALL_event_type_str);
    pv_unlock();
    const size_t at = (size_t)event;
    return at < sizeof texts / sizeof *texts && texts[at] ? texts[at] : "unknown";
}

/* ---- of completion channels ------------------------------------------------------------------------------------ */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    pv_lock();
    const int error = pv_fault(CALL_create_comp_channel);
    errno = error;
    struct channel *c = error ? NULL : pv_new(CHANNEL, sizeof *c, offsetof(struct channel, object));
    if (c && !pv_queue_open(&c->events)) {
        pv_free(CHANNEL, c);
        c = NULL;
    }
    if (c) {
        c->base.context = context;
        c->base.fd = c->events.fd[0];
        ((struct context *)context)->uses++;
    }
    pv_unlock();
    return c ? &c->base : NULL;
}

static int destroy_channel(struct channel *c)
{
    const int error = pv_fault(CALL_destroy_comp_channel);
    if (error)
        return error;
    if (c->base.refcnt)
        return pv_violation(EBUSY, "a completion channel destroyed that %d completion queues use", c->base.refcnt);
    ((struct context *)c->base.context)->uses--;
    pv_queue_close(&c->events);
    pv_free(CHANNEL, c);
    return 0;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    pv_lock();
    const int error = destroy_channel((struct channel *)channel);
    pv_unlock();
    return error;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **owner)
{
    pv_lock();
    const int error = pv_fault(CALL_get_cq_event);
    pv_unlock();
    errno = error;
    struct event *e = error ? NULL : take(&((struct channel *)channel)->events);
    if (!e)
        return -1;
    struct cq *about = e->about;
    about->got++;
    *cq = &about->base;
    *owner = about->base.cq_context;
    pv_unlock();
    free(e);
    return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned events)
{
    pv_lock();
    (void)pv_fault(CALL_ack_cq_events);
    struct cq *c = (struct cq *)cq;
    c->acked += events;
    if (c->acked > c->got)
        pv_violation(0, "%u events of a completion queue acknowledged, and %u came", c->acked, c->got);
    pv_unlock();
}
