/* SPDX-License-Identifier: Apache-2.0 */
/* iface.c - see iface.h.  Routes are asked of the kernel by connecting a UDP socket, which sends nothing: so policy
 * routing and source addresses are what real traffic would get.  No name is looked up anywhere. */
#include "lib/boot/iface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"

/* ---- grammar ---- */

static const char *words_of(const char *spec, bool *exclude, bool *exact)
{
    *exclude = *spec == '^';
    spec += *exclude;
    *exact = *spec == '=';
    return spec + *exact;
}

ring_status_t ri_iface_check(const char *spec)
{
    bool exclude, exact, good = true;
    const char *w = words_of(spec, &exclude, &exact);
    for (size_t n;; w += n + 1) {
        n = strcspn(w, ",");
        good = good && n > 0 && n < IF_NAMESIZE && strcspn(w, " /^=") >= n;
        if (!w[n])
            break;
    }
    return good
               ? RING_OK
               : ri_fail(RING_ERR_CONFIG,
                         "RING_SOCKET_IFNAME=\"%.80s\" is not accepted: it takes interface names of 1 to %d bytes with "
                         "commas between them: eth,ib are prefixes, =eth0 is exact, ^docker and ^=eth0 exclude",
                         spec, IF_NAMESIZE - 1);
}

bool ri_iface_match(const char *spec, const char *name)
{
    bool exclude, exact, found = false;
    if (ri_conf_is_auto(spec))
        return true;
    const char *w = words_of(spec, &exclude, &exact);
    for (size_t n;; w += n + 1) {
        n = strcspn(w, ",");
        found = found || (!strncmp(name, w, n) && (!exact || !name[n]));
        if (!w[n])
            break;
    }
    return found != exclude;
}

/* ---- choice ---- */

