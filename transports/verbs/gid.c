/* SPDX-License-Identifier: Apache-2.0 */
/* gid.c - see gid.h.
 *
 * Why both ends agree.  Pairs are in a total order of which every part reads the same from both sides: the score, the
 * sum of the indices, the two GIDs as a set, the sum of the positions.  Two different pairs that are equal in all of it
 * are the same two GIDs crosswise, x with y and y with x.  Then x with x is there as well (or both were left out), and
 * before them: its score is no less, and either its indices or those of y with y have no larger sum. */
#include "transports/verbs/gid.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/base/pack.h"

/* ---- one GID --------------------------------------------------------------------------------------------------- */

bool verbs_gid_is_ipv4(const struct verbs_gid *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return !memcmp(gid->gid, mapped, sizeof mapped);
}

enum verbs_gid_class verbs_gid_class(const struct verbs_gid *gid)
{
    const uint8_t *g = gid->gid;
    /* A place with the subnet's prefix and no interface is empty as well. */
    static const uint8_t zero[16], empty[16] = {0xfe, 0x80};
    if (!memcmp(g, zero, 16) || !memcmp(g, empty, 16))
        return VERBS_GID_ZERO;
    if (verbs_gid_is_ipv4(gid)) {
        static const uint8_t any[4];
        if (!memcmp(g + 12, any, 4))
            return VERBS_GID_ZERO;
        return g[12] == 127 || (g[12] == 169 && g[13] == 254) ? VERBS_GID_LINK_LOCAL : VERBS_GID_IPV4;
    }
    return g[0] == 0xfe && (g[1] & 0xc0) == 0x80 ? VERBS_GID_LINK_LOCAL : VERBS_GID_IPV6;
}

const char *verbs_gid_print(const struct verbs_gid *gid, char text[VERBS_GID_TEXT])
{
    static const char *const types[] = {"InfiniBand", "RoCE v1", "RoCE v2", "type unknown"};
    char address[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, gid->gid, address, sizeof address);
    snprintf(text, VERBS_GID_TEXT, "%s (index %u, %s)", address, gid->index,
             types[gid->type < VERBS_GID_UNKNOWN ? gid->type : VERBS_GID_UNKNOWN]);
    return text;
}

ring_status_t verbs_gid_index(const char *text, int *index_out)
{
    unsigned index = 0;
    size_t n = 0;
    if (ri_conf_is_auto(text)) {
        *index_out = -1;
        return RING_OK;
    }
    for (; n < 4 && text[n] >= '0' && text[n] <= '9'; n++)
        index = index * 10 + (unsigned)(text[n] - '0');
    if (!n || text[n] || index >= VERBS_GID_TABLE)
        return ri_fail(RING_ERR_CONFIG,
                       "RING_IB_GID_INDEX=\"%.64s\" is not accepted: it takes auto or a whole number, 0 to %d", text,
                       VERBS_GID_TABLE - 1);
    *index_out = (int)index;
    return RING_OK;
}

/* ---- a port's table -------------------------------------------------------------------------------------------- */

/* v1 and InfiniBand have one name and, in older kernels, one number. */
static uint8_t type_on(bool infiniband, uint8_t type)
{
    return infiniband ? VERBS_GID_IB : type == VERBS_GID_IB ? VERBS_GID_ROCE_V1 : type;
}

static unsigned add(struct verbs_gid *table, unsigned n, const union ibv_gid *gid, unsigned index, uint8_t type)
{
    struct verbs_gid g = {.index = (uint8_t)index, .type = type};
    memcpy(g.gid, gid->raw, sizeof g.gid);
    if (index >= VERBS_GID_TABLE || n == VERBS_GID_TABLE || verbs_gid_class(&g) == VERBS_GID_ZERO)
        return n;
    table[n] = g;
    return n + 1;
}

