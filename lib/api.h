/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - who may come in: what the exported functions share.
 *
 * A communicator belongs to one thread at a time: ri_enter() and ri_leave() mark the time inside, so that a second
 * thread is told instead of doing harm. */
#ifndef RI_API_H
#define RI_API_H

#include "lib/comm/comm.h"

static inline ring_status_t ri_enter(ring_comm_t *c)
{
    if (!c)
        return ri_fail(RING_ERR_INVALID, "the communicator is NULL");
    if (c->generation != ri_comm_generation())
        return ri_fail(RING_ERR_STATE,
                       "this communicator belongs to the parent process: it cannot be used after fork()");
    if (atomic_exchange_explicit(&c->busy, 1, memory_order_acquire))
        return ri_fail(RING_ERR_BUSY, "another thread is inside a call on this communicator");
    return RING_OK;
}

static inline void ri_leave(ring_comm_t *c) { atomic_store_explicit(&c->busy, 0, memory_order_release); }

/* The same, and the communicator works. */
static inline ring_status_t ri_enter_working(ring_comm_t *c)
{
    ring_status_t status = ri_enter(c);
    if (!status && ri_comm_broken(c)) {
        status = ri_comm_verdict(c);
        ri_leave(c);
    }
    return status;
}

/* The same, and no group is open. */
static inline ring_status_t ri_enter_idle(ring_comm_t *c, const char *what)
{
    ring_status_t status = ri_enter_working(c);
    if (!status && c->group.depth) {
        status = ri_fail(RING_ERR_STATE, "%s inside a group: end the group first", what);
        ri_leave(c);
    }
    return status;
}

#endif
