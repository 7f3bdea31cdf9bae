/* SPDX-License-Identifier: Apache-2.0 */
/* Links over devices of all kinds: that all arrives, how much work it is, and what is copied. */
#include "tests/verbs/unit_link.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "transports/verbs/ctx.h"

enum { MIB = 1 << 20, KIB = 1 << 10 };

/* ---- what the tests share -------------------------------------------------------------------------------------- */

void link_change(shape_fn *change)
{
    struct provider_world w;
    provider_control.get_world(&w);
    change(&w);
    provider_control.set_world(&w);
}

void link_world(uint64_t seed, shape_fn *change)
{
    cr_assert_eq(provider_control.reset(seed), 0, "the test before has left something");
    if (change)
        link_change(change);
}

struct provider_counters link_counted(void)
{
    struct provider_counters n;
    provider_control.counters(&n);
    return n;
}

const struct ri_transport *link_transport(void)
{
    const struct ri_transport *t = rig_transport("verbs");
    cr_assert_not_null(t);
    return t;
}

static size_t some_length(uint64_t *random, uint32_t unit, size_t most)
{
    static const size_t caps[] = {0, 9, 64, 221, 4097, 8193, 70000, 300000, MIB};
    const size_t cap = caps[rig_random(random) % (sizeof caps / sizeof *caps)];
    return rig_random(random) % ((cap < most ? cap : most) + 1) / unit * unit;
}

static uint32_t some_unit(uint64_t *random)
{
    const uint64_t u = rig_random(random) % 8;
    return u < 4 ? UINT32_C(1) << u : 0;
}

void link_meet(struct rig *rig)
{
    for (int end = 0; end < 2; end++) {
        rig_send(rig, end, 0, 8, 1);
        rig_recv(rig, !end, 0, 8, 1, 0);
    }
    rig_run(rig);
}

void link_post(struct rig *rig, uint64_t *random, uint32_t n, size_t most)
{
    for (uint32_t i = 0; i < n; i++)
        for (int end = 0; end < 2; end++) {
            const uint32_t unit = some_unit(random);
            const size_t len = some_length(random, unit ? unit : 1, most);
            rig_send(rig, end, 0, len, i);
            rig_recv(rig, !end, 0, len, i, unit);
        }
}

bool link_run(struct rig *rig, unsigned ms)
{
    const uint64_t deadline = ri_deadline(ms * RI_MILLISECOND);
    while ((rig->end[0].out || rig->end[1].out) && ri_now() < deadline)
        for (int i = 0; i < 2; i++)
            if (rig->end[i].links)
                rig_step(&rig->end[i]);
    return !rig->end[0].out && !rig->end[1].out;
}

unsigned link_judge(struct rig *rig)
{
    unsigned lost = 0;
    for (int i = 0; i < 2; i++) {
        cr_assert_str_empty(rig->end[i].problem, "end %d: %s", i, rig->end[i].problem);
        for (const struct job *j = rig->end[i].jobs; j; j = j->next) {
            rig_expect(j, j->x.status ? RING_ERR_PEER_LOST : RING_OK);
            lost += j->x.status != RING_OK;
        }
    }
    return lost;
}

struct ri_region link_regions[2];
uint32_t link_regions_changed = 2;

bool link_find_region(const void *at, size_t bytes, struct ri_region *region_out)
{
    for (int i = 0; i < 2; i++) {
        const struct ri_region *r = &link_regions[i];
        const uintptr_t begin = (uintptr_t)r->begin, from = (uintptr_t)at;
        if (!r->bytes || from < begin || from - begin > r->bytes || bytes > r->bytes - (from - begin))
            continue;
        *region_out = *r;
        return true;
    }
    return false;
}

uint32_t link_regions_version(void) { return link_regions_changed; }

void link_open(struct rig *rig, uint64_t seed, shape_fn *change, const char *settings)
{
    link_world(seed, change);
    rig_open(rig, link_transport(), 1, settings);
    link_meet(rig);
}

