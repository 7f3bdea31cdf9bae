/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - what hosts tell each other besides data: a failure, that a host's ranks are leaving, who waits where.
 *
 * The first ranks of the hosts are joined at distances 1, 2, 4 ... in the order of hosts.  A frame is passed on to all
 * neighbours except the one it came from, once; so it reaches M hosts in log2(M) hops, and the loss of one host does
 * not cut the others apart.  Few frames are ever sent, so a channel that cannot take one at once is broken.
 *
 * The end of a channel is the death of the rank behind it.  The kernel watches idle ones (TCP keepalive), so that a
 * host that lost its power is noticed as well. */
#include "lib/comm/comm.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/comm/frame.h"

/* A host whose first rank is stopped reads nothing: what is sent to it must fit where it waits to be read, as a
 * connection on which nothing more fits is taken for cut. */
enum { NOTICES_UNHEARD = 96 };
enum { KEEPALIVE_S = 5, UNANSWERED_MS = 10000, LINGER_MS = 1000, LINGER_BROKEN_MS = 50 };

static void lost(struct ri_channel *ch, const char *how);

static void flood(struct ring_comm *c, const struct ri_control_frame *f, const struct ri_channel *except)
{
    uint8_t wire[RI_FRAME];
    ri_frame_encode(f, wire);
    for (uint32_t i = 0; i < c->channels; i++) {
        struct ri_channel *ch = &c->channel[i];
        if (ch == except || ch->gone || (f->kind == RI_CONTROL_NOTICE && ch->notices++ >= NOTICES_UNHEARD))
            continue;
        const ssize_t n = send(ch->watch.fd, wire, sizeof wire, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n != (ssize_t)sizeof wire)
            lost(ch, n < 0 ? strerror(errno) : "the connection is full");
    }
}

/* ---- what is new here ------------------------------------------------------------------------------------------ */

static void say_bye(struct ring_comm *c, uint32_t node, uint64_t history, const struct ri_channel *from)
{
    if (c->bye[node])
        return;
    c->bye[node] = true;
    flood(c, &(struct ri_control_frame){.kind = RI_CONTROL_BYE, .node = node, .history = history}, from);
    if (c->bye_history && c->bye_history != history) {
        ri_comm_raise(
            c, RING_ERR_MISMATCH, c->leader[node],
            "%s has not made the same calls as ranks of other hosts that left before it: a collective, count, "
            "type, operation or root was another",
            ri_comm_name(c, c->leader[node]));
        return;
    }
    c->bye_history = history;
    for (uint32_t i = 0; i < c->nodes; i++)
        if (!c->bye[i])
            return;
    atomic_store(&c->board->all_left, 1);
    ri_word_wake(&c->board->all_left);
}

static void relay_notices(struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->local_size; i++) {
        struct ri_control_frame f = {.kind = RI_CONTROL_NOTICE, .rank = c->local_ranks[i]};
        uint64_t since;
        f.version = ri_board_read(c->board, f.rank, &f.signature, &since);
        if (!f.version || f.version == c->relayed[f.rank])
            continue;
        c->relayed[f.rank] = f.version;
        flood(c, &f, NULL);
    }
}

static void spread_from_leader(struct ring_comm *c)
{
    if (ri_comm_broken(c) && !c->spread) {
        c->spread = true;
        flood(c, &(struct ri_control_frame){.kind = RI_CONTROL_FAILURE, .failure = *ri_comm_failure(c)}, NULL);
    }
    if (c->nodes > 1)
        relay_notices(c);
    if (atomic_load(&c->board->left) == c->local_size)
        say_bye(c, c->node_index, atomic_load(&c->board->history), NULL);
}

void ri_control_spread(struct ring_comm *c)
{
    ri_loop_lock();
    if (ri_comm_leads(c)) {
        if (c->bye)
            spread_from_leader(c);
    } else if (c->locals && c->local[0].home.fd >= 0) {
        /* Full means that the first rank has not looked yet: it will. */
        ssize_t ignored = send(c->local[0].home.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)ignored;
    }
    ri_loop_unlock();
}

