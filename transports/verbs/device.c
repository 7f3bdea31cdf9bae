/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - see device.h. */
#include "transports/verbs/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"

#define REASON(to, ...) snprintf((to), VERBS_WHY, __VA_ARGS__)

/* ---- ports ----------------------------------------------------------------------------------------------------- */

/* The values of the link's speed and width are bits, of which one is set. */
static uint32_t speed_of(const struct ibv_port_attr *a)
{
    static const uint32_t lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000}; /* Mbit/s */
    static const uint32_t lanes[] = {1, 4, 8, 12, 2};
    const unsigned speed = a->active_speed ? (unsigned)__builtin_ctz(a->active_speed) : 0;
    const unsigned width = a->active_width ? (unsigned)__builtin_ctz(a->active_width) : 0;
    return lane[speed] * (width < sizeof lanes / sizeof *lanes ? lanes[width] : 1);
}

static const char *state_of(enum ibv_port_state state)
{
    switch (state) {
    case IBV_PORT_DOWN:
        return "the port is down";
    case IBV_PORT_INIT:
    case IBV_PORT_ARMED:
        return "the port has a link, but no subnet manager has made it active";
    default:
        return "the port is not active";
    }
}

static bool is_infiniband(const struct verbs_port *p) { return p->attr.link_layer != IBV_LINK_LAYER_ETHERNET; }

static bool wants_grh(const struct verbs_port *p) { return p->attr.flags & IBV_QPF_GRH_REQUIRED; }

static void fill_end(struct verbs_port *p)
{
    struct verbs_end *e = &p->end;
    memcpy(e->device, p->device->name, sizeof e->device);
    memcpy(&e->guid, &p->device->attr.node_guid, sizeof e->guid);
    e->port = p->number;
    e->infiniband = is_infiniband(p);
    e->grh = wants_grh(p);
    e->immediate = p->device->immediate;
    e->mtu = (uint8_t)p->attr.active_mtu;
    e->lid = p->attr.lid;
    e->speed = p->speed;
    e->max_message = p->attr.max_msg_sz;
}

/* RoCE, and the best of its GIDs is: every port that is up has such a one, whatever it is connected to. */
static bool is_local(const struct verbs_port *p)
{
    return !is_infiniband(p) && p->device->immediate && p->end.gids &&
           verbs_gid_class(&p->end.gid[0]) == VERBS_GID_LINK_LOCAL;
}

/* A usable port's reason. */
static void praise(struct verbs_port *p)
{
    char first[VERBS_GID_TEXT] = "";
    const bool local = is_local(p);
    if (p->end.gids)
        verbs_gid_print(&p->end.gid[0], first);
    REASON(p->why, "active, %s, %u Mbit/s%s%s%s%s",
           is_infiniband(p)       ? "InfiniBand"
           : p->device->immediate ? "RoCE"
                                  : "iWARP, so no write with immediate data",
           p->speed, local ? "; no GID but link-local ones" : "", first[0] ? "; " : "", first,
           p->end.gids > 1 ? " and others" : "");
}

static bool ask(struct verbs_devices *d, struct verbs_port *p)
{
    struct ibv_port_attr attr = {0};
    p->gids = 0;
    p->end = (struct verbs_end){.port = 0};
    const int error = d->api->query_port(p->device->context, p->number, &attr);
    p->attr = attr;
    p->speed = speed_of(&attr);
    if (error)
        REASON(p->why, "it does not tell its state: %s", strerror(error > 0 ? error : errno));
    else if (attr.state != IBV_PORT_ACTIVE)
        REASON(p->why, "%s", state_of(attr.state));
    else if (attr.active_mtu < IBV_MTU_256 || attr.active_mtu > IBV_MTU_4096)
        REASON(p->why, "its MTU is none: %d", (int)attr.active_mtu);
    else if (is_infiniband(p) && !attr.lid && !wants_grh(p))
        REASON(p->why, "it has no LID: no subnet manager has given it one");
    else
        return true;
    return false;
}

/* The places of all ports, which the library wants to know. */
static size_t places_of(struct verbs_devices *d, const struct verbs_port *p)
{
    size_t most = 0;
    for (unsigned n = 1; n <= p->device->attr.phys_port_cnt; n++) {
        struct ibv_port_attr attr = {0};
        if (!d->api->query_port(p->device->context, (uint8_t)n, &attr) && attr.gid_tbl_len > 0)
            most += (size_t)attr.gid_tbl_len;
    }
    return most;
}

