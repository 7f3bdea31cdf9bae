/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - the list of devices, opening them, and what they say of themselves. */
#include "tests/verbs/inner.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_query_port

static const uint64_t page_sizes = 0xfffff000; /* 4 KB and up */

/* ---- the list -------------------------------------------------------------------------------------------------- */

static struct ibv_device *new_device(int index)
{
    const struct provider_device *shape = &world.shape.device[index];
    struct device *d = pv_new(DEVICE, sizeof *d, offsetof(struct device, object));
    if (!d)
        abort();
    d->index = index;
    d->uses = 1;
    d->base.node_type = shape->no_imm ? IBV_NODE_RNIC : IBV_NODE_CA;
    d->base.transport_type = shape->no_imm ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    snprintf(d->base.name, sizeof d->base.name, "%s", shape->name);
    snprintf(d->base.dev_name, sizeof d->base.dev_name, "uverbs%d", index);
    snprintf(d->base.dev_path, sizeof d->base.dev_path, "/sys/class/infiniband_verbs/uverbs%d", index);
    snprintf(d->base.ibdev_path, sizeof d->base.ibdev_path, "/sys/class/infiniband/%s", shape->name);
    return &d->base;
}

static void drop_device(struct device *d)
{
    if (!--d->uses)
        pv_free(DEVICE, d);
}

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    pv_lock();
    const int error = pv_fault(CALL_get_device_list);
    const int n = world.shape.devices;
    struct ibv_device **list = error ? NULL : calloc((size_t)n + 1, sizeof *list);
    for (int i = 0; list && i < n; i++)
        list[i] = new_device(i);
    if (count)
        *count = list ? n : 0;
    pv_unlock();
    errno = error;
    return list;
}

/* Those that are not open are gone afterwards. */
EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    pv_lock();
    (void)pv_fault(CALL_free_device_list);
    for (int i = 0; list[i]; i++)
        drop_device((struct device *)list[i]);
    pv_unlock();
    free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    pv_lock();
    const int error = pv_fault(CALL_get_device_name);
    pv_unlock();
    errno = error;
    return error ? NULL : device->name;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static struct context *open_context(struct device *d)
{
    struct context *c = pv_new(CONTEXT, sizeof *c, offsetof(struct context, object));
    if (c && !pv_queue_open(&c->events)) {
        pv_free(CONTEXT, c);
        c = NULL;
    }
    if (!c)
        return NULL;
    c->base.device = &d->base;
    c->base.cmd_fd = -1;
    c->base.async_fd = c->events.fd[0];
    c->base.num_comp_vectors = 1;
    c->base.ops.post_send = pv_post_send;
    c->base.ops.post_recv = pv_post_recv;
    c->base.ops.poll_cq = pv_poll_cq;
    c->base.ops.req_notify_cq = pv_req_notify_cq;
    d->uses++;
    pv_thread();
    return c;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct device *d = (struct device *)device;
    pv_lock();
    int error = pv_fault(CALL_open_device);
    if (!error)
        error = world.shape.device[d->index].open_error;
    errno = error;
    struct context *c = error ? NULL : open_context(d);
    pv_unlock();
    return c ? &c->base : NULL;
}

static int close_context(struct context *c)
{
    const int error = pv_fault(CALL_close_device);
    if (error)
        return error;
    if (c->uses)
        return pv_violation(EBUSY, "%s closed while %d of its objects are there", c->base.device->name, c->uses);
    drop_device((struct device *)c->base.device);
    pv_queue_close(&c->events);
    pv_free(CONTEXT, c);
    return 0;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
    pv_lock();
    const int error = close_context((struct context *)context);
    pv_unlock();
    return error;
}

