/* SPDX-License-Identifier: Apache-2.0 */
/* tcp - links over connected TCP sockets, RING_TCP_SOCKETS of them for each of RING_TCP_RAILS ways.
 *
 * Nothing but the messages' bytes goes over the wire.  send() and recv() only queue; progress() sends what has gathered
 * in one call and then receives.  A send is complete when the kernel has its bytes,
 * or has let go of them when they were not copied (zero.h).
 *
 * Looking for data costs a system call.  With few links under way a receive on each is the cheapest look there is; with
 * many, one epoll_wait() says which are worth one.  The same epoll set is what a sleeper polls.
 *
 * Failure.  A socket that ends or fails takes the link down: all its sockets are shut down, sends fail at once,
 * receives still get what the kernel already has and fail when that is used up.  A socket whose other end does not
 * answer any more (quiet.h) fails as well.
 *
 * Memory: the staging buffer of each socket (lane.h).  Threads: calls for one context never run at the same time, and
 * contexts share nothing. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "transports/tcp/lane.h"
#include "transports/tcp/quiet.h"

enum {
    FEW = 4,              /* links under way up to which each is asked directly                */
    EVENTS = 64,          /* looked at in one go                                               */
    BUSY_ROUNDS = 1 << 12 /* of progress() between looks at the clock; who sleeps looks before */
};

struct tcp_link {
    struct ri_link base;
    struct tcp_way out, in;
    struct tcp_lane lane[TCP_LANES];
    bool hung_up; /* no more sends; receives until the kernel has no more */
    bool active;  /* on the context's list: something is posted           */
    struct tcp_link *next;
};

struct tcp_ctx {
    struct ri_tctx base;
    bool open;
    int epoll;
    struct tcp_link *active;
    uint32_t actives, rounds;
    uint64_t next_check;
};

static struct tcp_ctx *ctx_of(const struct tcp_link *l) { return (struct tcp_ctx *)l->base.ctx; }

/* ---- facts ----------------------------------------------------------------------------------------------------- */

static bool usable(const struct ri_conf *conf, char *why_out, size_t cap)
{
    (void)conf;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int fd6 = fd < 0 ? socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0 && fd6 < 0) {
        snprintf(why_out, cap, "no TCP sockets: %s", strerror(errno));
        return false;
    }
    close(fd < 0 ? fd6 : fd);
    return true;
}

static uint32_t sockets(const struct ri_conf *conf) { return (uint32_t)(conf->tcp_sockets * conf->tcp_rails); }

static bool cost(const struct ri_conf *conf, const struct ri_end *self, const struct ri_end *peer, uint32_t *latency_ns,
                 uint32_t *byte_ps)
{
    (void)conf;
    *latency_ns = self->node == peer->node ? 10000 : 20000;
    *byte_ps = 350;
    return true;
}

/* ---- contexts -------------------------------------------------------------------------------------------------- */

static void available(char *text, size_t cap)
{
    text[0] = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");
    if (!f)
        return;
    if (!fgets(text, (int)cap, f))
        text[0] = 0;
    fclose(f);
    text[strcspn(text, "\n")] = 0;
}

static ring_status_t set_congestion(int fd, const char *name)
{
    char text[256];
    if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)))
        return RING_OK;
    const int error = errno;
    available(text, sizeof text);
    return ri_fail(RING_ERR_CONFIG, "RING_TCP_CONGESTION is \"%s\": %s; this machine has: %s", name,
                   error == EPERM ? "not allowed for this user (net.ipv4.tcp_allowed_congestion_control)"
                                  : strerror(error),
                   text[0] ? text : "(unknown)");
}

/* A wrong name is found here, before any peer is bothered. */
static ring_status_t check_congestion(const char *name)
{
    if (ri_conf_is_auto(name))
        return RING_OK;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return ri_fail_errno("a TCP socket");
    const ring_status_t status = set_congestion(fd, name);
    close(fd);
    return status;
}

static ring_status_t open_ctx(struct ri_tctx *t)
{
    struct tcp_ctx *c = (struct tcp_ctx *)t;
    const ring_status_t status = check_congestion(t->conf->tcp_congestion);
    if (status)
        return status;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0)
        return ri_fail_errno("epoll_create1 for the tcp transport");
    c->open = true;
    return RING_OK;
}

