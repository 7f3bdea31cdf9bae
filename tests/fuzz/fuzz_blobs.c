/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank gave to a round of a ticket's meeting: searching it stays inside it. */
#include <string.h>

#include "fuzz.h"
#include "lib/boot/blobs.h"
#include "lib/boot/boot.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const keys[] = {"card", "end", "a"};
    uint8_t blob[RI_BOOT_BLOB_MAX];
    for (int i = 0; i < 3; i++) {
        size_t got = 0;
        if (ri_blobs_find((struct ri_blobs){bytes, len}, keys[i], blob, &got)) {
            HOLDS(got <= RI_BOOT_BLOB_MAX && got + strlen(keys[i]) + 3 <= len);
            HOLDS(memmem(bytes, len, blob, got) != NULL || !got);
        }
    }
    return 0;
}
