/* SPDX-License-Identifier: Apache-2.0 */
/* ctx.h - what the links of a context share: devices, their completions, and who they belong to. */
#ifndef RI_VERBS_CTX_H
#define RI_VERBS_CTX_H

#include "transports/verbs/device.h"
#include "transports/verbs/link.h"
#include "transports/verbs/mr.h"

enum { VERBS_CTX_RAILS = VERBS_MR_RAILS };

struct verbs_entry {
    struct verbs_lane *lane; /* NULL: free */
    uint32_t generation;
};

struct verbs_ctx {
    struct ri_tctx base;
    bool open;
    const struct verbs_api *api;
    int epoll;
    struct verbs_rail rail[VERBS_CTX_RAILS]; /* usable ports */
    uint32_t rails;
    struct verbs_devices devices;
    struct verbs_port *port[VERBS_CTX_RAILS]; /* of each rail */
    struct verbs_mr_cache memory;
    struct verbs_entry *entries;
    uint32_t entry_count;
    struct verbs_link *active; /* those with something to do */
    uint32_t rounds;
    uint64_t feel; /* when the links are to see again whether their peers are there */
    bool posted;   /* something that progress() has not seen */
};

/* Among those that progress() looks after. */
void verbs_ctx_list(struct verbs_link *l);
static inline bool verbs_ctx_splits(const struct verbs_link *l) { return l->base.ctx->conf->ib_split; }

/* Room for the lane's completions, and a number by which they find it; leave ends that. */
ring_status_t verbs_ctx_enter(struct verbs_ctx *c, struct verbs_lane *lane);
void verbs_ctx_leave(struct verbs_ctx *c, struct verbs_lane *lane);

/* Room in the rail's completion queue. */
ring_status_t verbs_ctx_room(struct verbs_rail *rail, int completions);

/* The local key of memory of the caller's, and whether it is a GPU's; false: it is not registered, and has to be
 * copied. */
bool verbs_ctx_key(struct verbs_link *l, struct verbs_rail *rail, const void *at, size_t bytes, uint32_t *key_out,
                   bool *gpu_out);
/* The remote keys of it by the link's rails, and whether what comes by them is to be flushed. */
bool verbs_ctx_landing_keys(struct verbs_link *l, const void *at, size_t bytes, uint32_t key_out[VERBS_RAILS],
                            bool *flush_out);
/* Bytes from or to a buffer that may be a GPU's; a failure breaks the link. */
bool verbs_ctx_copy(struct verbs_link *l, const void *buffer, void *to, const void *from, size_t bytes);

#endif
