/* SPDX-License-Identifier: Apache-2.0 */
/* port.h - the process's door: one TCP port on the chosen interface and one abstract AF_UNIX socket, shared by all its
 * communicators, served by the background thread (lib/base/loop.h), with every connection authenticated (auth.h).
 *
 * A rank opens the port, joins it with a member (who it is, and how to find the key of a peer), publishes the endpoint,
 * and then connects to peers or collects what peers have connected.  Strangers get nothing and disturb nothing: before the
 * proof a connection has 2 s, a fixed buffer and one of 64 places; it is closed without a word.
 *
 * AF_UNIX connections are accepted from the same user only (SO_PEERCRED). */
#ifndef RI_PORT_H
#define RI_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <ring/ring.h>

#include "lib/base/conf.h"
#include "lib/base/wait.h"
#include "lib/boot/address.h"
#include "lib/boot/auth.h"

/* What the port needs to know of the ranks that live here. Caller's memory; valid from join to leave. */
struct ri_arrival;
struct ri_member {
    uint64_t comm_id;
    uint32_t rank;
    /* The key shared with rank `from`; false: no such rank (yet).  Runs on the background thread. */
    bool (*key)(void *owner, uint32_t from, uint8_t key_out[RI_KEY]);
    void *owner;
    /* NULL: connections wait to be collected, each (from, purpose, lane) once.  Otherwise each is handed over at once, on
     * the background thread; false: close it. */
    bool (*arrived)(void *owner, const struct ri_hello *h, int fd);
    /* the port's own */
    struct ri_member *next;
    struct ri_arrival *arrivals;
};

struct ri_port;

/* Hold the process's port (made for the first holder by `conf`; later holders share it).  only_local: the job is on one
 * host: listen on loopback.  Errors name the interface, range or limit. */
ring_status_t ri_port_open(const struct ri_conf *conf, bool only_local, struct ri_port **port_out);
/* The same, and when the interface is free to choose, the one with the route to `toward` (NULL: unknown). */
ring_status_t ri_port_open_toward(const struct ri_conf *conf, bool only_local, const struct sockaddr *toward,
                                  struct ri_port **port_out);
void ri_port_close(struct ri_port *port);
const struct ri_endpoint *ri_port_endpoint(const struct ri_port *port);

void ri_port_join(struct ri_port *port, struct ri_member *m);
void ri_port_leave(struct ri_port *port, struct ri_member *m); /* closes what arrived and was not collected */

/* Connect to a peer, prove who we are and check who they are; retried until the deadline, because the peer may not be
 * ready.  port is whose interface a link-local address is looked for on (NULL: the address's own).  via_unix picks the socket kind.  h->nonce is filled in here.  *fd_out: connected, non-blocking, close-on-exec. */
ring_status_t ri_port_connect(struct ri_port *port, const struct ri_endpoint *peer, bool via_unix, struct ri_hello *h,
                              const uint8_t key[RI_KEY], const ri_abort_word *abort, uint64_t deadline, int *fd_out);

/* Wait for the connection that `from` makes to member m. */
ring_status_t ri_port_collect(struct ri_port *port, struct ri_member *m, uint32_t from, uint16_t purpose, uint16_t lane,
                              const ri_abort_word *abort, uint64_t deadline, int *fd_out);

/* The same without waiting: *fd_out is -1 when it has not come yet.  For links that are made while others are in use. */
ring_status_t ri_port_try_collect(struct ri_port *port, struct ri_member *m, uint32_t from, uint16_t purpose,
                                  uint16_t lane, int *fd_out);

/* pid of the process at the other end of an AF_UNIX socket as we see it; 0 when it cannot be seen. */
int32_t ri_port_peer_pid(int fd);

/* RING_TCP_CONGESTION, on a socket that is not connected yet; port: NULL leaves it alone. */
void ri_port_set_congestion(const struct ri_port *port, int fd);

const char *ri_port_interface(const struct ri_port *port); /* the chosen one's name */

/* Which interface and addresses were chosen, and why, as one line for the log. */
void ri_port_explain(const struct ri_port *port, char *text, size_t cap);

#endif
