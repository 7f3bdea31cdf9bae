/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices opened, asked and explained.  The library is a table of functions in this file. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "transports/verbs/device.h"

enum { IB = VERBS_GID_IB, V1 = VERBS_GID_ROCE_V1, V2 = VERBS_GID_ROCE_V2 };

static void expect_text(const char *text, const char *part)
{
    cr_assert(strstr(text, part), "\"%s\" is not in \"%s\"", part, text);
}

/* What stands in a port's table. */
struct table {
    struct {
        const char *address;
        unsigned index, type;
    } row[8];
};

static const struct table rxe1 = {{{"fe80::1", 0, V2}, {"::ffff:10.0.0.1", 1, V2}, {"fd00::1", 2, V2}}};
static const struct table rxe6 = {{{"fe80::3", 0, V2}, {"fd00::3", 1, V2}}};
static const struct table bare = {{{"fe80::4", 0, V1}, {"fe80::4", 1, V2}}};
static const struct table mlx1 = {
    {{"fe80::11", 0, V1}, {"fe80::11", 1, V2}, {"::ffff:10.0.0.11", 2, V1}, {"::ffff:10.0.0.11", 3, V2}}};

enum { FAKES = 3, FAKE_PORTS = 2 };

struct fake {
    struct ibv_device device;
    struct ibv_context context;
    int open_error, query_error;
    unsigned ports;
    struct ibv_port_attr port[FAKE_PORTS];
    const struct table *gids; /* of all its ports */
};

static struct world {
    int count, list_error, open, lists, places;
    bool tables; /* query_gid_table() is there */
    struct fake fake[FAKES];
    struct ibv_device *list[FAKES + 1];
} world;

static struct fake *fake_of(struct ibv_context *context) { return &world.fake[context->cmd_fd]; }

static struct ibv_device **get_list(int *count)
{
    errno = world.list_error;
    if (world.list_error)
        return NULL;
    for (int i = 0; i < world.count; i++)
        world.list[i] = &world.fake[i].device;
    world.lists++;
    *count = world.count;
    return world.list;
}

static void free_list(struct ibv_device **list)
{
    cr_assert_eq(list, world.list);
    world.lists--;
}

static const char *get_name(struct ibv_device *device) { return device->name; }

static struct ibv_context *open_device(struct ibv_device *device)
{
    for (int i = 0; i < world.count; i++)
        if (device == &world.fake[i].device) {
            struct fake *f = &world.fake[i];
            errno = f->open_error;
            f->context.device = device;
            f->context.cmd_fd = i;
            world.open += !f->open_error;
            return f->open_error ? NULL : &f->context;
        }
    return NULL;
}

static int close_device(struct ibv_context *context)
{
    cr_assert(fake_of(context));
    world.open--;
    return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    const struct fake *f = fake_of(context);
    *attr = (struct ibv_device_attr){.phys_port_cnt = (uint8_t)f->ports, .max_sge = 30, .node_guid = 5};
    return f->query_error;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    const struct fake *f = fake_of(context);
    cr_assert(port >= 1 && port <= f->ports, "port %u", port);
    *attr = f->port[port - 1];
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *out)
{
    const struct table *t = fake_of(context)->gids;
    cr_assert(port >= 1 && index >= 0 && index < 8);
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 8 && t && t->row[i].address; i++)
        if (t->row[i].index == (unsigned)index)
            inet_pton(AF_INET6, t->row[i].address, out->raw);
    return index == 7 ? EINVAL : 0;
}

static ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags,
                               size_t entry_size)
{
    const struct fake *f = fake_of(context);
    size_t n = 0;
    cr_assert(!flags && entry_size == sizeof *entries);
    world.places = (int)most;
    if (!world.tables)
        return -EOPNOTSUPP;
    for (unsigned port = 1; port <= f->ports; port++)
        for (int i = 0; i < 8 && f->gids && f->gids->row[i].address; i++) {
            cr_assert_lt(n, most);
            entries[n] = (struct ibv_gid_entry){.gid_index = f->gids->row[i].index, .port_num = port};
            entries[n].gid_type = f->gids->row[i].type;
            inet_pton(AF_INET6, f->gids->row[i].address, entries[n++].gid.raw);
        }
    return (ssize_t)n;
}

