/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - a thread that waits in one communicator looks after the others that it left with operations in flight.
 *
 * Without that, a rank could wait in one communicator for a peer that waits in another for what the rank has in flight
 * there, for ever.  So a communicator that a call leaves with operations in flight is listed here, under the thread
 * that made the call, and progress is made for it wherever that thread waits (lib/base/wait.h), until it is entered
 * again. Other threads leave it alone: what they do meanwhile is no business of its owner's.
 *
 * Cost: a lock, taken twice for each time that a communicator is left with operations in flight; nothing else. */
#include "lib/comm/comm.h"

#include <pthread.h>

#include "lib/base/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, never while progress is made */
static struct ring_comm *list;
static _Thread_local bool helping; /* and its address is the thread's name */

/* Nobody is inside, so nobody else makes progress there, and it stays in the list: who enters comes to the lock. */
static bool take(struct ring_comm *c)
{
    uint32_t nobody = RI_NOBODY_INSIDE;
    return c->left_by == &helping && !ri_comm_broken(c) &&
           atomic_compare_exchange_strong_explicit(&c->busy, &nobody, RI_HELPER_INSIDE, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Of a wait in a wait, only the outer one helps. */
static int help(void)
{
    unsigned moved = 0;
    bool any = false;
    if (helping)
        return RI_WAIT_SLEEP_MS;
    helping = true;
    pthread_mutex_lock(&lock);
    for (struct ring_comm *c = list; c; c = c->next_left) {
        if (!take(c))
            continue;
        pthread_mutex_unlock(&lock);
        moved += ri_op_progress(c);
        any |= c->first != NULL;
        pthread_mutex_lock(&lock);
        atomic_store_explicit(&c->busy, RI_NOBODY_INSIDE, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    helping = false;
    return moved ? 0 : any ? 1 : RI_WAIT_SLEEP_MS;
}

void ri_help_begin(struct ring_comm *c)
{
    c->left = true;
    c->left_by = &helping;
    pthread_mutex_lock(&lock);
    c->next_left = list;
    list = c;
    atomic_store_explicit(&ri_wait_meanwhile, help, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

void ri_help_end(struct ring_comm *c)
{
    c->left = false;
    pthread_mutex_lock(&lock);
    struct ring_comm **at = &list;
    while (*at && *at != c)
        at = &(*at)->next_left;
    if (*at)
        *at = c->next_left;
    if (!list)
        atomic_store_explicit(&ri_wait_meanwhile, NULL, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

bool ri_help_await(struct ring_comm *c)
{
    struct ri_wait w;
    uint32_t inside = RI_HELPER_INSIDE;
    if (helping)
        return false; /* from within: an operation of the caller's that calls back */
    ri_wait_begin(&w, NULL, RI_NEVER, c->patience);
    while (inside == RI_HELPER_INSIDE) {
        inside = RI_NOBODY_INSIDE;
        if (atomic_compare_exchange_strong_explicit(&c->busy, &inside, RI_CALL_INSIDE, memory_order_acquire,
                                                    memory_order_relaxed))
            return true;
        (void)ri_wait_round(&w, NULL, NULL);
    }
    return false;
}

/* Another thread of the parent may have held the lock. */
void ri_help_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    list = NULL;
    helping = false;
    atomic_store_explicit(&ri_wait_meanwhile, NULL, memory_order_relaxed);
}
