/* SPDX-License-Identifier: Apache-2.0 */
/* hazard.c - the static check of programs: two steps that touch the same bytes, one of them writing, must be ordered.
 *
 * Only the steps' own `after` counts as order: that messages of one link come one after another says nothing of when a
 * transport has finished reading or writing a buffer.
 *
 * Which steps precede which is kept as a triangle of bits, filled row by row in O(n * n / 64).  Conflicts are found by
 * sorting all spans by where they begin, so that only spans that overlap are ever compared: a program of ten thousand
 * steps takes some milliseconds and 6 MB.  For tests and tools, not for the way of a collective. */
#include "lib/sched/sched.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/mem.h"

struct touch {
    int64_t begin, end; /* in the buffer; of SRC in place as DST counts */
    uint32_t step;
    enum ri_slot buffer; /* slot, SRC counted as DST when in place */
    struct ri_span span; /* as the step has it */
    bool writes;
};

struct bits {
    uint64_t *word;
    size_t *row; /* where the row of a step begins; row i has i bits */
};

static bool test(const struct bits *b, uint32_t later, uint32_t sooner)
{
    return b->word[b->row[later] + sooner / 64] >> sooner % 64 & 1;
}

static void set(const struct bits *b, uint32_t later, uint32_t sooner)
{
    b->word[b->row[later] + sooner / 64] |= UINT64_C(1) << sooner % 64;
}

static bool find_order(const struct ri_sched *s, struct bits *b)
{
    size_t words = 0;
    b->word = NULL;
    b->row = ri_new(s->n, sizeof *b->row);
    if (!b->row)
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        b->row[i] = words;
        words += (size_t)i / 64 + 1;
    }
    b->word = ri_new(words, sizeof *b->word);
    if (!b->word)
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        for (int d = 0; d < 2; d++) {
            const uint32_t p = s->step[i].after[d];
            if (p == RI_NONE)
                continue;
            set(b, i, p);
            for (size_t w = 0; w <= p / 64; w++)
                b->word[b->row[i] + w] |= b->word[b->row[p] + w];
        }
    return true;
}

static int64_t begin_of(struct ri_span x, int64_t src_at)
{
    return (int64_t)x.off + (x.slot == RI_SRC && src_at != RI_APART ? src_at : 0);
}

static enum ri_slot buffer_of(struct ri_span x, int64_t src_at)
{
    return x.slot == RI_SRC && src_at != RI_APART ? RI_DST : x.slot;
}

static size_t note(struct touch *t, uint32_t step, struct ri_span x, bool writes, int64_t src_at)
{
    if (!x.len)
        return 0;
    *t = (struct touch){.begin = begin_of(x, src_at),
                        .end = begin_of(x, src_at) + (int64_t)x.len,
                        .step = step,
                        .buffer = buffer_of(x, src_at),
                        .span = x,
                        .writes = writes};
    return 1;
}

/* Such a copy is not carried out. */
static bool onto_itself(const struct ri_step *p, int64_t src_at)
{
    return p->op == RI_COPY && buffer_of(p->a, src_at) == buffer_of(p->dst, src_at) &&
           begin_of(p->a, src_at) == begin_of(p->dst, src_at);
}

static size_t list_touches(const struct ri_sched *s, int64_t src_at, struct touch *t)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct ri_step *p = &s->step[i];
        if (onto_itself(p, src_at))
            continue;
        if (p->op != RI_SEND)
            n += note(t + n, i, p->dst, true, src_at);
        if (p->op != RI_RECV)
            n += note(t + n, i, p->a, false, src_at);
        if (p->op == RI_REDUCE)
            n += note(t + n, i, p->b, false, src_at);
        for (uint32_t k = 0; p->op == RI_COMBINE && k < p->n; k++)
            if (k != p->own)
                n += note(t + n, i, (struct ri_span){p->b.slot, p->b.off + k * p->stride, p->b.len}, false, src_at);
    }
    return n;
}

/* At most. */
static size_t count_touches(const struct ri_sched *s)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += 3 + (size_t)s->step[i].n;
    return n;
}

static int by_begin(const void *one, const void *other)
{
    const struct touch *x = one, *y = other;
    if (x->buffer != y->buffer)
        return x->buffer < y->buffer ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

/* x and y overlap, and one of them writes: is that allowed? */
static bool allowed(const struct bits *b, const struct touch *x, const struct touch *y)
{
    if (x->step == y->step) /* in place, element by element */
        return x->begin == y->begin && x->end == y->end;
    return x->step < y->step ? test(b, y->step, x->step) : test(b, x->step, y->step);
}

static void explain(const struct touch *x, const struct touch *y, char *why, size_t cap)
{
    static const char *const name[] = {"src", "dst", "tmp"};
    const struct touch *first = x->step <= y->step ? x : y, *second = first == x ? y : x;
    if (why && cap)
        snprintf(why, cap,
                 "step %" PRIu32 " %s %s[%zu,%zu) and step %" PRIu32 " %s %s[%zu,%zu), and nothing orders them",
                 first->step, first->writes ? "writes" : "reads", name[first->span.slot], first->span.off,
                 first->span.off + first->span.len, second->step, second->writes ? "writes" : "reads",
                 name[second->span.slot], second->span.off, second->span.off + second->span.len);
}

static size_t count_conflicts(const struct bits *b, const struct touch *t, size_t n, char *why, size_t cap)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n && t[j].buffer == t[i].buffer && t[j].begin < t[i].end; j++) {
            if ((!t[i].writes && !t[j].writes) || allowed(b, &t[i], &t[j]))
                continue;
            if (!found++)
                explain(&t[i], &t[j], why, cap);
            if (t[i].step < t[j].step) /* a pair counts once */
                set(b, t[j].step, t[i].step);
            else if (t[i].step > t[j].step)
                set(b, t[i].step, t[j].step);
        }
    return found;
}

size_t ri_sched_hazards(const struct ri_sched *s, int64_t src_at, char *why, size_t cap)
{
    struct bits b;
    struct touch *t = ri_new(count_touches(s), sizeof *t);
    size_t found = SIZE_MAX;
    if (find_order(s, &b) && t) {
        const size_t n = list_touches(s, src_at, t);
        qsort(t, n, sizeof *t, by_begin);
        found = count_conflicts(&b, t, n, why, cap);
    } else if (why && cap)
        snprintf(why, cap, "no memory to check a program of %" PRIu32 " steps", s->n);
    ri_free(b.word);
    ri_free(b.row);
    ri_free(t);
    return found;
}
