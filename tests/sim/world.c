/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - ranks of one process: see world.h.  Everything asserts; nothing returns errors. */
#include "tests/sim/world.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "perf/ring_perf/number.h"

enum { QUIET_TURNS = 3000 }; /* per rank without any movement: delays end much sooner */

uint64_t world_seed(void)
{
    const char *text = getenv("SIM_SEED");
    return text ? strtoull(text, NULL, 10) : 20260101;
}

uint64_t world_chance(struct world *w, uint64_t below)
{
    uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static uint32_t link_of(const void *arg, uint32_t peer)
{
    (void)arg;
    return peer;
}

static void on_mismatch(void *owner, uint32_t peer, const struct ri_signature *mine, const struct ri_signature *theirs)
{
    struct member *m = owner;
    m->mismatches++;
    m->mismatch_peer = peer;
    cr_assert(memcmp(mine, theirs, sizeof *mine));
}

static void connect_all(struct world *w, struct member *m)
{
    for (uint32_t peer = 0; peer < w->size; peer++) {
        if (peer == m->rank)
            continue;
        struct ri_link *l = ri_new(1, ri_transport_loop.link_size);
        *l = (struct ri_link){.ctx = m->ctx,
                              .self = {.rank = m->rank, .name = "self"},
                              .peer = {.rank = peer, .name = "peer"},
                              .initiator = m->rank < peer};
        m->link[peer] = l;
        struct loop_knobs knobs = w->knobs;
        if (!knobs.capacity && !knobs.calm) /* down to where every message waits for its receiver */
            knobs.capacity = 16u << world_chance(w, 13);
        loop_set_knobs(&knobs);
        cr_assert_eq(ri_transport_loop.connect(l, NULL, 0), RING_OK);
    }
}

void world_open(struct world *w, uint32_t size, uint64_t seed)
{
    *w = (struct world){.size = size, .seed = seed, .random = seed, .knobs = w->knobs};
    for (uint32_t r = 0; r < size; r++) {
        struct member *m = &w->member[r];
        m->world = w;
        m->rank = r;
        ri_conf_defaults(&m->conf);
        m->conf.loop_seed = seed * 31 + r;
        m->ctx = ri_new(1, ri_transport_loop.ctx_size);
        m->ctx->transport = &ri_transport_loop;
        m->ctx->conf = &m->conf;
        cr_assert_eq(ri_transport_loop.open(m->ctx), RING_OK);
        connect_all(w, m);
        const struct ri_engine_setup setup = {
            .rank = r, .links = size, .link = m->link, .link_of = link_of, .mismatch = on_mismatch, .owner = m};
        cr_assert_eq(ri_engine_open(&setup, &m->engine), RING_OK);
    }
}

void world_cut_links(struct world *w)
{
    for (uint32_t r = 0; r < w->size; r++)
        for (uint32_t peer = 0; peer < w->size; peer++) {
            struct ri_link *l = w->member[r].link[peer];
            if (l)
                ri_transport_loop.disconnect(l);
            ri_free(l);
            w->member[r].link[peer] = NULL;
        }
}

void world_close(struct world *w)
{
    world_cut_links(w);
    for (uint32_t r = 0; r < w->size; r++) {
        ri_engine_close(w->member[r].engine);
        ri_transport_loop.close(w->member[r].ctx);
        ri_free(w->member[r].ctx);
    }
}

unsigned world_turn(struct world *w)
{
    struct member *m = &w->member[world_chance(w, w->size)];
    struct ri_queue done = {0};
    const unsigned moved = ri_transport_loop.progress(m->ctx, &done);
    return moved + ri_engine_progress(m->engine, &done);
}

/* ---- jobs ------------------------------------------------------------------------------------------------------ */

static void put_number(unsigned char *at, ring_dtype_t dtype, unsigned small)
{
    memset(at, 0, ri_dtype_size(dtype));
    if (ri_dtype_is_float(dtype))
        number_put(dtype, at, small);
    else
        *at = (unsigned char)small; /* little-endian */
}

static void put_random(struct world *w, unsigned char *at, ring_dtype_t dtype)
{
    const uint64_t bits = world_chance(w, UINT64_MAX);
    const double d = ((double)(bits >> 11) / 4503599627370496.0 - 1.0) * (double)(1 + bits % 1000);
    if (ri_dtype_is_float(dtype))
        number_put(dtype, at, d);
    else
        memcpy(at, &bits, ri_dtype_size(dtype));
}

/* Floats of 8 bits have but 3 for the number: at most 6 of 17 ranks add something, so that any order is exact. */
static double small_number(struct world *w, const struct job *job, size_t place)
{
    const bool adds = job->redop == RING_SUM || job->redop == RING_AVG;
    return adds && place % 3 ? 0 : world_chance(w, 2) ? 1 : -1;
}

static void fill(struct world *w, const struct job *job, uint32_t rank, unsigned char *src)
{
    const size_t esize = ri_dtype_size(job->dtype);
    const unsigned range = job->redop == RING_PROD ? 2 : 7; /* 2 to the 17th fits in a float */
    for (size_t i = 0; i < job->count; i++) {
        if (number_is_small(job->dtype))
            number_put(job->dtype, src + i * esize, small_number(w, job, i + rank));
        else if (job->exact)
            put_number(src + i * esize, job->dtype, 1 + (unsigned)world_chance(w, range));
        else
            put_random(w, src + i * esize, job->dtype);
    }
}

static unsigned char *new_block(size_t bytes)
{
    unsigned char *block = malloc(bytes + 2 * GUARD);
    cr_assert_not_null(block);
    memset(block, 0xa5, bytes + 2 * GUARD);
    return block;
}

static void prepare_part(struct world *w, struct job *job, uint32_t rank)
{
    struct part *p = &job->part[rank];
    const size_t esize = ri_dtype_size(job->dtype);
    const struct ri_coll_args args = {.rank = rank,
                                      .size = w->size,
                                      .count = job->count,
                                      .esize = (uint32_t)esize,
                                      .seg = job->seg,
                                      .layout = job->layout};
    *p = (struct part){.bytes = job->count * esize};
    cr_assert_eq(job->algorithm->build(&p->program, &args), RING_OK);
    cr_assert_eq(ri_run_new(w->member[rank].engine, &p->program, &p->run), RING_OK);
    p->src_block = new_block(p->bytes);
    p->dst_block = job->in_place ? p->src_block : new_block(p->bytes);
    p->src = p->src_block + GUARD;
    p->dst = p->dst_block + GUARD;
    p->given = new_block(p->bytes);
    fill(w, job, rank, p->given + GUARD);
    memcpy(p->src, p->given + GUARD, p->bytes);
    p->signature = (struct ri_signature){.magic = RI_SIGNATURE_MAGIC,
                                         .seq = job->seq,
                                         .coll = RING_ALL_REDUCE,
                                         .dtype = (uint8_t)job->dtype,
                                         .redop = (uint8_t)job->redop,
                                         .count = job->count};
}

void job_prepare(struct world *w, struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++)
        prepare_part(w, job, r);
}