/* As far as one can tell, so it is for those who ask for it. */
static bool leads_nowhere(const struct verbs_devices *d, struct verbs_port *p)
{
    const bool iwarp = !p->device->immediate && !d->named, local = is_local(p) && !d->local;
    if (iwarp)
        REASON(p->why, "iWARP, whose drivers connect queue pairs by rdma_cm alone; only RING_TRANSPORT=verbs tries it");
    else if (local)
        REASON(p->why, "no GID but link-local ones, since its network interface has no address; only "
                       "RING_TRANSPORT=verbs uses them");
    p->end.gids = iwarp || local ? 0 : p->end.gids;
    return iwarp || local;
}

static bool read_port(struct verbs_devices *d, struct verbs_port *p)
{
    p->left_out = p->number ? !verbs_hca_wanted(&d->hca, p->device->name, p->number) : p->device->left_out;
    if (!p->number)
        REASON(p->why, "%s", p->device->why);
    else if (p->left_out)
        REASON(p->why, "excluded by RING_IB_HCA");
    else if (ask(d, p)) {
        p->gids = verbs_gid_read(d->api, p->device->context, p->number, &p->attr, places_of(d, p), p->gid);
        fill_end(p);
        p->end.gids = verbs_gid_usable(p->gid, p->gids, d->gid_index, d->family, p->end.gid, p->why);
        if (!p->end.gids || leads_nowhere(d, p))
            return false;
        praise(p);
        return true;
    }
    return false;
}

/* The first ports' reasons, as many as there is room for. */
static void explain(struct verbs_devices *d)
{
    int at = 0;
    for (unsigned i = 0; i < d->ports && at < VERBS_WHY - 40; i++) {
        const struct verbs_port *p = &d->port[i];
        char number[8] = "";
        if (p->number)
            snprintf(number, sizeof number, ":%u", p->number);
        at += snprintf(d->why + at, (size_t)(VERBS_WHY - at), "%s%s%s: %s", at ? "; " : "", p->device->name, number,
                       p->why);
    }
}

static void count_usable(struct verbs_devices *d)
{
    d->usable = 0;
    for (unsigned i = 0; i < d->ports; i++)
        d->usable += d->port[i].usable;
    if (d->usable)
        d->why[0] = '\0';
    else if (d->ports)
        explain(d);
}

bool verbs_port_read(struct verbs_devices *d, struct verbs_port *port)
{
    port->usable = read_port(d, port);
    count_usable(d);
    return port->usable;
}

/* ---- devices --------------------------------------------------------------------------------------------------- */

static void refused(struct verbs_device *v, const struct ibv_device *device, int error)
{
    if (error == EACCES || error == EPERM)
        REASON(v->why, "permission denied: /dev/infiniband/%.63s", device->dev_name);
    else if (error == ENOENT || error == ENODEV || error == ENXIO)
        REASON(v->why, "there is no /dev/infiniband/%.63s: %s", device->dev_name, strerror(error));
    else
        REASON(v->why, "it cannot be opened: %s", error ? strerror(error) : "the library gives no reason");
}

/* Reliable connections: other kinds of devices (usNIC, EFA) do not have them. */
static bool is_connected(const struct ibv_device *device)
{
    return device->transport_type == IBV_TRANSPORT_IB || device->transport_type == IBV_TRANSPORT_IWARP;
}

static void open_one(struct verbs_devices *d, struct ibv_device *device, struct verbs_device *v)
{
    const char *name = d->api->get_device_name(device);
    snprintf(v->name, sizeof v->name, "%s", name ? name : "");
    v->immediate = device->transport_type != IBV_TRANSPORT_IWARP && device->node_type != IBV_NODE_RNIC;
    const bool wanted = verbs_hca_wanted(&d->hca, v->name, 0);
    v->left_out = !wanted || !is_connected(device);
    if (v->left_out) {
        REASON(v->why, "%s", wanted ? "it has no reliable connections" : "excluded by RING_IB_HCA");
        return;
    }
    errno = 0;
    v->context = d->api->open_device(device);
    if (!v->context) {
        refused(v, device, errno);
        return;
    }
    const int error = d->api->query_device(v->context, &v->attr);
    if (!error)
        return;
    REASON(v->why, "it does not tell its limits: %s", strerror(error > 0 ? error : errno));
    d->api->close_device(v->context);
    v->context = NULL;
}

