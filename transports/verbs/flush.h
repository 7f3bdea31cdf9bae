/* SPDX-License-Identifier: Apache-2.0 */
/* flush.h - what peers have written to memory of a GPU is made sure to be there.
 *
 * What an RDMA device writes to a GPU and the completion that tells the processor of it take different ways, so the
 * completion may be first.  But what the device then reads from the GPU comes behind all that it has written there.  So
 * when all of a piece has been told of, its last byte is read by each device that it came by, over a queue pair that is
 * connected to itself, and the piece has arrived when that has.  (NCCL does so too; PCI Express has the order:
 * a read request does not pass a write.)
 *
 * Cost: a read a piece and device, while later pieces come in.  Nothing for memory that does not need it.  Memory: two
 * pages and a queue pair a rail, from the first piece that needs it until the rail is closed.  Threads: those of the
 * context. */
#ifndef RI_VERBS_FLUSH_H
#define RI_VERBS_FLUSH_H

#include "transports/verbs/ctx.h"

/* Where a lane has its place in the context's table, completions of reads have this: no lane is there. */
enum { VERBS_FLUSH_INDEX = UINT16_MAX };

/* Whether rail r of the link can do it: its queue pair is there, or is made now.  A rail that cannot is not asked
 * again. */
bool verbs_flush_ready(struct verbs_link *l, uint32_t r);
/* A part of a piece has been told of, by this lane; with the last of them reads begin.  A failure breaks the link. */
void verbs_flush_heard(struct verbs_lane *lane, struct verbs_landing *landing);
/* Of a piece that has wholly been told of: all of it is there. */
bool verbs_flush_done(struct verbs_link *l, struct verbs_landing *landing);

/* A completion that is no lane's. */
void verbs_flush_complete(struct verbs_ctx *c, const struct ibv_wc *wc);
/* Its reads are nobody's from now on. */
void verbs_flush_forget(struct verbs_link *l);
void verbs_flush_close(struct verbs_rail *rail);

#endif
