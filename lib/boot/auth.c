/* SPDX-License-Identifier: Apache-2.0 */
/* auth.c - see auth.h.  X25519, keyed BLAKE2b and comparison in constant time are libsodium's; here is only what is put
 * into them, in which order.  Each hash begins with a label of its own, so that no message can be taken for another. */
#include "lib/boot/auth.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/error.h"
#include "lib/boot/bytes.h"

static const char pair_label[16] = "libring pair 1", hello_label[16] = "libring hello 1",
                  challenge_label[16] = "libring challe1", proof_label[16] = "libring proof 1";
static const uint8_t magic[8] = {'R', 'I', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x80};
enum { VERSION = 1, UNSIGNED_HELLO = RI_HELLO_BYTES - RI_MAC };

static void prepare(void)
{
    if (sodium_init() < 0)
        abort(); /* it fails only when the kernel has no random numbers */
}

static void ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
}

void ri_random(void *bytes, size_t len)
{
    uint8_t *p = bytes;
    while (len) {
        const ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno != EINTR)
            abort(); /* a kernel without random numbers: nothing secret can be made */
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
}

ring_status_t ri_identity_make(struct ri_identity *id_out)
{
    ready();
    ri_random(id_out->secret_half, RI_KEY);
    if (crypto_scalarmult_base(id_out->public_half, id_out->secret_half)) {
        ri_identity_clear(id_out);
        return ri_fail(RING_ERR_INTERNAL, "no X25519 key pair could be made");
    }
    return RING_OK;
}

void ri_identity_clear(struct ri_identity *id) { sodium_memzero(id, sizeof *id); }

/* Lower rank first, so that both sides hash the same bytes. */
static void put_rank(crypto_generichash_state *s, uint32_t rank, const uint8_t public_half[RI_KEY])
{
    uint8_t number[4];
    ri_put32(number, rank);
    crypto_generichash_update(s, number, sizeof number);
    crypto_generichash_update(s, public_half, RI_KEY);
}

ring_status_t ri_pair_key(const struct ri_identity *mine, uint32_t me, const uint8_t theirs[RI_KEY], uint32_t peer,
                          uint64_t comm_id, const uint8_t secret[RI_KEY], uint8_t key_out[RI_KEY])
{
    uint8_t shared[RI_KEY], number[8];
    crypto_generichash_state s;
    ready();
    if (me == peer)
        return ri_fail(RING_ERR_INVALID, "rank %u has no key to share with itself", me);
    if (crypto_scalarmult(shared, mine->secret_half, theirs))
        return ri_fail(RING_ERR_INVALID, "the public key of rank %u is not a usable X25519 key", peer);
    ri_put64(number, comm_id);
    crypto_generichash_init(&s, secret, RI_KEY, RI_KEY);
    crypto_generichash_update(&s, (const uint8_t *)pair_label, sizeof pair_label);
    crypto_generichash_update(&s, shared, sizeof shared);
    crypto_generichash_update(&s, number, sizeof number);
    put_rank(&s, me < peer ? me : peer, me < peer ? mine->public_half : theirs);
    put_rank(&s, me < peer ? peer : me, me < peer ? theirs : mine->public_half);
    crypto_generichash_final(&s, key_out, RI_KEY);
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(&s, sizeof s);
    return RING_OK;
}

/* MAC over a label and up to two pieces of what was said. */
static void sign(const char label[16], const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len,
                 const uint8_t key[RI_KEY], uint8_t mac[RI_MAC])
{
    crypto_generichash_state s;
    ready();
    crypto_generichash_init(&s, key, RI_KEY, RI_MAC);
    crypto_generichash_update(&s, (const uint8_t *)label, 16);
    crypto_generichash_update(&s, a, a_len);
    crypto_generichash_update(&s, b, b_len);
    crypto_generichash_final(&s, mac, RI_MAC);
    sodium_memzero(&s, sizeof s);
}

static bool same(const uint8_t a[RI_MAC], const uint8_t b[RI_MAC]) { return sodium_memcmp(a, b, RI_MAC) == 0; }

