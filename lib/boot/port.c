/* SPDX-License-Identifier: Apache-2.0 */
/* port.c - see port.h: what a holder has of the process's door, and waiting for those who come through it. */
#include "lib/boot/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/boot/door.h"
#include "lib/boot/iface.h"
#include "lib/boot/rail.h"

enum { LOST_RAILS = 16, CONGESTION_NAME = 16 };

/* One per holder: holders whose interface differs (one host, several hosts) share the process's door all the same. */
struct ri_port {
    struct ri_listener *tcp[RI_ENDPOINT_ADDRS], *local;
    struct ri_endpoint endpoint;
    struct ri_iface_choice choice;
    bool rails; /* the addresses are interfaces side by side, not families of one */
    struct ri_rail lost[LOST_RAILS];
    unsigned lost_next;
    char congestion[CONGESTION_NAME]; /* control of our connections; empty: the system's */
};

/* From its first packet on, and for those who come in through a listener: a connection that one with pacing has begun
 * is paced for ever.  What cannot be had is said by the transport that wants it. */
void ri_port_set_congestion(const struct ri_port *port, int fd)
{
    if (port && port->congestion[0])
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, port->congestion, (socklen_t)strlen(port->congestion));
}

static ring_status_t choose(const struct ri_conf *conf, bool only_local, const struct sockaddr *toward,
                            struct ri_iface_choice *c)
{
    if (!only_local)
        return ri_iface_find(conf, toward, c);
    *c = (struct ri_iface_choice){.name = "lo",
                                  .addr = {{.family = 4, .bytes = {127, 0, 0, 1}}},
                                  .prefix = {8},
                                  .count = 1,
                                  .why = "all ranks are on this host"};
    return ri_iface_check(conf->ifname);
}

static ring_status_t listen_on_all(struct ri_port *port, struct ri_port_range range, bool only_local)
{
    ring_status_t status = ri_door_listen_unix(&port->local);
    if (status)
        return status;
    memcpy(port->endpoint.unix_name, port->local->unix_name, RI_UNIX_NAME);
    uint16_t same_port = 0; /* the second family's socket has the first one's port where it can */
    for (unsigned i = 0; i < port->choice.count; i++) {
        struct ri_address addr = port->choice.addr[i];
        addr.port = same_port;
        status = ri_door_listen(&addr, range, &port->tcp[i]);
        if (status == RING_ERR_SYSTEM && only_local) {
            snprintf(port->choice.why, sizeof port->choice.why, "only local sockets, for loopback is down");
            return RING_OK;
        }
        if (status)
            return status;
        ri_port_set_congestion(port, port->tcp[i]->watch.fd);
        port->endpoint.addr[i] = port->tcp[i]->addr;
        same_port = port->tcp[i]->addr.port;
    }
    return RING_OK;
}

static void shut(struct ri_port *port)
{
    ri_loop_lock();
    for (int i = 0; i < RI_ENDPOINT_ADDRS; i++)
        ri_door_unlisten(port->tcp[i]);
    ri_door_unlisten(port->local);
    ri_loop_unlock();
    ri_loop_release();
    ri_free(port);
}

ring_status_t ri_port_open_toward(const struct ri_conf *conf, bool only_local, const struct sockaddr *toward,
                                  struct ri_port **port_out)
{
    struct ri_port_range range;
    ring_status_t status = ri_port_range_parse(conf->port_range, &range);
    if (status)
        return status;
    struct ri_port *port = ri_new(1, sizeof *port);
    if (!port)
        return ri_fail(RING_ERR_NOMEM, "no memory for the port");
    if (!ri_conf_is_auto(conf->tcp_congestion))
        snprintf(port->congestion, sizeof port->congestion, "%.*s", CONGESTION_NAME - 1, conf->tcp_congestion);
    if ((status = choose(conf, only_local, toward, &port->choice)) || (status = ri_loop_hold())) {
        ri_free(port);
        return status;
    }
    ri_loop_lock();
    status = listen_on_all(port, range, only_local);
    ri_loop_unlock();
    if (status) {
        shut(port);
        return status;
    }
    char text[512];
    ri_port_explain(port, text, sizeof text);
    ri_log(RI_LOG_INFO, "%s", text);
    port->rails = conf->tcp_rails > 1 && !only_local;
    if (port->rails && port->choice.count < conf->tcp_rails)
        ri_log(RI_LOG_WARN, "RING_TCP_RAILS is %u, but only %u of this host's interfaces can be used: %s",
               (unsigned)conf->tcp_rails, port->choice.count, text);
    *port_out = port;
    return RING_OK;
}

ring_status_t ri_port_open(const struct ri_conf *conf, bool only_local, struct ri_port **port_out)
{
    return ri_port_open_toward(conf, only_local, NULL, port_out);
}

void ri_port_close(struct ri_port *port)
{
    if (port)
        shut(port);
}

const struct ri_endpoint *ri_port_endpoint(const struct ri_port *port) { return &port->endpoint; }

