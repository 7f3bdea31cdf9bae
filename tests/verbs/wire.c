/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - what moves data: who answers whom, in what order things arrive, and how work requests end.
 *
 * Each call of a test lets a little time pass, and so does a thread.  A write lands in pieces, in any order with the
 * writes around it, as it may where packets take several ways; but a message that takes a receive is delivered after
 * all that were posted before it, and only then does its queue's next one. */
#include "tests/verbs/inner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 16, STEPS = 4 };

/* ---- how work requests end ------------------------------------------------------------------------------------- */

/* Of a failure only four fields mean something; the others are what nobody would take for an answer. */
static struct ibv_wc completion(const struct qp *q, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc;
    memset(&wc, 0xa5, sizeof wc);
    wc.wr_id = wr_id;
    wc.status = status;
    wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x80u + (uint32_t)status;
    wc.qp_num = q->base.qp_num;
    return wc;
}

static void end_send(struct qp *q, enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_SEND] = IBV_WC_SEND,
                                                 [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                                                 [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ};
    const uint64_t slot = q->sq.done++;
    struct send *s = pv_send(q, slot);
    struct ibv_wc wc = completion(q, s->wr.wr_id, status);
    if (status == IBV_WC_SUCCESS) {
        wc.opcode = opcodes[s->wr.opcode];
        wc.wc_flags = 0;
        if (s->wr.opcode == IBV_WR_RDMA_READ)
            wc.byte_len = (uint32_t)s->bytes;
    }
    free(s->inlined);
    s->inlined = NULL;
    if (status != IBV_WC_SUCCESS || (s->wr.send_flags & IBV_SEND_SIGNALED))
        pv_complete(q, true, slot, &wc, false, status == IBV_WC_SUCCESS ? s->read : 0);
}

/* `by`: what arrived; NULL: nothing did. */
static void end_recv(struct qp *q, const struct qp *from, const struct send *by, enum ibv_wc_status status)
{
    const uint64_t slot = q->rq.done++;
    struct ibv_wc wc = completion(q, pv_recv(q, slot)->wr_id, status);
    if (status == IBV_WC_SUCCESS) {
        const bool imm = by->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || by->wr.opcode == IBV_WR_SEND_WITH_IMM;
        wc.opcode = by->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        wc.byte_len = (uint32_t)by->bytes;
        wc.wc_flags = imm ? IBV_WC_WITH_IMM : 0;
        if (imm)
            wc.imm_data = by->wr.imm_data;
        wc.src_qp = from->base.qp_num;
        wc.pkey_index = 0;
        wc.slid = wc.sl = wc.dlid_path_bits = 0;
    }
    pv_complete(q, false, slot, &wc, by && (by->wr.send_flags & IBV_SEND_SOLICITED), 0);
}

void pv_fail(struct qp *q)
{
    q->state = IBV_QPS_ERR;
    while (q->sq.done < q->sq.next)
        end_send(q, IBV_WC_WR_FLUSH_ERR);
    while (q->rq.done < q->rq.next)
        end_recv(q, NULL, NULL, IBV_WC_WR_FLUSH_ERR);
}

static void fail_send(struct qp *q, enum ibv_wc_status status)
{
    end_send(q, status);
    pv_fail(q);
}

/* The end that was asked for something wrong. */
static void fail_asked(struct qp *q, enum ibv_event_type event)
{
    pv_async(q->base.context, event, q);
    pv_fail(q);
}

/* ---- who answers ----------------------------------------------------------------------------------------------- */

static bool same(const union ibv_gid *a, const union ibv_gid *b) { return !memcmp(a, b, sizeof *a); }

