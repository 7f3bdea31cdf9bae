/* SPDX-License-Identifier: Apache-2.0 */
/* The provider itself: that good work is done, in every order that hardware may do it in, and that it breaks as told.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/verbs/rig.h"
#include "transports/verbs/api.h"

static struct provider_counters counted(void)
{
    struct provider_counters c;
    provider_control.counters(&c);
    return c;
}

static void fill(unsigned char *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
}

/* One call of libibverbs from the other end lets time pass. */
static void pass(struct end *e)
{
    struct ibv_wc none;
    cr_assert_eq(ibv_poll_cq(e->cq, 0, &none), 0);
}

static void shape(void (*change)(struct provider_world *w))
{
    struct provider_world w;
    provider_control.get_world(&w);
    change(&w);
    provider_control.set_world(&w);
}

static void make_still(struct provider_world *w) { w->still = true; }

static void make_infiniband(struct provider_world *w) { w->device[0].infiniband = w->device[1].infiniband = true; }

/* ---- what works ------------------------------------------------------------------------------------------------ */

Test(verbs, the_library_has_all_functions)
{
    char why[256] = "";
    const struct verbs_api *api = verbs_api_load(PROVIDER, why, sizeof why);
    cr_assert(api, "%s", why);
    cr_assert(api->query_gid_table && api->reg_mr_iova2 && api->reg_dmabuf_mr);
    cr_assert_str_eq(api->wc_status_str(IBV_WC_SUCCESS), "success");
    cr_assert(dlsym(dlopen(PROVIDER, RTLD_NOW), "provider_control"));
}

