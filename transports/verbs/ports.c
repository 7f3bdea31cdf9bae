/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c - see ports.h. */
#include "transports/verbs/ports.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "transports/verbs/flush.h"
#include "transports/verbs/gpu.h"

enum { FIRST_LANES = 8, LEAST_LINKS = 2 }; /* for whose completions there is room at first; those of a ring */

/* ---- can it work at all? --------------------------------------------------------------------------------------- */

/* Where little memory may be locked, as much as a ring registers is tried, each link's window with each of its ports:
 * privileged users have no limit, whatever it says. */
static bool can_lock(const struct verbs_devices *d, char *why_out, size_t cap)
{
    struct rlimit limit;
    const uint32_t rails = d->usable < VERBS_RAILS ? d->usable : VERBS_RAILS;
    const size_t bytes = LEAST_LINKS * rails * sizeof(struct verbs_window);
    const struct verbs_api *api = d->api;
    uint32_t at = 0;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) ||
        limit.rlim_cur >= 2 * LEAST_LINKS * VERBS_RAILS * sizeof(struct verbs_window))
        return true;
    while (!d->port[at].usable)
        at++;
    struct ibv_pd *pd = api->alloc_pd(d->port[at].device->context);
    void *memory = ri_new_aligned(4096, bytes);
    struct ibv_mr *mr = pd && memory ? api->reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!mr)
        snprintf(why_out, cap, "locked memory is limited to %llu bytes (ulimit -l), and the links of a ring need %zu",
                 (unsigned long long)limit.rlim_cur, bytes);
    if (mr)
        (void)api->dereg_mr(mr);
    if (pd)
        (void)api->dealloc_pd(pd);
    ri_free(memory);
    return mr;
}

bool verbs_ports_usable(const struct ri_conf *conf, char *why_out, size_t cap)
{
    const struct verbs_api *api = verbs_api_load(conf->ib_library, why_out, cap);
    struct verbs_devices devices;
    if (!api)
        return false;
    if (verbs_devices_open(api, conf, &devices)) {
        snprintf(why_out, cap, "%s", ri_error_get());
        return false;
    }
    bool usable = devices.usable;
    if (usable)
        usable = can_lock(&devices, why_out, cap);
    else
        snprintf(why_out, cap, "%s", devices.why);
    verbs_devices_close(&devices);
    return usable;
}

/* Does the kernel know of devices, whatever the library can do? */
static bool there_are_devices(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool any = false;
    for (const struct dirent *e; !any && folder && (e = readdir(folder));)
        any = e->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return any;
}

/* A wrong setting keeps from the devices as well, and so do a library that is not there and names of no device. */
bool verbs_ports_blocked(const struct ri_conf *conf)
{
    char why[VERBS_WHY];
    struct verbs_devices devices;
    const struct verbs_api *api = verbs_api_load(conf->ib_library, why, sizeof why);
    if (!api)
        return there_are_devices();
    if (verbs_devices_open(api, conf, &devices))
        return true;
    bool blocked = devices.ports && devices.hca.count && !devices.hca.exclude;
    for (unsigned i = 0; i < devices.ports; i++)
        blocked |= !devices.port[i].left_out;
    verbs_devices_close(&devices);
    return blocked;
}

static void explain_port(const struct verbs_api *api, const struct verbs_port *port, FILE *out)
{
    char text[VERBS_GID_TEXT], gpu[VERBS_WHY];
    if (!port->number) {
        fprintf(out, "  %-12s %s\n", port->device->name, port->why);
        return;
    }
    fprintf(out, "  %s:%u%*s %s - %s, %u Mbit/s, MTU %d\n", port->device->name, port->number,
            (int)(strlen(port->device->name) < 10 ? 10 - strlen(port->device->name) : 0), "", port->why,
            port->attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "Ethernet", port->speed,
            128 << port->attr.active_mtu);
    for (unsigned i = 0; i < port->gids; i++)
        fprintf(out, "               GID %s\n", verbs_gid_print(&port->gid[i], text));
    if (!port->usable)
        return;
    verbs_gpu_explain(api, port->device->context, NULL, gpu, sizeof gpu);
    fprintf(out, "               memory of GPUs: %s\n", gpu);
}

