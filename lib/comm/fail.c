/* SPDX-License-Identifier: Apache-2.0 */
/* fail.c - the first failure wins, and all ranks hear the same one.
 *
 * A failure is one sentence, written by whoever saw it.  It goes on the board of its host, which ends every wait there,
 * and from there to the other hosts (control.c) before anybody acts on it. */
#include "lib/comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"

enum { SUSPICION_MS = 500, IGNORANCE_MS = 750, TURN_MS = 10, TURNS = 20 };

void ri_comm_raise(struct ring_comm *c, ring_status_t status, uint32_t culprit, const char *format, ...)
{
    struct ri_failure f = {.status = (int32_t)status, .culprit = culprit};
    va_list args;
    va_start(args, format);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    if (ri_board_fail(c->board, &f))
        ri_log(RI_LOG_INFO, "%s", f.text);
    ri_control_spread(c);
}

/* The board is shared memory: what is taken from it is made safe first. */
const struct ri_failure *ri_comm_failure(struct ring_comm *c)
{
    if (!ri_comm_broken(c))
        return NULL;
    if (!atomic_load_explicit(&c->settled, memory_order_acquire)) {
        ri_loop_lock();
        if (!atomic_load_explicit(&c->settled, memory_order_relaxed)) {
            memcpy(&c->failure, &c->board->failure, sizeof c->failure);
            c->failure.text[RI_FAILURE_TEXT - 1] = '\0';
            if (c->failure.status >= 0)
                c->failure.status = RING_ERR_INTERNAL;
            atomic_store_explicit(&c->settled, true, memory_order_release);
        }
        ri_loop_unlock();
    }
    return &c->failure;
}

ring_status_t ri_comm_verdict(struct ring_comm *c)
{
    const struct ri_failure *f = ri_comm_failure(c);
    if (!f)
        return RING_OK;
    ri_control_spread(
        c); /* another rank of this host may have raised it; who leaves first must not be taken for lost */
    return ri_fail((ring_status_t)f->status, "%s", f->text);
}

const char *ri_comm_name(const struct ring_comm *c, uint32_t rank)
{
    return rank < c->size ? c->peer[rank].name : "a rank";
}

static ring_status_t hear(struct ring_comm *c, uint64_t ms)
{
    struct ri_wait w;
    ri_wait_begin(&w, &c->board->abort, ri_deadline(ms * RI_MILLISECOND), (struct ri_patience){0});
    while (!ri_wait_round(&w, NULL, NULL))
        ;
    ri_control_listen(c);
    return ri_comm_verdict(c);
}

ring_status_t ri_comm_hear(struct ring_comm *c) { return hear(c, IGNORANCE_MS); }

/* Both ends of a link see it break.  The one that has only seen it closed leaves the word to the other; and of several
 * that could speak at once the lowest does, so that hosts do not hear different things. */
ring_status_t ri_comm_suspect(struct ring_comm *c, uint32_t culprit, const char *why)
{
    const uint32_t turn = TURN_MS * (c->rank < TURNS ? c->rank : TURNS);
    const ring_status_t status = hear(c, (why[0] ? SUSPICION_MS : IGNORANCE_MS) + turn);
    if (status)
        return status;
    ri_comm_raise(c, RING_ERR_PEER_LOST, culprit, "%s lost its connection to %s%s%s", ri_comm_name(c, c->rank),
                  ri_comm_name(c, culprit), why[0] ? ": " : "", why);
    return ri_comm_verdict(c);
}
