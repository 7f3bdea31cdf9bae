/* SPDX-License-Identifier: Apache-2.0 */
/* uid.c - the bootstrap by ticket: a rank's side of the rendezvous (rendezvous.h has the maker's, and the frames).
 *
 * Cost: one connection to the maker; a fence is one round trip and brings all blobs of all ranks, which are kept until
 * close.  What comes from the maker is checked against its length once, when it arrives. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/base/wait.h"
#include "lib/boot/blobs.h"
#include "lib/boot/boot.h"
#include "lib/boot/bytes.h"
#include "lib/boot/port.h"
#include "lib/boot/rendezvous.h"

#define ANSWER_TIME (2 * RI_SECOND)      /* for the maker to say who is missing */
#define ALERT_TIME (20 * RI_MILLISECOND) /* for the rest of a frame that has begun to come */

/* What one round brought. */
struct round {
    struct round *older;
    uint8_t *bytes;
    struct ri_blobs of[]; /* by rank: into bytes */
};

struct uid {
    struct ri_boot base;
    int fd;
    char maker[RI_ADDRESS_TEXT], timeout[32];
    uint8_t *pending; /* what this rank has put since the last fence */
    size_t pending_len;
    struct round *rounds;
};

/* ---- frames ---- */

static void poll_sleep(void *arg, int ms) { poll(arg, 1, ms); }

static ring_status_t await(const struct uid *u, short events, uint64_t deadline)
{
    struct pollfd p = {.fd = u->fd, .events = events};
    struct ri_wait w;
    ring_status_t status = RING_OK;
    ri_wait_begin(&w, NULL, deadline, (struct ri_patience){0, 0});
    while (!status && poll(&p, 1, 0) <= 0)
        status = ri_wait_round(&w, poll_sleep, &p);
    return status;
}

static ring_status_t maker_lost(const struct uid *u)
{
    return ri_fail(RING_ERR_PEER_LOST, "the maker of the ticket (%s) was lost before all ranks had met", u->maker);
}

