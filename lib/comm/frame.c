/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/comm/frame.h"

#include <string.h>

#include "lib/base/pack.h"

enum { FRAME_MAGIC = 0x6c727463 };

void ri_frame_encode(const struct ri_control_frame *f, uint8_t wire[RI_FRAME])
{
    struct ri_packer p = {.at = wire, .end = wire + RI_FRAME};
    memset(wire, 0, RI_FRAME);
    ri_pack_number(&p, FRAME_MAGIC, 4);
    ri_pack_number(&p, f->kind, 4);
    ri_pack_number(&p, f->node, 4);
    ri_pack_number(&p, f->history, 8);
    ri_pack_number(&p, f->rank, 4);
    ri_pack_number(&p, f->version, 4);
    ri_pack_number(&p, (uint32_t)f->failure.status, 4);
    ri_pack_number(&p, f->failure.culprit, 4);
    ri_pack(&p, &f->signature, sizeof f->signature);
    ri_pack_text(&p, f->failure.text);
}

bool ri_frame_decode(const uint8_t wire[RI_FRAME], uint32_t nodes, uint32_t size, struct ri_control_frame *f_out)
{
    struct ri_unpacker u = {.at = wire, .end = wire + RI_FRAME};
    struct ri_control_frame f = {0};
    const bool ours = ri_unpack_number(&u, 4) == FRAME_MAGIC;
    const uint64_t kind = ri_unpack_number(&u, 4);
    f.node = (uint32_t)ri_unpack_number(&u, 4);
    f.history = ri_unpack_number(&u, 8);
    f.rank = (uint32_t)ri_unpack_number(&u, 4);
    f.version = (uint32_t)ri_unpack_number(&u, 4);
    f.failure.status = (int32_t)(uint32_t)ri_unpack_number(&u, 4);
    f.failure.culprit = (uint32_t)ri_unpack_number(&u, 4);
    ri_unpack(&u, &f.signature, sizeof f.signature);
    ri_unpack_text(&u, f.failure.text, sizeof f.failure.text);
    if (!ours || u.bad || kind < RI_CONTROL_FAILURE || kind > RI_CONTROL_NOTICE || f.node >= nodes || f.rank >= size ||
        (kind == RI_CONTROL_FAILURE && f.failure.status >= 0))
        return false;
    f.kind = (enum ri_control_kind)kind;
    *f_out = f;
    return true;
}