/* All in one call; false when the library or the kernel cannot. */
static bool read_table(const struct verbs_api *api, struct ibv_context *context, unsigned port, bool infiniband,
                       size_t most, struct verbs_gid *table, unsigned *n)
{
    struct ibv_gid_entry *entries = api->query_gid_table && most ? ri_new(most, sizeof *entries) : NULL;
    const ssize_t got = entries ? api->query_gid_table(context, entries, most, 0, sizeof *entries) : -1;
    for (size_t i = 0; got > 0 && i < (size_t)got && i < most; i++) {
        const uint32_t type = entries[i].gid_type;
        if (entries[i].port_num == port)
            *n = add(table, *n, &entries[i].gid, entries[i].gid_index,
                     type_on(infiniband, type <= IBV_GID_TYPE_ROCE_V2 ? (uint8_t)type : VERBS_GID_UNKNOWN));
    }
    ri_free(entries);
    return got >= 0;
}

/* Reading fails (EINVAL) when the interface is not in this network namespace. */
static uint8_t type_from_kernel(const struct ibv_device *device, unsigned port, unsigned index)
{
    char path[IBV_SYSFS_PATH_MAX + 64], text[32];
    if (device->ibdev_path[0])
        snprintf(path, sizeof path, "%.255s/ports/%u/gid_attrs/types/%u", device->ibdev_path, port, index);
    else
        snprintf(path, sizeof path, "/sys/class/infiniband/%.63s/ports/%u/gid_attrs/types/%u", device->name, port,
                 index);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[len > 0 ? len : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return !strcmp(text, "RoCE v2")      ? VERBS_GID_ROCE_V2
           : !strcmp(text, "IB/RoCE v1") ? VERBS_GID_IB
                                         : VERBS_GID_UNKNOWN;
}

static unsigned read_each(const struct verbs_api *api, struct ibv_context *context, unsigned port, bool infiniband,
                          int places, struct verbs_gid *table)
{
    unsigned n = 0;
    for (int i = 0; i < places && i < VERBS_GID_TABLE; i++) {
        union ibv_gid gid = {{0}};
        const unsigned before = n;
        if (!api->query_gid(context, (uint8_t)port, i, &gid))
            n = add(table, n, &gid, (unsigned)i, VERBS_GID_IB);
        if (n > before && !infiniband)
            table[before].type = type_on(false, type_from_kernel(context->device, port, (unsigned)i));
    }
    return n;
}

void verbs_gid_guess(struct verbs_gid *table, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = i + 1; j < n && table[i].type == VERBS_GID_UNKNOWN; j++)
            if (table[j].type == VERBS_GID_UNKNOWN && !memcmp(table[i].gid, table[j].gid, 16)) {
                table[i].type = VERBS_GID_ROCE_V1;
                table[j].type = VERBS_GID_ROCE_V2;
            }
}

static uint8_t bits_of(const uint8_t *mask, unsigned bits)
{
    uint8_t n = 0;
    while (n < bits && mask[n / 8] >> (7 - n % 8) & 1)
        n++;
    return n;
}

/* 0: the interface's address is another one, or its network is not known. */
static uint8_t network_of(const struct verbs_gid *gid, const struct ifaddrs *a)
{
    struct sockaddr_in v4, mask4;
    struct sockaddr_in6 v6, mask6;
    if (!a->ifa_addr || !a->ifa_netmask)
        return 0;
    if (a->ifa_addr->sa_family == AF_INET && verbs_gid_is_ipv4(gid)) {
        memcpy(&v4, a->ifa_addr, sizeof v4);
        memcpy(&mask4, a->ifa_netmask, sizeof mask4);
        return memcmp(&v4.sin_addr, gid->gid + 12, 4) ? 0 : 96 + bits_of((const uint8_t *)&mask4.sin_addr, 32);
    }
    if (a->ifa_addr->sa_family == AF_INET6 && !verbs_gid_is_ipv4(gid)) {
        memcpy(&v6, a->ifa_addr, sizeof v6);
        memcpy(&mask6, a->ifa_netmask, sizeof mask6);
        return memcmp(&v6.sin6_addr, gid->gid, 16) ? 0 : bits_of(mask6.sin6_addr.s6_addr, 128);
    }
    return 0;
}

