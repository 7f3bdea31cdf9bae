/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.h - the unique id as text, what is in it, and the keys that follow from it.
 *
 *     ring1-KEY-ADDRESS[,ADDRESS]     KEY: 32 bytes in base64url (43 characters); ADDRESS: as address.h prints it
 *
 * The key opens the rendezvous (rendezvous.h) and takes part in every key that two ranks share. */
#ifndef RI_TICKET_H
#define RI_TICKET_H

#include "lib/boot/address.h"
#include "lib/boot/auth.h"

struct ri_ticket {
    uint8_t key[RI_KEY];
    struct ri_endpoint where; /* where the maker listens */
};

/* As many addresses as fit, at least one. */
void ri_ticket_print(const struct ri_ticket *t, ring_uid_t *uid_out);
/* RING_ERR_INVALID says what is wrong with the text, without repeating the secret. */
ring_status_t ri_ticket_parse(const ring_uid_t *uid, struct ri_ticket *out);

struct ri_ticket_keys {
    uint64_t comm_id;
    uint8_t handshake[RI_KEY], secret[RI_KEY];
};
void ri_ticket_derive(const struct ri_ticket *t, struct ri_ticket_keys *out);

#endif
