/* SPDX-License-Identifier: Apache-2.0 */
/* card.c - the first thing ranks tell each other: who and where they are, and what must be alike for a job to work. */
#include "lib/comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/pack.h"

enum { CARD_MAGIC = 0x64726163 };

static void pack_agreed(struct ri_packer *p, const struct ri_conf *conf)
{
    char value[RI_CONF_TEXT_MAX];
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_rows[i].agree) {
            ri_conf_print(conf, &ri_conf_rows[i], value, sizeof value);
            ri_pack_text(p, value);
        }
}

size_t ri_card_encode(const struct ri_peer *me, const struct ri_conf *conf, uint8_t *card, size_t cap)
{
    struct ri_packer p = {.at = card, .end = card + cap};
    ri_pack_number(&p, CARD_MAGIC, 4);
    ri_pack_text(&p, ring_version());
    ri_pack_number(&p, (uint32_t)me->pid, 4);
    ri_pack_number(&p, me->pid_space, 8);
    ri_pack_number(&p, me->process, 8);
    ri_pack_number(&p, me->transports, 4);
    ri_pack_number(&p, me->blocked, 4);
    ri_pack_text(&p, me->off);
    ri_pack(&p, &me->processors, sizeof me->processors);
    ri_pack(&p, me->key, sizeof me->key);
    ri_pack(&p, me->host.id, sizeof me->host.id);
    ri_pack_text(&p, me->host.name);
    ri_pack_text(&p, ri_wires_transports());
    pack_agreed(&p, conf);
    return p.bad ? 0 : (size_t)(p.at - card);
}

static ring_status_t agree(struct ri_unpacker *u, const struct ri_peer *me, const struct ri_peer *peer,
                           const struct ri_conf *conf)
{
    char mine[RI_CONF_TEXT_MAX], theirs[RI_CONF_TEXT_MAX];
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_rows[i].agree) {
            ri_conf_print(conf, &ri_conf_rows[i], mine, sizeof mine);
            ri_unpack_text(u, theirs, sizeof theirs);
            if (!u->bad && strcmp(mine, theirs))
                return ri_fail(RING_ERR_MISMATCH, "%s is %.100s on %s and %.100s on %s: all ranks need the same",
                               ri_conf_rows[i].variable, mine, me->name, theirs, peer->name);
        }
    return u->bad ? ri_fail(RING_ERR_MISMATCH, "the card of %s cannot be read", peer->name) : RING_OK;
}

ring_status_t ri_card_decode(const uint8_t *card, size_t len, uint32_t rank, const struct ri_peer *me,
                             const struct ri_conf *conf, struct ri_peer *peer_out)
{
    struct ri_unpacker u = {.at = card, .end = card + len};
    struct ri_peer p = {.rank = rank};
    char version[32], transports[128];
    const bool ours = ri_unpack_number(&u, 4) == CARD_MAGIC;
    ri_unpack_text(&u, version, sizeof version);
    if (u.bad || !ours)
        return ri_fail(RING_ERR_MISMATCH, "what rank %u says of itself is not a card of libring", rank);
    if (strcmp(version, ring_version()))
        return ri_fail(RING_ERR_MISMATCH, "rank %u runs libring %s, %s runs %s: all ranks need the same version", rank,
                       version, me->name, ring_version());
    p.pid = (int32_t)ri_unpack_number(&u, 4);
    p.pid_space = ri_unpack_number(&u, 8);
    p.process = ri_unpack_number(&u, 8);
    p.transports = (uint32_t)ri_unpack_number(&u, 4);
    p.blocked = (uint32_t)ri_unpack_number(&u, 4);
    ri_unpack_text(&u, p.off, sizeof p.off);
    ri_unpack(&u, &p.processors, sizeof p.processors);
    ri_unpack(&u, p.key, sizeof p.key);
    ri_unpack(&u, p.host.id, sizeof p.host.id);
    ri_unpack_text(&u, p.host.name, sizeof p.host.name);
    ri_unpack_text(&u, transports, sizeof transports);
    snprintf(p.name, sizeof p.name, "rank %u (%s:%d)", rank, p.host.name, p.pid);
    if (!u.bad && strcmp(transports, ri_wires_transports()))
        return ri_fail(RING_ERR_MISMATCH, "%s was built with the transports %s, %s with %s", p.name, transports,
                       me->name, ri_wires_transports());
    const ring_status_t status = agree(&u, me, &p, conf);
    if (!status)
        *peer_out = p;
    return status;
}
