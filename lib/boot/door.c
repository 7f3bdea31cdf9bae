/* SPDX-License-Identifier: Apache-2.0 */
/* door.c - see door.h. Callbacks run on the background thread with the loop lock held, and never block. */
#include "lib/boot/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/wait.h"

#define SWEEP (100 * RI_MILLISECOND)
#define SHY (50 * RI_MILLISECOND) /* a rank says hello in one piece at once; whoever has not by then may be put out */

enum stage { FREE, HELLO, PROOF };

struct guest {
    struct ri_watch watch;
    enum stage stage;
    uint64_t since;
    size_t got;
    struct ri_hello h;
    uint8_t hello[RI_HELLO_BYTES], challenge[RI_CHALLENGE_BYTES], proof[RI_PROOF_BYTES], key[RI_KEY];
};

_Atomic uint32_t ri_door_news;
static struct ri_listener *listeners;
static struct ri_member *members;
static struct guest guests[RI_GUESTS];
static unsigned guest_count;
static bool starved, sweeping;

static void sweep(struct ri_timer *t, uint64_t now);
static struct ri_timer sweeper = {.period = SWEEP, .fire = sweep};

/* ---- members ---- */

static struct ri_member *find_member(uint64_t comm_id, uint32_t rank)
{
    struct ri_member *m = members;
    while (m && (m->comm_id != comm_id || m->rank != rank))
        m = m->next;
    return m;
}

void ri_door_join(struct ri_member *m)
{
    m->arrivals = NULL;
    m->next = members;
    members = m;
}

void ri_door_leave(struct ri_member *m)
{
    for (struct ri_member **at = &members; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    while (m->arrivals) {
        struct ri_arrival *a = m->arrivals;
        m->arrivals = a->next;
        if (a->fd >= 0)
            close(a->fd);
        ri_free(a);
    }
}

static bool known_already(const struct ri_member *m, const struct ri_hello *h)
{
    for (const struct ri_arrival *a = m->arrivals; a; a = a->next)
        if (a->from == h->from && a->purpose == h->purpose && a->lane == h->lane)
            return true;
    return false;
}

static bool queue(struct ri_member *m, const struct ri_hello *h, int fd)
{
    struct ri_arrival *a = ri_new(1, sizeof *a);
    if (!a)
        return false;
    *a = (struct ri_arrival){.next = m->arrivals, .from = h->from, .purpose = h->purpose, .lane = h->lane, .fd = fd};
    m->arrivals = a;
    return true;
}

/* ---- guests ---- */

static void resume(void)
{
    for (struct ri_listener *l = listeners; l; l = l->next)
        if (l->paused) {
            l->paused = false;
            ri_loop_change(&l->watch, EPOLLIN);
        }
}

/* The place becomes free; the descriptor is somebody else's now. */
static void release(struct guest *g)
{
    ri_loop_remove(&g->watch);
    sodium_memzero(g, sizeof *g);
    guest_count--;
    resume();
}

static void put_out(struct guest *g, const char *why)
{
    const int fd = g->watch.fd;
    ri_log(RI_LOG_DEBUG, "a connection to our port was closed: %s", why);
    release(g);
    close(fd);
}

static bool say(int fd, const void *bytes, size_t len)
{
    ssize_t n;
    do
        n = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len; /* a fresh socket's buffer takes these few bytes at once */
}

static void answer_hello(struct guest *g)
{
    uint8_t nonce[RI_NONCE];
    if (!ri_hello_decode(g->hello, &g->h)) {
        put_out(g, "it does not speak our protocol");
        return;
    }
    const struct ri_member *m = find_member(g->h.comm_id, g->h.to);
    if (!m || !m->key(m->owner, g->h.from, g->key)) {
        put_out(g, "it asks for a rank that is not here, or comes from one that is not known");
        return;
    }
    if (!ri_hello_verify(g->hello, g->key)) {
        put_out(g, "its hello was not made with the key");
        return;
    }
    ri_random(nonce, sizeof nonce);
    ri_challenge_encode(g->hello, nonce, g->key, g->challenge);
    g->stage = PROOF;
    g->got = 0;
    if (!say(g->watch.fd, g->challenge, sizeof g->challenge))
        put_out(g, "it went away");
}

/* The one byte that follows tells the other side that it is in. */
static void answer_proof(struct guest *g)
{
    static const uint8_t welcome = RI_WELCOME;
    const struct ri_hello h = g->h;
    const int fd = g->watch.fd;
    struct ri_member *m = find_member(h.comm_id, h.to);
    if (!m || !ri_proof_verify(g->hello, g->challenge, g->key, g->proof)) {
        put_out(g, m ? "it could not prove that it holds the key" : "the rank it asks for has left");
        return;
    }
    if (!m->arrived && known_already(m, &h)) {
        put_out(g, "there is such a connection already");
        return;
    }
    if (!say(fd, &welcome, sizeof welcome)) {
        put_out(g, "it went away");
        return;
    }
    release(g);
    if (!(m->arrived ? m->arrived(m->owner, &h, fd) : queue(m, &h, fd)))
        close(fd);
    atomic_fetch_add(&ri_door_news, 1);
    ri_word_wake(&ri_door_news);
}

static void on_guest(struct ri_watch *w, uint32_t events)
{
    struct guest *g = (struct guest *)((char *)w - offsetof(struct guest, watch));
    const bool first = g->stage == HELLO;
    uint8_t *into = first ? g->hello : g->proof;
    const size_t want = first ? sizeof g->hello : sizeof g->proof;
    const ssize_t n = recv(w->fd, into + g->got, want - g->got, MSG_DONTWAIT);
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        put_out(g, "it went away");
        return;
    }
    g->got += (size_t)n;
    if (g->got < want)
        return;
    if (first)
        answer_hello(g);
    else
        answer_proof(g);
}

