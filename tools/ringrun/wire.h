/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - bytes for the way between ringrun and its agents: a growing buffer to write into, and a cursor to read with.
 *
 * Numbers are little-endian.  A blob is a 32-bit length and that many bytes; a text is a blob without NUL.  Reading
 * never goes past the end and never allocates more than is there: the first wrong field makes the cursor bad, and every
 * later read gives zero, so that a message is checked once, at its end. */
#ifndef RINGRUN_WIRE_H
#define RINGRUN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *data;
    size_t len, cap;
};

void bytes_free(struct bytes *b);
void bytes_reserve(struct bytes *b, size_t more); /* room for `more` bytes behind len */
void bytes_drop(struct bytes *b, size_t len);     /* the first len bytes are done with */
void put_raw(struct bytes *b, const void *data, size_t len);
void put_u32(struct bytes *b, uint32_t value);
void put_u64(struct bytes *b, uint64_t value);
void put_blob(struct bytes *b, const void *data, size_t len);
void put_text(struct bytes *b, const char *text);

struct cursor {
    const uint8_t *at, *end;
    bool bad;
};

uint32_t get_u32(struct cursor *c);
uint64_t get_u64(struct cursor *c);
/* Points into the message.  *len_out is 0 when the cursor is bad. */
const uint8_t *get_blob(struct cursor *c, size_t *len_out);
/* Allocated; "" when the cursor is bad. */
char *get_text(struct cursor *c);
/* A number of things of which each takes at least `each` bytes: 0 and bad when so many cannot be there. */
uint32_t get_count(struct cursor *c, size_t each);
/* All read, nothing wrong. */
bool cursor_done(const struct cursor *c);

#endif
