/* SPDX-License-Identifier: Apache-2.0 */
/* knock.c - the connecting half of the port: to reach a peer, prove who we are, and check who it is.
 *
 * A peer may not be ready: refusals and closed connections are tried again until the deadline, with growing pauses.  An
 * attempt that has not come to the proof is given up after a while for the next address; after the proof the other side
 * either welcomes or closes, so that is waited for.  Where rails lead to the peer, the connections of its link are
 * spread over those that are up. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/boot/port.h"
#include "lib/boot/rail.h"

#define ATTEMPT (3 * RI_SECOND)
#define RAIL_ATTEMPT (1 * RI_SECOND) /* where there is another way */
#define REFUSED_LONG (300 * RI_MILLISECOND)
enum { FIRST_PAUSE_MS = 1, LAST_PAUSE_MS = 100, WHY = 96 };

struct knock {
    struct ri_port *port;
    const struct ri_endpoint *peer;
    struct ri_hello *h;
    const uint8_t *key;
    const ri_abort_word *abort;
    uint64_t deadline;
    struct ri_rail rail[RI_ENDPOINT_ADDRS]; /* ways side by side, `rails` of them                */
    unsigned rails, first;                  /* first: whose turn it is                           */
    bool refused;                           /* the last attempt found nobody listening           */
    bool unreachable;                       /* it did not even come to be refused                */
    char where[RI_ADDRESS_TEXT], why[WHY];  /* the last failure, for the sentence at the end */
};

/* What an attempt comes to: RING_OK, AGAIN (why is set), or a status that ends it all. */
#define AGAIN RING_ERR_PEER_LOST

static ring_status_t again(struct knock *k, const char *why)
{
    snprintf(k->why, sizeof k->why, "%s", why);
    return AGAIN;
}

/* ---- waiting ---- */

static void poll_sleep(void *arg, int ms) { poll(arg, 1, ms); }

static ring_status_t await(struct knock *k, int fd, short events, uint64_t limit)
{
    struct pollfd p = {.fd = fd, .events = events};
    struct ri_wait w;
    ring_status_t status;
    ri_wait_begin(&w, k->abort, limit < k->deadline ? limit : k->deadline, (struct ri_patience){0, 0});
    while (poll(&p, 1, 0) <= 0)
        if ((status = ri_wait_round(&w, poll_sleep, &p)))
            return status == RING_ERR_TIMEOUT ? again(k, "no answer") : status;
    return RING_OK;
}

static void plain_sleep(void *arg, int ms)
{
    const int *cap = arg;
    poll(NULL, 0, ms < *cap ? ms : *cap);
}

/* RING_ERR_TIMEOUT only when the deadline of all has passed. */
static ring_status_t pause_for(struct knock *k, int ms)
{
    struct ri_wait w;
    ring_status_t status;
    const uint64_t until = ri_deadline((uint64_t)ms * RI_MILLISECOND);
    ri_wait_begin(&w, k->abort, until < k->deadline ? until : k->deadline, (struct ri_patience){0, 0});
    while (!(status = ri_wait_round(&w, plain_sleep, &ms)))
        ;
    return status == RING_ERR_TIMEOUT && ri_now() < k->deadline ? RING_OK : status;
}

/* ---- one attempt ---- */

static ring_status_t say(struct knock *k, int fd, const void *bytes, size_t len)
{
    ssize_t n;
    do
        n = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len ? RING_OK : again(k, n < 0 ? strerror(errno) : "the connection takes no data");
}

static ring_status_t hear(struct knock *k, int fd, void *bytes, size_t len, uint64_t limit)
{
    for (size_t got = 0; got < len;) {
        const ring_status_t status = await(k, fd, POLLIN, limit);
        if (status)
            return status;
        const ssize_t n = recv(fd, (char *)bytes + got, len - got, MSG_DONTWAIT);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || errno == ECONNRESET)
            return again(k, "it closed the connection during the handshake: it is not ready, or does not know us");
        else if (errno != EAGAIN && errno != EINTR)
            return again(k, strerror(errno));
    }
    return RING_OK;
}

