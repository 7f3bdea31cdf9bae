/* SPDX-License-Identifier: Apache-2.0 */
/* post.c - work requests: whether they are legal, and the copies that are kept of them. */
#include "tests/verbs/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEND_FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE };

struct send *pv_send(struct qp *q, uint64_t slot) { return &q->send[slot % q->sq.room]; }

struct recv *pv_recv(struct qp *q, uint64_t slot) { return &q->recv[slot % q->rq.room]; }

/* ---- of both kinds --------------------------------------------------------------------------------------------- */

static int check_sges(const struct qp *q, const char *what, const struct ibv_sge *sge, int sges, uint32_t most)
{
    if (sges < 0 || (uint32_t)sges > most)
        return pv_violation(EINVAL, "%s with %d pieces on queue pair 0x%x, which takes %u", what, sges, q->base.qp_num,
                            most);
    return sges && !sge ? pv_violation(EINVAL, "%s with %d pieces at NULL", what, sges) : 0;
}

/* A piece without bytes is at no address. */
static int check_local(const struct qp *q, const char *what, const struct ibv_sge *sge, int sges, unsigned access)
{
    for (int i = 0; i < sges; i++) {
        const char *why = NULL;
        if (sge[i].length && !pv_local(q, &sge[i], access, &why))
            return pv_violation(EINVAL, "%s, piece %d: %u bytes at 0x%llx, lkey 0x%x: the key %s", what, i,
                                sge[i].length, (unsigned long long)sge[i].addr, sge[i].lkey, why);
    }
    return 0;
}

static uint64_t sum(const struct ibv_sge *sge, int sges)
{
    uint64_t bytes = 0;
    for (int i = 0; i < sges; i++)
        bytes += sge[i].length;
    return bytes;
}

/* A slot is free again when a completion of it, or of a later one, was polled. */
static int check_room(const struct qp *q, const char *what, const struct work *w)
{
    if (w->next - w->freed < w->room)
        return 0;
    return pv_violation(ENOMEM,
                        "more %ss than the %u that queue pair 0x%x has room for: %llu not done, %llu done and not "
                        "known to be by a completion polled",
                        what, w->room, q->base.qp_num, (unsigned long long)(w->next - w->done),
                        (unsigned long long)(w->done - w->freed));
}

/* ---- sends ----------------------------------------------------------------------------------------------------- */

static bool has_imm(enum ibv_wr_opcode op) { return op == IBV_WR_RDMA_WRITE_WITH_IMM || op == IBV_WR_SEND_WITH_IMM; }

static int check_opcode(const struct qp *q, const struct ibv_send_wr *wr)
{
    if ((unsigned)wr->opcode > IBV_WR_RDMA_READ)
        return pv_violation(EINVAL, "opcode %d, which the provider does not know", (int)wr->opcode);
    if (has_imm(wr->opcode) && world.shape.device[q->device].no_imm)
        return pv_violation(EOPNOTSUPP, "opcode %d on a device that sends no immediate data", (int)wr->opcode);
    if (wr->send_flags & ~(unsigned)SEND_FLAGS)
        return pv_violation(EINVAL, "send flags 0x%x, of which not all are known", wr->send_flags);
    if (wr->opcode == IBV_WR_RDMA_READ && (wr->send_flags & IBV_SEND_INLINE))
        return pv_violation(EINVAL, "a read inline");
    if (wr->opcode == IBV_WR_RDMA_READ && !q->attr.max_rd_atomic)
        return pv_violation(EINVAL, "a read on a queue pair with max_rd_atomic 0");
    return 0;
}

static int check_bytes(const struct qp *q, const struct ibv_send_wr *wr, uint64_t bytes)
{
    const uint32_t most = world.shape.device[q->device].max_msg_sz;
    if (bytes > most)
        return pv_violation(EINVAL, "a message of %llu bytes; the port's longest has %u", (unsigned long long)bytes,
                            most);
    if ((wr->send_flags & IBV_SEND_INLINE) && bytes > q->cap.max_inline_data)
        return pv_violation(EINVAL, "%llu bytes inline on queue pair 0x%x, which takes %u", (unsigned long long)bytes,
                            q->base.qp_num, q->cap.max_inline_data);
    return 0;
}