void link_leave(struct rig *rig)
{
    rig_disconnect(rig, 1, 0);
    rig->end[1].out = 0;
    for (struct job *j = rig->end[1].jobs; j; j = j->next) {
        j->x.status = j->back ? j->x.status : RING_ERR_PEER_LOST;
        j->back = true;
    }
}

/* ---- random traffic over devices of all kinds ------------------------------------------------------------------ */

static void one_device(struct provider_world *w) { w->devices = 1; }
static void be_calm(struct provider_world *w) { w->calm = true; }
static void each(struct provider_world *w, void (*change)(struct provider_device *d))
{
    for (int i = 0; i < w->devices; i++)
        change(&w->device[i]);
}
static void device_no_imm(struct provider_device *d) { d->no_imm = true; }
static void device_no_inline(struct provider_device *d) { d->max_inline = 0; }
static void device_inline_64(struct provider_device *d) { d->max_inline = 64; }
static void device_4k(struct provider_device *d) { d->max_msg_sz = 4096; }
static void device_64k(struct provider_device *d) { d->max_msg_sz = 65536; }
static void device_infiniband(struct provider_device *d)
{
    const uint8_t n = (uint8_t)d->lid;
    const uint8_t raw[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, n};
    d->infiniband = true;
    d->gids = 1;
    d->gid[0] = (struct provider_gid){.index = 0, .type = IBV_GID_TYPE_IB};
    memcpy(d->gid[0].gid.raw, raw, sizeof raw);
}
static void no_imm(struct provider_world *w) { each(w, device_no_imm); }
static void no_inline(struct provider_world *w) { each(w, device_no_inline); }
static void inline_64(struct provider_world *w) { each(w, device_inline_64); }
static void only_4k(struct provider_world *w) { each(w, device_4k); }
static void only_64k(struct provider_world *w) { each(w, device_64k); }
static void infiniband(struct provider_world *w) { each(w, device_infiniband); }
static void bare(struct provider_world *w)
{
    no_imm(w);
    no_inline(w);
    only_4k(w);
}

static void four_devices(struct provider_world *w) { w->devices = 4; }

const struct link_kind link_kinds[LINK_KINDS] = {
    {"default", NULL, ""},
    {"one device", one_device, ""},
    {"no immediate data", no_imm, ""},
    {"InfiniBand", infiniband, ""},
    {"nothing inline", no_inline, ""},
    {"64 bytes inline", inline_64, ""},
    {"requests of 4096", only_4k, ""},
    {"requests of 65536", only_64k, ""},
    {"no immediate data, nothing inline, requests of 4096", bare, ""},
    {"InfiniBand, 3 queue pairs", infiniband, "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1"},
    {"3 queue pairs", NULL, "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=0"},
    {"3 queue pairs, split", NULL, "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1"},
    {"3 queue pairs, split, no immediate data, requests of 4096", bare, "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1"},
    {"four devices", four_devices, "RING_IB_QPS_PER_CONNECTION=2"},
    {"calm", be_calm, ""},
};

enum { MESSAGES = LINK_SLOW ? 20 : 50 };

struct plan {
    size_t len[2][MESSAGES];
    uint32_t unit[2][MESSAGES], sent[2], received[2];
};

static void make_plan(struct plan *p, uint64_t *random)
{
    *p = (struct plan){.sent = {0}};
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < MESSAGES; i++) {
            p->unit[d][i] = some_unit(random);
            p->len[d][i] = some_length(random, p->unit[d][i] ? p->unit[d][i] : 1, MIB);
        }
}