void verbs_gid_networks(struct verbs_gid *table, unsigned n, const struct ifaddrs *list)
{
    for (unsigned i = 0; i < n; i++)
        for (const struct ifaddrs *a = list; a && !table[i].prefix; a = a->ifa_next)
            table[i].prefix = network_of(&table[i], a);
}

unsigned verbs_gid_read(const struct verbs_api *api, struct ibv_context *context, unsigned port,
                        const struct ibv_port_attr *attr, size_t most, struct verbs_gid table_out[VERBS_GID_TABLE])
{
    const bool infiniband = attr->link_layer != IBV_LINK_LAYER_ETHERNET;
    struct ifaddrs *list = NULL;
    unsigned n = 0;
    if (!read_table(api, context, port, infiniband, most, table_out, &n))
        n = read_each(api, context, port, infiniband, attr->gid_tbl_len, table_out);
    if (infiniband)
        return n;
    verbs_gid_guess(table_out, n);
    /* Without the list the networks stay unknown, which is allowed for. */
    if (!getifaddrs(&list)) {
        verbs_gid_networks(table_out, n, list);
        freeifaddrs(list);
    }
    return n;
}

/* ---- what may be used ------------------------------------------------------------------------------------------ */

static bool in_family(const struct verbs_gid *g, uint64_t family)
{
    return family == RI_FAMILY_AUTO || g->type == VERBS_GID_IB || (family == RI_FAMILY_IPV4) == verbs_gid_is_ipv4(g);
}

/* 0 first, 3 last. */
static unsigned order_of(const struct verbs_gid *g)
{
    if (g->type == VERBS_GID_IB)
        return 0;
    return (verbs_gid_class(g) == VERBS_GID_LINK_LOCAL ? 2 : 0) + (g->type == VERBS_GID_ROCE_V1);
}

unsigned verbs_gid_usable(const struct verbs_gid *table, unsigned n, int index, uint64_t family,
                          struct verbs_gid usable_out[VERBS_GID_SENT], char why_out[VERBS_WHY])
{
    unsigned count = 0;
    for (unsigned order = 0; order < 4; order++)
        for (unsigned i = 0; i < n && count < VERBS_GID_SENT; i++)
            if (verbs_gid_class(&table[i]) != VERBS_GID_ZERO && order_of(&table[i]) == order &&
                (index < 0 ? in_family(&table[i], family) : table[i].index == index))
                usable_out[count++] = table[i];
    if (!count && index >= 0)
        snprintf(why_out, VERBS_WHY, "there is no GID with RING_IB_GID_INDEX=%d", index);
    else if (!count && n)
        snprintf(why_out, VERBS_WHY, "none of its GIDs is of RING_SOCKET_FAMILY=%s",
                 family == RI_FAMILY_IPV4 ? "ipv4" : "ipv6");
    else if (!count)
        snprintf(why_out, VERBS_WHY, "it has no GID: its network interface has no address or is down");
    return count;
}

/* ---- pairs ----------------------------------------------------------------------------------------------------- */

enum { SUBNET = 1 << 8, IPV4 = 1 << 9, TYPE = 1 << 10, ROUTABLE = 1 << 12, PAIRS = 1 << 13 };

static unsigned common_bits(const struct verbs_gid *a, const struct verbs_gid *b)
{
    unsigned n = 0;
    while (n < 128 && !((a->gid[n / 8] ^ b->gid[n / 8]) >> (7 - n % 8) & 1))
        n++;
    return n;
}

/* -1: they do not go together.  One that is not known is taken for v2 first: new devices have nothing else. */
static int type_score(uint8_t a, uint8_t b)
{
    if (a == VERBS_GID_IB || b == VERBS_GID_IB)
        return a == b ? 3 : -1;
    if (a == VERBS_GID_UNKNOWN || b == VERBS_GID_UNKNOWN)
        return a == VERBS_GID_ROCE_V1 || b == VERBS_GID_ROCE_V1 ? 0 : 2;
    return a != b ? -1 : a == VERBS_GID_ROCE_V2 ? 3 : 1;
}

/* The same both ways round; 0: they do not go together.  The lowest 8 bits say how near the addresses are when the
 * networks do not. */
