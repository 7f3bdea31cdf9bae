/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the RDMA devices of this machine, opened, with what their ports say, and why each is used or not.
 *
 * What can go wrong on a machine is no error here but a reason: a device that may not be opened, a port that is down.
 * Errors are a wrong setting, and no memory.
 *
 * Memory: two arrays on the heap, until close.  A struct verbs_devices may not be moved once it is open.  Threads: one
 * at a time. */
#ifndef RI_VERBS_DEVICE_H
#define RI_VERBS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

#include "lib/base/conf.h"
#include "transports/verbs/api.h"
#include "transports/verbs/gid.h"
#include "transports/verbs/hca.h"

struct verbs_device {
    char name[VERBS_NAME];
    struct ibv_context *context; /* NULL: not open, and `why` says the reason */
    struct ibv_device_attr attr; /* max_mr_size, max_qp_wr, max_cqe, max_sge, vendor_id ... */
    bool immediate;              /* can write with immediate data: all but iWARP            */
    bool left_out;               /* by the settings, or it is of no use to anybody like us  */
    char why[VERBS_WHY];
};

struct verbs_port {
    struct verbs_device *device;
    uint8_t number; /* 0: the device is not open, so this stands for all of its ports */
    bool usable;
    bool left_out;             /* by the settings */
    struct ibv_port_attr attr; /* state, link_layer, lid, active_mtu, max_msg_sz ... */
    uint32_t speed;            /* Mbit/s */
    unsigned gids;
    struct verbs_gid gid[VERBS_GID_TABLE]; /* as it was read last */
    struct verbs_end end;                  /* what the peer is told, when usable */
    char why[VERBS_WHY];
};

struct verbs_devices {
    const struct verbs_api *api;
    struct verbs_hca hca;
    int gid_index;   /* -1: any */
    bool named;      /* RING_TRANSPORT is not auto: iWARP is used as well */
    bool local;      /* ports of RoCE with no address but link-local ones are used as well */
    uint64_t family; /* RI_FAMILY_... */
    unsigned devices, ports, usable;
    struct verbs_device *device;
    struct verbs_port *port; /* in the order of the library's list, by number */
    char why[VERBS_WHY];     /* why no port is usable */
};

/* Open what RING_IB_HCA allows and read its ports.  RING_OK with usable 0 when there is nothing of use.  On an error
 * nothing is open. */
ring_status_t verbs_devices_open(const struct verbs_api *api, const struct ri_conf *conf,
                                 struct verbs_devices *devices_out);
/* Also after a failed open, and twice. */
void verbs_devices_close(struct verbs_devices *d);

/* Ask the port again: its state and its GIDs may have changed.  Whether it is usable. */
bool verbs_port_read(struct verbs_devices *d, struct verbs_port *port);

/* The first VERBS_PORTS usable ports, and what the peer is told of them.  How many. */
unsigned verbs_devices_ends(struct verbs_devices *d, struct verbs_port *port_out[VERBS_PORTS],
                            struct verbs_end end_out[VERBS_PORTS]);

/* What is to be said when memory was refused to be registered with ENOMEM. */
ring_status_t verbs_locked_memory(size_t bytes);

#endif
