/* SPDX-License-Identifier: Apache-2.0 */
/* The unique id's text: what is accepted is printed and parsed to the same. */
#include <string.h>

#include "fuzz.h"
#include "lib/base/error.h"
#include "lib/boot/ticket.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    ring_uid_t uid = {{0}}, again;
    struct ri_ticket t, back;
    memcpy(uid.text, bytes, len < sizeof uid.text ? len : sizeof uid.text);
    memset(&t, 0, sizeof t);
    if (ri_ticket_parse(&uid, &t)) {
        HOLDS(strstr(ri_error_get(), "ticket is damaged") != NULL);
        return 0;
    }
    HOLDS(t.where.addr[0].family == 4 || t.where.addr[0].family == 6);
    ri_ticket_print(&t, &again);
    HOLDS(memchr(again.text, 0, sizeof again.text) != NULL);
    HOLDS(ri_ticket_parse(&again, &back) == RING_OK);
    HOLDS(!memcmp(back.key, t.key, sizeof t.key) &&
          !memcmp(&back.where.addr[0], &t.where.addr[0], sizeof t.where.addr[0]));
    return 0;
}
