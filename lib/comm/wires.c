/* SPDX-License-Identifier: Apache-2.0 */
/* wires.c - which peers need a link, over which transport, and how it is made; then progress and sleep over all of
 * them.
 *
 * Links for all-reduces are made with the communicator (none when direct shared memory serves them); the others when a
 * program first wants them.  Of two ranks the lower connects, which the other's background thread answers whatever its
 * own thread does; the higher finds the connection when it looks, and until then what runs over the link waits.  So
 * wanting a link never waits for the peer's program. */
#include "lib/comm/comm.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/boot/door.h"
#include "lib/boot/iface.h"

enum { LANES_PER_TRANSPORT = RI_LANES, TYPICAL_BYTES = 1 << 16 };
/* Processor time of one message and of reducing one byte; the links' own figures come from the transports. */
#define MESSAGE_NS 400.0
#define REDUCE_BYTE_NS 0.05

/* ---- what there is, and what may be used ----------------------------------------------------------------------- */

static bool listed(const char *list, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        if (n == len && !memcmp(at, word, n))
            return true;
        at += n;
        if (!*at)
            return false;
    }
}

const char *ri_wires_transports(void)
{
    static _Thread_local char names[128];
    size_t n = 0;
    names[0] = '\0';
    for (uint32_t i = 0; ri_transports[i]; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? "," : "", ri_transports[i]->name);
    return names;
}

bool ri_wires_allowed(const struct ri_conf *conf, const char *transport)
{
    return ri_conf_is_auto(conf->transport) || listed(conf->transport, transport);
}

void ri_wires_look(const struct ri_conf *conf, struct ri_peer *me)
{
    me->transports = me->blocked = 0;
    me->off[0] = '\0';
    for (uint32_t i = 0; ri_transports[i]; i++) {
        const struct ri_transport *t = ri_transports[i];
        const uint32_t bit = UINT32_C(1) << i;
        const size_t n = strlen(me->off);
        char why[160];
        if (t->usable(conf, why, sizeof why)) {
            me->transports |= bit;
            continue;
        }
        ri_log(RI_LOG_INFO, "transport %s is off: %s", t->name, why);
        if (!ri_wires_allowed(conf, t->name))
            continue;
        me->blocked |= t->blocked && t->blocked(conf) ? bit : 0;
        snprintf(me->off + n, sizeof me->off - n, "%s%s is off: %s", n ? "; " : "", t->name, why);
    }
}

static ring_status_t check_transports(const struct ri_conf *conf)
{
    for (const char *at = conf->transport;; at++) {
        char word[RI_CONF_TEXT_MAX];
        const size_t n = strcspn(at, ",");
        memcpy(word, at, n);
        word[n] = '\0';
        if (!listed(ri_wires_transports(), word))
            return ri_fail(RING_ERR_CONFIG, "RING_TRANSPORT=\"%.80s\" is not accepted: \"%.40s\" is none of auto,%s",
                           conf->transport, word, ri_wires_transports());
        at += n;
        if (!*at)
            return RING_OK;
    }
}

ring_status_t ri_wires_check(const struct ri_conf *conf)
{
    struct ri_rules rules;
    struct ri_port_range ports;
    ring_status_t status = ri_conf_is_auto(conf->transport) ? RING_OK : check_transports(conf);
    if (!status)
        status = ri_rules_parse(conf->algo, &rules);
    if (!status)
        status = ri_port_range_parse(conf->port_range, &ports);
    return status ? status : ri_iface_check(conf->ifname);
}

/* Direct shared memory is what the transport shm is to links: who forbids one forbids the other. */
bool ri_wires_direct(const struct ring_comm *c)
{
    return c->size > 1 && c->local_size == c->size && c->conf.node == RI_NODE_AUTO && ri_wires_allowed(&c->conf, "shm");
}

/* ---- which peers ----------------------------------------------------------------------------------------------- */

