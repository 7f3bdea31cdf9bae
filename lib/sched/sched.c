/* SPDX-License-Identifier: Apache-2.0 */
/* sched.c - the builder of programs.
 *
 * Appends steps to one growing array and, at the end, turns "waits for" into "is waited for by" with one counting sort:
 * O(steps) time and memory.  The program owns all its arrays; ri_sched_free() accepts any state.  Nothing here knows
 * how programs run.  No shared state: one program belongs to one thread while it is built. */
#include "lib/sched/sched.h"

#include <string.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"

enum { FIRST_STEPS = 64, TMP_ALIGN = 64, MAX_SCRATCH = 8 };

static void stick(struct ri_sched *s, ring_status_t status)
{
    if (s->status == RING_OK)
        s->status = status;
}

static bool grow(struct ri_sched *s)
{
    const uint32_t cap = s->cap ? 2 * s->cap : FIRST_STEPS;
    struct ri_step *p = s->cap <= UINT32_MAX / 4 ? ri_resize(s->step, cap, sizeof *p) : NULL;
    if (!p) {
        stick(s, ri_fail(RING_ERR_NOMEM, "no memory for a program of %u steps", (unsigned)cap));
        return false;
    }
    s->step = p;
    s->cap = cap;
    return true;
}

static bool earlier(struct ri_sched *s, ri_step_id step, ri_step_id after)
{
    if (after == RI_NONE || after < step)
        return true;
    stick(s, ri_fail(RING_ERR_INTERNAL, "step %u of a program waits for step %u; only earlier steps can be waited for",
                     (unsigned)step, (unsigned)after));
    return false;
}

static bool same_length(struct ri_sched *s, size_t one, size_t other)
{
    if (one == other)
        return true;
    stick(s, ri_fail(RING_ERR_INTERNAL, "step %u of a program joins spans of %zu and %zu bytes; they must be equal",
                     (unsigned)s->n, one, other));
    return false;
}

static ri_step_id push(struct ri_sched *s, const struct ri_step *step)
{
    if (s->status != RING_OK || !earlier(s, s->n, step->after[0]) || (s->n == s->cap && !grow(s)))
        return RI_NONE;
    s->step[s->n] = *step;
    return s->n++;
}

ri_step_id ri_send(struct ri_sched *s, uint32_t peer, struct ri_span a, ri_step_id after)
{
    return push(s, &(struct ri_step){.op = RI_SEND, .peer = peer, .a = a, .after = {after, RI_NONE}});
}

ri_step_id ri_recv(struct ri_sched *s, uint32_t peer, struct ri_span dst, ri_step_id after)
{
    return push(s, &(struct ri_step){.op = RI_RECV, .peer = peer, .dst = dst, .after = {after, RI_NONE}});
}

ri_step_id ri_recv_reduce(struct ri_sched *s, uint32_t peer, struct ri_span dst, struct ri_span a, ri_step_id after)
{
    if (!same_length(s, dst.len, a.len))
        return RI_NONE;
    return push(s,
                &(struct ri_step){.op = RI_RECV_REDUCE, .peer = peer, .dst = dst, .a = a, .after = {after, RI_NONE}});
}

ri_step_id ri_copy(struct ri_sched *s, struct ri_span dst, struct ri_span a, ri_step_id after)
{
    if (!same_length(s, dst.len, a.len))
        return RI_NONE;
    return push(s, &(struct ri_step){.op = RI_COPY, .peer = RI_NONE, .dst = dst, .a = a, .after = {after, RI_NONE}});
}

ri_step_id ri_reduce(struct ri_sched *s, struct ri_span dst, struct ri_span a, struct ri_span b, ri_step_id after)
{
    if (!same_length(s, dst.len, a.len) || !same_length(s, dst.len, b.len))
        return RI_NONE;
    return push(
        s, &(struct ri_step){.op = RI_REDUCE, .peer = RI_NONE, .dst = dst, .a = a, .b = b, .after = {after, RI_NONE}});
}

ri_step_id ri_combine(struct ri_sched *s, struct ri_span dst, struct ri_span a, struct ri_span b, uint32_t n,
                      uint32_t own, size_t stride, ri_step_id after)
{
    if (!same_length(s, dst.len, a.len) || !same_length(s, dst.len, b.len))
        return RI_NONE;
    if (!n || own >= n || (n > 2 && stride < b.len)) {
        stick(s, ri_fail(RING_ERR_INTERNAL,
                         "step %u of a program combines %u operands of %zu bytes, %zu apart, its own being number %u; "
                         "they may not overlap, and its own is one of them",
                         (unsigned)s->n, (unsigned)n, b.len, stride, (unsigned)own));
        return RI_NONE;
    }
    return push(s, &(struct ri_step){.op = RI_COMBINE,
                                     .peer = RI_NONE,
                                     .dst = dst,
                                     .a = a,
                                     .b = b,
                                     .n = n,
                                     .own = own,
                                     .stride = stride,
                                     .after = {after, RI_NONE}});
}

