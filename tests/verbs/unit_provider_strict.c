/* SPDX-License-Identifier: Apache-2.0 */
/* The provider's strictness: everything that is not legal is refused, and said. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs/rig.h"

/* Objects that a row leaves go with the reset before the next; the ends' bytes are let go here. */
static void drop(struct rig *r)
{
    provider_control.reset(0);
    free(r->a.bytes);
    free(r->b.bytes);
}

static void begin(struct rig *r, uint64_t seed)
{
    provider_control.reset(seed);
    rig_open(r);
}

static void shape_imm(bool none)
{
    struct provider_world w;
    provider_control.get_world(&w);
    w.device[0].no_imm = none;
    w.device[0].max_msg_sz = 1 << 16;
    provider_control.set_world(&w);
}

/* ---- sends ----------------------------------------------------------------------------------------------------- */

struct posted {
    struct ibv_sge sge[8];
    struct ibv_send_wr wr;
};

static void unknown_opcode(struct rig *r, struct posted *p) { (void)r, p->wr.opcode = IBV_WR_TSO; }
static void atomic_opcode(struct rig *r, struct posted *p) { (void)r, p->wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; }
static void unknown_flag(struct rig *r, struct posted *p) { (void)r, p->wr.send_flags = 1u << 9; }
static void many_pieces(struct rig *r, struct posted *p)
{
    for (p->wr.num_sge = 0; p->wr.num_sge <= RIG_SGE; p->wr.num_sge++)
        p->sge[p->wr.num_sge] = rig_sge(&r->a, 0, 1);
}
static void no_pieces(struct rig *r, struct posted *p) { (void)r, p->wr.sg_list = NULL; }
static void long_inline(struct rig *r, struct posted *p)
{
    p->sge[0] = rig_sge(&r->a, 0, RIG_INLINE + 1);
    p->wr.send_flags = IBV_SEND_INLINE;
}
static void inline_read(struct rig *r, struct posted *p)
{
    (void)r;
    p->wr.opcode = IBV_WR_RDMA_READ;
    p->wr.send_flags = IBV_SEND_INLINE;
}
static void bad_lkey(struct rig *r, struct posted *p) { (void)r, p->sge[0].lkey += 1000; }
static void rkey_as_lkey(struct rig *r, struct posted *p) { p->sge[0].lkey = r->a.mr->rkey; }
static void others_lkey(struct rig *r, struct posted *p) { p->sge[0] = rig_sge(&r->b, 0, 8); }
static void before(struct rig *r, struct posted *p) { (void)r, p->sge[0].addr -= 1; }
static void past(struct rig *r, struct posted *p) { p->sge[0].addr = (uintptr_t)r->a.bytes + RIG_BYTES - 7; }
static void read_only(struct rig *r, struct posted *p)
{
    struct ibv_mr *mr = ibv_reg_mr(r->a.pd, r->a.bytes, RIG_BYTES, 0);
    p->sge[0].lkey = mr->lkey;
    p->wr.opcode = IBV_WR_RDMA_READ;
}
static void too_long(struct rig *r, struct posted *p)
{
    shape_imm(false);
    p->sge[0] = rig_sge(&r->a, 0, (1 << 16) + 1);
}
static void no_imm(struct rig *r, struct posted *p)
{
    (void)r;
    shape_imm(true);
    p->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
}

