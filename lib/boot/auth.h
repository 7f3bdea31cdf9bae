/* SPDX-License-Identifier: Apache-2.0 */
/* auth.h - who is allowed to talk to us: keys and the handshake's messages, as pure functions on bytes (no sockets).
 *
 * Each rank makes an X25519 key pair per communicator; the public half travels with its card.  Two ranks share a 256-bit
 * key that both can compute and that never travels: BLAKE2b(key exchange, ticket's secret, communicator, both ranks, both
 * public halves).  So nothing secret stands in argv, the environment or a PMIx store.
 *
 * A connection is opened by three messages; each ends in a keyed BLAKE2b over all that was said before:
 *     hello      initiator -> acceptor   who to whom, for what, a nonce
 *     challenge  acceptor -> initiator   a nonce
 *     proof      initiator -> acceptor
 * and one byte, RI_WELCOME, comes back from an acceptor that has taken the connection. Both sides have then shown that they hold the key, and a replayed hello gets no further than the challenge. */
#ifndef RI_AUTH_H
#define RI_AUTH_H

#include <stdbool.h>
#include <stdint.h>
#include <ring/ring.h>

enum { RI_KEY = 32, RI_NONCE = 32, RI_MAC = 32 };

struct ri_identity {
    uint8_t public_half[RI_KEY], secret_half[RI_KEY];
};

ring_status_t ri_identity_make(struct ri_identity *id_out);
void ri_identity_clear(struct ri_identity *id);

/* The key that `mine` (rank me) shares with `theirs` (rank peer); the same on both sides. */
ring_status_t ri_pair_key(const struct ri_identity *mine, uint32_t me, const uint8_t theirs[RI_KEY], uint32_t peer,
                          uint64_t comm_id, const uint8_t secret[RI_KEY], uint8_t key_out[RI_KEY]);

/* What a connection is for. */
enum ri_purpose { RI_FOR_RENDEZVOUS = 1, RI_FOR_CONTROL, RI_FOR_NODE, RI_FOR_LINK };

enum { RI_LANES = 64 };
struct ri_hello {
    uint64_t comm_id;
    uint32_t from, to;
    uint16_t purpose, lane; /* lane: which of several connections of one purpose (transport number * RI_LANES + socket) */
    uint8_t nonce[RI_NONCE];
};

/* On the wire: fixed sizes, little-endian. */
enum { RI_HELLO_BYTES = 8 + 8 + 4 + 4 + 2 + 2 + 4 + RI_NONCE + RI_MAC, RI_CHALLENGE_BYTES = RI_NONCE + RI_MAC, RI_PROOF_BYTES = RI_MAC, RI_WELCOME = 0x52 };

void ri_hello_encode(const struct ri_hello *h, const uint8_t key[RI_KEY], uint8_t wire[RI_HELLO_BYTES]);
/* Reads the fields only: the key is found by them.  false: not ours (magic, version, purpose). */
bool ri_hello_decode(const uint8_t wire[RI_HELLO_BYTES], struct ri_hello *h_out);
bool ri_hello_verify(const uint8_t wire[RI_HELLO_BYTES], const uint8_t key[RI_KEY]);

void ri_challenge_encode(const uint8_t hello[RI_HELLO_BYTES], const uint8_t nonce[RI_NONCE], const uint8_t key[RI_KEY],
                         uint8_t wire[RI_CHALLENGE_BYTES]);
bool ri_challenge_verify(const uint8_t hello[RI_HELLO_BYTES], const uint8_t wire[RI_CHALLENGE_BYTES],
                         const uint8_t key[RI_KEY]);

void ri_proof_encode(const uint8_t hello[RI_HELLO_BYTES], const uint8_t challenge[RI_CHALLENGE_BYTES],
                     const uint8_t key[RI_KEY], uint8_t wire[RI_PROOF_BYTES]);
bool ri_proof_verify(const uint8_t hello[RI_HELLO_BYTES], const uint8_t challenge[RI_CHALLENGE_BYTES],
                     const uint8_t key[RI_KEY], const uint8_t wire[RI_PROOF_BYTES]);

/* Secret and number of a communicator that is split off another: the child-th, of that color. */
void ri_derive(const uint8_t secret[RI_KEY], uint64_t comm_id, uint32_t child, uint32_t color,
               uint8_t secret_out[RI_KEY], uint64_t *comm_id_out);

void ri_random(void *bytes, size_t len); /* from the kernel */

#endif