/* What `from` sends reaches the port of `to`: its address says so, and comes from the port that it says. */
static bool reaches(const struct qp *from, const struct qp *to)
{
    const struct provider_device *a = &world.shape.device[from->device], *b = &world.shape.device[to->device];
    const struct ibv_ah_attr *way = &from->attr.ah_attr, *back = &to->attr.ah_attr;
    if (a->state != IBV_PORT_ACTIVE || b->state != IBV_PORT_ACTIVE || a->infiniband != b->infiniband)
        return false;
    if (a->infiniband && (way->dlid != b->lid || back->dlid != a->lid))
        return false;
    if (a->infiniband && !way->is_global)
        return true;
    const struct provider_gid *own = pv_gid(from->device, way->grh.sgid_index);
    const struct provider_gid *other = pv_gid(to->device, back->grh.sgid_index);
    return own && other && back->is_global && same(&way->grh.dgid, &other->gid) && same(&back->grh.dgid, &own->gid) &&
           (a->infiniband || own->type == other->type);
}

static bool talk(const struct qp *from, const struct qp *to)
{
    return (to->state == IBV_QPS_RTR || to->state == IBV_QPS_RTS) && to->base.qp_num == from->attr.dest_qp_num &&
           to->attr.dest_qp_num == from->base.qp_num && to->attr.rq_psn == from->attr.sq_psn &&
           to->attr.path_mtu == from->attr.path_mtu && reaches(from, to);
}

/* NULL: nobody. */
static struct qp *peer(struct qp *q)
{
    if (q->epoch != world.epoch) {
        q->epoch = world.epoch;
        q->peer = NULL;
        for (struct object *o = world.all[QP]; o && !q->peer; o = o->next)
            if (talk(q, o->self))
                q->peer = o->self;
    }
    struct qp *to = q->peer;
    return to && !to->silent && !q->silent && !world.fatal[q->device] && talk(q, to) ? to : NULL;
}

