/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's card: what is accepted has texts that end, and is written again as the same card. */
#include <string.h>

#include "fuzz.h"
#include "lib/comm/comm.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct ri_peer me = {.name = "rank 0 (here:1)"};
    struct ri_conf conf;
    struct ri_peer p, q;
    uint8_t again[RI_BOOT_BLOB_MAX];
    ri_conf_defaults(&conf);
    if (ri_card_decode(bytes, len, 1, &me, &conf, &p))
        return 0;
    HOLDS(p.rank == 1 && memchr(p.host.name, 0, sizeof p.host.name) && memchr(p.name, 0, sizeof p.name));
    const size_t n = ri_card_encode(&p, &conf, again, sizeof again);
    HOLDS(n && n <= len && !memcmp(again, bytes, n));
    HOLDS(!ri_card_decode(again, n, 1, &me, &conf, &q) && !strcmp(p.name, q.name));
    return 0;
}
