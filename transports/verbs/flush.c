/* SPDX-License-Identifier: Apache-2.0 */
/* flush.c - see flush.h. */
#include "transports/verbs/flush.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "transports/verbs/meet.h"

enum { READS = 64, PAGE = 4096 }; /* READS: under way, a power of two */

/* Reads have numbers, which go on when the queue pair is another one; place i is that of those that are i modulo READS.
 * `byte` has a page of its own: a library that is told of forks takes registered pages away from children. */
struct verbs_flush {
    _Alignas(PAGE) unsigned char byte;
    _Alignas(PAGE) struct verbs_lane lane; /* not one of a link's */
    struct ibv_mr *mr;                     /* of byte */
    bool up, refused;
    uint32_t posted, done;
    struct {
        struct verbs_link *link; /* NULL: it is gone */
        struct verbs_landing *landing;
    } place[READS];
};

/* ---- the queue pair -------------------------------------------------------------------------------------------- */

/* The way of the link's packets, but back to this port; false: its address is gone. */
static bool own_route(const struct verbs_link *l, uint32_t r, struct verbs_route *route_out)
{
    const struct verbs_end *end = &verbs_ctx_of(l)->port[l->rail[r]->index]->end;
    unsigned i = 0;
    *route_out = l->route[r];
    route_out->peer_lid = end->lid;
    while (i < end->gids && end->gid[i].index != route_out->gid_index)
        i++;
    if (i < end->gids)
        memcpy(route_out->peer_gid.raw, end->gid[i].gid, sizeof route_out->peer_gid.raw);
    return i < end->gids || !route_out->global;
}

static ring_status_t make_pair(struct verbs_lane *lane, const struct verbs_link *l, uint32_t r)
{
    struct verbs_route route;
    const struct verbs_rail *rail = lane->rail;
    struct ibv_qp_init_attr attr = {
        .send_cq = rail->cq,
        .recv_cq = rail->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = READS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = rail->port, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    lane->qp = rail->api->create_qp(rail->pd, &attr);
    if (!lane->qp)
        return ri_fail_errno("a queue pair on %s", rail->name);
    errno = rail->api->modify_qp(lane->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (errno)
        return ri_fail_errno("a queue pair on %s: to INIT", rail->name);
    if (!own_route(l, r, &route))
        return ri_fail(RING_ERR_UNSUPPORTED, "its address is gone");
    lane->psn = verbs_meet_psn();
    return verbs_lane_connect(lane, &route, lane->qp->qp_num, lane->psn, l->base.ctx->conf);
}

/* What stays when the queue pair is another one. */
static ring_status_t make_rest(struct verbs_flush *f, struct verbs_rail *rail)
{
    f->lane.rail = rail;
    f->mr = rail->api->reg_mr(rail->pd, &f->byte, PAGE, IBV_ACCESS_LOCAL_WRITE);
    return f->mr ? verbs_ctx_room(rail, READS) : verbs_meet_no_memory(rail, PAGE);
}

bool verbs_flush_ready(struct verbs_link *l, uint32_t r)
{
    struct verbs_rail *rail = l->rail[r];
    if (!rail->flush)
        rail->flush = ri_new_aligned(PAGE, sizeof *rail->flush);
    struct verbs_flush *f = rail->flush;
    if (!f || f->up || f->refused)
        return f && f->up;
    verbs_lane_fini(&f->lane); /* one that has failed */
    ring_status_t status = f->mr ? RING_OK : make_rest(f, rail);
    if (!status)
        status = make_pair(&f->lane, l, r);
    f->up = !status;
    f->refused = status;
    if (status)
        ri_log(RI_LOG_INFO, "what peers write to memory of GPUs is copied, for %s cannot flush it: %s", rail->name,
               ri_error_get());
    return f->up;
}

void verbs_flush_close(struct verbs_rail *rail)
{
    struct verbs_flush *f = rail->flush;
    if (!f)
        return;
    verbs_lane_fini(&f->lane);
    if (f->mr)
        (void)rail->api->dereg_mr(f->mr);
    ri_free(f);
    rail->flush = NULL;
}

/* ---- reads ----------------------------------------------------------------------------------------------------- */

static void lose(struct verbs_link *l, const struct verbs_rail *rail, const char *text)
{
    char what[RI_LINK_WHY];
    snprintf(what, sizeof what, "memory of a GPU is not flushed: %s", text);
    verbs_link_fail(l, rail, what);
}

static bool post(struct verbs_flush *f, struct verbs_link *l, uint32_t r, struct verbs_landing *landing)
{
    const struct verbs_grant *g = &l->window->grant[landing - l->landing];
    struct ibv_sge byte = {.addr = (uintptr_t)&f->byte, .length = 1, .lkey = f->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)(f->lane.rail->index << 16 | VERBS_FLUSH_INDEX) << 32 | f->posted,
                                   .sg_list = &byte,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = g->at + g->bytes - 1, .rkey = g->key[r]}};
    errno = ibv_post_send(f->lane.qp, &wr, &bad);
    if (errno)
        return false;
    f->place[f->posted % READS].link = l;
    f->place[f->posted % READS].landing = landing;
    f->posted++;
    return true;
}

