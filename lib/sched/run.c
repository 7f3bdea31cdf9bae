/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - makes and frees engines and runs, and says what a run waits for.
 *
 * All that depends on the program alone is laid out here once: the streams of every lane, who waits for how many, where
 * each step belongs.  O(steps) memory, about 30 bytes a step beside the scratch buffer, and up to WINDOW transfers per
 * stream.  None of this is on the way of a collective. */
#include "lib/sched/run.h"

#include <inttypes.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"

enum { WINDOW = 64, TMP_ALIGN = 64 };

ring_status_t ri_engine_open(const struct ri_engine_setup *setup, struct ri_engine **engine_out)
{
    struct ri_engine *e = ri_new(1, sizeof *e + setup->links * sizeof *e->channel);
    if (!e)
        return ri_fail(RING_ERR_NOMEM, "no memory for an engine of %" PRIu32 " links", setup->links);
    e->setup = *setup;
    e->busy_tail = &e->busy;
    *engine_out = e;
    return RING_OK;
}

void ri_engine_close(struct ri_engine *e) { ri_free(e); }

static struct lane *lane_to(struct ri_run *run, uint32_t peer)
{
    uint32_t low = 0, high = run->lanes;
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (run->lane[mid].peer <= peer)
            low = mid;
        else
            high = mid;
    }
    return &run->lane[low];
}

static ring_status_t find_lanes(struct ri_run *run)
{
    const struct ri_engine_setup *setup = &run->engine->setup;
    for (uint32_t i = 0; i < run->lanes; i++) {
        struct lane *lane = &run->lane[i];
        lane->run = run;
        lane->peer = run->program->peers[i];
        lane->link = setup->link_of(setup->arg, lane->peer);
        if (lane->link >= setup->links)
            return ri_fail(RING_ERR_INTERNAL,
                           "a program of rank %" PRIu32 " uses rank %" PRIu32 ", to which there is no link",
                           setup->rank, lane->peer);
        for (int d = 0; d < 2; d++) {
            lane->way[d].lane = lane;
            lane->way[d].receives = d;
            lane->way[d].signature.stream = &lane->way[d];
        }
    }
    return RING_OK;
}

/* Count what each stream gets, give every stream its part of the arrays, and fill them in program order. */
static void lay_out(struct ri_run *run)
{
    const struct ri_sched *s = run->program;
    uint32_t steps = 0, messages = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (ri_communicates(&s->step[i]) && ri_step_bytes(&s->step[i])) {
            struct stream *w = &lane_to(run, s->step[i].peer)->way[s->step[i].op != RI_SEND];
            run->stream_of[i] = w;
            run->signatures += !w->count;
            w->lane->messages += 1 + !w->count;
            w->count++;
            w->bytes += ri_step_bytes(&s->step[i]);
        }
    for (uint32_t i = 0; i < 2 * run->lanes; i++) {
        struct stream *w = &run->lane[i / 2].way[i % 2];
        w->step = run->order + steps;
        w->window = run->messages + messages;
        w->slots = w->count < WINDOW ? w->count : WINDOW;
        for (uint32_t k = 0; k < w->slots; k++)
            w->window[k].stream = w;
        steps += w->count;
        messages += w->slots;
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (run->stream_of[i])
            run->order[(size_t)(run->stream_of[i]->step - run->order) + run->stream_of[i]->next++] = i;
}

static void count_waits(struct ri_run *run)
{
    const struct ri_sched *s = run->program;
    for (uint32_t i = 0; i < s->n; i++) {
        run->waits_at_start[i] = (uint8_t)((s->step[i].after[0] != RI_NONE) + (s->step[i].after[1] != RI_NONE));
        if (!run->stream_of[i] && !run->waits_at_start[i])
            run->first_local[run->first_locals++] = i;
    }
}

static uint32_t most_operands(const struct ri_sched *s)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->n; i++)
        most = s->step[i].n > most ? s->step[i].n : most;
    return most;
}

static bool allocate(struct ri_run *run)
{
    const struct ri_sched *s = run->program;
    const size_t most = (size_t)2 * s->npeers * WINDOW;
    run->lane = ri_new(s->npeers, sizeof *run->lane);
    run->waits = ri_new(s->n, 1);
    run->waits_at_start = ri_new(s->n, 1);
    run->stream_of = ri_new(s->n, sizeof *run->stream_of);
    run->order = ri_new(s->n, sizeof *run->order);
    run->local = ri_new(s->n, sizeof *run->local);
    run->first_local = ri_new(s->n, sizeof *run->first_local);
    run->messages = ri_new(s->n < most ? s->n : most, sizeof *run->messages);
    run->operand = ri_new(most_operands(s), sizeof *run->operand);
    run->base[RI_TMP] = ri_new_aligned(TMP_ALIGN, s->tmp_len);
    return run->lane && run->waits && run->waits_at_start && run->stream_of && run->order && run->local &&
           run->first_local && run->messages && run->operand && run->base[RI_TMP];
}

