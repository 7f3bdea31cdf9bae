/* SPDX-License-Identifier: Apache-2.0 */
/* What two ends of a verbs link tell each other of their ports: two bytes of length, the one's, then the other's.  What
 * is accepted is in range and written again as the same bytes; and whatever it says, both ends come to the same rails.
 */
#include <string.h>

#include "fuzz.h"
#include "transports/verbs/gid.h"

static bool read_ends(const uint8_t *bytes, size_t len, struct verbs_end *ends, unsigned *n)
{
    uint8_t again[VERBS_ENDS_BYTES];
    if (!verbs_ends_decode(bytes, len, ends, n))
        return false;
    HOLDS(*n <= VERBS_PORTS && verbs_ends_encode(ends, *n, again, sizeof again) == len && !memcmp(again, bytes, len));
    for (unsigned i = 0; i < *n; i++) {
        HOLDS(memchr(ends[i].device, 0, sizeof ends[i].device) && ends[i].port && ends[i].gids <= VERBS_GID_SENT);
        HOLDS(ends[i].mtu >= IBV_MTU_256 && ends[i].mtu <= IBV_MTU_4096);
        for (unsigned g = 0; g < ends[i].gids; g++)
            HOLDS(ends[i].gid[g].type <= VERBS_GID_UNKNOWN && ends[i].gid[g].prefix <= 128);
    }
    return true;
}

static void join(const struct verbs_end *a, unsigned n, const struct verbs_end *b, unsigned m)
{
    struct verbs_joint ab[VERBS_RAILS_MOST], ba[VERBS_RAILS_MOST];
    char text[VERBS_WHY];
    unsigned taken = 0;
    const unsigned rails = verbs_rails(a, n, b, m, ab);
    HOLDS(rails <= VERBS_RAILS_MOST && verbs_rails(b, m, a, n, ba) == rails);
    for (unsigned i = 0; i < rails; i++) {
        HOLDS(ab[i].mine == ba[i].theirs && ab[i].theirs == ba[i].mine);
        HOLDS(ab[i].my_gid == ba[i].their_gid && ab[i].their_gid == ba[i].my_gid);
        HOLDS(ab[i].mtu == ba[i].mtu && ab[i].grh == ba[i].grh && ab[i].max_message == ba[i].max_message);
        HOLDS(ab[i].mine < n && ab[i].theirs < m && !(taken >> ab[i].mine & 1));
        HOLDS(ab[i].my_gid < a[ab[i].mine].gids && ab[i].their_gid < b[ab[i].theirs].gids);
        taken |= 1u << ab[i].mine;
        verbs_joint_explain(a, b, &ab[i], text, sizeof text);
        HOLDS(strlen(text) < sizeof text);
    }
    verbs_rails_none(a, n, b, m, text, sizeof text);
    HOLDS(strlen(text) < sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct verbs_end a[VERBS_PORTS], b[VERBS_PORTS];
    unsigned n, m;
    if (len < 2)
        return 0;
    const size_t most = len - 2, said = bytes[0] | (size_t)bytes[1] << 8, first = said < most ? said : most;
    const bool one = read_ends(bytes + 2, first, a, &n), other = read_ends(bytes + 2 + first, most - first, b, &m);
    if (one && other)
        join(a, n, b, m);
    if (one)
        join(a, n, a, n);
    return 0;
}