void ri_hello_encode(const struct ri_hello *h, const uint8_t key[RI_KEY], uint8_t wire[RI_HELLO_BYTES])
{
    memcpy(wire, magic, 8);
    ri_put64(wire + 8, h->comm_id);
    ri_put32(wire + 16, h->from);
    ri_put32(wire + 20, h->to);
    ri_put16(wire + 24, h->purpose);
    ri_put16(wire + 26, h->lane);
    ri_put32(wire + 28, VERSION);
    memcpy(wire + 32, h->nonce, RI_NONCE);
    sign(hello_label, wire, UNSIGNED_HELLO, NULL, 0, key, wire + UNSIGNED_HELLO);
}

bool ri_hello_decode(const uint8_t wire[RI_HELLO_BYTES], struct ri_hello *h_out)
{
    const uint16_t purpose = ri_get16(wire + 24);
    if (memcmp(wire, magic, 8) || ri_get32(wire + 28) != VERSION || purpose < RI_FOR_RENDEZVOUS ||
        purpose > RI_FOR_LINK)
        return false;
    h_out->comm_id = ri_get64(wire + 8);
    h_out->from = ri_get32(wire + 16);
    h_out->to = ri_get32(wire + 20);
    h_out->purpose = purpose;
    h_out->lane = ri_get16(wire + 26);
    memcpy(h_out->nonce, wire + 32, RI_NONCE);
    return true;
}

bool ri_hello_verify(const uint8_t wire[RI_HELLO_BYTES], const uint8_t key[RI_KEY])
{
    uint8_t mac[RI_MAC];
    sign(hello_label, wire, UNSIGNED_HELLO, NULL, 0, key, mac);
    return same(mac, wire + UNSIGNED_HELLO);
}

void ri_challenge_encode(const uint8_t hello[RI_HELLO_BYTES], const uint8_t nonce[RI_NONCE], const uint8_t key[RI_KEY],
                         uint8_t wire[RI_CHALLENGE_BYTES])
{
    memcpy(wire, nonce, RI_NONCE);
    sign(challenge_label, hello, RI_HELLO_BYTES, wire, RI_NONCE, key, wire + RI_NONCE);
}

bool ri_challenge_verify(const uint8_t hello[RI_HELLO_BYTES], const uint8_t wire[RI_CHALLENGE_BYTES],
                         const uint8_t key[RI_KEY])
{
    uint8_t mac[RI_MAC];
    sign(challenge_label, hello, RI_HELLO_BYTES, wire, RI_NONCE, key, mac);
    return same(mac, wire + RI_NONCE);
}

void ri_proof_encode(const uint8_t hello[RI_HELLO_BYTES], const uint8_t challenge[RI_CHALLENGE_BYTES],
                     const uint8_t key[RI_KEY], uint8_t wire[RI_PROOF_BYTES])
{
    sign(proof_label, hello, RI_HELLO_BYTES, challenge, RI_CHALLENGE_BYTES, key, wire);
}

bool ri_proof_verify(const uint8_t hello[RI_HELLO_BYTES], const uint8_t challenge[RI_CHALLENGE_BYTES],
                     const uint8_t key[RI_KEY], const uint8_t wire[RI_PROOF_BYTES])
{
    uint8_t mac[RI_MAC];
    sign(proof_label, hello, RI_HELLO_BYTES, challenge, RI_CHALLENGE_BYTES, key, mac);
    return same(mac, wire);
}

void ri_derive(const uint8_t secret[RI_KEY], uint64_t comm_id, uint32_t child, uint32_t color,
               uint8_t secret_out[RI_KEY], uint64_t *comm_id_out)
{
    static const char label[16] = "libring split 1";
    uint8_t said[sizeof label + 8 + 4 + 4], hash[RI_KEY + 8];
    ready();
    memcpy(said, label, sizeof label);
    ri_put64(said + sizeof label, comm_id);
    ri_put32(said + sizeof label + 8, child);
    ri_put32(said + sizeof label + 12, color);
    crypto_generichash(hash, sizeof hash, said, sizeof said, secret, RI_KEY);
    memcpy(secret_out, hash, RI_KEY);
    memcpy(comm_id_out, hash + RI_KEY, 8);
    sodium_memzero(hash, sizeof hash);
}
