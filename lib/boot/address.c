/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - see address.h.  Texts and bytes come from outside: lengths are checked before anything is read. */
#include "lib/boot/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "lib/boot/bytes.h"

_Static_assert(sizeof((struct ri_address *)0)->scope == IF_NAMESIZE, "an interface name fits, with its NUL");

static size_t width(uint8_t family) { return family == 4 ? 4 : 16; }

bool ri_address_same_host(const struct ri_address *a, const struct ri_address *b)
{
    return a->family == b->family && !memcmp(a->bytes, b->bytes, width(a->family)) && !strcmp(a->scope, b->scope);
}

bool ri_address_is_link_local(const struct ri_address *a)
{
    return a->family == 6 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

/* Interface and socket names: what cannot be confused in a log or in "[address%name]". */
static bool plain(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)name[i]) || strchr("%[],/", name[i]))
            return false;
    return true;
}

/* ---- bytes ---- */

static uint8_t *put_text(uint8_t *p, const char *text, size_t cap)
{
    const size_t len = strnlen(text, cap - 1);
    *p++ = (uint8_t)len;
    memcpy(p, text, len);
    return p + len;
}

size_t ri_endpoint_encode(const struct ri_endpoint *e, uint8_t *buf, size_t cap)
{
    uint8_t bytes[RI_ENDPOINT_BYTES], *p = bytes + 1;
    bytes[0] = 0;
    for (int i = 0; i < RI_ENDPOINT_ADDRS; i++) {
        const struct ri_address *a = &e->addr[i];
        if (!a->family)
            continue;
        bytes[0]++;
        *p++ = a->family;
        ri_put16(p, a->port);
        memcpy(p + 2, a->bytes, width(a->family));
        p = put_text(p + 2 + width(a->family), a->scope, sizeof a->scope);
    }
    p = put_text(p, e->unix_name, sizeof e->unix_name);
    const size_t len = (size_t)(p - bytes);
    if (len > cap)
        return 0;
    memcpy(buf, bytes, len);
    return len;
}

struct reader {
    const uint8_t *at, *end;
};

static const uint8_t *take(struct reader *r, size_t n)
{
    const uint8_t *p = r->at;
    if ((size_t)(r->end - r->at) < n)
        return NULL;
    r->at += n;
    return p;
}

static bool take_text(struct reader *r, char *text, size_t cap)
{
    const uint8_t *len = take(r, 1);
    const uint8_t *p = len && *len < cap ? take(r, *len) : NULL;
    if (!p || !plain((const char *)p, *len))
        return false;
    memcpy(text, p, *len);
    text[*len] = 0;
    return true;
}

static bool take_address(struct reader *r, struct ri_address *a)
{
    const uint8_t *head = take(r, 3);
    if (!head || (head[0] != 4 && head[0] != 6) || !ri_get16(head + 1))
        return false;
    const uint8_t *bytes = take(r, width(head[0]));
    if (!bytes)
        return false;
    a->family = head[0];
    a->port = ri_get16(head + 1);
    memcpy(a->bytes, bytes, width(a->family));
    return take_text(r, a->scope, sizeof a->scope) && (!a->scope[0] || ri_address_is_link_local(a));
}

bool ri_endpoint_decode(const uint8_t *buf, size_t len, struct ri_endpoint *out)
{
    struct ri_endpoint e = {0};
    struct reader r = {buf, buf + len};
    const uint8_t *count = take(&r, 1);
    if (!count || *count > RI_ENDPOINT_ADDRS)
        return false;
    for (int i = 0; i < *count; i++)
        if (!take_address(&r, &e.addr[i]))
            return false;
    if (!take_text(&r, e.unix_name, sizeof e.unix_name) || r.at != r.end)
        return false;
    *out = e;
    return true;
}

/* ---- text ---- */

const char *ri_address_print(const struct ri_address *a, char text[RI_ADDRESS_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "";
    if (a->family)
        inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, host, sizeof host);
    if (a->port)
        snprintf(port, sizeof port, ":%u", a->port);
    if (a->family == 6)
        snprintf(text, RI_ADDRESS_TEXT, "[%s%s%.15s]%s", host, a->scope[0] ? "%" : "", a->scope, port);
    else
        snprintf(text, RI_ADDRESS_TEXT, "%s%s", host, port);
    return text;
}

static bool parse_port(const char *text, uint16_t *port_out)
{
    unsigned port = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p) && p - text < 5; p++)
        port = port * 10 + (unsigned)(*p - '0');
    if (p == text || *p || *text == '0' || port > UINT16_MAX)
        return false;
    *port_out = (uint16_t)port;
    return true;
}

/* host is "fd00::2" or "fe80::2%eth0". */
static bool parse_6(char *host, struct ri_address *a)
{
    char *scope = strchr(host, '%');
    if (scope) {
        *scope++ = 0;
        if (!*scope || strlen(scope) >= sizeof a->scope || !plain(scope, strlen(scope)))
            return false;
        memcpy(a->scope, scope, strlen(scope) + 1);
    }
    a->family = 6;
    return inet_pton(AF_INET6, host, a->bytes) == 1 && (!a->scope[0] || ri_address_is_link_local(a));
}

static bool parse_4(const char *host, struct ri_address *a)
{
    a->family = 4;
    return inet_pton(AF_INET, host, a->bytes) == 1;
}

bool ri_address_parse(const char *text, size_t len, struct ri_address *out)
{
    char copy[RI_ADDRESS_TEXT];
    struct ri_address a = {0};
    if (len >= sizeof copy)
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    char *colon = strrchr(copy, ':');
    if (strlen(copy) != len || !colon || colon == copy || !parse_port(colon + 1, &a.port))
        return false;
    *colon = 0;
    const bool bracket = copy[0] == '[';
    if (bracket && colon[-1] != ']')
        return false;
    if (bracket)
        colon[-1] = 0;
    if (!(bracket ? parse_6(copy + 1, &a) : parse_4(copy, &a)))
        return false;
    *out = a;
    return true;
}

/* ---- sockaddr ---- */

socklen_t ri_address_sockaddr(const struct ri_address *a, const char *scope, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (a->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(a->port);
        memcpy(&in->sin_addr, a->bytes, 4);
        return sizeof *in;
    }
    if (a->family != 6)
        return 0;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(a->port);
    memcpy(&in6->sin6_addr, a->bytes, 16);
    if (ri_address_is_link_local(a) && !(in6->sin6_scope_id = if_nametoindex(scope ? scope : a->scope)))
        return 0;
    return sizeof *in6;
}

bool ri_address_from(const struct sockaddr *sa, struct ri_address *out)
{
    struct ri_address a = {0};
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        a.family = 4;
        a.port = ntohs(in->sin_port);
        memcpy(a.bytes, &in->sin_addr, 4);
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
        a.family = 6;
        a.port = ntohs(in6->sin6_port);
        memcpy(a.bytes, &in6->sin6_addr, 16);
        if (ri_address_is_link_local(&a) && !if_indextoname(in6->sin6_scope_id, a.scope))
            a.scope[0] = 0;
    } else
        return false;
    *out = a;
    return true;
}
