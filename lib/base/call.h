/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call of a collective as all layers know it: what include/ring/ring.h says of its arguments, in one struct.
 *
 * coll is always one of the regular collectives: the variable-count forms are the same with the arrays filled in
 * (ri_coll_regular()).  Arrays have an entry per rank and count elements; they come in pairs, counts and where the blocks
 * begin, and stay valid until the operation is complete.
 *
 *     collective       src holds                               dst holds                         count
 *     all_reduce       count                                   count
 *     reduce           count                                   count, on root
 *     broadcast        count, on root                          count
 *     reduce_scatter   size blocks (scounts, sdispls)          its own block                     of a block; arrays: unused
 *     all_gather       its own block                           size blocks (rcounts, rdispls)    of a block; arrays: unused
 *     all_to_all       size blocks (scounts, sdispls)          size blocks (rcounts, rdispls)    of a block; arrays: unused
 *     gather           its own block of count                  root: size blocks (rcounts, ...)  of the own block
 *     scatter          root: size blocks (scounts, sdispls)    its own block of count            of the own block
 *     send, recv       count, or nothing                       nothing, or count                 root is the peer */
#ifndef RI_CALL_H
#define RI_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

struct ri_call {
    ring_coll_t coll;
    ring_dtype_t dtype;
    ring_redop_t redop;
    uint32_t root; /* or the peer; 0 where there is none */
    const void *src;
    void *dst;
    size_t count;                      /* elements */
    bool variable;                     /* called as a variable-count form: the same on all ranks, with arrays or not */
    const size_t *scounts, *sdispls;   /* NULL: every block is count long, one after the other */
    const size_t *rcounts, *rdispls;
};

/* Where a block lies, in elements. */
struct ri_cut {
    size_t begin, count;
};
static inline struct ri_cut ri_block_of(const size_t *counts, const size_t *displs, size_t each, uint32_t rank)
{
    return counts ? (struct ri_cut){displs[rank], counts[rank]} : (struct ri_cut){rank * each, each};
}

#endif
