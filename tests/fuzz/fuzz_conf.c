/* SPDX-License-Identifier: Apache-2.0 */
/* A setting's text, the first byte chooses which: refused with its name, or taken, printed and taken again the same. */
#include <string.h>

#include "fuzz.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct ri_conf conf, before, again;
    char text[2 * RI_CONF_TEXT_MAX], printed[RI_CONF_TEXT_MAX];
    if (!len)
        return 0;
    const struct ri_conf_row *row = &ri_conf_rows[bytes[0] % ri_conf_row_count];
    const size_t n = len - 1 < sizeof text - 1 ? len - 1 : sizeof text - 1;
    memcpy(text, bytes + 1, n);
    text[n] = 0;
    ri_conf_defaults(&conf);
    before = again = conf;
    if (ri_conf_set(&conf, row, text)) {
        HOLDS(strstr(ri_error_get(), row->variable) != NULL);
        HOLDS(!memcmp(&conf, &before, sizeof conf));
        return 0;
    }
    ri_conf_print(&conf, row, printed, sizeof printed);
    HOLDS(ri_conf_set(&again, row, printed) == RING_OK);
    HOLDS(row->type == RI_CONF_TEXT ? !strcmp(printed, text) : !memcmp(&again, &conf, sizeof conf));
    return 0;
}
