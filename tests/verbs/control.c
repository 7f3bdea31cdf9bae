/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - the world as it is at first, what a test makes of it, and what it is told. */
#include "tests/verbs/inner.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct world world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const names[CALLS] = {
#define PV_NAME(symbol, result, name, arguments) symbol,
    VERBS_FUNCTIONS(PV_NAME) VERBS_OPTIONAL(PV_NAME)
#undef PV_NAME
        "ibv_post_send",
    "ibv_post_recv",
    "ibv_poll_cq",
    "ibv_req_notify_cq",
};

/* ---- the world at first ---------------------------------------------------------------------------------------- */

static struct provider_gid gid_at(uint32_t index, enum ibv_gid_type type, const uint8_t raw[16])
{
    struct provider_gid g = {.index = index, .type = type, .ifindex = 1};
    memcpy(g.gid.raw, raw, 16);
    return g;
}

/* A port with a link-local and an IPv4 address: each is there for both versions of RoCE. */
static void shape_device(struct provider_device *d, int index)
{
    const uint8_t n = (uint8_t)(index + 1);
    const uint8_t local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, n};
    const uint8_t ip[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, n};
    *d = (struct provider_device){
        .lid = n,
        .state = IBV_PORT_ACTIVE,
        .active_mtu = IBV_MTU_1024,
        .max_msg_sz = 1u << 30,
        .max_inline = 256,
        .max_sge = PROVIDER_SGE,
        .max_qp_wr = 16384,
        .max_cqe = 1 << 20,
        .max_rd_atomic = 16,
        .relaxed_ordering = true,
        .dmabuf = true,
        .active_width = 2,
        .active_speed = 32,
        .gids = 4,
    };
    snprintf(d->name, sizeof d->name, "test%d", index);
    d->gid[0] = gid_at(0, IBV_GID_TYPE_ROCE_V1, local);
    d->gid[1] = gid_at(1, IBV_GID_TYPE_ROCE_V2, local);
    d->gid[2] = gid_at(2, IBV_GID_TYPE_ROCE_V1, ip);
    d->gid[3] = gid_at(3, IBV_GID_TYPE_ROCE_V2, ip);
}

static void begin(uint64_t seed)
{
    world.shape = (struct provider_world){.devices = 2, .hurry = 64};
    for (int i = 0; i < PROVIDER_DEVICES; i++)
        shape_device(&world.shape.device[i], i);
    world.count = (struct provider_counters){0};
    memset(world.calls, 0, sizeof world.calls);
    memset(world.fault, 0, sizeof world.fault);
    memset(world.spoilt_after, 0, sizeof world.spoilt_after);
    memset(world.fatal, 0, sizeof world.fatal);
    world.random = seed;
    /* Of no device by itself: numbers that agree by chance are no help in finding the other end. */
    const uint32_t first = 0x11 + (uint32_t)pv_random(1 << 20);
    for (int i = 0; i < PROVIDER_DEVICES; i++)
        world.next_qp[i] = first;
    world.next_key = 0x100 + 2 * (uint32_t)pv_random(1 << 20);
    world.epoch++;
    world.held = false;
    world.violations = 0;
    world.text[0] = 0;
}

static void begin_first(void) { begin(1); }

void pv_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_mutex_lock(&world.lock);
    pthread_once(&once, begin_first);
}

void pv_unlock(void) { pthread_mutex_unlock(&world.lock); }

/* ---- what all others use --------------------------------------------------------------------------------------- */

int pv_violation(int error, const char *format, ...)
{
    if (!world.violations++) {
        va_list args;
        va_start(args, format);
        vsnprintf(world.text, sizeof world.text, format, args);
        va_end(args);
    }
    return error;
}

int pv_fault(enum call call)
{
    int error = 0;
    world.calls[call]++;
    for (int i = 0; i < FAULTS; i++) {
        struct fault *f = &world.fault[i];
        if (!f->on || f->call != call)
            continue;
        if (f->after) {
            f->after--;
            continue;
        }
        error = f->error;
        f->on = !f->times || --f->times;
    }
    return error;
}

enum ibv_wc_status pv_spoil(void)
{
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    world.count.retired++;
    for (int i = 0; i < FAULTS; i++)
        if (world.spoilt_after[i] && !--world.spoilt_after[i])
            status = world.spoilt[i];
    return status;
}

/* splitmix64 */
uint64_t pv_random(uint64_t below)
{
    uint64_t z = world.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return below ? z % below : z;
}

bool pv_chance(unsigned one_in) { return world.shape.calm || !pv_random(one_in); }

uint64_t pv_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *pv_new(enum kind kind, size_t bytes, size_t object)
{
    char *self = calloc(1, bytes);
    if (!self) {
        errno = ENOMEM;
        return NULL;
    }
    struct object *o = (void *)(self + object);
    o->self = self;
    o->next = world.all[kind];
    world.all[kind] = o;
    world.alive[kind]++;
    return self;
}

void pv_free(enum kind kind, void *self)
{
    struct object **at = &world.all[kind];
    while ((*at)->self != self)
        at = &(*at)->next;
    *at = (*at)->next;
    world.alive[kind]--;
    free(self);
}

int pv_index(const struct ibv_context *context) { return ((const struct device *)context->device)->index; }

struct provider_device *pv_device(const struct ibv_context *context) { return &world.shape.device[pv_index(context)]; }

/* ---- the table ------------------------------------------------------------------------------------------------- */

