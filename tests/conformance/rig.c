/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#ifdef VERBS_LIBRARY
#include "tests/verbs/provider.h"
#endif

enum { GUARD_BYTE = 0xa5, RUN_SECONDS = 20 };

/* ---- making the two ends --------------------------------------------------------------------------------------- */

static void set(struct ri_conf *conf, const char *settings)
{
    char text[256];
    snprintf(text, sizeof text, "%s", settings);
    char *rest;
    for (char *one = strtok_r(text, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        cr_assert_not_null(value, "%s", one);
        *value++ = 0;
        size_t i = 0;
        while (i < ri_conf_row_count && strcmp(ri_conf_rows[i].variable, one))
            i++;
        cr_assert_lt(i, ri_conf_row_count, "no setting %s", one);
        cr_assert_eq(ri_conf_set(conf, &ri_conf_rows[i], value), RING_OK, "%s", ri_error_get());
    }
}

/* Of verbs: a library without hardware, which keeps what was asked of it that no device need forgive; or the one that
 * RING_IB_LIBRARY names, which keeps nothing. */
static bool own_library(const struct ri_transport *t)
{
    return t && !strcmp(t->name, "verbs") && !getenv("RING_IB_LIBRARY");
}
#ifdef VERBS_LIBRARY
static const struct provider_control *provider(void)
{
    static const struct provider_control *found;
    if (!found) {
        void *library = dlopen(VERBS_LIBRARY, RTLD_NOW | RTLD_NODELETE);
        cr_assert_not_null(library, "%s", dlerror());
        found = dlsym(library, "provider_control");
    }
    return found;
}
static void use_provider(struct ri_conf *conf)
{
    (void)provider();
    snprintf(conf->ib_library, sizeof conf->ib_library, "%s", VERBS_LIBRARY);
}
static void ask_provider(void)
{
    char text[512] = "";
    struct provider_counters n;
    provider()->counters(&n);
    cr_assert_eq(provider()->violations(text, sizeof text), 0, "%s", text);
    cr_assert_eq(n.rnr, 0, "%llu messages found no receive request", (unsigned long long)n.rnr);
    cr_assert_eq(n.qps + n.mrs + n.cqs + n.pds + n.channels + n.contexts, 0, "not all is given back");
}
#else
static void use_provider(struct ri_conf *conf) { (void)conf; }
static void ask_provider(void) {}
#endif

static void choose_library(const struct ri_transport *t, struct ri_conf *conf)
{
    const char *named = getenv("RING_IB_LIBRARY");
    if (own_library(t))
        use_provider(conf);
    else if (named)
        snprintf(conf->ib_library, sizeof conf->ib_library, "%s", named);
}

void rig_open_ends(struct rig *rig, const struct ri_transport *t, const char *settings)
{
    *rig = (struct rig){0};
    for (int i = 0; i < 2; i++) {
        struct rig_end *e = &rig->end[i];
        e->t = t;
        ri_conf_defaults(&e->conf);
        snprintf(e->conf.transport, sizeof e->conf.transport, "%s", t->name);
        choose_library(t, &e->conf);
        set(&e->conf, settings);
        e->ctx = ri_new(1, t->ctx_size);
        e->ctx->transport = t;
        e->ctx->conf = &e->conf;
        cr_assert_eq(t->open(e->ctx), RING_OK, "%s", ri_error_get());
    }
}

static void tcp_pair(int fds[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    const int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(l >= 0 && !bind(l, (struct sockaddr *)&a, sizeof a) && !listen(l, 1));
    cr_assert(!getsockname(l, (struct sockaddr *)&a, &len));
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!connect(fds[0], (struct sockaddr *)&a, sizeof a));
    fds[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    cr_assert(fds[1] >= 0 && !fcntl(fds[0], F_SETFL, O_NONBLOCK));
    close(l);
}

uint32_t rig_sockets(const struct rig *rig, int mine[16], int theirs[16])
{
    const struct ri_transport *t = rig->end[0].t;
    const uint32_t n = t->rendezvous == RI_RENDEZVOUS_NONE ? 0 : t->sockets(&rig->end[0].conf);
    cr_assert_leq(n, 16);
    for (uint32_t i = 0; i < n; i++) {
        int fds[2];
        if (t->rendezvous == RI_RENDEZVOUS_TCP)
            tcp_pair(fds);
        else
            cr_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
        mine[i] = fds[0];
        theirs[i] = fds[1];
    }
    return n;
}

ring_status_t rig_connect(struct rig *rig, int end, const int *fds, uint32_t count)
{
    static const char *const names[] = {"rank 0 (rig)", "rank 1 (rig)"};
    struct rig_end *e = &rig->end[end];
    const uint32_t self = (uint32_t)end, peer = 1 - self;
    struct ri_link *l = ri_new(1, e->t->link_size);
    cr_assert_not_null(l);
    e->link[e->links++] = l;
    l->ctx = e->ctx;
    l->self = (struct ri_end){.rank = self, .node = 0, .name = names[self]};
    l->peer = (struct ri_end){.rank = peer, .node = 0, .name = names[peer]};
    l->initiator = end == 0;
    return e->t->connect(l, fds, count);
}

void rig_open(struct rig *rig, const struct ri_transport *t, uint32_t links, const char *settings)
{
    rig_open_ends(rig, t, settings);
    for (uint32_t i = 0; i < links; i++) {
        int mine[16], theirs[16];
        const uint32_t n = rig_sockets(rig, mine, theirs);
        cr_assert_eq(rig_connect(rig, 0, mine, n), RING_OK, "%s", ri_error_get());
        cr_assert_eq(rig_connect(rig, 1, theirs, n), RING_OK, "%s", ri_error_get());
    }
}

void rig_disconnect(struct rig *rig, int end, uint32_t link)
{
    struct rig_end *e = &rig->end[end];
    if (e->link[link])
        e->t->disconnect(e->link[link]);
    ri_free(e->link[link]);
    e->link[link] = NULL;
}

void rig_close(struct rig *rig)
{
    const struct ri_transport *t = rig->end[0].t;
    for (int i = 0; i < 2; i++) {
        struct rig_end *e = &rig->end[i];
        for (uint32_t k = 0; k < e->links; k++)
            rig_disconnect(rig, i, k);
        if (e->ctx)
            e->t->close(e->ctx);
        ri_free(e->ctx);
        for (struct job *j = e->jobs, *next; j; j = next) {
            next = j->next;
            free(j->memory);
            free(j);
        }
        *e = (struct rig_end){0};
    }
    if (own_library(t))
        ask_provider();
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static unsigned char content(uint32_t salt, size_t i)
{
    return (unsigned char)((((uint32_t)i + salt * 977u) * 2654435761u) >> 17);
}

__attribute__((format(printf, 2, 3))) static void problem(struct rig_end *e, const char *format, ...)
{
    if (e->problem[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(e->problem, sizeof e->problem, format, args);
    va_end(args);
}

static struct job *job(struct rig *rig, int end, uint32_t link, bool sends, size_t len, uint32_t salt)
{
    struct rig_end *e = &rig->end[end];
    struct job *j = calloc(1, sizeof *j);
    j->memory = malloc(len + 2 * RIG_GUARD);
    memset(j->memory, GUARD_BYTE, RIG_GUARD);
    memset(j->memory + RIG_GUARD, 0, len);
    memset(j->memory + RIG_GUARD + len, GUARD_BYTE, RIG_GUARD);
    j->x.len = len;
    j->sends = sends;
    j->link = link;
    j->salt = salt;
    j->order = e->posted[link][sends]++;
    j->end = e;
    j->next = e->jobs;
    e->jobs = j;
    e->out++;
    return j;
}

struct job *rig_send(struct rig *rig, int end, uint32_t link, size_t len, uint32_t salt)
{
    struct job *j = job(rig, end, link, true, len, salt);
    j->x.buf = j->memory + RIG_GUARD;
    for (size_t i = 0; i < len; i++)
        j->memory[RIG_GUARD + i] = content(salt, i);
    j->end->t->send(j->end->link[link], &j->x);
    return j;
}

static void sink(struct ri_xfer *x, size_t offset, const void *bytes, size_t len)
{
    struct job *j = (struct job *)x;
    if (offset != j->sunk || !len || len > x->len - offset)
        problem(j->end, "sink got %zu bytes at %zu, expected %zu", len, offset, j->sunk);
    else if (len % x->unit || (uintptr_t)bytes % x->unit)
        problem(j->end, "sink of unit %u got %zu bytes at %p", x->unit, len, bytes);
    else
        memcpy(j->memory + RIG_GUARD + offset, bytes, len);
    j->sunk += len;
}

struct job *rig_recv(struct rig *rig, int end, uint32_t link, size_t len, uint32_t salt, uint32_t unit)
{
    struct job *j = job(rig, end, link, false, len, salt);
    j->unit = unit;
    if (unit) {
        j->x.sink = sink;
        j->x.unit = unit;
    } else {
        j->x.buf = j->memory + RIG_GUARD;
    }
    j->end->t->recv(j->end->link[link], &j->x);
    return j;
}

/* ---- progress -------------------------------------------------------------------------------------------------- */

static void take_back(struct rig_end *e, struct job *j)
{
    if (j->end != e || j->back)
        problem(e, "a job came back twice or at the wrong end");
    if (j->order != e->returned[j->link][j->sends]++)
        problem(e, "link %u: %s %llu came back out of order", j->link, j->sends ? "send" : "receive",
                (unsigned long long)j->order);
    j->back = true;
    e->out--;
}

unsigned rig_step(struct rig_end *e)
{
    struct ri_queue done = {0};
    const unsigned moved = e->t->progress(e->ctx, &done);
    if (done.head && !moved)
        problem(e, "progress() returned jobs and said that nothing moved");
    while (done.head)
        take_back(e, (struct job *)ri_queue_take(&done));
    return moved;
}

void rig_run(struct rig *rig)
{
    const uint64_t deadline = ri_deadline(RUN_SECONDS * RI_SECOND);
    while ((rig->end[0].out || rig->end[1].out) && ri_now() < deadline)
        for (int i = 0; i < 2; i++)
            rig_step(&rig->end[i]);
    for (int i = 0; i < 2; i++) {
        cr_assert_str_empty(rig->end[i].problem, "end %d: %s", i, rig->end[i].problem);
        cr_assert_eq(rig->end[i].out, 0, "end %d: %llu jobs did not come back", i, (unsigned long long)rig->end[i].out);
    }
}

static void sleep_once(struct rig_end *e, uint64_t deadline)
{
    if (!e->t->arm(e->ctx))
        return;
    struct pollfd p = {.fd = e->t->wait_fd(e->ctx), .events = POLLIN};
    const int n = poll(&p, 1, 5000);
    e->t->disarm(e->ctx);
    if (!n && ri_now() < deadline)
        problem(e, "not woken in 5 s");
}

void rig_run_end(struct rig_end *e, bool sleep)
{
    const uint64_t deadline = ri_deadline(RUN_SECONDS * RI_SECOND);
    while (e->out && !e->problem[0]) {
        if (rig_step(e))
            continue;
        if (sleep)
            sleep_once(e, deadline);
        if (ri_now() >= deadline)
            problem(e, "%llu jobs did not come back", (unsigned long long)e->out);
    }
}

/* ---- judging --------------------------------------------------------------------------------------------------- */

static bool guarded(const struct job *j)
{
    for (size_t i = 0; i < RIG_GUARD; i++)
        if (j->memory[i] != GUARD_BYTE || j->memory[RIG_GUARD + j->x.len + i] != GUARD_BYTE)
            return false;
    return true;
}

void rig_expect(const struct job *j, ring_status_t status)
{
    cr_assert(j->back);
    cr_assert_eq(j->x.status, status, "%s %llu of %zu bytes: %s", j->sends ? "send" : "receive",
                 (unsigned long long)j->order, j->x.len, ring_status_str(j->x.status));
    cr_assert(guarded(j), "written outside a buffer of %zu bytes", j->x.len);
    for (size_t i = 0; i < j->x.len && !status; i++)
        if (j->memory[RIG_GUARD + i] != content(j->salt, i))
            cr_assert(0, "%s %llu: byte %zu of %zu is wrong", j->sends ? "send" : "receive",
                      (unsigned long long)j->order, i, j->x.len);
}

void rig_expect_all(struct rig *rig, ring_status_t status)
{
    for (int i = 0; i < 2; i++)
        for (const struct job *j = rig->end[i].jobs; j; j = j->next)
            rig_expect(j, status);
}

uint64_t rig_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

bool rig_repeats(const struct ri_transport *t) { return strcmp(t->name, "verbs") != 0; }

const struct ri_transport *rig_transport(const char *name)
{
#ifdef WITH_LOOP
    if (!strcmp(name, "loop"))
        return &ri_transport_loop;
#endif
    for (size_t i = 0; ri_transports[i]; i++)
        if (!strcmp(ri_transports[i]->name, name))
            return ri_transports[i];
    return NULL;
}

unsigned rig_descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    cr_assert_not_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