/* ---- what comes in --------------------------------------------------------------------------------------------- */

static void close_channel(struct ri_channel *ch)
{
    if (ch->gone)
        return;
    ch->gone = true;
    ri_loop_remove(&ch->watch);
}

static void lost(struct ri_channel *ch, const char *how)
{
    struct ring_comm *c = ch->comm;
    close_channel(ch);
    if (!c->bye[ch->node] && !atomic_load(&c->board->all_left) && !ri_comm_broken(c))
        ri_comm_raise(c, RING_ERR_PEER_LOST, c->leader[ch->node], "%s was lost: %s",
                      ri_comm_name(c, c->leader[ch->node]), how);
}

static void take(struct ri_channel *ch, const struct ri_control_frame *f)
{
    struct ring_comm *c = ch->comm;
    switch (f->kind) {
    case RI_CONTROL_FAILURE:
        if (ri_board_fail(c->board, &f->failure)) {
            c->spread = true;
            flood(c, f, ch);
        }
        break;
    case RI_CONTROL_BYE:
        say_bye(c, f->node, f->history, ch);
        break;
    case RI_CONTROL_NOTICE:
        if (c->peer[f->rank].node == c->node_index || (int32_t)(f->version - c->relayed[f->rank]) <= 0)
            break; /* our own, or come by another way */
        c->relayed[f->rank] = f->version;
        ri_board_note(c->board, f->rank, &f->signature);
        flood(c, f, ch);
        break;
    }
}

static void readable(struct ri_watch *w, uint32_t events)
{
    (void)events;
    struct ri_channel *ch = (struct ri_channel *)((char *)w - offsetof(struct ri_channel, watch));
    while (!ch->gone) {
        const ssize_t n = recv(w->fd, ch->in + ch->have, RI_FRAME - ch->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lost(ch, n ? strerror(errno) : "its connection was closed");
            return;
        }
        ch->have += (size_t)n;
        if (ch->have < RI_FRAME)
            continue;
        ch->have = ch->notices = 0;
        struct ri_control_frame f;
        if (ri_frame_decode(ch->in, ch->comm->nodes, ch->comm->size, &f))
            take(ch, &f);
        else
            lost(ch, "it sent a control message that cannot be read");
    }
}

void ri_control_listen(struct ring_comm *c)
{
    ri_loop_lock();
    for (uint32_t i = 0; i < c->channels; i++)
        readable(&c->channel[i].watch, 0);
    ri_loop_unlock();
}

/* ---- making and ending ----------------------------------------------------------------------------------------- */

static bool joined(uint32_t nodes, uint32_t a, uint32_t b)
{
    const uint32_t ab = (b + nodes - a) % nodes, ba = nodes - ab;
    return (ab & (ab - 1)) == 0 || (ba & (ba - 1)) == 0;
}

uint32_t ri_control_count(const struct ring_comm *c, uint32_t node)
{
    uint32_t n = 0;
    for (uint32_t other = 0; other < c->nodes; other++)
        n += other != node && joined(c->nodes, node, other);
    return n;
}

