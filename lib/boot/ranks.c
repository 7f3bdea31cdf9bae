/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/boot/ranks.h"

#include <stdio.h>

enum { ROOM_FOR_MORE = 48 }; /* one more range, and " and 4294967295 more" */

void ri_ranks_print(const bool *in, uint32_t size, char *text, size_t cap)
{
    uint32_t total = 0, shown = 0;
    for (uint32_t r = 0; r < size; r++)
        total += in[r];
    size_t at = (size_t)snprintf(text, cap, total == 1 ? "rank" : "ranks");
    for (uint32_t r = 0; r < size && at + ROOM_FOR_MORE < cap; r++) {
        uint32_t last = r;
        if (!in[r])
            continue;
        while (last + 1 < size && in[last + 1])
            last++;
        at += (size_t)snprintf(text + at, cap - at, last > r ? "%s %u-%u" : "%s %u", shown ? "," : "", r, last);
        shown += last - r + 1;
        r = last;
    }
    if (shown < total && at < cap)
        snprintf(text + at, cap - at, " and %u more", total - shown);
}
