/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - all ranks of a communicator in one process and one thread, over the loop transport, and jobs: one call of a
 * collective on all of them.
 *
 * What a real communicator does around the engine (links, buffers, signatures) is here as little as possible.  The
 * order in which ranks get their turn comes from the seed, so that a failure can be had again. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "lib/sched/engine.h"
#include "tests/sim/shape.h"
#include "transports/loop/loop.h"

enum { WORLD_MAX = SHAPE_MAX, GUARD = 64 };

struct member {
    struct world *world;
    uint32_t rank;
    struct ri_conf conf;
    struct ri_tctx *ctx;
    struct ri_link *link[WORLD_MAX];
    struct ri_engine *engine;
    unsigned mismatches;
    uint32_t mismatch_peer;
};

struct world {
    uint32_t size;
    uint64_t seed, random;
    struct loop_knobs knobs; /* kept by world_open(): what its links are to be like */
    struct member member[WORLD_MAX];
};

/* Memory with guards around it, and a copy of what it was at first. */
struct memory {
    unsigned char *now, *before;
    size_t bytes; /* with the guards */
};

/* One rank's part of one collective. */
struct part {
    struct ri_sched program;
    struct ri_run *run;
    struct memory memory[2]; /* of SRC and of DST; in place all is in the second */
    unsigned char *src, *dst;
    const unsigned char *given; /* what src was at first, GUARD bytes behind the begin */
    size_t bytes;               /* of dst */
    struct ri_signature signature;
};

struct job {
    const struct ri_algorithm *algorithm;
    size_t count, seg; /* count: elements, of the longest block where there are blocks */
    ring_dtype_t dtype;
    ring_redop_t redop;
    uint32_t root;
    bool in_place, variable;
    bool exact; /* small whole numbers, so that any order gives the same float result */
    const struct ri_layout *layout;
    uint32_t seq;
    struct shape shape;
    struct part part[WORLD_MAX];
};

uint64_t world_seed(void); /* of this run of the tests: SIM_SEED, or a constant */
uint64_t world_chance(struct world *w, uint64_t below);

void world_open(struct world *w, uint32_t size, uint64_t seed);
void world_close(
    struct world *w); /* the links go first, so that jobs that failed can be ended after it: see job_end() */

/* One turn of one rank, chosen by chance; > 0 when something moved. */
unsigned world_turn(struct world *w);

/* What a call can ask for at random: root, type, operation, layout, segments.  layout_out is where the layout lies. */
struct job job_random(struct world *w, const struct ri_algorithm *a, size_t count, struct sim_layout *layout_out);

bool job_fits(struct world *w, struct job *job);         /* the algorithm works for this call         */
void job_prepare(struct world *w, struct job *job);      /* programs, runs, buffers, random input     */
void job_refill(const struct world *w, struct job *job); /* as at first, to start it again       */
void job_start(struct world *w, struct job *job);        /* on all ranks                               */
void job_start_on(struct world *w, struct job *job, uint32_t rank);
bool job_done(const struct world *w, const struct job *job);    /* on all ranks, well or not */
bool world_settle(struct world *w, struct job *jobs, size_t n); /* turns until all are done; false: nothing moves */
void job_check(const struct world *w, const struct job *job);   /* results and all else; asserts */
void job_check_guards(const struct world *w, const struct job *job); /* nothing but DST has changed; asserts */
void job_end(struct world *w, struct job *job);
void job_run(struct world *w, struct job *job); /* all of it */
void world_cut_links(struct world *w);          /* before job_end() of jobs that failed */

#endif