/* Those that small, middle and large all-reduces talk to: what nearly every job does, known before its first call. */
static ring_status_t mark_peers(const struct ring_comm *c, bool *wanted)
{
    static const size_t counts[] = {1, 1 << 14, 1 << 22};
    ring_status_t status = RING_OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !status; i++) {
        const struct ri_call call = {
            .coll = RING_ALL_REDUCE, .dtype = RING_FLOAT, .redop = RING_SUM, .count = counts[i]};
        struct ri_coll_args args;
        struct ri_sched s = {0};
        if (ri_wires_direct(c) && ri_program_leaves_to_node(c, &call))
            continue;
        status = ri_program_choose(c, &call, &args)->build(&s, &args);
        for (uint32_t p = 0; p < s.npeers && !status; p++)
            wanted[s.peers[p]] = true;
        ri_sched_free(&s);
    }
    return status;
}

ring_status_t ri_wires_possible(const struct ring_comm *c)
{
    for (uint32_t r = 0; r < c->size; r++) {
        bool any = false;
        for (uint32_t i = 0; ri_transports[i]; i++)
            any |= c->peer[r].transports >> i & 1 && ri_wires_allowed(&c->conf, ri_transports[i]->name);
        if (!any)
            return ri_fail(RING_ERR_UNSUPPORTED, "RING_TRANSPORT=%.80s cannot be had on %s: %s", c->conf.transport,
                           c->peer[r].name, c->peer[r].off);
    }
    return RING_OK;
}

/* The cheapest of those in the mask that may be used; NULL: none. */
static const struct ri_transport *cheapest(const struct ring_comm *c, uint32_t rank, uint32_t mask, uint32_t *index_out)
{
    const struct ri_peer *me = &c->peer[c->rank], *p = &c->peer[rank];
    const struct ri_end self = {.rank = me->rank, .node = me->node, .name = me->name};
    const struct ri_end peer = {.rank = p->rank, .node = p->node, .name = p->name};
    double best = 0;
    *index_out = RI_NONE;
    for (uint32_t i = 0; ri_transports[i]; i++) {
        uint32_t latency, byte;
        if (!(mask >> i & 1) || !ri_wires_allowed(&c->conf, ri_transports[i]->name) ||
            !ri_transports[i]->cost(&c->conf, &self, &peer, &latency, &byte))
            continue;
        const double cost = latency + byte / 1e3 * TYPICAL_BYTES;
        if (*index_out == RI_NONE || cost < best) {
            *index_out = i;
            best = cost;
        }
    }
    return *index_out == RI_NONE ? NULL : ri_transports[*index_out];
}

/* The cheapest that both ends have. */
static const struct ri_transport *choose(const struct ring_comm *c, uint32_t rank, uint32_t *index_out)
{
    return cheapest(c, rank, c->peer[c->rank].transports & c->peer[rank].transports, index_out);
}

/* One that one of the ends has, or should have, would be cheaper: people want to know, but not of every link. */
static void tell_of_better(const struct ring_comm *c, uint32_t rank, const struct ri_transport *chosen)
{
    static _Atomic bool told;
    const struct ri_peer *me = &c->peer[c->rank], *p = &c->peer[rank];
    uint32_t index;
    const struct ri_transport *better =
        cheapest(c, rank, me->transports | me->blocked | p->transports | p->blocked, &index);
    if (better == chosen)
        return;
    const struct ri_peer *lacks = me->transports >> index & 1 ? p : me;
    ri_log(atomic_exchange(&told, true) ? RI_LOG_INFO : RI_LOG_WARN, "the link to %s goes over %s, as on rank %u %s",
           p->name, chosen->name, lacks->rank, lacks->off);
}

