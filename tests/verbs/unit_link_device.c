/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from and to memory of GPUs.
 *
 * A GPU's memory here is a memfd: the provider takes it for a dma-buf, the test looks into it by a view, and at the
 * addresses that messages are given nobody may look, so who touches a byte dies. */
#include "tests/verbs/unit_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "transports/verbs/ctx.h"
#include "transports/verbs/gpu.h"

enum { MIB = 1 << 20, KIB = 1 << 10, AREA = 4 * MIB, BEGIN = 3 * 4096 /* of the region in the dma-buf */, MOST = 16 };

/* ---- GPUs ------------------------------------------------------------------------------------------------------ */

struct gpu {
    int fd;
    unsigned char *view, *at; /* of the processor's, of messages' */
};

/* End 0 sends from the first, end 1 receives into the second. */
static struct gpu gpus[2];
static size_t copied;      /* bytes */
static size_t copies_more; /* until one fails */

static const struct ri_memory memory = {.find = link_find_region, .version = link_regions_version, .devices = true};

static unsigned char *seen(const void *at)
{
    for (int i = 0; i < 2; i++)
        if ((const unsigned char *)at >= gpus[i].at && (const unsigned char *)at < gpus[i].at + AREA)
            return gpus[i].view + ((const unsigned char *)at - gpus[i].at);
    return (unsigned char *)(uintptr_t)at;
}

static ring_status_t copy(void *to, const void *from, size_t bytes)
{
    if (copies_more && !--copies_more)
        return ri_fail(RING_ERR_SYSTEM, "the GPU has fallen off the bus");
    memcpy(seen(to), seen(from), bytes);
    copied += bytes;
    return RING_OK;
}

static void know(int i, bool dmabuf, bool flush)
{
    static uint64_t serial;
    link_regions[i] = (struct ri_region){.begin = gpus[i].at,
                                         .bytes = AREA,
                                         .serial = ++serial,
                                         .copy = copy,
                                         .dmabuf = dmabuf ? gpus[i].fd : -1,
                                         .dmabuf_at = BEGIN,
                                         .flush = flush};
    link_regions_changed += 2;
}

/* For what is registered plainly, the device has to find it where messages have it. */
static void open_gpu(struct gpu *g, bool plain)
{
    g->fd = memfd_create("gpu", MFD_CLOEXEC);
    cr_assert(g->fd >= 0 && !ftruncate(g->fd, BEGIN + AREA));
    g->view = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, BEGIN);
    g->at = mmap(g->at, AREA, plain ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | (g->at ? MAP_FIXED : 0), g->fd,
                 BEGIN);
    cr_assert(g->view != MAP_FAILED && g->at != MAP_FAILED);
}

