/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - see gpu.h. */
#include "transports/verbs/gpu.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "transports/verbs/lane.h"
#include "transports/verbs/mr.h"

enum { PATH = 512, PAGE = 4096 };

static const char by_dmabuf[] = "by dma-buf", by_module[] = "by the peer-memory module";
static const char no_function[] = "the library has no ibv_reg_dmabuf_mr", no_module[] = "nvidia_peermem is not loaded";

/* Of NVIDIA's driver; its predecessor, which was a package of its own; and what both enter themselves in. */
bool verbs_gpu_module(const char *root)
{
    static const char *const files[] = {"/sys/module/nvidia_peermem/version", "/sys/module/nv_peer_mem/version",
                                        "/sys/kernel/mm/memory_peers/nv_mem/version",
                                        "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};
    bool found = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++) {
        char path[PATH];
        const int n = snprintf(path, sizeof path, "%s%s", root ? root : "", files[i]);
        found = n > 0 && n < PATH && !access(path, F_OK);
    }
    return found;
}

/* What is written there may be passed on out of order, as to all memory that peers write to (mr.c). */
static struct ibv_mr *register_dmabuf(const struct verbs_rail *rail, const struct ri_region *region, int more,
                                      char *why_out, size_t cap)
{
    struct ibv_mr *mr = NULL;
    if (region->dmabuf < 0)
        snprintf(why_out, cap, "there is no dma-buf of it");
    else if (!rail->api->reg_dmabuf_mr)
        snprintf(why_out, cap, no_function);
    else if (!(mr = rail->api->reg_dmabuf_mr(rail->pd, region->dmabuf_at, region->bytes, (uintptr_t)region->begin,
                                             region->dmabuf, VERBS_MR_ACCESS | IBV_ACCESS_RELAXED_ORDERING | more)))
        snprintf(why_out, cap, "by dma-buf: %s", strerror(errno));
    return mr;
}

/* Nobody else reads what is flushed: the queue pairs of peers may not. */
struct ibv_mr *verbs_gpu_register(const struct verbs_rail *rail, const struct ri_region *region, const char *root,
                                  const char **way_out, char *why_out, size_t cap)
{
    const int more = region->flush ? IBV_ACCESS_REMOTE_READ : 0;
    char why[128];
    struct ibv_mr *mr = register_dmabuf(rail, region, more, why, sizeof why);
    const bool module = !mr && verbs_gpu_module(root);
    *way_out = mr ? by_dmabuf : by_module;
    if (module)
        mr = verbs_mr_register(rail, region->begin, region->bytes, more);
    if (!mr && module)
        snprintf(why_out, cap, "%s; %s: %s", why, by_module, strerror(errno));
    else if (!mr)
        snprintf(why_out, cap, "%s; %s", why, no_module);
    return mr;
}

/* A descriptor that is none is looked at only by those who would take one. */
static bool knows_dmabuf(const struct verbs_api *api, struct ibv_context *context, char *why_out, size_t cap)
{
    if (!api->reg_dmabuf_mr) {
        snprintf(why_out, cap, no_function);
        return false;
    }
    errno = 0;
    struct ibv_pd *pd = api->alloc_pd(context);
    struct ibv_mr *mr = pd ? api->reg_dmabuf_mr(pd, 0, PAGE, 0, -1, VERBS_MR_ACCESS) : NULL;
    const bool knows = mr || errno == EBADF;
    snprintf(why_out, cap, "%s", strerror(errno));
    if (mr)
        (void)api->dereg_mr(mr);
    if (pd)
        (void)api->dealloc_pd(pd);
    return knows;
}

void verbs_gpu_explain(const struct verbs_api *api, struct ibv_context *context, const char *root, char *text_out,
                       size_t cap)
{
    char why[128];
    const bool module = verbs_gpu_module(root);
    if (knows_dmabuf(api, context, why, sizeof why))
        snprintf(text_out, cap, "registered %s%s", by_dmabuf, module ? ", or else by the peer-memory module" : "");
    else if (module)
        snprintf(text_out, cap, "registered %s; no dma-buf: %s", by_module, why);
    else
        snprintf(text_out, cap, "copied through the host; no dma-buf: %s; %s", why, no_module);
}