static void sweep(struct ri_timer *t, uint64_t now)
{
    for (int i = 0; i < RI_GUESTS; i++)
        if (guests[i].stage != FREE && now >= guests[i].since + RI_GUEST_TIME)
            put_out(&guests[i], "it took too long to say who it is");
    resume();
    if (!guest_count && !starved) {
        ri_loop_timer_remove(t);
        sweeping = false;
    }
}

static void start_sweeping(void)
{
    if (!sweeping)
        ri_loop_timer_add(&sweeper);
    sweeping = true;
}

static struct guest *oldest_shy(uint64_t now)
{
    struct guest *oldest = NULL;
    for (int i = 0; i < RI_GUESTS; i++) {
        struct guest *g = &guests[i];
        if (g->stage == HELLO && now >= g->since + SHY && (!oldest || g->since < oldest->since))
            oldest = g;
    }
    return oldest;
}

static struct guest *find_place(void)
{
    struct guest *g = guest_count < RI_GUESTS ? NULL : oldest_shy(ri_now());
    if (g)
        put_out(g, "all places were taken and it had not said hello");
    for (int i = 0; i < RI_GUESTS; i++)
        if (guests[i].stage == FREE)
            return &guests[i];
    return NULL;
}

/* ---- accepting ---- */

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && peer.uid == geteuid();
}

static void let_in(struct guest *g, const struct ri_listener *l, int fd)
{
    const int on = 1;
    if (l->addr.family)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    else if (!same_user(fd)) {
        close(fd);
        return;
    }
    g->watch = (struct ri_watch){.fd = fd, .ready = on_guest};
    g->since = ri_now();
    g->got = 0;
    if (ri_loop_add(&g->watch, EPOLLIN)) {
        close(fd);
        return;
    }
    g->stage = HELLO;
    guest_count++;
    start_sweeping();
}

static void pause_listener(struct ri_listener *l)
{
    l->paused = true;
    ri_loop_change(&l->watch, 0);
    start_sweeping();
}

