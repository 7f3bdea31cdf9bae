/* SPDX-License-Identifier: Apache-2.0 */
/* shm - links between ranks of one host through shared memory: a byte ring each way (ring.h).
 *
 * The initiator makes the segment and passes it over the link's AF_UNIX socket.  From then on the socket carries no
 * data: it is the door-bell of sleepers (one byte, only when the other end has said that it sleeps) and the death
 * notice (end of stream).
 *
 * Cost: each byte is copied in by the sender and out by the receiver, or reduced straight out of the ring by a sink; no
 * system calls while both ends are awake, except for a look at the sockets now and then when nothing moves.
 *
 * Failure.  When the socket ends, sends fail at once, and receives still get what lies in the ring.  An impossible
 * counter breaks the link.
 *
 * Memory: the segment.  Threads: calls for one context never run at the same time; the two ends of a link share nothing
 * but the segment. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/base/seg.h"
#include "transports/shm/ring.h"
#include "transports/transport.h"

enum {
    PUBLISH = 16 << 10, /* bytes after which the other end is told, so that it works while we copy on */
    BURST = 64 << 10,   /* bytes one way before the other way gets its turn                           */
    LOOK_EVERY = 256,   /* rounds without any movement between looks at the sockets                   */
    EVENTS = 64,
    PAGE = 4096
};

struct shm_link {
    struct ri_link base;
    int sock;
    bool has_sock, greeted;
    struct ri_seg *seg;
    struct shm_area *area; /* NULL until the segment is there */
    struct shm_ring out, in;
    struct ri_queue sends, recvs;
    bool gone;   /* the peer has closed its socket: no more sends, receives until the ring is empty */
    bool broken; /* nothing works any more                                                          */
    bool active; /* on the context's list: something is posted                                      */
    struct shm_link *next;
};

struct shm_ctx {
    struct ri_tctx base;
    bool open;
    int epoll;
    uint32_t idle;
    struct shm_link *active;
};

static struct shm_ctx *ctx_of(const struct shm_link *l) { return (struct shm_ctx *)l->base.ctx; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t ring_bytes(const struct ri_conf *conf) { return ((size_t)conf->shm_buffer + PAGE - 1) / PAGE * PAGE; }

/* ---- facts ----------------------------------------------------------------------------------------------------- */

static bool usable(const struct ri_conf *conf, char *why_out, size_t cap)
{
    (void)conf;
    const int fd = memfd_create("libring probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        snprintf(why_out, cap, "no memfd_create: %s", strerror(errno));
        return false;
    }
    close(fd);
    return true;
}

static uint32_t sockets(const struct ri_conf *conf)
{
    (void)conf;
    return 1;
}

static bool cost(const struct ri_conf *conf, const struct ri_end *self, const struct ri_end *peer, uint32_t *latency_ns,
                 uint32_t *byte_ps)
{
    (void)conf;
    if (self->node != peer->node)
        return false;
    *latency_ns = 500;
    *byte_ps = 100;
    return true;
}

static ring_status_t open_ctx(struct ri_tctx *t)
{
    struct shm_ctx *c = (struct shm_ctx *)t;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0)
        return ri_fail_errno("epoll_create1 for the shm transport");
    c->open = true;
    return RING_OK;
}

static void close_ctx(struct ri_tctx *t)
{
    struct shm_ctx *c = (struct shm_ctx *)t;
    if (c->open)
        close(c->epoll);
    c->open = false;
}

/* ---- links ----------------------------------------------------------------------------------------------------- */

static void lay_out(struct shm_link *l, size_t cap)
{
    const unsigned mine = l->base.initiator ? 0 : 1;
    l->area = ri_seg_base(l->seg);
    shm_ring_writer(&l->out, l->area, mine, cap);
    shm_ring_reader(&l->in, l->area, 1 - mine, cap);
}

static _Atomic uint32_t *asleep(const struct shm_link *l, bool peer)
{
    return &l->area->end[l->base.initiator == peer].asleep;
}

