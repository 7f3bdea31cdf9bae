/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - numbers and bytes to and from a message, bounds checked: little-endian, no padding.
 *
 * The first thing that does not fit sticks in `bad`; later calls do nothing and readers give zeros, so that callers
 * look once, at the end. */
#ifndef RI_PACK_H
#define RI_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ri_packer {
    uint8_t *at, *end;
    bool bad;
};
struct ri_unpacker {
    const uint8_t *at, *end;
    bool bad;
};

static inline void ri_pack(struct ri_packer *p, const void *bytes, size_t len)
{
    if (p->bad || len > (size_t)(p->end - p->at)) {
        p->bad = true;
        return;
    }
    if (len)
        memcpy(p->at, bytes, len);
    p->at += len;
}

static inline void ri_pack_number(struct ri_packer *p, uint64_t value, size_t bytes)
{
    uint8_t wire[8];
    for (size_t i = 0; i < bytes; i++)
        wire[i] = (uint8_t)(value >> 8 * i);
    ri_pack(p, wire, bytes);
}

/* A length of two bytes, then the text without its end. */
static inline void ri_pack_text(struct ri_packer *p, const char *text)
{
    const size_t len = strlen(text);
    p->bad |= len > UINT16_MAX;
    ri_pack_number(p, len, 2);
    ri_pack(p, text, len);
}

static inline void ri_unpack(struct ri_unpacker *u, void *bytes, size_t len)
{
    if (u->bad || len > (size_t)(u->end - u->at)) {
        u->bad = true;
        memset(bytes, 0, len);
        return;
    }
    memcpy(bytes, u->at, len);
    u->at += len;
}

static inline uint64_t ri_unpack_number(struct ri_unpacker *u, size_t bytes)
{
    uint8_t wire[8];
    uint64_t value = 0;
    ri_unpack(u, wire, bytes);
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)wire[i] << 8 * i;
    return value;
}

/* At most cap - 1 bytes; a longer text is bad, and so is one with a NUL inside. */
static inline void ri_unpack_text(struct ri_unpacker *u, char *text, size_t cap)
{
    const size_t len = (size_t)ri_unpack_number(u, 2);
    text[0] = '\0';
    u->bad |= len >= cap;
    if (u->bad)
        return;
    ri_unpack(u, text, len);
    u->bad |= memchr(text, '\0', len) != NULL;
    text[u->bad ? 0 : len] = '\0';
}

#endif