Test(verbs_strict, sends_that_are_not_legal)
{
    static const struct {
        void (*spoil)(struct rig *r, struct posted *p);
        int error;
        const char *text;
    } rows[] = {
        {unknown_opcode, EINVAL, "opcode 10"},
        {atomic_opcode, EINVAL, "opcode 6"},
        {unknown_flag, EINVAL, "send flags 0x200"},
        {many_pieces, EINVAL, "with 5 pieces"},
        {no_pieces, EINVAL, "at NULL"},
        {long_inline, EINVAL, "65 bytes inline"},
        {inline_read, EINVAL, "a read inline"},
        {bad_lkey, EINVAL, "is no lkey"},
        {rkey_as_lkey, EINVAL, "is no lkey"},
        {others_lkey, EINVAL, "another protection domain"},
        {before, EINVAL, "ends before or begins after"},
        {past, EINVAL, "ends before or begins after"},
        {read_only, EINVAL, "may not be written"},
        {too_long, EINVAL, "a message of 65537 bytes"},
        {no_imm, EOPNOTSUPP, "no immediate data"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct posted p;
        struct ibv_send_wr *bad = NULL;
        begin(&r, i);
        rig_connect(&r);
        p.sge[0] = rig_sge(&r.a, 0, 8);
        p.wr = rig_wr(&r.b, 0, p.sge, IBV_WR_RDMA_WRITE, 0);
        rows[i].spoil(&r, &p);
        cr_assert_eq(ibv_post_send(r.a.qp, &p.wr, &bad), rows[i].error, "%s", rows[i].text);
        cr_assert_eq(bad, &p.wr);
        rig_expect_violation(rows[i].text);
        drop(&r);
    }
}

Test(verbs_strict, receives_that_are_not_legal)
{
    for (unsigned i = 0; i < 4; i++) {
        static const char *const texts[] = {"state RESET", "with 5 pieces", "is no lkey", "may not be written"};
        struct rig r;
        struct ibv_recv_wr *bad = NULL;
        begin(&r, i);
        struct ibv_sge sge[5] = {rig_sge(&r.a, 0, 8)};
        struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = i == 1 ? 5 : 1};
        if (i > 0)
            rig_init(&r.a);
        if (i == 2)
            sge->lkey = 2;
        if (i == 3)
            sge->lkey = ibv_reg_mr(r.a.pd, r.a.bytes, 8, IBV_ACCESS_REMOTE_READ)->lkey;
        cr_assert_eq(ibv_post_recv(r.a.qp, &wr, &bad), EINVAL);
        cr_assert_eq(bad, &wr);
        rig_expect_violation(texts[i]);
        drop(&r);
    }
}

Test(verbs_strict, a_send_before_the_queue_pair_is_ready)
{
    for (unsigned i = 0; i < 3; i++) {
        static const char *const texts[] = {"in state 0", "in state 1", "in state 2"};
        struct rig r;
        struct ibv_send_wr *bad = NULL;
        begin(&r, i);
        if (i > 0)
            rig_init(&r.a);
        r.a.attr.qp_state = IBV_QPS_RTR;
        if (i > 1)
            cr_assert_eq(ibv_modify_qp(r.a.qp, &r.a.attr, RIG_TO_RTR), 0);
        struct ibv_sge sge = rig_sge(&r.a, 0, 8);
        struct ibv_send_wr wr = rig_wr(&r.b, 0, &sge, IBV_WR_RDMA_WRITE, 0);
        cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), EINVAL);
        rig_expect_violation(texts[i]);
        drop(&r);
    }
}

/* ---- room ------------------------------------------------------------------------------------------------------ */

static int post(struct end *e, const struct end *to, unsigned flags)
{
    struct ibv_sge sge = rig_sge(e, 0, 8);
    struct ibv_send_wr wr = rig_wr(to, 0, &sge, IBV_WR_RDMA_WRITE, flags), *bad = NULL;
    return ibv_post_send(e->qp, &wr, &bad);
}

static void wait_done(uint64_t sends)
{
    struct provider_counters c = {0};
    while (c.retired < sends)
        provider_control.counters(&c);
}

/* That they are done is not enough: only a completion that was polled tells. */
Test(verbs_strict, the_send_queue_has_room_when_a_completion_was_polled)
{
    struct rig r;
    struct ibv_wc wc;
    begin(&r, 1);
    rig_connect(&r);
    for (unsigned i = 0; i < RIG_ROOM; i++)
        cr_assert_eq(post(&r.a, &r.b, i == 3 ? IBV_SEND_SIGNALED : 0), 0);
    wait_done(RIG_ROOM);
    rig_poll(&r.a, 1, &wc);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(post(&r.a, &r.b, 0), 0, "%u", i);
    cr_assert_eq(provider_control.violations(NULL, 0), 0);
    cr_assert_eq(post(&r.a, &r.b, 0), ENOMEM);
    rig_expect_violation("more sends than the 16");
    drop(&r);
}

Test(verbs_strict, the_receive_queue_has_room)
{
    struct rig r;
    begin(&r, 1);
    rig_init(&r.a);
    rig_recv(&r.a, RIG_ROOM);
    struct ibv_recv_wr wr = {0}, *bad = NULL;
    cr_assert_eq(ibv_post_recv(r.a.qp, &wr, &bad), ENOMEM);
    rig_expect_violation("more receives than the 16");
    drop(&r);
}

Test(verbs_strict, a_completion_queue_that_overflows_is_dead)
{
    struct rig r;
    struct ibv_wc wc;
    struct ibv_async_event event;
    begin(&r, 1);
    rig_connect(&r);
    cr_assert_eq(ibv_resize_cq(r.a.cq, 4), 0);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(post(&r.a, &r.b, IBV_SEND_SIGNALED), 0);
    cr_assert_eq(ibv_get_async_event(r.a.context, &event), 0);
    cr_assert_eq(event.event_type, IBV_EVENT_CQ_ERR);
    cr_assert_eq(event.element.cq, r.a.cq);
    cr_assert(ibv_poll_cq(r.a.cq, 1, &wc) < 0);
    rig_expect_violation("more completions than the 4");
    drop(&r);
}