void job_start_on(struct world *w, struct job *job, uint32_t rank)
{
    struct part *p = &job->part[rank];
    const struct ri_reduction reduction = ri_reduction_for(job->dtype, job->redop);
    (void)w;
    ri_run_start(p->run, p->src, p->dst, &reduction, &p->signature);
}

void job_start(struct world *w, struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++)
        job_start_on(w, job, r);
}

bool job_done(const struct world *w, const struct job *job)
{
    bool all = true, done;
    for (uint32_t r = 0; r < w->size && all; r++)
        all = ri_run_state(job->part[r].run, &done) != RING_OK || done;
    return all;
}

bool world_settle(struct world *w, struct job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint64_t quiet = 0; !job_done(w, &jobs[i]); quiet++) {
            if (world_turn(w))
                quiet = 0;
            if (quiet > (uint64_t)QUIET_TURNS * w->size)
                return false;
        }
    return true;
}

/* What one rank after another gives. */
static unsigned char *expected(const struct world *w, const struct job *job)
{
    const struct ri_reduction reduction = ri_reduction_from(0, job->dtype, job->redop);
    unsigned char *sum = new_block(job->part[0].bytes);
    memcpy(sum, job->part[0].given + GUARD, job->part[0].bytes);
    for (uint32_t r = 1; r < w->size; r++)
        reduction.reduce(&reduction, sum, sum, job->part[r].given + GUARD, job->count);
    if (reduction.divide)
        reduction.divide(sum, job->count, w->size);
    return sum;
}