static void close_gpu(struct gpu *g)
{
    munmap(g->view, AREA);
    munmap(g->at, AREA);
    close(g->fd);
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

struct shape {
    shape_fn *world;
    const char *settings;
    uint32_t links;
    bool no_dmabuf, no_flush, plain;
    const char *root;
};

static void open_ends(struct rig *rig, uint64_t seed, const struct shape *s)
{
    link_world(seed, s->world);
    rig_open_ends(rig, link_transport(), s->settings ? s->settings : "");
    copied = copies_more = 0;
    for (int i = 0; i < 2; i++) {
        gpus[i] = (struct gpu){.fd = -1};
        open_gpu(&gpus[i], s->plain);
        know(i, !s->no_dmabuf, !s->no_flush);
        rig->end[i].ctx->memory = &memory;
        ((struct verbs_ctx *)rig->end[i].ctx)->memory.root = s->root ? s->root : "/nonexistent";
    }
    for (uint32_t k = 0; k < (s->links ? s->links : 1); k++) {
        int fds[2][16];
        const uint32_t n = rig_sockets(rig, fds[0], fds[1]);
        for (int i = 0; i < 2; i++)
            cr_assert_eq(rig_connect(rig, i, fds[i], n), RING_OK, "%s", ri_error_get());
        for (int end = 0; end < 2; end++) {
            rig_send(rig, end, k, 8, 1);
            rig_recv(rig, !end, k, 8, 1, 0);
        }
    }
    rig_run(rig);
}

/* What is known stays as it is until then. */
static void close_ends(struct rig *rig)
{
    rig_close(rig);
    for (int i = 0; i < 2; i++)
        close_gpu(&gpus[i]);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* One message of each link after the other's, as they are posted. */
struct batch {
    struct ri_xfer x[2][8 * MOST];
    uint32_t n, back, sent, lost;
};

static unsigned char salt;

static unsigned char byte_at(size_t i) { return (unsigned char)(1 | ((i * 2654435761u >> 13) + salt)); }

static void post(struct rig *rig, struct batch *b, const size_t *len, uint32_t n)
{
    size_t all = 0, at = 0;
    *b = (struct batch){.n = n};
    salt++;
    for (uint32_t i = 0; i < n; i++)
        all += len[i];
    cr_assert_leq(all, (size_t)AREA);
    for (size_t i = 0; i < all; i++)
        gpus[0].view[i] = byte_at(i);
    memset(gpus[1].view, 0, all);
    for (uint32_t i = 0; i < n; at += len[i++])
        for (int end = 0; end < 2; end++) {
            struct rig_end *e = &rig->end[end];
            b->x[end][i] = (struct ri_xfer){.buf = gpus[end].at + at, .len = len[i]};
            (end ? e->t->recv : e->t->send)(e->link[i % e->links], &b->x[end][i]);
        }
}

/* As soon as it is back, and not a moment later. */
static void expect_received(const struct ri_xfer *x)
{
    const size_t from = (size_t)((unsigned char *)x->buf - gpus[1].at);
    size_t i = 0;
    while (i < x->len && gpus[1].view[from + i] == byte_at(from + i))
        i++;
    cr_assert_eq(i, x->len, "byte %zu of %zu is another", i, x->len);
}

static void step(struct rig *rig, struct batch *b, int end)
{
    struct ri_queue done = {0};
    const struct rig_end *e = &rig->end[end];
    (void)e->t->progress(e->ctx, &done);
    for (const struct ri_xfer *x = ri_queue_take(&done); x; x = ri_queue_take(&done), b->back++) {
        cr_assert(!x->status || x->status == RING_ERR_PEER_LOST);
        b->lost += x->status != RING_OK;
        b->sent += !end;
        if (end && !x->status)
            expect_received(x);
    }
}

static void run(struct rig *rig, struct batch *b)
{
    for (const uint64_t deadline = ri_deadline(10 * RI_SECOND); b->back < 2 * b->n && ri_now() < deadline;)
        for (int end = 0; end < 2; end++)
            step(rig, b, end);
    cr_assert_eq(b->back, 2 * b->n, "%u of %u are back", b->back, 2 * b->n);
}

/* `n` messages of so many bytes, which arrive. */
static void carry(struct rig *rig, uint32_t n, size_t bytes)
{
    struct batch b;
    size_t len[MOST];
    for (uint32_t i = 0; i < n; i++)
        len[i] = bytes;
    post(rig, &b, len, n);
    run(rig, &b);
    cr_assert_eq(b.lost, 0);
}

/* Lengths of all kinds, with which messages go by slots, inline, in pieces and with a rest of a byte. */
static const size_t lengths[] = {0,    1,         100,  220,        221,    4096,    4097,   8192,
                                 8193, 16 * 4096, 8200, 256 * 1024, 300001, 1 << 20, 262145, 9};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static uint64_t reads(void) { return link_counted().wr[IBV_WR_RDMA_READ]; }

/* ---- devices --------------------------------------------------------------------------------------------------- */

static void each(struct provider_world *w, void (*change)(struct provider_device *d))
{
    for (int i = 0; i < w->devices; i++)
        change(&w->device[i]);
}
static void device_no_imm(struct provider_device *d)
{
    d->no_imm = true;
    d->max_inline = 0;
    d->max_msg_sz = 4096;
}
static void device_4k(struct provider_device *d) { d->max_msg_sz = 4096; }
static void device_no_dmabuf(struct provider_device *d) { d->dmabuf = false; }
static void device_infiniband(struct provider_device *d)
{
    const uint8_t raw[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, (uint8_t)d->lid};
    d->infiniband = true;
    d->gids = 1;
    d->gid[0] = (struct provider_gid){.index = 0, .type = IBV_GID_TYPE_IB};
    memcpy(d->gid[0].gid.raw, raw, sizeof raw);
}
static void one_device(struct provider_world *w) { w->devices = 1; }
static void bare(struct provider_world *w) { each(w, device_no_imm); }
static void only_4k(struct provider_world *w) { each(w, device_4k); }
static void infiniband(struct provider_world *w) { each(w, device_infiniband); }
static void no_dmabuf(struct provider_world *w) { each(w, device_no_dmabuf); }
static void second_no_dmabuf(struct provider_world *w) { w->device[1].dmabuf = false; }

#define SPLIT "RING_IB_QPS_PER_CONNECTION=3 RING_IB_SPLIT=1"

/* ---- by dma-buf ------------------------------------------------------------------------------------------------ */

/* Of 8 messages of 256 KiB each is one piece.  A piece goes by one device, so one read flushes it; but when it is split
 * among 3 queue pairs of each of 2 devices, by both.  A read is of one byte. */
static void count_reads(const struct shape *s, uint64_t devices, uint64_t reads_each)
{
    struct rig rig;
    open_ends(&rig, 7, s);
    const struct provider_counters before = link_counted();
    for (uint64_t round = 1; round < 4; round++) {
        carry(&rig, 8, 256 * KIB);
        const struct provider_counters now = link_counted();
        const uint64_t read = round * 8 * reads_each;
        cr_assert_eq(now.wr[IBV_WR_RDMA_READ] - before.wr[IBV_WR_RDMA_READ], read);
        cr_assert_eq(now.bytes - before.bytes, round * 8 * (256 * KIB + sizeof(struct verbs_grant)) + read);
        cr_assert_eq(now.dmabufs - before.dmabufs, 2 * devices, "2 regions with each device, once");
        cr_assert_eq(now.readable - before.readable, 2 * devices);
        cr_assert_eq(now.qps - before.qps, devices, "a queue pair that reads, of each device");
        cr_assert_eq(copied, 0);
    }
    cr_assert_eq(link_counted().denied, 0);
    close_ends(&rig);
}

Test(verbs_gpu, memory_is_registered_by_dmabuf_and_flushed, .timeout = 60)
{
    count_reads(&(struct shape){.world = one_device}, 1, 1);
    count_reads(&(struct shape){.world = NULL}, 2, 1);
    count_reads(&(struct shape){.world = infiniband}, 2, 1);
    count_reads(&(struct shape){.settings = SPLIT}, 2, 2);
}

Test(verbs_gpu, messages_of_all_lengths_arrive, .timeout = 60)
{
    static const struct shape shapes[] = {
        {.world = NULL},     {.world = one_device}, {.world = only_4k, .settings = SPLIT},
        {.world = bare},     {.world = infiniband}, {.world = bare, .no_dmabuf = true},
        {.settings = SPLIT}, {.world = no_dmabuf},  {.world = second_no_dmabuf, .settings = SPLIT},
        {.no_dmabuf = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint64_t seed = 0; seed < (LINK_SLOW ? 1 : 4); seed++) {
            struct rig rig;
            struct batch b;
            open_ends(&rig, seed, &shapes[i]);
            for (int round = 0; round < 2; round++) {
                post(&rig, &b, lengths, LENGTHS);
                run(&rig, &b);
                cr_assert_eq(b.lost, 0);
            }
            cr_assert_eq(link_counted().denied, 0);
            close_ends(&rig);
        }
}

/* More pieces at a time than a queue pair has room for reads: 8 links of 16 each. */
Test(verbs_gpu, many_links_share_the_queue_pair_that_reads, .timeout = 60)
{
    for (uint64_t seed = 0; seed < (LINK_SLOW ? 2 : 8); seed++) {
        const struct shape s = {.world = one_device, .links = 8};
        struct rig rig;
        struct batch b;
        size_t len[8 * MOST];
        for (int i = 0; i < 8 * MOST; i++)
            len[i] = 10000;
        open_ends(&rig, seed, &s);
        const struct verbs_rail *rail = &((const struct verbs_ctx *)rig.end[1].ctx)->rail[0];
        const int taken = rail->cq_taken;
        const uint64_t before = reads();
        post(&rig, &b, len, 8 * MOST);
        run(&rig, &b);
        cr_assert_eq(b.lost, 0);
        cr_assert_eq(reads() - before, 8 * MOST);
        cr_assert_gt(rail->cq_taken, taken, "its completions have room of their own");
        close_ends(&rig);
    }
}

/* What has come before the end is flushed after it. */
Test(verbs_gpu, what_was_sent_before_the_end_arrives, .timeout = 60)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct rig rig;
        struct batch b;
        const size_t len[4] = {256 * KIB, 100, 20000, 300000};
        open_ends(&rig, seed, &(struct shape){.world = one_device});
        post(&rig, &b, len, 4);
        const uint64_t deadline = ri_deadline(5 * RI_SECOND);
        for (int end = 0; b.sent < 4 && ri_now() < deadline; end = !end)
            step(&rig, &b, end);
        rig_disconnect(&rig, 0, 0);
        while (b.back < 2 * 4 && ri_now() < deadline) {
            rig.end[1].t->disarm(rig.end[1].ctx); /* who has slept hears of the end at once */
            step(&rig, &b, 1);
        }
        cr_assert_eq(b.back, 2 * 4);
        cr_assert_eq(b.lost, 0);
        close_ends(&rig);
    }
}

/* A link may go while a read is under way that was its. */
Test(verbs_gpu, a_link_goes_without_its_reads, .timeout = 60)
{
    static const size_t len[2] = {100000, 100000};
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct rig rig;
        struct batch b;
        open_ends(&rig, seed, &(struct shape){.world = one_device, .links = 2});
        const uint64_t before = reads(), deadline = ri_deadline(5 * RI_SECOND);
        post(&rig, &b, len, 1);
        for (int end = 0; reads() == before && ri_now() < deadline; end = !end)
            step(&rig, &b, end);
        for (int end = 0; end < 2; end++) {
            rig_disconnect(&rig, end, 0);
            rig.end[end].link[0] = rig.end[end].link[1];
            rig.end[end].link[1] = NULL;
            rig.end[end].links = 1;
        }
        carry(&rig, 2, 100000);
        cr_assert_eq(reads() - before, 1 + 2);
        close_ends(&rig);
    }
}

