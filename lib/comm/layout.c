/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - which ranks share a host, in the form that algorithms read. */
#include "lib/comm/comm.h"

#include "lib/base/mem.h"

ring_status_t ri_layout_make(struct ring_comm *c)
{
    uint32_t *numbers = ri_new(3 * (size_t)c->size + 1, sizeof *numbers);
    if (!numbers)
        return ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", c->size);
    ri_layout_free(c);
    uint32_t *node_of = numbers, *order = numbers + c->size, *first = order + c->size;
    uint32_t at = 0;
    for (uint32_t node = 0; node < c->nodes; node++) {
        first[node] = at;
        for (uint32_t r = 0; r < c->size; r++)
            if (c->peer[r].node == node) {
                node_of[r] = node;
                order[at++] = r;
            }
    }
    first[c->nodes] = at;
    c->layout = (struct ri_layout){.nodes = c->nodes, .node_of = node_of, .order = order, .first = first};
    c->layout_numbers = numbers;
    return RING_OK;
}

void ri_layout_free(struct ring_comm *c)
{
    ri_free(c->layout_numbers);
    c->layout_numbers = NULL;
}
