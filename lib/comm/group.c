/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - calls that are noted first and then run side by side.
 *
 * Small all-reduces that follow each other (messages between do not count, as they differ from rank to rank) and have
 * one type and one operation are packed into one: a latency instead of many.  All ranks note the same collectives, so
 * all pack alike.  Memory: noted operations belong to the group until it has ended; the list of them is kept. */
#include "lib/comm/comm.h"

#include <string.h>

#include "lib/base/mem.h"

enum { PACK_EACH = 8 << 10, PACK_ALL = 64 << 10 }; /* bytes */

struct ri_noted {
    struct ring_op *op;
    struct ring_op *pack; /* what it and the members - 1 all-reduces behind it travel in */
    uint32_t members;
    bool travels; /* in a pack */
};

ring_status_t ri_group_note(struct ring_comm *c, struct ring_op *one, struct ring_op *other)
{
    if (c->group.room - c->group.count < 2) {
        const uint32_t room = c->group.room ? 2 * c->group.room : 16;
        struct ri_noted *p = ri_resize(c->group.noted, room, sizeof *p);
        if (!p)
            return ri_fail(RING_ERR_NOMEM, "no memory for a group of %u calls", room);
        c->group.noted = p;
        c->group.room = room;
    }
    c->group.noted[c->group.count++] = (struct ri_noted){.op = one};
    if (other)
        c->group.noted[c->group.count++] = (struct ri_noted){.op = other};
    return RING_OK;
}

static void drop_pack(struct ri_noted *n)
{
    if (!n->pack)
        return;
    void *memory = n->pack->call.dst;
    ri_op_discard(n->pack);
    ri_free(memory);
    n->pack = NULL;
}

static void drop_all(struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->group.count; i++) {
        drop_pack(&c->group.noted[i]);
        ri_op_discard(c->group.noted[i].op);
    }
    c->group.count = 0;
}

void ri_group_close(struct ring_comm *c)
{
    drop_all(c);
    ri_free(c->group.noted);
    c->group.noted = NULL;
    c->group.room = 0;
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct ring_op *op) { return op->call.count * ring_dtype_size(op->call.dtype); }

static bool is_message(const struct ring_op *op) { return op->call.coll == RING_SEND || op->call.coll == RING_RECV; }

static bool packs(const struct ring_op *op)
{
    return op->call.coll == RING_ALL_REDUCE && op->call.count && bytes_of(op) <= PACK_EACH;
}

/* The collective behind noted i; count when there is none. */
static uint32_t next_collective(const struct ring_comm *c, uint32_t i)
{
    do
        i++;
    while (i < c->group.count && is_message(c->group.noted[i].op));
    return i;
}

/* How many all-reduces from noted `first` on travel together; *count_out: their elements. */
static uint32_t count_alike(const struct ring_comm *c, uint32_t first, size_t *count_out)
{
    const struct ring_op *lead = c->group.noted[first].op;
    uint32_t n = 0;
    size_t bytes = 0;
    *count_out = 0;
    for (uint32_t i = first; i < c->group.count; i = next_collective(c, i)) {
        const struct ring_op *op = c->group.noted[i].op;
        if (!packs(op) || op->call.dtype != lead->call.dtype || op->call.redop != lead->call.redop ||
            (bytes += bytes_of(op)) > PACK_ALL)
            break;
        *count_out += op->call.count;
        n++;
    }
    return n;
}

/* Copy between the members of the pack that noted `first` leads and its memory. */
static void copy_members(struct ring_comm *c, uint32_t first, bool in)
{
    struct ri_noted *lead = &c->group.noted[first];
    char *memory = lead->pack->call.dst;
    for (uint32_t i = first, n = lead->members; n; n--, i = next_collective(c, i)) {
        struct ring_op *op = c->group.noted[i].op;
        if (in)
            memcpy(memory, op->call.src, bytes_of(op));
        else
            memcpy(op->call.dst, memory, bytes_of(op));
        memory += bytes_of(op);
        c->group.noted[i].travels = true;
    }
}

static ring_status_t make_pack(struct ring_comm *c, uint32_t first, uint32_t members, size_t count)
{
    struct ri_noted *lead = &c->group.noted[first];
    ring_status_t status = ri_op_new(c, RING_ALL_REDUCE, &lead->pack);
    if (status)
        return status;
    struct ri_call *call = &lead->pack->call;
    *call = lead->op->call;
    call->count = count;
    call->src = call->dst = ri_new_aligned(64, count * ring_dtype_size(call->dtype));
    if (!call->dst)
        return ri_fail(RING_ERR_NOMEM, "no memory for a pack of %u all-reduces", members);
    lead->members = members;
    copy_members(c, first, true);
    return ri_op_prepare(c, lead->pack);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

/* Everything that can fail comes before anything is begun. */
static ring_status_t prepare_all(struct ring_comm *c)
{
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < c->group.count && !status; i++) {
        struct ri_noted *n = &c->group.noted[i];
        size_t count;
        if (n->travels)
            continue;
        const uint32_t alike = is_message(n->op) ? 0 : count_alike(c, i, &count);
        status = alike > 1 ? make_pack(c, i, alike, count) : ri_op_prepare(c, n->op);
    }
    return status;
}

static ring_status_t wait_all(struct ring_comm *c)
{
    ring_status_t first = RING_OK;
    for (uint32_t i = 0; i < c->group.count; i++) {
        struct ri_noted *n = &c->group.noted[i];
        struct ring_op *op = n->pack ? n->pack : n->op;
        if (n->travels && !n->pack)
            continue;
        const ring_status_t status = ri_op_wait(op);
        if (!op->done)
            ri_self_forget(c, op); /* met nothing in the group: the call is taken back */
        if (!status && n->pack)
            copy_members(c, i, false);
        first = first ? first : status;
    }
    return first;
}

ring_status_t ri_group_end(struct ring_comm *c)
{
    ring_status_t status = prepare_all(c);
    for (uint32_t i = 0; i < c->group.count && !status; i++) {
        struct ri_noted *n = &c->group.noted[i];
        if (n->pack || !n->travels)
            ri_op_launch(c, n->pack ? n->pack : n->op);
    }
    if (!status)
        status = wait_all(c);
    drop_all(c);
    return status;
}