/* At the same address, but of another dma-buf. */
Test(verbs_gpu, memory_that_comes_again_is_registered_again, .timeout = 60)
{
    struct rig rig;
    open_ends(&rig, 7, &(struct shape){.world = one_device});
    carry(&rig, 4, 256 * KIB);
    const struct provider_counters before = link_counted();
    for (uint64_t round = 1; round < 6; round++) {
        for (int i = 0; i < 2; i++) {
            const int old = gpus[i].fd;
            munmap(gpus[i].view, AREA);
            open_gpu(&gpus[i], false);
            know(i, true, true);
            close(old);
        }
        carry(&rig, 4, 256 * KIB);
        const struct provider_counters now = link_counted();
        cr_assert_eq(now.dmabufs - before.dmabufs, 2 * round);
        cr_assert_eq(now.mrs, before.mrs);
    }
    cr_assert_eq(copied, 0);
    close_ends(&rig);
}

/* ---- without dma-buf ------------------------------------------------------------------------------------------- */

/* 4 messages of 256 KiB in slots: each byte is copied out of one GPU's memory and into the other's.  Where only one of
 * two devices refuses, what it sends is copied, half of the messages, and all that is received: a piece may come by
 * either.  So when the first device refuses what is received, the second is not asked. */
static void copy_all(const struct shape *s, const char *said, unsigned times, size_t of_sent)
{
    struct rig rig;
    char text[4096];
    int kept;
    const int file = link_listen(&kept);
    ri_log_set_level(RI_LOG_INFO);
    open_ends(&rig, 7, s);
    for (int round = 0; round < 3; round++)
        carry(&rig, 4, 256 * KIB);
    ri_log_set_level(RI_LOG_WARN);
    link_heard(file, kept, text, sizeof text);
    cr_assert_eq(copied, 3 * (of_sent + MIB));
    cr_assert_eq(reads(), 0);
    cr_assert_eq(link_times_said(text, said), times, "once a region and device that is asked: %s", text);
    cr_assert_eq(link_times_said(text, "a GPU's memory are copied"), times, "%s", text);
    cr_assert_eq(link_counted().denied, 0);
    close_ends(&rig);
}