/* ---- remote memory --------------------------------------------------------------------------------------------- */

static void far_key(struct rig *r, struct ibv_send_wr *wr) { (void)r, wr->wr.rdma.rkey += 2000; }
static void far_lkey(struct rig *r, struct ibv_send_wr *wr) { wr->wr.rdma.rkey = r->b.mr->lkey; }
static void far_past(struct rig *r, struct ibv_send_wr *wr)
{
    wr->wr.rdma.remote_addr = (uintptr_t)r->b.bytes + RIG_BYTES - 7;
}
static void far_before(struct rig *r, struct ibv_send_wr *wr) { (void)r, wr->wr.rdma.remote_addr -= 1; }
static void far_access(struct rig *r, struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey = ibv_reg_mr(r->b.pd, r->b.bytes, RIG_BYTES, IBV_ACCESS_REMOTE_READ)->rkey;
}
static void far_read(struct rig *r, struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey =
        ibv_reg_mr(r->b.pd, r->b.bytes, RIG_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)->rkey;
    wr->opcode = IBV_WR_RDMA_READ;
}
static void far_domain(struct rig *r, struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey = ibv_reg_mr(ibv_alloc_pd(r->b.context), r->b.bytes, RIG_BYTES, RIG_ACCESS)->rkey;
}
static void far_pair(struct rig *r, struct ibv_send_wr *wr)
{
    (void)wr;
    r->b.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    cr_assert_eq(ibv_modify_qp(r->b.qp, &r->b.attr, IBV_QP_ACCESS_FLAGS), 0);
}
static void far_gone(struct rig *r, struct ibv_send_wr *wr)
{
    (void)wr;
    cr_assert_eq(ibv_dereg_mr(r->b.mr), 0);
}