/* Messages of direction d go from end d to end !d. */
static void follow_plan(struct rig *rig, struct plan *p, uint64_t *random)
{
    while (p->sent[0] + p->sent[1] + p->received[0] + p->received[1] < 4 * MESSAGES) {
        const int d = (int)(rig_random(random) & 1);
        const uint64_t what = rig_random(random) % 4;
        if (what == 0 && p->sent[d] < MESSAGES) {
            rig_send(rig, d, 0, p->len[d][p->sent[d]], p->sent[d]);
            p->sent[d]++;
        } else if (what == 1 && p->received[d] < MESSAGES) {
            const uint32_t i = p->received[d]++;
            rig_recv(rig, !d, 0, p->len[d][i], i, p->unit[d][i]);
        } else {
            rig_step(&rig->end[d]);
        }
    }
}

static void random_traffic(const struct link_kind *k, uint64_t seed)
{
    struct rig rig;
    struct plan plan;
    uint64_t random = seed;
    fprintf(stderr, "%s: SEED=%llu\n", k->name, (unsigned long long)seed);
    link_world(seed, k->change);
    rig_open(&rig, link_transport(), 1, k->settings);
    make_plan(&plan, &random);
    follow_plan(&rig, &plan, &random);
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

Test(verbs, random_traffic_over_devices_of_all_kinds, .timeout = 200)
{
    const char *given = getenv("SEED");
    const uint64_t first = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 1000;
    for (size_t k = 0; k < LINK_KINDS; k++)
        for (uint64_t seed = first; seed < first + (given || LINK_SLOW ? 1 : 2); seed++)
            random_traffic(&link_kinds[k], seed);
}

/* ---- registered memory ----------------------------------------------------------------------------------------- */

enum { AREA = 4 * MIB };

static const struct ri_memory memory = {.find = link_find_region, .version = link_regions_version};

static void know(int i, unsigned char *at, size_t bytes)
{
    static uint64_t serial;
    link_regions[i] = (struct ri_region){.begin = at, .bytes = bytes, .serial = ++serial};
    link_regions_changed += 2;
}

/* End 0 sends from area 0, end 1 receives into area 1. */
struct areas {
    struct rig rig;
    unsigned char *at[2];
};

static void open_areas(struct areas *a, shape_fn *change, const char *settings)
{
    link_world(7, change);
    rig_open_ends(&a->rig, link_transport(), settings);
    int mine[16], theirs[16];
    const uint32_t n = rig_sockets(&a->rig, mine, theirs);
    for (int i = 0; i < 2; i++) {
        a->at[i] = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq(a->at[i], MAP_FAILED);
        know(i, a->at[i], AREA);
        a->rig.end[i].ctx->memory = &memory;
        cr_assert_eq(rig_connect(&a->rig, i, i ? theirs : mine, n), RING_OK, "%s", ri_error_get());
    }
    link_meet(&a->rig);
}

static void close_areas(struct areas *a)
{
    rig_close(&a->rig);
    for (int i = 0; i < 2; i++)
        munmap(a->at[i], AREA);
}

/* `n` messages of so many bytes, one behind the other; after so many steps there is trouble, if any. */
static void carry_through(struct areas *a, uint32_t n, size_t bytes, unsigned after, void (*trouble)(void))
{
    static unsigned char salt;
    struct ri_xfer x[2][16] = {{{.len = 0}}};
    uint32_t back = 0;
    salt++;
    for (size_t i = 0; i < n * bytes; i++)
        a->at[0][i] = (unsigned char)(1 | ((i * 2654435761u >> 13) + salt));
    memset(a->at[1], 0, n * bytes);
    for (uint32_t i = 0; i < n; i++)
        for (int end = 0; end < 2; end++) {
            x[end][i] = (struct ri_xfer){.buf = a->at[end] + i * bytes, .len = bytes};
            struct rig_end *e = &a->rig.end[end];
            (end ? e->t->recv : e->t->send)(e->link[0], &x[end][i]);
        }
    for (const uint64_t deadline = ri_deadline(10 * RI_SECOND); back < 2 * n && ri_now() < deadline; after--) {
        if (trouble && !after)
            trouble();
        for (int end = 0; end < 2; end++) {
            struct ri_queue done = {0};
            const struct rig_end *e = &a->rig.end[end];
            (void)e->t->progress(e->ctx, &done);
            for (const struct ri_xfer *one = ri_queue_take(&done); one; one = ri_queue_take(&done), back++)
                cr_assert_eq(one->status, RING_OK);
        }
    }
    cr_assert_eq(back, 2 * n);
    cr_assert_arr_eq(a->at[0], a->at[1], n * bytes);
}

static void carry(struct areas *a, uint32_t n, size_t bytes) { carry_through(a, n, bytes, 0, NULL); }

/* Whether a byte of a message ever was in a landing slot. */
static bool copied(const struct areas *a)
{
    for (int end = 0; end < 2; end++) {
        const struct verbs_window *w = ((const struct verbs_link *)a->rig.end[end].link[0])->window;
        const unsigned char *in = (const unsigned char *)w->chunk_in, *out = (const unsigned char *)w->chunk_out;
        for (size_t i = 0; i < sizeof w->chunk_in; i++)
            if (in[i] || out[i])
                return true;
    }
    return false;
}

Test(verbs, registered_memory_is_not_copied, .timeout = 60)
{
    struct areas a;
    open_areas(&a, NULL, "");
    const struct provider_counters before = link_counted();
    for (uint64_t round = 1; round < 4; round++) {
        carry(&a, 8, 256 * KIB);
        const struct provider_counters now = link_counted();
        cr_assert_eq(now.bytes - before.bytes, round * 8 * (256 * KIB + sizeof(struct verbs_grant)));
        cr_assert_eq(now.registrations - before.registrations, 4, "2 regions with each of 2 devices, once");
        cr_assert_not(copied(&a));
    }
    carry(&a, 1, AREA);
    cr_assert_eq(link_counted().registrations - before.registrations, 4);
    cr_assert_not(copied(&a));
    cr_assert_eq(link_counted().denied, 0);
    close_areas(&a);
}

static void first_port_down(void) { provider_control.set_port(0, IBV_PORT_DOWN); }

Test(verbs, registered_memory_is_not_copied_when_a_rail_is_lost, .timeout = 60)
{
    static const char *const settings[] = {"", "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1"};
    for (unsigned after = 0; after < 40; after += LINK_SLOW ? 13 : 3)
        for (int i = 0; i < 2; i++) {
            struct areas a;
            open_areas(&a, NULL, settings[i]);
            carry_through(&a, 12, 256 * KIB, after, first_port_down);
            carry(&a, 3, MIB);
            cr_assert_not(copied(&a));
            cr_assert_eq(link_counted().denied, 0);
            close_areas(&a);
        }
}

/* As the setting has it, so that each of a message's lanes carries a part. */
Test(verbs, registered_memory_is_not_copied_when_messages_are_split, .timeout = 60)
{
    struct areas a;
    open_areas(&a, NULL, "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1");
    const struct provider_counters before = link_counted();
    carry(&a, 8, 256 * KIB);
    carry(&a, 3, MIB);
    cr_assert_not(copied(&a));
    cr_assert_eq(link_counted().bytes - before.bytes, 5 * MIB + 11 * sizeof(struct verbs_grant));
    cr_assert_eq(link_counted().wr[IBV_WR_RDMA_WRITE_WITH_IMM] - before.wr[IBV_WR_RDMA_WRITE_WITH_IMM], 11 * (6 + 1));
    close_areas(&a);
}

Test(verbs, memory_that_comes_again_is_registered_again, .timeout = 60)
{
    struct areas a;
    open_areas(&a, one_device, "");
    carry(&a, 4, 256 * KIB);
    const struct provider_counters before = link_counted();
    for (uint64_t round = 1; round < 6; round++) {
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(munmap(a.at[i], AREA), 0);
            cr_assert_eq(mmap(a.at[i], AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                         a.at[i]);
            know(i, a.at[i], AREA);
        }
        carry(&a, 4, 256 * KIB);
        const struct provider_counters now = link_counted();
        cr_assert_eq(now.registrations - before.registrations, 2 * round);
        cr_assert_eq(now.mrs, before.mrs);
        cr_assert_eq(now.denied, 0);
    }
    know(0, NULL, 0);
    know(1, NULL, 0);
    carry(&a, 4, 256 * KIB);
    cr_assert_eq(link_counted().mrs, before.mrs - 2, "memory that is gone is not registered any more");
    cr_assert(copied(&a));
    close_areas(&a);
}

static void lock_no_more(struct provider_world *w)
{
    for (int i = 0; i < w->devices; i++)
        w->device[i].locked_memory = link_counted().locked + MIB;
}

Test(verbs, memory_that_a_device_refuses_is_copied, .timeout = 60)
{
    struct areas a;
    open_areas(&a, NULL, "");
    link_change(lock_no_more);
    const struct provider_counters before = link_counted();
    for (int round = 0; round < 3; round++)
        carry(&a, 8, 256 * KIB);
    cr_assert(copied(&a));
    cr_assert_eq(link_counted().registrations, before.registrations);
    cr_assert_leq(provider_control.calls("ibv_reg_mr_iova2"), before.registrations + 4, "once a region and device");
    cr_assert_eq(link_counted().denied, 0);
    close_areas(&a);
}

/* ---- counts ---------------------------------------------------------------------------------------------------- */

/* A mebibyte of a ring's traffic in messages of 256 KiB: for each, the receiver writes one grant and the sender one
 * piece, both with immediate data, so 2 x 4 requests and no third; the 4 pieces have a completion each, and the grants
 * none (every 32nd of a queue has).  It is what NCCL's protocol needs: a CTS write and a WRITE_WITH_IMM a message.
 * InfiniBand may bring what is written in another order than it was sent, so there an empty write with the immediate
 * data comes after each piece: 4 more requests, and as many completions. */
static void count_mebibyte(shape_fn *change, bool registered, uint64_t plain)
{
    struct areas a;
    open_areas(&a, change, "");
    if (!registered) {
        know(0, NULL, 0);
        know(1, NULL, 0);
    }
    const struct provider_counters before = link_counted();
    carry(&a, 4, 256 * KIB);
    const struct provider_counters now = link_counted();
    cr_assert_eq(now.wr[IBV_WR_RDMA_WRITE_WITH_IMM] - before.wr[IBV_WR_RDMA_WRITE_WITH_IMM], 4 + 4);
    cr_assert_eq(now.wr[IBV_WR_RDMA_WRITE] - before.wr[IBV_WR_RDMA_WRITE], plain);
    cr_assert_eq(now.wr[IBV_WR_SEND], 0);
    cr_assert_eq(now.signalled - before.signalled, 4);
    cr_assert_eq(now.doorbells - before.doorbells, 4 + 4);
    cr_assert_eq(now.bytes - before.bytes, MIB + 4 * sizeof(struct verbs_grant));
    cr_assert_eq(copied(&a), !registered);
    close_areas(&a);
}

Test(verbs, a_mebibyte_is_four_grants_and_four_writes, .timeout = 60)
{
    count_mebibyte(one_device, true, 0);
    count_mebibyte(one_device, false, 0);
    count_mebibyte(NULL, true, 0);
    count_mebibyte(infiniband, true, 4);
    count_mebibyte(infiniband, false, 4);
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void *sleep_until_back(void *end)
{
    rig_run_end(end, true);
    return NULL;
}

static pthread_t sleep_in_thread(struct rig_end *e)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, sleep_until_back, e), 0);
    usleep(30000);
    return thread;
}

