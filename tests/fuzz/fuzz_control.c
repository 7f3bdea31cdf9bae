/* SPDX-License-Identifier: Apache-2.0 */
/* A control message: what is accepted is in range, ends, and writing it again gives the same message. */
#include <string.h>

#include "fuzz.h"
#include "lib/comm/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    enum { NODES = 3, RANKS = 7 };
    uint8_t wire[RI_FRAME] = {0}, again[RI_FRAME];
    struct ri_control_frame f, g;
    memcpy(wire, bytes, len < sizeof wire ? len : sizeof wire);
    if (!ri_frame_decode(wire, NODES, RANKS, &f))
        return 0;
    HOLDS(f.node < NODES && f.rank < RANKS && memchr(f.failure.text, 0, sizeof f.failure.text));
    HOLDS(f.kind != RI_CONTROL_FAILURE || f.failure.status < 0);
    ri_frame_encode(&f, again);
    HOLDS(ri_frame_decode(again, NODES, RANKS, &g) && !strcmp(f.failure.text, g.failure.text) && f.kind == g.kind &&
          f.version == g.version && !memcmp(&f.signature, &g.signature, sizeof f.signature));
    return 0;
}
