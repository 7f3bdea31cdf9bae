/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/boot/blobs.h"

#include <string.h>

#include "lib/boot/boot.h"
#include "lib/boot/bytes.h"

size_t ri_blobs_size(const char *key, size_t len)
{
    const size_t key_len = strlen(key);
    return key_len < 1 || key_len >= RI_BOOT_KEY_MAX || len > RI_BOOT_BLOB_MAX ? 0 : 1 + key_len + 2 + len;
}

void ri_blobs_write(uint8_t *at, const char *key, const void *blob, size_t len)
{
    const size_t key_len = strlen(key);
    *at = (uint8_t)key_len;
    memcpy(at + 1, key, key_len);
    ri_put16(at + 1 + key_len, (uint16_t)len);
    if (len)
        memcpy(at + 3 + key_len, blob, len);
}

bool ri_blobs_find(struct ri_blobs in, const char *key, void *blob, size_t *len_out)
{
    const uint8_t *p = in.bytes, *end = in.bytes + in.len, *found = NULL;
    const size_t key_len = strlen(key);
    while (end - p >= 3 && end - p >= 3 + p[0]) {
        const uint8_t *body = p + 3 + p[0];
        const size_t len = ri_get16(body - 2);
        if (len > (size_t)(end - body) || len > RI_BOOT_BLOB_MAX)
            break;
        if (p[0] == key_len && !memcmp(p + 1, key, key_len))
            found = body;
        p = body + len;
    }
    if (!found)
        return false;
    *len_out = ri_get16(found - 2);
    memcpy(blob, found, *len_out);
    return true;
}
