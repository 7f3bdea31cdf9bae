/* SPDX-License-Identifier: Apache-2.0 */
/* verbs - links over reliable queue pairs of RoCE and InfiniBand devices: the transport's table, and its contexts.
 *
 * A context opens the devices that RING_IB_HCA allows, with a protection domain and one completion queue for each, from
 * which completions are taken in batches.  A completion says by a number whose it is; what belongs to a queue pair that
 * is gone is passed over.  Before a sleep the queues are asked for an event, and looked at once more; the descriptor
 * that a sleeper polls has their channels, the devices' asynchronous events and the links' sockets.
 *
 * Memory: a window for each link (link.h), registered with the devices that it uses.  Threads: calls for one context
 * never run at the same time, and contexts share nothing but the library (api.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "transports/verbs/ctx.h"
#include "transports/verbs/flush.h"
#include "transports/verbs/ports.h"

enum {
    BATCH = 32,            /* completions taken at a time                                        */
    EVENTS = 32,           /* of the descriptor that sleepers poll, looked at in one go          */
    BUSY_ROUNDS = 1 << 12, /* of progress() between looks at sockets; who sleeps looks before    */
    ENTRIES_LEAST = 64,    /* of the table of lanes                                              */
    LINK_EVENT = 1,
    CHANNEL_EVENT,
    DEVICE_EVENT,
    EVENT_BITS = 2,
};
#define FLUSH_TIME (10 * RI_MILLISECOND)
#define FEEL_TIME (200 * RI_MILLISECOND)

/* ---- who completions belong to --------------------------------------------------------------------------------- */

static ring_status_t grow(struct verbs_ctx *c)
{
    const uint32_t count = c->entry_count ? 2 * c->entry_count : ENTRIES_LEAST;
    struct verbs_entry *entries = count <= VERBS_FLUSH_INDEX ? ri_new(count, sizeof *entries) : NULL;
    if (!entries)
        return ri_fail(RING_ERR_NOMEM, "no memory for a table of %u queue pairs", count);
    if (c->entry_count)
        memcpy(entries, c->entries, c->entry_count * sizeof *entries);
    ri_free(c->entries);
    c->entries = entries;
    c->entry_count = count;
    return RING_OK;
}

/* As many completions as requests: a queue that overflows is lost. */
ring_status_t verbs_ctx_room(struct verbs_rail *rail, int completions)
{
    const int need = rail->cq_taken + completions;
    const int room = need > 2 * rail->cq_room ? need : 2 * rail->cq_room;
    if (need > rail->cq_room) {
        const int error = rail->api->resize_cq(rail->cq, room);
        errno = error;
        if (error)
            return ri_fail_errno("a completion queue of %d entries on %s", room, rail->name);
        rail->cq_room = room;
    }
    rail->cq_taken = need;
    return RING_OK;
}

ring_status_t verbs_ctx_enter(struct verbs_ctx *c, struct verbs_lane *lane)
{
    uint32_t i = 0;
    while (i < c->entry_count && c->entries[i].lane)
        i++;
    ring_status_t status = i == c->entry_count ? grow(c) : RING_OK;
    if (!status)
        status = verbs_ctx_room(lane->rail, LANE_SENDS + LANE_RECEIVES);
    if (status)
        return status;
    c->entries[i].lane = lane;
    lane->id = ++c->entries[i].generation << 16 | i;
    return RING_OK;
}

void verbs_ctx_leave(struct verbs_ctx *c, struct verbs_lane *lane)
{
    const uint32_t i = lane->id & UINT16_MAX;
    if (i >= c->entry_count || c->entries[i].lane != lane)
        return;
    c->entries[i].lane = NULL;
    lane->rail->cq_taken -= LANE_SENDS + LANE_RECEIVES;
}

