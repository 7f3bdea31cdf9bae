/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - runs programs over links.
 *
 * What it looks at.  A run has one lane per peer, a lane one stream per direction: the program's messages there, in
 * program order; steps without bytes are in none.  A link has, per direction, a queue of the streams of all runs in
 * start order, of which only the first may post. A step that becomes ready marks its stream dirty when it is the
 * stream's next, or enters the run's queue of local work; so nothing is searched for, and the cost of a message is a
 * few dozen nanoseconds whatever the length of the program.
 *
 * Trust.  A stream's first message is the signature.  Receives may be posted behind it before it has
 * come, so that a small operation needs one call each way, but then they go through a sink that drops every byte unless
 * the signature, which arrives first (RI_STRIPE), was the right one.
 *
 * What it is not: it knows no algorithm, no waiting and no time.  Memory: everything hangs below struct ri_run, made by
 * ri_run_new(); see run.c.  Threads: one at a time. */
#include "lib/sched/run.h"

#include <string.h>

enum {
    SLICE = 64 << 10, /* of local work at a time, so that it stays in cache and links are looked at meanwhile */
    LEAST = 4 << 10,  /* of one operand of many                                                               */
    LOCAL_WORK = 4    /* slices per call                                                                      */
};

/* ---- failure --------------------------------------------------------------------------------------------------- */

static void leave(struct ri_engine *e, struct ri_run *run)
{
    *(run->prev ? &run->prev->next : &e->first) = run->next;
    *(run->next ? &run->next->prev : &e->last) = run->prev;
    run->next = run->prev = NULL;
    run->active = false;
}

static void fail(struct ri_run *run, ring_status_t status, uint32_t culprit)
{
    if (run->status != RING_OK)
        return;
    run->status = status;
    run->culprit = culprit;
    for (uint32_t i = 0; i < run->lanes; i++) {
        struct channel *c = &run->engine->channel[run->lane[i].link];
        if (c->status != RING_OK)
            continue;
        c->status = status;
        c->culprit = culprit;
        c->from = run->number;
    }
}

/* The channel that keeps a run from finishing, if any. */
static const struct channel *broken(const struct ri_run *run)
{
    for (uint32_t i = 0; i < run->lanes; i++) {
        const struct channel *c = &run->engine->channel[run->lane[i].link];
        if (c->status != RING_OK && run->lane[i].left && run->number >= c->from)
            return c;
    }
    return NULL;
}

/* In start order, so that what fails because of a run comes after it: one pass is enough. */
static void spread(struct ri_engine *e)
{
    for (struct ri_run *run = e->first; run; run = run->next) {
        const struct channel *c = run->status == RING_OK ? broken(run) : NULL;
        if (c)
            fail(run, c->status, c->culprit);
    }
}

static void break_link(struct ri_engine *e, const struct lane *lane, ring_status_t status)
{
    struct channel *c = &e->channel[lane->link];
    c->status = status;
    c->culprit = lane->peer;
    c->from = 0; /* all runs that still need it */
    spread(e);
}

/* ---- readiness ------------------------------------------------------------------------------------------------- */

static void mark(struct ri_engine *e, struct stream *w)
{
    if (w->dirty)
        return;
    w->dirty = true;
    w->next_dirty = e->dirty;
    e->dirty = w;
}

static void ready(struct ri_run *run, uint32_t step)
{
    struct stream *w = run->stream_of[step];
    if (w) {
        if (w->next < w->count && w->step[w->next] == step)
            mark(run->engine, w);
        return;
    }
    if (!run->program->step[step].dst.len) {
        run->local[--run->empty] = step;
        return;
    }
    run->local[run->local_tail++] = step;
    if (run->busy)
        return;
    run->busy = true;
    run->next_busy = NULL;
    *(run->engine->busy_tail) = run;
    run->engine->busy_tail = &run->next_busy;
}

static void one_less(struct ri_run *run)
{
    if (!--run->left)
        leave(run->engine, run);
}

static void settle(struct ri_run *run, uint32_t step)
{
    const struct ri_sched *s = run->program;
    for (uint32_t i = s->first_next[step]; i < s->first_next[step + 1]; i++)
        if (!--run->waits[s->next[i]])
            ready(run, s->next[i]);
    one_less(run);
}

/* Steps without bytes are complete when they are ready; a list, because a chain of them may be long. */
static void settle_empty(struct ri_run *run)
{
    while (run->empty < run->program->n)
        settle(run, run->local[run->empty++]);
}