ri_step_id ri_join(struct ri_sched *s, ri_step_id one, ri_step_id other)
{
    if (one == RI_NONE || other == RI_NONE)
        return one == RI_NONE ? other : one;
    return ri_also(s, push(s, &(struct ri_step){.op = RI_JOIN, .peer = RI_NONE, .after = {one, RI_NONE}}), other);
}

ri_step_id ri_also(struct ri_sched *s, ri_step_id step, ri_step_id after)
{
    if (s->status != RING_OK || !earlier(s, step, after))
        return step;
    if (s->step[step].after[1] != RI_NONE)
        stick(s, ri_fail(RING_ERR_INTERNAL, "step %u of a program waits for more than two steps", (unsigned)step));
    else
        s->step[step].after[1] = after;
    return step;
}

ri_step_id ri_final(struct ri_sched *s, ri_step_id step)
{
    if (s->status == RING_OK)
        s->step[step].final = true;
    return step;
}

ri_step_id ri_swap(struct ri_sched *s, ri_step_id step)
{
    if (s->status == RING_OK)
        s->step[step].swap = true;
    return step;
}

struct ri_span ri_tmp(struct ri_sched *s, size_t len)
{
    const size_t off = (s->tmp_len + TMP_ALIGN - 1) / TMP_ALIGN * TMP_ALIGN;
    if (s->status == RING_OK && (off < s->tmp_len || len > SIZE_MAX - TMP_ALIGN - off))
        stick(s, ri_fail(RING_ERR_NOMEM, "a program wants more scratch memory than there are addresses"));
    if (s->status == RING_OK)
        s->tmp_len = off + len;
    return (struct ri_span){RI_TMP, off, len};
}

ri_step_id *ri_ids(struct ri_sched *s, size_t n)
{
    if (s->status != RING_OK)
        return NULL;
    ri_step_id *p = s->nscratch < MAX_SCRATCH ? ri_new(n, sizeof *p) : NULL;
    if (!p) {
        stick(s, ri_fail(RING_ERR_NOMEM, "no memory for the %zu step numbers of a builder", n));
        return NULL;
    }
    memset(p, 0xff, n * sizeof *p);
    s->scratch[s->nscratch++] = p;
    return p;
}

static void drop_scratch(struct ri_sched *s)
{
    while (s->nscratch)
        ri_free(s->scratch[--s->nscratch]);
}

/* Counts into first_next[i + 1], sums up, and fills from the front; first_next[i] ends where it began. */
static bool link_successors(struct ri_sched *s)
{
    uint32_t edges = 0;
    s->first_next = ri_new((size_t)s->n + 2, sizeof *s->first_next);
    if (!s->first_next)
        return false;
    uint32_t *fill = s->first_next + 1; /* one ahead: after filling, fill[i] is where i + 1 begins */
    for (uint32_t i = 0; i < s->n; i++)
        for (int d = 0; d < 2; d++)
            if (s->step[i].after[d] != RI_NONE)
                fill[s->step[i].after[d] + 1]++, edges++;
    for (uint32_t i = 1; i <= s->n; i++)
        fill[i] += fill[i - 1];
    s->next = ri_new(edges, sizeof *s->next);
    if (!s->next)
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        for (int d = 0; d < 2; d++)
            if (s->step[i].after[d] != RI_NONE)
                s->next[fill[s->step[i].after[d]]++] = i;
    return true;
}

/* Programs have few peers: a sorted list with insertion is enough. */
static bool add_peer(struct ri_sched *s, uint32_t peer, uint32_t *cap)
{
    uint32_t at = s->npeers;
    while (at && s->peers[at - 1] >= peer)
        at--;
    if (at < s->npeers && s->peers[at] == peer)
        return true;
    if (s->npeers == *cap) {
        uint32_t *p = ri_resize(s->peers, *cap ? 2 * *cap : 8, sizeof *p);
        if (!p)
            return false;
        s->peers = p;
        *cap = *cap ? 2 * *cap : 8;
    }
    memmove(s->peers + at + 1, s->peers + at, (s->npeers - at) * sizeof *s->peers);
    s->peers[at] = peer;
    s->npeers++;
    return true;
}

static bool list_peers(struct ri_sched *s)
{
    uint32_t cap = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (ri_communicates(&s->step[i]) && ri_step_bytes(&s->step[i]) && !add_peer(s, s->step[i].peer, &cap))
            return false;
    return true;
}

ring_status_t ri_sched_done(struct ri_sched *s)
{
    drop_scratch(s);
    if (s->status == RING_OK && (!link_successors(s) || !list_peers(s)))
        stick(s, ri_fail(RING_ERR_NOMEM, "no memory for a program of %u steps", (unsigned)s->n));
    return s->status;
}

void ri_sched_free(struct ri_sched *s)
{
    drop_scratch(s);
    ri_free(s->step);
    ri_free(s->first_next);
    ri_free(s->next);
    ri_free(s->peers);
    *s = (struct ri_sched){0};
}