static ring_status_t no_transport(const struct ring_comm *c, const struct ri_peer *p)
{
    const struct ri_peer *me = &c->peer[c->rank], *lacks = me->off[0] ? me : p;
    if (lacks->off[0])
        return ri_fail(RING_ERR_UNSUPPORTED, "no transport joins %s and %s (RING_TRANSPORT=%.80s): on rank %u %s",
                       me->name, p->name, c->conf.transport, lacks->rank, lacks->off);
    return ri_fail(RING_ERR_UNSUPPORTED, "no transport joins %s and %s (RING_TRANSPORT=%.80s, built: %s)", me->name,
                   p->name, c->conf.transport, ri_wires_transports());
}

uint32_t ri_wires_sockets(const struct ring_comm *c)
{
    uint32_t n = 0;
    bool *wanted = ri_new(c->size, sizeof *wanted); /* none: a rough count is all it is */
    if (wanted && !mark_peers(c, wanted))
        for (uint32_t r = 0; r < c->size; r++) {
            uint32_t index;
            const struct ri_transport *t = wanted[r] ? choose(c, r, &index) : NULL;
            n += t && t->rendezvous != RI_RENDEZVOUS_NONE ? t->sockets(&c->conf) + 1 : 0;
        }
    ri_free(wanted);
    return n ? n + RI_TRANSPORTS_MAX : 0;
}

/* In the order of the build, whichever was wanted first. */
static void join_names(uint32_t mask, char *text, size_t cap)
{
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; ri_transports[i] && n < cap; i++)
        if (mask >> i & 1)
            n += (size_t)snprintf(text + n, cap - n, "%s%s", n ? "+" : "", ri_transports[i]->name);
}

static uint32_t opened(const struct ri_wires *w)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; ri_transports[i]; i++)
        for (uint32_t k = 0; k < w->ctxs; k++)
            mask |= (uint32_t)(w->ctx[k]->transport == ri_transports[i]) << i;
    return mask;
}

const char *ri_wires_names(struct ring_comm *c)
{
    uint32_t mask = opened(&c->wires), index;
    for (uint32_t r = 0; r < c->size && !c->wires.ctxs; r++)
        if (r != c->rank && choose(c, r, &index))
            mask |= UINT32_C(1) << index;
    join_names(mask, c->wires.names, sizeof c->wires.names);
    return c->wires.names;
}

/* ---- making links ---------------------------------------------------------------------------------------------- */

static bool find_region(const void *at, size_t bytes, struct ri_region *region_out)
{
    struct ri_heap_block block;
    if (!ri_heap_block(at, bytes, &block))
        return false;
    *region_out = (struct ri_region){.begin = block.begin, .bytes = block.bytes, .serial = block.serial};
    return true;
}

static const struct ri_memory memory = {.find = find_region, .version = ri_heap_version};

static ring_status_t open_context(struct ring_comm *c, const struct ri_transport *t, struct ri_tctx **ctx_out)
{
    struct ri_wires *w = &c->wires;
    for (uint32_t i = 0; i < w->ctxs; i++)
        if (w->ctx[i]->transport == t) {
            *ctx_out = w->ctx[i];
            return RING_OK;
        }
    if (w->ctxs == RI_TRANSPORTS_MAX)
        return ri_fail(RING_ERR_INTERNAL, "more than %d transports", RI_TRANSPORTS_MAX);
    struct ri_tctx *ctx = ri_new_aligned(64, t->ctx_size);
    if (!ctx)
        return ri_fail(RING_ERR_NOMEM, "no memory for transport %s", t->name);
    ctx->transport = t;
    ctx->conf = &c->conf;
    ctx->memory = &memory;
    w->ctx[w->ctxs++] = ctx;
    join_names(opened(w), w->names, sizeof w->names);
    *ctx_out = ctx;
    return t->open(ctx);
}

/* A link whose sockets are not all there yet. */
struct ri_expected {
    struct ri_expected *next;
    uint32_t rank, index, count; /* the peer, its transport, sockets */
    int fds[LANES_PER_TRANSPORT];
};