static unsigned score(const struct verbs_gid *a, const struct verbs_gid *b)
{
    const enum verbs_gid_class class = verbs_gid_class(a);
    const int type = type_score(a->type, b->type);
    const unsigned common = common_bits(a, b);
    if (type < 0 || class == VERBS_GID_ZERO)
        return 0;
    if (a->type == VERBS_GID_IB) /* no worse than the best of RoCE, so that speed decides between the two */
        return verbs_gid_class(b) ? PAIRS + ROUTABLE + 3 * TYPE + IPV4 + (common >= 64 ? SUBNET : 0) : 0;
    if (class != verbs_gid_class(b) || verbs_gid_is_ipv4(a) != verbs_gid_is_ipv4(b))
        return 0;
    const unsigned network = a->prefix > b->prefix ? a->prefix : b->prefix;
    const unsigned near = common == 128 || (network && common >= network) ? SUBNET : common;
    return PAIRS + (class == VERBS_GID_LINK_LOCAL ? 0 : ROUTABLE) + (unsigned)type * TYPE +
           (verbs_gid_is_ipv4(a) ? IPV4 : 0) + near;
}

static int compare_gid(const struct verbs_gid *a, const struct verbs_gid *b)
{
    const int gid = memcmp(a->gid, b->gid, 16);
    return gid ? gid : a->prefix != b->prefix ? a->prefix - b->prefix : a->type - b->type;
}

/* Two GIDs as a set against two others. */
static int compare_sets(const struct verbs_gid *a, const struct verbs_gid *b, const struct verbs_gid *c,
                        const struct verbs_gid *d)
{
    const bool ab = compare_gid(a, b) <= 0, cd = compare_gid(c, d) <= 0;
    const int low = compare_gid(ab ? a : b, cd ? c : d);
    return low ? low : compare_gid(ab ? b : a, cd ? d : c);
}

struct pair {
    unsigned score, mine, theirs;
};

static bool better(const struct verbs_gid *mine, const struct verbs_gid *theirs, const struct pair *p,
                   const struct pair *than)
{
    const struct verbs_gid *a = &mine[p->mine], *b = &theirs[p->theirs], *c = &mine[than->mine],
                           *d = &theirs[than->theirs];
    if (p->score != than->score)
        return p->score > than->score;
    if (a->index + b->index != c->index + d->index)
        return a->index + b->index < c->index + d->index;
    const int sets = compare_sets(a, b, c, d);
    return sets ? sets < 0 : p->mine + p->theirs < than->mine + than->theirs;
}

static bool among(const struct verbs_gid *g, const struct verbs_gid *table, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!memcmp(g->gid, table[i].gid, 16))
            return true;
    return false;
}

static struct pair best_pair(const struct verbs_gid *mine, unsigned n, const struct verbs_gid *theirs, unsigned m,
                             bool same_device)
{
    struct pair best = {0};
    bool out[VERBS_GID_TABLE] = {false};
    for (unsigned j = 0; j < m && !same_device; j++)
        out[j] = among(&theirs[j], mine, n);
    for (unsigned i = 0; i < n; i++) {
        if (!same_device && among(&mine[i], theirs, m))
            continue;
        for (unsigned j = 0; j < m; j++) {
            const struct pair p = {out[j] ? 0 : score(&mine[i], &theirs[j]), i, j};
            if (p.score && (!best.score || better(mine, theirs, &p, &best)))
                best = p;
        }
    }
    return best;
}

bool verbs_gid_pair(const struct verbs_gid *mine, unsigned n, const struct verbs_gid *theirs, unsigned m,
                    bool same_device, unsigned *mine_out, unsigned *theirs_out)
{
    if (n > VERBS_GID_TABLE || m > VERBS_GID_TABLE)
        return false;
    const struct pair p = best_pair(mine, n, theirs, m, same_device);
    if (!p.score)
        return false;
    *mine_out = p.mine;
    *theirs_out = p.theirs;
    return true;
}

/* ---- ports ----------------------------------------------------------------------------------------------------- */

