/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_flush - messages over the RDMA device of this machine into memory that has to be flushed, between two ends in one
 * process.
 *
 * There is no GPU: the memory is the host's, and a folder with the file of the peer-memory module has it registered
 * plainly.  What is tried is a kernel's and its library's part: a queue pair that is connected to itself, and reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "transports/verbs/ctx.h"

enum { MESSAGES = 8, BYTES = 300000 };
extern const struct ri_transport ri_transport_verbs;
static const struct ri_transport *const t = &ri_transport_verbs;

static unsigned char area[2][MESSAGES * BYTES];

static void require(bool good, const char *what)
{
    if (good)
        return;
    printf("%s: %s\n", what, ri_error_get());
    exit(1);
}

static ring_status_t copy(void *to, const void *from, size_t bytes)
{
    return ri_fail(RING_ERR_INTERNAL, "%zu bytes copied from %p to %p", bytes, from, to);
}

static bool find(const void *at, size_t bytes, struct ri_region *region_out)
{
    const unsigned char *from = at;
    for (uint64_t i = 0; i < 2; i++)
        if (from >= area[i] && from + bytes <= area[i] + sizeof area[i]) {
            *region_out = (struct ri_region){
                .begin = area[i], .bytes = sizeof area[i], .serial = i + 1, .copy = copy, .dmabuf = -1, .flush = true};
            return true;
        }
    return false;
}

static uint32_t version(void) { return 2; }
static const struct ri_memory memory = {.find = find, .version = version, .devices = true};

static const char *const parts[] = {"/sys", "/sys/module", "/sys/module/nvidia_peermem",
                                    "/sys/module/nvidia_peermem/version"};
enum { PARTS = sizeof parts / sizeof *parts };

static void make_root(char *root)
{
    char path[256];
    require(mkdtemp(root), "mkdtemp");
    for (int i = 0; i < PARTS; i++) { /* a folder does for the file */
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        require(!mkdir(path, 0700), path);
    }
}

static void remove_root(const char *root)
{
    char path[256];
    for (int i = PARTS - 1; i >= 0; i--) {
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        rmdir(path);
    }
    rmdir(root);
}

static struct ri_link *join(struct ri_conf *conf, const char *root, uint32_t self, int fd)
{
    static const char *const names[] = {"rank 0", "rank 1"};
    struct ri_tctx *ctx = calloc(1, t->ctx_size);
    struct ri_link *l = calloc(1, t->link_size);
    require(ctx && l, "no memory");
    *ctx = (struct ri_tctx){.transport = t, .conf = conf, .memory = &memory};
    require(t->open(ctx) == RING_OK, "open");
    ((struct verbs_ctx *)ctx)->memory.root = root;
    l->ctx = ctx;
    l->self = (struct ri_end){.rank = self, .name = names[self]};
    l->peer = (struct ri_end){.rank = 1 - self, .name = names[1 - self]};
    l->initiator = !self;
    require(t->connect(l, &fd, 1) == RING_OK, "connect");
    return l;
}

static void carry(struct ri_link *const l[2])
{
    static struct ri_xfer x[2][MESSAGES];
    for (size_t i = 0; i < sizeof area[0]; i++)
        area[0][i] = (unsigned char)(i * 2654435761u >> 13);
    for (int i = 0; i < MESSAGES; i++)
        for (int end = 0; end < 2; end++) {
            x[end][i] = (struct ri_xfer){.buf = area[end] + i * BYTES, .len = BYTES};
            (end ? t->recv : t->send)(l[end], &x[end][i]);
        }
    const uint64_t deadline = ri_deadline(30 * RI_SECOND);
    for (int back = 0; back < 2 * MESSAGES;) {
        require(ri_now() < deadline, "not all came back");
        for (int end = 0; end < 2; end++) {
            struct ri_queue done = {0};
            (void)t->progress(l[end]->ctx, &done);
            for (const struct ri_xfer *one = ri_queue_take(&done); one; one = ri_queue_take(&done), back++)
                require(one->status == RING_OK, "a message is lost");
        }
    }
    require(!memcmp(area[0], area[1], sizeof area[0]), "what came is not what was sent");
}

int main(void)
{
    struct ri_conf conf;
    char root[] = "/tmp/ring-XXXXXX";
    int fds[2];
    ri_conf_defaults(&conf);
    make_root(root);
    require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), "socketpair");
    struct ri_link *const l[2] = {join(&conf, root, 0, fds[0]), join(&conf, root, 1, fds[1])};
    carry(l);
    const struct verbs_rail *rail = ((const struct verbs_ctx *)l[1]->ctx)->rail;
    printf("%d messages, flushed on %s: %s\n", (int)MESSAGES, rail->name, rail->flush ? "yes" : "no");
    for (int end = 0; end < 2; end++) {
        struct ri_tctx *ctx = l[end]->ctx;
        t->disconnect(l[end]);
        t->close(ctx);
        free(ctx);
        free(l[end]);
    }
    remove_root(root);
    return 0;
}
