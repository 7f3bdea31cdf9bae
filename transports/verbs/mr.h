/* SPDX-License-Identifier: Apache-2.0 */
/* mr.h - memory of the caller's as devices know it.
 *
 * What the caller has registered, or had from the library (struct ri_memory), is registered with a device when it is
 * first used there, whole, and stays so until it is gone: every region has a number that no other ever has, so one that
 * has come to the same address is another one.  Nothing hooks into malloc: other memory is copied.  A region that a
 * device refuses is copied too, and is not tried again.  How memory of a GPU is registered, gpu.h says.
 *
 * Cost: a look at a number and two comparisons when the region is the last one; else a search by halves.  Memory: a
 * table per context.  Threads: those of the context. */
#ifndef RI_VERBS_MR_H
#define RI_VERBS_MR_H

#include "transports/transport.h"
#include "transports/verbs/api.h"

struct verbs_rail;
enum { VERBS_MR_RAILS = 16 };

struct verbs_region {
    struct ri_region region;
    struct ibv_mr *mr[VERBS_MR_RAILS]; /* by the context's rails; NULL: not used there, or refused */
    uint32_t refused;                  /* bits */
};

struct verbs_mr_cache {
    struct verbs_region *table; /* by where they begin */
    uint32_t count, room, last;
    uint32_t version;
    uint32_t gpu_told; /* rails, bits: how they register memory of GPUs has been said */
    const char *root;  /* where the system's files are, for tests; NULL: where they always are */
};

/* The region that a buffer is wholly inside of, with a registration for this rail.  NULL: there is none.  Until the
 * next call. */
const struct verbs_region *verbs_mr_find(struct verbs_mr_cache *cache, const struct ri_memory *memory,
                                         struct verbs_rail *rail, const void *at, size_t bytes);
/* All of them, before the rails are closed. */
void verbs_mr_clear(struct verbs_mr_cache *cache, struct verbs_rail *rails);
/* As wide as needed and no wider: the peer writes, and nobody reads, but where `more` (IBV_ACCESS_...) says so. */
enum { VERBS_MR_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
struct ibv_mr *verbs_mr_register(const struct verbs_rail *rail, void *at, size_t bytes, int more);
/* Bytes from or to a buffer of the caller's, which may be a GPU's: `buffer` is that one of the two. */
ring_status_t verbs_mr_copy(const struct ri_memory *memory, const void *buffer, void *to, const void *from,
                            size_t bytes);

#endif