/* The real time of all retries, which is a second or so, made shorter. */
static void unanswered(struct qp *q, uint64_t now)
{
    const uint64_t once = (uint64_t)4096 << q->attr.timeout;
    const uint64_t limit = once * (q->attr.retry_cnt + 1u) / world.shape.hurry;
    if (!q->lonely_since)
        q->lonely_since = now;
    if (now - q->lonely_since < limit)
        return;
    world.count.unanswered++;
    q->lonely_since = 0;
    fail_send(q, IBV_WC_RETRY_EXC_ERR);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

typedef void move_fn(char *piece, char *other, size_t bytes);

static void out(char *piece, char *other, size_t bytes) { memcpy(other, piece, bytes); }

static void in(char *piece, char *other, size_t bytes) { memcpy(piece, other, bytes); }

/* Bytes `from` to `to` of a list of pieces, and as many of `other`.  False: memory is gone that was there. */
static bool move(const struct qp *q, const struct ibv_sge *sge, uint64_t from, uint64_t to, char *other, move_fn *fn)
{
    uint64_t left = to - from;
    for (; left; sge++) {
        if (from >= sge->length) {
            from -= sge->length;
            continue;
        }
        const uint64_t n = left < sge->length - from ? left : sge->length - from;
        const char *why;
        char *at = pv_local(q, sge, 0, &why);
        if (!at)
            return false;
        fn(at + from, other, n);
        other += n;
        left -= n;
        from = 0;
    }
    return true;
}

static bool take_out(const struct qp *q, const struct send *s, uint64_t from, uint64_t to, char *other)
{
    if (!s->inlined)
        return move(q, s->sge, from, to, other, out);
    memcpy(other, s->inlined + from, to - from);
    return true;
}

/* Of nothing, an address need not be right. */
static bool far_end(const struct qp *to, const struct send *s, unsigned access, char **at_out)
{
    if (s->bytes)
        *at_out = pv_remote(to, s->wr.wr.rdma.remote_addr, s->bytes, s->wr.wr.rdma.rkey, access);
    return !s->bytes || *at_out;
}

/* ---- writes land ----------------------------------------------------------------------------------------------- */

static bool is_write(const struct send *s)
{
    return s->wr.opcode == IBV_WR_RDMA_WRITE || s->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_read(const struct send *s) { return s->wr.opcode == IBV_WR_RDMA_READ; }

/* One of the writes that may land now. */
static struct send *pick(struct qp *q, bool *overtakes_out)
{
    const uint64_t end = q->sq.next - q->sq.done < WINDOW ? q->sq.next : q->sq.done + WINDOW;
    struct send *picked = NULL;
    unsigned n = 0;
    bool reading = false;
    for (uint64_t i = q->sq.done; i < end; i++) {
        struct send *s = pv_send(q, i);
        if ((s->wr.send_flags & IBV_SEND_FENCE) && reading)
            break;
        reading |= is_read(s);
        if (!is_write(s) || !s->todo)
            continue;
        if (!picked || (!world.shape.calm && !pv_random(n + 1))) {
            *overtakes_out = n;
            picked = s;
        }
        n++;
    }
    return picked;
}

static void land(struct qp *q, struct qp *to, struct send *s, bool overtakes)
{
    unsigned piece = world.shape.calm ? 0 : (unsigned)pv_random(PIECES);
    while (!((s->todo >> piece) & 1))
        piece = (piece + 1) % PIECES;
    const uint64_t from = s->cut[piece], end = s->cut[piece + 1];
    char *at = NULL;
    if (!far_end(to, s, IBV_ACCESS_REMOTE_WRITE, &at))
        s->status = IBV_WC_REM_ACCESS_ERR;
    else if (from < end && !take_out(q, s, from, end, pv_hide(s->wr.wr.rdma.rkey, at + from, end - from)))
        s->status = IBV_WC_LOC_PROT_ERR;
    world.count.reordered += overtakes || (s->todo & ((1u << piece) - 1));
    s->todo = s->status == IBV_WC_SUCCESS ? s->todo & ~(1u << piece) : 0;
}

/* ---- the oldest ends ------------------------------------------------------------------------------------------- */

static void give_up(struct qp *q, struct qp *to, enum ibv_wc_status status)
{
    fail_send(q, status);
    if (status == IBV_WC_REM_ACCESS_ERR)
        fail_asked(to, IBV_EVENT_QP_ACCESS_ERR);
    else if (status == IBV_WC_REM_INV_REQ_ERR)
        fail_asked(to, IBV_EVENT_QP_REQ_ERR);
}

static uint64_t rnr_delay(uint8_t timer)
{
    /* of 10 us each */
    static const uint32_t units[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                       48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                       2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return units[timer % 32] * (uint64_t)10000 / world.shape.hurry;
}

static void not_ready(struct qp *q, const struct qp *to, uint64_t now)
{
    enum { FOR_EVER = 7 };
    world.count.rnr++;
    if (q->attr.rnr_retry != FOR_EVER && q->rnr_tries++ >= q->attr.rnr_retry)
        fail_send(q, IBV_WC_RNR_RETRY_EXC_ERR);
    else
        q->rnr_until = now + rnr_delay(to->attr.min_rnr_timer);
}

static void fail_receiver(struct qp *q, struct qp *to, enum ibv_wc_status status)
{
    end_recv(to, q, NULL, status);
    pv_fail(to);
    fail_send(q, status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
}

static enum ibv_wc_status copy_send(const struct qp *q, const struct qp *to, const struct send *s, const struct recv *r)
{
    if (s->bytes > r->bytes)
        return IBV_WC_LOC_LEN_ERR;
    char *data = malloc((size_t)s->bytes + 1);
    if (!data)
        abort();
    const bool moved = take_out(q, s, 0, s->bytes, data) && move(to, r->sge, 0, s->bytes, data, in);
    free(data);
    return moved ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

/* A message takes the oldest receive. */
static bool receive(struct qp *q, struct qp *to, const struct send *s, uint64_t now)
{
    if (now < q->rnr_until)
        return false;
    if (to->rq.done == to->rq.next) {
        not_ready(q, to, now);
        return false;
    }
    q->rnr_tries = 0;
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    if (!is_write(s))
        status = copy_send(q, to, s, pv_recv(to, to->rq.done));
    if (status == IBV_WC_SUCCESS)
        status = pv_spoil();
    if (status != IBV_WC_SUCCESS) {
        fail_receiver(q, to, status);
        return false;
    }
    end_recv(to, q, s, IBV_WC_SUCCESS);
    return q->state == IBV_QPS_RTS;
}

static bool fetch(struct qp *q, struct qp *to, struct send *s)
{
    char *at = NULL;
    if (!far_end(to, s, IBV_ACCESS_REMOTE_READ, &at))
        give_up(q, to, IBV_WC_REM_ACCESS_ERR);
    else if (!move(q, s->sge, 0, s->bytes, at, in))
        give_up(q, to, IBV_WC_LOC_PROT_ERR);
    else if (s->bytes)
        s->read = pv_read(s->wr.wr.rdma.rkey);
    return q->state == IBV_QPS_RTS;
}

/* False: the oldest has not ended well. */
static bool deliver(struct qp *q, struct qp *to, uint64_t now)
{
    struct send *s = pv_send(q, q->sq.done);
    if (is_write(s) && s->todo)
        return false;
    if (s->status != IBV_WC_SUCCESS) {
        give_up(q, to, s->status);
        return false;
    }
    if (is_read(s) && !fetch(q, to, s))
        return false;
    if (s->wr.opcode != IBV_WR_RDMA_WRITE && !is_read(s) && !receive(q, to, s, now))
        return false;
    const enum ibv_wc_status status = pv_spoil();
    if (status != IBV_WC_SUCCESS)
        give_up(q, to, status);
    else
        end_send(q, IBV_WC_SUCCESS);
    return q->state == IBV_QPS_RTS;
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static void carry(struct qp *q, struct qp *to, uint64_t now)
{
    bool overtakes = false;
    q->lonely_since = 0;
    if (to->state == IBV_QPS_RTR && !to->established) {
        to->established = true;
        pv_async(to->base.context, IBV_EVENT_COMM_EST, to);
    }
    uint64_t steps = world.shape.calm ? UINT64_MAX : pv_random(STEPS + 1);
    for (struct send *s = pick(q, &overtakes); s && steps; steps--) {
        land(q, to, s, overtakes);
        s = pick(q, &overtakes);
    }
    while (q->sq.done < q->sq.next && pv_chance(2) && deliver(q, to, now))
        ;
}

static void show(struct qp *q, bool send)
{
    struct cqes *out_list = &q->out[send];
    if (!out_list->count || !pv_chance(2))
        return;
    uint64_t n = world.shape.calm ? out_list->count : 1 + pv_random(out_list->count);
    for (; n; n--)
        pv_show((struct cq *)(send ? q->base.send_cq : q->base.recv_cq), pv_cqes_take(out_list));
}

static void step(struct qp *q, uint64_t now)
{
    if (q->state == IBV_QPS_RTS && q->sq.done < q->sq.next) {
        struct qp *to = peer(q);
        if (to)
            carry(q, to, now);
        else
            unanswered(q, now);
    }
    show(q, false);
    show(q, true);
}

void pv_tick(void)
{
    if (world.held)
        return;
    const uint64_t now = pv_now();
    for (struct object *o = world.all[QP]; o; o = o->next)
        step(o->self, now);
}

static void *run(void *unused)
{
    uint64_t us = 100;
    (void)unused;
    for (bool on = true; on;) {
        usleep((useconds_t)us);
        pv_lock();
        on = world.all[CONTEXT];
        world.thread = on;
        if (on && !world.shape.still)
            pv_tick();
        us = 50 + pv_now() % 150;
        pv_unlock();
    }
    return NULL;
}

void pv_thread(void)
{
    pthread_t thread;
    sigset_t all, before;
    if (world.thread)
        return;
    /* The signals of a test are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run, NULL))
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
    world.thread = true;
}