static void encode(struct ri_packer *p, const struct verbs_end *e)
{
    ri_pack_text(p, e->device);
    ri_pack_number(p, e->port, 1);
    ri_pack_number(p, (uint64_t)e->infiniband | (uint64_t)e->grh << 1 | (uint64_t)e->immediate << 2, 1);
    ri_pack_number(p, e->mtu, 1);
    ri_pack_number(p, e->lid, 2);
    ri_pack_number(p, e->speed, 4);
    ri_pack_number(p, e->max_message, 4);
    ri_pack_number(p, e->guid, 8);
    ri_pack_number(p, e->gids, 1);
    p->bad |= e->gids > VERBS_GID_SENT;
    for (unsigned i = 0; i < e->gids && !p->bad; i++) {
        ri_pack(p, e->gid[i].gid, 16);
        ri_pack_number(p, e->gid[i].index, 1);
        ri_pack_number(p, e->gid[i].type, 1);
        ri_pack_number(p, e->gid[i].prefix, 1);
    }
}

size_t verbs_ends_encode(const struct verbs_end *ends, unsigned n, uint8_t *bytes_out, size_t cap)
{
    struct ri_packer p = {.at = bytes_out, .end = bytes_out + cap, .bad = n > VERBS_PORTS};
    ri_pack_number(&p, n, 1);
    for (unsigned i = 0; i < n && !p.bad; i++)
        encode(&p, &ends[i]);
    return p.bad ? 0 : (size_t)(p.at - bytes_out);
}

static void decode(struct ri_unpacker *u, struct verbs_end *e)
{
    ri_unpack_text(u, e->device, sizeof e->device);
    e->port = (uint8_t)ri_unpack_number(u, 1);
    const unsigned flags = (unsigned)ri_unpack_number(u, 1);
    e->infiniband = flags & 1;
    e->grh = flags >> 1 & 1;
    e->immediate = flags >> 2 & 1;
    e->mtu = (uint8_t)ri_unpack_number(u, 1);
    e->lid = (uint16_t)ri_unpack_number(u, 2);
    e->speed = (uint32_t)ri_unpack_number(u, 4);
    e->max_message = (uint32_t)ri_unpack_number(u, 4);
    e->guid = ri_unpack_number(u, 8);
    e->gids = (unsigned)ri_unpack_number(u, 1);
    u->bad |= flags > 7 || e->mtu < IBV_MTU_256 || e->mtu > IBV_MTU_4096 || !e->port || e->gids > VERBS_GID_SENT;
    for (unsigned i = 0; !u->bad && i < e->gids; i++) {
        ri_unpack(u, e->gid[i].gid, 16);
        e->gid[i].index = (uint8_t)ri_unpack_number(u, 1);
        e->gid[i].type = (uint8_t)ri_unpack_number(u, 1);
        e->gid[i].prefix = (uint8_t)ri_unpack_number(u, 1);
        u->bad |= e->gid[i].type > VERBS_GID_UNKNOWN || e->gid[i].prefix > 128;
    }
}

bool verbs_ends_decode(const uint8_t *bytes, size_t len, struct verbs_end ends_out[VERBS_PORTS], unsigned *n_out)
{
    struct ri_unpacker u = {.at = bytes, .end = bytes + len};
    struct verbs_end ends[VERBS_PORTS] = {{.port = 0}};
    const unsigned n = (unsigned)ri_unpack_number(&u, 1);
    u.bad |= n > VERBS_PORTS;
    for (unsigned i = 0; !u.bad && i < n; i++)
        decode(&u, &ends[i]);
    if (u.bad || u.at != u.end)
        return false;
    memcpy(ends_out, ends, n * sizeof *ends);
    *n_out = n;
    return true;
}

struct way {
    struct pair gids;
    unsigned mine, theirs;
    uint32_t speed;
    bool infiniband;
};

static struct way way_between(const struct verbs_end *mine, unsigned i, const struct verbs_end *theirs, unsigned j)
{
    const struct verbs_end *a = &mine[i], *b = &theirs[j];
    struct way w = {.mine = i, .theirs = j, .infiniband = a->infiniband};
    w.speed = a->speed < b->speed ? a->speed : b->speed;
    if (a->infiniband == b->infiniband && a->immediate == b->immediate)
        w.gids = best_pair(a->gid, a->gids, b->gid, b->gids, a->guid == b->guid);
    return w;
}