/* As many as there is room for. */
static void begin(struct verbs_link *l, struct verbs_landing *landing)
{
    for (uint32_t bits = landing->unread; bits && !l->broken; bits &= bits - 1) {
        const uint32_t r = (uint32_t)__builtin_ctz(bits);
        const bool ready = verbs_flush_ready(l, r);
        struct verbs_flush *f = l->rail[r]->flush;
        if (!ready) {
            lose(l, l->rail[r], "its queue pair for that is gone");
        } else if (f->posted - f->done == READS) {
            continue;
        } else if (!post(f, l, r, landing)) {
            lose(l, l->rail[r], strerror(errno));
        } else {
            landing->unread &= ~(1u << r);
            landing->reads++;
        }
    }
}

void verbs_flush_heard(struct verbs_lane *lane, struct verbs_landing *landing)
{
    landing->unread |= 1u << lane->rail_at;
    if (landing->parts)
        return;
    lane->link->flushing++;
    begin(lane->link, landing);
}

bool verbs_flush_done(struct verbs_link *l, struct verbs_landing *landing)
{
    begin(l, landing);
    return !landing->unread && !landing->reads;
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

static void arrived(struct verbs_link *l, struct verbs_landing *landing)
{
    landing->reads--;
    if (landing->reads || landing->unread)
        return;
    l->flushing--;
    verbs_ctx_list(l);
}

/* What was under way beside it is not done either. */
static void failed(struct verbs_flush *f, const char *text)
{
    f->up = false;
    verbs_lane_stop(&f->lane);
    for (; f->done != f->posted; f->done++)
        if (f->place[f->done % READS].link)
            lose(f->place[f->done % READS].link, f->lane.rail, text);
}

void verbs_flush_complete(struct verbs_ctx *c, const struct ibv_wc *wc)
{
    const uint32_t id = (uint32_t)(wc->wr_id >> 32), number = (uint32_t)wc->wr_id, at = id >> 16;
    struct verbs_flush *f = (id & UINT16_MAX) == VERBS_FLUSH_INDEX && at < c->rails ? c->rail[at].flush : NULL;
    if (!f || number - f->done >= f->posted - f->done) /* of a queue pair that is gone */
        return;
    if (wc->status != IBV_WC_SUCCESS) {
        failed(f, c->api->wc_status_str(wc->status));
        return;
    }
    for (; f->done != number + 1; f->done++)
        if (f->place[f->done % READS].link)
            arrived(f->place[f->done % READS].link, f->place[f->done % READS].landing);
}

void verbs_flush_forget(struct verbs_link *l)
{
    for (uint32_t r = 0; r < l->rails; r++) {
        struct verbs_flush *f = l->rail[r]->flush;
        for (uint32_t i = 0; f && i < READS; i++)
            if (f->place[i].link == l)
                f->place[i].link = NULL;
    }
}
