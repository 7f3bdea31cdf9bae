/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - the process's one background thread: an epoll loop for what must be seen while the program computes.
 *
 * It exists while somebody holds it (ri_loop_hold / ri_loop_release) and sleeps nearly always.  It accepts and checks
 * connections (lib/boot/port.c) and watches the other ranks (lib/comm/watch.c); it never moves a collective's data.
 * Callbacks run on its thread, must not block, and may add and remove watches.  The thread has all signals blocked.
 * A forked child begins without holders and without watches. */
#ifndef RI_LOOP_H
#define RI_LOOP_H

#include <stdint.h>
#include <ring/ring.h>

/* Caller's memory; valid from add to remove.  fd stays the caller's. */
struct ri_watch {
    int fd;
    void (*ready)(struct ri_watch *w, uint32_t events); /* EPOLLIN ...; level-triggered */
};

/* Called every `period` nanoseconds or a little later. */
struct ri_timer {
    uint64_t period, due;
    void (*fire)(struct ri_timer *t, uint64_t now);
    struct ri_timer *next;
};

ring_status_t ri_loop_hold(void); /* starts the thread for the first holder */
void ri_loop_release(void);       /* ends it after the last one; not from a callback */

ring_status_t ri_loop_add(struct ri_watch *w, uint32_t events);
ring_status_t ri_loop_change(struct ri_watch *w, uint32_t events);
void ri_loop_timer_add(struct ri_timer *t);

/* After these return, the callback is not running and will not run again (called from a callback: only the latter). */
void ri_loop_remove(struct ri_watch *w);
void ri_loop_timer_remove(struct ri_timer *t);

/* Hold off all callbacks: for state that callbacks and callers share. May nest; callbacks run with it held. */
void ri_loop_lock(void);
void ri_loop_unlock(void);

#endif
