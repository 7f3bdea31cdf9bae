/* SPDX-License-Identifier: Apache-2.0 */
/* rig.c - see rig.h. */
#include "tests/verbs/rig.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ibv_qp_attr attr_to(int device, const struct ibv_qp *qp, uint32_t rq_psn, uint32_t sq_psn)
{
    struct provider_world w;
    provider_control.get_world(&w);
    return (struct ibv_qp_attr){
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .rq_psn = rq_psn,
        .sq_psn = sq_psn,
        .max_dest_rd_atomic = 4,
        .max_rd_atomic = 4,
        .min_rnr_timer = 1,
        .timeout = 10,
        .retry_cnt = 7,
        .rnr_retry = 2,
        .ah_attr = {.port_num = 1,
                    .is_global = !w.device[device].infiniband,
                    .dlid = w.device[device].lid,
                    .grh = {.dgid = w.device[device].gid[RIG_GID].gid, .sgid_index = RIG_GID, .hop_limit = 64}},
    };
}

static void open_end(struct end *e, int device)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    cr_assert(list && n > device);
    e->context = ibv_open_device(list[device]);
    ibv_free_device_list(list);
    cr_assert(e->context);
    e->pd = ibv_alloc_pd(e->context);
    e->channel = ibv_create_comp_channel(e->context);
    e->cq = ibv_create_cq(e->context, RIG_CQ, e, e->channel, 0);
    cr_assert(e->pd && e->channel && e->cq);
    struct ibv_qp_init_attr init = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .cap = {RIG_ROOM, RIG_ROOM, RIG_SGE, RIG_SGE, RIG_INLINE},
                                    .qp_type = IBV_QPT_RC};
    e->qp = ibv_create_qp(e->pd, &init);
    e->bytes = calloc(1, RIG_BYTES);
    cr_assert(e->qp && e->bytes);
    e->mr = ibv_reg_mr(e->pd, e->bytes, RIG_BYTES, RIG_ACCESS);
    cr_assert(e->mr);
}

void rig_open(struct rig *r)
{
    open_end(&r->a, 0);
    open_end(&r->b, 1);
    r->a.attr = attr_to(1, r->b.qp, 1000, 0xffffff);
    r->b.attr = attr_to(0, r->a.qp, 0xffffff, 1000);
}

static void go(struct end *e, enum ibv_qp_state state, int mask)
{
    e->attr.qp_state = state;
    const int error = ibv_modify_qp(e->qp, &e->attr, mask);
    char text[512] = "";
    provider_control.violations(text, sizeof text);
    cr_assert(!error, "state %d: %s: %s", (int)state, strerror(error), text);
}

void rig_init(struct end *e) { go(e, IBV_QPS_INIT, RIG_TO_INIT); }

void rig_ready(struct end *e)
{
    go(e, IBV_QPS_RTR, RIG_TO_RTR);
    go(e, IBV_QPS_RTS, RIG_TO_RTS);
}

void rig_connect(struct rig *r)
{
    rig_init(&r->a);
    rig_init(&r->b);
    rig_ready(&r->a);
    rig_ready(&r->b);
}

static void close_end(struct end *e)
{
    cr_assert_eq(ibv_destroy_qp(e->qp), 0);
    cr_assert_eq(ibv_dereg_mr(e->mr), 0);
    cr_assert_eq(ibv_destroy_cq(e->cq), 0);
    cr_assert_eq(ibv_destroy_comp_channel(e->channel), 0);
    cr_assert_eq(ibv_dealloc_pd(e->pd), 0);
    cr_assert_eq(ibv_close_device(e->context), 0);
    free(e->bytes);
}

void rig_close(struct rig *r)
{
    close_end(&r->a);
    close_end(&r->b);
    rig_expect_clean();
}

void rig_expect_clean(void)
{
    char text[512] = "";
    struct provider_counters c;
    const unsigned n = provider_control.violations(text, sizeof text);
    cr_assert_eq(n, 0, "%u violations: %s", n, text);
    provider_control.counters(&c);
    cr_assert_eq(c.devices + c.contexts + c.pds + c.mrs + c.channels + c.cqs + c.qps, 0);
    cr_assert_eq(c.locked, 0);
}

void rig_expect_violation(const char *text)
{
    char found[512] = "";
    cr_assert(provider_control.violations(found, sizeof found), "no violation: %s", text);
    cr_assert(strstr(found, text), "\"%s\" is not in \"%s\"", text, found);
}

struct ibv_sge rig_sge(const struct end *e, size_t at, uint32_t bytes)
{
    return (struct ibv_sge){(uintptr_t)(e->bytes + at), bytes, e->mr->lkey};
}

struct ibv_send_wr rig_wr(const struct end *to, size_t at, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
                          unsigned flags)
{
    return (struct ibv_send_wr){.wr_id = at,
                                .sg_list = sge,
                                .num_sge = 1,
                                .opcode = opcode,
                                .send_flags = flags,
                                .imm_data = htonl((uint32_t)at),
                                .wr.rdma = {(uintptr_t)(to->bytes + at), to->mr->rkey}};
}

void rig_send(struct end *e, const struct end *to, size_t at, uint32_t bytes, enum ibv_wr_opcode opcode, unsigned flags)
{
    struct ibv_sge sge = rig_sge(e, at, bytes);
    struct ibv_send_wr wr = rig_wr(to, at, &sge, opcode, flags), *bad = NULL;
    const int error = ibv_post_send(e->qp, &wr, &bad);
    char text[512] = "";
    provider_control.violations(text, sizeof text);
    cr_assert(!error, "%s: %s", strerror(error), text);
}

/* Into the last bytes of what is registered. */
void rig_recv(struct end *e, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct ibv_sge sge = rig_sge(e, RIG_BYTES - 1024, 1024);
        struct ibv_recv_wr wr = {.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
        cr_assert_eq(ibv_post_recv(e->qp, &wr, &bad), 0);
    }
}

void rig_poll(struct end *e, int n, struct ibv_wc *wc)
{
    const time_t end = time(NULL) + 10;
    int found = 0;
    while (found < n) {
        const int more = ibv_poll_cq(e->cq, n - found, wc + found);
        cr_assert(more >= 0);
        found += more;
        cr_assert(time(NULL) < end, "%d of %d completions", found, n);
    }
}
