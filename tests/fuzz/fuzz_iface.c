/* SPDX-License-Identifier: Apache-2.0 */
/* RING_SOCKET_IFNAME and RING_PORT_RANGE: "NAME\nTEXT". What the grammar takes never matches and excludes at once. */
#include <string.h>

#include "fuzz.h"
#include "lib/base/error.h"
#include "lib/boot/door.h"
#include "lib/boot/iface.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char name[16] = "", text[RI_CONF_TEXT_MAX] = "", inverse[RI_CONF_TEXT_MAX + 1] = "^";
    struct ri_port_range range = {7, 7};
    size_t n = 0;
    while (n < len && bytes[n] != '\n')
        n++;
    memcpy(name, bytes, n < sizeof name ? n : sizeof name - 1);
    if (n < len)
        memcpy(text, bytes + n + 1, len - n - 1 < sizeof text ? len - n - 1 : sizeof text - 1);
    if (!ri_iface_check(text) && strcmp(text, "auto") && text[0] != '^') {
        strcat(inverse, text);
        HOLDS(ri_iface_match(text, name) != ri_iface_match(inverse, name));
    }
    if (ri_port_range_parse(text, &range))
        HOLDS(range.low == 7 && strstr(ri_error_get(), "RING_PORT_RANGE") != NULL);
    else
        HOLDS(range.low <= range.high && (range.low || !strcmp(text, "auto")));
    return 0;
}
