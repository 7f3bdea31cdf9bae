/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - one call of a collective on all ranks of a world, and what it must have done: see world.h.
 *
 * One oracle for all collectives: the memory of each rank as it was, with what shape_flow() says written over it, byte
 * for byte.  So whatever else was written, in gaps, in SRC or around the buffers, is found too. */
#include "tests/sim/world.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/ring_perf/number.h"

#define ABOUT "%s %s, %u ranks, root %u, %zu%s %s, %s, segments of %zu, %s, rank %u, SIM_SEED=%llu"
#define ABOUT_ARGS(w, job, r)                                                                                      \
    ring_coll_str((job)->algorithm->coll), (job)->algorithm->name, (unsigned)(w)->size, (unsigned)(job)->root,     \
        (job)->count, (job)->variable ? " at most" : "", ri_dtype_name((job)->dtype), ri_redop_name((job)->redop), \
        (job)->seg, (job)->in_place ? "in place" : "apart", (unsigned)(r), (unsigned long long)(w)->seed

static size_t esize_of(const struct job *job) { return ri_dtype_size(job->dtype); }

/* ---- before ---------------------------------------------------------------------------------------------------- */

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
    if (ri_dtype_is_float(dtype)) /* below 448, where the shortest ones end: a NaN that is only copied keeps its sign */
        number_put(dtype, at, number_is_small(dtype) ? d / 8 : d);
    else
        memcpy(at, &bits, ri_dtype_size(dtype));
}

/* Floats of 8 bits have but 3 for the number: at most 6 of 17 ranks add something, so that any order is exact. */
static double small_number(struct world *w, const struct job *job, size_t place)
{
    const bool adds = job->redop == RING_SUM || job->redop == RING_AVG;
    return adds && place % 3 ? 0 : world_chance(w, 2) ? 1 : -1;
}

/* The place in its block of element i of SRC, so that all ranks count alike where they reduce. */
static size_t place_of(const struct shape *sh, uint32_t rank, size_t i)
{
    for (uint32_t r = 0; r < sh->size && sh->coll == RING_REDUCE_SCATTER; r++)
        if (i >= sh->sdispls[rank][r] && i - sh->sdispls[rank][r] < sh->sends[rank][r])
            return i - sh->sdispls[rank][r];
    return i;
}

static void fill(struct world *w, const struct job *job, uint32_t rank, unsigned char *src, size_t count)
{
    const unsigned range = job->redop == RING_PROD ? 2 : 7; /* 2 to the 17th fits in a float */
    const bool one_rounding = job->algorithm->ordered && !job->exact;
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = src + i * esize_of(job);
        if (number_is_small(job->dtype) && !one_rounding)
            number_put(job->dtype, at, small_number(w, job, place_of(&job->shape, rank, i) + rank));
        else if (job->exact)
            put_number(at, job->dtype, 1 + (unsigned)world_chance(w, range));
        else
            put_random(w, at, job->dtype);
    }
}

static unsigned char *new_memory(struct memory *m, size_t bytes)
{
    m->bytes = bytes + 2 * GUARD;
    m->now = malloc(m->bytes);
    m->before = malloc(m->bytes);
    cr_assert(m->now && m->before);
    memset(m->now, 0xa5, m->bytes);
    return m->now + GUARD;
}

static void make_buffers(struct world *w, struct job *job, struct part *p, uint32_t rank)
{
    const size_t esize = esize_of(job), src = shape_src(&job->shape, rank), dst = shape_dst(&job->shape, rank);
    int64_t at;
    const bool in_place = shape_place(&job->shape, rank, &at);
    p->bytes = dst * esize;
    p->dst = new_memory(&p->memory[1], (in_place && src > dst ? src : dst) * esize);
    p->src = p->dst;
    if (!in_place)
        p->src = new_memory(&p->memory[0], src * esize);
    else if (at < 0)
        p->dst += (size_t)-at * esize;
    else
        p->src += (size_t)at * esize;
    fill(w, job, rank, p->src, src);
    for (int i = 0; i < 2; i++)
        if (p->memory[i].bytes)
            memcpy(p->memory[i].before, p->memory[i].now, p->memory[i].bytes);
    const struct memory *m = &p->memory[in_place];
    p->given = m->before + (p->src - m->now) - GUARD;
}

