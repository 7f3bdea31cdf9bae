/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's card, as ranks write it, changed by the input (exclusive or; its first two bytes change the length): what is
 * accepted has texts that end, and is written again as the same card. */
#include <string.h>

#include "fuzz.h"
#include "lib/comm/comm.h"

static void read_card(const uint8_t *card, size_t n, const struct ri_peer *me, const struct ri_conf *conf)
{
    struct ri_peer p, q;
    uint8_t again[RI_BOOT_BLOB_MAX];
    if (ri_card_decode(card, n, 1, me, conf, &p))
        return;
    HOLDS(p.rank == 1 && memchr(p.host.name, 0, sizeof p.host.name) && memchr(p.name, 0, sizeof p.name) &&
          memchr(p.off, 0, sizeof p.off));
    const size_t m = ri_card_encode(&p, conf, again, sizeof again);
    HOLDS(m && m <= n && !memcmp(again, card, m));
    HOLDS(!ri_card_decode(again, m, 1, me, conf, &q) && !strcmp(p.name, q.name) && !strcmp(p.off, q.off));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct ri_peer me = {.name = "rank 0 (here:1)",
                               .pid = 1,
                               .transports = 5,
                               .blocked = 2,
                               .host = {.name = "node1"},
                               .off = "verbs is off: a reason"};
    struct ri_conf conf;
    struct ri_peer p;
    uint8_t card[RI_BOOT_BLOB_MAX] = {0};
    ri_conf_defaults(&conf);
    const size_t whole = ri_card_encode(&me, &conf, card, sizeof card);
    HOLDS(whole && !ri_card_decode(card, whole, 1, &me, &conf, &p) && !strcmp(p.off, me.off));
    const size_t change = len < 2 ? 0 : bytes[0] | (size_t)bytes[1] << 8, n = (whole ^ change) % sizeof card;
    for (size_t i = 2; i < len && i - 2 < sizeof card; i++)
        card[i - 2] ^= bytes[i];
    uint8_t *exact = malloc(n ? n : 1); /* so that the address sanitizer sees one byte too far */
    HOLDS(exact != NULL);
    memcpy(exact, card, n);
    read_card(exact, n, &me, &conf);
    free(exact);
    return 0;
}