static void complete(struct ri_run *run, uint32_t step)
{
    settle(run, step);
    settle_empty(run);
}

/* ---- sinks: bytes on their way to the caller's buffers --------------------------------------------------------- */

static char *at(const struct ri_run *run, struct ri_span x, size_t offset)
{
    return run->base[x.slot] + x.off + offset;
}

/* What the sender of a stream says. */
static struct ri_signature spoken(const struct stream *w)
{
    struct ri_signature s = w->lane->run->mine;
    s.bytes = w->bytes;
    return s;
}

static void see_signature(struct ri_xfer *x, size_t offset, const void *bytes, size_t len)
{
    struct message *m = (struct message *)x;
    struct lane *lane = m->stream->lane;
    memcpy((char *)&lane->theirs + offset, bytes, len);
    if (offset + len < sizeof lane->theirs)
        return;
    const struct ri_signature want = spoken(m->stream);
    lane->agreed = !memcmp(&lane->theirs, &want, sizeof want);
}

static bool trusted(const struct message *m)
{
    return m->stream->lane->agreed && m->stream->lane->run->status == RING_OK;
}

static void copy_in(struct ri_xfer *x, size_t offset, const void *bytes, size_t len)
{
    const struct message *m = (const struct message *)x;
    const struct ri_run *run = m->stream->lane->run;
    if (trusted(m))
        memcpy(at(run, run->program->step[m->step].dst, offset), bytes, len);
}

static void reduce_in(struct ri_xfer *x, size_t offset, const void *bytes, size_t len)
{
    const struct message *m = (const struct message *)x;
    const struct ri_run *run = m->stream->lane->run;
    const struct ri_step *p = &run->program->step[m->step];
    const size_t count = len >> run->eshift;
    if (!trusted(m))
        return;
    char *dst = at(run, p->dst, offset);
    const char *a = at(run, p->a, offset);
    run->reduction.reduce(&run->reduction, dst, p->swap ? bytes : a, p->swap ? a : bytes, count);
    if (p->final && run->reduction.divide)
        run->reduction.divide(dst, count, run->program->ranks);
}

/* ---- posting --------------------------------------------------------------------------------------------------- */

static void post(struct stream *w, struct message *m)
{
    struct lane *lane = w->lane;
    m->x.status = RING_OK;
    m->x.moved = 0;
    m->busy = true;
    (w->receives ? lane->transport->recv : lane->transport->send)(lane->wire, &m->x);
}

static void post_signature(struct stream *w)
{
    struct message *m = &w->signature;
    m->step = RI_NONE;
    m->x.len = sizeof(struct ri_signature);
    if (!w->receives)
        w->lane->mine = spoken(w);
    m->x.buf = w->receives ? NULL : &w->lane->mine;
    m->x.sink = w->receives ? see_signature : NULL;
    m->x.unit = 8;
    w->introduced = true;
    post(w, m);
}

/* May this be posted before the peer's signature has come?  Plain scratch memory may hold anything; all else needs a
 * sink that knows, and so a message that cannot come before the signature. */
static bool in_time(const struct stream *w, const struct ri_step *p)
{
    return w->lane->agreed || p->dst.len < RI_STRIPE || (p->op == RI_RECV && p->dst.slot == RI_TMP);
}

static void post_receive(struct stream *w, struct message *m, const struct ri_step *p)
{
    const struct ri_run *run = w->lane->run;
    m->x.len = p->dst.len;
    m->x.unit = run->reduction.esize;
    m->x.buf = NULL;
    if (p->op == RI_RECV_REDUCE)
        m->x.sink = reduce_in;
    else if (!w->lane->agreed && p->dst.slot != RI_TMP)
        m->x.sink = copy_in;
    else {
        m->x.sink = NULL;
        m->x.buf = at(run, p->dst, 0);
    }
    post(w, m);
}

static void post_send(struct stream *w, struct message *m, const struct ri_step *p)
{
    m->x.len = p->a.len;
    m->x.sink = NULL;
    m->x.buf = at(w->lane->run, p->a, 0);
    post(w, m);
}

/* Post the stream's next step; false when it cannot be yet. */
static bool post_next(struct stream *w)
{
    struct ri_run *run = w->lane->run;
    const uint32_t step = w->step[w->next];
    const struct ri_step *p = &run->program->step[step];
    struct message *m = &w->window[w->slot];
    if (run->waits[step] || m->busy || (w->receives && !in_time(w, p)))
        return false;
    w->slot = w->slot + 1 == w->slots ? 0 : w->slot + 1;
    w->next++;
    m->step = step;
    if (w->receives)
        post_receive(w, m, p);
    else
        post_send(w, m, p);
    return true;
}