static void close_ctx(struct ri_tctx *t)
{
    struct tcp_ctx *c = (struct tcp_ctx *)t;
    if (c->open)
        close(c->epoll);
    c->open = false;
}

/* ---- links ----------------------------------------------------------------------------------------------------- */

static ring_status_t allow_zero_copy(struct tcp_lane *lane, const struct ri_conf *conf)
{
    const int on = 1;
    if (conf->tcp_zerocopy == RI_ZEROCOPY_OFF || setsockopt(lane->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on))
        return RING_OK;
    lane->zero = ri_new(1, sizeof *lane->zero);
    if (!lane->zero)
        return ri_fail(RING_ERR_NOMEM, "no memory for what a tcp socket sends without a copy");
    lane->zero->on = true;
    return RING_OK;
}

/* Buffer sizes are the kernel's business: its automatic tuning outgrows any fixed choice on long paths. */
static ring_status_t set_up(struct tcp_lane *lane, const struct ri_conf *conf)
{
    const int on = 1;
    const int flags = fcntl(lane->fd, F_GETFL);
    if (flags < 0 || fcntl(lane->fd, F_SETFL, flags | O_NONBLOCK))
        return ri_fail_errno("a socket of the tcp transport");
    if (setsockopt(lane->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        return ri_fail_errno("TCP_NODELAY");
    tcp_quiet_init(lane->fd);
    lane->staging = ri_new_aligned(64, TCP_STAGING);
    lane->ends = ri_new(1, TCP_ENDS_TEXT);
    if (!lane->staging || !lane->ends)
        return ri_fail(RING_ERR_NOMEM, "no memory for the %d bytes a tcp socket is read into", TCP_STAGING);
    tcp_ends(lane->fd, lane->ends);
    const ring_status_t status = allow_zero_copy(lane, conf);
    return status || ri_conf_is_auto(conf->tcp_congestion) ? status : set_congestion(lane->fd, conf->tcp_congestion);
}

static ring_status_t connect_link(struct ri_link *base, const int *fds, uint32_t count)
{
    struct tcp_link *l = (struct tcp_link *)base;
    if (count < 1 || count > TCP_LANES) {
        for (uint32_t i = 0; i < count; i++)
            close(fds[i]);
        return ri_fail(RING_ERR_INVALID, "a tcp link takes 1 to %d sockets, not %u", TCP_LANES, count);
    }
    l->out.lanes = l->in.lanes = count;
    for (uint32_t i = 0; i < count; i++)
        l->lane[i] = (struct tcp_lane){.link = l, .index = i, .fd = fds[i]};
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < count && !status; i++)
        status = set_up(&l->lane[i], base->ctx->conf);
    return status;
}

/* Closing a descriptor does not take it out of an epoll set while a child of fork() holds it too. */
static void unwatch(const struct tcp_ctx *c, struct tcp_lane *lane)
{
    if (lane->watched)
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, lane->fd, NULL);
    lane->watched = false;
}

static void leave(struct tcp_link *l)
{
    struct tcp_ctx *c = ctx_of(l);
    struct tcp_link **at = &c->active;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    c->actives--;
    l->active = false;
}

/* Shut down before closing: a child of fork() may hold the socket too, and the peer must see the end all the same. */
static void disconnect(struct ri_link *base)
{
    struct tcp_link *l = (struct tcp_link *)base;
    if (l->active)
        leave(l);
    for (uint32_t i = 0; i < l->in.lanes; i++) {
        unwatch(ctx_of(l), &l->lane[i]);
        shutdown(l->lane[i].fd, SHUT_RDWR);
        close(l->lane[i].fd);
        ri_free(l->lane[i].staging);
        ri_free(l->lane[i].ends);
        ri_free(l->lane[i].zero);
    }
    l->in = l->out = (struct tcp_way){0};
}

/* An error that a closed connection gives is no reason.  That nobody answers is found out here, or by the kernel where
 * nothing was under way. */