static void drop_expected(struct ri_expected *e)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->fds[i] >= 0)
            close(e->fds[i]);
    ri_free(e);
}

static uint16_t lane_of(const struct ri_expected *e, uint32_t i)
{
    return (uint16_t)(e->index * LANES_PER_TRANSPORT + i);
}

static ring_status_t connect_all(struct ring_comm *c, struct ri_expected *e, uint64_t deadline)
{
    const struct ri_peer *p = &c->peer[e->rank];
    const bool by_unix = ri_transports[e->index]->rendezvous == RI_RENDEZVOUS_UNIX;
    uint8_t key[RI_KEY];
    ring_status_t status = ri_pair_key(&c->identity, c->rank, p->key, e->rank, c->comm_id, c->secret, key);
    for (uint32_t i = 0; i < e->count && !status; i++) {
        struct ri_hello h = {
            .comm_id = c->comm_id, .from = c->rank, .to = e->rank, .purpose = RI_FOR_LINK, .lane = lane_of(e, i)};
        status = ri_port_connect(c->port, &p->end, by_unix, &h, key, &c->board->abort, deadline, &e->fds[i]);
    }
    return status;
}

/* The link itself, once its sockets are there; e is used up. */
static ring_status_t finish_link(struct ring_comm *c, struct ri_expected *e)
{
    const struct ri_transport *t = ri_transports[e->index];
    const struct ri_peer *me = &c->peer[c->rank], *p = &c->peer[e->rank];
    struct ri_tctx *ctx = NULL;
    ring_status_t status = open_context(c, t, &ctx);
    struct ri_link *l = status ? NULL : ri_new_aligned(64, t->link_size);
    if (!status && !l)
        status = ri_fail(RING_ERR_NOMEM, "no memory for a link to %s", p->name);
    if (status) {
        drop_expected(e);
        return status;
    }
    l->ctx = ctx;
    l->self = (struct ri_end){.rank = me->rank, .node = me->node, .name = me->name};
    l->peer = (struct ri_end){.rank = p->rank, .node = p->node, .name = p->name};
    l->initiator = c->rank < e->rank;
    const uint32_t number = c->wires.number[e->rank];
    c->wires.link[number] = l;
    status = t->connect(l, e->fds, e->count);
    ri_free(e);
    if (!status)
        ri_engine_link_ready(c->wires.engine, number);
    return status;
}

/* The link that a peer makes, if all of it has come. */
static ring_status_t look_for(struct ring_comm *c, struct ri_expected **at)
{
    struct ri_expected *e = *at;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->fds[i] >= 0)
            continue;
        const ring_status_t status =
            ri_port_try_collect(c->port, &c->member, e->rank, RI_FOR_LINK, lane_of(e, i), &e->fds[i]);
        if (status || e->fds[i] < 0)
            return status;
    }
    *at = e->next;
    return finish_link(c, e);
}

static ring_status_t look_for_all(struct ring_comm *c)
{
    ring_status_t status = RING_OK;
    for (struct ri_expected **at = &c->wires.expected; *at && !status;) {
        struct ri_expected *e = *at;
        status = look_for(c, at);
        if (*at == e)
            at = &e->next;
    }
    return status;
}

static ring_status_t want_link(struct ring_comm *c, uint32_t rank, uint64_t deadline)
{
    struct ri_wires *w = &c->wires;
    const struct ri_peer *p = &c->peer[rank];
    uint32_t index;
    const struct ri_transport *t = choose(c, rank, &index);
    if (!t)
        return no_transport(c, p);
    tell_of_better(c, rank, t);
    struct ri_expected *e = ri_new(1, sizeof *e);
    if (!e)
        return ri_fail(RING_ERR_NOMEM, "no memory for a link to %s", p->name);
    *e = (struct ri_expected){.rank = rank, .index = index};
    e->count = t->rendezvous == RI_RENDEZVOUS_NONE ? 0 : t->sockets(&c->conf);
    memset(e->fds, -1, sizeof e->fds);
    w->number[rank] = w->count++;
    if (c->rank > rank && e->count) {
        e->next = w->expected;
        w->expected = e;
        return RING_OK;
    }
    const ring_status_t status = connect_all(c, e, deadline);
    if (status)
        drop_expected(e);
    return status ? status : finish_link(c, e);
}

