/* SPDX-License-Identifier: Apache-2.0 */
/* greet.c - see link.h: how the two ends of a link come together over its socket, and part.
 *
 *     HELLO    what must agree, and the ports of this end       both
 *     LANES    the window, and the queue pairs, by lane         both, when the ports of the other are known
 *     READY    this end's queue pairs take what comes           both; then the link is up
 *     LOST     a rail, and what its lanes had heard of this end  both, when either has lost one (move.c)
 *     GOODBYE  how much this end has sent                       who goes
 *
 * Each is a length of four bytes, its kind, and the rest.  The socket belongs to two ranks that have proved who they
 * are, and keys travel nowhere else. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/pack.h"
#include "transports/verbs/ctx.h"
#include "transports/verbs/meet.h"

enum { HELLO = 1, LANES, READY, GOODBYE, LOST, HEAD = 4, LAYOUT = 1, NUMBER_MOST = 0xffffff };
#define END_TIME RI_SECOND /* for what was sent before the end to arrive */

/* ---- messages -------------------------------------------------------------------------------------------------- */

static struct ri_packer begin_message(struct verbs_greeting *g, uint8_t kind)
{
    struct ri_packer p = {.at = g->out + g->out_len + HEAD, .end = g->out + sizeof g->out};
    ri_pack_number(&p, kind, 1);
    return p;
}

static bool end_message(struct verbs_greeting *g, const struct ri_packer *p)
{
    struct ri_packer head = {.at = g->out + g->out_len, .end = g->out + g->out_len + HEAD};
    if (p->bad)
        return false;
    ri_pack_number(&head, (uint64_t)(p->at - head.end), HEAD);
    g->out_len = (size_t)(p->at - g->out);
    return true;
}

/* "": the other end has closed it. */
static const char *socket_error(void) { return errno == EPIPE || errno == ECONNRESET ? "" : strerror(errno); }

