/* SPDX-License-Identifier: Apache-2.0 */
/* api.c - the exported functions: validate, delegate.
 *
 * A communicator belongs to one thread at a time: enter() and leave() mark the time inside, so that a second thread is
 * told instead of doing harm. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/comm/comm.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *ring_version(void) { return VERSION(RING_VERSION_MAJOR, RING_VERSION_MINOR, RING_VERSION_PATCH); }

const char *ring_last_error(void) { return ri_error_get(); }

size_t ring_dtype_size(ring_dtype_t dtype) { return ri_dtype_size(dtype); }
int ring_redop_fits(ring_dtype_t dtype, ring_redop_t redop) { return ri_redop_fits(dtype, redop); }
const char *ring_dtype_str(ring_dtype_t dtype) { return ri_dtype_name(dtype); }
const char *ring_redop_str(ring_redop_t redop) { return ri_redop_name(redop); }

static const char *const colls[] = {
    [RING_ALL_REDUCE] = "all_reduce",
    [RING_REDUCE] = "reduce",
    [RING_BROADCAST] = "broadcast",
    [RING_REDUCE_SCATTER] = "reduce_scatter",
    [RING_ALL_GATHER] = "all_gather",
    [RING_ALL_TO_ALL] = "all_to_all",
    [RING_GATHER] = "gather",
    [RING_SCATTER] = "scatter",
    [RING_BARRIER] = "barrier",
    [RING_SEND] = "send",
    [RING_RECV] = "recv",
    [RING_REDUCE_SCATTERV] = "reduce_scatterv",
    [RING_ALL_GATHERV] = "all_gatherv",
    [RING_ALL_TO_ALLV] = "all_to_allv",
    [RING_GATHERV] = "gatherv",
    [RING_SCATTERV] = "scatterv",
};

const char *ring_coll_str(ring_coll_t coll)
{
    return (unsigned)coll < sizeof colls / sizeof *colls ? colls[coll] : NULL;
}

/* ---- who may come in ------------------------------------------------------------------------------------------- */

static ring_status_t enter(ring_comm_t *c)
{
    if (!c)
        return ri_fail(RING_ERR_INVALID, "the communicator is NULL");
    if (c->generation != ri_comm_generation())
        return ri_fail(RING_ERR_STATE,
                       "this communicator belongs to the parent process: it cannot be used after fork()");
    if (atomic_exchange_explicit(&c->busy, 1, memory_order_acquire))
        return ri_fail(RING_ERR_BUSY, "another thread is inside a call on this communicator");
    return RING_OK;
}

static void leave(ring_comm_t *c) { atomic_store_explicit(&c->busy, 0, memory_order_release); }

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
    const ring_status_t status = ri_comm_create(boot, conf, deadline, comm_out);
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
    const ring_status_t status = enter(c);
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

/* ---- collectives ----------------------------------------------------------------------------------------------- */

static ring_status_t check_types(ring_dtype_t dtype, ring_redop_t redop)
{
    if (!ri_dtype_ok(dtype))
        return ri_fail(RING_ERR_INVALID, "dtype %d is none of ring_dtype_t (0 to %d)", (int)dtype, RI_DTYPES - 1);
    if (!ri_redop_ok(redop))
        return ri_fail(RING_ERR_INVALID, "redop %d is none of ring_redop_t (0 to %d)", (int)redop, RI_REDOPS - 1);
    if (!ri_redop_fits(dtype, redop))
        return ri_fail(RING_ERR_INVALID, "%s is for integers, not for %s: that takes sum, prod, min, max and avg",
                       ri_redop_name(redop), ri_dtype_name(dtype));
    return RING_OK;
}

static ring_status_t check_buffers(const void *src, const void *dst, size_t count, size_t esize)
{
    size_t bytes;
    const uintptr_t s = (uintptr_t)src, d = (uintptr_t)dst;
    if (!count)
        return RING_OK;
    if (!src || !dst)
        return ri_fail(RING_ERR_INVALID, "%s is NULL for a count of %zu", src ? "dst" : "src", count);
    if (__builtin_mul_overflow(count, esize, &bytes) || bytes > SIZE_MAX / 2)
        return ri_fail(RING_ERR_INVALID, "a count of %zu elements of %zu bytes is more than memory can hold", count,
                       esize);
    if ((s | d) % esize)
        return ri_fail(RING_ERR_INVALID, "%s is not aligned to its element of %zu bytes", s % esize ? "src" : "dst",
                       esize);
    if (s != d && s < d + bytes && d < s + bytes)
        return ri_fail(RING_ERR_INVALID, "src and dst overlap by %zu bytes: they must be equal or apart",
                       s < d ? s + bytes - d : d + bytes - s);
    return RING_OK;
}

