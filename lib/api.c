/* SPDX-License-Identifier: Apache-2.0 */
/* api.c - the exported functions: validate, delegate.
 *
 * A communicator belongs to one thread at a time: enter() and leave() mark the time inside, so that a second thread is
 * told instead of doing harm. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/api.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *ring_version(void) { return VERSION(RING_VERSION_MAJOR, RING_VERSION_MINOR, RING_VERSION_PATCH); }

const char *ring_last_error(void) { return ri_error_get(); }

size_t ring_dtype_size(ring_dtype_t dtype) { return ri_dtype_size(dtype); }
int ring_redop_fits(ring_dtype_t dtype, ring_redop_t redop) { return ri_redop_fits(dtype, redop); }
const char *ring_dtype_str(ring_dtype_t dtype) { return ri_dtype_name(dtype); }
const char *ring_redop_str(ring_redop_t redop) { return ri_redop_name(redop); }

/* ---- communicators --------------------------------------------------------------------------------------------- */

static ring_status_t load_settings(struct ri_conf *conf)
{
    ring_status_t status = ri_conf_load(conf);
    if (!status)
        status = ri_wires_check(conf);
    if (!status)
        ri_log_set_level((enum ri_log_level)conf->log);
    return status;
}

static ring_status_t create(struct ri_boot *boot, const struct ri_conf *conf, uint64_t deadline, ring_comm_t **comm_out)
{
    ri_log_set_rank(boot->rank);
    const ring_status_t status = ri_comm_create(boot, conf, NULL, deadline, comm_out);
    boot->ops->close(boot);
    return status;
}

ring_status_t ring_comm_create(ring_comm_t **comm_out)
{
    struct ri_conf conf;
    struct ri_boot *boot;
    if (!comm_out)
        return ri_fail(RING_ERR_INVALID, "comm_out is NULL");
    ring_status_t status = load_settings(&conf);
    const uint64_t deadline = status ? 0 : ri_deadline(conf.timeout);
    if (!status)
        status = ri_boot_open(&conf, deadline, &boot);
    return status ? status : create(boot, &conf, deadline, comm_out);
}

ring_status_t ring_uid_create(ring_uid_t *uid_out)
{
    struct ri_conf conf;
    if (!uid_out)
        return ri_fail(RING_ERR_INVALID, "uid_out is NULL");
    const ring_status_t status = load_settings(&conf);
    return status ? status : ri_uid_create(&conf, uid_out);
}

ring_status_t ring_comm_create_uid(const ring_uid_t *uid, uint32_t rank, uint32_t size, ring_comm_t **comm_out)
{
    struct ri_conf conf;
    struct ri_boot *boot;
    if (!uid || !comm_out)
        return ri_fail(RING_ERR_INVALID, "%s is NULL", uid ? "comm_out" : "uid");
    if (rank >= size)
        return ri_fail(RING_ERR_INVALID, "rank %u is not below size %u", rank, size);
    if (!memchr(uid->text, '\0', sizeof uid->text))
        return ri_fail(RING_ERR_INVALID, "the ticket has no end: it must be a text of at most %zu bytes",
                       sizeof uid->text - 1);
    ring_status_t status = load_settings(&conf);
    const uint64_t deadline = status ? 0 : ri_deadline(conf.timeout);
    if (!status)
        status = ri_boot_open_uid(&conf, uid, rank, size, deadline, &boot);
    return status ? status : create(boot, &conf, deadline, comm_out);
}

ring_status_t ring_comm_destroy(ring_comm_t *c)
{
    if (!c)
        return RING_OK;
    const ring_status_t status = ri_enter(c);
    return status ? status : ri_comm_destroy(c);
}

void ring_comm_abort(ring_comm_t *c, const char *reason)
{
    if (!c || c->generation != ri_comm_generation())
        return;
    ri_comm_raise(c, RING_ERR_ABORTED, c->rank, "%s aborted the communicator: %.200s", ri_comm_name(c, c->rank),
                  reason ? reason : "no reason given");
}

uint32_t ring_comm_rank(const ring_comm_t *c) { return c->rank; }
uint32_t ring_comm_size(const ring_comm_t *c) { return c->size; }
uint32_t ring_comm_local_rank(const ring_comm_t *c) { return c->local_rank; }
uint32_t ring_comm_local_size(const ring_comm_t *c) { return c->local_size; }
uint32_t ring_comm_node(const ring_comm_t *c) { return c->node_index; }
uint32_t ring_comm_node_count(const ring_comm_t *c) { return c->nodes; }

