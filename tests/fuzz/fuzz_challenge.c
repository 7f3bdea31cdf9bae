/* SPDX-License-Identifier: Apache-2.0 */
/* Challenge and proof: only the right ones are accepted, and those always. */
#include <string.h>

#include "fuzz.h"
#include "lib/boot/auth.h"

static uint8_t key[RI_KEY] = {2}, hello[RI_HELLO_BYTES], challenge[RI_CHALLENGE_BYTES], proof[RI_PROOF_BYTES];

static void make_right_ones(void)
{
    const struct ri_hello h = {.comm_id = 1, .from = 0, .to = 1, .purpose = RI_FOR_LINK};
    const uint8_t nonce[RI_NONCE] = {3};
    ri_hello_encode(&h, key, hello);
    ri_challenge_encode(hello, nonce, key, challenge);
    ri_proof_encode(hello, challenge, key, proof);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t wire[RI_CHALLENGE_BYTES + RI_PROOF_BYTES];
    make_right_ones();
    memcpy(wire, challenge, sizeof challenge);
    memcpy(wire + sizeof challenge, proof, sizeof proof);
    HOLDS(ri_challenge_verify(hello, wire, key) && ri_proof_verify(hello, wire, key, wire + sizeof challenge));
    for (size_t i = 0; i < len && i < sizeof wire; i++)
        wire[i] ^= bytes[i];
    const bool same = !memcmp(wire, challenge, sizeof challenge);
    HOLDS(ri_challenge_verify(hello, wire, key) == same);
    HOLDS(ri_proof_verify(hello, wire, key, wire + sizeof challenge) ==
          (same && !memcmp(wire + sizeof challenge, proof, sizeof proof)));
    return 0;
}
