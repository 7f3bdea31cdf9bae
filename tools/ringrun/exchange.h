/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - PMIx data between hosts: fences, to which every host with a participant contributes, and single fetches.
 *
 * No sockets here: requests come in by calls, answers go out by one function.  A fence that can no longer complete,
 * because a participant has ended, fails at once; the time limits that ranks give are kept here; a fetch without one
 * has 60 s. */
#ifndef RINGRUN_EXCHANGE_H
#define RINGRUN_EXCHANGE_H

#include "channel.h"
#include "protocol.h"

struct fence;
struct fetch;

/* Send a message of `type` (FENCED, FETCHED: how and data; LOOKUP: rank) to a place. */
struct answer {
    uint32_t place;
    enum message type;
    uint64_t id;
    enum exchange how;
    uint32_t rank;
    const uint8_t *data;
    size_t len;
};
typedef void exchange_send(void *owner, const struct answer *answer);

struct exchange_state {
    const struct job *job;
    exchange_send *send;
    void *owner;
    bool *gone; /* by rank */
    struct fence *fences;
    struct fetch *fetches;
    uint64_t ids;
};

void exchange_init(struct exchange_state *x, const struct job *job, exchange_send *send, void *owner);
void exchange_free(struct exchange_state *x);
/* The bodies of FENCE, FETCH and FOUND from a place; false: nonsense. */
bool exchange_fence(struct exchange_state *x, uint32_t place, struct cursor *body);
bool exchange_fetch(struct exchange_state *x, uint32_t place, struct cursor *body);
bool exchange_found(struct exchange_state *x, struct cursor *body);
/* A rank has ended. */
void exchange_gone(struct exchange_state *x, uint32_t rank);
/* Fail what is over time; the next moment to look again, UINT64_MAX: none. */
uint64_t exchange_tick(struct exchange_state *x, uint64_t now);

#endif