Test(verbs_gpu, memory_that_a_device_refuses_is_copied_and_it_is_said_why, .timeout = 60)
{
    copy_all(&(struct shape){.world = one_device, .no_dmabuf = true},
             "test0 port 1 refuses them: there is no dma-buf of it; nvidia_peermem is not loaded", 2, MIB);
    copy_all(&(struct shape){.no_dmabuf = true}, "there is no dma-buf of it", 3, MIB);
    copy_all(&(struct shape){.world = no_dmabuf}, "by dma-buf: Operation not supported", 3, MIB);
    copy_all(&(struct shape){.world = second_no_dmabuf}, "test1 port 1 refuses them: by dma-buf", 2, MIB / 2);
}

static void put_file(const char *root, const char *path)
{
    char whole[512], part[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(at - whole), whole);
        cr_assert(!mkdir(part, 0700) || errno == EEXIST, "%s", part);
    }
    const int fd = open(whole, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void remove_files(const char *root, const char *path)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    cr_assert_eq(unlink(whole), 0);
    for (char *at = strrchr(whole, '/'); at && at >= whole + strlen(root); at = strrchr(whole, '/')) {
        *at = 0;
        cr_assert_eq(rmdir(whole), 0, "%s", whole);
    }
}

Test(verbs_gpu, with_the_module_memory_is_registered_as_the_hosts_is, .timeout = 60)
{
    static const char *const files[] = {"/sys/module/nvidia_peermem/version", "/sys/module/nv_peer_mem/version",
                                        "/sys/kernel/mm/memory_peers/nv_mem/version",
                                        "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};
    for (int i = 0; i < 4; i++) {
        struct rig rig;
        char root[] = "/tmp/ring-test-XXXXXX";
        cr_assert_not_null(mkdtemp(root));
        cr_assert_not(verbs_gpu_module(root));
        put_file(root, files[i]);
        cr_assert(verbs_gpu_module(root));
        const struct shape s = {
            .world = i & 1 ? no_dmabuf : NULL, .no_dmabuf = !(i & 1), .no_flush = i & 2, .plain = true, .root = root};
        open_ends(&rig, 7, &s);
        const struct provider_counters before = link_counted();
        carry(&rig, 8, 256 * KIB);
        const struct provider_counters now = link_counted();
        cr_assert_eq(copied, 0);
        cr_assert_eq(now.dmabufs, 0);
        cr_assert_eq(now.wr[IBV_WR_RDMA_READ], s.no_flush ? 0 : 8);
        cr_assert_eq(now.readable, s.no_flush ? 0 : 4, "2 regions with each of 2 devices");
        cr_assert_eq(now.relaxed - before.relaxed, 4);
        close_ends(&rig);
        remove_files(root, files[i]);
    }
}

/* ---- what fails ------------------------------------------------------------------------------------------------ */

/* All is back soon, and whole or lost. */
static unsigned run_soon(struct rig *rig, struct batch *b, const char *what, unsigned nth)
{
    for (const uint64_t deadline = ri_deadline(2 * RI_SECOND); b->back < 2 * b->n && ri_now() < deadline;)
        for (int end = 0; end < 2; end++)
            step(rig, b, end);
    cr_assert_eq(b->back, 2 * b->n, "%s %u: %u of %u are back", what, nth, b->back, 2 * b->n);
    return b->lost;
}

static const size_t few[] = {20000, 300000, 100, 9000, 256 * 1024};

/* staged: it is only copied then; gives: what it gives back stays. */
static const struct call {
    const char *name;
    bool staged, gives;
} calls[] = {
    {"ibv_reg_dmabuf_mr", true, false}, {"ibv_create_qp", true, false}, {"ibv_modify_qp", true, false},
    {"ibv_reg_mr", true, false},        {"ibv_resize_cq", true, false}, {"ibv_post_send", false, false},
    {"ibv_dereg_mr", true, true},       {"ibv_destroy_qp", true, true},
};

static void fail_call(const struct call *c, unsigned nth, unsigned times)
{
    struct rig rig;
    struct batch b;
    char text[512] = "";
    open_ends(&rig, nth, &(struct shape){.world = nth & 1 ? one_device : NULL});
    cr_assert(provider_control.fail_call(c->name, nth, times, nth & 2 ? ENOMEM : EIO));
    for (int round = 0; round < 2; round++) {
        post(&rig, &b, few, sizeof few / sizeof *few);
        const unsigned lost = run_soon(&rig, &b, c->name, nth);
        cr_assert(!lost || !c->staged, "%s %u: %u of %u are lost", c->name, nth, lost, 2 * b.n);
    }
    link_put_away(&rig);
    const struct provider_counters n = link_counted();
    cr_assert(c->gives || !(n.qps + n.mrs + n.cqs + n.pds + n.channels + n.contexts), "%s %u: not all is given back",
              c->name, nth);
    cr_assert(c->gives || !provider_control.violations(text, sizeof text), "%s %u: %s", c->name, nth, text);
    (void)provider_control.reset(1);
    for (int i = 0; i < 2; i++)
        close_gpu(&gpus[i]);
}

Test(verbs_gpu, any_call_may_fail, .timeout = 100)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (unsigned nth = 1; nth < (LINK_SLOW ? 4 : 9); nth++)
            for (unsigned times = 0; times < 2; times++)
                fail_call(&calls[i], nth, times);
}