static const struct verbs_api api = {.get_device_list = get_list,
                                     .free_device_list = free_list,
                                     .get_device_name = get_name,
                                     .open_device = open_device,
                                     .close_device = close_device,
                                     .query_device = query_device,
                                     .query_port = query_port,
                                     .query_gid = query_gid,
                                     .query_gid_table = query_gid_table};

/* mlx5_0, mlx5_1 and so on, of one port each, on Ethernet and in order. */
static void begin(int count, const struct table *gids)
{
    world = (struct world){.count = count, .tables = true};
    for (int i = 0; i < count; i++) {
        struct fake *f = &world.fake[i];
        *f = (struct fake){.ports = 1, .gids = gids};
        f->device.node_type = IBV_NODE_CA;
        f->device.transport_type = IBV_TRANSPORT_IB;
        snprintf(f->device.name, sizeof f->device.name, "mlx5_%d", i);
        snprintf(f->device.dev_name, sizeof f->device.dev_name, "uverbs%d", i);
        for (int p = 0; p < FAKE_PORTS; p++)
            f->port[p] = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                                .active_mtu = IBV_MTU_4096,
                                                .max_msg_sz = 1U << 30,
                                                .gid_tbl_len = 8,
                                                .link_layer = IBV_LINK_LAYER_ETHERNET,
                                                .active_width = 2,
                                                .active_speed = 32};
    }
}

static void open_for(const char *transport, struct verbs_devices *d, const char *hca, const char *index)
{
    struct ri_conf conf;
    ri_conf_defaults(&conf);
    snprintf(conf.transport, sizeof conf.transport, "%s", transport);
    snprintf(conf.ib_hca, sizeof conf.ib_hca, "%s", hca);
    snprintf(conf.ib_gid_index, sizeof conf.ib_gid_index, "%s", index);
    cr_assert_eq(verbs_devices_open(&api, &conf, d), RING_OK, "%s", ri_error_get());
    cr_assert_eq(world.lists, 0, "the list is still there");
}

static void open_with(struct verbs_devices *d, const char *hca, const char *index) { open_for("auto", d, hca, index); }

static void end_world(struct verbs_devices *d)
{
    verbs_devices_close(d);
    cr_assert_eq(world.open, 0, "%d devices are still open", world.open);
    verbs_devices_close(d);
}

Test(device, what_it_says)
{
    struct verbs_devices d;
    struct verbs_port *port[VERBS_PORTS];
    struct verbs_end ends[VERBS_PORTS];
    begin(2, &mlx1);
    world.fake[0].ports = 2;
    open_with(&d, "auto", "auto");
    cr_assert(d.devices == 2 && d.ports == 3 && d.usable == 3 && !d.why[0]);
    const struct verbs_port *p = &d.port[1];
    cr_assert(p->number == 2 && p->usable && p->speed == 100000 && p->gids == 4 && p->device->attr.max_sge == 30);
    cr_assert_eq(world.places, 8, "places of the last device");
    expect_text(p->why, "active, RoCE, 100000 Mbit/s; ::ffff:10.0.0.11 (index 3, RoCE v2)");
    cr_assert_eq(verbs_devices_ends(&d, port, ends), 3);
    cr_assert(port[2] == &d.port[2] && !strcmp(ends[2].device, "mlx5_1") && ends[2].gids == 4 && ends[2].guid == 5 &&
              ends[2].mtu == IBV_MTU_4096 && ends[2].max_message == 1U << 30 && ends[2].immediate);
    end_world(&d);
}

