/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - which algorithm, and in what pieces.
 *
 * Every algorithm tells its cost in the latency-bandwidth model; the cheapest that fits is taken, the first in the
 * table when two cost the same.  All ranks must come to the same choice, so it depends on nothing but its arguments:
 * lib/comm sees to it that these agree. */
#include "lib/coll/coll.h"

#include <string.h>

enum {
    STEPS = 10000,       /* of a program, roughly                                       */
    PER_SEGMENT = 4,     /* steps: send, receive and reduce, in two laps                */
    IN_FLIGHT = 4,       /* segments of a part, so that one travels while one is added  */
    SMALLEST = 32 << 10, /* below this a message costs more than the overlap brings     */
};

const struct ri_algorithm *ri_algorithm_named(ring_coll_t coll, const char *name)
{
    for (const struct ri_algorithm *const *p = ri_algorithms; *p; p++)
        if ((*p)->coll == coll && !strcmp((*p)->name, name))
            return *p;
    return NULL;
}

static bool suits(const struct ri_algorithm *p, const struct ri_coll_args *a)
{
    return (p->ordered || !a->ordered) && p->fits(a);
}

const struct ri_algorithm *ri_algorithm_choose(ring_coll_t coll, const struct ri_coll_args *a,
                                               const struct ri_cost_model *m, const char *forced)
{
    const struct ri_algorithm *best = forced ? ri_algorithm_named(coll, forced) : NULL;
    double least = 0;
    if (best && suits(best, a))
        return best;
    best = NULL;
    for (const struct ri_algorithm *const *p = ri_algorithms; *p; p++) {
        if ((*p)->coll != coll || !suits(*p, a))
            continue;
        const double cost = (*p)->cost(a, m);
        if (!best || cost < least) {
            best = *p;
            least = cost;
        }
    }
    return best;
}

static size_t divide_up(size_t a, size_t b) { return a / b + (a % b != 0); }

size_t ri_segment_for(size_t bytes, uint32_t parts, uint32_t esize, size_t limit)
{
    const size_t ranks = parts ? parts : 1;
    const size_t part = divide_up(bytes, ranks);
    const size_t most = STEPS / (PER_SEGMENT * ranks);     /* segments of a part */
    const size_t least = divide_up(part, most ? most : 1); /* bytes, by the number of steps */
    size_t seg = part / IN_FLIGHT > SMALLEST ? part / IN_FLIGHT : SMALLEST;
    if (seg > limit)
        seg = limit;
    if (seg < least)
        return least > SIZE_MAX - esize ? SIZE_MAX / esize * esize : divide_up(least, esize) * esize;
    return seg < esize ? esize : seg / esize * esize;
}

ring_status_t ri_build_alone(struct ri_sched *s, const struct ri_coll_args *a)
{
    const size_t bytes = a->count * a->esize;
    ri_copy(s, (struct ri_span){RI_DST, 0, bytes}, (struct ri_span){RI_SRC, 0, bytes}, RI_NONE);
    return ri_sched_done(s);
}

static void move_to(struct ri_span token, struct ri_span *x)
{
    if (x->slot != RI_TMP)
        *x = (struct ri_span){RI_TMP, token.off + x->off, x->len};
}

ring_status_t ri_build_tokens(struct ri_sched *s, const struct ri_coll_args *a,
                              ring_status_t (*build)(struct ri_sched *s, const struct ri_coll_args *a))
{
    struct ri_coll_args one = *a;
    const struct ri_span token = ri_tmp(s, a->esize);
    one.count = 1;
    const ring_status_t status = build(s, &one);
    for (uint32_t i = 0; i < s->n; i++) {
        move_to(token, &s->step[i].dst);
        move_to(token, &s->step[i].a);
        move_to(token, &s->step[i].b);
    }
    return status;
}
