/* SPDX-License-Identifier: Apache-2.0 */
/* redop.c - reduction operations: those of the library, and those that a program has made for a communicator.
 *
 * A made one has the number RI_REDOP_MADE + its place in the communicator's table; all ranks make and destroy them in
 * the same order, so the numbers agree. */
#include "lib/comm/comm.h"

#include <string.h>

#include "lib/base/mem.h"

static const struct ri_made_op *made(const struct ring_comm *c, ring_redop_t redop)
{
    const unsigned i = (unsigned)redop - RI_REDOP_MADE;
    return (unsigned)redop >= RI_REDOP_MADE && i < RI_REDOPS_MADE && c->made && c->made[i].used ? &c->made[i] : NULL;
}

ring_status_t ri_redop_check(const struct ring_comm *c, ring_dtype_t dtype, ring_redop_t redop)
{
    const struct ri_made_op *m = made(c, redop);
    if (m && !m->fn && m->dtype != dtype)
        return ri_fail(RING_ERR_INVALID, "the operation multiplies by a %s: it cannot be used on %s",
                       ri_dtype_name(m->dtype), ri_dtype_name(dtype));
    if (m)
        return RING_OK;
    if (!ri_redop_ok(redop))
        return ri_fail(RING_ERR_INVALID,
                       "redop %d is none of ring_redop_t (0 to %d) and none made for this communicator", (int)redop,
                       RI_REDOPS - 1);
    if (!ri_redop_fits(dtype, redop))
        return ri_fail(RING_ERR_INVALID, "%s is for integers, not for %s: that takes sum, prod, min, max and avg",
                       ri_redop_name(redop), ri_dtype_name(dtype));
    return RING_OK;
}

struct ri_reduction ri_redop_reduction(const struct ring_comm *c, ring_dtype_t dtype, ring_redop_t redop)
{
    const struct ri_made_op *m = made(c, redop);
    if (!m) /* collectives that do not reduce may carry anything there */
        return ri_reduction_for(dtype, ri_redop_ok(redop) ? redop : RING_SUM);
    return m->fn ? ri_reduction_user(dtype, m->fn, m->context) : ri_reduction_for(dtype, RING_SUM);
}

const void *ri_redop_scalar(const struct ring_comm *c, ring_redop_t redop)
{
    const struct ri_made_op *m = made(c, redop);
    return m && !m->fn ? m->scalar : NULL;
}

ring_status_t ri_redop_make(struct ring_comm *c, const struct ri_made_op *op, ring_redop_t *redop_out)
{
    if (!c->made)
        c->made = ri_new(RI_REDOPS_MADE, sizeof *c->made);
    if (!c->made)
        return ri_fail(RING_ERR_NOMEM, "no memory for operations");
    for (unsigned i = 0; i < RI_REDOPS_MADE; i++)
        if (!c->made[i].used) {
            c->made[i] = *op;
            c->made[i].used = true;
            *redop_out = (ring_redop_t)(RI_REDOP_MADE + i);
            return RING_OK;
        }
    return ri_fail(RING_ERR_LIMIT, "this communicator has %d operations already: destroy those of no use",
                   RI_REDOPS_MADE);
}

ring_status_t ri_redop_drop(struct ring_comm *c, ring_redop_t redop)
{
    if (!made(c, redop))
        return ri_fail(RING_ERR_INVALID, "redop %d was not made for this communicator", (int)redop);
    c->made[(unsigned)redop - RI_REDOP_MADE].used = false;
    return RING_OK;
}
