/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - a transport between ranks of one process, for tests.
 *
 * Each direction of a link is a pipe of bytes with a capacity.  progress() moves bytes of posted sends into it and
 * bytes of it into posted receives.  Out of a seed come delays (a direction rests for some calls of progress: time is
 * counted in calls, not in seconds), transfers cut short, the order in which links are served, completions that are
 * reported late, and capacities; so the same seed and the same calls give the same run.
 *
 * Ends find each other by (self.rank, peer.rank): the first unpaired end that fits.  An end may be used before its peer
 * exists.  One lock for the whole process makes it fit for ranks that are threads.
 *
 * Memory: a pipe's buffer hangs below its receiving end; both ends know each other until either is disconnected. */
#include "transports/loop/loop.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "transports/transport.h"

enum {
    LEAST = 16,      /* bytes a pipe holds, so that a whole element fits whatever came before it */
    USUAL = 8 << 10, /* a pipe's least when nothing is asked for */
    MOST = 64 << 10,
    STAGE = 512, /* bytes handed to a sink at a time; a multiple of every unit */
    REST = 3,    /* one visit in so many makes a direction rest */
    COUNTED = 64
};

/* One direction of a link, at the end that works on it. */
struct half {
    struct ri_queue posted, finished; /* with the peer; complete but not yet reported */
    uint32_t rest;                    /* calls to let pass */
};

struct link {
    struct ri_link base;
    struct link *peer, *next; /* next: of the same context */
    struct link *waiting;     /* in the list of unpaired ends */
    struct half out, in;
    bool broken, peer_gone;
    uint64_t crossed;    /* bytes received */
    unsigned char *pipe; /* what is on its way to this end: a ring */
    size_t capacity, begin, held;
    struct loop_knobs knobs;
};