static struct verbs_lane *lane_of(const struct verbs_ctx *c, uint64_t wr_id)
{
    const uint32_t id = (uint32_t)(wr_id >> 32), i = id & UINT16_MAX;
    struct verbs_lane *lane = i < c->entry_count ? c->entries[i].lane : NULL;
    return lane && lane->id == id ? lane : NULL;
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

/* Another way may do better; other failures say that something is wrong. */
static bool of_the_way(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
           status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_REM_ABORT_ERR || status == IBV_WC_FATAL_ERR ||
           status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_REM_OP_ERR || status == IBV_WC_GENERAL_ERR;
}

static void failed(struct verbs_lane *lane, const struct ibv_wc *wc)
{
    char why[160];
    struct verbs_link *l = lane->link;
    const bool shut = wc->status == IBV_WC_RETRY_EXC_ERR && !lane->heard && !lane->complete;
    if (l->broken || lane->stopped)
        return;
    snprintf(why, sizeof why, "%s (status %d, vendor %#x)%s", lane->rail->api->wc_status_str(wc->status),
             (int)wc->status, wc->vendor_err,
             shut ? "; nothing ever came through there; RING_TRANSPORT=shm,tcp goes without" : "");
    if (of_the_way(wc->status))
        verbs_move_lose(l, lane->rail_at, why);
    else
        verbs_link_fail(l, lane->rail, why);
}

/* A consequence.  The reason may be in an event that nobody has read, or in a completion of the other queue. */
static void flushed(struct verbs_lane *lane)
{
    struct verbs_link *l = lane->link;
    if (l->broken || lane->stopped || lane->flushed)
        return;
    lane->flushed = true;
    if (!l->flushed++)
        l->flush_deadline = ri_deadline(FLUSH_TIME);
    verbs_ctx_list(l);
}

static void await_reason(struct verbs_link *l)
{
    const struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
    const bool late = ri_now() >= l->flush_deadline;
    for (uint32_t i = 0; i < l->lanes; i++) {
        struct verbs_lane *lane = &l->lane[i];
        if (!lane->flushed)
            continue;
        verbs_ports_trouble(verbs_ctx_of(l), lane->rail);
        if (late)
            failed(lane, &wc);
        lane->flushed = !late;
    }
    l->flushed = late ? 0 : l->flushed;
}

static void received(struct verbs_lane *lane, const struct ibv_wc *wc)
{
    const uint32_t at = (uint32_t)wc->wr_id & 0x7fffffff;
    const uint32_t word = wc->wc_flags & IBV_WC_WITH_IMM ? wc->imm_data : lane->words[at % LANE_RECEIVES];
    if (lane->link->broken)
        return;
    if (!lane->stopped && !verbs_lane_receive(lane, at % LANE_RECEIVES))
        verbs_link_refused(lane, "a receive request");
    lane->heard++;
    if (!verbs_link_told(lane, ntohl(word)))
        verbs_link_break(lane->link, "the peer says what cannot be");
    verbs_ctx_list(lane->link);
}

/* The low bits of a place, and the place that was posted last. */
static uint64_t place_of(const struct verbs_lane *lane, uint64_t wr_id)
{
    return lane->posted - (((uint32_t)lane->posted - (uint32_t)wr_id) & 0x7fffffff);
}

/* False: it is no news. */
static bool complete(struct verbs_ctx *c, const struct ibv_wc *wc)
{
    struct verbs_lane *lane = lane_of(c, wc->wr_id);
    if (!lane) {
        verbs_flush_complete(c, wc);
        return true;
    }
    const bool receive = wc->wr_id >> 31 & 1;
    lane->receives -= receive;
    if (wc->status == IBV_WC_WR_FLUSH_ERR)
        flushed(lane);
    else if (wc->status != IBV_WC_SUCCESS)
        failed(lane, wc);
    else if (receive)
        received(lane, wc);
    else
        return verbs_link_sent(lane, place_of(lane, wc->wr_id) + 1);
    return true;
}

static unsigned poll_rail(struct verbs_ctx *c, struct verbs_rail *rail)
{
    struct ibv_wc wc[BATCH];
    unsigned all = 0;
    int n;
    do {
        n = ibv_poll_cq(rail->cq, BATCH, wc);
        for (int i = 0; i < n; i++)
            all += complete(c, &wc[i]);
    } while (n == BATCH);
    if (n < 0)
        verbs_ports_break(c, rail, "its completion queue cannot be read");
    return all;
}

static unsigned poll_all(struct verbs_ctx *c)
{
    unsigned moved = 0;
    for (uint32_t r = 0; r < c->rails; r++)
        moved += poll_rail(c, &c->rail[r]);
    return moved;
}

/* ---- memory of the caller's ------------------------------------------------------------------------------------ */

bool verbs_ctx_key(struct verbs_link *l, struct verbs_rail *rail, const void *at, size_t bytes, uint32_t *key_out,
                   bool *gpu_out)
{
    struct verbs_ctx *c = verbs_ctx_of(l);
    const struct verbs_region *found = verbs_mr_find(&c->memory, c->base.memory, rail, at, bytes);
    if (!found)
        return false;
    *key_out = found->mr[rail->index]->lkey;
    *gpu_out = found->region.copy;
    return true;
}

bool verbs_ctx_landing_keys(struct verbs_link *l, const void *at, size_t bytes, uint32_t key_out[VERBS_RAILS],
                            bool *flush_out)
{
    struct verbs_ctx *c = verbs_ctx_of(l);
    for (uint32_t r = 0; r < l->rails; r++) {
        const struct verbs_region *found = verbs_mr_find(&c->memory, c->base.memory, l->rail[r], at, bytes);
        if (!found || (found->region.flush && !l->loss[r].lost && !verbs_flush_ready(l, r)))
            return false;
        key_out[r] = found->mr[l->rail[r]->index]->rkey;
        *flush_out = found->region.flush;
    }
    return true;
}

bool verbs_ctx_copy(struct verbs_link *l, const void *buffer, void *to, const void *from, size_t bytes)
{
    if (!verbs_mr_copy(l->base.ctx->memory, buffer, to, from, bytes))
        return true;
    ri_log(RI_LOG_WARN, "%s: the link to %s is lost", ri_error_get(), l->base.peer.name);
    verbs_link_break(l, ri_error_get());
    return false;
}

/* ---- contexts -------------------------------------------------------------------------------------------------- */

static uint64_t event_of(const void *what, int kind)
{
    return (uint64_t)(uintptr_t)what << EVENT_BITS | (uint64_t)kind;
}

static bool watch(const struct verbs_ctx *c, int fd, const void *what, int kind)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = event_of(what, kind)};
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK) && !epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
}

