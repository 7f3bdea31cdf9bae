/* SPDX-License-Identifier: Apache-2.0 */
/* rail.h - ways to a peer that lie side by side: an interface of ours and one of the peer's.
 *
 * Pairing is a pure function.  What a port remembers of rails that are down is there so that the connections of one
 * link do not each wait for the same dead cable. */
#ifndef RI_RAIL_H
#define RI_RAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/boot/address.h"

struct ri_rail {
    struct ri_address from, to; /* from: without a port */
};

/* Each of mine (n of them, prefix: bits of its network) with the peer's address in the same network; those that are
 * left over on both sides in their order.  What only one side has more of is no rail.  How many there are. */
unsigned ri_rail_pair(const struct ri_address *mine, const uint8_t *prefix, unsigned n, const struct ri_endpoint *peer,
                      struct ri_rail rail_out[RI_ENDPOINT_ADDRS]);

struct ri_port;

/* The rails from this port to a peer; 0 when RING_TCP_RAILS is 1. */
unsigned ri_port_rails(const struct ri_port *port, const struct ri_endpoint *peer,
                       struct ri_rail rail_out[RI_ENDPOINT_ADDRS]);
bool ri_port_rail_down(const struct ri_port *port, const struct ri_rail *rail);
void ri_port_rail_lost(struct ri_port *port, const struct ri_rail *rail);

#endif
