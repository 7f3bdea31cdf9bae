/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - see wire.h. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "say.h"

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

void bytes_reserve(struct bytes *b, size_t more)
{
    if (b->cap - b->len >= more)
        return;
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->len < more)
        cap *= 2;
    b->data = need_more(b->data, cap);
    b->cap = cap;
}

void bytes_drop(struct bytes *b, size_t len)
{
    if (!len)
        return;
    b->len -= len;
    if (b->len)
        memmove(b->data, b->data + len, b->len);
    else if (b->cap > (1u << 20))
        bytes_free(b);
}

void put_raw(struct bytes *b, const void *data, size_t len)
{
    bytes_reserve(b, len);
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

void put_u32(struct bytes *b, uint32_t value)
{
    uint8_t raw[4];
    for (int i = 0; i < 4; i++)
        raw[i] = (uint8_t)(value >> (8 * i));
    put_raw(b, raw, sizeof raw);
}

void put_u64(struct bytes *b, uint64_t value)
{
    put_u32(b, (uint32_t)value);
    put_u32(b, (uint32_t)(value >> 32));
}

void put_blob(struct bytes *b, const void *data, size_t len)
{
    put_u32(b, (uint32_t)len);
    put_raw(b, data, len);
}

void put_text(struct bytes *b, const char *text) { put_blob(b, text, strlen(text)); }

static const uint8_t *take(struct cursor *c, size_t len)
{
    if (c->bad || (size_t)(c->end - c->at) < len) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *at = c->at;
    c->at += len;
    return at;
}

uint32_t get_u32(struct cursor *c)
{
    const uint8_t *raw = take(c, 4);
    return raw ? raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24 : 0;
}

uint64_t get_u64(struct cursor *c)
{
    uint64_t low = get_u32(c);
    return low | (uint64_t)get_u32(c) << 32;
}

const uint8_t *get_blob(struct cursor *c, size_t *len_out)
{
    size_t len = get_u32(c);
    const uint8_t *data = take(c, len);
    *len_out = data ? len : 0;
    return data;
}

char *get_text(struct cursor *c)
{
    size_t len;
    const uint8_t *data = get_blob(c, &len);
    if (len && memchr(data, 0, len)) {
        c->bad = true;
        len = 0;
    }
    char *text = need(len + 1);
    if (len)
        memcpy(text, data, len);
    return text;
}

uint32_t get_count(struct cursor *c, size_t each)
{
    uint32_t count = get_u32(c);
    if (c->bad || count > (size_t)(c->end - c->at) / each) {
        c->bad = true;
        return 0;
    }
    return count;
}

bool cursor_done(const struct cursor *c) { return !c->bad && c->at == c->end; }