static ring_status_t open_ctx(struct ri_tctx *t)
{
    struct verbs_ctx *c = (struct verbs_ctx *)t;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0)
        return ri_fail_errno("epoll_create1 for the verbs transport");
    c->open = true;
    ring_status_t status = verbs_ports_open(c);
    for (uint32_t r = 0; r < c->rails && !status; r++) {
        const bool first = !r || c->rail[r].context != c->rail[r - 1].context;
        if (!watch(c, c->rail[r].channel->fd, &c->rail[r], CHANNEL_EVENT) ||
            (first && !watch(c, c->rail[r].context->async_fd, &c->rail[r], DEVICE_EVENT)))
            status = ri_fail_errno("the events of %s", c->rail[r].name);
    }
    return status;
}

static void close_ctx(struct ri_tctx *t)
{
    struct verbs_ctx *c = (struct verbs_ctx *)t;
    if (!c->open)
        return;
    if (c->rails)
        verbs_mr_clear(&c->memory, c->rail);
    verbs_ports_close(c);
    close(c->epoll);
    ri_free(c->entries);
    c->entries = NULL;
    c->open = false;
}

/* ---- links ----------------------------------------------------------------------------------------------------- */

void verbs_ctx_list(struct verbs_link *l)
{
    struct verbs_ctx *c = verbs_ctx_of(l);
    if (l->listed)
        return;
    l->listed = true;
    l->next = c->active;
    c->active = l;
}