struct job job_random(struct world *w, const struct ri_algorithm *a, size_t count, struct sim_layout *layout_out)
{
    struct job job = {.algorithm = a, .count = count, .root = (uint32_t)world_chance(w, w->size)};
    job.dtype = (ring_dtype_t)world_chance(w, RI_DTYPES);
    job.redop = (ring_redop_t)world_chance(w, RI_REDOPS);
    if (!ri_redop_fits(job.dtype, job.redop))
        job.redop = RING_SUM;
    job.exact = world_chance(w, 2);
    job.in_place = shape_in_place_allowed(a->coll) && world_chance(w, 2);
    const size_t segs[] = {1, 5, 16, 100000};
    job.seg = segs[world_chance(w, 4)] * esize_of(&job);
    job.seq = (uint32_t)world_chance(w, 1000);
    if (world_chance(w, 2)) {
        sim_lay_out(layout_out, w->size, 1 + (uint32_t)world_chance(w, w->size), &w->random);
        job.layout = &layout_out->layout;
    }
    return job;
}

static void make_shape(struct world *w, struct job *job)
{
    job->shape = (struct shape){.coll = job->algorithm->coll,
                                .size = w->size,
                                .root = job->root,
                                .count = job->algorithm->coll == RING_BARRIER ? 0 : job->count,
                                .variable = job->variable,
                                .in_place = job->in_place,
                                .layout = job->layout};
    shape_make(&job->shape, &w->random);
}

bool job_fits(struct world *w, struct job *job)
{
    bool fits = true;
    make_shape(w, job);
    for (uint32_t r = 0; r < w->size; r++) {
        const struct ri_coll_args args = shape_args(&job->shape, r, job->dtype, job->seg);
        const struct ri_algorithm *a = shape_algorithm(&job->shape, job->algorithm, r);
        fits &= !a || a->fits(&args);
    }
    return fits;
}

static void prepare_part(struct world *w, struct job *job, uint32_t rank)
{
    struct part *p = &job->part[rank];
    const struct ri_coll_args args = shape_args(&job->shape, rank, job->dtype, job->seg);
    const struct ri_algorithm *a = shape_algorithm(&job->shape, job->algorithm, rank);
    *p = (struct part){.signature = {.magic = RI_SIGNATURE_MAGIC,
                                     .seq = job->seq,
                                     .coll = (uint8_t)job->algorithm->coll,
                                     .dtype = (uint8_t)job->dtype,
                                     .redop = (uint8_t)job->redop,
                                     .root = job->root,
                                     .count = job->count}};
    cr_assert_eq(a ? a->build(&p->program, &args) : ri_sched_done(&p->program), RING_OK);
    cr_assert_eq(ri_run_new(w->member[rank].engine, &p->program, &p->run), RING_OK);
    make_buffers(w, job, p, rank);
}