static void expect_denied(struct rig *r)
{
    struct ibv_wc wc;
    struct ibv_async_event event;
    rig_poll(&r->a, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(wc.status));
    rig_poll(&r->b, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
    cr_assert_eq(ibv_get_async_event(r->b.context, &event), 0);
    cr_assert_eq(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    cr_assert_eq(event.element.qp, r->b.qp);
}

Test(verbs_strict, remote_memory_that_one_may_not_have)
{
    static const struct {
        void (*spoil)(struct rig *r, struct ibv_send_wr *wr);
        const char *text; /* NULL: both ends may be going, and nobody did wrong */
    } rows[] = {
        {far_key, "no rkey of any memory"},
        {far_lkey, "no rkey of any memory"},
        {far_past, "ends before or begins after"},
        {far_before, "ends before or begins after"},
        {far_access, "not registered for it"},
        {far_read, "not registered for it"},
        {far_domain, "another protection domain"},
        {far_pair, "not on this queue pair"},
        {far_gone, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct ibv_send_wr *bad = NULL;
        struct ibv_recv_wr empty = {0}, *bad_recv = NULL;
        begin(&r, i);
        rig_connect(&r);
        cr_assert_eq(ibv_post_recv(r.b.qp, &empty, &bad_recv), 0);
        struct ibv_sge sge = rig_sge(&r.a, 0, 8);
        struct ibv_send_wr wr = rig_wr(&r.b, 0, &sge, IBV_WR_RDMA_WRITE, 0);
        rows[i].spoil(&r, &wr);
        cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
        expect_denied(&r);
        if (rows[i].text)
            rig_expect_violation(rows[i].text);
        else
            cr_assert_eq(provider_control.violations(NULL, 0), 0);
        drop(&r);
    }
}

/* ---- states ---------------------------------------------------------------------------------------------------- */

static int step(struct end *e, enum ibv_qp_state to, int mask)
{
    e->attr.qp_state = to;
    return ibv_modify_qp(e->qp, &e->attr, mask);
}

static const struct {
    enum ibv_qp_state to;
    int mask;
} way[] = {{IBV_QPS_INIT, RIG_TO_INIT}, {IBV_QPS_RTR, RIG_TO_RTR}, {IBV_QPS_RTS, RIG_TO_RTS}};

static void walk(struct end *e, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++)
        cr_assert_eq(step(e, way[i].to, way[i].mask), 0);
}

Test(verbs_strict, each_step_says_all_that_it_must)
{
    for (unsigned i = 0; i < 3; i++)
        for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
            struct rig r;
            if (bit == IBV_QP_STATE || bit == IBV_QP_CUR_STATE)
                continue;
            begin(&r, i);
            walk(&r.a, i);
            const int mask = way[i].mask ^ bit; /* without what is needed, or with what does not belong there */
            const bool allowed = (i == 1 && (bit & (IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS))) ||
                                 (i == 2 && (bit & (IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)));
            cr_assert_eq(step(&r.a, way[i].to, mask), allowed ? 0 : EINVAL, "step %u, bit 0x%x", i, bit);
            if (!allowed)
                rig_expect_violation(way[i].mask & bit ? "missing" : "not allowed");
            drop(&r);
        }
}

Test(verbs_strict, no_step_is_left_out)
{
    static const struct {
        unsigned walked;
        enum ibv_qp_state to;
        int mask;
    } rows[] = {{0, IBV_QPS_RTR, RIG_TO_RTR},   {0, IBV_QPS_RTS, RIG_TO_RTS}, {1, IBV_QPS_RTS, RIG_TO_RTS},
                {2, IBV_QPS_INIT, RIG_TO_INIT}, {3, IBV_QPS_RTR, RIG_TO_RTR}, {3, IBV_QPS_SQD, IBV_QP_STATE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r, i);
        walk(&r.a, rows[i].walked);
        cr_assert_eq(step(&r.a, rows[i].to, rows[i].mask), EINVAL);
        rig_expect_violation("no way leads");
        drop(&r);
    }
}

static void v_pkey(struct ibv_qp_attr *a) { a->pkey_index = 1; }
static void v_port(struct ibv_qp_attr *a) { a->port_num = 2; }
static void v_mtu(struct ibv_qp_attr *a) { a->path_mtu = IBV_MTU_4096; }
static void v_no_mtu(struct ibv_qp_attr *a) { a->path_mtu = 0; }
static void v_not_global(struct ibv_qp_attr *a) { a->ah_attr.is_global = 0; }
static void v_empty_gid(struct ibv_qp_attr *a) { a->ah_attr.grh.sgid_index = 9; }
static void v_far_gid(struct ibv_qp_attr *a) { a->ah_attr.grh.sgid_index = 200; }
static void v_zero_gid(struct ibv_qp_attr *a) { memset(&a->ah_attr.grh.dgid, 0, 16); }
static void v_hops(struct ibv_qp_attr *a) { a->ah_attr.grh.hop_limit = 0; }
static void v_ah_port(struct ibv_qp_attr *a) { a->ah_attr.port_num = 0; }
static void v_rq_psn(struct ibv_qp_attr *a) { a->rq_psn = 1 << 24; }
static void v_dest(struct ibv_qp_attr *a) { a->dest_qp_num = 1 << 24; }
static void v_reads(struct ibv_qp_attr *a) { a->max_dest_rd_atomic = 17; }
static void v_rnr_timer(struct ibv_qp_attr *a) { a->min_rnr_timer = 32; }
static void v_sq_psn(struct ibv_qp_attr *a) { a->sq_psn = 1 << 24; }
static void v_timeout(struct ibv_qp_attr *a) { a->timeout = 32; }
static void v_no_timeout(struct ibv_qp_attr *a) { a->timeout = 0; }
static void v_retry(struct ibv_qp_attr *a) { a->retry_cnt = 8; }
static void v_rnr_retry(struct ibv_qp_attr *a) { a->rnr_retry = 8; }

Test(verbs_strict, values_that_no_device_takes)
{
    static const struct {
        unsigned step;
        void (*spoil)(struct ibv_qp_attr *a);
        const char *text;
    } rows[] = {
        {0, v_pkey, "partition key 1"},   {0, v_port, "port 2"},
        {1, v_mtu, "path MTU 5"},         {1, v_no_mtu, "path MTU 0"},
        {1, v_not_global, "on Ethernet"}, {1, v_empty_gid, "GID 9 of test0 is empty"},
        {1, v_far_gid, "GID 200"},        {1, v_zero_gid, "GID 0 as destination"},
        {1, v_hops, "hop limit 0"},       {1, v_ah_port, "an address for port 0"},
        {1, v_rq_psn, "rq_psn"},          {1, v_dest, "destination queue pair"},
        {1, v_reads, "max_dest_rd"},      {1, v_rnr_timer, "min_rnr_timer"},
        {2, v_sq_psn, "sq_psn"},          {2, v_timeout, "timeout is 32"},
        {2, v_no_timeout, "for ever"},    {2, v_retry, "retry_cnt"},
        {2, v_rnr_retry, "rnr_retry"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r, i);
        walk(&r.a, rows[i].step);
        rows[i].spoil(&r.a.attr);
        cr_assert_eq(step(&r.a, way[rows[i].step].to, way[rows[i].step].mask), EINVAL, "%s", rows[i].text);
        rig_expect_violation(rows[i].text);
        drop(&r);
    }
}

/* ---- what is in use -------------------------------------------------------------------------------------------- */

static int close_context(struct rig *r) { return ibv_close_device(r->a.context); }
static int dealloc_domain(struct rig *r) { return ibv_dealloc_pd(r->a.pd); }
static int destroy_queue(struct rig *r) { return ibv_destroy_cq(r->a.cq); }
static int destroy_channel(struct rig *r) { return ibv_destroy_comp_channel(r->a.channel); }
static int dereg_sent(struct rig *r)
{
    provider_control.hold(true);
    rig_send(&r->a, &r->b, 0, 8, IBV_WR_RDMA_WRITE, 0);
    return ibv_dereg_mr(r->a.mr);
}
/* It is done, but nothing said so. */
static int dereg_unpolled(struct rig *r)
{
    rig_send(&r->a, &r->b, 0, 8, IBV_WR_RDMA_WRITE, 0);
    wait_done(1);
    return ibv_dereg_mr(r->a.mr);
}
static int dereg_received(struct rig *r)
{
    rig_recv(&r->a, 1);
    return ibv_dereg_mr(r->a.mr);
}
static int unacked_event(struct rig *r)
{
    struct ibv_cq *cq;
    void *owner;
    cr_assert_eq(ibv_req_notify_cq(r->a.cq, 0), 0);
    rig_send(&r->a, &r->b, 0, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    cr_assert_eq(ibv_get_cq_event(r->a.channel, &cq, &owner), 0);
    cr_assert_eq(ibv_destroy_qp(r->a.qp), 0);
    return ibv_destroy_cq(r->a.cq);
}
static int unacked_async(struct rig *r)
{
    struct ibv_async_event event;
    provider_control.raise(0, IBV_EVENT_GID_CHANGE);
    cr_assert_eq(ibv_get_async_event(r->a.context, &event), 0);
    ibv_ack_async_event(&event);
    rig_send(&r->a, &r->b, 0, 8, IBV_WR_RDMA_WRITE, 0);
    struct ibv_sge sge = rig_sge(&r->b, 0, 8);
    struct ibv_send_wr wr = rig_wr(&r->a, 0, &sge, IBV_WR_RDMA_WRITE, 0), *bad;
    wr.wr.rdma.rkey = r->a.mr->lkey;
    cr_assert_eq(ibv_post_send(r->b.qp, &wr, &bad), 0);
    cr_assert_eq(ibv_get_async_event(r->a.context, &event), 0);
    return ibv_destroy_qp(r->a.qp);
}

Test(verbs_strict, what_is_in_use_stays)
{
    static const struct {
        int (*act)(struct rig *r);
        const char *text;
    } rows[] = {
        {close_context, "test0 closed while"},
        {dealloc_domain, "a protection domain freed while 2"},
        {destroy_queue, "queue pairs use 2 times"},
        {destroy_channel, "that 1 completion queues use"},
        {dereg_sent, "memory deregistered"},
        {dereg_unpolled, "memory deregistered"},
        {dereg_received, "memory deregistered"},
        {unacked_event, "0 of 1"},
        {unacked_async, "no rkey"}, /* the first; EBUSY is the second */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r, i);
        rig_connect(&r);
        cr_assert_eq(rows[i].act(&r), EBUSY, "%s", rows[i].text);
        rig_expect_violation(rows[i].text);
        drop(&r);
    }
}

Test(verbs_strict, more_acknowledged_than_came)
{
    struct rig r;
    begin(&r, 1);
    ibv_ack_cq_events(r.a.cq, 1);
    rig_expect_violation("1 events of a completion queue acknowledged");
    drop(&r);
}

/* ---- registering ----------------------------------------------------------------------------------------------- */

Test(verbs_strict, registrations_that_are_not_legal)
{
    static const struct {
        size_t bytes;
        unsigned access;
        const char *text;
    } rows[] = {
        {0, 0, "0 bytes registered"},
        {8, IBV_ACCESS_REMOTE_WRITE, "not for local ones"},
        {8, 1u << 15, "of which not all is known"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        begin(&r, i);
        cr_assert(!ibv_reg_mr_iova2(r.a.pd, r.a.bytes, rows[i].bytes, (uintptr_t)r.a.bytes, rows[i].access));
        cr_assert_eq(errno, EINVAL);
        rig_expect_violation(rows[i].text);
        drop(&r);
    }
}
