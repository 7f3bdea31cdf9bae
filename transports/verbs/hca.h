/* SPDX-License-Identifier: Apache-2.0 */
/* hca.h - RING_IB_HCA: which RDMA devices and ports may be used.  Pure; what is there is seen by device.h. */
#ifndef RI_VERBS_HCA_H
#define RI_VERBS_HCA_H

#include <stdbool.h>
#include <stdint.h>
#include <ring/ring.h>

enum { VERBS_NAME = 64, VERBS_HCA_WORDS = 32 };

struct verbs_hca_word {
    char name[VERBS_NAME];
    uint8_t port; /* 0: any */
};
struct verbs_hca {
    bool exclude, exact;
    unsigned count; /* 0: all devices */
    struct verbs_hca_word word[VERBS_HCA_WORDS];
};

/* NCCL's grammar: "mlx5_0,mlx5_1:1" prefixes of names, each with a port or not, "=mlx5_0" exact names, "^mlx5_0" all
 * but those prefixes, "^=mlx5_0:1" all but those names and ports; "auto": all.  RING_ERR_CONFIG when it is not in it.
 */
ring_status_t verbs_hca_parse(const char *spec, struct verbs_hca *hca_out);

/* Port 0: may any of the device's ports be used?  A true that further ports then deny only costs opening the device. */
bool verbs_hca_wanted(const struct verbs_hca *hca, const char *device, unsigned port);

#endif
