/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - all ranks of a communicator in one process and one thread, over the loop transport.
 *
 * What a real communicator does around the engine (links, buffers, signatures) is here as little as possible.  The
 * order in which ranks get their turn comes from the seed, so that a failure can be had again. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "lib/coll/coll.h"
#include "lib/sched/engine.h"
#include "transports/loop/loop.h"

enum { WORLD_MAX = 17, GUARD = 64 };

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

/* One rank's part of one collective. */
struct part {
    struct ri_sched program;
    struct ri_run *run;
    unsigned char *src_block, *dst_block; /* with guards; the same block when in place */
    unsigned char *src, *dst, *given;     /* given: a copy of what src was            */
    size_t bytes;
    struct ri_signature signature;
};

struct job {
    const struct ri_algorithm *algorithm;
    size_t count, seg;
    ring_dtype_t dtype;
    ring_redop_t redop;
    bool in_place, exact; /* exact: small whole numbers, so that any order gives the same float result */
    uint32_t seq;
    const struct ri_layout *layout;
    struct part part[WORLD_MAX];
};

uint64_t world_seed(void); /* of this run of the tests: SIM_SEED, or a constant */
uint64_t world_chance(struct world *w, uint64_t below);

void world_open(struct world *w, uint32_t size, uint64_t seed);
void world_close(
    struct world *w); /* the links go first, so that jobs that failed can be ended after it: see job_end() */

/* One turn of one rank, chosen by chance; > 0 when something moved. */
unsigned world_turn(struct world *w);

void job_prepare(struct world *w, struct job *job); /* programs, runs, buffers, random input     */
void job_start(struct world *w, struct job *job);   /* on all ranks                               */
void job_start_on(struct world *w, struct job *job, uint32_t rank);
bool job_done(const struct world *w, const struct job *job);    /* on all ranks, well or not */
bool world_settle(struct world *w, struct job *jobs, size_t n); /* turns until all are done; false: nothing moves */
void job_check(const struct world *w, const struct job *job);   /* results, guards, inputs; asserts */
void job_check_guards(const struct world *w, const struct job *job);
void job_end(struct world *w, struct job *job);
void world_cut_links(struct world *w); /* before job_end() of jobs that failed */

#endif