static void unlist(struct verbs_link *l)
{
    struct verbs_link **at = &verbs_ctx_of(l)->active;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->listed = false;
}

static ring_status_t connect_link(struct ri_link *base, const int *fds, uint32_t count)
{
    struct verbs_link *l = (struct verbs_link *)base;
    for (uint32_t i = 1; i < count; i++)
        close(fds[i]);
    l->fd = count ? fds[0] : -1;
    l->has_fd = count;
    if (count != 1)
        return ri_fail(RING_ERR_INVALID, "a verbs link takes 1 socket, not %u", count);
    if (!watch(verbs_ctx_of(l), l->fd, l, LINK_EVENT))
        return ri_fail_errno("the socket of a verbs link to %s", base->peer.name);
    const ring_status_t status = verbs_greet_begin(l);
    if (!status)
        verbs_ctx_list(l);
    return status;
}

/* Queue pairs go first: nothing is written to the window, or read from it, after that. */
static void disconnect(struct ri_link *base)
{
    struct verbs_link *l = (struct verbs_link *)base;
    if (l->has_fd && l->greeting)
        verbs_greet_goodbye(l);
    if (l->listed) /* also by a goodbye that nobody takes */
        unlist(l);
    bool wild = false;
    for (uint32_t i = 0; i < l->lanes; i++) {
        verbs_ctx_leave(verbs_ctx_of(l), &l->lane[i]);
        verbs_lane_fini(&l->lane[i]);
        wild |= l->lane[i].wild;
    }
    verbs_flush_forget(l);
    for (uint32_t r = 0; r < l->rails; r++)
        if (l->window_mr[r])
            (void)l->rail[r]->api->dereg_mr(l->window_mr[r]);
    if (l->has_fd) {
        epoll_ctl(verbs_ctx_of(l)->epoll, EPOLL_CTL_DEL, l->fd, NULL);
        shutdown(l->fd, SHUT_RDWR);
        close(l->fd);
    }
    verbs_greet_fini(l);
    if (wild)
        ri_log(RI_LOG_WARN, "a queue pair to %s could not be destroyed: its memory is not used again",
               l->base.peer.name);
    else
        ri_free(l->window);
    ri_free(l->lane);
    *l = (struct verbs_link){.base = l->base};
}

static void post(struct verbs_link *l, struct ri_queue *q, struct ri_xfer **next, struct ri_xfer *x)
{
    x->moved = 0;
    x->held = 0;
    ri_queue_put(q, x);
    if (!*next)
        *next = x;
    verbs_ctx_of(l)->posted = true;
    verbs_ctx_list(l);
}

static void post_send(struct ri_link *base, struct ri_xfer *x)
{
    struct verbs_link *l = (struct verbs_link *)base;
    post(l, &l->out, &l->next_out, x);
}

static void post_recv(struct ri_link *base, struct ri_xfer *x)
{
    struct verbs_link *l = (struct verbs_link *)base;
    if (!l->next_grant)
        l->granted_for = 0;
    post(l, &l->in, &l->next_grant, x);
}

/* ---- looking --------------------------------------------------------------------------------------------------- */

static void feel_links(struct verbs_ctx *c)
{
    const uint64_t now = ri_now();
    if (now < c->feel)
        return;
    c->feel = now + FEEL_TIME;
    for (struct verbs_link *l = c->active; l; l = l->next)
        verbs_link_feel(l);
}

/* Take in what sockets, channels and devices have to say. */
static unsigned look(struct verbs_ctx *c)
{
    struct epoll_event e[EVENTS];
    const int n = epoll_wait(c->epoll, e, EVENTS, 0);
    unsigned news = 0; /* of a channel: completions are, see complete() */
    for (int i = 0; i < n; i++) {
        void *what = (void *)(uintptr_t)(e[i].data.u64 >> EVENT_BITS);
        const int kind = (int)(e[i].data.u64 & ((1 << EVENT_BITS) - 1));
        news += kind != CHANNEL_EVENT;
        if (kind == LINK_EVENT)
            verbs_ctx_list(what);
        if (kind == LINK_EVENT && ((struct verbs_link *)what)->stage == VERBS_UP)
            verbs_greet_listen(what);
        if (kind == CHANNEL_EVENT)
            verbs_ports_event(what);
        if (kind == DEVICE_EVENT)
            verbs_ports_trouble(c, what);
    }
    feel_links(c);
    return news;
}