Test(verbs_gpu, any_request_may_fail, .timeout = 100)
{
    for (uint64_t nth = 1; nth < (LINK_SLOW ? 20 : 60); nth++) {
        struct rig rig;
        struct batch b;
        open_ends(&rig, nth, &(struct shape){.world = nth & 1 ? one_device : NULL});
        provider_control.fail_completion(nth, nth & 2 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
        post(&rig, &b, few, sizeof few / sizeof *few);
        (void)run_soon(&rig, &b, "completion", (unsigned)nth);
        close_ends(&rig);
    }
}

/* Of a message's requests 5 ends come: of the grant and the piece at each end, and of the read.  A read that fails
 * takes its link down; those beside it are not lost, and read by another queue pair. */
Test(verbs_gpu, a_read_that_fails_ends_its_link_and_no_other, .timeout = 60)
{
    static const size_t len[3] = {100000, 100000, 100000};
    struct rig rig;
    struct batch b;
    char text[4096];
    int kept;
    open_ends(&rig, 3, &(struct shape){.world = one_device, .links = 3});
    post(&rig, &b, len, 3);
    run(&rig, &b);
    cr_assert_eq(b.lost, 0);
    const struct provider_counters before = link_counted();
    provider_control.fail_completion(5, IBV_WC_REM_ACCESS_ERR);
    post(&rig, &b, len, 1);
    const int file = link_listen(&kept);
    const unsigned lost = run_soon(&rig, &b, "the first link", 5);
    link_heard(file, kept, text, sizeof text);
    cr_assert_geq(lost, 1);
    cr_assert(strstr(text, "test0 port 1: memory of a GPU is not flushed: remote access error: the link from rank "),
              "%s", text);
    post(&rig, &b, len, 3);
    cr_assert_eq(run_soon(&rig, &b, "all links", 5), 2, "the first link's");
    const struct provider_counters now = link_counted();
    cr_assert_eq(now.wr[IBV_WR_RDMA_READ] - before.wr[IBV_WR_RDMA_READ], 1 + 2);
    cr_assert_eq(now.qps, before.qps);
    cr_assert_eq(copied, 0);
    close_ends(&rig);
}

/* What comes back as received is whole, whether pieces or reads were under way on that port. */
Test(verbs_gpu, a_port_may_go_down, .timeout = 100)
{
    for (uint64_t seed = 0; seed < (LINK_SLOW ? 8 : 24); seed++) {
        struct rig rig;
        struct batch b;
        uint64_t random = seed;
        open_ends(&rig, seed, &(struct shape){.settings = seed & 1 ? SPLIT : NULL});
        if (seed & 2)
            carry(&rig, 2, 100000);
        post(&rig, &b, few, sizeof few / sizeof *few);
        for (uint64_t steps = rig_random(&random) % 40; steps; steps--)
            step(&rig, &b, (int)(rig_random(&random) & 1));
        provider_control.set_port((int)(seed & 4) / 4, IBV_PORT_DOWN);
        (void)run_soon(&rig, &b, "port down", (unsigned)seed);
        post(&rig, &b, few, sizeof few / sizeof *few);
        (void)run_soon(&rig, &b, "port still down", (unsigned)seed);
        close_ends(&rig);
    }
}

Test(verbs_gpu, a_copy_that_fails_ends_the_link, .timeout = 60)
{
    for (unsigned nth = 1; nth < 12; nth++) {
        struct rig rig;
        struct batch b;
        char text[4096];
        int kept;
        open_ends(&rig, nth, &(struct shape){.no_dmabuf = true});
        copies_more = nth;
        post(&rig, &b, few, sizeof few / sizeof *few);
        const int file = link_listen(&kept);
        const unsigned lost = run_soon(&rig, &b, "copy", nth);
        link_heard(file, kept, text, sizeof text);
        cr_assert_gt(lost, 0);
        cr_assert(strstr(text, "the GPU has fallen off the bus: the link to rank"), "%s", text);
        close_ends(&rig);
    }
}

/* ---- what is said of a device ---------------------------------------------------------------------------------- */

static void explain(struct ibv_context *context, const struct verbs_api *api, const char *root, const char *expected)
{
    char text[VERBS_WHY];
    verbs_gpu_explain(api, context, root, text, sizeof text);
    cr_assert_str_eq(text, expected);
}

Test(verbs_gpu, it_is_said_how_a_device_registers)
{
    char root[] = "/tmp/ring-test-XXXXXX", why[VERBS_WHY] = "";
    static const char file[] = "/sys/module/nvidia_peermem/version";
    link_world(1, NULL);
    const struct verbs_api *found = verbs_api_load(VERBS_LIBRARY, why, sizeof why);
    cr_assert(found && mkdtemp(root), "%s", why);
    struct verbs_api api = *found;
    struct ibv_device **list = api.get_device_list(NULL);
    struct ibv_context *context = api.open_device(list[0]);
    explain(context, &api, root, "registered by dma-buf");
    link_change(no_dmabuf);
    explain(context, &api, root,
            "copied through the host; no dma-buf: Operation not supported; nvidia_peermem is not loaded");
    put_file(root, file);
    explain(context, &api, root, "registered by the peer-memory module; no dma-buf: Operation not supported");
    api.reg_dmabuf_mr = NULL;
    explain(context, &api, root,
            "registered by the peer-memory module; no dma-buf: the library has no ibv_reg_dmabuf_mr");
    remove_files(root, file);
    api.free_device_list(list);
    cr_assert_eq(api.close_device(context), 0);
    cr_assert_eq(provider_control.violations(why, sizeof why), 0, "%s", why);
    cr_assert_eq(provider_control.reset(1), 0);
}