void job_prepare(struct world *w, struct job *job)
{
    make_shape(w, job);
    for (uint32_t r = 0; r < w->size; r++)
        prepare_part(w, job, r);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

void job_refill(const struct world *w, struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++)
        for (int i = 0; i < 2; i++) {
            struct memory *m = &job->part[r].memory[i];
            if (m->bytes)
                memcpy(m->now, m->before, m->bytes);
        }
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

/* ---- after ----------------------------------------------------------------------------------------------------- */

/* The operands of `rank` in order, combined with one rounding. */
static void reduced(const struct world *w, const struct job *job, uint32_t rank, unsigned char *to)
{
    const struct ri_reduction reduction = ri_reduction_from(0, job->dtype, job->redop);
    const void *from[WORLD_MAX];
    void *out = to;
    struct ri_cut src, dst = {0, 0};
    for (uint32_t r = 0; r < w->size; r++) {
        shape_flow(&job->shape, rank, r, &src, &dst);
        from[r] = job->part[r].given + GUARD + src.begin * esize_of(job);
    }
    const struct ri_combine all = {.from = from,
                                   .to = &out,
                                   .n = w->size,
                                   .outs = 1,
                                   .count = dst.count,
                                   .divisor = reduction.divide ? w->size : 0};
    if (dst.count)
        reduction.combine(&reduction, &all);
}

static void moved(const struct world *w, const struct job *job, uint32_t rank, unsigned char *to)
{
    for (uint32_t r = 0; r < w->size; r++) {
        struct ri_cut src, dst;
        shape_flow(&job->shape, rank, r, &src, &dst);
        if (src.count)
            memcpy(to + dst.begin * esize_of(job), job->part[r].given + GUARD + src.begin * esize_of(job),
                   src.count * esize_of(job));
    }
}

/* DST's memory as it must be. */
static unsigned char *expected(const struct world *w, const struct job *job, uint32_t rank)
{
    const struct part *p = &job->part[rank];
    const struct memory *m = &p->memory[1];
    unsigned char *image = malloc(m->bytes);
    cr_assert_not_null(image);
    memcpy(image, m->before, m->bytes);
    if (shape_reduces(job->shape.coll))
        reduced(w, job, rank, image + (p->dst - m->now));
    else
        moved(w, job, rank, image + (p->dst - m->now));
    return image;
}

/* Sums of numbers of both signs may nearly vanish, so the error is measured against the largest operands. */
static bool near(const struct job *job, const unsigned char *one, const unsigned char *other, size_t count)
{
    const size_t esize = esize_of(job);
    for (size_t i = 0; i < count; i++) {
        const double x = number_get(job->dtype, one + i * esize), y = number_get(job->dtype, other + i * esize);
        const double size = job->redop == RING_PROD ? fabs(x) + 1e-300 : 17 * 1000.0;
        if (fabs(x - y) > size * (job->dtype == RING_FLOAT ? 1e-5 : 1e-13))
            return false;
    }
    return true;
}

static void check_rank(const struct world *w, const struct job *job, uint32_t r)
{
    const struct part *p = &job->part[r];
    const struct memory *m = &p->memory[1];
    const size_t at = (size_t)(p->dst - m->now);
    const bool rounds = shape_reduces(job->shape.coll) && !job->exact && !job->algorithm->ordered;
    unsigned char *want = expected(w, job, r);
    bool done;
    cr_assert_eq(ri_run_state(p->run, &done), RING_OK, ABOUT, ABOUT_ARGS(w, job, r));
    cr_assert(done, "not done: " ABOUT, ABOUT_ARGS(w, job, r));
    if (rounds && (job->dtype == RING_FLOAT || job->dtype == RING_DOUBLE)) {
        cr_assert(near(job, p->dst, want + at, shape_dst(&job->shape, r)), "wrong: " ABOUT, ABOUT_ARGS(w, job, r));
        memcpy(want + at, p->dst, p->bytes);
    }
    cr_assert(!memcmp(m->now, want, m->bytes), "wrong: " ABOUT, ABOUT_ARGS(w, job, r));
    if (job->shape.coll == RING_ALL_REDUCE)
        cr_assert(!memcmp(p->dst, job->part[0].dst, p->bytes), "ranks differ: " ABOUT, ABOUT_ARGS(w, job, r));
    free(want);
}

void job_check_guards(const struct world *w, const struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++) {
        const struct part *p = &job->part[r];
        const struct memory *src = &p->memory[0], *dst = &p->memory[1];
        const size_t at = (size_t)(p->dst - dst->now), end = at + p->bytes;
        cr_assert(!src->bytes || !memcmp(src->now, src->before, src->bytes), "src changed: " ABOUT,
                  ABOUT_ARGS(w, job, r));
        cr_assert(!memcmp(dst->now, dst->before, at) && !memcmp(dst->now + end, dst->before + end, dst->bytes - end),
                  "outside of dst: " ABOUT, ABOUT_ARGS(w, job, r));
    }
}

void job_check(const struct world *w, const struct job *job)
{
    job_check_guards(w, job);
    for (uint32_t r = 0; r < w->size; r++)
        check_rank(w, job, r);
}

void job_end(struct world *w, struct job *job)
{
    for (uint32_t r = 0; r < w->size; r++) {
        struct part *p = &job->part[r];
        ri_run_free(p->run);
        ri_sched_free(&p->program);
        for (int i = 0; i < 2; i++) {
            free(p->memory[i].now);
            free(p->memory[i].before);
        }
    }
}

void job_run(struct world *w, struct job *job)
{
    job_prepare(w, job);
    job_start(w, job);
    const bool settled = world_settle(w, job, 1);
    for (uint32_t r = 0; r < w->size && !settled; r++) {
        char text[128];
        ri_run_describe(job->part[r].run, text, sizeof text);
        fprintf(stderr, "rank %u waits for %s\n", (unsigned)r, text);
    }
    cr_assert(settled, "stands still: " ABOUT, ABOUT_ARGS(w, job, 0));
    job_check(w, job);
    job_end(w, job);
}