static ring_status_t handshake(struct knock *k, int fd, uint64_t limit)
{
    uint8_t hello[RI_HELLO_BYTES], challenge[RI_CHALLENGE_BYTES], proof[RI_PROOF_BYTES], welcome;
    ring_status_t status;
    ri_random(k->h->nonce, sizeof k->h->nonce);
    ri_hello_encode(k->h, k->key, hello);
    if ((status = say(k, fd, hello, sizeof hello)) || (status = hear(k, fd, challenge, sizeof challenge, limit)))
        return status;
    if (!ri_challenge_verify(hello, challenge, k->key))
        return again(k, "whoever answers there does not hold the key");
    ri_proof_encode(hello, challenge, k->key, proof);
    if ((status = say(k, fd, proof, sizeof proof)) || (status = hear(k, fd, &welcome, 1, RI_NEVER)))
        return status;
    return welcome == RI_WELCOME ? RING_OK : again(k, "it does not speak our protocol");
}

static ring_status_t finish_connect(struct knock *k, int fd, uint64_t limit)
{
    int error = 0;
    socklen_t len = sizeof error;
    const ring_status_t status = await(k, fd, POLLOUT, limit);
    if (status)
        return status;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
        error = errno;
    k->refused = error == ECONNREFUSED;
    return error ? again(k, strerror(error)) : RING_OK;
}

static ring_status_t reach(struct knock *k, int fd, const struct sockaddr *sa, socklen_t len, uint64_t limit)
{
    ring_status_t status = RING_OK;
    k->refused = false;
    if (connect(fd, sa, len)) {
        k->refused = errno == ECONNREFUSED;
        status = errno == EINPROGRESS ? finish_connect(k, fd, limit) : again(k, strerror(errno));
    }
    k->unreachable = status == AGAIN && !k->refused;
    return status;
}

/* From one of our addresses, so that routes which look at the source are taken.  Its port is chosen when it connects.
 */
static ring_status_t leave_from(struct knock *k, int fd, const struct ri_address *from)
{
    struct sockaddr_storage sa;
    const int on = 1;
    const socklen_t len = ri_address_sockaddr(from, NULL, &sa);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    k->unreachable = !len || bind(fd, (struct sockaddr *)&sa, len);
    return k->unreachable ? again(k, len ? strerror(errno) : "our interface is gone") : RING_OK;
}

/* from: NULL when any of our addresses will do. */
static ring_status_t attempt(struct knock *k, const struct ri_address *from, const struct sockaddr *sa, socklen_t len,
                             int *fd_out)
{
    const int on = 1;
    const uint64_t limit = ri_deadline(from ? RAIL_ATTEMPT : ATTEMPT);
    const int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno == EAFNOSUPPORT ? again(k, strerror(errno)) : ri_fail_errno("a socket to reach %s", k->where);
    if (sa->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (sa->sa_family != AF_UNIX)
        ri_port_set_congestion(k->port, fd);
    ring_status_t status = from ? leave_from(k, fd, from) : RING_OK;
    if (!status)
        status = reach(k, fd, sa, len, limit);
    if (!status)
        status = handshake(k, fd, from ? ri_deadline(ATTEMPT) : limit);
    if (status)
        close(fd);
    else
        *fd_out = fd;
    return status;
}

static ring_status_t attempt_unix(struct knock *k, int *fd_out)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    const size_t len = strnlen(k->peer->unix_name, RI_UNIX_NAME - 1);
    snprintf(k->where, sizeof k->where, "local socket @%.*s", (int)len, k->peer->unix_name);
    memcpy(sa.sun_path + 1, k->peer->unix_name, len);
    return attempt(k, NULL, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len),
                   fd_out);
}

/* A link-local address is meaningful on one link only: ours, when we have chosen one, else the one named like the
 * peer's. */
static ring_status_t attempt_tcp(struct knock *k, const struct ri_address *a, int *fd_out)
{
    struct sockaddr_storage sa;
    ri_address_print(a, k->where);
    socklen_t len = ri_address_sockaddr(a, k->port ? ri_port_interface(k->port) : NULL, &sa);
    if (!len)
        len = ri_address_sockaddr(a, NULL, &sa);
    return len ? attempt(k, NULL, (struct sockaddr *)&sa, len, fd_out)
               : again(k, "there is no interface of that name here");
}

