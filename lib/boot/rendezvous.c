/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.c - see rendezvous.h.  All of it runs on the background thread, except ri_rendezvous_serve() and the
 * thread that closes the port at the end (the last holder of the loop cannot leave it from a callback).
 *
 * What a connection sends is from somebody who holds the ticket's key; it is checked all the same, and one that breaks
 * the rules counts as lost. */
#include "lib/boot/rendezvous.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/base/log.h"
#include "lib/base/loop.h"
#include "lib/base/mem.h"
#include "lib/boot/bytes.h"
#include "lib/boot/port.h"
#include "lib/boot/ranks.h"

/* A frame on its way to one rank or to all. */
struct parcel {
    unsigned users;
    size_t len;
    uint8_t bytes[];
};

enum { QUEUE = 4 }; /* a welcome, a result and a failure are all that can wait at once */

struct visitor {
    struct ri_watch watch;
    struct visitor *next;
    struct meeting *meeting;
    uint32_t rank;
    bool seated;
    uint8_t head[RI_FRAME_HEAD], *body;
    uint16_t type;
    uint32_t body_len;
    size_t got;
    struct parcel *out[QUEUE];
    unsigned waiting;
    size_t sent;
};

enum seat_state { EMPTY, HERE, LEFT };
struct seat {
    enum seat_state state;
    bool entered; /* has given its blob to this round */
    uint8_t *blob;
    uint32_t len;
};

struct meeting {
    struct ri_member member; /* first: the port's list of members finds it */
    struct ri_port *port;
    struct ri_ticket_keys keys;
    struct ri_timer linger; /* a failed meeting tells latecomers for a while why */
    struct visitor *visitors;
    struct seat *seats;
    uint32_t size, said_by; /* size: 0 until the first rank has said it */
    uint32_t arrived, entered, left;
    bool failed, lingering;
    struct parcel *failure;
};

static void flush(struct visitor *v);
static void end_if_over(struct meeting *m);

/* ---- parcels ---- */

static struct parcel *pack(enum ri_frame type, size_t len)
{
    struct parcel *p = ri_new(1, sizeof *p + RI_FRAME_HEAD + len);
    if (!p)
        return NULL;
    p->users = 1;
    p->len = RI_FRAME_HEAD + len;
    ri_put16(p->bytes, (uint16_t)type);
    ri_put32(p->bytes + 4, (uint32_t)len);
    return p;
}

static void drop(struct parcel *p)
{
    if (p && !--p->users)
        ri_free(p);
}

static void post(struct visitor *v, struct parcel *p)
{
    if (!p || v->waiting == QUEUE)
        return;
    p->users++;
    v->out[v->waiting++] = p;
    flush(v);
}

static struct parcel *pack_failure(ring_status_t status, const char *text)
{
    const size_t len = strnlen(text, RI_FAIL_TEXT - 1);
    struct parcel *p = pack(RI_FRAME_FAIL, 4 + len);
    if (!p)
        return NULL;
    ri_put32(p->bytes + RI_FRAME_HEAD, (uint32_t) - (int32_t)status);
    memcpy(p->bytes + RI_FRAME_HEAD + 4, text, len);
    return p;
}

/* ---- failures ---- */

static void tell(struct visitor *v, ring_status_t status, const char *text)
{
    struct parcel *p = pack_failure(status, text);
    post(v, p);
    drop(p);
}

/* The first one stands, and everybody hears it. */
static void fail(struct meeting *m, ring_status_t status, const char *text)
{
    if (m->failed)
        return;
    m->failed = true;
    m->failure = pack_failure(status, text);
    for (struct visitor *v = m->visitors; v; v = v->next)
        if (v->seated)
            post(v, m->failure);
}

static void fail_with_rank(struct meeting *m, uint32_t rank, const char *what)
{
    char text[RI_FAIL_TEXT];
    snprintf(text, sizeof text, "rank %u %s before all ranks had met", rank, what);
    fail(m, RING_ERR_PEER_LOST, text);
}

