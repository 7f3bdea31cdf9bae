/* SPDX-License-Identifier: Apache-2.0 */
/* self.c - what a rank does with itself alone: all calls of a job of one, and messages from a rank to itself. */
#include "lib/comm/comm.h"

#include <string.h>

/* The operations on truth make 1 of all that is not 0; exclusive or, of one rank, too. */
static bool makes_truth(const struct ri_call *call)
{
    const bool reduces =
        call->coll == RING_ALL_REDUCE || call->coll == RING_REDUCE || call->coll == RING_REDUCE_SCATTER;
    return reduces && (call->redop == RING_LAND || call->redop == RING_LOR || call->redop == RING_LXOR);
}

static void to_truth(const struct ri_call *call, void *dst, const void *src, size_t count)
{
    const struct ri_reduction red = ri_reduction_for(call->dtype, RING_LOR);
    red.reduce(&red, dst, src, src, count);
}

/* Of one rank every other reduction is its own element, and every block the own one. */
void ri_self_run(struct ring_comm *c, struct ring_op *op)
{
    const struct ri_call *call = &op->call;
    const size_t esize = ring_dtype_size(call->dtype);
    const size_t from = call->scounts ? call->sdispls[c->rank] : 0, to = call->rcounts ? call->rdispls[c->rank] : 0;
    const size_t count = call->scounts ? call->scounts[c->rank] : call->count;
    if (count && call->src && call->dst) {
        const char *src = (const char *)call->src + from * esize;
        char *dst = (char *)call->dst + to * esize;
        if (makes_truth(call))
            to_truth(call, dst, src, count);
        else
            memmove(dst, src, count * esize);
    }
    ri_op_finish(op, RING_OK);
}

static bool meets(const struct ring_op *one, const struct ring_op *other) { return one->call.coll != other->call.coll; }

void ri_self_forget(struct ring_comm *c, struct ring_op *op)
{
    struct ring_op **at = &c->selves;
    while (*at && *at != op)
        at = &(*at)->next_self;
    if (*at)
        *at = op->next_self;
    op->next_self = NULL;
}

static void disagree(struct ring_comm *c, const struct ring_op *op, const struct ring_op *other)
{
    struct ri_signature s;
    char a[96], b[96];
    ri_op_signature(c, &op->call, 0, &s);
    ri_call_text(&s, a, sizeof a);
    ri_op_signature(c, &other->call, 0, &s);
    ri_call_text(&s, b, sizeof b);
    ri_comm_raise(c, RING_ERR_MISMATCH, c->rank, "%s disagrees with itself: %s meets %s", ri_comm_name(c, c->rank), a,
                  b);
}

/* The oldest of the other kind is this one's. */
void ri_self_meet(struct ring_comm *c, struct ring_op *op)
{
    struct ring_op *other = c->selves;
    if (!other || !meets(other, op)) {
        struct ring_op **at = &c->selves;
        while (*at)
            at = &(*at)->next_self;
        *at = op;
        op->next_self = NULL;
        return;
    }
    ri_self_forget(c, other);
    const struct ri_call *send = op->call.coll == RING_SEND ? &op->call : &other->call;
    const struct ri_call *recv = op->call.coll == RING_SEND ? &other->call : &op->call;
    if (send->count != recv->count || send->dtype != recv->dtype) {
        disagree(c, op, other);
        ri_op_finish(op, RING_ERR_MISMATCH);
        ri_op_finish(other, RING_ERR_MISMATCH);
        return;
    }
    if (send->count)
        memmove(recv->dst, send->src, send->count * ring_dtype_size(send->dtype));
    ri_op_finish(op, RING_OK);
    ri_op_finish(other, RING_OK);
}
