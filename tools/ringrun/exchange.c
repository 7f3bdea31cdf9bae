/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - see exchange.h. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

#include "say.h"

enum { FETCH_SECONDS = 60, GONE_MS = 500 };

struct fence {
    struct fence *next;
    uint32_t *ranks, count;  /* sorted; count 0: all */
    uint32_t missing;        /* places that have not come yet */
    bool *takes_part, *here; /* by place */
    uint64_t *ids;           /* by place: whom to answer */
    uint64_t deadline;       /* UINT64_MAX: none */
    struct bytes data;
};

struct fetch {
    struct fetch *next;
    uint64_t id, asker_id, deadline;
    uint32_t asker, rank;
};

void exchange_init(struct exchange_state *x, const struct job *job, exchange_send *send, void *owner)
{
    *x = (struct exchange_state){.job = job, .send = send, .owner = owner};
    x->gone = need(job->size * sizeof *x->gone);
}

static void free_fence(struct fence *f)
{
    free(f->ranks);
    free(f->takes_part);
    free(f->here);
    free(f->ids);
    bytes_free(&f->data);
    free(f);
}

void exchange_free(struct exchange_state *x)
{
    while (x->fences) {
        struct fence *f = x->fences;
        x->fences = f->next;
        free_fence(f);
    }
    while (x->fetches) {
        struct fetch *f = x->fetches;
        x->fetches = f->next;
        free(f);
    }
    free(x->gone);
}

static uint64_t deadline_in(uint32_t seconds) { return seconds ? now_ms() + 1000 * (uint64_t)seconds : UINT64_MAX; }

/* ---- fences --------------------------------------------------------------------------------------------------------
 */

/* Answer all that have come, and forget the fence. */
static void end_fence(struct exchange_state *x, struct fence *f, enum exchange how)
{
    struct fence **at = &x->fences;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    if (f->data.len > CHANNEL_BLOB_MAX)
        how = EXCHANGE_REFUSED;
    for (uint32_t p = 0; p < x->job->place_count; p++) {
        if (!f->here[p])
            continue;
        struct answer a = {.place = p, .type = MSG_FENCED, .id = f->ids[p], .how = how};
        a.data = how == EXCHANGE_OK ? f->data.data : NULL;
        a.len = how == EXCHANGE_OK ? f->data.len : 0;
        x->send(x->owner, &a);
    }
    free_fence(f);
}

static bool is_member(const struct fence *f, uint32_t rank)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->ranks[i] == rank)
            return true;
    return f->count == 0;
}

static void set_places(struct exchange_state *x, struct fence *f)
{
    uint32_t places = x->job->place_count;
    f->takes_part = need(places * sizeof *f->takes_part);
    f->here = need(places * sizeof *f->here);
    f->ids = need(places * sizeof *f->ids);
    for (uint32_t p = 0; p < places && f->count == 0; p++)
        f->takes_part[p] = true;
    for (uint32_t i = 0; i < f->count; i++)
        f->takes_part[job_place(x->job, f->ranks[i])] = true;
    for (uint32_t p = 0; p < places; p++)
        f->missing += f->takes_part[p];
}

/* The oldest fence of these ranks to which this place has not come; else a new one.  Takes `ranks`. */
static struct fence *find_fence(struct exchange_state *x, uint32_t place, uint32_t *ranks, uint32_t count)
{
    struct fence **at = &x->fences;
    for (; *at; at = &(*at)->next) {
        struct fence *f = *at;
        bool same = f->count == count && (!count || memcmp(f->ranks, ranks, count * sizeof *ranks) == 0);
        if (same && !f->here[place]) {
            free(ranks);
            return f;
        }
    }
    struct fence *f = need(sizeof *f);
    *f = (struct fence){.ranks = ranks, .count = count, .deadline = UINT64_MAX};
    set_places(x, f);
    *at = f;
    return f;
}

/* A member has ended whose host has not come: it never will. */
static bool hopeless(const struct exchange_state *x, const struct fence *f)
{
    for (uint32_t rank = 0; rank < x->job->size; rank++)
        if (x->gone[rank] && is_member(f, rank) && !f->here[job_place(x->job, rank)])
            return true;
    return false;
}

static bool get_ranks(const struct exchange_state *x, struct cursor *body, uint32_t **ranks_out, uint32_t *count_out)
{
    uint32_t count = get_count(body, 4);
    uint32_t *ranks = need(count * sizeof *ranks);
    bool good = count < x->job->size || count == 0;
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = get_u32(body);
        good = good && ranks[i] < x->job->size && (i == 0 || ranks[i] > ranks[i - 1]);
    }
    *ranks_out = ranks;
    *count_out = count;
    return good && !body->bad;
}