/* The stream has nothing more to post: the next run's turn. */
static void hand_over(struct ri_engine *e, struct channel *c, struct stream *w)
{
    c->head[w->receives] = w->behind;
    if (w->behind)
        mark(e, w->behind);
    else
        c->tail[w->receives] = NULL;
    w->behind = NULL;
}

/* A link that is not there yet wakes its first streams when it comes. */
static bool joined(const struct ri_engine *e, struct lane *lane)
{
    if (!lane->wire && (lane->wire = e->setup.link[lane->link]))
        lane->transport = lane->wire->ctx->transport;
    return lane->wire;
}

static unsigned pump(struct ri_engine *e, struct stream *w)
{
    struct channel *c = &e->channel[w->lane->link];
    const ring_status_t status = w->lane->run->status;
    unsigned posted = 0;
    if (c->head[w->receives] != w || !joined(e, w->lane))
        return 0;
    /* A rank that has heard of a disagreement still says to its other neighbours what it wanted. */
    if (!w->introduced && (status == RING_OK || status == RING_ERR_MISMATCH)) {
        post_signature(w);
        posted++;
    }
    if (status != RING_OK)
        return posted;
    while (w->next < w->count && post_next(w))
        posted++;
    if (w->next == w->count)
        hand_over(e, c, w);
    return posted;
}

static unsigned pump_all(struct ri_engine *e)
{
    unsigned posted = 0;
    while (e->dirty) {
        struct stream *w = e->dirty;
        e->dirty = w->next_dirty;
        w->dirty = false;
        posted += pump(e, w);
    }
    return posted;
}

/* ---- local work ------------------------------------------------------------------------------------------------ */

static void combine(struct ri_run *run, const struct ri_step *p, size_t off, size_t len)
{
    void *to = at(run, p->dst, off);
    for (uint32_t k = 0; k < p->n; k++)
        run->operand[k] = k == p->own ? at(run, p->a, off) : at(run, p->b, k * p->stride + off);
    const struct ri_combine c = {.from = run->operand,
                                 .to = &to,
                                 .n = p->n,
                                 .outs = 1,
                                 .count = len >> run->eshift,
                                 .divisor = p->final && run->reduction.divide ? run->program->ranks : 0};
    run->reduction.combine(&run->reduction, &c);
}

static void do_slice(struct ri_run *run, const struct ri_step *p, size_t off, size_t len)
{
    char *dst = at(run, p->dst, off);
    const char *a = at(run, p->a, off);
    if (p->op == RI_COMBINE) {
        combine(run, p, off, len);
        return;
    }
    if (p->op == RI_COPY) {
        if (dst != a)
            memcpy(dst, a, len);
        return;
    }
    run->reduction.reduce(&run->reduction, dst, a, at(run, p->b, off), len >> run->eshift);
    if (p->final && run->reduction.divide)
        run->reduction.divide(dst, len >> run->eshift, run->program->ranks);
}

/* Two operands' worth of bytes, whole elements. */
static size_t slice_of(uint32_t operands)
{
    const size_t len = 2 * (size_t)SLICE / operands / LEAST * LEAST;
    return len ? len : LEAST;
}

/* One slice of a run's oldest local step. */
static void work(struct ri_run *run)
{
    const uint32_t step = run->local[run->local_head];
    const struct ri_step *p = &run->program->step[step];
    const size_t left = p->dst.len - run->local_done, most = p->n > 2 ? slice_of(p->n) : SLICE;
    const size_t len = left < most ? left : most;
    do_slice(run, p, run->local_done, len);
    run->local_done += len;
    if (run->local_done < p->dst.len)
        return;
    run->local_done = 0;
    run->local_head++;
    complete(run, step);
}

static void next_busy(struct ri_engine *e)
{
    struct ri_run *run = e->busy;
    e->busy = run->next_busy;
    if (!e->busy)
        e->busy_tail = &e->busy;
    run->busy = false;
}