/* No descriptor for a newcomer: ranks that wait for it are told (ri_door_starved), and the sweep tries again. */
static void starve(struct ri_listener *l)
{
    if (!starved)
        ri_log(RI_LOG_WARN, "no file descriptor is left to accept a connection (see ulimit -n)");
    starved = true;
    pause_listener(l);
    atomic_fetch_add(&ri_door_news, 1);
    ri_word_wake(&ri_door_news);
}

static void on_listener(struct ri_watch *w, uint32_t events)
{
    struct ri_listener *l = (struct ri_listener *)((char *)w - offsetof(struct ri_listener, watch));
    struct guest *g = find_place();
    (void)events;
    if (!g) {
        pause_listener(l);
        return;
    }
    const int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        starved = false;
        let_in(g, l, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        starve(l);
    /* else it was gone before we came (ECONNABORTED and the like): level triggering brings the next */
}

bool ri_door_starved(void) { return starved; }

/* ---- listeners ---- */

/* A child that kept the sockets would make peers wait for an answer that nobody gives.  lib/base/loop.c holds its lock
 * over the fork, so the lists are whole; what they point to is the parent's. */
static void after_fork_in_child(void)
{
    for (struct ri_listener *l = listeners; l; l = l->next)
        close(l->watch.fd);
    for (int i = 0; i < RI_GUESTS; i++)
        if (guests[i].stage != FREE)
            close(guests[i].watch.fd);
    sodium_memzero(guests, sizeof guests);
    listeners = NULL;
    members = NULL;
    guest_count = 0;
    starved = sweeping = false;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

static ring_status_t enlist(struct ri_listener *l, struct ri_listener **out)
{
    l->watch.ready = on_listener;
    l->users = 1;
    const ring_status_t status = ri_loop_add(&l->watch, EPOLLIN);
    if (status) {
        close(l->watch.fd);
        return status;
    }
    l->next = listeners;
    listeners = l;
    *out = l;
    return RING_OK;
}

static ring_status_t open_new(const struct ri_address *addr, struct ri_port_range range, struct ri_listener **out)
{
    static pthread_once_t forks = PTHREAD_ONCE_INIT;
    pthread_once(&forks, watch_forks);
    struct ri_listener *l = ri_new(1, sizeof *l);
    if (!l)
        return ri_fail(RING_ERR_NOMEM, "no memory for a listening socket");
    if (addr)
        l->addr = *addr;
    ring_status_t status =
        addr ? ri_listen_tcp(&l->addr, range, &l->watch.fd) : ri_listen_unix(l->unix_name, &l->watch.fd);
    if (!status)
        status = enlist(l, out);
    if (status)
        ri_free(l);
    return status;
}

ring_status_t ri_door_listen(const struct ri_address *addr, struct ri_port_range range, struct ri_listener **out)
{
    for (struct ri_listener *l = listeners; l; l = l->next)
        if (l->addr.family && ri_address_same_host(&l->addr, addr)) {
            l->users++;
            *out = l;
            return RING_OK;
        }
    return open_new(addr, range, out);
}

ring_status_t ri_door_listen_unix(struct ri_listener **out)
{
    for (struct ri_listener *l = listeners; l; l = l->next)
        if (!l->addr.family) {
            l->users++;
            *out = l;
            return RING_OK;
        }
    return open_new(NULL, (struct ri_port_range){0, 0}, out);
}

static void close_all_guests(void)
{
    for (int i = 0; i < RI_GUESTS; i++)
        if (guests[i].stage != FREE)
            put_out(&guests[i], "the port closes");
    if (sweeping)
        ri_loop_timer_remove(&sweeper);
    sweeping = starved = false;
}

void ri_door_unlisten(struct ri_listener *l)
{
    if (!l || --l->users)
        return;
    struct ri_listener **at = &listeners;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    ri_loop_remove(&l->watch);
    close(l->watch.fd);
    ri_free(l);
    if (!listeners)
        close_all_guests();
}