bool exchange_fence(struct exchange_state *x, uint32_t place, struct cursor *body)
{
    uint64_t id = get_u64(body);
    uint32_t seconds = get_u32(body), *ranks, count;
    bool good = get_ranks(x, body, &ranks, &count);
    size_t len;
    const uint8_t *data = get_blob(body, &len);
    if (!good || !cursor_done(body)) {
        free(ranks);
        return false;
    }
    struct fence *f = find_fence(x, place, ranks, count);
    if (!f->takes_part[place]) {
        end_fence(x, f, EXCHANGE_REFUSED);
        return false;
    }
    uint64_t deadline = deadline_in(seconds);
    f->deadline = deadline < f->deadline ? deadline : f->deadline;
    f->here[place] = true;
    f->ids[place] = id;
    put_raw(&f->data, data, len);
    if (--f->missing == 0)
        end_fence(x, f, EXCHANGE_OK);
    else if (hopeless(x, f))
        end_fence(x, f, EXCHANGE_LOST);
    return true;
}

/* ---- fetches -------------------------------------------------------------------------------------------------------
 */

static void end_fetch(struct exchange_state *x, struct fetch *f, enum exchange how, const uint8_t *data, size_t len)
{
    struct fetch **at = &x->fetches;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    struct answer a = {.place = f->asker, .type = MSG_FETCHED, .id = f->asker_id, .how = how, .data = data, .len = len};
    x->send(x->owner, &a);
    free(f);
}

bool exchange_fetch(struct exchange_state *x, uint32_t place, struct cursor *body)
{
    uint64_t id = get_u64(body);
    uint32_t seconds = get_u32(body), rank = get_u32(body);
    if (!cursor_done(body) || rank >= x->job->size)
        return false;
    struct fetch *f = need(sizeof *f);
    *f = (struct fetch){.next = x->fetches, .id = ++x->ids, .asker_id = id, .asker = place, .rank = rank};
    f->deadline = x->gone[rank] ? now_ms() + GONE_MS : deadline_in(seconds ? seconds : FETCH_SECONDS);
    x->fetches = f;
    struct answer a = {.place = job_place(x->job, rank), .type = MSG_LOOKUP, .id = f->id, .rank = rank};
    x->send(x->owner, &a);
    return true;
}

bool exchange_found(struct exchange_state *x, struct cursor *body)
{
    size_t len;
    uint64_t id = get_u64(body);
    uint32_t how = get_u32(body);
    const uint8_t *data = get_blob(body, &len);
    if (!cursor_done(body))
        return false;
    for (struct fetch *f = x->fetches; f; f = f->next) {
        if (f->id == id) {
            end_fetch(x, f, how == EXCHANGE_OK ? EXCHANGE_OK : EXCHANGE_NOT_FOUND, data, len);
            break;
        }
    }
    return true; /* an unknown one was over time */
}

/* ---- ends ----------------------------------------------------------------------------------------------------------
 */

void exchange_gone(struct exchange_state *x, uint32_t rank)
{
    x->gone[rank] = true;
    for (struct fence *f = x->fences, *next; f; f = next) {
        next = f->next;
        if (is_member(f, rank) && !f->here[job_place(x->job, rank)])
            end_fence(x, f, EXCHANGE_LOST);
    }
    /* what it had put may still be known; PMIx does not answer when it is not */
    for (struct fetch *f = x->fetches; f; f = f->next)
        if (f->rank == rank && f->deadline > now_ms() + GONE_MS)
            f->deadline = now_ms() + GONE_MS;
}

uint64_t exchange_tick(struct exchange_state *x, uint64_t now)
{
    uint64_t soonest = UINT64_MAX;
    for (struct fence *f = x->fences, *next; f; f = next) {
        next = f->next;
        if (f->deadline <= now)
            end_fence(x, f, EXCHANGE_TIMEOUT);
        else if (f->deadline < soonest)
            soonest = f->deadline;
    }
    for (struct fetch *f = x->fetches, *next; f; f = next) {
        next = f->next;
        if (f->deadline <= now)
            end_fetch(x, f, x->gone[f->rank] ? EXCHANGE_NOT_FOUND : EXCHANGE_TIMEOUT, NULL, 0);
        else if (f->deadline < soonest)
            soonest = f->deadline;
    }
    return soonest;
}
