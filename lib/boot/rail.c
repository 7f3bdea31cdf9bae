/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/boot/rail.h"

static bool same_network(const struct ri_address *a, const struct ri_address *b, unsigned bits)
{
    if (a->family != b->family)
        return false;
    for (unsigned i = 0; i < bits; i++)
        if ((a->bytes[i / 8] ^ b->bytes[i / 8]) >> (7 - i % 8) & 1)
            return false;
    return true;
}

/* The peer's first address that is not taken and fits, RI_ENDPOINT_ADDRS when there is none. */
static unsigned partner(const struct ri_address *mine, unsigned bits, const struct ri_endpoint *peer, const bool *taken)
{
    unsigned j = 0;
    while (j < RI_ENDPOINT_ADDRS && (!peer->addr[j].family || taken[j] || !same_network(mine, &peer->addr[j], bits)))
        j++;
    return j;
}

unsigned ri_rail_pair(const struct ri_address *mine, const uint8_t *prefix, unsigned n, const struct ri_endpoint *peer,
                      struct ri_rail rail_out[RI_ENDPOINT_ADDRS])
{
    bool paired[RI_ENDPOINT_ADDRS] = {false}, taken[RI_ENDPOINT_ADDRS] = {false};
    unsigned rails = 0;
    for (int by_order = 0; by_order < 2; by_order++)
        for (unsigned i = 0; i < n; i++) {
            const unsigned j = paired[i] ? RI_ENDPOINT_ADDRS : partner(&mine[i], by_order ? 0 : prefix[i], peer, taken);
            if (j == RI_ENDPOINT_ADDRS)
                continue;
            paired[i] = taken[j] = true;
            rail_out[rails++] = (struct ri_rail){.from = mine[i], .to = peer->addr[j]};
        }
    return rails;
}