/* why "": the other end has closed it. */
static void fall(struct shm_link *l, const char *why)
{
    if (l->broken)
        return;
    l->broken = l->gone = true;
    snprintf(l->base.why, sizeof l->base.why, "%s", why);
    ri_log(RI_LOG_DEBUG, "the shm link to %s broke: %s", l->base.peer.name, why[0] ? why : "the other end closed it");
    shutdown(l->sock, SHUT_RDWR);
}

/* A full socket is no failure: the next progress() tries again. */
static void greet(struct shm_link *l)
{
    const struct shm_hello hello = {.magic = SHM_MAGIC, .version = SHM_VERSION, .cap = l->out.cap};
    l->greeted = !ri_fd_send(l->sock, ri_seg_fd(l->seg), &hello, sizeof hello);
    if (!l->greeted && errno != EAGAIN && errno != EWOULDBLOCK)
        fall(l, ri_error_get());
}

/* The acceptor's half: take the segment over when it has come. */
static void be_greeted(struct shm_link *l)
{
    struct shm_hello hello;
    const size_t cap = ring_bytes(l->base.ctx->conf);
    int fd;
    const int got = ri_fd_recv(l->sock, &fd, &hello, sizeof hello);
    if (!got)
        return;
    if (got < 0) {
        fall(l, "");
        return;
    }
    if (fd < 0 || hello.magic != SHM_MAGIC || hello.version != SHM_VERSION || hello.cap != cap) {
        if (fd >= 0)
            close(fd);
        fall(l, "the other end offers memory of another layout");
        return;
    }
    if (ri_seg_adopt(fd, shm_area_bytes(cap), &l->seg)) {
        fall(l, ri_error_get());
        return;
    }
    l->greeted = true;
    lay_out(l, cap);
}

static ring_status_t connect_link(struct ri_link *base, const int *fds, uint32_t count)
{
    struct shm_link *l = (struct shm_link *)base;
    const size_t cap = ring_bytes(base->ctx->conf);
    for (uint32_t i = 1; i < count; i++)
        close(fds[i]);
    if (count != 1) {
        if (count)
            close(fds[0]);
        return ri_fail(RING_ERR_INVALID, "a shm link takes 1 socket, not %u", count);
    }
    l->sock = fds[0];
    l->has_sock = true;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
    const int flags = fcntl(l->sock, F_GETFL);
    if (flags < 0 || fcntl(l->sock, F_SETFL, flags | O_NONBLOCK) ||
        epoll_ctl(ctx_of(l)->epoll, EPOLL_CTL_ADD, l->sock, &e))
        return ri_fail_errno("the socket of a shm link to %s", base->peer.name);
    if (!base->initiator)
        return RING_OK;
    const ring_status_t status = ri_seg_create("libring link", shm_area_bytes(cap), &l->seg);
    if (status)
        return status;
    lay_out(l, cap);
    greet(l);
    return RING_OK;
}

static void leave(struct shm_link *l)
{
    struct shm_link **at = &ctx_of(l)->active;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->active = false;
}

/* The socket is shut down and taken out of the set by hand: a child of fork() may hold it too, and then closing does
 * neither. */
static void disconnect(struct ri_link *base)
{
    struct shm_link *l = (struct shm_link *)base;
    if (l->active)
        leave(l);
    if (l->has_sock) {
        epoll_ctl(ctx_of(l)->epoll, EPOLL_CTL_DEL, l->sock, NULL);
        shutdown(l->sock, SHUT_RDWR);
        close(l->sock);
    }
    ri_seg_close(l->seg);
    l->has_sock = false;
    l->seg = NULL;
    l->area = NULL;
}

/* ---- moving data ----------------------------------------------------------------------------------------------- */

static void post(struct shm_link *l, struct ri_queue *q, struct ri_xfer *x)
{
    struct shm_ctx *c = ctx_of(l);
    x->moved = 0;
    ri_queue_put(q, x);
    if (l->active)
        return;
    l->active = true;
    l->next = c->active;
    c->active = l;
}

