/* SPDX-License-Identifier: Apache-2.0 */
/* What comes over the socket of a verbs link: all that the link says itself, changed by the input (exclusive or).
 *
 * Unchanged, it is a peer that has the same devices and the same queue pair: the link comes up, and what it sends it
 * receives.  Changed, all that was posted comes back, what the link believes is in range, no device is asked for what
 * cannot be, and nothing is left. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "tests/verbs/provider.h"
#include "transports/verbs/ctx.h"

enum { BYTES = 100, ROUNDS = 60 };

extern const struct ri_transport ri_transport_verbs;
static const struct ri_transport *const verbs = &ri_transport_verbs;
static struct ri_conf conf;
static struct ri_tctx *ctx;

struct mirror {
    int fd;
    const uint8_t *mask;
    size_t len, at;
    bool changed;
};

static void open_devices(void)
{
    struct provider_world w;
    provider_control.reset(1);
    provider_control.get_world(&w);
    w.calm = w.still = true;
    provider_control.set_world(&w);
    ri_conf_defaults(&conf);
    conf.log = RI_LOG_ERROR;
    ri_log_set_level(RI_LOG_ERROR);
    snprintf(conf.ib_library, sizeof conf.ib_library, "%s", VERBS_LIBRARY);
    ctx = ri_new_aligned(64, verbs->ctx_size);
    HOLDS(ctx != NULL);
    ctx->transport = verbs;
    ctx->conf = &conf;
    HOLDS(verbs->open(ctx) == RING_OK);
}

static void close_devices(void)
{
    verbs->close(ctx);
    ri_free(ctx);
    ctx = NULL;
}

static void reflect(struct mirror *m)
{
    uint8_t bytes[VERBS_GREETING];
    const ssize_t n = recv(m->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    for (ssize_t i = 0; i < n; i++, m->at++) {
        const uint8_t x = m->at < m->len ? m->mask[m->at] : 0;
        bytes[i] ^= x;
        m->changed |= x != 0;
    }
    if (n > 0)
        (void)!send(m->fd, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static unsigned step(void)
{
    struct ri_queue done = {0};
    unsigned back = 0;
    verbs->disarm(ctx);
    verbs->progress(ctx, &done);
    for (struct ri_xfer *x; (x = ri_queue_take(&done)); back++)
        HOLDS(x->status == RING_OK || x->status == RING_ERR_PEER_LOST);
    return back;
}

static void look_at(const struct verbs_link *l)
{
    HOLDS(l->stage <= VERBS_UP);
    if (l->stage == VERBS_HELLO || l->broken)
        return;
    HOLDS(l->rails >= 1 && l->rails <= VERBS_RAILS && l->lanes >= l->rails && l->lanes <= VERBS_LANES);
    HOLDS(l->eager_most >= VERBS_REQUEST && l->eager_most <= VERBS_EAGER);
    HOLDS(l->most >= l->eager_most && l->moving <= l->lost_rails && l->lost_rails < l->rails);
    HOLDS(l->eager_heard - l->eager_taken <= VERBS_EAGERS && l->grants_heard - l->grants_used <= VERBS_GRANTS);
}

static void ask_devices(void)
{
    char text[512] = "";
    struct provider_counters n;
    provider_control.counters(&n);
    HOLDS(!n.qps && !n.mrs);
    if (!provider_control.violations(text, sizeof text))
        return;
    HOLDS(!strncmp(text, "remote access", 13)); /* a key or an address is for the other device to judge */
    close_devices();
    open_devices();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    unsigned char sent[BYTES], received[BYTES] = {0};
    struct ri_xfer out = {.buf = sent, .len = BYTES}, in = {.buf = received, .len = BYTES};
    unsigned back = 0;
    int fds[2];
    if (!ctx)
        open_devices();
    struct verbs_link *l = ri_new_aligned(64, verbs->link_size);
    HOLDS(l && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
    memset(sent, 0x5a, sizeof sent);
    l->base.ctx = ctx;
    l->base.self.name = l->base.peer.name = "rank 0 (fuzz)";
    HOLDS(verbs->connect(&l->base, fds, 1) == RING_OK);
    verbs->send(&l->base, &out);
    verbs->recv(&l->base, &in);
    struct mirror m = {.fd = fds[1], .mask = bytes, .len = len};
    for (int i = 0; i < ROUNDS && back < 2; i++) {
        back += step();
        reflect(&m);
        look_at(l);
    }
    HOLDS(m.changed || (back == 2 && l->stage == VERBS_UP && !memcmp(sent, received, BYTES)));
    close(fds[1]);
    for (const uint64_t end = ri_deadline(3 * RI_SECOND); back < 2 && ri_now() < end;)
        back += step();
    HOLDS(back == 2 && (in.status != RING_OK || m.changed || !memcmp(sent, received, BYTES)));
    verbs->disconnect(&l->base);
    ri_free(l);
    ask_devices();
    return 0;
}