/* Bridges and pairs that containers and virtual machines make: up, with an address, and leading nowhere. */
static bool is_virtual(const char *name)
{
    static const char *const prefixes[] = {"docker", "br-",   "virbr",  "veth", "cni", "flannel", "cali",
                                           "lxc",    "lxdbr", "podman", "vnet", "tap", "dummy",   "ifb"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static bool family_fits(const struct ri_iface *f, uint64_t family)
{
    return family == RI_FAMILY_AUTO || (family == RI_FAMILY_IPV4) == (f->addr.family == 4);
}

static bool allowed(const struct ri_iface *f, const struct ri_iface_wish *w)
{
    /* An exclusion says nothing in favour of loopback. */
    const bool loopback_out = f->flags & IFF_LOOPBACK && w->spec[0] == '^';
    return f->flags & IFF_UP && !loopback_out && family_fits(f, w->family) && ri_iface_match(w->spec, f->name);
}

enum grade { NONE, LOOPBACK, LINK_LOCAL, VIRTUAL, NO_CARRIER, PLAIN, DEFAULT_ROUTE, TO_PEER };

static enum grade grade(const struct ri_iface *f, const struct ri_iface_wish *w)
{
    if (!allowed(f, w))
        return NONE;
    if (w->source.family && ri_address_same_host(&f->addr, &w->source))
        return TO_PEER;
    for (int i = 0; i < 2; i++)
        if (w->default_route[i].family && ri_address_same_host(&f->addr, &w->default_route[i]))
            return DEFAULT_ROUTE;
    if (f->flags & IFF_LOOPBACK)
        return LOOPBACK;
    if (ri_address_is_link_local(&f->addr))
        return LINK_LOCAL;
    if (is_virtual(f->name))
        return VIRTUAL;
    return f->flags & IFF_RUNNING ? PLAIN : NO_CARRIER;
}

static void explain(const struct ri_iface_wish *w, enum grade best, struct ri_iface_choice *c)
{
    static const char *const reasons[] = {
        [LOOPBACK] = "nothing but loopback is up",
        [LINK_LOCAL] = "it has a link-local address and nothing better is up",
        [VIRTUAL] = "it looks virtual, but nothing better is up",
        [NO_CARRIER] = "it has no carrier, but nothing better is up",
        [PLAIN] = "it is up and there is no default route",
        [DEFAULT_ROUTE] = "it carries the default route",
    };
    char text[RI_ADDRESS_TEXT];
    const bool named = !ri_conf_is_auto(w->spec);
    int n = named ? snprintf(c->why, sizeof c->why, "RING_SOCKET_IFNAME=%.40s allows it; ", w->spec) : 0;
    if (best == TO_PEER)
        snprintf(c->why + n, sizeof c->why - (size_t)n, "the route to %s leaves there",
                 ri_address_print(&w->toward, text));
    else
        snprintf(c->why + n, sizeof c->why - (size_t)n, "%s", reasons[best]);
}

static ring_status_t none_fits(const struct ri_iface *list, size_t n, const struct ri_iface_wish *w)
{
    char seen[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < n && at < sizeof seen - 40; i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again = again || !strcmp(list[j].name, list[i].name);
        if (!again)
            at += (size_t)snprintf(seen + at, sizeof seen - at, "%s%s%s", at ? ", " : "", list[i].name,
                                   list[i].flags & IFF_UP ? "" : " (down)");
    }
    static const char *const families[] = {"", " IPv4", " IPv6"};
    return ri_fail(RING_ERR_CONFIG,
                   "RING_SOCKET_IFNAME=%.64s, RING_SOCKET_FAMILY=%s: no interface that is up with an%s address fits; "
                   "there are: %s",
                   w->spec,
                   w->family == RI_FAMILY_AUTO   ? "auto"
                   : w->family == RI_FAMILY_IPV4 ? "ipv4"
                                                 : "ipv6",
                   families[w->family], at ? seen : "none");
}

static void add(const struct ri_iface *f, struct ri_iface_choice *c)
{
    memcpy(c->of[c->count], f->name, sizeof c->of[0]);
    c->prefix[c->count] = f->prefix;
    c->addr[c->count++] = f->addr;
}

/* The best address of a family on the chosen interface. */
static void pick_address(const struct ri_iface *list, size_t n, const struct ri_iface_wish *w, uint8_t family,
                         struct ri_iface_choice *c)
{
    const struct ri_iface *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, c->name) && list[i].addr.family == family && grade(&list[i], w) &&
            (!best || grade(&list[i], w) > grade(best, w)))
            best = &list[i];
    /* A link-local address beside a better one would only be tried in vain. */
    if (best && !(c->count && ri_address_is_link_local(&best->addr)))
        add(best, c);
}

static bool taken(const struct ri_iface *f, const struct ri_iface_choice *c)
{
    for (unsigned i = 0; i < c->count; i++)
        if (!strcmp(c->of[i], f->name))
            return true;
    return false;
}

/* More interfaces beside the first, of its family.  One without carrier leads nowhere, and nor does one that looks
 * virtual unless it was asked for. */
static void pick_rails(const struct ri_iface *list, size_t n, const struct ri_iface_wish *w, struct ri_iface_choice *c)
{
    const enum grade least = ri_conf_is_auto(w->spec) ? PLAIN : VIRTUAL;
    while (c->count < w->rails && c->count < RI_ENDPOINT_ADDRS) {
        const struct ri_iface *best = NULL;
        for (size_t i = 0; i < n; i++) {
            const enum grade g = grade(&list[i], w);
            if (g >= least && list[i].flags & IFF_RUNNING && list[i].addr.family == c->addr[0].family &&
                !taken(&list[i], c) && (!best || g > grade(best, w)))
                best = &list[i];
        }
        if (!best)
            return;
        add(best, c);
    }
}

ring_status_t ri_iface_choose(const struct ri_iface *list, size_t n, const struct ri_iface_wish *wish,
                              struct ri_iface_choice *choice_out)
{
    const struct ri_iface *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (grade(&list[i], wish) && (!best || grade(&list[i], wish) > grade(best, wish)))
            best = &list[i];
    if (!best)
        return none_fits(list, n, wish);
    struct ri_iface_choice c = {0};
    memcpy(c.name, best->name, sizeof c.name);
    pick_address(list, n, wish, best->addr.family, &c);
    if (wish->rails > 1)
        pick_rails(list, n, wish, &c);
    else
        pick_address(list, n, wish, best->addr.family == 4 ? 6 : 4, &c);
    explain(wish, grade(best, wish), &c);
    *choice_out = c;
    return RING_OK;
}