/* Copying a failure from the board is all that changes, and that is locked. */
const char *ring_comm_error(const ring_comm_t *c)
{
    const struct ri_failure *f = ri_comm_failure((ring_comm_t *)(uintptr_t)c);
    return f ? f->text : "";
}

ring_status_t ring_comm_peer(const ring_comm_t *c, uint32_t rank, ring_peer_t *peer_out)
{
    if (!c || !peer_out)
        return ri_fail(RING_ERR_INVALID, "%s is NULL", c ? "peer_out" : "the communicator");
    if (rank >= c->size)
        return ri_fail(RING_ERR_INVALID, "rank %u is not below size %u", rank, c->size);
    const struct ri_peer *p = &c->peer[rank];
    *peer_out = (ring_peer_t){.rank = rank, .node = p->node, .local_rank = p->local_rank, .pid = p->pid};
    snprintf(peer_out->host, sizeof peer_out->host, "%s", p->host.name);
    return RING_OK;
}

ring_status_t ring_comm_split(ring_comm_t *c, int32_t color, int32_t key, ring_comm_t **comm_out)
{
    if (!comm_out)
        return ri_fail(RING_ERR_INVALID, "comm_out is NULL");
    if (color < RING_NO_COLOR)
        return ri_fail(RING_ERR_INVALID, "color %d is neither 0 or more nor RING_NO_COLOR (%d)", (int)color,
                       RING_NO_COLOR);
    ring_status_t status = ri_enter_idle(c, "ring_comm_split()");
    if (status)
        return status;
    status = ri_comm_split(c, color, key, comm_out);
    ri_leave(c);
    return status;
}

ring_status_t ring_comm_duplicate(ring_comm_t *c, ring_comm_t **comm_out)
{
    return ring_comm_split(c, 0, c ? (int32_t)c->rank : 0, comm_out);
}

/* ---- operations of the caller's own ---------------------------------------------------------------------------- */

static ring_status_t make_redop(ring_comm_t *c, const struct ri_made_op *op, ring_redop_t *redop_out)
{
    ring_status_t status = redop_out ? ri_enter(c) : ri_fail(RING_ERR_INVALID, "redop_out is NULL");
    if (status)
        return status;
    status = ri_redop_make(c, op, redop_out);
    ri_leave(c);
    return status;
}

ring_status_t ring_redop_create(ring_comm_t *c, ring_reduce_fn *fn, void *context, ring_redop_t *redop_out)
{
    if (!fn)
        return ri_fail(RING_ERR_INVALID, "fn is NULL");
    return make_redop(c, &(struct ri_made_op){.fn = fn, .context = context}, redop_out);
}

ring_status_t ring_redop_create_premul(ring_comm_t *c, const void *scalar, ring_dtype_t dtype, ring_redop_t *redop_out)
{
    struct ri_made_op op = {.dtype = dtype};
    if (!scalar || !ri_dtype_ok(dtype))
        return scalar
                   ? ri_fail(RING_ERR_INVALID, "dtype %d is none of ring_dtype_t (0 to %d)", (int)dtype, RI_DTYPES - 1)
                   : ri_fail(RING_ERR_INVALID, "scalar is NULL");
    memcpy(op.scalar, scalar, ri_dtype_size(dtype));
    return make_redop(c, &op, redop_out);
}

ring_status_t ring_redop_destroy(ring_comm_t *c, ring_redop_t redop)
{
    ring_status_t status = ri_enter(c);
    if (status)
        return status;
    status = ri_redop_drop(c, redop);
    ri_leave(c);
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

ring_status_t ring_mem_alloc(size_t bytes, void **ptr_out)
{
    return ptr_out ? ri_heap_alloc(bytes, ptr_out) : ri_fail(RING_ERR_INVALID, "ptr_out is NULL");
}

ring_status_t ring_mem_free(void *ptr) { return ri_heap_free(ptr); }

ring_status_t ring_mem_register(void *ptr, size_t bytes) { return ri_heap_register(ptr, bytes); }

ring_status_t ring_mem_deregister(void *ptr) { return ri_heap_deregister(ptr); }