/* Sums of numbers of both signs may nearly vanish, so the error is measured against the largest operands. */
static bool near(const struct job *job, const unsigned char *one, const unsigned char *other)
{
    const size_t esize = ri_dtype_size(job->dtype);
    for (size_t i = 0; i < job->count; i++) {
        const double x = number_get(job->dtype, one + i * esize), y = number_get(job->dtype, other + i * esize);
        const double size = job->redop == RING_PROD ? fabs(x) + 1e-300 : 17 * 1000.0;
        if (fabs(x - y) > size * (job->dtype == RING_FLOAT ? 1e-5 : 1e-13))
            return false;
    }
    return true;
}

#define ABOUT "%s, %u ranks, %zu %s, %s, segments of %zu, %s, rank %u, SIM_SEED=%llu"
#define ABOUT_ARGS(w, job, r)                                                                           \
    (job)->algorithm->name, (unsigned)(w)->size, (job)->count, ri_dtype_name((job)->dtype),             \
        ri_redop_name((job)->redop), (job)->seg, (job)->in_place ? "in place" : "apart", (unsigned)(r), \
        (unsigned long long)(w)->seed

static bool guarded(const unsigned char *block, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        if (block[i] != 0xa5 || block[GUARD + bytes + i] != 0xa5)
            return false;
    return true;
}

void job_check_guards(const struct world *w, const struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++) {
        const struct part *p = &job->part[r];
        cr_assert(guarded(p->src_block, p->bytes) && guarded(p->dst_block, p->bytes), "outside the buffers: " ABOUT,
                  ABOUT_ARGS(w, job, r));
        if (!job->in_place)
            cr_assert(!p->bytes || !memcmp(p->src, p->given + GUARD, p->bytes), "src changed: " ABOUT,
                      ABOUT_ARGS(w, job, r));
    }
}

void job_check(const struct world *w, const struct job *job)
{
    unsigned char *want = expected(w, job);
    const bool floats = job->dtype == RING_FLOAT || job->dtype == RING_DOUBLE;
    for (uint32_t r = 0; r < w->size; r++) {
        const struct part *p = &job->part[r];
        bool done;
        cr_assert_eq(ri_run_state(p->run, &done), RING_OK, ABOUT, ABOUT_ARGS(w, job, r));
        cr_assert(done, "not done: " ABOUT, ABOUT_ARGS(w, job, r));
        if (!p->bytes)
            continue;
        cr_assert(!memcmp(p->dst, job->part[0].dst, p->bytes), "ranks differ: " ABOUT, ABOUT_ARGS(w, job, r));
        const bool right = floats && !job->exact ? near(job, p->dst, want) : !memcmp(p->dst, want, p->bytes);
        cr_assert(right, "wrong: " ABOUT, ABOUT_ARGS(w, job, r));
    }
    job_check_guards(w, job);
    free(want);
}

void job_end(struct world *w, struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++) {
        struct part *p = &job->part[r];
        ri_run_free(p->run);
        ri_sched_free(&p->program);
        free(p->src_block);
        if (!job->in_place)
            free(p->dst_block);
        free(p->given);
    }
}