/* Writes, the last of them with immediate data, then a send: all of it is there when the receives complete. */
static void exchange(unsigned seed, uint32_t bytes)
{
    struct rig r;
    struct ibv_wc wc[4];
    rig_open(&r);
    rig_connect(&r);
    fill(r.a.bytes, RIG_BYTES, seed);
    rig_recv(&r.b, 2);
    const uint32_t part = bytes / 7;
    for (uint32_t i = 0; i < 7; i++)
        rig_send(&r.a, &r.b, i * part, part, IBV_WR_RDMA_WRITE, 0);
    const unsigned flags = IBV_SEND_SIGNALED | (bytes - 7 * part <= RIG_INLINE ? IBV_SEND_INLINE : 0);
    rig_send(&r.a, &r.b, 7 * part, bytes - 7 * part, IBV_WR_RDMA_WRITE_WITH_IMM, flags);
    rig_poll(&r.b, 1, wc);
    cr_assert_eq(wc[0].status, IBV_WC_SUCCESS);
    cr_assert_eq(wc[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    cr_assert_eq(wc[0].byte_len, bytes - 7 * part);
    cr_assert_eq(ntohl(wc[0].imm_data), 7 * part);
    cr_assert_eq(wc[0].wr_id, 100);
    cr_assert_arr_eq(r.b.bytes, r.a.bytes, bytes);
    rig_send(&r.a, &r.b, 1, bytes % 1000, IBV_WR_SEND, IBV_SEND_SIGNALED);
    rig_poll(&r.b, 1, wc);
    cr_assert_eq(wc[0].opcode, IBV_WC_RECV);
    cr_assert_arr_eq(r.b.bytes + RIG_BYTES - 1024, r.a.bytes + 1, bytes % 1000);
    rig_poll(&r.a, 2, wc);
    cr_assert_eq(wc[0].wr_id, 7 * part);
    cr_assert_eq(wc[0].opcode, IBV_WC_RDMA_WRITE);
    cr_assert_eq(wc[1].opcode, IBV_WC_SEND);
    rig_close(&r);
}

Test(verbs, bytes_arrive_for_any_seed_and_size)
{
    static const uint32_t sizes[] = {0, 1, 6, 7, 13, 64, 1000, 4097, 65536, RIG_BYTES - 1024};
    for (unsigned seed = 0; seed < 40; seed++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            provider_control.reset(seed);
            if (seed % 4 == 1)
                shape(make_infiniband);
            exchange(seed, sizes[i]);
            cr_assert_eq(counted().rnr, 0);
        }
}

Test(verbs, a_read_fetches_what_earlier_writes_left)
{
    for (unsigned seed = 0; seed < 40; seed++) {
        struct rig r;
        struct ibv_wc wc;
        provider_control.reset(seed);
        rig_open(&r);
        rig_connect(&r);
        fill(r.a.bytes, 3000, seed);
        rig_send(&r.a, &r.b, 0, 3000, IBV_WR_RDMA_WRITE, 0);
        struct ibv_sge into[2] = {rig_sge(&r.a, 5000, 1), rig_sge(&r.a, 6000, 2999)};
        struct ibv_send_wr wr = rig_wr(&r.b, 0, into, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), *bad;
        wr.num_sge = 2;
        cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
        rig_poll(&r.a, 1, &wc);
        cr_assert_eq(wc.byte_len, 3000);
        cr_assert_eq(r.a.bytes[5000], r.a.bytes[0]);
        cr_assert_arr_eq(r.a.bytes + 6000, r.a.bytes + 1, 2999);
        rig_close(&r);
    }
}

/* Whether a read finds what a later write brings. */
static bool read_late(unsigned seed, unsigned flags)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(seed);
    rig_open(&r);
    rig_connect(&r);
    r.a.bytes[0] = 1;
    struct ibv_sge into = rig_sge(&r.a, 1, 1), from = rig_sge(&r.a, 0, 1);
    struct ibv_send_wr write = rig_wr(&r.b, 0, &from, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | flags), *bad;
    struct ibv_send_wr read = rig_wr(&r.b, 0, &into, IBV_WR_RDMA_READ, 0);
    read.next = &write;
    cr_assert_eq(ibv_post_send(r.a.qp, &read, &bad), 0);
    rig_poll(&r.a, 1, &wc);
    const bool late = r.a.bytes[1];
    rig_close(&r);
    return late;
}

Test(verbs, a_fence_keeps_a_write_behind_a_read)
{
    unsigned late = 0;
    for (unsigned seed = 0; seed < 40; seed++) {
        cr_assert(!read_late(seed, IBV_SEND_FENCE));
        late += read_late(seed, 0);
    }
    cr_assert_gt(late, 0);
}

/* ---- orders ---------------------------------------------------------------------------------------------------- */

/* Whether later bytes were there while earlier ones were not, of `n` messages; none come after the last of them, which
 * is the one that is received. */
static bool overtaken(unsigned seed, size_t n)
{
    enum { BYTES = 100 };
    struct rig r;
    struct ibv_wc wc;
    bool found = false;
    provider_control.reset(seed);
    shape(make_still);
    rig_open(&r);
    rig_connect(&r);
    rig_recv(&r.b, 1);
    memset(r.a.bytes, 1, n * BYTES);
    for (size_t i = 0; i < n - 1; i++)
        rig_send(&r.a, &r.b, i * BYTES, BYTES, IBV_WR_RDMA_WRITE, 0);
    rig_send(&r.a, &r.b, (n - 1) * BYTES, BYTES, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED);
    do
        for (size_t i = 0; i + 1 < n * BYTES; i++)
            found |= !r.b.bytes[i] && r.b.bytes[i + 1];
    while (!ibv_poll_cq(r.b.cq, 1, &wc));
    cr_assert_arr_eq(r.b.bytes, r.a.bytes, n * BYTES);
    cr_assert(!found || counted().reordered);
    rig_poll(&r.a, 1, &wc);
    rig_close(&r);
    return found;
}

Test(verbs, writes_overtake_each_other_for_most_seeds)
{
    unsigned found = 0, within = 0;
    for (unsigned seed = 0; seed < 50; seed++) {
        found += overtaken(seed, 8);
        within += overtaken(seed, 1);
    }
    cr_assert_gt(found, 25, "%u of 50", found);
    cr_assert_gt(within, 5, "in one message, %u of 50", within);
}

/* What a run looks like from outside: after how many polls each completion came. */
static uint64_t watch(unsigned seed)
{
    struct rig r;
    struct ibv_wc wc;
    uint64_t seen = 0;
    provider_control.reset(seed);
    shape(make_still);
    rig_open(&r);
    rig_connect(&r);
    rig_recv(&r.b, 8);
    provider_control.hold(true);
    for (size_t i = 0; i < 8; i++)
        rig_send(&r.a, &r.b, i, 1, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED);
    provider_control.hold(false);
    for (unsigned polls = 0, n = 0; n < 16; polls++) {
        const int a = ibv_poll_cq(r.a.cq, 1, &wc), b = ibv_poll_cq(r.b.cq, 1, &wc);
        n += (unsigned)(a + b);
        seen = a + b ? seen * 31 + polls * 4 + (unsigned)(a + 2 * b) : seen;
    }
    rig_close(&r);
    return seen;
}

Test(verbs, a_seed_is_a_run)
{
    cr_assert_eq(watch(7), watch(7));
    cr_assert_neq(watch(7), watch(8));
}

Test(verbs, completions_come_in_batches_and_in_order)
{
    int most = 0;
    for (unsigned seed = 0; seed < 20; seed++) {
        struct rig r;
        struct ibv_wc wc[RIG_ROOM];
        provider_control.reset(seed);
        rig_open(&r);
        rig_connect(&r);
        for (size_t i = 0; i < RIG_ROOM; i++)
            rig_send(&r.a, &r.b, i, 1, IBV_WR_RDMA_WRITE, i % 2 ? IBV_SEND_SIGNALED : 0);
        for (int n = 0; n < RIG_ROOM / 2;) {
            const int more = ibv_poll_cq(r.a.cq, RIG_ROOM, wc);
            for (int i = 0; i < more; i++, n++)
                cr_assert_eq(wc[i].wr_id, 2 * (unsigned)n + 1);
            most = more > most ? more : most;
        }
        rig_close(&r);
    }
    cr_assert_gt(most, 2);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static int wait_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms);
}

