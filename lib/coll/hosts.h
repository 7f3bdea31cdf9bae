/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - how full the hosts of a layout are. */
#ifndef RI_HOSTS_H
#define RI_HOSTS_H

#include "lib/coll/coll.h"

static inline uint32_t ri_host_ranks(const struct ri_layout *l, uint32_t node)
{
    return l->first[node + 1] - l->first[node];
}

/* Ranks of the fullest host, and of the emptiest; 1 when nothing is known. */
struct ri_crowd {
    uint32_t most, least;
};
static inline struct ri_crowd ri_crowd_of(const struct ri_layout *l)
{
    struct ri_crowd c = {1, 1};
    for (uint32_t i = 0; l && i < l->nodes; i++) {
        const uint32_t here = ri_host_ranks(l, i);
        c.most = here > c.most ? here : c.most;
        c.least = !i || here < c.least ? here : c.least;
    }
    return c;
}

#endif
