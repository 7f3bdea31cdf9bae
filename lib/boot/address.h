/* SPDX-License-Identifier: Apache-2.0 */
/* address.h - where a process can be reached: as a struct, as bytes in a card, as text in a ticket, as a sockaddr. */
#ifndef RI_ADDRESS_H
#define RI_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { RI_ENDPOINT_ADDRS = 4, RI_UNIX_NAME = 24, RI_ADDRESS_TEXT = 72 };

/* Travels in the card. */
struct ri_address {
    uint8_t family; /* 4 or 6; 0: unused */
    uint8_t bytes[16];
    uint16_t port;  /* host order */
    char scope[16]; /* interface name of a link-local address, else "" */
};
struct ri_endpoint {
    struct ri_address addr[RI_ENDPOINT_ADDRS]; /* best first */
    char unix_name[RI_UNIX_NAME];              /* abstract, without the leading NUL; "" when there is none */
};

/* As bytes: little-endian, at most RI_ENDPOINT_BYTES.  encode: bytes written, 0 when cap is too small.  decode takes
 * exactly what encode can write and nothing else; unused parts come back zeroed. */
enum { RI_ENDPOINT_BYTES = 2 + RI_ENDPOINT_ADDRS * (1 + 2 + 16 + 16) + RI_UNIX_NAME };
size_t ri_endpoint_encode(const struct ri_endpoint *e, uint8_t *buf, size_t cap);
bool ri_endpoint_decode(const uint8_t *buf, size_t len, struct ri_endpoint *out);

bool ri_address_same_host(const struct ri_address *a, const struct ri_address *b); /* all but the port */
bool ri_address_is_link_local(const struct ri_address *a);

/* "10.0.0.2:4711", "[fd00::2]:4711", "[fe80::2%eth0]:4711"; without the port when it is 0. */
const char *ri_address_print(const struct ri_address *a, char text[RI_ADDRESS_TEXT]);
bool ri_address_parse(const char *text, size_t len, struct ri_address *out); /* the port is mandatory here */

/* scope: interface to use for a link-local address (NULL: its own). 0: no such interface here, or no address. */
socklen_t ri_address_sockaddr(const struct ri_address *a, const char *scope, struct sockaddr_storage *out);
bool ri_address_from(const struct sockaddr *sa, struct ri_address *out); /* false: neither IPv4 nor IPv6 */

#endif