static void take_event(struct end *e)
{
    struct ibv_cq *cq = NULL;
    void *owner = NULL;
    cr_assert_eq(wait_readable(e->channel->fd, 5000), 1);
    cr_assert_eq(ibv_get_cq_event(e->channel, &cq, &owner), 0);
    cr_assert_eq(cq, e->cq);
    cr_assert_eq(owner, e);
    ibv_ack_cq_events(cq, 1);
}

/* Nobody polls: the provider's own thread must move it. */
Test(verbs, a_message_wakes_who_waits)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(3);
    rig_open(&r);
    rig_connect(&r);
    rig_recv(&r.b, 3);
    cr_assert_eq(ibv_req_notify_cq(r.b.cq, 0), 0);
    cr_assert_eq(wait_readable(r.b.channel->fd, 20), 0);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
    take_event(&r.b);
    rig_poll(&r.b, 1, &wc);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
    for (int i = 0; i < 500; i++)
        pass(&r.b);
    cr_assert_eq(wait_readable(r.b.channel->fd, 0), 0, "armed once, woken twice");
    cr_assert_eq(ibv_req_notify_cq(r.b.cq, 0), 0);
    cr_assert_eq(wait_readable(r.b.channel->fd, 20), 0, "what was there before wakes nobody");
    rig_poll(&r.b, 1, &wc);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_SEND, IBV_SEND_SIGNALED);
    take_event(&r.b);
    rig_poll(&r.a, 1, &wc);
    cr_assert_eq(counted().notified, 2);
    rig_close(&r);
}

Test(verbs, solicited_only_wakes_for_those)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(3);
    rig_open(&r);
    rig_connect(&r);
    rig_recv(&r.b, 2);
    cr_assert_eq(ibv_req_notify_cq(r.b.cq, 1), 0);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
    cr_assert_eq(wait_readable(r.b.channel->fd, 20), 0);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SOLICITED | IBV_SEND_SIGNALED);
    take_event(&r.b);
    rig_poll(&r.a, 1, &wc);
    rig_close(&r);
}