ring_status_t ri_wires_want(struct ring_comm *c, const uint32_t *peers, uint32_t count)
{
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        if (c->wires.number[peers[i]] != RI_NONE)
            continue;
        status = want_link(c, peers[i], ri_deadline(c->conf.timeout));
        if (status && c->wires.number[peers[i]] != RI_NONE) /* begun, and cannot be begun again */
            ri_comm_raise(c, status, c->rank, "%s: %s", ri_comm_name(c, c->rank), ri_error_get());
    }
    return status;
}

static uint32_t link_of(const void *arg, uint32_t peer) { return ((const struct ring_comm *)arg)->wires.number[peer]; }

static void disagree(void *owner, uint32_t peer, const struct ri_signature *mine, const struct ri_signature *theirs)
{
    struct ring_comm *c = owner;
    struct ri_signature hears = *mine;
    char a[96], b[96];
    if (hears.coll == RING_SEND) /* the two ends of a message say the same of it */
        hears.coll = RING_RECV;
    ri_call_text(&hears, a, sizeof a);
    ri_call_text(theirs, b, sizeof b);
    ri_comm_raise(c, RING_ERR_MISMATCH, peer, "ranks disagree on operation %u: %s calls %s, %s calls %s", mine->seq,
                  ri_comm_name(c, c->rank), a, ri_comm_name(c, peer), b);
}

static ring_status_t open_engine(struct ring_comm *c)
{
    const struct ri_engine_setup setup = {.rank = c->rank,
                                          .links = c->size,
                                          .link = c->wires.link,
                                          .link_of = link_of,
                                          .arg = c,
                                          .mismatch = disagree,
                                          .owner = c};
    return ri_engine_open(&setup, &c->wires.engine);
}

static void rate(const struct ring_comm *c, bool across, double *latency_out, double *byte_out)
{
    const struct ri_end here = {.node = 0, .name = ""}, there = {.rank = 1, .node = across, .name = ""};
    for (uint32_t i = 0; ri_transports[i]; i++) {
        uint32_t latency, byte;
        if (ri_wires_allowed(&c->conf, ri_transports[i]->name) &&
            ri_transports[i]->cost(&c->conf, &here, &there, &latency, &byte) && latency < *latency_out) {
            *latency_out = latency;
            *byte_out = byte / 1e3;
        }
    }
}

/* The slowest link that any two ranks of the job have sets the pace, so that all ranks come to the same choice. */
static void make_model(struct ring_comm *c)
{
    struct ri_cost_model *m = &c->wires.model;
    *m = (struct ri_cost_model){.latency = 1e9,
                                .byte = 1e3,
                                .near_latency = 1e9,
                                .near_byte = 1e3,
                                .reduce_byte = REDUCE_BYTE_NS,
                                .message = MESSAGE_NS};
    rate(c, c->nodes > 1, &m->latency, &m->byte);
    rate(c, false, &m->near_latency, &m->near_byte);
}

ring_status_t ri_wires_open(struct ring_comm *c)
{
    struct ri_wires *w = &c->wires;
    if (w->engine)
        return RING_OK;
    w->number = w->number ? w->number : ri_new(c->size, sizeof *w->number);
    w->link = w->link ? w->link : ri_new(c->size, sizeof *w->link);
    if (!w->number || !w->link)
        return ri_fail(RING_ERR_NOMEM, "no memory for links to %u ranks", c->size);
    memset(w->number, 0xff, c->size * sizeof *w->number);
    make_model(c);
    return open_engine(c);
}