void verbs_ports_explain(const struct ri_conf *conf, FILE *out)
{
    char why[VERBS_WHY];
    struct verbs_devices devices;
    const struct verbs_api *api = verbs_api_load(conf->ib_library, why, sizeof why);
    if (!api || verbs_devices_open(api, conf, &devices))
        return;
    for (unsigned i = 0; i < devices.ports; i++)
        explain_port(api, &devices.port[i], out);
    verbs_devices_close(&devices);
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static ring_status_t open_rail(struct verbs_ctx *c, struct verbs_rail *rail, const struct verbs_port *port)
{
    const struct verbs_api *api = c->api;
    const struct verbs_device *device = port->device;
    const int most = device->attr.max_cqe, wanted = FIRST_LANES * (LANE_SENDS + LANE_RECEIVES);
    *rail = (struct verbs_rail){.api = api,
                                .context = device->context,
                                .index = c->rails,
                                .port = port->number,
                                .immediate = device->immediate,
                                .fence_from = port->end.infiniband ? VERBS_EAGER : SIZE_MAX,
                                .cq_room = wanted < most ? wanted : most};
    snprintf(rail->name, sizeof rail->name, "%s port %u", device->name, port->number);
    c->rails++;
    if (!(rail->pd = api->alloc_pd(rail->context)))
        return ri_fail_errno("a protection domain on %s", rail->name);
    if (!(rail->channel = api->create_comp_channel(rail->context)))
        return ri_fail_errno("a completion channel on %s", rail->name);
    if (!(rail->cq = api->create_cq(rail->context, rail->cq_room, NULL, rail->channel, 0)))
        return ri_fail_errno("a completion queue of %d entries on %s", rail->cq_room, rail->name);
    return RING_OK;
}

ring_status_t verbs_ports_open(struct verbs_ctx *c)
{
    char why[VERBS_WHY];
    struct verbs_port *port[VERBS_PORTS];
    struct verbs_end end[VERBS_PORTS];
    if (!(c->api = verbs_api_load(c->base.conf->ib_library, why, sizeof why)))
        return ri_fail(RING_ERR_UNSUPPORTED, "no verbs: %s", why);
    ring_status_t status = verbs_devices_open(c->api, c->base.conf, &c->devices);
    if (status)
        return status;
    const unsigned n = verbs_devices_ends(&c->devices, port, end);
    if (!n)
        return ri_fail(RING_ERR_UNSUPPORTED, "no verbs: %s", c->devices.why);
    for (unsigned i = 0; i < n && !status; i++) {
        status = open_rail(c, &c->rail[i], port[i]);
        c->port[i] = port[i];
    }
    return status;
}

void verbs_ports_close(struct verbs_ctx *c)
{
    for (uint32_t i = 0; i < c->rails; i++) {
        struct verbs_rail *rail = &c->rail[i];
        verbs_flush_close(rail);
        if (rail->cq && rail->cq_events)
            c->api->ack_cq_events(rail->cq, rail->cq_events);
        if (rail->cq)
            (void)c->api->destroy_cq(rail->cq);
        if (rail->channel)
            (void)c->api->destroy_comp_channel(rail->channel);
        if (rail->pd)
            (void)c->api->dealloc_pd(rail->pd);
    }
    c->rails = 0;
    verbs_devices_close(&c->devices);
}

/* ---- what they have to say ------------------------------------------------------------------------------------- */

void verbs_ports_event(struct verbs_rail *rail)
{
    struct ibv_cq *cq;
    void *owner;
    while (!rail->api->get_cq_event(rail->channel, &cq, &owner))
        rail->cq_events++;
    if (rail->cq_events)
        rail->api->ack_cq_events(rail->cq, rail->cq_events);
    rail->cq_events = 0;
}

/* Of all links, those on this rail, or this one.  For good: what they have heard is not known, so nothing can go on
 * from there. */
static void end_lanes(struct verbs_ctx *c, const struct verbs_rail *rail, const struct ibv_qp *qp, bool for_good,
                      const char *what)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        struct verbs_lane *lane = c->entries[i].lane;
        if (!lane || lane->link->broken || !(rail ? lane->rail == rail : lane->qp == qp))
            continue;
        if (for_good)
            verbs_link_fail(lane->link, lane->rail, what);
        else
            verbs_move_lose(lane->link, lane->rail_at, what);
    }
}

void verbs_ports_break(struct verbs_ctx *c, const struct verbs_rail *rail, const char *why)
{
    end_lanes(c, rail, NULL, true, why);
}

static void hear(struct verbs_ctx *c, const struct ibv_context *context, const struct ibv_async_event *event)
{
    const char *text = c->api->event_type_str(event->event_type);
    for (uint32_t i = 0; i < c->rails; i++) {
        struct verbs_rail *rail = &c->rail[i];
        if (rail->context != context)
            continue;
        if (event->event_type == IBV_EVENT_DEVICE_FATAL || event->event_type == IBV_EVENT_CQ_ERR)
            verbs_ports_break(c, rail, text);
        if (event->event_type == IBV_EVENT_PORT_ERR && event->element.port_num == rail->port)
            end_lanes(c, rail, NULL, false, text);
    }
    if (event->event_type == IBV_EVENT_QP_FATAL || event->event_type == IBV_EVENT_QP_REQ_ERR ||
        event->event_type == IBV_EVENT_QP_ACCESS_ERR)
        end_lanes(c, NULL, event->element.qp, event->event_type != IBV_EVENT_QP_FATAL, text);
}

void verbs_ports_trouble(struct verbs_ctx *c, struct verbs_rail *rail)
{
    struct ibv_async_event event;
    while (!c->api->get_async_event(rail->context, &event)) {
        ri_log(RI_LOG_INFO, "%s: %s", rail->name, c->api->event_type_str(event.event_type));
        hear(c, rail->context, &event);
        c->api->ack_async_event(&event);
    }
}