static ring_status_t send_all(struct uid *u, const uint8_t *bytes, size_t len, uint64_t deadline)
{
    while (len) {
        const ssize_t n = send(u->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            bytes += n;
            len -= (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return maker_lost(u);
        const ring_status_t status = await(u, POLLOUT, deadline);
        if (status)
            return status;
    }
    return RING_OK;
}

static ring_status_t send_frame(struct uid *u, enum ri_frame type, const void *body, size_t len, uint64_t deadline)
{
    uint8_t head[RI_FRAME_HEAD] = {0};
    ri_put16(head, (uint16_t)type);
    ri_put32(head + 4, (uint32_t)len);
    const ring_status_t status = send_all(u, head, sizeof head, deadline);
    return status ? status : send_all(u, body, len, deadline);
}

/* A deadline that passes in the middle of a frame is the end: so only the start of one may time out and go on. */
static ring_status_t recv_all(struct uid *u, uint8_t *bytes, size_t len, uint64_t deadline)
{
    for (size_t got = 0; got < len;) {
        const ssize_t n = recv(u->fd, bytes + got, len - got, MSG_DONTWAIT);
        if (n > 0) {
            got += (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return maker_lost(u);
        const ring_status_t status = await(u, POLLIN, deadline);
        if (status)
            return status;
    }
    return RING_OK;
}

struct answer {
    uint16_t type;
    uint8_t *body;
    size_t len;
};

static ring_status_t recv_frame(struct uid *u, uint64_t deadline, struct answer *out)
{
    uint8_t head[RI_FRAME_HEAD];
    ring_status_t status = await(u, POLLIN, deadline);
    if (status || (status = recv_all(u, head, sizeof head, deadline)))
        return status;
    *out = (struct answer){.type = ri_get16(head), .len = ri_get32(head + 4)};
    const uint64_t most = (uint64_t)u->base.size * (4 + RI_ROUND_MAX);
    if (out->len > (out->type == RI_FRAME_RESULT ? most : 4 + RI_FAIL_TEXT))
        return ri_fail(RING_ERR_INVALID, "the maker of the ticket (%s) does not keep to the protocol", u->maker);
    if (!(out->body = ri_new(out->len, 1)))
        return ri_fail(RING_ERR_NOMEM, "no memory for the %zu bytes that the ranks exchange", out->len);
    if ((status = recv_all(u, out->body, out->len, deadline))) {
        ri_free(out->body);
        out->body = NULL;
    }
    return status;
}

/* ---- failures ---- */

static ring_status_t told(const struct uid *u, const struct answer *a)
{
    char text[RI_FAIL_TEXT];
    if (a->type != RI_FRAME_FAIL || a->len < 4)
        return ri_fail(RING_ERR_INVALID, "the maker of the ticket (%s) does not keep to the protocol", u->maker);
    size_t n = 0;
    for (; n < a->len - 4 && n < sizeof text - 1; n++)
        text[n] = (char)(a->body[4 + n] >= ' ' && a->body[4 + n] < 127 ? a->body[4 + n] : '?');
    text[n] = 0;
    const ring_status_t status = (ring_status_t) - (int32_t)(ri_get32(a->body) & 0xff);
    if (status == RING_ERR_TIMEOUT)
        return ri_fail(status, "%s did not arrive within %s (RING_TIMEOUT)", text, u->timeout);
    return ri_fail(status ? status : RING_ERR_INTERNAL, "%s", text);
}

/* Our deadline has passed: the maker knows who is missing, and tells all. */
static ring_status_t ask_who(struct uid *u, struct answer *out)
{
    const uint64_t deadline = ri_deadline(ANSWER_TIME);
    ring_status_t status = send_frame(u, RI_FRAME_WHO, NULL, 0, deadline);
    if (!status)
        status = recv_frame(u, deadline, out);
    return status != RING_ERR_TIMEOUT
               ? status
               : ri_fail(status,
                         "not all ranks arrived within %s (RING_TIMEOUT), and the maker of the ticket (%s) does "
                         "not say which",
                         u->timeout, u->maker);
}

/* ---- the table ---- */

static ring_status_t put(struct ri_boot *b, const char *key, const void *blob, size_t len)
{
    struct uid *u = (struct uid *)b;
    const size_t more = ri_blobs_size(key, len);
    if (!more || u->pending_len + more > RI_ROUND_MAX)
        return ri_fail(RING_ERR_INTERNAL, "bootstrap entry \"%s\" of %zu bytes is too large", key, len);
    uint8_t *grown = ri_resize(u->pending, u->pending_len + more, 1);
    if (!grown)
        return ri_fail(RING_ERR_NOMEM, "no memory for a bootstrap entry");
    ri_blobs_write(grown + u->pending_len, key, blob, len);
    u->pending = grown;
    u->pending_len += more;
    return RING_OK;
}

/* Takes a's body. */
static ring_status_t keep(struct uid *u, struct answer *a)
{
    const uint32_t size = u->base.size;
    struct round *r = ri_new(1, sizeof *r + size * sizeof *r->of);
    size_t at = 0;
    uint32_t rank = 0;
    for (; r && rank < size && a->len - at >= 4; rank++) {
        const uint32_t len = ri_get32(a->body + at);
        at += 4;
        if (len > a->len - at)
            break;
        r->of[rank] = (struct ri_blobs){a->body + at, len};
        at += len;
    }
    if (!r || rank < size || at != a->len) {
        ri_free(r);
        return r ? ri_fail(RING_ERR_INVALID, "the maker of the ticket (%s) sent a damaged result", u->maker)
                 : ri_fail(RING_ERR_NOMEM, "no memory for what the ranks exchange");
    }
    r->bytes = a->body;
    a->body = NULL;
    r->older = u->rounds;
    u->rounds = r;
    return RING_OK;
}

static ring_status_t fence(struct ri_boot *b, uint64_t deadline)
{
    struct uid *u = (struct uid *)b;
    struct answer a = {0};
    ring_status_t status = send_frame(u, RI_FRAME_ROUND, u->pending, u->pending_len, deadline);
    ri_free(u->pending);
    u->pending = NULL;
    u->pending_len = 0;
    if (!status)
        status = recv_frame(u, deadline, &a);
    else if (status == RING_ERR_PEER_LOST && !recv_frame(u, ri_deadline(ALERT_TIME), &a))
        status = RING_OK; /* the maker's last words */
    if (status == RING_ERR_TIMEOUT)
        status = ask_who(u, &a);
    if (!status)
        status = a.type == RI_FRAME_RESULT ? keep(u, &a) : told(u, &a);
    ri_free(a.body);
    return status;
}

static ring_status_t get(struct ri_boot *b, uint32_t rank, const char *key, void *blob, size_t *len_out)
{
    const struct uid *u = (struct uid *)b;
    for (const struct round *r = u->rounds; r && rank < b->size; r = r->older)
        if (ri_blobs_find(r->of[rank], key, blob, len_out))
            return RING_OK;
    return ri_fail(RING_ERR_INTERNAL, "rank %u has not put \"%s\"", rank, key);
}

static int alert_fd(const struct ri_boot *b) { return ((const struct uid *)b)->fd; }

/* That the maker is gone does not matter any more: all have met. */
static ring_status_t alert(struct ri_boot *b)
{
    struct uid *u = (struct uid *)b;
    struct answer a = {0};
    char byte;
    if (recv(u->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1 || recv_frame(u, ri_deadline(ALERT_TIME), &a))
        return RING_OK;
    const ring_status_t status = a.type == RI_FRAME_FAIL ? told(u, &a) : RING_OK;
    ri_free(a.body);
    return status;
}

static void release(struct uid *u)
{
    while (u->rounds) {
        struct round *r = u->rounds;
        u->rounds = r->older;
        ri_free(r->bytes);
        ri_free(r);
    }
    if (u->fd >= 0)
        close(u->fd);
    ri_free(u->pending);
    sodium_memzero(u->base.secret, sizeof u->base.secret);
    ri_free(u);
}

static void shut(struct ri_boot *b)
{
    struct uid *u = (struct uid *)b;
    const ring_status_t ignored = send_frame(u, RI_FRAME_BYE, NULL, 0, 0); /* else closing says it, less kindly */
    (void)ignored;
    release(u);
}

/* ---- joining ---- */

static ring_status_t reach(struct uid *u, const struct ri_ticket *t, const struct ri_ticket_keys *keys,
                           uint64_t deadline)
{
    struct ri_hello h = {.comm_id = keys->comm_id, .from = u->base.rank, .to = RI_MAKER, .purpose = RI_FOR_RENDEZVOUS};
    struct ri_address peer;
    socklen_t len = sizeof u->base.toward;
    const ring_status_t status = ri_port_connect(NULL, &t->where, false, &h, keys->handshake, NULL, deadline, &u->fd);
    if (status)
        return status;
    if (getpeername(u->fd, (struct sockaddr *)&u->base.toward, &len) ||
        !ri_address_from((struct sockaddr *)&u->base.toward, &peer))
        return maker_lost(u);
    ri_address_print(&peer, u->maker);
    return RING_OK;
}

static ring_status_t join(struct uid *u, uint64_t deadline)
{
    uint8_t size[4];
    struct answer a = {0};
    ri_put32(size, u->base.size);
    ring_status_t status = send_frame(u, RI_FRAME_JOIN, size, sizeof size, deadline);
    if (!status)
        status = recv_frame(u, deadline, &a);
    if (status == RING_ERR_TIMEOUT)
        status = ri_fail(status, "the maker of the ticket (%s) did not answer within %s (RING_TIMEOUT)", u->maker,
                         u->timeout);
    if (!status && a.type != RI_FRAME_WELCOME)
        status = told(u, &a);
    ri_free(a.body);
    return status;
}

static ring_status_t check(const ring_uid_t *uid, uint32_t rank, uint32_t size)
{
    if (!uid)
        return ri_fail(RING_ERR_INVALID, "the ticket is NULL");
    if (size < 1 || size > RI_RANKS_MAX)
        return ri_fail(RING_ERR_INVALID, "size %u is not accepted: a ticket takes 1 to %d ranks", size, RI_RANKS_MAX);
    if (rank >= size)
        return ri_fail(RING_ERR_INVALID, "rank %u is not accepted: with size %u it is 0 to %u", rank, size, size - 1);
    return RING_OK;
}

static void print_timeout(const struct ri_conf *conf, char *text, size_t cap)
{
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_rows[i].offset == offsetof(struct ri_conf, timeout))
            ri_conf_print(conf, &ri_conf_rows[i], text, cap);
}

ring_status_t ri_boot_open_uid(const struct ri_conf *conf, const ring_uid_t *uid, uint32_t rank, uint32_t size,
                               uint64_t deadline, struct ri_boot **boot_out)
{
    static const struct ri_boot_ops ops = {
        .name = "uid", .put = put, .fence = fence, .get = get, .close = shut, .alert_fd = alert_fd, .alert = alert};
    struct ri_ticket ticket;
    struct ri_ticket_keys keys;
    ring_status_t status = check(uid, rank, size);
    if (status || (status = ri_ticket_parse(uid, &ticket)))
        return status;
    struct uid *u = ri_new(1, sizeof *u);
    if (!u)
        return ri_fail(RING_ERR_NOMEM, "no memory for the bootstrap");
    ri_ticket_derive(&ticket, &keys);
    u->base = (struct ri_boot){.ops = &ops, .rank = rank, .size = size, .comm_id = keys.comm_id};
    memcpy(u->base.secret, keys.secret, RI_SECRET);
    u->fd = -1;
    print_timeout(conf, u->timeout, sizeof u->timeout);
    status = reach(u, &ticket, &keys, deadline);
    if (!status)
        status = join(u, deadline);
    sodium_memzero(&ticket, sizeof ticket);
    sodium_memzero(&keys, sizeof keys);
    if (status)
        release(u);
    else
        *boot_out = &u->base;
    return status;
}

ring_status_t ri_uid_create(const struct ri_conf *conf, ring_uid_t *uid_out)
{
    struct ri_ticket ticket;
    const ring_status_t status = ri_rendezvous_serve(conf, &ticket);
    if (!status)
        ri_ticket_print(&ticket, uid_out);
    sodium_memzero(&ticket, sizeof ticket);
    return status;
}