static unsigned apart(const struct way *w) { return w->mine > w->theirs ? w->mine - w->theirs : w->theirs - w->mine; }

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

static unsigned kind_of(const struct verbs_end *e) { return e->infiniband ? 1 : e->immediate ? 2 : 4; }

/* A port with the GID that it would use.  All that decides on a way is in it. */
struct side {
    const struct verbs_end *end;
    const struct verbs_gid *gid;
};

static int compare_sides(const struct side *a, const struct side *b)
{
    const int order[] = {compare_gid(a->gid, b->gid),
                         strcmp(a->end->device, b->end->device),
                         a->end->port - b->end->port,
                         compare_numbers(a->end->guid, b->end->guid),
                         compare_numbers(a->end->speed, b->end->speed),
                         compare_numbers(kind_of(a->end), kind_of(b->end))};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i])
            return order[i];
    return 0;
}

/* The two sides of a way, the lower one first. */
static void sides_of(const struct verbs_end *mine, const struct verbs_end *theirs, const struct way *w,
                     struct side side[2])
{
    const struct verbs_end *a = &mine[w->mine], *b = &theirs[w->theirs];
    const struct side s = {a, &a->gid[w->gids.mine]}, t = {b, &b->gid[w->gids.theirs]};
    const bool in_order = compare_sides(&s, &t) <= 0;
    side[0] = in_order ? s : t;
    side[1] = in_order ? t : s;
}

/* As with GIDs, everything here reads the same from both ends. */
static bool better_way(const struct verbs_end *mine, const struct verbs_end *theirs, const struct way *w,
                       const struct way *than)
{
    if (w->gids.score != than->gids.score)
        return w->gids.score > than->gids.score;
    if (w->speed != than->speed)
        return w->speed > than->speed;
    if (apart(w) != apart(than))
        return apart(w) < apart(than);
    if (w->mine + w->theirs != than->mine + than->theirs)
        return w->mine + w->theirs < than->mine + than->theirs;
    struct side a[2], b[2];
    sides_of(mine, theirs, w, a);
    sides_of(mine, theirs, than, b);
    const int low = compare_sides(&a[0], &b[0]);
    return (low ? low : compare_sides(&a[1], &b[1])) < 0;
}

/* On InfiniBand the LID is the address within a subnet; RoCE has none. */
static bool needs_grh(const struct verbs_end *a, const struct verbs_end *b, const struct pair *p)
{
    return !a->infiniband || a->grh || b->grh || memcmp(a->gid[p->mine].gid, b->gid[p->theirs].gid, 8);
}

static struct verbs_joint rail_of(const struct verbs_end *mine, const struct verbs_end *theirs, const struct way *w)
{
    const struct verbs_end *a = &mine[w->mine], *b = &theirs[w->theirs];
    return (struct verbs_joint){.mine = (uint8_t)w->mine,
                                .theirs = (uint8_t)w->theirs,
                                .my_gid = (uint8_t)w->gids.mine,
                                .their_gid = (uint8_t)w->gids.theirs,
                                .mtu = a->mtu < b->mtu ? a->mtu : b->mtu,
                                .grh = needs_grh(a, b, &w->gids),
                                .max_message = a->max_message < b->max_message ? a->max_message : b->max_message};
}

static bool fits(const struct way *w, const struct way *first)
{
    if (!w->gids.score || !first->gids.score)
        return w->gids.score;
    return w->infiniband == first->infiniband && w->gids.score / SUBNET >= first->gids.score / SUBNET &&
           w->speed >= first->speed / 2;
}

