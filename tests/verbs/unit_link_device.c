/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from and to memory of GPUs.
 *
 * A GPU's memory here is a memfd: the provider takes it for a dma-buf, the test looks into it by a view, and at the
 * addresses that messages are given nobody may look, so who touches a byte dies. */
#include "tests/verbs/unit_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum { AREA = 4 << 20, BEGIN = 3 * 4096 /* of the region in the dma-buf */, MOST = 16 };

/* ---- GPUs ------------------------------------------------------------------------------------------------------ */

struct gpu {
    int fd;
    unsigned char *view, *at; /* of the processor's, of messages' */
};

/* End 0 sends from the first, end 1 receives into the second. */
static struct gpu gpus[2];
static struct ri_region known[2];
static uint32_t known_version = 2;
static size_t copied;      /* bytes */
static size_t copies_more; /* until one fails */

static bool find_known(const void *at, size_t bytes, struct ri_region *region_out)
{
    for (int i = 0; i < 2; i++) {
        const uintptr_t begin = (uintptr_t)known[i].begin, from = (uintptr_t)at;
        if (!known[i].bytes || from < begin || from - begin > known[i].bytes || bytes > known[i].bytes - (from - begin))
            continue;
        *region_out = known[i];
        return true;
    }
    return false;
}

static uint32_t version_known(void) { return known_version; }
static const struct ri_memory memory = {.find = find_known, .version = version_known, .devices = true};

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

static void know(int i, bool dmabuf)
{
    static uint64_t serial;
    known[i] = (struct ri_region){.begin = gpus[i].at,
                                  .bytes = AREA,
                                  .serial = ++serial,
                                  .copy = copy,
                                  .dmabuf = dmabuf ? gpus[i].fd : -1,
                                  .dmabuf_at = BEGIN,
                                  .flush = true};
    known_version += 2;
}

static void open_gpu(struct gpu *g)
{
    g->fd = memfd_create("gpu", MFD_CLOEXEC);
    cr_assert(g->fd >= 0 && !ftruncate(g->fd, BEGIN + AREA));
    g->view = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, BEGIN);
    g->at = mmap(NULL, AREA, PROT_NONE, MAP_SHARED, g->fd, BEGIN);
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
    bool no_dmabuf;
};

static void open_ends(struct rig *rig, uint64_t seed, const struct shape *s)
{
    link_world(seed, s->world);
    rig_open_ends(rig, link_transport(), s->settings ? s->settings : "");
    copied = copies_more = 0;
    for (int i = 0; i < 2; i++) {
        gpus[i] = (struct gpu){.fd = -1};
        open_gpu(&gpus[i]);
        know(i, !s->no_dmabuf);
        rig->end[i].ctx->memory = &memory;
    }
    int fds[2][16];
    const uint32_t n = rig_sockets(rig, fds[0], fds[1]);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(rig_connect(rig, i, fds[i], n), RING_OK, "%s", ri_error_get());
    link_meet(rig);
}

/* What is known stays as it is until then. */
static void close_ends(struct rig *rig)
{
    rig_close(rig);
    for (int i = 0; i < 2; i++)
        close_gpu(&gpus[i]);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

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

/* Lengths of all kinds, with which messages go by slots, inline, in pieces and with a rest of a byte. */
static const size_t lengths[] = {0,    1,         100,  220,        221,    4096,    4097,   8192,
                                 8193, 16 * 4096, 8200, 256 * 1024, 300001, 1 << 20, 262145, 9};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

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

/* ---- copied ------------------------------------------------------------------------------------------------------ */

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