Test(verbs, no_event_when_nobody_waits_and_the_file_does_not_block)
{
    struct rig r;
    struct ibv_cq *cq;
    void *owner;
    struct ibv_async_event event;
    provider_control.reset(3);
    rig_open(&r);
    cr_assert_eq(fcntl(r.a.channel->fd, F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(ibv_get_cq_event(r.a.channel, &cq, &owner), -1);
    cr_assert_eq(errno, EAGAIN);
    cr_assert_eq(fcntl(r.a.context->async_fd, F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(ibv_get_async_event(r.a.context, &event), -1);
    cr_assert_eq(errno, EAGAIN);
    rig_close(&r);
}

static void expect_event(struct end *e, enum ibv_event_type type)
{
    struct ibv_async_event event;
    cr_assert_eq(wait_readable(e->context->async_fd, 5000), 1);
    cr_assert_eq(ibv_get_async_event(e->context, &event), 0);
    cr_assert_eq(event.event_type, type, "%s", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
}

Test(verbs, what_is_destroyed_leaves_nothing_to_read)
{
    struct rig r;
    struct ibv_wc wc;
    struct ibv_cq *cq;
    void *owner;
    provider_control.reset(3);
    rig_open(&r);
    rig_connect(&r);
    cr_assert_eq(fcntl(r.a.channel->fd, F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(ibv_req_notify_cq(r.a.cq, 0), 0);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    cr_assert_eq(wait_readable(r.a.channel->fd, 5000), 1);
    cr_assert_eq(ibv_destroy_qp(r.a.qp), 0);
    cr_assert_eq(ibv_poll_cq(r.a.cq, 1, &wc), 0, "a completion of a queue pair that is gone");
    cr_assert_eq(ibv_destroy_cq(r.a.cq), 0);
    cr_assert_eq(wait_readable(r.a.channel->fd, 0), 0);
    cr_assert_eq(ibv_get_cq_event(r.a.channel, &cq, &owner), -1, "an event of a completion queue that is gone");
    cr_assert_eq(provider_control.violations(NULL, 0), 0);
    provider_control.reset(3);
    free(r.a.bytes);
    free(r.b.bytes);
}

Test(verbs, who_may_only_receive_hears_of_the_first_message)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(3);
    rig_open(&r);
    rig_init(&r.a);
    rig_init(&r.b);
    rig_ready(&r.a);
    r.b.attr.qp_state = IBV_QPS_RTR;
    cr_assert_eq(ibv_modify_qp(r.b.qp, &r.b.attr, RIG_TO_RTR), 0);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    rig_poll(&r.a, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_SUCCESS);
    expect_event(&r.b, IBV_EVENT_COMM_EST);
    rig_close(&r);
}

/* Each end is a thread that sleeps between its messages. */
static void *pong(void *arg)
{
    struct rig *r = arg;
    for (unsigned i = 0; i < 200; i++) {
        struct ibv_wc wc;
        while (!ibv_poll_cq(r->b.cq, 1, &wc))
            if (!ibv_req_notify_cq(r->b.cq, 0) && !ibv_poll_cq(r->b.cq, 1, &wc))
                take_event(&r->b);
            else
                break;
        if (wc.status != IBV_WC_SUCCESS || r->b.bytes[i] != (unsigned char)(i + 1))
            return r;
        rig_recv(&r->b, 1);
    }
    return NULL;
}

Test(verbs, two_threads_meet_by_events)
{
    struct rig r;
    struct ibv_wc wc;
    pthread_t other;
    void *wrong = NULL;
    provider_control.reset(5);
    rig_open(&r);
    r.a.attr.rnr_retry = 7; /* the other end may be slow */
    rig_connect(&r);
    rig_recv(&r.b, 1);
    cr_assert_eq(pthread_create(&other, NULL, pong, &r), 0);
    for (unsigned i = 0; i < 200; i++) {
        r.a.bytes[i] = (unsigned char)(i + 1);
        rig_send(&r.a, &r.b, i, 1, IBV_WR_RDMA_WRITE, 0);
        rig_send(&r.a, &r.b, i, 0, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED);
        rig_poll(&r.a, 1, &wc);
        cr_assert_eq(wc.status, IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
    }
    pthread_join(other, &wrong);
    cr_assert_null(wrong);
    rig_close(&r);
}

/* ---- what fails ------------------------------------------------------------------------------------------------ */

static void make_v1(struct rig *r) { r->a.attr.ah_attr.grh.sgid_index = r->b.attr.ah_attr.grh.sgid_index = 1; }
static void spoil_psn(struct rig *r) { r->a.attr.sq_psn = 5; }
static void spoil_number(struct rig *r) { r->a.attr.dest_qp_num += 100; }
static void spoil_back(struct rig *r) { r->b.attr.dest_qp_num += 100; }
static void spoil_gid(struct rig *r) { r->a.attr.ah_attr.grh.dgid.raw[15] = 77; }
static void spoil_type(struct rig *r) { r->a.attr.ah_attr.grh.sgid_index = 2; }
static void spoil_own_gid(struct rig *r) { r->a.attr.ah_attr.grh.sgid_index = 1; }
static void spoil_mtu(struct rig *r) { r->a.attr.path_mtu = IBV_MTU_512; }

/* One send and three behind it, which nobody answers. */
static void expect_unanswered(struct rig *r)
{
    struct ibv_wc wc[4];
    for (size_t i = 0; i < 4; i++)
        rig_send(&r->a, &r->b, i, 1, i < 3 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i == 2 ? IBV_SEND_SIGNALED : 0);
    rig_poll(&r->a, 4, wc);
    for (size_t i = 0; i < 4; i++) {
        const enum ibv_wc_status status = i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
        cr_assert_eq(wc[i].status, status, "%zu: %s", i, ibv_wc_status_str(wc[i].status));
        cr_assert_eq(wc[i].wr_id, i);
    }
    cr_assert_eq(counted().unanswered, 1);
    rig_close(r);
}

Test(verbs, a_wrong_connection_is_not_answered)
{
    static void (*const spoil[])(struct rig *) = {make_v1,   spoil_psn,  spoil_number,  spoil_back,
                                                  spoil_gid, spoil_type, spoil_own_gid, spoil_mtu};
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        struct rig r;
        provider_control.reset(i);
        rig_open(&r);
        spoil[i](&r);
        rig_connect(&r);
        expect_unanswered(&r);
    }
}

Test(verbs, a_wrong_lid_is_not_answered)
{
    struct rig r;
    provider_control.reset(1);
    shape(make_infiniband);
    rig_open(&r);
    r.a.attr.ah_attr.dlid = 7;
    rig_connect(&r);
    expect_unanswered(&r);
}

static void fall_silent(struct rig *r) { provider_control.silence(1, r->b.qp->qp_num, true); }
static void port_down(struct rig *r) { (void)r, provider_control.set_port(1, IBV_PORT_DOWN); }
static void not_yet(struct rig *r)
{
    cr_assert_eq(ibv_modify_qp(r->b.qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE), 0);
}
static void broken(struct rig *r)
{
    cr_assert_eq(ibv_modify_qp(r->b.qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
}
static void other_address(struct provider_world *w) { w->device[1].gid[RIG_GID].gid.raw[15] = 99; }
static void gid_changes(struct rig *r) { (void)r, shape(other_address); }

Test(verbs, an_end_that_goes_is_not_answered_for)
{
    static void (*const go[])(struct rig *) = {fall_silent, port_down, not_yet, broken, gid_changes};
    for (size_t i = 0; i < sizeof go / sizeof *go; i++) {
        struct rig r;
        provider_control.reset(i);
        rig_open(&r);
        rig_connect(&r);
        go[i](&r);
        expect_unanswered(&r);
    }
}

Test(verbs, a_short_silence_is_bridged)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(1);
    rig_open(&r);
    r.a.attr.timeout = 20;
    rig_connect(&r);
    provider_control.silence(1, 0, true);
    rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    for (int i = 0; i < 100; i++)
        pass(&r.a);
    provider_control.silence(1, 0, false);
    rig_poll(&r.a, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_SUCCESS);
    rig_close(&r);
}

Test(verbs, a_message_without_a_receive_is_tried_again_a_while)
{
    static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};
    for (unsigned i = 0; i < 6; i++) {
        struct rig r;
        struct ibv_wc wc;
        const bool late = i >= 3;
        provider_control.reset(i);
        rig_open(&r);
        r.a.attr.rnr_retry = late ? 7 : 2;
        rig_connect(&r);
        rig_send(&r.a, &r.b, 0, 10, ops[i % 3], IBV_SEND_SIGNALED);
        while (late && !counted().rnr)
            pass(&r.a);
        rig_recv(&r.b, late);
        rig_poll(&r.a, 1, &wc);
        cr_assert_eq(wc.status, late ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR);
        cr_assert(late ? counted().rnr : counted().rnr == 3);
        rig_close(&r);
    }
}

Test(verbs, a_receive_too_short_ends_both)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(1);
    rig_open(&r);
    rig_connect(&r);
    rig_recv(&r.b, 2);
    rig_send(&r.a, &r.b, 0, 1025, IBV_WR_SEND, 0);
    rig_poll(&r.a, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_REM_INV_REQ_ERR);
    rig_poll(&r.b, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_LOC_LEN_ERR);
    rig_poll(&r.b, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
    rig_close(&r);
}

Test(verbs, what_is_posted_to_a_queue_that_failed_is_flushed)
{
    struct rig r;
    struct ibv_wc wc[2];
    provider_control.reset(1);
    rig_open(&r);
    rig_connect(&r);
    broken(&r);
    rig_recv(&r.b, 1);
    rig_send(&r.b, &r.a, 0, 8, IBV_WR_RDMA_WRITE, 0);
    rig_poll(&r.b, 2, wc);
    cr_assert(wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[1].status == IBV_WC_WR_FLUSH_ERR);
    rig_close(&r);
}

Test(verbs, the_nth_completion_fails_as_asked)
{
    for (uint64_t nth = 1; nth <= 4; nth++) {
        struct rig r;
        struct ibv_wc wc[2];
        provider_control.reset(nth);
        rig_open(&r);
        rig_connect(&r);
        rig_recv(&r.b, 1);
        provider_control.fail_completion(nth, IBV_WC_GENERAL_ERR);
        rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE, 0);
        rig_send(&r.a, &r.b, 0, 100, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED);
        rig_poll(&r.a, nth == 1 ? 2 : 1, wc); /* the write, the receive, the message */
        static const enum ibv_wc_status status[] = {IBV_WC_GENERAL_ERR, IBV_WC_REM_OP_ERR, IBV_WC_GENERAL_ERR,
                                                    IBV_WC_SUCCESS};
        cr_assert_eq(wc[0].status, status[nth - 1]);
        rig_close(&r);
    }
}

Test(verbs, the_nth_call_fails_as_asked)
{
    struct rig r;
    struct ibv_wc wc;
    struct ibv_send_wr *bad = NULL;
    provider_control.reset(1);
    rig_open(&r);
    rig_connect(&r);
    cr_assert(!provider_control.fail_call("ibv_nonsense", 1, 1, EIO));
    cr_assert(provider_control.fail_call("ibv_reg_mr", 2, 1, ENOMEM));
    struct ibv_mr *mr = ibv_reg_mr(r.a.pd, r.a.bytes, 10, 0);
    cr_assert(mr && !ibv_reg_mr(r.a.pd, r.a.bytes, 10, 0) && errno == ENOMEM);
    cr_assert_eq(provider_control.calls("ibv_reg_mr"), 4);
    cr_assert(provider_control.fail_call("ibv_post_send", 1, 2, EIO));
    cr_assert(provider_control.fail_call("ibv_poll_cq", 1, 1, EIO));
    struct ibv_sge sge = rig_sge(&r.a, 0, 1);
    struct ibv_send_wr wr = rig_wr(&r.b, 0, &sge, IBV_WR_RDMA_WRITE, 0);
    cr_assert(ibv_post_send(r.a.qp, &wr, &bad) == EIO && bad == &wr);
    cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), EIO);
    cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
    cr_assert(ibv_poll_cq(r.a.cq, 1, &wc) < 0);
    cr_assert(provider_control.fail_call("ibv_destroy_qp", 1, 0, EBUSY));
    cr_assert(ibv_destroy_qp(r.b.qp) == EBUSY && ibv_destroy_qp(r.b.qp) == EBUSY);
    cr_assert_gt(provider_control.reset(1), 8, "the objects that were left");
    free(r.a.bytes);
    free(r.b.bytes);
    rig_expect_clean();
}

Test(verbs, events_of_a_device_reach_its_contexts)
{
    struct rig r;
    struct ibv_wc wc;
    provider_control.reset(1);
    rig_open(&r);
    rig_connect(&r);
    provider_control.set_port(0, IBV_PORT_DOWN);
    expect_event(&r.a, IBV_EVENT_PORT_ERR);
    provider_control.set_port(0, IBV_PORT_ACTIVE);
    expect_event(&r.a, IBV_EVENT_PORT_ACTIVE);
    provider_control.raise(0, IBV_EVENT_GID_CHANGE);
    expect_event(&r.a, IBV_EVENT_GID_CHANGE);
    cr_assert_eq(wait_readable(r.b.context->async_fd, 0), 0);
    rig_recv(&r.a, 1);
    provider_control.raise(0, IBV_EVENT_DEVICE_FATAL);
    expect_event(&r.a, IBV_EVENT_DEVICE_FATAL);
    rig_poll(&r.a, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
    cr_assert(!ibv_alloc_pd(r.a.context) && errno == EIO);
    rig_close(&r);
}

/* ---- other worlds ---------------------------------------------------------------------------------------------- */

static void make_empty(struct provider_world *w) { w->devices = 0; }
static void make_closed(struct provider_world *w) { w->device[0].open_error = EACCES; }
static void make_poor(struct provider_world *w) { w->device[0].locked_memory = 3 * 4096; }
static void make_old(struct provider_world *w) { w->device[0].relaxed_ordering = false; }

Test(verbs, no_devices_or_none_that_opens)
{
    int n = -1;
    provider_control.reset(1);
    shape(make_empty);
    struct ibv_device **list = ibv_get_device_list(&n);
    cr_assert(list && !list[0] && !n);
    ibv_free_device_list(list);
    provider_control.reset(1);
    shape(make_closed);
    list = ibv_get_device_list(&n);
    cr_assert(n == 2 && !strcmp(ibv_get_device_name(list[0]), "test0"));
    cr_assert(!ibv_open_device(list[0]) && errno == EACCES);
    ibv_free_device_list(list);
    rig_expect_clean();
}

Test(verbs, ports_and_their_gids)
{
    struct rig r;
    struct ibv_gid_entry entries[PROVIDER_GIDS];
    struct ibv_port_attr port;
    union ibv_gid gid;
    provider_control.reset(1);
    rig_open(&r);
    cr_assert_eq(ibv_query_port(r.a.context, 1, &port), 0);
    cr_assert(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    cr_assert_eq(ibv_query_gid_table(r.a.context, entries, 3, 0), -EINVAL);
    cr_assert_eq(ibv_query_gid_table(r.a.context, entries, PROVIDER_GIDS, 0), 4);
    cr_assert(entries[3].gid_index == 3 && entries[3].gid_type == IBV_GID_TYPE_ROCE_V2);
    cr_assert(!ibv_query_gid(r.a.context, 1, 3, &gid) && !memcmp(&gid, &entries[3].gid, sizeof gid));
    cr_assert(!ibv_query_gid(r.a.context, 1, 4, &gid) && !gid.raw[15]);
    shape(make_infiniband);
    cr_assert(!ibv_query_port(r.a.context, 1, &port) && port.link_layer == IBV_LINK_LAYER_INFINIBAND && port.lid == 1);
    cr_assert_eq(ibv_query_gid_table(r.a.context, entries, PROVIDER_GIDS, 0), 4);
    cr_assert_eq(entries[3].gid_type, IBV_GID_TYPE_IB);
    rig_close(&r);
}

Test(verbs, memory_that_may_be_locked_ends)
{
    unsigned char *at = NULL;
    struct rig r;
    provider_control.reset(1);
    rig_open(&r);
    shape(make_poor);
    cr_assert(!ibv_reg_mr(r.a.pd, r.a.bytes, 1, 0) && errno == ENOMEM);
    cr_assert_eq(posix_memalign((void **)&at, 4096, 4096), 0);
    cr_assert_eq(ibv_dereg_mr(r.a.mr), 0);
    cr_assert_eq(ibv_dereg_mr(r.b.mr), 0);
    r.a.mr = ibv_reg_mr(r.a.pd, at + 4000, 1, 0);
    struct ibv_mr *second = ibv_reg_mr(r.a.pd, at, 4096, 0);
    r.b.mr = ibv_reg_mr(r.b.pd, r.b.bytes, 1, 0);
    cr_assert(r.a.mr && second && r.b.mr);
    cr_assert(!ibv_reg_mr(r.a.pd, at, 1, 0) && errno == ENOMEM);
    cr_assert_eq(ibv_dereg_mr(second), 0);
    rig_close(&r);
    free(at);
}

Test(verbs, relaxed_ordering_is_left_out_where_it_is_not_known)
{
    struct rig r;
    provider_control.reset(1);
    rig_open(&r);
    for (unsigned i = 0; i < 2; i++) {
        struct ibv_mr *mr =
            ibv_reg_mr_iova2(r.a.pd, r.a.bytes, 10, (uintptr_t)r.a.bytes, RIG_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
        cr_assert(mr);
        cr_assert_eq(counted().relaxed, 1);
        cr_assert_eq(ibv_dereg_mr(mr), 0);
        shape(make_old);
    }
    rig_close(&r);
}
