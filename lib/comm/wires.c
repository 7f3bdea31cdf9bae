/* SPDX-License-Identifier: Apache-2.0 */
/* wires.c - which peers need a link, over which transport, and how it is made; then progress and sleep over all of
 * them.
 *
 * Links go to the peers that some algorithm talks to, and there are none when direct shared memory serves every call.
 */
#include "lib/comm/comm.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"

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

uint32_t ri_wires_usable(const struct ri_conf *conf)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; ri_transports[i]; i++) {
        char why[128];
        if (ri_transports[i]->usable(conf, why, sizeof why))
            mask |= UINT32_C(1) << i;
        else
            ri_log(RI_LOG_INFO, "transport %s is off: %s", ri_transports[i]->name, why);
    }
    return mask;
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

static ring_status_t check_algorithm(const struct ri_conf *conf)
{
    char names[256] = "auto, node";
    size_t n = strlen(names);
    for (uint32_t i = 0; ri_algorithms[i]; i++) {
        if (ri_algorithms[i]->coll != RING_ALL_REDUCE)
            continue;
        if (!strcmp(ri_algorithms[i]->name, conf->algo))
            return RING_OK;
        n += (size_t)snprintf(names + n, sizeof names - n, ", %s", ri_algorithms[i]->name);
    }
    return strcmp(conf->algo, "node")
               ? ri_fail(RING_ERR_CONFIG, "RING_ALGO=\"%.80s\" is not accepted: it takes one of %s", conf->algo, names)
               : RING_OK;
}

ring_status_t ri_wires_check(const struct ri_conf *conf)
{
    ring_status_t status = RING_OK;
    if (!ri_conf_is_auto(conf->transport))
        status = check_transports(conf);
    if (!status && !ri_conf_is_auto(conf->algo))
        status = check_algorithm(conf);
    return status;
}

/* Direct shared memory is what the transport shm is to links: who forbids one forbids the other. */
bool ri_wires_wanted(const struct ring_comm *c)
{
    const bool algorithm = ri_conf_is_auto(c->conf.algo) || !strcmp(c->conf.algo, "node");
    const bool direct = c->conf.node == RI_NODE_AUTO && algorithm && ri_wires_allowed(&c->conf, "shm");
    return c->size > 1 && !(direct && c->local_size == c->size);
}

/* ---- which peers ----------------------------------------------------------------------------------------------- */

static ring_status_t mark_peers(const struct ring_comm *c, bool *wanted)
{
    const struct ri_coll_args args = {
        .rank = c->rank, .size = c->size, .count = 4 * (size_t)c->size, .esize = 4, .seg = c->conf.segment};
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; ri_algorithms[i] && !status; i++) {
        struct ri_sched s = {0};
        if (ri_algorithms[i]->coll != RING_ALL_REDUCE || !ri_algorithms[i]->fits(&args))
            continue;
        status = ri_algorithms[i]->build(&s, &args);
        for (uint32_t p = 0; p < s.npeers && !status; p++)
            wanted[s.peers[p]] = true;
        ri_sched_free(&s);
    }
    return status;
}