static ring_status_t attempt_rail(struct knock *k, const struct ri_rail *rail, int *fd_out)
{
    struct sockaddr_storage sa;
    char from[RI_ADDRESS_TEXT];
    ri_address_print(&rail->to, k->where);
    const socklen_t len = ri_address_sockaddr(&rail->to, rail->from.scope, &sa);
    k->unreachable = !len;
    const ring_status_t status = len ? attempt(k, &rail->from, (struct sockaddr *)&sa, len, fd_out)
                                     : again(k, "there is no interface of that name here");
    if (status == AGAIN && k->unreachable && !ri_port_rail_down(k->port, rail)) {
        ri_port_rail_lost(k->port, rail);
        ri_log(RI_LOG_WARN, "the way from %s to rank %u at %s is down (%s); its data takes the other ways",
               ri_address_print(&rail->from, from), k->h->to, k->where, k->why);
    }
    return status;
}

/* The connections of a link take the rails in turns; those that are down are tried when no other is left. */
static ring_status_t attempt_rails(struct knock *k, int *fd_out)
{
    ring_status_t status = AGAIN;
    bool tried = false;
    for (int down = 0; down < 2 && !tried; down++)
        for (unsigned i = 0; i < k->rails && status == AGAIN && ri_now() < k->deadline; i++) {
            const struct ri_rail *rail = &k->rail[(k->first + i) % k->rails];
            if (!down && ri_port_rail_down(k->port, rail))
                continue;
            tried = true;
            status = attempt_rail(k, rail, fd_out);
        }
    return status;
}

static ring_status_t attempt_all(struct knock *k, bool via_unix, int *fd_out)
{
    ring_status_t status = AGAIN;
    if (via_unix)
        return attempt_unix(k, fd_out);
    if (k->rails > 1)
        return attempt_rails(k, fd_out);
    for (int i = 0; i < RI_ENDPOINT_ADDRS && status == AGAIN && ri_now() < k->deadline; i++)
        if (k->peer->addr[i].family)
            status = attempt_tcp(k, &k->peer->addr[i], fd_out);
    return status;
}

/* ---- until the deadline ---- */

/* An address is published by who listens there, and listens until all who may call have called: where nobody does, its
 * process has ended. */
static bool hopeless(const struct knock *k, uint64_t begin) { return k->refused && ri_now() - begin > REFUSED_LONG; }

static void name_peer(const struct knock *k, char who[32])
{
    if (k->h->purpose == RI_FOR_RENDEZVOUS)
        snprintf(who, 32, "the maker of the ticket");
    else
        snprintf(who, 32, "rank %u", k->h->to);
}

static ring_status_t give_up(const struct knock *k, uint64_t begin)
{
    char who[32];
    name_peer(k, who);
    return ri_fail(RING_ERR_TIMEOUT, "%s at %s could not be reached in %.1f s: %s", who, k->where,
                   (double)(ri_now() - begin) / 1e9, k->why);
}

static ring_status_t lost(const struct knock *k)
{
    char who[32];
    name_peer(k, who);
    return ri_fail(RING_ERR_PEER_LOST, "%s is gone: nobody listens at %s", who, k->where);
}

ring_status_t ri_port_connect(struct ri_port *port, const struct ri_endpoint *peer, bool via_unix, struct ri_hello *h,
                              const uint8_t key[RI_KEY], const ri_abort_word *abort, uint64_t deadline, int *fd_out)
{
    struct knock k = {.port = port,
                      .peer = peer,
                      .h = h,
                      .key = key,
                      .abort = abort,
                      .deadline = deadline,
                      .where = "an endpoint without an address",
                      .why = "the deadline has passed"};
    const uint64_t begin = ri_now();
    ring_status_t status;
    if (via_unix ? !peer->unix_name[0] : !peer->addr[0].family)
        return ri_fail(RING_ERR_INTERNAL, "rank %u has published no %s", h->to, via_unix ? "local socket" : "address");
    if (port && h->purpose == RI_FOR_LINK) {
        k.rails = ri_port_rails(port, peer, k.rail);
        k.first = h->lane % RI_LANES;
    }
    for (int pause = FIRST_PAUSE_MS; (status = attempt_all(&k, via_unix, fd_out)) == AGAIN;) {
        if (hopeless(&k, begin))
            return lost(&k);
        if ((status = pause_for(&k, pause)))
            break;
        pause = pause * 2 < LAST_PAUSE_MS ? pause * 2 : LAST_PAUSE_MS;
    }
    return status == RING_ERR_TIMEOUT ? give_up(&k, begin) : status;
}