unsigned verbs_greet_speak(struct verbs_link *l)
{
    struct verbs_greeting *g = l->greeting;
    if (l->broken || g->out_at == g->out_len)
        return 0;
    const ssize_t n = send(l->fd, g->out + g->out_at, g->out_len - g->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        verbs_link_break(l, socket_error());
    g->out_at += n > 0 ? (size_t)n : 0;
    if (g->out_at == g->out_len)
        g->out_at = g->out_len = 0;
    return n > 0;
}

/* The next whole message, without its head; false: not there yet. */
static bool hear(struct verbs_link *l, struct ri_unpacker *u, uint8_t *kind_out)
{
    struct verbs_greeting *g = l->greeting;
    for (;;) {
        struct ri_unpacker head = {.at = g->in, .end = g->in + g->in_len};
        const size_t bytes = (size_t)ri_unpack_number(&head, HEAD);
        if (!head.bad && (!bytes || bytes > sizeof g->in - HEAD)) {
            verbs_link_break(l, "the other end does not speak our protocol");
            return false;
        }
        const size_t want = head.bad ? HEAD - g->in_len : HEAD + bytes - g->in_len;
        if (!want) {
            *u = (struct ri_unpacker){.at = g->in + HEAD, .end = g->in + g->in_len};
            *kind_out = (uint8_t)ri_unpack_number(u, 1);
            g->in_len = 0;
            return true;
        }
        const ssize_t n = recv(l->fd, g->in + g->in_len, want, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            verbs_link_break(l, n ? socket_error() : "");
        if (n <= 0)
            return false;
        g->in_len += (size_t)n;
    }
}

/* ---- hello ----------------------------------------------------------------------------------------------------- */

static bool say_hello(struct verbs_link *l)
{
    const struct ri_conf *conf = l->base.ctx->conf;
    struct ri_packer p = begin_message(l->greeting, HELLO);
    ri_pack_number(&p, LAYOUT, 4);
    ri_pack_number(&p, sizeof(struct verbs_window), 8);
    ri_pack_number(&p, conf->ib_qps, 4);
    ri_pack_number(&p, conf->ib_split, 4);
    verbs_meet_say(l, &p);
    return end_message(l->greeting, &p);
}

static ring_status_t hear_hello(struct verbs_link *l, struct ri_unpacker *u)
{
    const struct ri_conf *conf = l->base.ctx->conf;
    if (ri_unpack_number(u, 4) != LAYOUT || ri_unpack_number(u, 8) != sizeof(struct verbs_window))
        return ri_fail(RING_ERR_MISMATCH, "%s has another version of this library", l->base.peer.name);
    if (ri_unpack_number(u, 4) != conf->ib_qps || ri_unpack_number(u, 4) != conf->ib_split)
        return ri_fail(RING_ERR_MISMATCH, "%s has other settings of RING_IB_QPS_PER_CONNECTION or RING_IB_SPLIT",
                       l->base.peer.name);
    return verbs_meet_hear(l, u);
}

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

static ring_status_t open_window(struct verbs_link *l)
{
    for (uint32_t r = 0; r < l->rails; r++) {
        struct verbs_rail *rail = l->rail[r];
        l->window_mr[r] = verbs_mr_register(rail, l->window, sizeof *l->window, 0);
        if (!l->window_mr[r])
            return verbs_meet_no_memory(rail, sizeof *l->window);
    }
    return RING_OK;
}

static ring_status_t open_lanes(struct verbs_link *l)
{
    const struct ri_conf *conf = l->base.ctx->conf;
    const uint32_t each =
        (uint32_t)conf->ib_qps < VERBS_LANES / l->rails ? (uint32_t)conf->ib_qps : VERBS_LANES / l->rails;
    ring_status_t status = open_window(l);
    if (status)
        return status;
    const uint32_t lanes = each * l->rails;
    uint32_t inline_most = UINT32_MAX;
    if (!(l->lane = ri_new(lanes, sizeof *l->lane)))
        return ri_fail(RING_ERR_NOMEM, "no memory for queue pairs");
    for (; l->lanes < lanes && !status; l->lanes++) {
        struct verbs_lane *lane = &l->lane[l->lanes];
        lane->link = l;
        lane->rail_at = l->lanes % l->rails;
        lane->rail = l->rail[lane->rail_at];
        lane->words = l->window->words[l->lanes];
        lane->words_out = l->window->words_out[l->lanes];
        lane->words_key = l->window_mr[lane->rail_at]->lkey;
        lane->psn = verbs_meet_psn();
        status = verbs_ctx_enter(verbs_ctx_of(l), lane);
        if (!status)
            status = verbs_lane_init(lane);
        inline_most = inline_most < lane->inline_most ? inline_most : lane->inline_most;
    }
    for (uint32_t i = 0; i < l->lanes; i++) /* so that any may do another's work */
        l->lane[i].inline_most = inline_most;
    return status;
}

static bool say_lanes(struct verbs_link *l)
{
    struct ri_packer p = begin_message(l->greeting, LANES);
    ri_pack_number(&p, (uintptr_t)l->window, 8);
    ri_pack_number(&p, l->eager_most, 4);
    ri_pack_number(&p, l->rails, 4);
    for (uint32_t r = 0; r < l->rails; r++)
        ri_pack_number(&p, l->window_mr[r]->rkey, 4);
    ri_pack_number(&p, l->lanes, 4);
    for (uint32_t i = 0; i < l->lanes; i++) {
        ri_pack_number(&p, l->lane[i].qp->qp_num, 4);
        ri_pack_number(&p, l->lane[i].psn, 4);
    }
    return end_message(l->greeting, &p);
}

static ring_status_t hear_lanes(struct verbs_link *l, struct ri_unpacker *u)
{
    ring_status_t status = RING_OK;
    l->peer_window = ri_unpack_number(u, 8);
    bool same = ri_unpack_number(u, 4) == l->eager_most && ri_unpack_number(u, 4) == l->rails;
    for (uint32_t r = 0; r < l->rails && same; r++)
        l->peer_key[r] = (uint32_t)ri_unpack_number(u, 4);
    same = same && ri_unpack_number(u, 4) == l->lanes && !u->bad;
    for (uint32_t i = 0; i < l->lanes && same && !status; i++) {
        const uint32_t qp = (uint32_t)ri_unpack_number(u, 4), psn = (uint32_t)ri_unpack_number(u, 4);
        same = qp && qp <= NUMBER_MOST && psn <= NUMBER_MOST;
        status = u->bad || !same
                     ? RING_OK
                     : verbs_lane_connect(&l->lane[i], &l->route[l->lane[i].rail_at], qp, psn, l->base.ctx->conf);
    }
    return status            ? status
           : u->bad || !same ? ri_fail(RING_ERR_MISMATCH, "%s does not see the same devices", l->base.peer.name)
                             : RING_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

ring_status_t verbs_greet_begin(struct verbs_link *l)
{
    l->greeting = ri_new(1, sizeof *l->greeting);
    l->window = ri_new_aligned(4096, sizeof *l->window);
    if (!l->greeting || !l->window)
        return ri_fail(RING_ERR_NOMEM, "no memory for a verbs link");
    l->chunks_in_free = l->chunks_out_free = (1u << VERBS_CHUNKS) - 1;
    if (!say_hello(l))
        return ri_fail(RING_ERR_INTERNAL, "a greeting is too long");
    return RING_OK;
}

void verbs_greet_fini(struct verbs_link *l)
{
    ri_free(l->greeting);
    l->greeting = NULL;
}

static bool say_ready(struct verbs_link *l)
{
    const struct ri_packer p = begin_message(l->greeting, READY);
    return end_message(l->greeting, &p);
}

/* What comes next, from what has been heard. */
static ring_status_t go_on(struct verbs_link *l, uint8_t kind, struct ri_unpacker *u)
{
    ring_status_t status = RING_OK;
    bool said = true;
    if (kind != (l->stage == VERBS_HELLO ? HELLO : l->stage == VERBS_MEET ? LANES : READY))
        return ri_fail(RING_ERR_MISMATCH, "%s does not speak our protocol", l->base.peer.name);
    if (l->stage == VERBS_HELLO) {
        status = hear_hello(l, u);
        if (!status)
            status = open_lanes(l);
        said = status || say_lanes(l);
    } else if (l->stage == VERBS_MEET) {
        status = hear_lanes(l, u);
        said = status || say_ready(l);
    }
    if (!said)
        return ri_fail(RING_ERR_INTERNAL, "a greeting is too long");
    l->stage += !status;
    return status;
}

unsigned verbs_greet(struct verbs_link *l)
{
    struct ri_unpacker u;
    uint8_t kind;
    unsigned moved = verbs_greet_speak(l);
    while (!l->broken && l->stage != VERBS_UP && hear(l, &u, &kind)) {
        if (go_on(l, kind, &u)) {
            ri_log(RI_LOG_WARN, "%s and %s cannot use verbs: %s", l->base.self.name, l->base.peer.name, ri_error_get());
            verbs_link_break(l, ri_error_get());
        }
        moved += 1 + verbs_greet_speak(l);
    }
    return moved;
}

static bool hear_goodbye(struct verbs_link *l, struct ri_unpacker *u)
{
    l->ended = l->told_end = true;
    l->end_eager = ri_unpack_number(u, 8);
    l->end_data = ri_unpack_number(u, 8);
    l->end_deadline = ri_deadline(END_TIME);
    return !u->bad;
}

static bool hear_lost(struct verbs_link *l, struct ri_unpacker *u)
{
    const uint32_t rail = (uint32_t)ri_unpack_number(u, 4);
    if (u->bad || rail >= l->rails || l->loss[rail].heard)
        return false;
    verbs_move_lose(l, rail, "the other end has lost it");
    l->loss[rail].heard = true;
    for (uint32_t i = rail; i < l->lanes; i += l->rails)
        if (!verbs_move_hear(l, i, (uint32_t)ri_unpack_number(u, 4)))
            return false;
    return !u->bad;
}

void verbs_greet_listen(struct verbs_link *l)
{
    struct ri_unpacker u;
    uint8_t kind;
    while (!l->broken && !l->ended && hear(l, &u, &kind))
        if (!(kind == GOODBYE && hear_goodbye(l, &u)) && !(kind == LOST && hear_lost(l, &u)))
            verbs_link_break(l, "the other end says what it should not");
    l->ended |= l->broken;
    verbs_ctx_list(l);
}

bool verbs_greet_lost(struct verbs_link *l, uint32_t rail)
{
    struct ri_packer p = begin_message(l->greeting, LOST);
    ri_pack_number(&p, rail, 4);
    for (uint32_t i = rail; i < l->lanes; i += l->rails)
        ri_pack_number(&p, (uint32_t)l->lane[i].heard, 4);
    if (!end_message(l->greeting, &p))
        return false;
    verbs_greet_speak(l);
    return true;
}

void verbs_greet_goodbye(struct verbs_link *l)
{
    if (l->broken || l->stage != VERBS_UP)
        return;
    struct ri_packer p = begin_message(l->greeting, GOODBYE);
    ri_pack_number(&p, l->eager_sent, 8);
    ri_pack_number(&p, l->data_sent, 8);
    if (end_message(l->greeting, &p))
        verbs_greet_speak(l);
}