/* The cheapest transport that both ends have; NULL: none. */
static const struct ri_transport *choose(const struct ring_comm *c, uint32_t rank, uint32_t *index_out)
{
    const struct ri_peer *me = &c->peer[c->rank], *p = &c->peer[rank];
    const struct ri_end self = {.rank = me->rank, .node = me->node, .name = me->name};
    const struct ri_end peer = {.rank = p->rank, .node = p->node, .name = p->name};
    const uint32_t both = me->transports & p->transports;
    double best = 0;
    *index_out = RI_NONE;
    for (uint32_t i = 0; ri_transports[i]; i++) {
        uint32_t latency, byte;
        if (!(both >> i & 1) || !ri_wires_allowed(&c->conf, ri_transports[i]->name) ||
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

uint32_t ri_wires_sockets(const struct ring_comm *c)
{
    uint32_t n = 0;
    bool *wanted = ri_wires_wanted(c) ? ri_new(c->size, sizeof *wanted) : NULL;
    if (wanted && !mark_peers(c, wanted))
        for (uint32_t r = 0; r < c->size; r++) {
            uint32_t index;
            const struct ri_transport *t = wanted[r] ? choose(c, r, &index) : NULL;
            n += t && t->rendezvous != RI_RENDEZVOUS_NONE ? t->sockets(&c->conf) + 1 : 0;
        }
    ri_free(wanted);
    return n ? n + RI_TRANSPORTS_MAX : 0;
}

/* ---- making links ---------------------------------------------------------------------------------------------- */

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
    const size_t n = strlen(w->names);
    snprintf(w->names + n, sizeof w->names - n, "%s%s", n ? "+" : "", t->name);
    w->ctx[w->ctxs++] = ctx;
    *ctx_out = ctx;
    return t->open(ctx);
}

/* Connected descriptors for one link, in the same order at both ends. */
static ring_status_t join(struct ring_comm *c, struct ri_port *port, struct ri_member *m, uint32_t rank, uint32_t index,
                          int *fds, uint32_t count, uint64_t deadline)
{
    const struct ri_peer *p = &c->peer[rank];
    const bool by_unix = ri_transports[index]->rendezvous == RI_RENDEZVOUS_UNIX;
    const ri_abort_word *abort = &c->board->abort;
    uint8_t key[RI_KEY];
    ring_status_t status = ri_pair_key(&c->identity, c->rank, p->key, rank, c->comm_id, c->secret, key);
    for (uint32_t i = 0; i < count && !status; i++) {
        const uint16_t lane = (uint16_t)(index * LANES_PER_TRANSPORT + i);
        struct ri_hello h = {.comm_id = c->comm_id, .from = c->rank, .to = rank, .purpose = RI_FOR_LINK, .lane = lane};
        if (c->rank < rank)
            status = ri_port_connect(port, &p->end, by_unix, &h, key, abort, deadline, &fds[i]);
        else
            status = ri_port_collect(port, m, rank, RI_FOR_LINK, lane, abort, deadline, &fds[i]);
    }
    return status;
}

static ring_status_t make_link(struct ring_comm *c, struct ri_port *port, struct ri_member *m, uint32_t rank,
                               uint64_t deadline)
{
    uint32_t index;
    struct ri_tctx *ctx = NULL;
    const struct ri_peer *me = &c->peer[c->rank], *p = &c->peer[rank];
    const struct ri_transport *t = choose(c, rank, &index);
    if (!t)
        return ri_fail(RING_ERR_UNSUPPORTED, "no transport joins %s and %s (RING_TRANSPORT=%.80s, built: %s)", me->name,
                       p->name, c->conf.transport, ri_wires_transports());
    ring_status_t status = open_context(c, t, &ctx);
    if (status)
        return status;
    int fds[LANES_PER_TRANSPORT];
    const uint32_t count = t->rendezvous == RI_RENDEZVOUS_NONE ? 0 : t->sockets(&c->conf);
    memset(fds, -1, sizeof fds);
    if ((status = join(c, port, m, rank, index, fds, count, deadline))) {
        for (uint32_t i = 0; i < count; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        return status;
    }
    struct ri_link *l = ri_new_aligned(64, t->link_size);
    if (!l)
        return ri_fail(RING_ERR_NOMEM, "no memory for a link to %s", p->name);
    l->ctx = ctx;
    l->self = (struct ri_end){.rank = me->rank, .node = me->node, .name = me->name};
    l->peer = (struct ri_end){.rank = p->rank, .node = p->node, .name = p->name};
    l->initiator = c->rank < rank;
    c->wires.number[rank] = c->wires.count;
    c->wires.link[c->wires.count++] = l;
    return t->connect(l, fds, count);
}

static uint32_t link_of(const void *arg, uint32_t peer) { return ((const struct ring_comm *)arg)->wires.number[peer]; }

static void disagree(void *owner, uint32_t peer, const struct ri_signature *mine, const struct ri_signature *theirs)
{
    struct ring_comm *c = owner;
    char a[96], b[96];
    ri_call_text(mine, a, sizeof a);
    ri_call_text(theirs, b, sizeof b);
    ri_comm_raise(c, RING_ERR_MISMATCH, peer, "ranks disagree on operation %u: %s calls %s, %s calls %s", mine->seq,
                  ri_comm_name(c, c->rank), a, ri_comm_name(c, peer), b);
}

static ring_status_t open_engine(struct ring_comm *c)
{
    const struct ri_engine_setup setup = {.rank = c->rank,
                                          .links = c->wires.count,
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

static ring_status_t connect_wanted(struct ring_comm *c, const bool *wanted, struct ri_port *port, struct ri_member *m,
                                    uint64_t deadline)
{
    ring_status_t status = RING_OK;
    /* To the higher ranks first: connecting never waits for the other's own thread, collecting does. */
    for (uint32_t step = 1; step < c->size && !status; step++) {
        const uint32_t rank = (c->rank + step) % c->size;
        if (wanted[rank])
            status = make_link(c, port, m, rank, deadline);
    }
    return status ? status : open_engine(c);
}

ring_status_t ri_wires_connect(struct ring_comm *c, struct ri_port *port, struct ri_member *m, uint64_t deadline)
{
    if (!ri_wires_wanted(c))
        return RING_OK;
    bool *wanted = ri_new(c->size, sizeof *wanted);
    c->wires.number = ri_new(c->size, sizeof *c->wires.number);
    c->wires.link = ri_new(c->size, sizeof *c->wires.link);
    ring_status_t status = wanted && c->wires.number && c->wires.link
                               ? mark_peers(c, wanted)
                               : ri_fail(RING_ERR_NOMEM, "no memory for links to %u ranks", c->size);
    if (!status) {
        memset(c->wires.number, 0xff, c->size * sizeof *c->wires.number);
        make_model(c);
        status = connect_wanted(c, wanted, port, m, deadline);
    }
    ri_free(wanted);
    return status;
}

/* ---- using them ------------------------------------------------------------------------------------------------ */

unsigned ri_wires_progress(struct ring_comm *c)
{
    struct ri_wires *w = &c->wires;
    struct ri_queue done = {0};
    unsigned moved = 0;
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
        poll(fds, armed, ms);
    for (uint32_t i = 0; i < armed; i++)
        w->ctx[i]->transport->disarm(w->ctx[i]);
}

void ri_wires_hang_up(struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->wires.count; i++)
        c->wires.link[i]->ctx->transport->disconnect(c->wires.link[i]);
}

void ri_wires_close(struct ring_comm *c)
{
    struct ri_wires *w = &c->wires;
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
