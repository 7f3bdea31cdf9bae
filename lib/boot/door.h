/* SPDX-License-Identifier: Apache-2.0 */
/* door.h - the accepting half of the port: listening sockets, strangers and guests, the ranks that live here.
 *
 * All of it is one object per process, guarded by ri_loop_lock(), and works on the background thread.  A connection is
 * a guest until its proof is checked: one of RI_GUESTS places, RI_GUEST_TIME, a fixed buffer, then closed without a
 * word. When all places are taken, a guest that has said nothing for a moment makes room, so silent strangers cannot
 * lock ranks out; when all of them are talking, new ones wait in the kernel's queue. */
#ifndef RI_DOOR_H
#define RI_DOOR_H

#include <stdatomic.h>

#include "lib/base/clock.h"
#include "lib/base/loop.h"
#include "lib/boot/port.h"

enum { RI_GUESTS = 64 };
#define RI_GUEST_TIME (2 * RI_SECOND)

/* A proved connection that waits to be collected (fd >= 0), or has been (fd -1: kept so that a second one is refused).
 */
struct ri_arrival {
    struct ri_arrival *next;
    uint32_t from;
    uint16_t purpose, lane;
    int fd;
};

struct ri_listener {
    struct ri_watch watch;
    struct ri_listener *next;
    struct ri_address addr; /* as bound, with the port; family 0: AF_UNIX */
    char unix_name[RI_UNIX_NAME];
    unsigned users;
    bool paused;
};

/* A low and a high port; 0, 0 is any. */
struct ri_port_range {
    uint16_t low, high;
};
ring_status_t ri_port_range_parse(const char *text, struct ri_port_range *range_out);

/* Bound, listening, non-blocking.  addr->port: 0, or tried first; replaced by the one that was got. */
ring_status_t ri_listen_tcp(struct ri_address *addr, struct ri_port_range range, int *fd_out);
ring_status_t ri_listen_unix(char name[RI_UNIX_NAME], int *fd_out);

/* Share the listener of that address, or open it.  Caller holds the loop lock. */
ring_status_t ri_door_listen(const struct ri_address *addr, struct ri_port_range range, struct ri_listener **out);
ring_status_t ri_door_listen_unix(struct ri_listener **out);
void ri_door_unlisten(struct ri_listener *l); /* NULL is fine */

void ri_door_join(struct ri_member *m);
void ri_door_leave(struct ri_member *m);

/* Counts arrivals: a word to sleep on. */
extern _Atomic uint32_t ri_door_news;
/* accept() has found no free descriptor since this process last accepted one. */
bool ri_door_starved(void);

#endif
