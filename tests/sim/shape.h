/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h - a call of any collective as all ranks make it together: who has how many elements for whom, and where. */
#ifndef SIM_SHAPE_H
#define SIM_SHAPE_H

#include "lib/coll/coll.h"

enum { SHAPE_MAX = 17 };

/* A layout and what it points to. */
struct sim_layout {
    struct ri_layout layout;
    uint32_t node_of[SHAPE_MAX], order[SHAPE_MAX], first[SHAPE_MAX + 1];
};

struct shape {
    ring_coll_t coll; /* RING_SEND: the rank behind the root sends to the root */
    uint32_t size, root;
    size_t count; /* of a block when all are equal */
    bool variable, in_place;
    const struct ri_layout *layout;
    /* Filled in by shape_make(). */
    size_t sends[SHAPE_MAX][SHAPE_MAX], sdispls[SHAPE_MAX][SHAPE_MAX];    /* by rank, and to whom    */
    size_t receives[SHAPE_MAX][SHAPE_MAX], rdispls[SHAPE_MAX][SHAPE_MAX]; /* by rank, and from whom */
};

uint64_t sim_chance(uint64_t *random, uint64_t below);

/* Up to `nodes` hosts with ranks spread by chance. */
void sim_lay_out(struct sim_layout *l, uint32_t size, uint32_t nodes, uint64_t *random);

/* Fills in the arrays: equal blocks without gaps, or when variable blocks of any length (also none) up to count, in any
 * order, with gaps. */
void shape_make(struct shape *sh, uint64_t *random);

bool shape_has_blocks(ring_coll_t coll);
bool shape_reduces(ring_coll_t coll);
bool shape_in_place_allowed(ring_coll_t coll);

struct ri_coll_args shape_args(const struct shape *sh, uint32_t rank, ring_dtype_t dtype, size_t seg);

/* The algorithm that this rank takes part with; NULL: it has none (send and recv). */
const struct ri_algorithm *shape_algorithm(const struct shape *sh, const struct ri_algorithm *a, uint32_t rank);

/* Elements from the begin of SRC, or DST, to the end of the last block; 0 where a rank has no such buffer. */
size_t shape_src(const struct shape *sh, uint32_t rank);
size_t shape_dst(const struct shape *sh, uint32_t rank);

/* Where SRC begins in DST, in elements; false: it is another buffer. */
bool shape_place(const struct shape *sh, uint32_t rank, int64_t *src_at_out);

/* What `rank` gets from `from`, or reduces of it: where it is in SRC there, and where it ends up here; equally long. */
void shape_flow(const struct shape *sh, uint32_t rank, uint32_t from, struct ri_cut *src_out, struct ri_cut *dst_out);

#endif