static ring_status_t open_all(struct verbs_devices *d, struct ibv_device **list, int count)
{
    size_t ports = 0;
    d->device = ri_new((size_t)count, sizeof *d->device);
    if (!d->device)
        return ri_fail(RING_ERR_NOMEM, "no memory for %d RDMA devices", count);
    for (; d->devices < (unsigned)count; d->devices++) {
        open_one(d, list[d->devices], &d->device[d->devices]);
        ports += d->device[d->devices].context ? d->device[d->devices].attr.phys_port_cnt : 1;
    }
    d->port = ri_new(ports, sizeof *d->port);
    if (!d->port)
        return ri_fail(RING_ERR_NOMEM, "no memory for the ports of %d RDMA devices", count);
    for (unsigned i = 0; i < d->devices; i++) {
        struct verbs_device *v = &d->device[i];
        const unsigned last = v->context ? v->attr.phys_port_cnt : 0;
        for (unsigned n = v->context ? 1 : 0; n <= last; n++) {
            struct verbs_port *p = &d->port[d->ports++];
            p->device = v;
            p->number = (uint8_t)n;
            p->usable = read_port(d, p);
        }
    }
    return RING_OK;
}

static ring_status_t settings_of(const struct ri_conf *conf, struct verbs_devices *d)
{
    const ring_status_t status = verbs_hca_parse(conf->ib_hca, &d->hca);
    d->family = conf->family;
    d->named = !ri_conf_is_auto(conf->transport);
    d->local = d->named || !ri_conf_is_auto(conf->ib_gid_index);
    return status ? status : verbs_gid_index(conf->ib_gid_index, &d->gid_index);
}

static void no_list(struct verbs_devices *d, bool empty, int error)
{
    if (empty)
        REASON(d->why, "there is no RDMA device");
    else if (error == ENOSYS)
        REASON(d->why, "the kernel has no RDMA (module ib_uverbs)");
    else
        REASON(d->why, "the RDMA devices cannot be listed: %s", strerror(error));
}

ring_status_t verbs_devices_open(const struct verbs_api *api, const struct ri_conf *conf,
                                 struct verbs_devices *devices_out)
{
    int count = 0;
    *devices_out = (struct verbs_devices){.api = api};
    ring_status_t status = settings_of(conf, devices_out);
    if (status)
        return status;
    errno = 0;
    struct ibv_device **list = api->get_device_list(&count);
    if (!list || count <= 0)
        no_list(devices_out, list, errno);
    else
        status = open_all(devices_out, list, count);
    /* An open device stays what it is without the list. */
    if (list)
        api->free_device_list(list);
    if (status)
        verbs_devices_close(devices_out);
    else
        count_usable(devices_out);
    return status;
}

void verbs_devices_close(struct verbs_devices *d)
{
    for (unsigned i = 0; i < d->devices; i++)
        if (d->device[i].context)
            d->api->close_device(d->device[i].context);
    ri_free(d->port);
    ri_free(d->device);
    *d = (struct verbs_devices){0};
}

unsigned verbs_devices_ends(struct verbs_devices *d, struct verbs_port *port_out[VERBS_PORTS],
                            struct verbs_end end_out[VERBS_PORTS])
{
    unsigned n = 0;
    for (unsigned i = 0; i < d->ports && n < VERBS_PORTS; i++)
        if (d->port[i].usable) {
            port_out[n] = &d->port[i];
            end_out[n++] = d->port[i].end;
        }
    return n;
}

/* ---- limits ---------------------------------------------------------------------------------------------------- */

ring_status_t verbs_locked_memory(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return ri_fail(RING_ERR_NOMEM,
                       "the RDMA device has no room to register %zu bytes; locked memory is not limited", bytes);
    return ri_fail(RING_ERR_LIMIT, "locked memory is limited to %llu bytes (ulimit -l), and %zu are needed%s",
                   (unsigned long long)limit.rlim_cur, bytes,
                   limit.rlim_cur < bytes ? "" : " beside what is locked already");
}
