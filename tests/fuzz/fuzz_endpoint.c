/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint from a card: what decodes encodes to the same bytes. */
#include <string.h>

#include "fuzz.h"
#include "lib/boot/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ri_endpoint e;
    uint8_t again[RI_ENDPOINT_BYTES];
    char text[RI_ADDRESS_TEXT];
    struct ri_address a;
    if (!ri_endpoint_decode(bytes, len, &e))
        return 0;
    HOLDS(ri_endpoint_encode(&e, again, sizeof again) == len && !memcmp(again, bytes, len));
    for (int i = 0; i < RI_ENDPOINT_ADDRS; i++)
        if (e.addr[i].family) {
            ri_address_print(&e.addr[i], text);
            HOLDS(ri_address_parse(text, strlen(text), &a) && !memcmp(&a, &e.addr[i], sizeof a));
        }
    return 0;
}