static int check_send(const struct qp *q, const struct ibv_send_wr *wr)
{
    if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_ERR)
        return pv_violation(EINVAL, "a send posted on queue pair 0x%x in state %d", q->base.qp_num, (int)q->state);
    int e = check_opcode(q, wr);
    e = e ? e : check_sges(q, "send", wr->sg_list, wr->num_sge, q->cap.max_send_sge);
    e = e ? e : check_room(q, "send", &q->sq);
    e = e ? e : check_bytes(q, wr, sum(wr->sg_list, wr->num_sge));
    /* What fails by itself refers to nothing, and its memory may be gone already. */
    if (!e && !(wr->send_flags & IBV_SEND_INLINE) && q->state == IBV_QPS_RTS)
        e = check_local(q, "send", wr->sg_list, wr->num_sge,
                        wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0);
    return e;
}

static char *copy_inline(const struct ibv_send_wr *wr, uint64_t bytes)
{
    char *data = malloc((size_t)bytes + 1);
    if (!data)
        abort();
    uint64_t at = 0;
    for (int i = 0; i < wr->num_sge; i++)
        if (wr->sg_list[i].length) {
            memcpy(data + at, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
            at += wr->sg_list[i].length;
        }
    return data;
}

/* Into pieces that will arrive in any order. */
static void cut(struct send *s)
{
    const unsigned pieces = world.shape.calm || s->bytes < 2 ? 1 : 1 + (unsigned)pv_random(PIECES);
    s->cut[0] = 0;
    for (unsigned i = 1; i < pieces; i++)
        s->cut[i] = s->cut[i - 1] + pv_random(s->bytes - s->cut[i - 1] + 1);
    s->cut[pieces] = s->bytes;
    s->todo = (1u << pieces) - 1;
}

static void count_send(const struct send *s)
{
    world.count.wr[s->wr.opcode]++;
    world.count.bytes += s->bytes;
    world.count.signalled += !!(s->wr.send_flags & IBV_SEND_SIGNALED);
    world.count.inlined += !!(s->wr.send_flags & IBV_SEND_INLINE);
}

static void keep_send(struct qp *q, const struct ibv_send_wr *wr)
{
    struct send *s = pv_send(q, q->sq.next++);
    *s = (struct send){.wr = *wr, .bytes = sum(wr->sg_list, wr->num_sge), .status = IBV_WC_SUCCESS};
    if (q->signal_all)
        s->wr.send_flags |= IBV_SEND_SIGNALED;
    if (wr->send_flags & IBV_SEND_INLINE) {
        s->inlined = copy_inline(wr, s->bytes);
        s->wr.num_sge = 0;
    } else if (wr->num_sge)
        memcpy(s->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *s->sge);
    s->wr.sg_list = NULL;
    s->wr.next = NULL;
    cut(s);
    count_send(s);
    if (q->state == IBV_QPS_ERR)
        pv_fail(q);
}

int pv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out)
{
    struct qp *q = (struct qp *)qp;
    pv_lock();
    int error = pv_fault(CALL_post_send);
    world.count.doorbells++;
    while (wr && !error) {
        error = check_send(q, wr);
        if (!error) {
            keep_send(q, wr);
            wr = wr->next;
        }
    }
    if (error)
        *bad_out = wr;
    pv_tick();
    pv_unlock();
    return error;
}

/* ---- receives -------------------------------------------------------------------------------------------------- */

static int check_recv(const struct qp *q, const struct ibv_recv_wr *wr)
{
    if (q->state == IBV_QPS_RESET)
        return pv_violation(EINVAL, "a receive posted on queue pair 0x%x in state RESET", q->base.qp_num);
    int e = check_sges(q, "receive", wr->sg_list, wr->num_sge, q->cap.max_recv_sge);
    e = e ? e : check_room(q, "receive", &q->rq);
    if (!e && q->state != IBV_QPS_ERR)
        e = check_local(q, "receive", wr->sg_list, wr->num_sge, IBV_ACCESS_LOCAL_WRITE);
    return e;
}

static void keep_recv(struct qp *q, const struct ibv_recv_wr *wr)
{
    struct recv *r = pv_recv(q, q->rq.next++);
    *r = (struct recv){.wr_id = wr->wr_id, .sges = wr->num_sge, .bytes = sum(wr->sg_list, wr->num_sge)};
    if (wr->num_sge)
        memcpy(r->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *r->sge);
    world.count.receives++;
    if (q->state == IBV_QPS_ERR)
        pv_fail(q);
}

int pv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    struct qp *q = (struct qp *)qp;
    pv_lock();
    int error = pv_fault(CALL_post_recv);
    world.count.receive_doorbells++;
    while (wr && !error) {
        error = check_recv(q, wr);
        if (!error) {
            keep_recv(q, wr);
            wr = wr->next;
        }
    }
    if (error)
        *bad_out = wr;
    pv_tick();
    pv_unlock();
    return error;
}
