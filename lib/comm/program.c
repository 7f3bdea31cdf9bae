/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - programs are built once per shape and kept, together with the runs made for them, so that a repeated call
 * allocates nothing.  The most recently used come first; old ones without a run under way are dropped. */
#include "lib/comm/comm.h"

#include <string.h>

#include "lib/base/mem.h"

enum { KEEP_PROGRAMS = 64, KEEP_STEPS = 200000 };

const struct ri_algorithm *ri_program_choose(const struct ring_comm *c, ring_coll_t coll, size_t count, uint32_t esize,
                                             struct ri_coll_args *args_out)
{
    *args_out = (struct ri_coll_args){.rank = c->rank,
                                      .size = c->size,
                                      .count = count,
                                      .esize = esize,
                                      .seg = ri_segment_for(count * esize, c->size, esize, c->conf.segment)};
    const char *forced = ri_conf_is_auto(c->conf.algo) ? NULL : c->conf.algo;
    return ri_algorithm_choose(coll, args_out, &c->wires.model, forced);
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

static struct ri_program *find(struct ring_comm *c, size_t count, uint32_t esize)
{
    for (struct ri_program **at = &c->programs; *at; at = &(*at)->next) {
        struct ri_program *p = *at;
        if (p->count != count || p->esize != esize)
            continue;
        *at = p->next;
        p->next = c->programs;
        c->programs = p;
        return p;
    }
    return NULL;
}

static ring_status_t make(struct ring_comm *c, ring_coll_t coll, size_t count, uint32_t esize,
                          struct ri_program **program_out)
{
    struct ri_coll_args args;
    struct ri_program *p = ri_new(1, sizeof *p);
    if (!p)
        return ri_fail(RING_ERR_NOMEM, "no memory for a program");
    p->algorithm = ri_program_choose(c, coll, count, esize, &args);
    p->count = count;
    p->esize = esize;
    const ring_status_t status = p->algorithm->build(&p->sched, &args);
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
    struct ri_program *p = find(c, call->count, esize);
    ring_status_t status = p ? RING_OK : make(c, call->coll, call->count, esize, &p);
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