ring_status_t ring_comm_choice(ring_comm_t *c, ring_coll_t coll, size_t count, ring_dtype_t dtype, ring_redop_t redop,
                               ring_choice_t *choice_out)
{
    if (!choice_out)
        return ri_fail(RING_ERR_INVALID, "choice_out is NULL");
    if (!ring_coll_str(coll))
        return ri_fail(RING_ERR_INVALID, "coll %d is none of ring_coll_t", (int)coll);
    ring_status_t status = check_types(dtype, redop);
    if (status || (status = enter(c)))
        return status;
    struct ri_coll_args args;
    if (c->size == 1)
        *choice_out = (ring_choice_t){.algorithm = "copy", .transport = "self"};
    else if (c->node)
        *choice_out = (ring_choice_t){.algorithm = "node", .transport = "shm"};
    else
        *choice_out = (ring_choice_t){
            .algorithm = ri_program_choose(c, coll, count, (uint32_t)ring_dtype_size(dtype), &args)->name,
            .transport = c->wires.names};
    leave(c);
    return RING_OK;
}

/* What blocking and started calls have in common: on RING_OK the communicator is entered and *call_out is ready. */
static ring_status_t admit(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                           ring_redop_t redop, struct ri_call *call_out)
{
    ring_status_t status = check_types(dtype, redop);
    if (status || (status = check_buffers(src, dst, count, ring_dtype_size(dtype))) || (status = enter(c)))
        return status;
    if (ri_comm_broken(c)) {
        status = ri_comm_verdict(c);
        leave(c);
        return status;
    }
    *call_out = (struct ri_call){
        .coll = RING_ALL_REDUCE, .dtype = dtype, .redop = redop, .src = src, .dst = dst, .count = count};
    return RING_OK;
}

ring_status_t ring_all_reduce(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                              ring_redop_t redop)
{
    struct ri_call call;
    ring_status_t status = admit(c, src, dst, count, dtype, redop, &call);
    if (status)
        return status;
    status = ri_op_run(c, &call);
    leave(c);
    return status;
}

ring_status_t ring_all_reduce_start(ring_comm_t *c, const void *src, void *dst, size_t count, ring_dtype_t dtype,
                                    ring_redop_t redop, ring_op_t **op_out)
{
    struct ri_call call;
    if (!op_out)
        return ri_fail(RING_ERR_INVALID, "op_out is NULL");
    ring_status_t status = admit(c, src, dst, count, dtype, redop, &call);
    if (status)
        return status;
    status = ri_op_start(c, &call, op_out);
    leave(c);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

/* Its communicator was destroyed, which completed it. */
static ring_status_t outlived(const ring_op_t *op)
{
    return op->status ? ri_fail(op->status, "the operation failed before its communicator was destroyed") : RING_OK;
}

ring_status_t ring_op_test(ring_op_t *op, int *done_out)
{
    if (!op || !done_out)
        return ri_fail(RING_ERR_INVALID, "%s is NULL", op ? "done_out" : "the operation");
    ring_comm_t *c = op->comm;
    if (!c) {
        *done_out = 1;
        return outlived(op);
    }
    ring_status_t status = enter(c);
    if (status)
        return status;
    status = ri_op_test(op, done_out);
    leave(c);
    return status;
}

ring_status_t ring_op_wait(ring_op_t *op)
{
    if (!op)
        return ri_fail(RING_ERR_INVALID, "the operation is NULL");
    ring_comm_t *c = op->comm;
    if (!c)
        return outlived(op);
    ring_status_t status = enter(c);
    if (status)
        return status;
    status = ri_op_wait(op);
    leave(c);
    return status;
}

void ring_op_free(ring_op_t *op)
{
    if (!op)
        return;
    if (op->done) {
        ri_op_free(op);
        return;
    }
    if (ring_op_wait(op) != RING_ERR_BUSY)
        ri_op_free(op);
}