static void watch_idle(int fd)
{
    const int on = 1, idle = KEEPALIVE_S, interval = 1, probes = 3, unanswered = UNANSWERED_MS;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Those of a higher number are connected to first, then the others are collected: nobody waits in a circle, because the
 * background thread of each process answers. */
static ring_status_t open_channel(struct ring_comm *c, struct ri_channel *ch, uint64_t deadline)
{
    struct ri_peer *p = &c->peer[c->leader[ch->node]];
    if (ch->node < c->node_index)
        return ri_port_collect(c->port, &c->member, p->rank, RI_FOR_CONTROL, 0, &c->board->abort, deadline,
                               &ch->watch.fd);
    uint8_t key[RI_KEY];
    struct ri_hello h = {.comm_id = c->comm_id, .from = c->rank, .to = p->rank, .purpose = RI_FOR_CONTROL};
    ring_status_t status = ri_pair_key(&c->identity, c->rank, p->key, p->rank, c->comm_id, c->secret, key);
    if (!status)
        status = ri_port_connect(c->port, &p->end, false, &h, key, &c->board->abort, deadline, &ch->watch.fd);
    return status;
}

/* Under the lock: from here on the background thread may look. */
static ring_status_t list_channels(struct ring_comm *c)
{
    c->bye = ri_new(c->nodes, sizeof *c->bye);
    c->relayed = ri_new(c->size, sizeof *c->relayed);
    c->channel = ri_new(ri_control_count(c, c->node_index) + 1, sizeof *c->channel);
    if (!c->bye || !c->relayed || !c->channel)
        return ri_fail(RING_ERR_NOMEM, "no memory for connections to %u hosts", c->nodes);
    for (uint32_t step = 1; step < c->nodes; step++) {
        const uint32_t node = (c->node_index + step) % c->nodes;
        if (joined(c->nodes, c->node_index, node))
            c->channel[c->channels++] =
                (struct ri_channel){.comm = c, .node = node, .watch = {.fd = -1, .ready = readable}, .gone = true};
    }
    return RING_OK;
}

/* Watched as soon as it is there, so that a rank that dies while others still connect is noticed; and told what is
 * known already. */
static ring_status_t admit(struct ri_channel *ch)
{
    struct ring_comm *c = ch->comm;
    watch_idle(ch->watch.fd);
    ri_loop_lock();
    const ring_status_t status = ri_loop_add(&ch->watch, EPOLLIN);
    ch->gone = status != RING_OK;
    c->spread = false;
    ri_control_spread(c);
    ri_loop_unlock();
    return status;
}

ring_status_t ri_control_connect(struct ring_comm *c, uint64_t deadline)
{
    if (!ri_comm_leads(c))
        return RING_OK;
    ri_loop_lock();
    ring_status_t status = list_channels(c);
    ri_loop_unlock();
    for (int collecting = 0; collecting < 2; collecting++)
        for (uint32_t i = 0; i < c->channels && !status; i++)
            if ((c->channel[i].node < c->node_index) == (collecting != 0) &&
                !(status = open_channel(c, &c->channel[i], deadline)))
                status = admit(&c->channel[i]);
    return status;
}

void ri_control_forget(const struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->channels; i++)
        if (c->channel[i].watch.fd >= 0)
            close(c->channel[i].watch.fd);
}

/* What we said last must not be lost to a reset, which closing with unread bytes would send: so say that no more comes,
 * and read on until the others have said so too. */
static void linger(struct ri_channel *ch, uint64_t deadline)
{
    struct ri_wait w;
    char bytes[RI_FRAME];
    ri_wait_begin(&w, NULL, deadline, (struct ri_patience){.yields = 100});
    for (;;) {
        const ssize_t n = recv(ch->watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (n < 0 && ri_wait_round(&w, NULL, NULL))
            return;
    }
}

void ri_control_close(struct ring_comm *c)
{
    const bool broken = c->board && ri_comm_broken(c);
    const uint64_t deadline = ri_deadline((broken ? LINGER_BROKEN_MS : LINGER_MS) * RI_MILLISECOND);
    ri_loop_lock();
    for (uint32_t i = 0; i < c->channels; i++)
        close_channel(&c->channel[i]);
    ri_loop_unlock();
    for (uint32_t i = 0; i < c->channels; i++)
        if (c->channel[i].watch.fd >= 0)
            shutdown(c->channel[i].watch.fd, SHUT_WR);
    for (uint32_t i = 0; i < c->channels; i++)
        if (c->channel[i].watch.fd >= 0) {
            linger(&c->channel[i], deadline);
            close(c->channel[i].watch.fd);
        }
    ri_free(c->channel);
    ri_free(c->bye);
    ri_free(c->relayed);
    c->channel = NULL;
    c->channels = 0;
    c->bye = NULL;
    c->relayed = NULL;
}