/* Within less than the 5 s after which rig_run_end() complains. */
static void wake(struct rig *rig, pthread_t thread)
{
    cr_assert_eq(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_str_empty(rig->end[i].problem, "end %d: %s", i, rig->end[i].problem);
}

Test(verbs, a_sleeper_wakes_for_data_and_for_room, .timeout = 60)
{
    static const size_t lengths[] = {1, 100, 300, VERBS_EAGER, MIB};
    for (size_t k = 0; k < LINK_KINDS; k++) {
        struct rig rig;
        link_world(k, link_kinds[k].change);
        rig_open(&rig, link_transport(), 1, link_kinds[k].settings);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            rig_recv(&rig, 1, 0, lengths[i], 1, 0);
            const pthread_t receiver = sleep_in_thread(&rig.end[1]);
            rig_send(&rig, 0, 0, lengths[i], 1);
            rig_run_end(&rig.end[0], false);
            wake(&rig, receiver);
        }
        for (uint32_t i = 0; i < 3 * VERBS_EAGERS; i++)
            rig_send(&rig, 0, 0, i % 16 ? 300 : MIB, i);
        const pthread_t sender = sleep_in_thread(&rig.end[0]);
        for (uint32_t i = 0; i < 3 * VERBS_EAGERS; i++)
            rig_recv(&rig, 1, 0, i % 16 ? 300 : MIB, i, 0);
        rig_run_end(&rig.end[1], false);
        wake(&rig, sender);
        rig_expect_all(&rig, RING_OK);
        rig_close(&rig);
    }
}

