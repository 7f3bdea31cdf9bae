/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake's first message: reads the fields only, and writing them again gives the same bytes. */
#include <string.h>

#include "fuzz.h"
#include "lib/boot/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const uint8_t key[RI_KEY] = {1};
    uint8_t wire[RI_HELLO_BYTES] = {0}, again[RI_HELLO_BYTES];
    struct ri_hello h;
    memcpy(wire, bytes, len < sizeof wire ? len : sizeof wire);
    const bool ours = ri_hello_decode(wire, &h), proved = ri_hello_verify(wire, key);
    if (!ours)
        return 0;
    ri_hello_encode(&h, key, again);
    HOLDS(!memcmp(again, wire, sizeof wire - RI_MAC));
    HOLDS(proved == !memcmp(again, wire, sizeof wire));
    return 0;
}
