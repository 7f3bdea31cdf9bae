/* SPDX-License-Identifier: Apache-2.0 */
/* What only one transport has: shm's counters in a hostile hand, tcp's settings. */
#include "tests/conformance/rig.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/seg.h"
#include "transports/shm/ring.h"

/* ---- shm ------------------------------------------------------------------------------------------------------- */

enum { CAP = 4096 };

/* End 0 of a shm link, whose other end is this test. */
struct victim {
    struct rig rig;
    struct ri_seg *seg;
    struct shm_area *area;
    int sock;
};

static bool make_victim(struct victim *v)
{
    const struct ri_transport *t = rig_transport("shm");
    int mine[16], theirs[16];
    if (!t)
        return false;
    rig_open_ends(&v->rig, t, "RING_SHM_BUFFER=4K");
    rig_sockets(&v->rig, mine, theirs);
    cr_assert_eq(rig_connect(&v->rig, 0, mine, 1), RING_OK);
    v->sock = theirs[0];
    struct shm_hello hello;
    int fd;
    cr_assert_eq(ri_fd_recv(v->sock, &fd, &hello, sizeof hello), 1);
    cr_assert_eq(hello.cap, CAP);
    cr_assert_eq(ri_seg_adopt(fd, shm_area_bytes(CAP), &v->seg), RING_OK);
    v->area = ri_seg_base(v->seg);
    return true;
}

static void free_victim(struct victim *v)
{
    close(v->sock);
    ri_seg_close(v->seg);
    rig_close(&v->rig);
}

Test(shm, impossible_counters_break_the_link)
{
    static const uint64_t bad[] = {UINT64_MAX, UINT64_MAX / 2, CAP + 8, (uint64_t)1 << 63, (uint64_t)-8};
    struct victim v;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int which = 0; which < 2; which++) {
            if (!make_victim(&v))
                cr_skip_test("no shm in this build");
            struct job *s = rig_send(&v.rig, 0, 0, 3 * CAP, 1);
            struct job *r = rig_recv(&v.rig, 0, 0, 3 * CAP, 1, which ? 8 : 0);
            rig_step(&v.rig.end[0]);
            cr_assert(!s->back && !r->back);
            atomic_store(which ? &v.area->way[0].tail : &v.area->way[1].head, bad[i]);
            rig_run_end(&v.rig.end[0], false);
            cr_assert_str_empty(v.rig.end[0].problem, "%s", v.rig.end[0].problem);
            rig_expect(s, RING_ERR_PEER_LOST);
            rig_expect(r, RING_ERR_PEER_LOST);
            free_victim(&v);
        }
}

/* Every counter value there is, at any time: never a byte outside the ring or the buffers (guards, and ASan). */
Test(shm, random_counters_do_no_harm)
{
    uint64_t state = 11;
    for (int round = 0; round < 300; round++) {
        struct victim v;
        if (!make_victim(&v))
            cr_skip_test("no shm in this build");
        for (uint32_t i = 0; i < 6; i++) {
            rig_send(&v.rig, 0, 0, rig_random(&state) % 9000, i);
            rig_recv(&v.rig, 0, 0, rig_random(&state) % 1100 * 8, i, 1u << i % 4);
        }
        for (int i = 0; i < 50; i++) {
            const uint64_t at = rig_random(&state) >> (rig_random(&state) % 64);
            atomic_store(&v.area->way[1].head, at);
            atomic_store(&v.area->way[0].tail, rig_random(&state) % 20000);
            atomic_store(&v.area->end[0].asleep, (uint32_t)at);
            atomic_store(&v.area->end[1].asleep, (uint32_t)at);
            rig_step(&v.rig.end[0]);
        }
        close(v.sock);
        v.sock = -1;
        rig_run_end(&v.rig.end[0], false);
        cr_assert_str_empty(v.rig.end[0].problem, "%s", v.rig.end[0].problem);
        free_victim(&v);
    }
}

static int plain_memfd(size_t bytes, int seals)
{
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0 && !ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, seals));
    return fd;
}

/* The acceptor takes no memory that could be pulled from under it, is too small, or is not described as it should be.
 */
