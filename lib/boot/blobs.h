/* SPDX-License-Identifier: Apache-2.0 */
/* blobs.h - several named blobs in a row: u8 key length, key, u16 blob length, blob. */
#ifndef RI_BLOBS_H
#define RI_BLOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ri_blobs {
    const uint8_t *bytes;
    size_t len;
};
size_t ri_blobs_size(const char *key, size_t len); /* bytes that ri_blobs_write will write; 0: key or blob too large */
void ri_blobs_write(uint8_t *at, const char *key, const void *blob, size_t len);
/* The last one of that key; anything damaged ends the search. blob: RI_BOOT_BLOB_MAX bytes. */
bool ri_blobs_find(struct ri_blobs in, const char *key, void *blob, size_t *len_out);

#endif