/* ---- this machine ---- */

static bool source_for(const struct sockaddr *to, socklen_t len, struct ri_address *out)
{
    struct sockaddr_storage from;
    socklen_t from_len = sizeof from;
    const int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    const bool known = !connect(fd, to, len) && !getsockname(fd, (struct sockaddr *)&from, &from_len) &&
                       ri_address_from((struct sockaddr *)&from, out);
    close(fd);
    if (known)
        out->port = 0;
    return known;
}

static void ask_routes(const struct sockaddr *toward, struct ri_iface_wish *w)
{
    /* Addresses kept for documentation (RFC 5737, RFC 3849): only the default route leads there. */
    static const struct ri_address world[2] = {{.family = 4, .bytes = {192, 0, 2, 1}, .port = 9},
                                               {.family = 6, .bytes = {0x20, 0x01, 0x0d, 0xb8}, .port = 9}};
    struct sockaddr_storage sa;
    socklen_t len;
    for (int i = 0; i < 2; i++)
        if ((len = ri_address_sockaddr(&world[i], NULL, &sa)))
            source_for((struct sockaddr *)&sa, len, &w->default_route[i]);
    struct ri_address peer;
    if (!toward || !ri_address_from(toward, &peer) || !(len = ri_address_sockaddr(&peer, NULL, &sa)))
        return;
    w->toward = peer;
    source_for((struct sockaddr *)&sa, len, &w->source);
}

static uint8_t prefix_of(const struct ri_address *addr, const struct sockaddr *mask)
{
    struct ri_address m;
    uint8_t bits = 0;
    /* the kernel need not fill in the mask's family */
    struct sockaddr_storage sa = {0};
    const size_t len = addr->family == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (!mask)
        return addr->family == 4 ? 32 : 128;
    memcpy(&sa, mask, len);
    sa.ss_family = addr->family == 4 ? AF_INET : AF_INET6;
    if (ri_address_from((struct sockaddr *)&sa, &m))
        while (bits < (addr->family == 4 ? 32 : 128) && m.bytes[bits / 8] >> (7 - bits % 8) & 1)
            bits++;
    return bits;
}

static size_t list_all(struct ifaddrs *all, struct ri_iface *list)
{
    size_t n = 0;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        struct ri_address addr;
        if (!a->ifa_addr || !ri_address_from(a->ifa_addr, &addr))
            continue;
        snprintf(list[n].name, sizeof list[n].name, "%s", a->ifa_name);
        list[n].flags = a->ifa_flags;
        list[n].addr = addr;
        list[n].prefix = prefix_of(&addr, a->ifa_netmask);
        list[n++].addr.port = 0;
    }
    return n;
}

static size_t count_all(const struct ifaddrs *all)
{
    size_t n = 0;
    for (; all; all = all->ifa_next)
        n++;
    return n;
}

ring_status_t ri_iface_find(const struct ri_conf *conf, const struct sockaddr *toward,
                            struct ri_iface_choice *choice_out)
{
    struct ri_iface_wish wish = {.spec = conf->ifname, .family = conf->family, .rails = conf->tcp_rails};
    struct ifaddrs *all = NULL;
    ring_status_t status = ri_iface_check(conf->ifname);
    if (status)
        return status;
    if (getifaddrs(&all))
        return ri_fail_errno("listing the network interfaces");
    struct ri_iface *list = ri_new(count_all(all), sizeof *list);
    if (list) {
        ask_routes(toward, &wish);
        status = ri_iface_choose(list, list_all(all, list), &wish, choice_out);
    } else
        status = ri_fail(RING_ERR_NOMEM, "no memory for the list of network interfaces");
    ri_free(list);
    freeifaddrs(all);
    return status;
}