/* What points to others goes first. */
static void free_all(void)
{
    while (world.all[QP])
        pv_qp_free(world.all[QP]->self);
    while (world.all[CQ])
        pv_cq_free(world.all[CQ]->self);
    while (world.all[MR])
        pv_mr_free(world.all[MR]->self);
    while (world.all[CHANNEL]) {
        struct channel *c = world.all[CHANNEL]->self;
        pv_queue_close(&c->events);
        pv_free(CHANNEL, c);
    }
    while (world.all[PD])
        pv_free(PD, world.all[PD]->self);
    while (world.all[CONTEXT]) {
        struct context *c = world.all[CONTEXT]->self;
        pv_queue_close(&c->events);
        pv_free(CONTEXT, c);
    }
    while (world.all[DEVICE])
        pv_free(DEVICE, world.all[DEVICE]->self);
}

static unsigned reset(uint64_t seed)
{
    pv_lock();
    uint64_t alive = 0;
    for (int k = 0; k < KINDS; k++)
        alive += world.alive[k];
    free_all();
    begin(seed);
    pv_unlock();
    return (unsigned)alive;
}

static void get_world(struct provider_world *out)
{
    pv_lock();
    *out = world.shape;
    pv_unlock();
}

static void set_world(const struct provider_world *shape)
{
    pv_lock();
    world.shape = *shape;
    if (!world.shape.hurry)
        world.shape.hurry = 1;
    world.epoch++;
    pv_unlock();
}

/* CALLS: there is no such function. */
static enum call call_of(const char *function)
{
    int i = 0;
    while (i < CALLS && strcmp(names[i], function))
        i++;
    return (enum call)i;
}

static bool fail_call(const char *function, unsigned nth, unsigned times, int error)
{
    const enum call call = call_of(function);
    int i = 0;
    pv_lock();
    while (i < FAULTS && world.fault[i].on)
        i++;
    const bool possible = call != CALLS && i < FAULTS && nth;
    if (possible)
        world.fault[i] = (struct fault){call, nth - 1, times, error, true};
    pv_unlock();
    return possible;
}

static unsigned calls(const char *function)
{
    const enum call call = call_of(function);
    pv_lock();
    const unsigned n = call == CALLS ? 0 : world.calls[call];
    pv_unlock();
    return n;
}

static void fail_completion(uint64_t nth, enum ibv_wc_status status)
{
    pv_lock();
    int i = 0;
    while (i < FAULTS - 1 && world.spoilt_after[i])
        i++;
    world.spoilt_after[i] = nth;
    world.spoilt[i] = status;
    pv_unlock();
}

static void raise_all(int device, enum ibv_event_type event)
{
    for (struct object *o = world.all[CONTEXT]; o; o = o->next)
        if (pv_index(o->self) == device)
            pv_async(o->self, event, NULL);
}

static void set_port(int device, enum ibv_port_state state)
{
    pv_lock();
    if (world.shape.device[device].state != state) {
        world.shape.device[device].state = state;
        world.epoch++;
        raise_all(device, state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    }
    pv_unlock();
}

static bool ends_pairs(enum ibv_event_type event)
{
    return event == IBV_EVENT_QP_FATAL || event == IBV_EVENT_QP_REQ_ERR || event == IBV_EVENT_QP_ACCESS_ERR;
}

static void raise_event(int device, enum ibv_event_type event)
{
    pv_lock();
    if (!ends_pairs(event))
        raise_all(device, event);
    world.fatal[device] |= event == IBV_EVENT_DEVICE_FATAL;
    for (struct object *o = world.all[QP]; o; o = o->next) {
        struct qp *q = o->self;
        if (q->device != device || q->state == IBV_QPS_RESET || q->state == IBV_QPS_ERR)
            continue;
        if (ends_pairs(event))
            pv_async(q->base.context, event, q);
        if (ends_pairs(event) || event == IBV_EVENT_DEVICE_FATAL)
            pv_fail(q);
    }
    pv_unlock();
}

static void silence(int device, uint32_t qp_num, bool on)
{
    pv_lock();
    for (struct object *o = world.all[QP]; o; o = o->next) {
        struct qp *q = o->self;
        if (q->device == device && (!qp_num || q->base.qp_num == qp_num))
            q->silent = on;
    }
    pv_unlock();
}

static void hold(bool on)
{
    pv_lock();
    world.held = on;
    pv_unlock();
}

static size_t queue_pairs(struct provider_qp *out, size_t most)
{
    size_t n = 0;
    pv_lock();
    for (struct object *o = world.all[QP]; o; o = o->next, n++) {
        const struct qp *q = o->self;
        if (n < most)
            out[n] = (struct provider_qp){q->device, q->base.qp_num,          q->attr.dest_qp_num,
                                          q->state,  q->sq.next - q->sq.done, q->rq.next - q->rq.done};
    }
    pv_unlock();
    return n;
}

static void counters(struct provider_counters *out)
{
    pv_lock();
    *out = world.count;
    out->devices = world.alive[DEVICE];
    out->contexts = world.alive[CONTEXT];
    out->pds = world.alive[PD];
    out->mrs = world.alive[MR];
    out->channels = world.alive[CHANNEL];
    out->cqs = world.alive[CQ];
    out->qps = world.alive[QP];
    pv_unlock();
}

static unsigned violations(char *text_out, size_t cap)
{
    pv_lock();
    const unsigned n = world.violations;
    if (cap)
        snprintf(text_out, cap, "%s", world.text);
    pv_unlock();
    return n;
}

EXPORT const struct provider_control provider_control = {
    .reset = reset,
    .get_world = get_world,
    .set_world = set_world,
    .fail_call = fail_call,
    .calls = calls,
    .fail_completion = fail_completion,
    .set_port = set_port,
    .raise = raise_event,
    .silence = silence,
    .hold = hold,
    .queue_pairs = queue_pairs,
    .counters = counters,
    .violations = violations,
};
