/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - who may come in: what the exported functions share.
 *
 * A communicator belongs to one thread at a time: ri_enter() and ri_leave() mark the time inside, so that a second
 * thread is told instead of doing harm. */
#ifndef RI_API_H
#define RI_API_H

#include "lib/comm/comm.h"

static inline bool ri_comes_in(ring_comm_t *c)
{
    uint32_t inside = RI_NOBODY_INSIDE;
    return atomic_compare_exchange_strong_explicit(&c->busy, &inside, RI_CALL_INSIDE, memory_order_acquire,
                                                   memory_order_relaxed) ||
           (inside == RI_HELPER_INSIDE && ri_help_await(c));
}

static inline ring_status_t ri_enter(ring_comm_t *c)
{
    if (!c)
        return ri_fail(RING_ERR_INVALID, "the communicator is NULL");
    if (c->generation != ri_comm_generation())
        return ri_fail(RING_ERR_STATE,
                       "this communicator belongs to the parent process: it cannot be used after fork()");
    if (!ri_comes_in(c))
        return ri_fail(RING_ERR_BUSY, "another thread is inside a call on this communicator");
    if (c->left)
        ri_help_end(c);
    return RING_OK;
}

static inline void ri_leave(ring_comm_t *c)
{
    if (c->first)
        ri_help_begin(c);
    atomic_store_explicit(&c->busy, RI_NOBODY_INSIDE, memory_order_release);
}

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
