/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.h - what a caller gave, checked and brought into the one form that all layers know. */
#ifndef RI_ARGUMENTS_H
#define RI_ARGUMENTS_H

#include "lib/base/call.h"

struct ring_comm;

/* size_t's that ri_arguments_check() may need to put arrays into: none for regular collectives. */
size_t ri_arguments_room(const struct ring_comm *c, ring_coll_t coll);

/* RING_ERR_INVALID with a sentence, or *call_out: coll is a regular one, arrays that count on this rank are copies in
 * `room` with displacements filled in, and what does not count is zero.  src and dst are alike only in place. */
ring_status_t ri_arguments_check(struct ring_comm *c, const ring_call_t *given, size_t *room,
                                 struct ri_call *call_out);
/* The same for a call that differs from the last one of its collective in src and dst only; NULL: ask the other.  The
 * result is the communicator's, and good until the next call. */
const struct ri_call *ri_arguments_again(struct ring_comm *c, const ring_call_t *given);
/* The same for one with arrays of the same content as the last one that was checked with c->room. */
const struct ri_call *ri_arguments_again_arrays(struct ring_comm *c, const ring_call_t *given);

/* Bytes of src and dst from where they begin to the end of what is used, on this rank. */
struct ri_extent {
    size_t src, dst;
};
struct ri_extent ri_arguments_extent(const struct ring_comm *c, const struct ri_call *call);

bool ri_arguments_reduces(ring_coll_t coll); /* a regular one */
ring_coll_t ri_arguments_called(const struct ri_call *call); /* the form that the caller used */

#endif