static ring_status_t await_expected(struct ring_comm *c, uint64_t deadline)
{
    struct ri_wait w;
    ring_status_t status = RING_OK;
    ri_wait_begin(&w, &c->board->abort, deadline, c->patience);
    while (!status && !(status = look_for_all(c)) && c->wires.expected)
        if ((status = ri_wait_round(&w, NULL, NULL)) == RING_ERR_TIMEOUT)
            status = ri_fail(status, "%s did not make its data connection to %s before the deadline",
                             ri_comm_name(c, c->wires.expected->rank), ri_comm_name(c, c->rank));
    return status;
}

ring_status_t ri_wires_connect(struct ring_comm *c, uint64_t deadline)
{
    bool *wanted = ri_new(c->size, sizeof *wanted);
    ring_status_t status = wanted ? RING_OK : ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", c->size);
    if (!status && !ri_wires_direct(c))
        status = ri_wires_open(c);
    if (!status)
        status = mark_peers(c, wanted);
    for (uint32_t step = 1; step < c->size && !status; step++) {
        const uint32_t rank = (c->rank + step) % c->size;
        if (wanted[rank] && !(status = ri_wires_open(c)))
            status = want_link(c, rank, deadline);
    }
    ri_free(wanted);
    return status ? status : await_expected(c, deadline);
}

/* ---- using them ------------------------------------------------------------------------------------------------ */

const char *ri_wires_why(const struct ring_comm *c, uint32_t rank)
{
    const uint32_t number = rank < c->size && c->wires.number ? c->wires.number[rank] : RI_NONE;
    return number != RI_NONE && c->wires.link[number] ? c->wires.link[number]->why : "";
}

unsigned ri_wires_progress(struct ring_comm *c)
{
    struct ri_wires *w = &c->wires;
    struct ri_queue done = {0};
    unsigned moved = 0;
    if (w->expected && look_for_all(c) && !ri_comm_broken(c))
        ri_comm_raise(c, RING_ERR_SYSTEM, c->rank, "%s: %s", ri_comm_name(c, c->rank), ri_error_get());
    for (uint32_t i = 0; i < w->ctxs; i++)
        moved += w->ctx[i]->transport->progress(w->ctx[i], &done);
    return moved + ri_engine_progress(w->engine, &done);
}

void ri_wires_sleep(void *comm, int ms)
{
    struct ri_wires *w = &((struct ring_comm *)comm)->wires;
    struct pollfd fds[RI_TRANSPORTS_MAX];
    uint32_t armed = 0;
    bool idle = true;
    for (; armed < w->ctxs && idle; armed++) {
        idle = w->ctx[armed]->transport->arm(w->ctx[armed]);
        fds[armed] = (struct pollfd){.fd = w->ctx[armed]->transport->wait_fd(w->ctx[armed]), .events = POLLIN};
    }
    if (idle)
        poll(fds, armed, w->expected ? 1 : ms); /* connections that come wake nobody */
    for (uint32_t i = 0; i < armed; i++)
        w->ctx[i]->transport->disarm(w->ctx[i]);
}

void ri_wires_hang_up(struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->wires.count; i++)
        if (c->wires.link[i])
            c->wires.link[i]->ctx->transport->disconnect(c->wires.link[i]);
}

void ri_wires_close(struct ring_comm *c)
{
    struct ri_wires *w = &c->wires;
    while (w->expected) {
        struct ri_expected *e = w->expected;
        w->expected = e->next;
        drop_expected(e);
    }
    if (w->engine)
        ri_engine_close(w->engine);
    for (uint32_t i = 0; i < w->count; i++)
        ri_free(w->link[i]);
    for (uint32_t i = 0; i < w->ctxs; i++) {
        w->ctx[i]->transport->close(w->ctx[i]);
        ri_free(w->ctx[i]);
    }
    ri_free(w->link);
    ri_free(w->number);
    *w = (struct ri_wires){0};
}