ring_status_t ri_run_new(struct ri_engine *e, const struct ri_sched *program, struct ri_run **run_out)
{
    struct ri_run *run;
    ring_status_t status;
    if (program->status != RING_OK)
        return program->status;
    run = ri_new(1, sizeof *run);
    if (!run)
        return ri_fail(RING_ERR_NOMEM, "no memory for a run");
    run->engine = e;
    run->program = program;
    run->lanes = program->npeers;
    run->culprit = UINT32_MAX;
    if (!allocate(run))
        status = ri_fail(RING_ERR_NOMEM, "no memory for a run of %" PRIu32 " steps with %zu bytes of scratch",
                         program->n, program->tmp_len);
    else
        status = find_lanes(run);
    if (status != RING_OK) {
        ri_run_free(run);
        return status;
    }
    lay_out(run);
    count_waits(run);
    *run_out = run;
    return RING_OK;
}

static void unlink_stream(struct ri_engine *e, const struct stream *w)
{
    struct channel *c = &e->channel[w->lane->link];
    struct stream *before = NULL, **at = &c->head[w->receives];
    while (*at && *at != w) {
        before = *at;
        at = &before->behind;
    }
    if (*at) {
        *at = w->behind;
        if (c->tail[w->receives] == w)
            c->tail[w->receives] = before;
    }
    for (struct stream **p = &e->dirty; *p; p = &(*p)->next_dirty)
        if (*p == w) {
            *p = w->next_dirty;
            break;
        }
}

static void unlink_run(struct ri_engine *e, struct ri_run *run)
{
    for (uint32_t i = 0; i < run->lanes; i++)
        for (int d = 0; d < 2; d++)
            unlink_stream(e, &run->lane[i].way[d]);
    if (run->active) {
        *(run->prev ? &run->prev->next : &e->first) = run->next;
        *(run->next ? &run->next->prev : &e->last) = run->prev;
    }
    struct ri_run **p = &e->busy;
    while (*p && *p != run)
        p = &(*p)->next_busy;
    if (*p) {
        *p = run->next_busy;
        if (!*p)
            e->busy_tail = p;
    }
}

void ri_run_free(struct ri_run *run)
{
    if (!run)
        return;
    if (run->number)
        unlink_run(run->engine, run);
    ri_free(run->lane);
    ri_free(run->waits);
    ri_free(run->waits_at_start);
    ri_free(run->stream_of);
    ri_free(run->order);
    ri_free(run->local);
    ri_free(run->first_local);
    ri_free(run->messages);
    ri_free(run->operand);
    ri_free(run->base[RI_TMP]);
    ri_free(run);
}

/* ---- what a run waits for -------------------------------------------------------------------------------------- */

/* The oldest message of a stream that is not finished: a step, RI_NONE when there is none. */
static uint32_t oldest(const struct stream *w)
{
    uint32_t step = w->next < w->count ? w->step[w->next] : RI_NONE;
    for (uint32_t i = 0; i < w->slots; i++)
        if (w->window[i].busy && w->window[i].step < step)
            step = w->window[i].step;
    return step;
}

void ri_run_describe(const struct ri_run *run, char *text, size_t cap)
{
    const struct stream *at = NULL;
    uint32_t first = RI_NONE;
    if (run->status != RING_OK || !run->left) {
        snprintf(text, cap, "%s", run->status == RING_OK ? "nothing: it is done" : ring_status_str(run->status));
        return;
    }
    for (uint32_t i = 0; i < run->lanes; i++)
        for (int d = 1; d >= 0; d--) {
            const struct stream *w = &run->lane[i].way[d];
            if (w->count && !run->engine->setup.link[run->lane[i].link]) {
                snprintf(text, cap, "a link to rank %" PRIu32, run->lane[i].peer);
                return;
            }
            if (d && w->count && !run->lane[i].agreed) {
                snprintf(text, cap, "rank %" PRIu32 " to begin operation %" PRIu32, run->lane[i].peer, run->mine.seq);
                return;
            }
            if (oldest(w) < first) {
                first = oldest(w);
                at = w;
            }
        }
    if (!at) {
        snprintf(text, cap, "local work");
        return;
    }
    const struct ri_step *p = &run->program->step[first];
    snprintf(text, cap, "%s of %zu bytes %s rank %" PRIu32 " (step %" PRIu32 " of %" PRIu32 ")",
             at->receives ? "recv" : "send", at->receives ? p->dst.len : p->a.len, at->receives ? "from" : "to",
             at->lane->peer, first, run->program->n);
}
