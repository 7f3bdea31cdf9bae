/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - programs are built once per shape and kept, together with the runs made for them, so that a repeated call
 * allocates nothing.  The most recently used come first; old ones without a run under way are dropped. */
#include "lib/comm/comm.h"

#include <string.h>

#include "lib/base/mem.h"
#include "lib/comm/arguments.h"

enum { KEEP_PROGRAMS = 64, KEEP_STEPS = 200000 };

static struct ri_coll_args args_for(const struct ring_comm *c, const struct ri_call *call)
{
    struct ri_coll_args a = ri_coll_args_for(call, c->rank, c->size, &c->layout, c->conf.segment);
    a.ordered = c->conf.deterministic && ri_arguments_reduces(call->coll);
    return a;
}

static const char *wanted(const struct ring_comm *c, ring_coll_t coll, const struct ri_coll_args *a)
{
    return c->rules.n ? ri_rules_find(&c->rules, coll, ri_coll_bytes(coll, a)) : NULL;
}

uint64_t ri_program_count(const struct ring_comm *c, const struct ri_call *call)
{
    const struct ri_coll_args a = args_for(c, call);
    return ri_coll_bytes(call->coll, &a) / a.esize;
}

bool ri_program_leaves_to_node(const struct ring_comm *c, const struct ri_call *call)
{
    const struct ri_coll_args a = args_for(c, call);
    const char *name = wanted(c, call->coll, &a);
    return !name || !strcmp(name, "node");
}

const struct ri_algorithm *ri_program_choose(const struct ring_comm *c, const struct ri_call *call,
                                             struct ri_coll_args *args_out)
{
    *args_out = args_for(c, call);
    return ri_algorithm_choose(call->coll, args_out, &c->wires.model, wanted(c, call->coll, args_out));
}

static void drop(struct ri_program *p)
{
    while (p->spare) {
        struct ri_spare *s = p->spare;
        p->spare = s->next;
        ri_run_free(s->run);
        ri_free(s);
    }
    ri_sched_free(&p->sched);
    ri_free(p);
}

static void trim(struct ring_comm *c)
{
    uint32_t programs = 0;
    size_t steps = 0;
    for (struct ri_program **at = &c->programs; *at;) {
        struct ri_program *p = *at;
        if (!p->in_use && programs && (programs >= KEEP_PROGRAMS || steps + p->sched.n > KEEP_STEPS)) {
            *at = p->next;
            drop(p);
            continue;
        }
        programs++;
        steps += p->sched.n;
        at = &p->next;
    }
}

static bool same_array(const size_t *one, const size_t *other, uint32_t n)
{
    return one == other || (one && other && !memcmp(one, other, n * sizeof *one));
}

static bool same_shape(const struct ring_comm *c, const struct ri_call *a, const struct ri_call *b)
{
    return a->coll == b->coll && a->count == b->count && a->root == b->root && a->variable == b->variable &&
           same_array(a->scounts, b->scounts, c->size) && same_array(a->sdispls, b->sdispls, c->size) &&
           same_array(a->rcounts, b->rcounts, c->size) && same_array(a->rdispls, b->rdispls, c->size);
}

static struct ri_program *find(struct ring_comm *c, const struct ri_call *call, uint32_t esize)
{
    for (struct ri_program **at = &c->programs; *at; at = &(*at)->next) {
        struct ri_program *p = *at;
        if (p->esize != esize || !same_shape(c, &p->call, call))
            continue;
        *at = p->next;
        p->next = c->programs;
        c->programs = p;
        return p;
    }
    return NULL;
}

/* The shape outlives the caller's arrays. */
static void keep_shape(const struct ring_comm *c, struct ri_program *p, const struct ri_call *call)
{
    const size_t *const given[] = {call->scounts, call->sdispls, call->rcounts, call->rdispls};
    const size_t **const kept[] = {&p->call.scounts, &p->call.sdispls, &p->call.rcounts, &p->call.rdispls};
    p->call = *call;
    for (int i = 0; i < 4; i++)
        if (given[i]) {
            size_t *copy = p->arrays + i * (size_t)c->size;
            memcpy(copy, given[i], c->size * sizeof *copy);
            *kept[i] = copy;
        }
}

static ring_status_t build(struct ring_comm *c, struct ri_program *p)
{
    struct ri_coll_args args;
    p->algorithm = ri_program_choose(c, &p->call, &args);
    if (!p->algorithm)
        return ri_fail(RING_ERR_UNSUPPORTED, "no algorithm does %s among %u ranks over links",
                       ring_coll_str(p->call.coll), c->size);
    return p->algorithm->build(&p->sched, &args);
}

static ring_status_t make(struct ring_comm *c, const struct ri_call *call, uint32_t esize,
                          struct ri_program **program_out)
{
    const size_t arrays = call->scounts || call->rcounts ? 4 * (size_t)c->size : 0;
    struct ri_program *p = ri_new(1, sizeof *p + arrays * sizeof *p->arrays);
    if (!p)
        return ri_fail(RING_ERR_NOMEM, "no memory for a program");
    keep_shape(c, p, call);
    p->esize = esize;
    ring_status_t status = ri_wires_open(c);
    if (!status)
        status = build(c, p);
    if (!status)
        status = ri_wires_want(c, p->sched.peers, p->sched.npeers);
    if (status) {
        drop(p);
        return status;
    }
    p->next = c->programs;
    c->programs = p;
    trim(c);
    *program_out = p;
    return RING_OK;
}

static ring_status_t take_run(struct ring_comm *c, struct ri_program *p, struct ri_spare **run_out)
{
    struct ri_spare *s = p->spare;
    if (s) {
        p->spare = s->next;
        *run_out = s;
        return RING_OK;
    }
    if (!(s = ri_new(1, sizeof *s)))
        return ri_fail(RING_ERR_NOMEM, "no memory for an operation");
    const ring_status_t status = ri_run_new(c->wires.engine, &p->sched, &s->run);
    if (status)
        ri_free(s);
    else
        *run_out = s;
    return status;
}

ring_status_t ri_program_get(struct ring_comm *c, const struct ri_call *call, struct ri_program **program_out,
                             struct ri_spare **run_out)
{
    const uint32_t esize = (uint32_t)ring_dtype_size(call->dtype);
    struct ri_program *p = find(c, call, esize);
    ring_status_t status = p ? RING_OK : make(c, call, esize, &p);
    if (!status)
        status = take_run(c, p, run_out);
    if (!status) {
        p->in_use++;
        *program_out = p;
    }
    return status;
}

void ri_program_put(struct ri_program *p, struct ri_spare *run)
{
    run->next = p->spare;
    p->spare = run;
    p->in_use--;
}

void ri_program_close(struct ring_comm *c)
{
    while (c->programs) {
        struct ri_program *p = c->programs;
        c->programs = p->next;
        drop(p);
    }
}
