/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - see link.h: messages in and out of a link that is up. */
#include "transports/verbs/link.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "transports/verbs/ctx.h"
#include "transports/verbs/flush.h"

enum { SPLIT_AT = 128, NONE = -1 }; /* bytes: parts of a grant begin at multiples */

static bool is_eager(const struct verbs_link *l, const struct ri_xfer *x) { return x->len <= l->eager_most; }

static uint64_t there(const struct verbs_link *l, const void *at)
{
    return l->peer_window + (uint64_t)((const unsigned char *)at - (const unsigned char *)l->window);
}

static uint32_t word_of(enum verbs_tell what, uint64_t number)
{
    return (uint32_t)what << VERBS_TELL_AT | ((uint32_t)number & ((1u << VERBS_TELL_AT) - 1));
}

void verbs_link_break(struct verbs_link *l, const char *why)
{
    if (l->broken)
        return;
    l->broken = true;
    snprintf(l->base.why, sizeof l->base.why, "%s", why);
    ri_log(RI_LOG_DEBUG, "the verbs link to %s broke: %s", l->base.peer.name, why[0] ? why : "the other end closed it");
    if (l->has_fd)
        shutdown(l->fd, SHUT_RDWR);
    for (uint32_t i = 0; i < l->lanes; i++)
        (void)verbs_lane_stop(&l->lane[i]);
    verbs_ctx_list(l);
}

void verbs_link_fail(struct verbs_link *l, const struct verbs_rail *rail, const char *what)
{
    char why[RI_LINK_WHY];
    snprintf(why, sizeof why, "%s: %s", rail->name, what);
    if (!l->broken)
        ri_log(RI_LOG_WARN, "%s: the link from %s to %s is lost", why, l->base.self.name, l->base.peer.name);
    verbs_link_break(l, why);
}

void verbs_link_refused(struct verbs_lane *lane, const char *what)
{
    char text[RI_LINK_WHY];
    snprintf(text, sizeof text, "%s was refused: %s", what, strerror(errno));
    verbs_move_lose(lane->link, lane->rail_at, text);
}

static bool write_on(struct verbs_lane *lane, const struct verbs_write *w)
{
    if (!verbs_lane_write(lane, w))
        verbs_link_refused(lane, "a request");
    return !lane->link->broken; /* else another lane writes it */
}

/* The processor is not to touch a buffer before it has been looked up. */
static bool may_be_gpu(const struct verbs_link *l) { return l->base.ctx->memory && l->base.ctx->memory->devices; }