static void hang_up(const struct tcp_lane *lane, int error)
{
    struct tcp_link *l = lane->link;
    if (l->hung_up)
        return;
    l->hung_up = true;
    if (error == ETIMEDOUT)
        ri_log(RI_LOG_WARN, "%s has not answered for %d s between %s: is that network down?", l->base.peer.name,
               TCP_QUIET_S, lane->ends);
    if (error && error != EPIPE && error != ECONNRESET)
        snprintf(l->base.why, sizeof l->base.why, "%s between %s", strerror(error), lane->ends);
    ri_log(RI_LOG_DEBUG, "the tcp link to %s broke: %s", l->base.peer.name,
           error ? strerror(error) : "the other end closed it");
    for (uint32_t i = 0; i < l->in.lanes; i++) {
        shutdown(l->lane[i].fd, SHUT_RDWR);
        ri_free(l->lane[i].zero); /* what is held will be lost, not let go of */
        l->lane[i].zero = NULL;
    }
}

/* ---- moving data ----------------------------------------------------------------------------------------------- */

static void post(struct tcp_link *l, struct tcp_way *w, struct ri_xfer *x)
{
    struct tcp_ctx *c = ctx_of(l);
    tcp_way_post(w, x);
    if (l->active)
        return;
    l->active = true;
    l->next = c->active;
    c->active = l;
    c->actives++;
}

static void post_send(struct ri_link *base, struct ri_xfer *x)
{
    struct tcp_link *l = (struct tcp_link *)base;
    post(l, &l->out, x);
}

static void post_recv(struct ri_link *base, struct ri_xfer *x)
{
    struct tcp_link *l = (struct tcp_link *)base;
    post(l, &l->in, x);
}

static unsigned collect(const struct tcp_lane *lane)
{
    const bool was_on = lane->zero && lane->zero->on;
    const unsigned complete = tcp_lane_collect(lane);
    if (was_on && !lane->zero->on)
        ri_log(RI_LOG_DEBUG, "sending without a copy to %s is off: the kernel copies there all the same",
               lane->link->base.peer.name);
    return complete;
}

static unsigned send_all(struct tcp_link *l)
{
    unsigned moved = 0;
    for (uint32_t i = 0; i < l->out.lanes && !l->hung_up; i++) {
        moved += collect(&l->lane[i]);
        if (!l->out.lane[i].at)
            continue;
        const ssize_t n = tcp_lane_send(&l->lane[i], &l->out, i);
        moved += n > 0;
        if (n < 0)
            hang_up(&l->lane[i], errno);
    }
    return moved;
}

static unsigned recv_all(struct tcp_link *l, bool ask)
{
    unsigned moved = 0;
    for (uint32_t i = 0; i < l->in.lanes; i++) {
        struct tcp_lane *lane = &l->lane[i];
        if (!l->in.lane[i].at || !(ask || lane->ready || l->hung_up || tcp_lane_staged(lane, &l->in, i)))
            continue;
        const ssize_t n = tcp_lane_recv(lane, &l->in, i);
        moved += n > 0;
        if (n < 0)
            hang_up(lane, errno);
    }
    return moved;
}

/* No lane that a receive waits for can still bring anything. */
static bool used_up(const struct tcp_link *l)
{
    for (uint32_t i = 0; i < l->in.lanes; i++)
        if (l->in.lane[i].at && !l->lane[i].ended)
            return false;
    return true;
}

static unsigned move(struct tcp_link *l, bool ask, struct ri_queue *done)
{
    unsigned moved = send_all(l) + recv_all(l, ask);
    moved += tcp_way_reap(&l->out, done) + tcp_way_reap(&l->in, done);
    if (l->hung_up) {
        moved += tcp_way_fail(&l->out, done);
        if (l->in.queue.head && used_up(l))
            moved += tcp_way_fail(&l->in, done);
    }
    return moved;
}

/* ---- knowing where to look ------------------------------------------------------------------------------------- */

static uint32_t wanted(const struct tcp_lane *lane)
{
    const struct tcp_link *l = lane->link;
    return (l->in.lane[lane->index].at ? (uint32_t)EPOLLIN : 0) |
           (l->out.lane[lane->index].at ? (uint32_t)EPOLLOUT : 0);
}

/* The error queue wakes whatever is asked for. */
static bool holds(const struct tcp_lane *lane) { return lane->zero && tcp_zero_holds(lane->zero); }

