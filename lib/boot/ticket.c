/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.c - see ticket.h.  A ticket comes through files, stores and people's hands: all of it is checked. */
#include "lib/boot/ticket.h"

#include <sodium.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/boot/bytes.h"

static const char prefix[] = "ring1-";
enum {
    PREFIX = sizeof prefix - 1,
    KEY_TEXT = 43,
    ADDRESSES = PREFIX + KEY_TEXT + 1,
    VARIANT = sodium_base64_VARIANT_URLSAFE_NO_PADDING
};
_Static_assert(ADDRESSES + 1 + RI_ADDRESS_TEXT <= sizeof(ring_uid_t), "the longest address fits into a ticket");

void ri_ticket_print(const struct ri_ticket *t, ring_uid_t *uid_out)
{
    ring_uid_t uid = {{0}};
    char text[RI_ADDRESS_TEXT];
    memcpy(uid.text, prefix, PREFIX);
    sodium_bin2base64(uid.text + PREFIX, KEY_TEXT + 1, t->key, sizeof t->key, VARIANT);
    size_t at = PREFIX + KEY_TEXT;
    for (int i = 0; i < RI_ENDPOINT_ADDRS; i++) {
        if (!t->where.addr[i].family)
            continue;
        const size_t len = strlen(ri_address_print(&t->where.addr[i], text));
        if (at + 1 + len >= sizeof uid.text)
            continue;
        uid.text[at] = at == PREFIX + KEY_TEXT ? '-' : ',';
        memcpy(uid.text + at + 1, text, len);
        at += 1 + len;
    }
    *uid_out = uid;
}

static ring_status_t bad(const char *what)
{
    return ri_fail(RING_ERR_INVALID,
                   "the ticket is damaged: %s (a ticket is the whole text that ring_uid_create() made, "
                   "ring1-KEY-ADDRESS:PORT)",
                   what);
}

static bool parse_addresses(const char *text, struct ri_endpoint *where)
{
    for (int i = 0; i < RI_ENDPOINT_ADDRS; i++) {
        const size_t len = strcspn(text, ",");
        if (!ri_address_parse(text, len, &where->addr[i]))
            return false;
        if (!text[len])
            return true;
        text += len + 1;
    }
    return false;
}

ring_status_t ri_ticket_parse(const ring_uid_t *uid, struct ri_ticket *out)
{
    struct ri_ticket t = {{0}, {{{0}}, ""}};
    const size_t len = strnlen(uid->text, sizeof uid->text);
    size_t key_len = 0;
    if (len == sizeof uid->text)
        return bad("its text has no end");
    if (strncmp(uid->text, prefix, PREFIX))
        return bad(len ? "it does not begin with ring1-" : "it is empty");
    if (len < ADDRESSES || uid->text[ADDRESSES - 1] != '-' ||
        sodium_base642bin(t.key, sizeof t.key, uid->text + PREFIX, KEY_TEXT, NULL, &key_len, NULL, VARIANT) ||
        key_len != sizeof t.key)
        return bad("its key is not 43 characters of base64url");
    if (!parse_addresses(uid->text + ADDRESSES, &t.where))
        return bad("its address is not of the form 10.0.0.1:4711 or [fd00::1]:4711");
    *out = t;
    sodium_memzero(&t, sizeof t);
    return RING_OK;
}

static void derive(const uint8_t key[RI_KEY], const char *use, uint8_t out[RI_KEY])
{
    crypto_generichash(out, RI_KEY, (const uint8_t *)use, strlen(use), key, RI_KEY);
}

void ri_ticket_derive(const struct ri_ticket *t, struct ri_ticket_keys *out)
{
    uint8_t id[RI_KEY];
    derive(t->key, "libring ticket communicator", id);
    out->comm_id = ri_get64(id);
    derive(t->key, "libring ticket rendezvous", out->handshake);
    derive(t->key, "libring ticket secret", out->secret);
}
