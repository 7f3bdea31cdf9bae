/* SPDX-License-Identifier: Apache-2.0 */
/* iface.h - which network interface to listen on, or which interfaces (rails). The choice is a pure function of what was found, so that machines
 * which are not here can be tried. */
#ifndef RI_IFACE_H
#define RI_IFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

#include "lib/base/conf.h"
#include "lib/boot/address.h"

/* One address of one interface. */
struct ri_iface {
    char name[16];
    unsigned flags; /* IFF_... */
    struct ri_address addr;
    uint8_t prefix; /* bits of the address that are its network */
};

/* RING_SOCKET_IFNAME in NCCL's grammar: "eth,ib" prefixes, "=eth0" exact names, "^docker" all but those prefixes,
 * "^=eth0" all but those names. */
ring_status_t ri_iface_check(const char *spec); /* RING_ERR_CONFIG when it is not in the grammar */
bool ri_iface_match(const char *spec, const char *name);

/* What decides among the interfaces that are allowed. */
struct ri_iface_wish {
    const char *spec;                   /* "auto": any */
    uint64_t family;                    /* RI_FAMILY_... */
    uint64_t rails;                     /* interfaces wanted; 0 counts as 1 */
    struct ri_address toward, source;   /* a peer and the address from which we would reach it; family 0: unknown */
    struct ri_address default_route[2]; /* the address from which we would reach the world, IPv4 and IPv6 */
};
struct ri_iface_choice {
    char name[16];
    /* One interface: at most one of each family.  Rails: one of each interface, best first, all of one family. */
    struct ri_address addr[RI_ENDPOINT_ADDRS];
    uint8_t prefix[RI_ENDPOINT_ADDRS];
    char of[RI_ENDPOINT_ADDRS][16]; /* whose address it is */
    unsigned count;
    char why[192];
};
ring_status_t ri_iface_choose(const struct ri_iface *list, size_t n, const struct ri_iface_wish *wish,
                              struct ri_iface_choice *choice_out);

/* Look at this machine and choose. */
ring_status_t ri_iface_find(const struct ri_conf *conf, const struct sockaddr *toward,
                            struct ri_iface_choice *choice_out);

#endif