static bool watch(const struct tcp_ctx *c, struct tcp_lane *lane, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = lane};
    if (lane->watched && lane->events == events)
        return true;
    if (epoll_ctl(c->epoll, lane->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, lane->fd, &e))
        return false;
    lane->watched = true;
    lane->events = events;
    return true;
}

/* Take in what the epoll set has to say.  Interest is only ever added elsewhere (arm, look_first); it is taken back
 * here, when something happens on a socket that nothing is posted for: else it would end every sleep at once. */
static void look(struct tcp_ctx *c)
{
    struct epoll_event e[EVENTS];
    const int n = epoll_wait(c->epoll, e, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct tcp_lane *lane = e[i].data.ptr;
        const uint32_t want = wanted(lane);
        lane->ready = lane->ready || e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR);
        if (!want && !holds(lane) && e[i].events & (EPOLLHUP | EPOLLERR))
            unwatch(c, lane);
        else if (e[i].events & (EPOLLIN | EPOLLOUT) & ~want)
            watch(c, lane, want);
    }
}

/* Many links: one call tells which of them are worth a receive. */
static void look_first(struct tcp_ctx *c)
{
    for (struct tcp_link *l = c->active; l; l = l->next)
        for (uint32_t i = 0; i < l->in.lanes; i++)
            if (l->in.lane[i].at && !(l->lane[i].watched && l->lane[i].events & EPOLLIN))
                l->lane[i].ready = !watch(c, &l->lane[i], wanted(&l->lane[i]));
    look(c);
}

/* ---- knowing that nobody answers ------------------------------------------------------------------------------- */

static void check_link(struct tcp_link *l, uint64_t now)
{
    for (uint32_t i = 0; i < l->in.lanes && !l->hung_up; i++)
        if (tcp_quiet(l->lane[i].fd, now, &l->lane[i].waits))
            hang_up(&l->lane[i], ETIMEDOUT);
}

static void check_all(struct tcp_ctx *c)
{
    const uint64_t now = ri_now();
    if (now < c->next_check)
        return;
    c->next_check = now + RI_SECOND;
    for (struct tcp_link *l = c->active; l; l = l->next)
        check_link(l, now);
}

static unsigned progress(struct ri_tctx *t, struct ri_queue *done)
{
    struct tcp_ctx *c = (struct tcp_ctx *)t;
    const bool ask = c->actives <= FEW;
    unsigned moved = 0;
    if (!(++c->rounds % BUSY_ROUNDS))
        check_all(c);
    if (!ask)
        look_first(c);
    for (struct tcp_link *l = c->active, *next; l; l = next) {
        next = l->next;
        moved += move(l, ask, done);
        if (!l->in.queue.head && !l->out.queue.head)
            leave(l);
    }
    return moved;
}

/* ---- sleeping -------------------------------------------------------------------------------------------------- */

static bool complete(const struct tcp_way *w) { return w->queue.head && tcp_complete(w->queue.head); }

/* False when progress() has something to do on this link whatever the kernel says. */
static bool arm_link(const struct tcp_ctx *c, struct tcp_link *l)
{
    if (l->hung_up || complete(&l->in) || complete(&l->out))
        return false;
    for (uint32_t i = 0; i < l->in.lanes; i++) {
        struct tcp_lane *lane = &l->lane[i];
        const uint32_t want = wanted(lane);
        if (tcp_lane_staged(lane, &l->in, i) || ((want || holds(lane)) && !watch(c, lane, want)))
            return false;
    }
    return true;
}

static bool arm(struct ri_tctx *t)
{
    struct tcp_ctx *c = (struct tcp_ctx *)t;
    check_all(c);
    for (struct tcp_link *l = c->active; l; l = l->next)
        if (!arm_link(c, l))
            return false;
    return true;
}

static int wait_fd(struct ri_tctx *t) { return ((struct tcp_ctx *)t)->epoll; }

static void disarm(struct ri_tctx *t) { look((struct tcp_ctx *)t); }

const struct ri_transport ri_transport_tcp = {
    .abi = RI_TRANSPORT_ABI,
    .name = "tcp",
    .help = "TCP sockets, between any two hosts",
    .ctx_size = sizeof(struct tcp_ctx),
    .link_size = sizeof(struct tcp_link),
    .rendezvous = RI_RENDEZVOUS_TCP,
    .usable = usable,
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