Test(shm, wrong_greetings_break_the_link)
{
    const struct ri_transport *t = rig_transport("shm");
    if (!t)
        cr_skip_test("no shm in this build");
    const unsigned before = rig_descriptors();
    for (int kind = 0; kind < 6; kind++) {
        struct rig rig;
        int mine[16], theirs[16];
        struct shm_hello hello = {SHM_MAGIC, SHM_VERSION, CAP};
        const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
        int fd = plain_memfd(kind == 0 ? 4096 : shm_area_bytes(CAP), kind == 1 ? F_SEAL_SEAL : seals);
        hello.magic += kind == 2;
        hello.cap += kind == 3 ? 4096 : 0;
        rig_open_ends(&rig, t, "RING_SHM_BUFFER=4K");
        rig_sockets(&rig, mine, theirs);
        rig.end[1].links = 0;
        cr_assert_eq(rig_connect(&rig, 1, theirs, 1), RING_OK);
        cr_assert_eq(ri_fd_send(mine[0], kind == 4 ? -1 : fd, &hello, kind == 5 ? 3 : sizeof hello), RING_OK);
        struct job *r = rig_recv(&rig, 1, 0, 10, 1, 0);
        struct job *s = rig_send(&rig, 1, 0, 10, 1);
        rig_run_end(&rig.end[1], true);
        rig_expect(r, RING_ERR_PEER_LOST);
        rig_expect(s, RING_ERR_PEER_LOST);
        close(fd);
        close(mine[0]);
        rig_close(&rig);
    }
    cr_assert_eq(rig_descriptors(), before);
}

Test(shm, ends_on_different_nodes_cannot_be_joined)
{
    const struct ri_transport *t = rig_transport("shm");
    struct ri_conf conf;
    uint32_t ns, ps;
    if (!t)
        cr_skip_test("no shm in this build");
    ri_conf_defaults(&conf);
    const struct ri_end a = {.rank = 0, .node = 0}, b = {.rank = 1, .node = 0}, c = {.rank = 2, .node = 1};
    cr_assert(t->cost(&conf, &a, &b, &ns, &ps));
    cr_assert_not(t->cost(&conf, &a, &c, &ns, &ps));
}

/* ---- tcp ------------------------------------------------------------------------------------------------------- */

Test(tcp, an_unknown_congestion_control_is_named_with_the_known_ones)
{
    const struct ri_transport *t = rig_transport("tcp");
    if (!t)
        cr_skip_test("no tcp in this build");
    struct rig rig;
    rig_open_ends(&rig, t, "RING_TCP_CONGESTION=reno");
    struct ri_conf *conf = &rig.end[0].conf;
    strcpy(conf->tcp_congestion, "nosuch");
    t->close(rig.end[0].ctx);
    cr_assert_eq(t->open(rig.end[0].ctx), RING_ERR_CONFIG);
    cr_assert_not_null(strstr(ri_error_get(), "RING_TCP_CONGESTION"));
    cr_assert_not_null(strstr(ri_error_get(), "nosuch"));
    cr_assert_not_null(strstr(ri_error_get(), "reno"));
    rig_close(&rig);
}

Test(tcp, a_link_takes_as_many_sockets_as_the_setting_says)
{
    const struct ri_transport *t = rig_transport("tcp");
    if (!t)
        cr_skip_test("no tcp in this build");
    for (int n = 1; n <= 16; n += 5) {
        struct rig rig;
        char settings[64];
        snprintf(settings, sizeof settings, "RING_TCP_SOCKETS=%d RING_TCP_CONGESTION=reno", n);
        rig_open(&rig, t, 1, settings);
        cr_assert_eq(t->sockets(&rig.end[0].conf), (uint32_t)n);
        for (uint32_t i = 0; i < 40; i++) {
            rig_send(&rig, 0, 0, i % 3 ? 100000 : 50, i);
            rig_recv(&rig, 1, 0, i % 3 ? 100000 : 50, i, i % 4 ? 0 : 2);
        }
        rig_run(&rig);
        rig_expect_all(&rig, RING_OK);
        rig_close(&rig);
    }
}

Test(tcp, sending_with_and_without_a_copy_brings_the_same)
{
    static const char *const settings[] = {"RING_TCP_ZEROCOPY=off", "RING_TCP_ZEROCOPY=auto",
                                           "RING_TCP_ZEROCOPY=auto RING_TCP_SOCKETS=2 RING_TCP_RAILS=2"};
    const struct ri_transport *t = rig_transport("tcp");
    if (!t)
        cr_skip_test("no tcp in this build");
    for (size_t k = 0; k < 3; k++) {
        struct rig rig;
        rig_open(&rig, t, 1, settings[k]);
        cr_assert_eq(t->sockets(&rig.end[0].conf), k == 2 ? 4 : 1);
        for (uint32_t i = 0; i < 24; i++)
            for (int end = 0; end < 2; end++) {
                const size_t len = (size_t)(i % 5 + 1) * (RIG_SLOW ? 40000 : 150001);
                rig_send(&rig, end, 0, len, i);
                rig_recv(&rig, !end, 0, len, i, i % 4 ? 0 : 1);
            }
        rig_run(&rig);
        rig_expect_all(&rig, RING_OK);
        rig_close(&rig);
    }
}