/* A link whose end has been heard is not waited for any more. */
static void settle(struct verbs_link *l)
{
    if ((l->broken || l->ended) && l->watched_out == false) {
        epoll_ctl(verbs_ctx_of(l)->epoll, EPOLL_CTL_DEL, l->fd, NULL);
        l->watched_out = true;
    }
}

static bool is_at_rest(const struct verbs_link *l)
{
    return !l->in.head && !l->out.head &&
           (l->broken || (l->stage == VERBS_UP && !l->moving && !l->flushed && !l->greeting->out_len));
}

static unsigned progress(struct ri_tctx *t, struct ri_queue *done)
{
    struct verbs_ctx *c = (struct verbs_ctx *)t;
    unsigned moved = poll_all(c);
    c->posted = false;
    if (!(++c->rounds % BUSY_ROUNDS))
        moved += look(c);
    for (struct verbs_link *l = c->active, *next; l; l = next) {
        next = l->next;
        if (l->flushed && !l->broken)
            await_reason(l);
        if (l->stage != VERBS_UP && !l->broken)
            moved += verbs_greet(l);
        else if (l->greeting->out_len)
            moved += verbs_greet_speak(l);
        moved += verbs_link_move(l, done);
        settle(l);
        if (is_at_rest(l))
            unlist(l);
    }
    return moved;
}

/* ---- sleeping -------------------------------------------------------------------------------------------------- */

static bool arm(struct ri_tctx *t)
{
    struct verbs_ctx *c = (struct verbs_ctx *)t;
    if (c->posted)
        return false;
    for (uint32_t r = 0; r < c->rails; r++)
        if (ibv_req_notify_cq(c->rail[r].cq, 0))
            return false;
    if (poll_all(c))
        return false;
    for (struct verbs_link *l = c->active; l; l = l->next)
        if (l->broken || l->ended || verbs_move_is_due(l) || l->flushed || l->greeting->out_len)
            return false;
    return true;
}

static int wait_fd(struct ri_tctx *t) { return ((struct verbs_ctx *)t)->epoll; }

static void disarm(struct ri_tctx *t) { (void)look((struct verbs_ctx *)t); }

/* ---- the table ------------------------------------------------------------------------------------------------- */

static uint32_t sockets(const struct ri_conf *conf)
{
    (void)conf;
    return 1;
}

static bool cost(const struct ri_conf *conf, const struct ri_end *self, const struct ri_end *peer, uint32_t *latency_ns,
                 uint32_t *byte_ps)
{
    (void)conf;
    (void)self;
    (void)peer;
    *latency_ns = 3000;
    *byte_ps = 85;
    return true;
}

const struct ri_transport ri_transport_verbs = {
    .abi = RI_TRANSPORT_ABI,
    .name = "verbs",
    .help = "queue pairs of RoCE and InfiniBand devices, between hosts",
    .ctx_size = sizeof(struct verbs_ctx),
    .link_size = sizeof(struct verbs_link),
    .rendezvous = RI_RENDEZVOUS_TCP,
    .usable = verbs_ports_usable,
    .blocked = verbs_ports_blocked,
    .explain = verbs_ports_explain,
    .sockets = sockets,
    .cost = cost,
    .open = open_ctx,
    .close = close_ctx,
    .connect = connect_link,
    .disconnect = disconnect,
    .send = post_send,
    .recv = post_recv,
    .progress = progress,
    .arm = arm,
    .wait_fd = wait_fd,
    .disarm = disarm,
};