struct ctx {
    struct ri_tctx base;
    struct link *links;
    uint64_t random;
    int event;
    bool armed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct link *unpaired;
static struct loop_knobs knobs_now;
static struct loop_counts counts[COUNTED];

/* ---- chance ---------------------------------------------------------------------------------------------------- */

static uint64_t chance(struct ctx *c, uint64_t below)
{
    uint64_t z = c->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64: Steele, Lea, Flood, OOPSLA 2014 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static bool rests(struct ctx *c, const struct link *l, struct half *h)
{
    if (l->knobs.calm)
        return false;
    if (h->rest) {
        h->rest--;
        return true;
    }
    if (!chance(c, REST))
        h->rest = (uint32_t)chance(c, 6);
    return false;
}

static size_t cut_short(struct ctx *c, const struct link *l, size_t n)
{
    return l->knobs.calm || n < 2 || chance(c, 2) ? n : 1 + (size_t)chance(c, n);
}

/* ---- pipes ----------------------------------------------------------------------------------------------------- */

static void wake(struct link *l)
{
    struct ctx *c = (struct ctx *)l->base.ctx;
    const uint64_t one = 1;
    if (c->armed && write(c->event, &one, sizeof one) != sizeof one)
        c->armed = false; /* the counter is full: the descriptor is readable already */
}

static void pipe_put(struct link *to, const char *bytes, size_t n)
{
    const size_t at = (to->begin + to->held) % to->capacity, straight = to->capacity - at < n ? to->capacity - at : n;
    memcpy(to->pipe + at, bytes, straight);
    memcpy(to->pipe, bytes + straight, n - straight);
    to->held += n;
}

static void pipe_take(struct link *l, char *bytes, size_t n)
{
    const size_t straight = l->capacity - l->begin < n ? l->capacity - l->begin : n;
    memcpy(bytes, l->pipe + l->begin, straight);
    memcpy(bytes + straight, l->pipe, n - straight);
    l->begin = (l->begin + n) % l->capacity;
    l->held -= n;
}

static void finish(struct half *h, ring_status_t status)
{
    struct ri_xfer *x = ri_queue_take(&h->posted);
    x->status = status;
    ri_queue_put(&h->finished, x);
}

static void fail_all(struct half *h)
{
    while (h->posted.head)
        finish(h, RING_ERR_PEER_LOST);
}

static void sever(struct link *l)
{
    l->broken = true;
    wake(l);
    if (l->peer) {
        l->peer->broken = true;
        wake(l->peer);
    }
}

/* Bytes that may still cross before the link is cut. */
static uint64_t allowance(const struct link *l)
{
    const struct loop_knobs *k = &l->knobs;
    const uint32_t one = l->base.self.rank, other = l->base.peer.rank;
    const bool this_one = (k->cut_one == one && k->cut_other == other) || (k->cut_one == other && k->cut_other == one);
    const uint64_t crossed = l->crossed + (l->peer ? l->peer->crossed : 0);
    if (!k->cut || !this_one || !l->peer)
        return UINT64_MAX;
    return crossed < k->cut_after ? k->cut_after - crossed : 0;
}

static unsigned move_out(struct ctx *c, struct link *l)
{
    unsigned moved = 0;
    struct link *to = l->peer;
    struct ri_xfer *x;
    while (to && (x = l->out.posted.head)) {
        const size_t room = to->capacity - to->held, left = x->len - x->moved;
        const size_t n = cut_short(c, l, left < room ? left : room);
        if (left && !n)
            break;
        if (n)
            pipe_put(to, (const char *)x->buf + x->moved, n);
        x->moved += n;
        moved++;
        wake(to);
        if (l->base.self.rank < COUNTED)
            counts[l->base.self.rank].bytes += n;
        if (x->moved < x->len)
            break;
        if (l->base.self.rank < COUNTED)
            counts[l->base.self.rank].messages++;
        finish(&l->out, RING_OK);
    }
    return moved;
}

static void hand_on(struct link *l, struct ri_xfer *x, size_t n)
{
    _Alignas(64) char stage[STAGE];
    while (n) {
        const size_t piece = n < STAGE ? n : STAGE;
        if (x->sink) {
            pipe_take(l, stage, piece);
            x->sink(x, x->moved, stage, piece);
        } else
            pipe_take(l, (char *)x->buf + x->moved, piece);
        x->moved += piece;
        l->crossed += piece;
        n -= piece;
    }
}

static unsigned move_in(struct ctx *c, struct link *l)
{
    unsigned moved = 0;
    struct ri_xfer *x;
    while ((x = l->in.posted.head)) {
        const size_t left = x->len - x->moved;
        const uint64_t allowed = allowance(l);
        size_t n = cut_short(c, l, left < l->held ? left : l->held);
        if (n > allowed)
            n = (size_t)allowed;
        if (x->sink)
            n -= n % x->unit;
        if (left && !n) {
            if (x->sink && allowed < x->unit) /* no whole element fits any more */
                sever(l);
            break;
        }
        hand_on(l, x, n);
        moved++;
        if (l->peer)
            wake(l->peer);
        if (x->moved < x->len)
            break;
        finish(&l->in, RING_OK);
    }
    return moved;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static bool usable(const struct ri_conf *conf, char *why_out, size_t cap)
{
    (void)conf, (void)why_out, (void)cap;
    return true;
}

static uint32_t sockets(const struct ri_conf *conf)
{
    (void)conf;
    return 0;
}

static bool cost(const struct ri_conf *conf, const struct ri_end *self, const struct ri_end *peer, uint32_t *latency_ns,
                 uint32_t *byte_ps)
{
    (void)conf, (void)self, (void)peer;
    *latency_ns = 1000;
    *byte_ps = 1000;
    return true;
}

static ring_status_t open_ctx(struct ri_tctx *t)
{
    struct ctx *c = (struct ctx *)t;
    c->random = t->conf->loop_seed;
    c->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return c->event < 0 ? ri_fail_errno("loop: an event descriptor") : RING_OK;
}

static void close_ctx(struct ri_tctx *t)
{
    struct ctx *c = (struct ctx *)t;
    if (c->event > 0)
        close(c->event);
    c->event = -1;
}

static void pair_up(struct link *l)
{
    struct link **p = &unpaired;
    while (*p && ((*p)->base.self.rank != l->base.peer.rank || (*p)->base.peer.rank != l->base.self.rank))
        p = &(*p)->waiting;
    if (!*p) {
        l->waiting = NULL;
        *p = l;
        return;
    }
    l->peer = *p;
    l->peer->peer = l;
    *p = l->peer->waiting;
    wake(l->peer);
}

static ring_status_t connect_link(struct ri_link *base, const int *fds, uint32_t count)
{
    struct link *l = (struct link *)base;
    struct ctx *c = (struct ctx *)base->ctx;
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    pthread_mutex_lock(&lock);
    l->knobs = knobs_now;
    l->capacity = l->knobs.capacity;
    if (!l->capacity)
        l->capacity = l->knobs.calm ? MOST : (size_t)USUAL << chance(c, 4);
    if (l->capacity < LEAST)
        l->capacity = LEAST;
    l->pipe = ri_new(l->capacity, 1);
    if (l->pipe) {
        l->next = c->links;
        c->links = l;
        pair_up(l);
    }
    pthread_mutex_unlock(&lock);
    return l->pipe ? RING_OK : ri_fail(RING_ERR_NOMEM, "loop: no memory for %zu bytes of a link", l->capacity);
}

static void disconnect_link(struct ri_link *base)
{
    struct link *l = (struct link *)base;
    struct ctx *c = (struct ctx *)base->ctx;
    pthread_mutex_lock(&lock);
    struct link **p = &c->links;
    while (*p && *p != l)
        p = &(*p)->next;
    if (*p)
        *p = l->next;
    p = &unpaired;
    while (*p && *p != l)
        p = &(*p)->waiting;
    if (*p)
        *p = l->waiting;
    if (l->peer) {
        l->peer->peer = NULL;
        l->peer->peer_gone = true;
        wake(l->peer);
    }
    l->peer = NULL;
    ri_free(l->pipe);
    l->pipe = NULL;
    pthread_mutex_unlock(&lock);
}

static void post(struct ri_link *base, struct half *h, struct ri_xfer *x)
{
    (void)base;
    pthread_mutex_lock(&lock);
    ri_queue_put(&h->posted, x);
    pthread_mutex_unlock(&lock);
}

static void send_xfer(struct ri_link *base, struct ri_xfer *x) { post(base, &((struct link *)base)->out, x); }

static void recv_xfer(struct ri_link *base, struct ri_xfer *x) { post(base, &((struct link *)base)->in, x); }

static unsigned report(struct ctx *c, const struct link *l, struct half *h, struct ri_queue *done)
{
    unsigned n = 0;
    while (h->finished.head && (l->knobs.calm || chance(c, 4))) {
        ri_queue_put(done, ri_queue_take(&h->finished));
        n++;
    }
    return n;
}

/* What the peer sent before it went still arrives; the first receive that it does not fill is the end. */
static bool ran_dry(const struct link *l)
{
    const struct ri_xfer *x = l->in.posted.head;
    return l->peer_gone && x && l->held < x->len - x->moved;
}

static unsigned serve(struct ctx *c, struct link *l, struct ri_queue *done)
{
    unsigned moved = 0;
    if (!allowance(l))
        sever(l);
    if (!l->broken && !rests(c, l, &l->out))
        moved += move_out(c, l);
    if (!l->broken && !rests(c, l, &l->in))
        moved += move_in(c, l);
    if (ran_dry(l))
        l->broken = true;
    if (l->broken || l->peer_gone)
        fail_all(&l->out);
    if (l->broken)
        fail_all(&l->in);
    moved += report(c, l, &l->out, done);
    return moved + report(c, l, &l->in, done);
}

static unsigned progress(struct ri_tctx *t, struct ri_queue *done)
{
    struct ctx *c = (struct ctx *)t;
    unsigned moved = 0;
    pthread_mutex_lock(&lock);
    for (struct link *l = c->links, *next; l; l = next) {
        next = l->next;
        if (next && !l->knobs.calm && !chance(c, 4)) { /* the link behind goes first */
            moved += serve(c, next, done);
            moved += serve(c, l, done);
            next = next->next;
        } else
            moved += serve(c, l, done);
    }
    pthread_mutex_unlock(&lock);
    return moved;
}

static bool has_work(const struct link *l)
{
    const struct ri_xfer *out = l->out.posted.head, *in = l->in.posted.head;
    if (l->out.finished.head || l->in.finished.head || ((l->broken || l->peer_gone) && (out || in)))
        return true;
    if (out && l->peer && (out->len == out->moved || l->peer->held < l->peer->capacity))
        return true;
    return in && (in->len == in->moved || l->held >= (in->sink ? in->unit : 1));
}

static bool arm(struct ri_tctx *t)
{
    struct ctx *c = (struct ctx *)t;
    bool idle = true;
    pthread_mutex_lock(&lock);
    for (const struct link *l = c->links; l && idle; l = l->next)
        idle = !has_work(l);
    c->armed = idle;
    pthread_mutex_unlock(&lock);
    return idle;
}

static int wait_fd(struct ri_tctx *t) { return ((struct ctx *)t)->event; }

static void disarm(struct ri_tctx *t)
{
    struct ctx *c = (struct ctx *)t;
    uint64_t seen;
    pthread_mutex_lock(&lock);
    c->armed = false;
    while (read(c->event, &seen, sizeof seen) < 0 && errno == EINTR)
        continue;
    pthread_mutex_unlock(&lock);
}

const struct ri_transport ri_transport_loop = {
    .abi = RI_TRANSPORT_ABI,
    .name = "loop",
    .help = "ranks of one process, with seeded delays; for tests",
    .ctx_size = sizeof(struct ctx),
    .link_size = sizeof(struct link),
    .rendezvous = RI_RENDEZVOUS_NONE,
    .usable = usable,
    .sockets = sockets,
    .cost = cost,
    .open = open_ctx,
    .close = close_ctx,
    .connect = connect_link,
    .disconnect = disconnect_link,
    .send = send_xfer,
    .recv = recv_xfer,
    .progress = progress,
    .arm = arm,
    .wait_fd = wait_fd,
    .disarm = disarm,
};

/* ---- for tests ------------------------------------------------------------------------------------------------- */

void loop_set_knobs(const struct loop_knobs *knobs)
{
    pthread_mutex_lock(&lock);
    knobs_now = knobs ? *knobs : (struct loop_knobs){0};
    pthread_mutex_unlock(&lock);
}

struct loop_counts loop_counts_of(uint32_t from)
{
    pthread_mutex_lock(&lock);
    const struct loop_counts seen = from < COUNTED ? counts[from] : (struct loop_counts){0};
    pthread_mutex_unlock(&lock);
    return seen;
}

void loop_reset_counts(void)
{
    pthread_mutex_lock(&lock);
    memset(counts, 0, sizeof counts);
    pthread_mutex_unlock(&lock);
}
