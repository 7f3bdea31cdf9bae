/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - memory of GPUs: how an RDMA device registers it, and whether it can.
 *
 * By dma-buf, when the library, the kernel and the device's driver know that and the region has one; else as if it were
 * the host's, when a kernel module is loaded that finds the GPU's pages for the driver; else not at all, for a stated
 * reason, and then it is copied (mr.h).  Threads: any. */
#ifndef RI_VERBS_GPU_H
#define RI_VERBS_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "transports/transport.h"
#include "transports/verbs/api.h"

struct verbs_rail;

/* root: where the system's files are; NULL: where they always are. */
bool verbs_gpu_module(const char *root);

/* way_out: "by dma-buf", or by what.  NULL: why_out (cap bytes) says why neither way goes. */
struct ibv_mr *verbs_gpu_register(const struct verbs_rail *rail, const struct ri_region *region, const char *root,
                                  const char **way_out, char *why_out, size_t cap);

/* For people, of an open device: how it would register memory of a GPU, or why it cannot. */
void verbs_gpu_explain(const struct verbs_api *api, struct ibv_context *context, const char *root, char *text_out,
                       size_t cap);

#endif