/* ---- questions ------------------------------------------------------------------------------------------------- */

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    pv_lock();
    const struct provider_device *d = pv_device(context);
    const int error = pv_fault(CALL_query_device);
    if (!error)
        *attr = (struct ibv_device_attr){
            .fw_ver = "1.0",
            .node_guid = htobe64(0x0200000000000001u + (uint64_t)pv_index(context)),
            .sys_image_guid = htobe64(0x0200000000000001u + (uint64_t)pv_index(context)),
            .max_mr_size = UINT64_MAX,
            .page_size_cap = page_sizes,
            .max_qp = 1 << 16,
            .max_qp_wr = d->max_qp_wr,
            .max_sge = d->max_sge,
            .max_sge_rd = d->max_sge,
            .max_cq = 1 << 16,
            .max_cqe = d->max_cqe,
            .max_mr = 1 << 20,
            .max_pd = 1 << 16,
            .max_qp_rd_atom = d->max_rd_atomic,
            .max_qp_init_rd_atom = d->max_rd_atomic,
            .max_res_rd_atom = d->max_rd_atomic << 8,
            .max_pkeys = 1,
            .phys_port_cnt = 1,
        };
    pv_unlock();
    return error;
}

/* Only what came before port_cap_flags2: the function is older than that. */
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    pv_lock();
    const struct provider_device *d = pv_device(context);
    int error = pv_fault(CALL_query_port);
    if (!error && port != PORT)
        error = pv_violation(EINVAL, "port %d asked for; a device has port %d", port, PORT);
    if (!error) {
        const struct ibv_port_attr all = {
            .state = d->state,
            .max_mtu = IBV_MTU_4096,
            .active_mtu = d->active_mtu,
            .gid_tbl_len = PROVIDER_GIDS,
            .port_cap_flags = d->infiniband ? 0 : IBV_PORT_IP_BASED_GIDS,
            .max_msg_sz = d->max_msg_sz,
            .pkey_tbl_len = 1,
            .lid = d->infiniband ? d->lid : 0,
            .active_width = d->active_width,
            .active_speed = d->active_speed,
            .phys_state = d->state == IBV_PORT_ACTIVE ? 5 : 3,
            .link_layer = d->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
        };
        memcpy(attr, &all, offsetof(struct ibv_port_attr, port_cap_flags2));
    }
    pv_unlock();
    return error;
}

const struct provider_gid *pv_gid(int device, uint32_t index)
{
    static const struct provider_gid none;
    const struct provider_device *d = &world.shape.device[device];
    for (int i = 0; i < d->gids; i++)
        if (d->gid[i].index == index)
            return &d->gid[i];
    return index < PROVIDER_GIDS ? &none : NULL;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    pv_lock();
    int error = pv_fault(CALL_query_gid);
    const struct provider_gid *g = index < 0 ? NULL : pv_gid(pv_index(context), (uint32_t)index);
    if (!error && (port != PORT || !g))
        error = pv_violation(EINVAL, "GID %d of port %d asked for, which there cannot be", index, port);
    if (!error)
        *gid = g->gid;
    pv_unlock();
    errno = error;
    return error ? -1 : 0;
}

/* The table's own order, without what is empty. */
static ssize_t list_gids(int device, struct ibv_gid_entry *entries, size_t most)
{
    static const union ibv_gid zero;
    size_t n = 0;
    for (uint32_t i = 0; i < PROVIDER_GIDS; i++) {
        const struct provider_gid *g = pv_gid(device, i);
        if (!memcmp(&g->gid, &zero, sizeof zero))
            continue;
        if (n == most)
            return -EINVAL;
        const enum ibv_gid_type type = world.shape.device[device].infiniband ? IBV_GID_TYPE_IB : g->type;
        entries[n++] = (struct ibv_gid_entry){g->gid, i, PORT, type, g->ifindex};
    }
    return (ssize_t)n;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most,
                                    uint32_t flags, size_t entry_size)
{
    pv_lock();
    ssize_t n = -pv_fault(CALL_query_gid_table);
    if (!n && (flags || entry_size != sizeof *entries))
        n = -pv_violation(EINVAL, "GIDs asked for with flags %u and entries of %zu bytes", flags, entry_size);
    if (!n)
        n = list_gids(pv_index(context), entries, most);
    pv_unlock();
    return n;
}
