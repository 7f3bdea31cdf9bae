/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - see meet.h. */
#include "transports/verbs/meet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/error.h"
#include "lib/base/log.h"

enum { PSN_BITS = 24 };

/* Addresses come and go, and so do ports, so they are read anew for every link. */
static void find_ends(struct verbs_link *l)
{
    struct verbs_ctx *c = verbs_ctx_of(l);
    l->ends = 0;
    for (uint32_t i = 0; i < c->rails; i++) {
        if (!verbs_port_read(&c->devices, c->port[i]))
            continue;
        l->end_rail[l->ends] = &c->rail[i];
        l->end[l->ends++] = c->port[i]->end;
    }
}

void verbs_meet_say(struct verbs_link *l, struct ri_packer *p)
{
    uint8_t bytes[VERBS_ENDS_BYTES];
    find_ends(l);
    const size_t n = verbs_ends_encode(l->end, l->ends, bytes, sizeof bytes);
    p->bad |= !n;
    ri_pack(p, bytes, n);
}

static void join(struct verbs_link *l, const struct verbs_end *theirs, const struct verbs_joint *joint)
{
    char text[VERBS_WHY];
    const struct verbs_end *mine = &l->end[joint->mine], *peer = &theirs[joint->theirs];
    const uint32_t r = l->rails++;
    l->rail[r] = l->end_rail[joint->mine];
    const size_t most = joint->max_message / VERBS_REQUEST * VERBS_REQUEST;
    l->most = !r || most < l->most ? most : l->most;
    l->eager_most = l->most < VERBS_EAGER ? l->most : VERBS_EAGER;
    l->route[r] = (struct verbs_route){.gid_index = mine->gid[joint->my_gid].index,
                                       .global = joint->grh,
                                       .peer_lid = peer->lid,
                                       .mtu = (enum ibv_mtu)joint->mtu};
    memcpy(l->route[r].peer_gid.raw, peer->gid[joint->their_gid].gid, sizeof l->route[r].peer_gid.raw);
    verbs_joint_explain(l->end, theirs, joint, text, sizeof text);
    ri_log(RI_LOG_INFO, "verbs link to %s: %s", l->base.peer.name, text);
}

ring_status_t verbs_meet_hear(struct verbs_link *l, struct ri_unpacker *u)
{
    struct verbs_end theirs[VERBS_PORTS];
    struct verbs_joint joint[VERBS_RAILS_MOST];
    char why[VERBS_WHY];
    unsigned m;
    if (!verbs_ends_decode(u->at, (size_t)(u->end - u->at), theirs, &m))
        return ri_fail(RING_ERR_MISMATCH, "%s does not speak our protocol", l->base.peer.name);
    const unsigned n = verbs_rails(l->end, l->ends, theirs, m, joint);
    for (unsigned i = 0; i < n; i++) {
        if (joint[i].max_message < VERBS_REQUEST)
            return ri_fail(RING_ERR_UNSUPPORTED, "%s and %s carry %u bytes in a request; at least %d are needed",
                           l->end[joint[i].mine].device, theirs[joint[i].theirs].device, joint[i].max_message,
                           (int)VERBS_REQUEST);
        join(l, theirs, &joint[i]);
    }
    if (n)
        return RING_OK;
    verbs_rails_none(l->end, l->ends, theirs, m, why, sizeof why);
    return ri_fail(RING_ERR_UNSUPPORTED, "%s", why);
}

ring_status_t verbs_meet_no_memory(const struct verbs_rail *rail, size_t bytes)
{
    return errno == ENOMEM ? verbs_locked_memory(bytes)
                           : ri_fail_errno("registration of %zu bytes with %s", bytes, rail->name);
}

uint32_t verbs_meet_psn(void)
{
    uint32_t psn = 0;
    while (getrandom(&psn, sizeof psn, 0) != (ssize_t)sizeof psn)
        ;
    return psn & ((1u << PSN_BITS) - 1);
}
