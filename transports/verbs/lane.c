/* SPDX-License-Identifier: Apache-2.0 */
/* lane.c - see lane.h. */
#include "transports/verbs/lane.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "lib/base/error.h"

enum { HOPS = 255, RNR_TIMER = 12, RNR_RETRY = 7, INLINES = 3 };

/* ---- making ---------------------------------------------------------------------------------------------------- */

/* The largest inline size that the device takes: it says so only by refusing. */
ring_status_t verbs_lane_init(struct verbs_lane *lane)
{
    static const uint32_t sizes[INLINES] = {220, 64, 0};
    const struct verbs_rail *rail = lane->rail;
    for (int i = 0; i < INLINES && !lane->qp; i++) {
        struct ibv_qp_init_attr attr = {.send_cq = rail->cq,
                                        .recv_cq = rail->cq,
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {.max_send_wr = LANE_SENDS,
                                                .max_recv_wr = LANE_RECEIVES,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = sizes[i]}};
        lane->qp = rail->api->create_qp(rail->pd, &attr);
        lane->inline_most = sizes[i];
    }
    if (!lane->qp)
        return ri_fail_errno("a queue pair on %s", rail->name);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = rail->port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    const int error =
        rail->api->modify_qp(lane->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error) {
        errno = error;
        return ri_fail_errno("a queue pair on %s: to INIT", rail->name);
    }
    for (uint32_t i = 0; i < LANE_RECEIVES; i++)
        if (!verbs_lane_receive(lane, i))
            return ri_fail_errno("receive requests on %s", rail->name);
    return RING_OK;
}

static struct ibv_ah_attr address_of(const struct verbs_rail *rail, const struct verbs_route *route,
                                     const struct ri_conf *conf)
{
    struct ibv_ah_attr ah = {.port_num = rail->port, .sl = (uint8_t)conf->ib_sl, .dlid = route->peer_lid};
    if (route->global) {
        ah.is_global = 1;
        ah.grh = (struct ibv_global_route){.dgid = route->peer_gid,
                                           .sgid_index = route->gid_index,
                                           .hop_limit = HOPS,
                                           .traffic_class = (uint8_t)conf->ib_tc};
    }
    return ah;
}

ring_status_t verbs_lane_connect(struct verbs_lane *lane, const struct verbs_route *route, uint32_t peer_qp,
                                 uint32_t peer_psn, const struct ri_conf *conf)
{
    const struct verbs_api *api = lane->rail->api;
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = route->mtu,
                              .dest_qp_num = peer_qp,
                              .rq_psn = peer_psn,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = RNR_TIMER,
                              .ah_attr = address_of(lane->rail, route, conf)};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .sq_psn = lane->psn,
                              .timeout = (uint8_t)conf->ib_timeout,
                              .retry_cnt = (uint8_t)conf->ib_retry_cnt,
                              .rnr_retry = RNR_RETRY,
                              .max_rd_atomic = 1};
    int error = api->modify_qp(lane->qp, &rtr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!error)
        error = api->modify_qp(lane->qp, &rts,
                               IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_MAX_QP_RD_ATOMIC);
    errno = error;
    return error ? ri_fail_errno("a queue pair on %s: to the peer's", lane->rail->name) : RING_OK;
}

bool verbs_lane_stop(struct verbs_lane *lane)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    lane->stopped = true;
    if (!lane->qp || !lane->rail->api->modify_qp(lane->qp, &attr, IBV_QP_STATE))
        return lane->qp;
    lane->wild = lane->rail->api->destroy_qp(lane->qp); /* else it would go on with what is given back */
    lane->qp = NULL;
    return false;
}

void verbs_lane_fini(struct verbs_lane *lane)
{
    if (verbs_lane_stop(lane))
        (void)lane->rail->api->destroy_qp(lane->qp);
    lane->qp = NULL;
}

/* ---- posting --------------------------------------------------------------------------------------------------- */

bool verbs_lane_receive(struct verbs_lane *lane, uint32_t at)
{
    struct ibv_sge word = {.addr = (uintptr_t)&lane->words[at], .length = LANE_WORD, .lkey = lane->words_key};
    struct ibv_recv_wr wr = {.wr_id = verbs_wr_id(lane, true, at), .sg_list = &word, .num_sge = !lane->rail->immediate};
    struct ibv_recv_wr *bad;
    const int error = ibv_post_recv(lane->qp, &wr, &bad);
    lane->receives += !error;
    errno = error;
    return !error;
}

/* What is told comes in the same request as the data, or in one of its own. */
static bool tells_apart(const struct verbs_lane *lane, const struct verbs_write *w)
{
    return w->tells && w->bytes && (!lane->rail->immediate || w->bytes >= lane->rail->fence_from);
}

/* Whole: it is the last request of what is written. */
static void take_place(struct verbs_lane *lane, struct ibv_send_wr *wr, const struct verbs_write *w, bool whole)
{
    const bool due = lane->posted + 1 - lane->signalled >= LANE_SIGNAL, signalled = whole && w->signalled;
    lane->told += whole && w->tells;
    lane->place[lane->posted % LANE_SENDS] = (struct verbs_place){.write = *w, .whole = whole, .told = lane->told};
    wr->wr_id = verbs_wr_id(lane, false, (uint32_t)lane->posted);
    lane->posted++;
    if (signalled || due) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        lane->signalled = lane->posted;
    }
}

static const uint32_t *keep_word(struct verbs_lane *lane, uint64_t place, uint32_t word)
{
    uint32_t *kept = &lane->words_out[place % LANE_SENDS];
    *kept = word;
    return kept;
}

bool verbs_lane_write(struct verbs_lane *lane, const struct verbs_write *w)
{
    const bool apart = tells_apart(lane, w), immediate = lane->rail->immediate;
    uint32_t word = htonl(w->immediate);
    struct ibv_sge data = {.addr = (uintptr_t)w->at, .length = (uint32_t)w->bytes, .lkey = w->key};
    struct ibv_sge text = {.addr = (uintptr_t)&word, .length = LANE_WORD, .lkey = lane->words_key};
    struct ibv_send_wr tell = {.num_sge = 0}, write = {.sg_list = &data, .num_sge = w->bytes ? 1 : 0}, *bad;
    write.opcode = w->tells && !apart && immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    write.wr.rdma.remote_addr = w->to;
    write.wr.rdma.rkey = w->to_key[lane->rail_at];
    write.imm_data = word;
    if (w->bytes && w->bytes <= lane->inline_most && !w->gpu)
        write.send_flags = IBV_SEND_INLINE;
    tell.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND;
    tell.imm_data = word;
    if (!immediate) {
        tell.sg_list = &text;
        tell.num_sge = 1;
        if (lane->inline_most < LANE_WORD)
            text.addr = (uintptr_t)keep_word(lane, lane->posted + apart, word);
        else
            tell.send_flags = IBV_SEND_INLINE;
    }
    const bool only_tells = w->tells && !w->bytes && !immediate;
    struct ibv_send_wr *first = only_tells ? &tell : &write;
    if (!only_tells)
        take_place(lane, &write, w, !apart);
    if (apart || only_tells)
        take_place(lane, &tell, w, true);
    write.next = apart ? &tell : NULL;
    const int error = ibv_post_send(lane->qp, first, &bad);
    errno = error;
    return !error;
}