/* ---- rails ---- */

unsigned ri_port_rails(const struct ri_port *port, const struct ri_endpoint *peer,
                       struct ri_rail rail_out[RI_ENDPOINT_ADDRS])
{
    const struct ri_iface_choice *c = &port->choice;
    return port->rails ? ri_rail_pair(c->addr, c->prefix, c->count, peer, rail_out) : 0;
}

bool ri_port_rail_down(const struct ri_port *port, const struct ri_rail *rail)
{
    for (unsigned i = 0; i < LOST_RAILS; i++)
        if (port->lost[i].to.port == rail->to.port && ri_address_same_host(&port->lost[i].to, &rail->to))
            return true;
    return false;
}

/* The connections of one link are made one after the other, so few need to be remembered. */
void ri_port_rail_lost(struct ri_port *port, const struct ri_rail *rail)
{
    port->lost[port->lost_next++ % LOST_RAILS] = *rail;
}

const char *ri_port_interface(const struct ri_port *port) { return port->choice.name; }

void ri_port_explain(const struct ri_port *port, char *text, size_t cap)
{
    char address[RI_ADDRESS_TEXT];
    int n = snprintf(text, cap, "listening on ");
    for (unsigned i = 0; i < port->choice.count && n >= 0 && (size_t)n < cap; i++) {
        const struct ri_address *a = &port->endpoint.addr[i];
        const char *before = !i ? "" : i + 1 < port->choice.count ? ", " : " and ";
        n += snprintf(text + n, cap - (size_t)n, "%s%s%s%s", before,
                      a->family ? ri_address_print(a, address) : "nothing", port->rails ? " of " : "",
                      port->rails ? port->choice.of[i] : "");
    }
    if (n >= 0 && (size_t)n < cap)
        snprintf(text + n, cap - (size_t)n, " of interface %s: %s", port->choice.name, port->choice.why);
}

void ri_port_join(struct ri_port *port, struct ri_member *m)
{
    (void)port;
    ri_loop_lock();
    ri_door_join(m);
    ri_loop_unlock();
}

void ri_port_leave(struct ri_port *port, struct ri_member *m)
{
    (void)port;
    ri_loop_lock();
    ri_door_leave(m);
    ri_loop_unlock();
}

/* ---- collecting ---- */

/* 1 got it, 0 not yet, -1 never: no descriptors. */
static int look(struct ri_member *m, uint32_t from, uint16_t purpose, uint16_t lane, int *fd_out)
{
    int found = 0;
    ri_loop_lock();
    for (struct ri_arrival *a = m->arrivals; a && !found; a = a->next)
        if (a->fd >= 0 && a->from == from && a->purpose == purpose && a->lane == lane) {
            *fd_out = a->fd;
            a->fd = -1;
            found = 1;
        }
    if (!found && ri_door_starved())
        found = -1;
    ri_loop_unlock();
    return found;
}

static ring_status_t no_descriptors(uint32_t from)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return ri_fail(RING_ERR_LIMIT,
                   "the connection from rank %u cannot be accepted: all %llu descriptors are in use; "
                   "raise the limit (ulimit -n)",
                   from, (unsigned long long)limit.rlim_cur);
}

struct nap {
    uint32_t seen;
};

static void sleep_on_news(void *arg, int ms) { ri_word_sleep(&ri_door_news, ((struct nap *)arg)->seen, ms); }

static const char *purpose_name(uint16_t purpose)
{
    static const char *const names[] = {"", "rendezvous", "control", "shared memory", "data"};
    return purpose <= RI_FOR_LINK ? names[purpose] : "";
}

ring_status_t ri_port_collect(struct ri_port *port, struct ri_member *m, uint32_t from, uint16_t purpose, uint16_t lane,
                              const ri_abort_word *abort, uint64_t deadline, int *fd_out)
{
    struct ri_wait w;
    struct nap nap;
    ring_status_t status;
    (void)port;
    ri_wait_begin(&w, abort, deadline, (struct ri_patience){0, 0});
    for (;;) {
        nap.seen = atomic_load(&ri_door_news);
        const int found = look(m, from, purpose, lane, fd_out);
        if (found > 0)
            return RING_OK;
        if (found < 0)
            return no_descriptors(from);
        if ((status = ri_wait_round(&w, sleep_on_news, &nap)))
            break;
    }
    return status == RING_ERR_TIMEOUT
               ? ri_fail(status, "rank %u did not make its %s connection %u to rank %u before the deadline", from,
                         purpose_name(purpose), lane, m->rank)
               : status;
}

ring_status_t ri_port_try_collect(struct ri_port *port, struct ri_member *m, uint32_t from, uint16_t purpose,
                                  uint16_t lane, int *fd_out)
{
    int fd = -1;
    (void)port;
    if (look(m, from, purpose, lane, &fd) < 0)
        return no_descriptors(from);
    *fd_out = fd;
    return RING_OK;
}

int32_t ri_port_peer_pid(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) ? 0 : (int32_t)peer.pid;
}