Test(device, a_port_that_changes)
{
    struct verbs_devices d;
    begin(1, &rxe1);
    open_with(&d, "auto", "auto");
    cr_assert_eq(d.usable, 1);
    world.fake[0].port[0].state = IBV_PORT_DOWN;
    cr_assert_not(verbs_port_read(&d, &d.port[0]));
    cr_assert_str_eq(d.port[0].why, "the port is down");
    cr_assert_str_eq(d.why, "mlx5_0:1: the port is down");
    cr_assert_eq(d.usable, 0);
    world.fake[0].port[0].state = IBV_PORT_ACTIVE;
    world.fake[0].gids = &rxe6;
    cr_assert(verbs_port_read(&d, &d.port[0]));
    cr_assert(d.usable == 1 && d.port[0].end.gids == 2 && !d.why[0]);
    end_world(&d);
}

static void set_open_error(struct fake *f) { f->open_error = EACCES; }
static void set_gone(struct fake *f) { f->open_error = ENODEV; }
static void set_full(struct fake *f) { f->open_error = EMFILE; }
static void set_mute(struct fake *f) { f->query_error = EIO; }
static void set_down(struct fake *f) { f->port[0].state = IBV_PORT_DOWN; }
static void set_init(struct fake *f) { f->port[0].state = IBV_PORT_INIT; }
static void set_no_lid(struct fake *f) { f->port[0].link_layer = IBV_LINK_LAYER_INFINIBAND; }
static void set_no_gids(struct fake *f) { f->gids = NULL; }
static void set_usnic(struct fake *f) { f->device.transport_type = IBV_TRANSPORT_USNIC; }
static void set_mtu(struct fake *f) { f->port[0].active_mtu = (enum ibv_mtu)0; }
static void set_nothing(struct fake *f) { (void)f; }