Test(verbs, a_sleeper_wakes_for_a_device_and_for_the_end, .timeout = 60)
{
    for (int what = 0; what < 3; what++) {
        struct rig rig;
        link_open(&rig, 1, one_device, "");
        struct job *j = rig_recv(&rig, 1, 0, 100, 1, 0);
        const pthread_t sleeper = sleep_in_thread(&rig.end[1]);
        const uint64_t begin = ri_now();
        if (what == 0)
            provider_control.set_port(0, IBV_PORT_DOWN);
        else if (what == 1)
            provider_control.raise(0, IBV_EVENT_DEVICE_FATAL);
        else
            rig_disconnect(&rig, 0, 0);
        wake(&rig, sleeper);
        cr_assert_lt(ri_now() - begin, 2 * RI_SECOND);
        rig_expect(j, RING_ERR_PEER_LOST);
        rig_close(&rig);
    }
}

/* ---- can it work at all? --------------------------------------------------------------------------------------- */

static void lock_64k(struct provider_world *w)
{
    for (int i = 0; i < w->devices; i++)
        w->device[i].locked_memory = 64 * KIB;
}

static void forbid(struct provider_world *w)
{
    for (int i = 0; i < w->devices; i++)
        w->device[i].open_error = EACCES;
}

static bool usable(char *why_out, size_t cap)
{
    struct ri_conf conf;
    ri_conf_defaults(&conf);
    snprintf(conf.ib_library, sizeof conf.ib_library, "%s", VERBS_LIBRARY);
    return link_transport()->usable(&conf, why_out, cap);
}

Test(verbs, what_makes_it_useless_is_named)
{
    char why[512] = "", bytes[32];
    const struct rlimit little = {64 * KIB, 64 * KIB};
    link_world(1, NULL);
    cr_assert(usable(why, sizeof why), "%s", why);
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    cr_assert(usable(why, sizeof why), "privileged users may lock what they like: %s", why);
    link_change(lock_64k);
    cr_assert_not(usable(why, sizeof why));
    snprintf(bytes, sizeof bytes, "%zu", 2 * 2 * sizeof(struct verbs_window)); /* two links over two ports */
    cr_assert(strstr(why, "65536") && strstr(why, "ulimit -l") && strstr(why, bytes), "%s", why);
    link_world(1, forbid);
    cr_assert_not(usable(why, sizeof why));
    cr_assert(strstr(why, "/dev/infiniband"), "%s", why);
    cr_assert_eq(provider_control.violations(why, sizeof why), 0, "%s", why);
    cr_assert_eq(provider_control.reset(1), 0);
}