/* ---- visitors come and go ---- */

static void remove_visitor(struct visitor *v)
{
    struct visitor **at = &v->meeting->visitors;
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    ri_loop_remove(&v->watch);
    close(v->watch.fd);
    for (unsigned i = 0; i < v->waiting; i++)
        drop(v->out[i]);
    ri_free(v->body);
    ri_free(v);
}

static void depart(struct visitor *v, const char *how)
{
    struct meeting *m = v->meeting;
    const uint32_t rank = v->rank;
    const bool seated = v->seated;
    remove_visitor(v);
    if (seated) {
        m->seats[rank].state = LEFT;
        m->left++;
        if (how)
            fail_with_rank(m, rank, how);
        else if (m->entered)
            fail_with_rank(m, rank, "left");
    }
    end_if_over(m);
}

/* false: no more can be sent now, or ever; the connection's end is seen by reading. */
static bool send_some(struct visitor *v)
{
    struct parcel *p = v->out[0];
    const ssize_t n = send(v->watch.fd, p->bytes + v->sent, p->len - v->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR;
    v->sent += (size_t)n;
    if (v->sent < p->len)
        return true;
    drop(p);
    v->sent = 0;
    memmove(v->out, v->out + 1, --v->waiting * sizeof *v->out);
    return true;
}

static void flush(struct visitor *v)
{
    while (v->waiting && send_some(v))
        ;
    ri_loop_change(&v->watch, v->waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* ---- what ranks say ---- */

static void set_size(struct meeting *m, struct visitor *v, uint32_t size)
{
    m->seats = ri_new(size, sizeof *m->seats);
    if (!m->seats)
        return;
    m->size = size;
    m->said_by = v->rank;
}

/* The maker needs a descriptor for each rank: better said now than found when connections can no longer be taken. */
static void make_room(struct meeting *m)
{
    char why[96];
    snprintf(why, sizeof why, "by the maker of the ticket for %u ranks", m->size);
    const ring_status_t status = ri_limit_files(m->size, why);
    if (status)
        fail(m, status, ri_error_get());
}

static void on_join(struct visitor *v)
{
    struct meeting *m = v->meeting;
    char text[RI_FAIL_TEXT];
    const uint32_t size = ri_get32(v->body);
    if (!m->size)
        set_size(m, v, size);
    if (!m->size) {
        tell(v, RING_ERR_NOMEM, "the maker of the ticket has no memory for the ranks");
        return;
    }
    if (size != m->size) {
        snprintf(text, sizeof text, "rank %u says there are %u ranks, rank %u says %u", v->rank, size, m->said_by,
                 m->size);
        tell(v, RING_ERR_INVALID, text);
        fail(m, RING_ERR_INVALID, text);
    } else if (m->seats[v->rank].state != EMPTY) {
        snprintf(text, sizeof text, "rank %u is taken: somebody else has joined as rank %u with this ticket", v->rank,
                 v->rank);
        tell(v, RING_ERR_INVALID, text);
    } else {
        v->seated = true;
        m->seats[v->rank].state = HERE;
        m->arrived++;
        if (m->arrived == 1)
            make_room(m);
        struct parcel *p = m->failed ? NULL : pack(RI_FRAME_WELCOME, 0);
        post(v, m->failed ? m->failure : p);
        drop(p);
    }
}

static struct parcel *pack_result(const struct meeting *m)
{
    size_t total = 0;
    for (uint32_t r = 0; r < m->size; r++)
        total += 4 + (size_t)m->seats[r].len;
    struct parcel *p = total > UINT32_MAX ? NULL : pack(RI_FRAME_RESULT, total);
    uint8_t *at = p ? p->bytes + RI_FRAME_HEAD : NULL;
    for (uint32_t r = 0; p && r < m->size; r++) {
        const struct seat *s = &m->seats[r];
        ri_put32(at, s->len);
        if (s->len)
            memcpy(at + 4, s->blob, s->len);
        at += 4 + (size_t)s->len;
    }
    return p;
}

static void end_round(struct meeting *m)
{
    struct parcel *p = pack_result(m);
    if (!p) {
        fail(m, RING_ERR_NOMEM, "the maker of the ticket has no memory for what the ranks exchange");
        return;
    }
    for (uint32_t r = 0; r < m->size; r++) {
        ri_free(m->seats[r].blob);
        m->seats[r].blob = NULL;
        m->seats[r].entered = false;
    }
    m->entered = 0;
    for (struct visitor *v = m->visitors; v; v = v->next)
        if (v->seated)
            post(v, p);
    drop(p);
}

static void on_round(struct visitor *v)
{
    struct meeting *m = v->meeting;
    struct seat *s = &m->seats[v->rank];
    if (m->failed)
        return; /* it has been told */
    s->entered = true;
    s->blob = v->body;
    s->len = v->body_len;
    v->body = NULL;
    m->entered++;
    if (m->left)
        for (uint32_t r = 0; r < m->size; r++)
            if (m->seats[r].state == LEFT)
                fail_with_rank(m, r, "left");
    if (m->entered == m->size && !m->failed)
        end_round(m);
}

static void on_who(struct visitor *v)
{
    struct meeting *m = v->meeting;
    char text[RI_FAIL_TEXT];
    if (!m->seats[v->rank].entered)
        return; /* the result is on its way */
    bool *missing = ri_new(m->size, sizeof *missing);
    for (uint32_t r = 0; missing && r < m->size; r++)
        missing[r] = !m->seats[r].entered;
    if (missing)
        ri_ranks_print(missing, m->size, text, sizeof text);
    else
        snprintf(text, sizeof text, "some ranks");
    ri_free(missing);
    fail(m, RING_ERR_TIMEOUT, text);
}

/* ---- frames ---- */

static bool frame_fits(const struct visitor *v)
{
    const uint32_t len = v->body_len;
    if (!v->seated)
        return v->type == RI_FRAME_JOIN && len == 4;
    switch (v->type) {
    case RI_FRAME_ROUND:
        return len <= RI_ROUND_MAX && !v->meeting->seats[v->rank].entered;
    case RI_FRAME_WHO:
    case RI_FRAME_BYE:
        return len == 0;
    default:
        return false;
    }
}

static bool join_is_sane(const struct visitor *v)
{
    const uint32_t size = ri_get32(v->body);
    return size > v->rank && size <= RI_RANKS_MAX;
}

/* false: v is gone. */
static bool handle(struct visitor *v)
{
    v->got = 0;
    if (v->type == RI_FRAME_BYE || (v->type == RI_FRAME_JOIN && !join_is_sane(v))) {
        depart(v, NULL);
        return false;
    }
    if (v->type == RI_FRAME_JOIN)
        on_join(v);
    else if (v->type == RI_FRAME_ROUND)
        on_round(v);
    else
        on_who(v);
    ri_free(v->body);
    v->body = NULL;
    return true;
}

static bool begin_body(struct visitor *v)
{
    v->type = ri_get16(v->head);
    v->body_len = ri_get32(v->head + 4);
    if (ri_get16(v->head + 2) || !frame_fits(v))
        return false;
    v->body = ri_new(v->body_len, 1);
    return v->body != NULL;
}

/* One piece of a frame. false: v is gone. */
static bool read_some(struct visitor *v, bool *more)
{
    const bool in_head = v->got < RI_FRAME_HEAD;
    const size_t want = in_head ? RI_FRAME_HEAD - v->got : RI_FRAME_HEAD + v->body_len - v->got;
    uint8_t *into = in_head ? v->head + v->got : v->body + (v->got - RI_FRAME_HEAD);
    const ssize_t n = recv(v->watch.fd, into, want, MSG_DONTWAIT);
    *more = n > 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n > 0)
        v->got += (size_t)n;
    if (n <= 0 || (v->got == RI_FRAME_HEAD && !begin_body(v))) {
        depart(v, n > 0 ? "broke the protocol and was dismissed" : "was lost (its connection closed)");
        return false;
    }
    return v->got < RI_FRAME_HEAD || v->got < RI_FRAME_HEAD + v->body_len || handle(v);
}

static void on_visitor(struct ri_watch *w, uint32_t events)
{
    struct visitor *v = (struct visitor *)((char *)w - offsetof(struct visitor, watch));
    bool more = true;
    if (events & EPOLLOUT)
        flush(v);
    while (more && read_some(v, &more))
        ;
}

/* ---- the meeting ---- */

static bool key_for(void *owner, uint32_t from, uint8_t key_out[RI_KEY])
{
    const struct meeting *m = owner;
    memcpy(key_out, m->keys.handshake, RI_KEY);
    return from < RI_RANKS_MAX;
}

static bool on_arrival(void *owner, const struct ri_hello *h, int fd)
{
    struct meeting *m = owner;
    struct visitor *v = ri_new(1, sizeof *v);
    if (!v)
        return false;
    v->watch = (struct ri_watch){.fd = fd, .ready = on_visitor};
    v->meeting = m;
    v->rank = h->from;
    if (h->purpose != RI_FOR_RENDEZVOUS || ri_loop_add(&v->watch, EPOLLIN)) {
        ri_free(v);
        return false;
    }
    v->next = m->visitors;
    m->visitors = v;
    return true;
}

static void *close_port(void *port)
{
    ri_port_close(port);
    return NULL;
}

static void free_meeting(struct meeting *m)
{
    while (m->visitors)
        remove_visitor(m->visitors);
    for (uint32_t r = 0; r < m->size; r++)
        ri_free(m->seats[r].blob);
    ri_free(m->seats);
    drop(m->failure);
    memset(&m->keys, 0, sizeof m->keys);
    ri_free(m);
}

static void end(struct meeting *m)
{
    pthread_t closer;
    struct ri_port *port = m->port;
    ri_port_leave(port, &m->member);
    if (m->lingering)
        ri_loop_timer_remove(&m->linger);
    free_meeting(m);
    if (pthread_create(&closer, NULL, close_port, port))
        ri_log(RI_LOG_WARN, "no thread to close the port of a used ticket: it stays open, but lets nobody in");
    else
        pthread_detach(closer);
}

static void on_linger(struct ri_timer *t, uint64_t now)
{
    (void)now;
    struct meeting *m = (struct meeting *)((char *)t - offsetof(struct meeting, linger));
    if (m->failed && !m->visitors)
        end(m);
}

static void end_if_over(struct meeting *m)
{
    const bool all_seen = m->size && m->arrived == m->size;
    if (m->visitors || !(m->failed || all_seen) || (m->size && m->left < m->arrived))
        return;
    if (all_seen)
        end(m);
    else if (!m->lingering) {
        m->lingering = true;
        ri_loop_timer_add(&m->linger);
    }
}

static void invite(struct meeting *m, struct ri_ticket *ticket_out)
{
    struct ri_ticket t;
    ri_random(t.key, sizeof t.key);
    t.where = *ri_port_endpoint(m->port);
    ri_ticket_derive(&t, &m->keys);
    m->member = (struct ri_member){
        .comm_id = m->keys.comm_id, .rank = RI_MAKER, .key = key_for, .owner = m, .arrived = on_arrival};
    *ticket_out = t;
    ri_port_join(m->port, &m->member);
}

ring_status_t ri_rendezvous_serve(const struct ri_conf *conf, struct ri_ticket *ticket_out)
{
    struct meeting *m = ri_new(1, sizeof *m);
    if (!m)
        return ri_fail(RING_ERR_NOMEM, "no memory for the rendezvous of a ticket");
    m->linger = (struct ri_timer){.period = conf->timeout, .fire = on_linger};
    const ring_status_t status = ri_port_open(conf, false, &m->port);
    if (status) {
        ri_free(m);
        return status;
    }
    invite(m, ticket_out);
    return RING_OK;
}