/* From or to the buffer; false: the link is broken. */
static bool copy(struct verbs_link *l, const void *buffer, void *to, const void *from, size_t bytes)
{
    if (may_be_gpu(l))
        return verbs_ctx_copy(l, buffer, to, from, bytes);
    if (bytes)
        memcpy(to, from, bytes);
    return true;
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

static unsigned char *take_slot(uint32_t *free, unsigned char slots[][VERBS_CHUNK])
{
    if (!*free)
        return NULL;
    const int i = __builtin_ctz(*free);
    *free &= *free - 1;
    return slots[i];
}

static void put_slot(uint32_t *free, unsigned char slots[][VERBS_CHUNK], const unsigned char *slot)
{
    *free |= 1u << (size_t)(slot - slots[0]) / VERBS_CHUNK;
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static bool has_room(const struct verbs_lane *lane) { return verbs_lane_room(lane) > LANE_CONTROL; }

static bool send_eager(struct verbs_link *l, struct ri_xfer *x)
{
    struct verbs_lane *lane = verbs_link_lane(l, 0);
    const size_t i = l->eager_sent % VERBS_EAGERS;
    if (l->eager_sent - l->eager_credit >= VERBS_EAGERS || !has_room(lane))
        return false;
    const bool copied = x->len > lane->inline_most || may_be_gpu(l);
    if (copied && !copy(l, x->buf, l->window->eager_out[i], x->buf, x->len))
        return false;
    const struct verbs_write w = {.at = copied ? l->window->eager_out[i] : x->buf,
                                  .bytes = x->len,
                                  .key = l->window_mr[lane->rail_at]->lkey,
                                  .to = there(l, l->window->eager_in[i]),
                                  .to_key = l->peer_key,
                                  .tells = true,
                                  .immediate = word_of(VERBS_TELL_EAGER, x->len),
                                  .signalled = true,
                                  .xfer = x};
    x->held = 1;
    x->moved = x->len;
    l->eager_sent++;
    return write_on(lane, &w);
}

/* The part of a grant that the lane in turn carries: all of it, or when it is split one of as many as there are lanes.
 */
static size_t part_end(const struct verbs_link *l, size_t bytes, uint32_t part)
{
    if (!verbs_ctx_splits(l))
        return bytes;
    const size_t each = (bytes / l->lanes + SPLIT_AT) / SPLIT_AT * SPLIT_AT;
    return each * (part + 1) < bytes ? each * (part + 1) : bytes;
}

static uint32_t parts_of(const struct verbs_link *l, size_t bytes)
{
    uint32_t parts = 1;
    for (size_t end = part_end(l, bytes, 0); end < bytes; end = part_end(l, bytes, parts++))
        ;
    return parts;
}

/* The next write of what is granted; false: not now. */
static bool send_piece(struct verbs_link *l, struct ri_xfer *x, const struct verbs_grant *g)
{
    const uint32_t turn = verbs_ctx_splits(l) ? l->grant_part : (uint32_t)(l->grants_used % l->lanes);
    struct verbs_lane *lane = verbs_link_lane(l, turn);
    const size_t end = part_end(l, g->bytes, l->grant_part);
    size_t bytes = end - l->grant_at < l->most ? end - l->grant_at : l->most;
    const unsigned char *from = (const unsigned char *)x->buf + x->moved;
    uint32_t key;
    bool gpu = false;
    unsigned char *slot = NULL;
    if (!has_room(lane))
        return false;
    if (!verbs_ctx_key(l, lane->rail, from, bytes, &key, &gpu)) {
        bytes = bytes < VERBS_CHUNK ? bytes : VERBS_CHUNK;
        if (!(slot = take_slot(&l->chunks_out_free, l->window->chunk_out)))
            return false;
        if (!copy(l, from, slot, from, bytes))
            return false;
        from = slot;
        key = l->window_mr[lane->rail_at]->lkey;
    }
    const bool last = l->grant_at + bytes == end;
    const struct verbs_write w = {.at = from,
                                  .bytes = bytes,
                                  .key = key,
                                  .to = g->at + l->grant_at,
                                  .to_key = g->key,
                                  .tells = last,
                                  .immediate = word_of(VERBS_TELL_DATA, l->grants_used),
                                  .signalled = last || slot,
                                  .gpu = gpu,
                                  .xfer = x,
                                  .slot = slot};
    x->held++;
    x->moved += bytes;
    l->grant_at += bytes;
    l->grant_part += last;
    l->data_sent += last;
    return write_on(lane, &w);
}

static bool send_granted(struct verbs_link *l, struct ri_xfer *x)
{
    while (x->moved < x->len) {
        const struct verbs_grant *g = &l->window->granted[l->grants_used % VERBS_GRANTS];
        if (l->grants_used == l->grants_heard || l->moving)
            return false;
        if (!l->grant_at && (!g->bytes || g->bytes > x->len - x->moved || g->number != (uint32_t)l->grants_used)) {
            verbs_link_break(l, "the peer grants what it was not asked for");
            return false;
        }
        if (!send_piece(l, x, g))
            return false;
        if (l->grant_at == g->bytes) {
            l->grants_used++;
            l->grant_at = 0;
            l->grant_part = 0;
        }
    }
    return true;
}

static unsigned send_all(struct verbs_link *l)
{
    unsigned moved = 0;
    while (l->next_out && !l->broken && !l->moving) {
        struct ri_xfer *x = l->next_out;
        const size_t before = x->moved;
        const bool all = is_eager(l, x) ? send_eager(l, x) : send_granted(l, x);
        moved += all || x->moved != before;
        if (!all)
            break;
        l->next_out = x->next;
    }
    return moved;
}

bool verbs_link_sent(struct verbs_lane *lane, uint64_t to)
{
    struct verbs_link *l = lane->link;
    bool moved = false;
    for (; lane->complete < to; lane->complete++) {
        const struct verbs_place *p = &lane->place[lane->complete % LANE_SENDS];
        lane->told_complete = p->told;
        if (!p->whole)
            continue;
        moved |= p->write.tells || p->write.xfer;
        if (p->write.xfer && !l->broken && !l->ended) /* else it has been given back */
            p->write.xfer->held--;
        if (p->write.slot)
            put_slot(&l->chunks_out_free, l->window->chunk_out, p->write.slot);
    }
    return moved;
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

static bool grant(struct verbs_link *l, struct ri_xfer *x)
{
    struct verbs_lane *lane = verbs_link_lane(l, 0);
    const size_t i = l->grants_given % VERBS_GRANTS, left = x->len - l->granted_for;
    struct verbs_landing *landing = &l->landing[i];
    struct verbs_grant *g = &l->window->grant[i];
    if (l->grants_given - l->landings_taken >= VERBS_GRANTS || verbs_lane_room(lane) < LANE_WRITE)
        return false;
    *g = (struct verbs_grant){.bytes = left, .number = (uint32_t)l->grants_given};
    *landing = (struct verbs_landing){.at = (unsigned char *)x->buf + l->granted_for};
    if (x->sink || !verbs_ctx_landing_keys(l, landing->at, left, g->key, &landing->flush)) {
        if (!(landing->at = take_slot(&l->chunks_in_free, l->window->chunk_in)))
            return false;
        landing->slot = true;
        landing->flush = false;
        g->bytes = left < VERBS_CHUNK ? left : VERBS_CHUNK;
        for (uint32_t r = 0; r < l->rails; r++)
            g->key[r] = l->window_mr[r]->rkey;
    }
    g->at = (uintptr_t)landing->at;
    landing->bytes = g->bytes;
    landing->parts = parts_of(l, g->bytes);
    const struct verbs_write w = {.at = g,
                                  .bytes = sizeof *g,
                                  .key = l->window_mr[lane->rail_at]->lkey,
                                  .to = there(l, &l->window->granted[i]),
                                  .to_key = l->peer_key,
                                  .tells = true,
                                  .immediate = word_of(VERBS_TELL_GRANT, l->grants_given)};
    l->granted_for += g->bytes;
    l->grants_given++;
    return write_on(lane, &w);
}

static unsigned grant_all(struct verbs_link *l)
{
    unsigned moved = 0;
    for (; l->next_grant && !l->broken && !l->ended && !l->moving;
         l->next_grant = l->next_grant->next, l->granted_for = 0) {
        struct ri_xfer *x = l->next_grant;
        while (!is_eager(l, x) && l->granted_for < x->len) {
            if (l->moving || !grant(l, x))
                return moved;
            moved++;
        }
    }
    return moved;
}

static bool hand_on(struct verbs_link *l, struct ri_xfer *x, const unsigned char *from, size_t bytes)
{
    unsigned char *to = x->sink || !bytes ? NULL : (unsigned char *)x->buf + x->moved;
    if (x->sink && bytes)
        x->sink(x, x->moved, from, bytes);
    else if (bytes && !copy(l, to, to, from, bytes))
        return false;
    x->moved += bytes;
    return true;
}

static bool take_eager(struct verbs_link *l, struct ri_xfer *x)
{
    if (l->eager_heard == l->eager_taken)
        return false;
    return hand_on(l, x, l->window->eager_in[l->eager_taken++ % VERBS_EAGERS], x->len);
}

static bool take_landed(struct verbs_link *l, struct ri_xfer *x)
{
    while (x->moved < x->len) {
        struct verbs_landing *landing = &l->landing[l->landings_taken % VERBS_GRANTS];
        if (l->landings_taken == l->grants_given || landing->parts || (landing->flush && !verbs_flush_done(l, landing)))
            return false;
        if (landing->slot) {
            if (!hand_on(l, x, landing->at, landing->bytes))
                return false;
            put_slot(&l->chunks_in_free, l->window->chunk_in, landing->at);
        } else
            x->moved += landing->bytes;
        l->landings_taken++;
    }
    return true;
}

static void give_credit(struct verbs_link *l)
{
    const struct verbs_write w = {.tells = true,
                                  .to = l->peer_window,
                                  .to_key = l->peer_key,
                                  .immediate = word_of(VERBS_TELL_CREDIT, l->eager_taken)};
    if (l->broken || l->ended || l->moving || l->eager_taken - l->eager_told < VERBS_EAGERS / 2 ||
        verbs_lane_room(verbs_link_lane(l, 0)) < LANE_WRITE)
        return;
    l->eager_told = l->eager_taken;
    write_on(verbs_link_lane(l, 0), &w);
}

static void finish(struct ri_queue *q, ring_status_t status, struct ri_queue *done)
{
    struct ri_xfer *x = ri_queue_take(q);
    x->status = status;
    ri_queue_put(done, x);
}

static unsigned receive_all(struct verbs_link *l, struct ri_queue *done)
{
    unsigned moved = 0;
    while (l->in.head && !l->lost &&
           (is_eager(l, l->in.head) ? take_eager(l, l->in.head) : take_landed(l, l->in.head))) {
        if (l->next_grant == l->in.head)
            l->next_grant = l->in.head->next;
        finish(&l->in, RING_OK, done);
        moved++;
    }
    give_credit(l);
    return moved;
}

/* ---- being told ------------------------------------------------------------------------------------------------ */

bool verbs_link_told(struct verbs_lane *lane, uint32_t word)
{
    struct verbs_link *l = lane->link;
    const uint32_t number = word & ((1u << VERBS_TELL_AT) - 1), low = (1u << VERBS_TELL_AT) - 1;
    switch ((enum verbs_tell)(word >> VERBS_TELL_AT)) {
    case VERBS_TELL_EAGER:
        l->eager_heard++;
        return number <= VERBS_EAGER && l->eager_heard - l->eager_taken <= VERBS_EAGERS;
    case VERBS_TELL_DATA: {
        struct verbs_landing *landing = &l->landing[number % VERBS_GRANTS];
        const uint32_t ahead = (uint32_t)(number - l->landings_taken) & low;
        l->data_heard++;
        if (ahead >= l->grants_given - l->landings_taken || !landing->parts)
            return false;
        landing->parts--;
        if (landing->flush)
            verbs_flush_heard(lane, landing);
        return true;
    }
    case VERBS_TELL_GRANT:
        return number == (l->grants_heard++ & low) && l->grants_heard - l->grants_used <= VERBS_GRANTS;
    default:
        l->eager_credit += (uint32_t)(number - l->eager_credit) & low;
        return l->eager_credit <= l->eager_sent;
    }
}

/* ---- is the peer there? ----------------------------------------------------------------------------------------- */

void verbs_link_probe(struct verbs_lane *lane)
{
    const struct verbs_link *l = lane->link;
    const struct verbs_write w = {.to = l->peer_window, .to_key = l->peer_key, .signalled = true};
    if (verbs_lane_room(lane) >= LANE_WRITE && !verbs_lane_write(lane, &w))
        verbs_link_refused(lane, "a request");
}

void verbs_link_feel(struct verbs_link *l)
{
    uint64_t steps = 0;
    if (l->stage != VERBS_UP || l->broken || l->ended)
        return;
    for (uint32_t i = 0; i < l->lanes; i++)
        steps += l->lane[i].heard + l->lane[i].complete;
    for (uint32_t r = 0; r < l->rails && steps == l->felt; r++)
        if (!l->loss[r].lost)
            verbs_link_probe(&l->lane[r]);
    l->felt = steps;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static unsigned reap_sends(struct verbs_link *l, struct ri_queue *done)
{
    unsigned moved = 0;
    for (; l->out.head && l->out.head != l->next_out && !l->out.head->held; moved++)
        finish(&l->out, RING_OK, done);
    return moved;
}

static unsigned fail(struct ri_queue *q, struct ri_xfer **next, struct ri_queue *done)
{
    unsigned moved = 0;
    for (; q->head; moved++)
        finish(q, RING_ERR_PEER_LOST, done);
    *next = NULL;
    return moved;
}

/* Nothing that was sent before the end is still on its way, be it to a GPU. */
static bool all_has_come(const struct verbs_link *l)
{
    return l->broken || !l->told_end ||
           (l->eager_heard >= l->end_eager && l->data_heard >= l->end_data && !l->flushing) ||
           ri_now() >= l->end_deadline;
}

unsigned verbs_link_move(struct verbs_link *l, struct ri_queue *done)
{
    unsigned moved = 0;
    if (l->stage == VERBS_UP) {
        if (l->moving)
            moved += verbs_move(l);
        if (!l->ended)
            moved += send_all(l);
        moved += reap_sends(l, done) + receive_all(l, done) + grant_all(l);
    }
    if (!l->broken && !l->ended)
        return moved;
    moved += fail(&l->out, &l->next_out, done);
    if (all_has_come(l)) {
        verbs_link_break(l, "");
        l->lost = l->lost || l->in.head;
        moved += fail(&l->in, &l->next_grant, done);
    }
    return moved;
}
