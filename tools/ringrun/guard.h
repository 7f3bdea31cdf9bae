/* SPDX-License-Identifier: Apache-2.0 */
/* guard.h - strangers at the door of the PMIx server.
 *
 * PMIx listens on a loopback port and reads the first message of whoever connects without a time limit, on the thread
 * that does everything: one byte from a port scanner, and no rank gets an answer any more.  So connections come to the
 * guard first.  It waits, without blocking, until the job's name has been said (which is random, and stands in the
 * environment of ranks only), and hands the connection on; who does not say it within 2 s is closed.  At most
 * GUARD_PLACES wait; the oldest makes room.
 *
 * How: the listening socket is taken over, PMIx's descriptor of it becomes an event counter, and accept() is ours: PMIx
 * calls it when the counter says that somebody has passed.  (PMIx defines a hook for this purpose, but does not call
 * it.) That fits the listening thread of PMIx 4, which calls select() anew each time.  With another PMIx there is no
 * guard. */
#ifndef RINGRUN_GUARD_H
#define RINGRUN_GUARD_H

#include <stdbool.h>
#include <stdint.h>

enum { GUARD_PLACES = 64, GUARD_MS = 2000 };

/* After PMIx has begun to listen.  `word`: what a friend says; it stays valid. */
bool guard_open(const char *word);
int guard_fd(void);   /* poll it for reading; -1: no guard */
int guard_wait(void); /* ms until guard_turn() is due even so, -1: never */
void guard_turn(void);

/* For accept.c: true when fd is the counter; then *passed_out is the next connection, or -1. Any thread. */
bool guard_owns(int fd, int *passed_out);

/* accept.c: libraries that call accept() call the one there. */
bool accept_is_found(void);

#endif