unsigned verbs_rails(const struct verbs_end *mine, unsigned n, const struct verbs_end *theirs, unsigned m,
                     struct verbs_joint rail_out[VERBS_RAILS_MOST])
{
    bool mine_taken[VERBS_PORTS] = {false}, theirs_taken[VERBS_PORTS] = {false};
    struct way first = {.mine = 0};
    unsigned rails = 0;
    n = n < VERBS_PORTS ? n : VERBS_PORTS;
    m = m < VERBS_PORTS ? m : VERBS_PORTS;
    for (; rails < VERBS_RAILS_MOST; rails++) {
        struct way best = {.mine = 0};
        for (unsigned i = 0; i < n; i++)
            for (unsigned j = 0; j < m && !mine_taken[i]; j++) {
                const struct way w = theirs_taken[j] ? (struct way){.mine = 0} : way_between(mine, i, theirs, j);
                if (fits(&w, &first) && (!best.gids.score || better_way(mine, theirs, &w, &best)))
                    best = w;
            }
        if (!best.gids.score)
            break;
        first = rails ? first : best;
        mine_taken[best.mine] = theirs_taken[best.theirs] = true;
        rail_out[rails] = rail_of(mine, theirs, &best);
    }
    return rails;
}

/* ---- reasons --------------------------------------------------------------------------------------------------- */

static const char *reason(const struct verbs_gid *a, const struct verbs_gid *b)
{
    const bool one_network = score(a, b) & SUBNET;
    if (a->type == VERBS_GID_IB)
        return one_network ? "both in one subnet" : "by way of a router between subnets";
    if (verbs_gid_class(a) == VERBS_GID_LINK_LOCAL)
        return "link-local, as nothing else goes together";
    if (verbs_gid_class(a) == VERBS_GID_IPV4)
        return one_network ? "IPv4, both in one network" : "IPv4, not known to be in one network";
    return one_network ? "IPv6, both in one network" : "IPv6, not known to be in one network";
}

void verbs_joint_explain(const struct verbs_end *mine, const struct verbs_end *theirs, const struct verbs_joint *rail,
                         char *text_out, size_t cap)
{
    const struct verbs_end *a = &mine[rail->mine], *b = &theirs[rail->theirs];
    const struct verbs_gid *g = &a->gid[rail->my_gid], *h = &b->gid[rail->their_gid];
    char from[VERBS_GID_TEXT], to[VERBS_GID_TEXT];
    snprintf(text_out, cap, "%s:%u %s to %s:%u %s: %s%s", a->device, a->port, verbs_gid_print(g, from), b->device,
             b->port, verbs_gid_print(h, to), reason(g, h),
             g->type == VERBS_GID_ROCE_V1 || h->type == VERBS_GID_ROCE_V1 ? "; one end has no RoCE v2 there" : "");
}

static const char *kinds(const struct verbs_end *ends, unsigned n)
{
    static const char *const names[] = {"",      "InfiniBand",           "RoCE",           "InfiniBand and RoCE",
                                        "iWARP", "InfiniBand and iWARP", "RoCE and iWARP", "of all kinds"};
    unsigned seen = 0;
    for (unsigned i = 0; i < n; i++)
        seen |= kind_of(&ends[i]);
    return names[seen];
}

void verbs_rails_none(const struct verbs_end *mine, unsigned n, const struct verbs_end *theirs, unsigned m,
                      char *text_out, size_t cap)
{
    const char *our = kinds(mine, n), *other = kinds(theirs, m);
    char from[VERBS_GID_TEXT], to[VERBS_GID_TEXT];
    if (!n || !m)
        snprintf(text_out, cap, "%s no RDMA port of use", n ? "the peer has" : "this end has");
    else if (strcmp(our, other))
        snprintf(text_out, cap, "this end's RDMA ports are %s and the peer's %s", our, other);
    else if (!mine[0].gids || !theirs[0].gids)
        snprintf(text_out, cap, "%s:%u has no GID", mine[0].gids ? theirs[0].device : mine[0].device,
                 mine[0].gids ? theirs[0].port : mine[0].port);
    else
        snprintf(
            text_out, cap,
            "no GID of this end goes with one of the peer's, of one type and family and not at both ends: this end "
            "has e.g. %s, the peer %s",
            verbs_gid_print(&mine[0].gid[0], from), verbs_gid_print(&theirs[0].gid[0], to));
}
