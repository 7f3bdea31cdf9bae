/* SPDX-License-Identifier: Apache-2.0 */
/* gid.h - which of a port's GIDs a queue pair uses, and which ports of two ends go together.
 *
 * A port has a table of GIDs: on RoCE one or two for each IP address (v1 and v2 of the protocol), on InfiniBand one for
 * the subnet it is in.  The index of one goes into the queue pair, so both ends must come to the same pair.  They tell
 * each other what they could use (struct verbs_end), and each works out the same answer from the two lists: no further
 * message, no name, no order of ranks.  What an end's settings rule out it does not tell, so the settings of both ends
 * hold without being the same.
 *
 * All is pure but verbs_gid_read(); nothing here keeps memory. */
#ifndef RI_VERBS_GID_H
#define RI_VERBS_GID_H

#include <ifaddrs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

#include "transports/verbs/api.h"
#include "transports/verbs/hca.h"

enum {
    VERBS_GID_TABLE = 256, /* a queue pair's index has 8 bits             */
    VERBS_GID_SENT = 16,   /* of a port that the peer is told of          */
    VERBS_PORTS = 8,       /* that the peer is told of                    */
    VERBS_RAILS_MOST = 4,  /* ports of a link side by side                */
    VERBS_GID_TEXT = 80,   /* bytes of a GID as text                      */
    VERBS_WHY = 240        /* bytes of a reason                           */
};

/* The first three as in enum ibv_gid_type.  Unknown: inside a container the kernel need not say. */
enum verbs_gid_type { VERBS_GID_IB, VERBS_GID_ROCE_V1, VERBS_GID_ROCE_V2, VERBS_GID_UNKNOWN };

/* Link-local: fe80::/10, and of IPv4 what is of use on one wire only, 169.254/16 and 127/8. */
enum verbs_gid_class { VERBS_GID_ZERO, VERBS_GID_LINK_LOCAL, VERBS_GID_IPV6, VERBS_GID_IPV4 };

struct verbs_gid {
    uint8_t gid[16];
    uint8_t index;  /* in the port's table                                        */
    uint8_t type;   /* enum verbs_gid_type                                        */
    uint8_t prefix; /* bits of gid that are its network, 96 and more for IPv4; 0: not known */
};

enum verbs_gid_class verbs_gid_class(const struct verbs_gid *gid);
bool verbs_gid_is_ipv4(const struct verbs_gid *gid); /* IPv4-mapped, link-local or not */

/* "::ffff:10.0.0.1 (index 3, RoCE v2)"; returns text. */
const char *verbs_gid_print(const struct verbs_gid *gid, char text[VERBS_GID_TEXT]);

/* RING_IB_GID_INDEX: 0 to 255, or -1 for auto; anything else is RING_ERR_CONFIG. */
ring_status_t verbs_gid_index(const char *text, int *index_out);

/* The port's table as it is now, without empty places; how many there are.  most: the places of all ports of the device
 * together.  Types that the kernel does not tell are guessed (verbs_gid_guess), networks are this process's. */
unsigned verbs_gid_read(const struct verbs_api *api, struct ibv_context *context, unsigned port,
                        const struct ibv_port_attr *attr, size_t most, struct verbs_gid table_out[VERBS_GID_TABLE]);

/* A GID that is there twice without a type is v1 first and then v2: the order in which the kernel enters them. */
void verbs_gid_guess(struct verbs_gid *table, unsigned n);

/* The networks of those whose addresses are in the list. */
void verbs_gid_networks(struct verbs_gid *table, unsigned n, const struct ifaddrs *list);

/* What of a table may be used: the one with this index, or when it is -1 those of the family (RI_FAMILY_...; GIDs of
 * InfiniBand have none).  When there are too many, better ones stay.  0: why_out says the reason. */
unsigned verbs_gid_usable(const struct verbs_gid *table, unsigned n, int index, uint64_t family,
                          struct verbs_gid usable_out[VERBS_GID_SENT], char why_out[VERBS_WHY]);

/* The pair that both ends use, as positions in the tables; false when none goes together.  Both ends call it with the
 * tables the other way round and get the same pair, whatever is in them.
 *
 * RoCE v2 goes with v2, v1 with v1, and both only within one family.  Best first: not link-local; v2; IPv4 in one
 * network (by the networks when known, else by how much the addresses have in common); other IPv4; IPv6 likewise; the
 * lowest indices.  same_device: an address at both ends is one and the same port's.  Otherwise it is one that many
 * hosts have, like that of a bridge, and what is sent there does not leave the host: it is left out. */
bool verbs_gid_pair(const struct verbs_gid *mine, unsigned n, const struct verbs_gid *theirs, unsigned m,
                    bool same_device, unsigned *mine_out, unsigned *theirs_out);

/* ---- ports ----------------------------------------------------------------------------------------------------- */

/* What one end tells of a port. */
struct verbs_end {
    char device[VERBS_NAME];
    uint8_t port;
    bool infiniband; /* link layer; else Ethernet                          */
    bool grh;        /* this port wants a global header in any case        */
    bool immediate;  /* can write with immediate data; iWARP cannot, and goes with itself only */
    uint8_t mtu;     /* enum ibv_mtu                                       */
    uint16_t lid;    /* InfiniBand                                         */
    uint32_t speed;  /* Mbit/s                                             */
    uint32_t max_message;
    uint64_t guid; /* of the device, only ever compared                    */
    unsigned gids;
    struct verbs_gid gid[VERBS_GID_SENT];
};

enum { VERBS_ENDS_BYTES = 1 + VERBS_PORTS * (2 + VERBS_NAME + 22 + VERBS_GID_SENT * 19) };

/* To and from bytes; encode returns how many (0: they do not fit, or n > VERBS_PORTS), decode false for anything that
 * encode does not write. */
size_t verbs_ends_encode(const struct verbs_end *ends, unsigned n, uint8_t *bytes_out, size_t cap);
bool verbs_ends_decode(const uint8_t *bytes, size_t len, struct verbs_end ends_out[VERBS_PORTS], unsigned *n_out);

/* A port of ours and one of the peer's. */
struct verbs_joint {
    uint8_t mine, theirs;      /* positions among the ends                */
    uint8_t my_gid, their_gid; /* positions in their gid[]                */
    uint8_t mtu;               /* the smaller one                         */
    bool grh;                  /* address by GID, else by LID             */
    uint32_t max_message;      /* the smaller one                         */
};

/* Which ports go together: each at most once, the best pair of GIDs first, then the faster, then those with the same
 * place in both lists.  Later rails are of the kind of the first, no worse in what joins them, and half as fast or
 * more: a segment goes by each in turns, and a way that leads nowhere would take the link down.  How many there are, at
 * most VERBS_RAILS_MOST; the same at both ends and in the same order. */
unsigned verbs_rails(const struct verbs_end *mine, unsigned n, const struct verbs_end *theirs, unsigned m,
                     struct verbs_joint rail_out[VERBS_RAILS_MOST]);

/* "mlx5_0:1 ::ffff:10.0.0.1 (index 3, RoCE v2) to mlx5_0:1 ::ffff:10.0.0.2 (index 3, RoCE v2): ..." */
void verbs_joint_explain(const struct verbs_end *mine, const struct verbs_end *theirs, const struct verbs_joint *rail,
                         char *text_out, size_t cap);
/* Why there is no rail. */
void verbs_rails_none(const struct verbs_end *mine, unsigned n, const struct verbs_end *theirs, unsigned m,
                      char *text_out, size_t cap);

#endif