Test(device, why_not)
{
    static const struct {
        void (*spoil)(struct fake *f);
        const char *hca, *index, *why;
        unsigned number;
    } rows[] = {
        {set_open_error, "auto", "auto", "mlx5_0: permission denied: /dev/infiniband/uverbs0", 0},
        {set_gone, "auto", "auto", "there is no /dev/infiniband/uverbs0: No such device", 0},
        {set_full, "auto", "auto", "mlx5_0: it cannot be opened: Too many open files", 0},
        {set_mute, "auto", "auto", "mlx5_0: it does not tell its limits: Input/output error", 0},
        {set_usnic, "auto", "auto", "mlx5_0: it has no reliable connections", 0},
        {set_nothing, "mlx4", "auto", "mlx5_0: excluded by RING_IB_HCA", 0},
        {set_nothing, "mlx5:2", "auto", "mlx5_0:1: excluded by RING_IB_HCA", 1},
        {set_nothing, "auto", "9", "mlx5_0:1: there is no GID with RING_IB_GID_INDEX=9", 1},
        {set_down, "auto", "auto", "mlx5_0:1: the port is down", 1},
        {set_init, "auto", "auto", "no subnet manager has made it active", 1},
        {set_no_lid, "auto", "auto", "it has no LID", 1},
        {set_no_gids, "auto", "auto", "it has no GID", 1},
        {set_mtu, "auto", "auto", "its MTU is none", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verbs_devices d;
        begin(1, &rxe1);
        rows[i].spoil(&world.fake[0]);
        open_with(&d, rows[i].hca, rows[i].index);
        cr_assert(!d.usable && d.ports == 1 && d.port[0].number == rows[i].number, "row %zu", i);
        expect_text(d.why, rows[i].why);
        end_world(&d);
    }
}

Test(device, none_at_all)
{
    static const struct {
        int error;
        const char *why;
    } rows[] = {{0, "there is no RDMA device"}, {ENOSYS, "the kernel has no RDMA"}, {EPERM, "Operation not permitted"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verbs_devices d;
        begin(0, NULL);
        world.list_error = rows[i].error;
        open_with(&d, "auto", "auto");
        cr_assert(!d.devices && !d.ports && !d.usable);
        expect_text(d.why, rows[i].why);
        end_world(&d);
    }
}

Test(device, one_bad_device_does_not_harm_the_other)
{
    struct verbs_devices d;
    begin(3, &rxe1);
    world.fake[0].open_error = EACCES;
    world.fake[1].port[0].state = IBV_PORT_DOWN;
    open_with(&d, "auto", "auto");
    cr_assert(d.usable == 1 && d.ports == 3 && d.port[2].usable && !d.why[0]);
    expect_text(d.port[0].why, "permission denied");
    end_world(&d);
}

Test(device, kinds)
{
    struct verbs_devices d;
    begin(3, &bare);
    world.fake[0].device.transport_type = IBV_TRANSPORT_IWARP;
    world.fake[1].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
    world.fake[1].port[0].lid = 17;
    open_for("verbs", &d, "auto", "auto");
    cr_assert_eq(d.usable, 3);
    cr_assert(!d.port[0].end.immediate && !d.device[0].immediate);
    expect_text(d.port[0].why, "iWARP");
    cr_assert(d.port[1].end.infiniband && d.port[1].end.lid == 17 && d.port[1].gid[0].type == IB);
    expect_text(d.port[1].why, "active, InfiniBand, 100000 Mbit/s");
    expect_text(d.port[2].why, "no GID but link-local ones");
    end_world(&d);
}

/* Every port that is up has a link-local GID.  It leads nowhere one can know of, so who does not ask for it is spared.
 */
Test(device, a_port_without_an_address_is_for_those_who_name_verbs)
{
    struct verbs_devices d;
    begin(2, &bare);
    world.fake[1].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
    world.fake[1].port[0].lid = 17;
    open_with(&d, "auto", "auto");
    cr_assert(!d.port[0].usable && !d.port[0].end.gids && d.port[1].usable);
    expect_text(d.port[0].why, "its network interface has no address");
    end_world(&d);
    begin(1, &bare);
    open_with(&d, "auto", "1");
    cr_assert(d.port[0].usable);
    end_world(&d);
}

Test(device, iwarp_is_for_those_who_name_verbs)
{
    struct verbs_devices d;
    begin(1, &bare);
    world.fake[0].device.transport_type = IBV_TRANSPORT_IWARP;
    open_with(&d, "auto", "auto");
    cr_assert(!d.port[0].usable && !d.usable);
    expect_text(d.port[0].why, "rdma_cm");
    end_world(&d);
}

Test(device, speeds)
{
    static const struct {
        uint8_t width, speed;
        uint32_t want;
    } rows[] = {{1, 1, 2500},     {2, 4, 40000},   {2, 32, 100000}, {2, 64, 200000}, {2, 128, 400000},
                {16, 64, 100000}, {4, 16, 112000}, {8, 1, 30000},   {0, 0, 2500},    {255, 255, 2500}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verbs_devices d;
        begin(1, &rxe1);
        world.fake[0].port[0].active_width = rows[i].width;
        world.fake[0].port[0].active_speed = rows[i].speed;
        open_with(&d, "auto", "auto");
        cr_assert_eq(d.port[0].speed, rows[i].want, "row %zu: %u", i, d.port[0].speed);
        end_world(&d);
    }
}

/* A folder as the kernel shows it: PORTS/1/gid_attrs/types/INDEX. */
static void write_type(const char *folder, unsigned index, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/ports/1/gid_attrs/types/%u", folder, index);
    FILE *file = fopen(path, "w");
    cr_assert(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void make_folders(const char *top, bool make)
{
    static const char *const below[] = {"", "/ports", "/ports/1", "/ports/1/gid_attrs", "/ports/1/gid_attrs/types"};
    for (int i = 0; i < 5; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s%s", top, below[make ? i : 4 - i]);
        cr_assert_eq(make ? i && mkdir(path, 0700) : rmdir(path), 0, "%s", path);
    }
}

static void remove_type(const char *folder, unsigned index)
{
    char path[300];
    snprintf(path, sizeof path, "%s/ports/1/gid_attrs/types/%u", folder, index);
    unlink(path);
}

Test(device, types_from_the_kernel_where_the_library_has_no_table)
{
    char folder[] = "/tmp/unit_verbs_XXXXXX";
    struct verbs_devices d;
    cr_assert(mkdtemp(folder));
    make_folders(folder, true);
    write_type(folder, 0, "IB/RoCE v1\n");
    write_type(folder, 1, "RoCE v2\n");
    write_type(folder, 2, "");
    for (int old = 0; old < 2; old++) {
        struct verbs_api without = api;
        struct ri_conf conf;
        begin(1, &mlx1);
        world.tables = false;
        if (old)
            without.query_gid_table = NULL;
        snprintf(world.fake[0].device.ibdev_path, sizeof world.fake[0].device.ibdev_path, "%s", folder);
        ri_conf_defaults(&conf);
        cr_assert_eq(verbs_devices_open(&without, &conf, &d), RING_OK);
        cr_assert_eq(d.port[0].gids, 4);
        static const uint8_t want[] = {V1, V2, V1, V2}; /* the last two are not told: the same GID twice */
        for (unsigned i = 0; i < 4; i++)
            cr_assert(d.port[0].gid[i].index == i && d.port[0].gid[i].type == want[i], "%u: %u", i,
                      d.port[0].gid[i].type);
        end_world(&d);
    }
    for (unsigned i = 0; i < 3; i++)
        remove_type(folder, i);
    make_folders(folder, false);
}

Test(device, no_memory_and_wrong_settings)
{
    struct verbs_devices d;
    struct ri_conf conf;
    begin(2, &rxe1);
    ri_conf_defaults(&conf);
    for (uint64_t n = 1; n <= 2; n++) {
        ri_mem_fail_at(n);
        cr_assert_eq(verbs_devices_open(&api, &conf, &d), RING_ERR_NOMEM, "allocation %d", (int)n);
        ri_mem_fail_at(0);
        cr_assert(!world.open && !world.lists, "allocation %d", (int)n);
        verbs_devices_close(&d);
    }
    ri_mem_fail_at(3); /* the table of GIDs: they are asked for one by one */
    cr_assert_eq(verbs_devices_open(&api, &conf, &d), RING_OK);
    ri_mem_fail_at(0);
    cr_assert(d.usable == 2 && d.port[0].gids == 3);
    end_world(&d);
    snprintf(conf.ib_gid_index, sizeof conf.ib_gid_index, "256");
    cr_assert_eq(verbs_devices_open(&api, &conf, &d), RING_ERR_CONFIG);
    snprintf(conf.ib_hca, sizeof conf.ib_hca, "^");
    cr_assert_eq(verbs_devices_open(&api, &conf, &d), RING_ERR_CONFIG);
    expect_text(ri_error_get(), "RING_IB_HCA");
    cr_assert_eq(world.open, 0);
}

Test(device, locked_memory)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    const struct rlimit small = {65536,
                                 limit.rlim_max == RLIM_INFINITY || limit.rlim_max > 65536 ? limit.rlim_max : 65536};
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    cr_assert_eq(verbs_locked_memory(1048576), RING_ERR_LIMIT);
    cr_assert_str_eq(ri_error_get(), "locked memory is limited to 65536 bytes (ulimit -l), and 1048576 are needed");
    cr_assert_eq(verbs_locked_memory(4096), RING_ERR_LIMIT);
    expect_text(ri_error_get(), "beside what is locked already");
    if (limit.rlim_max != RLIM_INFINITY)
        return;
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    cr_assert_eq(verbs_locked_memory(4096), RING_ERR_NOMEM);
    expect_text(ri_error_get(), "not limited");
}