static unsigned work_some(struct ri_engine *e)
{
    unsigned slices = 0;
    while (e->busy && slices < LOCAL_WORK) {
        struct ri_run *run = e->busy;
        if (run->status == RING_OK && run->local_head < run->local_tail) {
            work(run);
            slices++;
            pump_all(e);
        }
        if (run->status != RING_OK || run->local_head == run->local_tail)
            next_busy(e);
    }
    return slices;
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

static void disagree(struct ri_run *run, const struct lane *lane)
{
    const struct ri_engine_setup *setup = &run->engine->setup;
    const struct ri_signature want = spoken(&lane->way[1]);
    if (setup->mismatch)
        setup->mismatch(setup->owner, lane->peer, &want, &lane->theirs);
    fail(run, RING_ERR_MISMATCH, UINT32_MAX);
    spread(run->engine);
}

static void finish(struct ri_engine *e, struct message *m)
{
    struct stream *w = m->stream;
    struct lane *lane = w->lane;
    struct ri_run *run = lane->run;
    m->busy = false;
    if (m->x.status != RING_OK)
        break_link(e, lane, m->x.status);
    if (run->status != RING_OK)
        return;
    lane->left--;
    if (m->step != RI_NONE) {
        if (w->next < w->count)
            mark(e, w);
        complete(run, m->step);
        return;
    }
    if (w->receives) {
        if (!lane->agreed) {
            disagree(run, lane);
            return;
        }
        mark(e, w);
    }
    one_less(run);
}

unsigned ri_engine_progress(struct ri_engine *e, struct ri_queue *done)
{
    unsigned moved = 0;
    struct ri_xfer *x;
    while ((x = ri_queue_take(done))) {
        finish(e, (struct message *)x);
        moved++;
    }
    moved += pump_all(e);
    return moved + work_some(e);
}

/* ---- starting -------------------------------------------------------------------------------------------------- */

static void enqueue(struct ri_engine *e, struct stream *w)
{
    struct channel *c = &e->channel[w->lane->link];
    if (!w->count)
        return;
    w->next = w->slot = 0;
    w->introduced = false;
    w->behind = NULL;
    if (c->tail[w->receives])
        c->tail[w->receives]->behind = w;
    else
        c->head[w->receives] = w;
    c->tail[w->receives] = w;
    mark(e, w);
}

static void enter(struct ri_engine *e, struct ri_run *run)
{
    run->number = ++e->started;
    run->active = true;
    run->next = NULL;
    run->prev = e->last;
    *(e->last ? &e->last->next : &e->first) = run;
    e->last = run;
}

/* Nobody waits for the first local steps; they are listed in the order of the program. */
static void start_local(struct ri_run *run)
{
    run->local_head = run->local_tail = 0;
    run->local_done = 0;
    run->empty = run->program->n;
    for (uint32_t i = 0; i < run->first_locals; i++)
        ready(run, run->first_local[i]);
    settle_empty(run);
    one_less(run);
}

void ri_run_start(struct ri_run *run, const void *src, void *dst, const struct ri_reduction *reduction,
                  const struct ri_signature *signature)
{
    struct ri_engine *e = run->engine;
    const struct channel *c;
    run->base[RI_SRC] = (char *)(uintptr_t)src; /* only read: no step writes to SRC unless it is DST */
    run->base[RI_DST] = dst;
    run->reduction = *reduction;
    run->eshift = (unsigned)__builtin_ctz(reduction->esize ? reduction->esize : 1);
    run->mine = *signature;
    run->status = RING_OK;
    run->culprit = UINT32_MAX;
    run->left = run->program->n + run->signatures + 1; /* and starting */
    if (run->program->n)
        memcpy(run->waits, run->waits_at_start, run->program->n);
    enter(e, run);
    for (uint32_t i = 0; i < run->lanes; i++) {
        run->lane[i].agreed = false;
        run->lane[i].left = run->lane[i].messages;
        run->lane[i].wire = NULL;
    }
    if ((c = broken(run))) {
        fail(run, c->status, c->culprit);
        return;
    }
    for (uint32_t i = 0; i < run->lanes; i++)
        for (int d = 0; d < 2; d++)
            enqueue(e, &run->lane[i].way[d]);
    start_local(run);
    pump_all(e);
}

void ri_engine_link_ready(struct ri_engine *e, uint32_t number)
{
    for (int d = 0; d < 2; d++)
        if (e->channel[number].head[d])
            mark(e, e->channel[number].head[d]);
    pump_all(e);
}

ring_status_t ri_run_state(const struct ri_run *run, bool *done_out)
{
    *done_out = run->status == RING_OK && !run->left;
    return run->status;
}

uint32_t ri_run_culprit(const struct ri_run *run) { return run->culprit; }