static void post_send(struct ri_link *base, struct ri_xfer *x)
{
    struct shm_link *l = (struct shm_link *)base;
    post(l, &l->sends, x);
}

static void post_recv(struct ri_link *base, struct ri_xfer *x)
{
    struct shm_link *l = (struct shm_link *)base;
    post(l, &l->recvs, x);
}

static unsigned report(struct ri_queue *q, ring_status_t status, struct ri_queue *done)
{
    struct ri_xfer *x = ri_queue_take(q);
    x->status = status;
    ri_queue_put(done, x);
    return 1;
}

static unsigned report_all(struct ri_queue *q, ring_status_t status, struct ri_queue *done)
{
    unsigned n = 0;
    while (q->head)
        n += report(q, status, done);
    return n;
}

/* Tell the other end how far we are, and wake it when it sleeps for just that. */
static void publish(struct shm_link *l, struct shm_ring *r, uint32_t wants)
{
    if (!shm_ring_publish(r))
        return;
    _Atomic uint32_t *const word = asleep(l, true);
    if (!(atomic_load_explicit(word, memory_order_seq_cst) & wants) || !atomic_exchange(word, 0))
        return;
    /* A full socket means that unread bells are there already; a dead one is found by look(). */
    ssize_t n;
    do
        n = send(l->sock, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
}

static void copy_in(struct shm_ring *r, const struct ri_xfer *x, size_t n)
{
    memcpy(r->bytes + r->off, (const char *)x->buf + x->moved, n);
}

static void copy_out(const struct shm_ring *r, struct ri_xfer *x, size_t n)
{
    if (x->sink)
        x->sink(x, x->moved, r->bytes + r->off, n);
    else
        memcpy((char *)x->buf + x->moved, r->bytes + r->off, n);
}

static unsigned push(struct shm_link *l, struct ri_queue *done)
{
    struct shm_ring *r = &l->out;
    unsigned moved = 0;
    size_t burst = BURST;
    for (struct ri_xfer *x; (x = l->sends.head);) {
        if (x->moved < x->len) {
            const size_t n = least(least(shm_ring_room(r), x->len - x->moved), least(burst, PUBLISH));
            if (!n)
                break;
            copy_in(r, x, n);
            burst -= shm_ring_advance(r, n);
            x->moved += n;
            moved++;
        }
        if (r->at - r->told >= PUBLISH)
            publish(l, r, SHM_WANTS_DATA);
        if (x->moved == x->len)
            moved += report(&l->sends, RING_OK, done);
    }
    publish(l, r, SHM_WANTS_DATA);
    return moved;
}

static unsigned pull(struct shm_link *l, struct ri_queue *done)
{
    struct shm_ring *r = &l->in;
    unsigned moved = 0;
    size_t burst = BURST;
    for (struct ri_xfer *x; (x = l->recvs.head);) {
        if (x->moved < x->len) {
            const size_t n = least(least(shm_ring_data(r), x->len - x->moved), least(burst, PUBLISH));
            if (!n)
                break;
            copy_out(r, x, n);
            burst -= shm_ring_advance(r, n);
            x->moved += n;
            moved++;
        }
        if (r->at - r->told >= PUBLISH)
            publish(l, r, SHM_WANTS_ROOM);
        if (x->moved == x->len)
            moved += report(&l->recvs, RING_OK, done);
    }
    publish(l, r, SHM_WANTS_ROOM);
    return moved;
}

static unsigned move(struct shm_link *l, struct ri_queue *done)
{
    unsigned moved = 0;
    if (!l->greeted && !l->broken) {
        if (l->base.initiator)
            greet(l);
        else
            be_greeted(l);
        moved += l->greeted;
    }
    if (l->area && !l->gone)
        moved += push(l, done);
    if (l->area && !l->broken)
        moved += pull(l, done);
    if (l->out.broken || l->in.broken)
        fall(l, "its counters in shared memory are impossible");
    if (!l->gone)
        return moved;
    moved += report_all(&l->sends, RING_ERR_PEER_LOST, done);
    if (l->recvs.head && !l->broken && (!l->area || !shm_ring_data(&l->in)))
        fall(l, "");
    if (l->broken)
        moved += report_all(&l->recvs, RING_ERR_PEER_LOST, done);
    return moved;
}

/* ---- sockets: bells and death ---------------------------------------------------------------------------------- */

/* Empty the socket of bells; true when the other end has closed it. */
static bool drain(const struct shm_link *l)
{
    char bells[64];
    ssize_t n;
    do
        n = recv(l->sock, bells, sizeof bells, MSG_DONTWAIT);
    while (n > 0 || (n < 0 && errno == EINTR));
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* An ended socket would be reported for ever, so it leaves the set. */
static void look(struct shm_ctx *c)
{
    struct epoll_event e[EVENTS];
    c->idle = 0;
    const int n = epoll_wait(c->epoll, e, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct shm_link *l = e[i].data.ptr;
        if (!l->greeted && !l->broken && !l->base.initiator)
            be_greeted(l);
        if (l->greeted && drain(l))
            l->gone = true;
        if (l->gone || l->broken)
            epoll_ctl(c->epoll, EPOLL_CTL_DEL, l->sock, NULL);
    }
}

static unsigned progress(struct ri_tctx *t, struct ri_queue *done)
{
    struct shm_ctx *c = (struct shm_ctx *)t;
    unsigned moved = 0;
    if (c->idle >= LOOK_EVERY)
        look(c);
    for (struct shm_link *l = c->active, *next; l; l = next) {
        next = l->next;
        moved += move(l, done);
        if (!l->sends.head && !l->recvs.head)
            leave(l);
    }
    c->idle = moved ? 0 : c->idle + 1;
    return moved;
}

/* ---- sleeping -------------------------------------------------------------------------------------------------- */

static void clear(const struct shm_ctx *c)
{
    for (const struct shm_link *l = c->active; l; l = l->next)
        if (l->area)
            atomic_store_explicit(asleep(l, false), 0, memory_order_relaxed);
}

static bool complete(const struct ri_queue *q) { return q->head && q->head->moved == q->head->len; }

/* Say what is waited for, then look once more: what came before is seen here, what comes later rings. */
static bool arm_link(struct shm_link *l)
{
    if (l->gone || complete(&l->sends) || complete(&l->recvs))
        return false;
    if (!l->area || !l->greeted)
        return !l->base.initiator;
    const uint32_t wants = (l->recvs.head ? SHM_WANTS_DATA : 0) | (l->sends.head ? SHM_WANTS_ROOM : 0);
    atomic_store_explicit(asleep(l, false), wants, memory_order_seq_cst);
    if (l->recvs.head && (shm_ring_data(&l->in) || l->in.broken))
        return false;
    return !(l->sends.head && (shm_ring_room(&l->out) || l->out.broken));
}

static bool arm(struct ri_tctx *t)
{
    const struct shm_ctx *c = (struct shm_ctx *)t;
    for (struct shm_link *l = c->active; l; l = l->next)
        if (!arm_link(l)) {
            clear(c);
            return false;
        }
    return true;
}

static int wait_fd(struct ri_tctx *t) { return ((struct shm_ctx *)t)->epoll; }

static void disarm(struct ri_tctx *t)
{
    struct shm_ctx *c = (struct shm_ctx *)t;
    clear(c);
    look(c);
}

const struct ri_transport ri_transport_shm = {
    .abi = RI_TRANSPORT_ABI,
    .name = "shm",
    .help = "shared memory, between ranks of one host and one user",
    .ctx_size = sizeof(struct shm_ctx),
    .link_size = sizeof(struct shm_link),
    .rendezvous = RI_RENDEZVOUS_UNIX,
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
