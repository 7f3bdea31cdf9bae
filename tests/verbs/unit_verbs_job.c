/* SPDX-License-Identifier: Apache-2.0 */
/* Whole communicators over devices that fail in the middle, or never were of use: every rank ends soon, all hear the
 * same, and it says which device, port and peer it is about.
 *
 * Most of the time nobody does anything but wait for a better explanation, so a case is a process of its own and
 * several run at once (CRITERION_JOBS). */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/comm/comm.h"
#include "tests/unit/ranks.h"
#include "tests/unit/slower.h"
#include "tests/verbs/calls.h"
#include "tests/verbs/provider.h"

/* ThreadSanitizer's runner takes one case after the other, and so some of them only. */
enum { SOON_MS = SLOWER > 1 ? 4000 : 2000, LONGEST = 60000, ROUNDS = 30, FEW = SLOWER > 2 };

/* ---- jobs ------------------------------------------------------------------------------------------------------ */

struct end { /* of a rank's work */
    ring_status_t status;
    char text[512], transport[64];
    uint64_t when;
};

static struct scene {
    const char *transport, *hca[MAX_RANKS], *library[MAX_RANKS]; /* NULL: all devices, the library without hardware */
    bool hosts;                                                  /* each rank is on one of its own */
    void (*strike)(void);
    uint32_t gone; /* a rank that goes away in the middle; RI_NONE: none does */
    void (*go)(struct ring_comm *c);
    _Atomic uint32_t rounds, ended;
    uint64_t when;
    struct end end[MAX_RANKS];
} scene;

static void set_up(uint32_t rank, struct ri_conf *conf)
{
    const char *library = scene.library[rank] ? scene.library[rank] : VERBS_LIBRARY;
    snprintf(conf->transport, sizeof conf->transport, "%s", scene.transport ? scene.transport : "verbs");
    snprintf(conf->ib_library, sizeof conf->ib_library, "%s", library);
    snprintf(conf->ib_hca, sizeof conf->ib_hca, "%s", scene.hca[rank] ? scene.hca[rank] : "auto");
    if (scene.hosts)
        snprintf(conf->host_id, sizeof conf->host_id, "host %u", rank);
    conf->node = RI_NODE_OFF;
    conf->timeout = conf->op_timeout = 10 * RI_SECOND; /* more than anybody is to wait for */
}

static ring_status_t one_call(struct rank *r, uint32_t i, int32_t *src, int32_t *dst)
{
    static const size_t counts[] = {1, 50, 2500, LONGEST};
    const size_t count = counts[i / 2 % 4];
    const uint32_t n = r->job->size;
    const ring_status_t status = i % 2 ? ring_all_gather(r->comm, src, dst, count, RING_INT32)
                                       : ring_all_reduce(r->comm, src, dst, count, RING_INT32, RING_SUM);
    for (size_t k = 0; k < count && !status; k += count - (count > 1))
        cr_assert_eq(dst[k], i % 2 ? (int32_t)k : (int32_t)(n * (n - 1) / 2 + n * k), "call %u, element %zu", i, k);
    return status;
}

static void keep(struct rank *r, ring_status_t status)
{
    struct end *e = &scene.end[r->rank];
    *e = (struct end){.status = status, .when = ri_now()};
    snprintf(e->text, sizeof e->text, "%s", ring_last_error());
}

static void go_away(struct rank *r)
{
    scene.when = ri_now();
    scene.go(r->comm);
    while (atomic_load(&scene.ended) < r->job->size - 1)
        nap_ms(5);
    keep(r, RING_OK);
}

static void work_to_the_end(struct rank *r)
{
    const uint32_t n = r->job->size;
    int32_t *src = malloc(LONGEST * 4), *dst = malloc(n * LONGEST * 4);
    ring_status_t status = RING_OK;
    for (size_t k = 0; k < LONGEST; k++)
        src[k] = (int32_t)(k + r->rank);
    for (uint32_t i = 0; !status; i++) {
        if (r->rank == scene.gone && i == ROUNDS / 2) {
            go_away(r);
            break;
        }
        status = one_call(r, i, src, dst);
        atomic_fetch_add(&scene.rounds, 1);
    }
    if (status) {
        keep(r, status);
        atomic_fetch_add(&scene.ended, 1);
    }
    free(src);
    free(dst);
}

static void work_a_little(struct rank *r)
{
    ring_choice_t choice;
    int32_t *src = malloc(LONGEST * 4), *dst = malloc(r->job->size * LONGEST * 4);
    ring_status_t status = RING_OK;
    for (size_t k = 0; k < LONGEST; k++)
        src[k] = (int32_t)(k + r->rank);
    for (uint32_t i = 0; i < 8 && !status; i++)
        status = one_call(r, i, src, dst);
    keep(r, status);
    if (!ring_comm_choice(r->comm, RING_ALL_REDUCE, 1, RING_INT32, RING_SUM, &choice))
        snprintf(scene.end[r->rank].transport, sizeof scene.end[r->rank].transport, "%s", choice.transport);
    free(src);
    free(dst);
}

static void *striker(void *unused)
{
    (void)unused;
    const uint64_t deadline = ri_deadline(20 * RI_SECOND);
    while (atomic_load(&scene.rounds) < ROUNDS && ri_now() < deadline)
        usleep(200);
    scene.when = ri_now();
    scene.strike();
    return NULL;
}

static void run(struct job *j)
{
    pthread_t thread;
    if (scene.strike)
        cr_assert_eq(pthread_create(&thread, NULL, striker, NULL), 0);
    j->present = j->size;
    j->settings = set_up;
    run_job(j);
    if (scene.strike)
        pthread_join(thread, NULL);
    for (uint32_t i = 0; i < j->size; i++)
        if (j->rank[i].status) {
            scene.end[i].status = j->rank[i].status;
            snprintf(scene.end[i].text, sizeof scene.end[i].text, "%s", j->rank[i].text);
        }
}

static void open_world(uint64_t seed, int devices)
{
    struct provider_world w;
    cr_assert_eq(provider_control.reset(seed), 0);
    provider_control.get_world(&w);
    w.devices = devices;
    provider_control.set_world(&w);
    scene.gone = RI_NONE;
}

static void expect_clean(void)
{
    char text[512] = "";
    struct provider_counters n;
    cr_assert_eq(provider_control.violations(text, sizeof text), 0, "%s", text);
    provider_control.counters(&n);
    cr_assert_eq(n.devices + n.contexts + n.pds + n.mrs + n.channels + n.cqs + n.qps, 0, "not all is given back");
}

/* All ranks but the one that went away have this status, soon, and one text. */
static const char *expect_one_end(const struct job *j, ring_status_t status)
{
    const struct end *first = &scene.end[scene.gone == 0];
    for (uint32_t i = 0; i < j->size; i++) {
        const struct end *e = &scene.end[i];
        if (i == scene.gone)
            continue;
        cr_assert_eq(e->status, status, "rank %u: status %d: %s", i, (int)e->status, e->text);
        cr_assert_str_eq(e->text, first->text, "rank %u hears: %s; another: %s (%.3f s later)", i, e->text, first->text,
                         ((double)first->when - (double)e->when) / RI_SECOND);
        cr_assert(!e->when || e->when < scene.when + SOON_MS * RI_MILLISECOND, "rank %u took %.3f s", i,
                  (double)(e->when - scene.when) / RI_SECOND);
    }
    return first->text;
}

/* ---- in the middle --------------------------------------------------------------------------------------------- */

static int devices(void)
{
    struct provider_world w;
    provider_control.get_world(&w);
    return w.devices;
}

static void ports_down(void)
{
    for (int d = 0; d < devices(); d++)
        provider_control.set_port(d, IBV_PORT_DOWN);
}

static void all(enum ibv_event_type event)
{
    for (int d = 0; d < devices(); d++)
        provider_control.raise(d, event);
}

static void devices_fatal(void) { all(IBV_EVENT_DEVICE_FATAL); }
static void pairs_fatal(void) { all(IBV_EVENT_QP_FATAL); }
static void pairs_asked_wrongly(void) { all(IBV_EVENT_QP_REQ_ERR); }
static void pairs_accessed_wrongly(void) { all(IBV_EVENT_QP_ACCESS_ERR); }

static void silence(void)
{
    for (int d = 0; d < devices(); d++)
        provider_control.silence(d, 0, true);
}

static void posts_refused(void) { provider_control.fail_call("ibv_post_send", 3, 0, EIO); }
static void receives_refused(void) { provider_control.fail_call("ibv_post_recv", 3, 0, ENOMEM); }
static void polls_fail(void) { provider_control.fail_call("ibv_poll_cq", 1, 0, EIO); }

/* said: one of these, with bars between.  What one end did, the other sees as silence. */
static const struct trouble {
    const char *name;
    void (*strike)(void);
    const char *said;
} troubles[] = {
    {"ports go down", ports_down, "port error|transport retry counter exceeded"},
    {"devices fail", devices_fatal, "local catastrophic error"},
    {"silence", silence, "transport retry counter exceeded"},
    {"queue pairs fail", pairs_fatal, "local work queue catastrophic error"},
    {"queue pairs are asked for nonsense", pairs_asked_wrongly, "invalid request local work queue error"},
    {"queue pairs are accessed wrongly", pairs_accessed_wrongly, "local access violation work queue error"},
    {"requests are refused", posts_refused, "a request was refused: Input/output error"},
    {"receive requests are refused", receives_refused, "a receive request was refused: Cannot allocate memory"},
    {"completion queues cannot be read", polls_fail, "its completion queue cannot be read"},
};
enum { TROUBLES = sizeof troubles / sizeof *troubles };

static bool says_one_of(const char *text, const char *said)
{
    char words[256], *rest, *word;
    snprintf(words, sizeof words, "%s", said);
    for (word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        if (strstr(text, word))
            return true;
    return false;
}

/* "rank 0 (host:pid) lost its connection to rank 1 (host:pid): test0 port 1: ..." */
static void expect_named(const char *text, const char *said)
{
    const char *lost = strstr(text, " lost its connection to rank "), *device = strstr(text, ": test");
    cr_assert(!strncmp(text, "rank ", 5) && lost && device && device > lost && strstr(device, " port 1: "), "%s", text);
    cr_assert(says_one_of(device, said), "\"%s\" is to say %s", text, said);
}

static void one_trouble(const struct trouble *t, uint64_t seed, uint32_t ranks, int world)
{
    struct job j = {.size = ranks, .body = work_to_the_end};
    fprintf(stderr, "%s: %u ranks, %d devices, seed %llu\n", t->name, ranks, world, (unsigned long long)seed);
    open_world(seed, world);
    scene.strike = t->strike;
    scene.hosts = seed % 2;
    run(&j);
    expect_named(expect_one_end(&j, RING_ERR_PEER_LOST), t->said);
    expect_clean();
}

static struct criterion_test_params numbers(size_t n)
{
    static int all_numbers[64];
    for (int i = 0; i < 64; i++)
        all_numbers[i] = i;
    return cr_make_param_array(int, all_numbers, n);
}

ParameterizedTestParameters(verbs_job, trouble_ends_all_ranks) { return numbers(FEW ? 2 : TROUBLES); }

ParameterizedTest(int *i, verbs_job, trouble_ends_all_ranks, .timeout = 60)
{
    one_trouble(&troubles[*i], (uint64_t)*i + 1, 2 + (uint32_t)*i % 3, 1 + *i % 2);
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

static const enum ibv_wc_status statuses[] = {IBV_WC_LOC_LEN_ERR,      IBV_WC_LOC_QP_OP_ERR,   IBV_WC_LOC_PROT_ERR,
                                              IBV_WC_WR_FLUSH_ERR,     IBV_WC_MW_BIND_ERR,     IBV_WC_BAD_RESP_ERR,
                                              IBV_WC_LOC_ACCESS_ERR,   IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,
                                              IBV_WC_REM_OP_ERR,       IBV_WC_RETRY_EXC_ERR,   IBV_WC_RNR_RETRY_EXC_ERR,
                                              IBV_WC_REM_ABORT_ERR,    IBV_WC_INV_EECN_ERR,    IBV_WC_FATAL_ERR,
                                              IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_GENERAL_ERR};
enum { STATUSES = sizeof statuses / sizeof *statuses };

static enum ibv_wc_status spoilt;
static void spoil(void) { provider_control.fail_completion(5, spoilt); }

ParameterizedTestParameters(verbs_job, a_failed_completion_ends_all_ranks) { return numbers(FEW ? 1 : STATUSES); }

/* A receive that failed is an operation that failed, or was not to be asked for, to the sender; and the other end of a
 * queue pair that failed gets no answer. */
ParameterizedTest(int *i, verbs_job, a_failed_completion_ends_all_ranks, .timeout = 60)
{
    char said[256];
    spoilt = statuses[*i];
    snprintf(said, sizeof said, "%s|%s|%s|%s", ibv_wc_status_str(spoilt), ibv_wc_status_str(IBV_WC_REM_OP_ERR),
             ibv_wc_status_str(IBV_WC_REM_INV_REQ_ERR), ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
    const struct trouble t = {ibv_wc_status_str(spoilt), spoil, said};
    one_trouble(&t, (uint64_t)*i + 1, 2 + (uint32_t)*i % 2, 1);
}

/* ---- ranks that go --------------------------------------------------------------------------------------------- */

static void hang_up(struct ring_comm *c) { ri_wires_hang_up(c); }

/* As its end would. */
static void end_control(struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->channels; i++)
        shutdown(c->channel[i].watch.fd, SHUT_WR);
}

static void a_rank_goes(void (*go)(struct ring_comm *c), uint32_t ranks, bool hosts, const char *said)
{
    struct job j = {.size = ranks, .body = work_to_the_end};
    open_world(ranks, 2);
    scene.gone = ranks - 1;
    scene.go = go;
    scene.hosts = hosts;
    run(&j);
    const char *text = expect_one_end(&j, RING_ERR_PEER_LOST);
    cr_assert(strstr(text, said), "%s", text);
    expect_clean();
}

Test(verbs_job, a_rank_that_closes_its_links, .timeout = 60)
{
    a_rank_goes(hang_up, 3, false, "lost its connection to rank 2 (");
}

Test(verbs_job, a_rank_of_another_host_that_closes_its_links, .timeout = 60)
{
    a_rank_goes(hang_up, 2, true, "lost its connection to rank 1 (");
}

Test(verbs_job, a_rank_whose_control_connection_ends, .timeout = 60)
{
    a_rank_goes(end_control, 3, true, ") was lost: its connection was closed");
}

/* ---- calls that fail while a communicator is made --------------------------------------------------------------- */

/* It works for all, or for none, and these say one thing: but if it fails for two hosts at once, each may say so. */
static void one_failing_call(const struct provider_call *c, unsigned nth, unsigned times)
{
    struct job j = {.size = 2, .body = work_a_little};
    scene = (struct scene){.hosts = nth % 2 && times == 1};
    open_world(nth, 2);
    cr_assert(provider_control.fail_call(c->name, nth, times, nth % 2 ? ENOMEM : EIO), "%s", c->name);
    const uint64_t begun = ri_now();
    run(&j);
    const double took = (double)(ri_now() - begun) / RI_SECOND;
    const struct end *e = scene.end;
    fprintf(stderr, "%s, call %u and %u: %.3f s: %s\n", c->name, nth, times, took, e->text);
    cr_assert_lt(took, SOON_MS / 1e3, "%s, call %u and %u: %s", c->name, nth, times, e->text);
    cr_assert_eq(e[0].status, e[1].status, "%s, call %u and %u: %s, and %s", c->name, nth, times, e[0].text, e[1].text);
    cr_assert(!e[0].status || !strcmp(e[0].text, e[1].text), "%s, call %u and %u: %s, and %s", c->name, nth, times,
              e[0].text, e[1].text);
    if (c->gives)
        (void)provider_control.reset(1);
    expect_clean();
}

ParameterizedTestParameters(verbs_job, any_call_may_fail) { return numbers(FEW ? 2 : PROVIDER_CALLS); }

ParameterizedTest(int *i, verbs_job, any_call_may_fail, .timeout = 120)
{
    static const unsigned nths[] = {1, 2, 5, 12};
    const struct provider_call *c = &provider_calls[FEW ? 7 * *i + 4 : *i];
    for (size_t n = 0; n < (SLOWER > 1 ? 2 : sizeof nths / sizeof *nths); n++)
        one_failing_call(c, nths[n], (unsigned)n % 2);
}

/* ---- devices that differ --------------------------------------------------------------------------------------- */

static void second_is_infiniband(struct provider_world *w)
{
    static const uint8_t raw[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 0, 0, 0, 0, 1};
    w->device[1].infiniband = true;
    w->device[1].gids = 1;
    w->device[1].gid[0] = (struct provider_gid){.index = 0, .type = IBV_GID_TYPE_IB};
    memcpy(w->device[1].gid[0].gid.raw, raw, sizeof raw);
}
static void second_is_forbidden(struct provider_world *w) { w->device[1].open_error = EACCES; }
static void second_is_down(struct provider_world *w) { w->device[1].state = IBV_PORT_DOWN; }
static void second_locks_little(struct provider_world *w) { w->device[1].locked_memory = 64 << 10; }
static void all_are_down(struct provider_world *w)
{
    for (int d = 0; d < w->devices; d++)
        w->device[d].state = IBV_PORT_DOWN;
}

static void change_world(void (*change)(struct provider_world *w))
{
    struct provider_world w;
    provider_control.get_world(&w);
    if (change)
        change(&w);
    provider_control.set_world(&w);
}

Test(verbs_job, ranks_that_see_different_devices_agree, .timeout = 60)
{
    struct job j = {.size = 4, .body = work_a_little};
    open_world(1, 3);
    scene.hca[0] = "=test0";
    scene.hca[1] = "=test1";
    scene.hca[2] = "test2,test1";
    run(&j);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(scene.end[i].status, RING_OK, "rank %u: %s", i, scene.end[i].text);
        cr_assert_str_eq(scene.end[i].transport, "verbs");
    }
    expect_clean();
}

Test(verbs_job, ranks_whose_devices_cannot_be_joined_say_so, .timeout = 60)
{
    struct job j = {.size = 3, .body = work_a_little};
    open_world(2, 2);
    change_world(second_is_infiniband);
    scene.hca[0] = scene.hca[2] = "=test0";
    scene.hca[1] = "=test1";
    scene.hosts = true;
    const uint64_t begun = ri_now();
    run(&j);
    cr_assert_lt(ri_now() - begun, SOON_MS * RI_MILLISECOND);
    const char *text = expect_one_end(&j, RING_ERR_PEER_LOST);
    cr_assert(strstr(text, "RoCE") && strstr(text, "InfiniBand"), "%s", text);
    expect_clean();
}

/* ---- auto, and who insists -------------------------------------------------------------------------------------- */

static const char nowhere[] = "libibverbs_that_is_not_there.so";

/* hca: NULL: a device each.  lines: how many people see at the usual level. */
static const struct lack {
    const char *name, *library[2], *hca[2];
    void (*world)(struct provider_world *w);
    unsigned lines;
    const char *said;
} lacks[] = {
    {"none has devices", {nowhere, nowhere}, {NULL, NULL}, NULL, 0, nowhere},
    {"one has no devices", {NULL, nowhere}, {NULL, NULL}, NULL, 1, nowhere},
    {"left out by the settings", {NULL, NULL}, {"^test", "^test"}, NULL, 0, "excluded by RING_IB_HCA"},
    {"named, and not there", {NULL, NULL}, {"nonsense", "nonsense"}, NULL, 1, "excluded by RING_IB_HCA"},
    {"a wrong setting", {NULL, NULL}, {NULL, "test1:x"}, NULL, 1, "RING_IB_HCA"},
    {"no permission", {NULL, NULL}, {NULL, NULL}, second_is_forbidden, 1, "test1: permission denied: /dev/infiniband/"},
    {"too little locked memory",
     {NULL, NULL},
     {NULL, NULL},
     second_locks_little,
     1,
     "limited to 65536 bytes (ulimit -l)"},
    {"a port is down", {NULL, NULL}, {NULL, NULL}, second_is_down, 1, "test1:1: the port is down"},
    {"all ports are down",
     {NULL, NULL},
     {NULL, NULL},
     all_are_down,
     1,
     "test0:1: the port is down|test1:1: the port is down"},
};
enum { LACKS = sizeof lacks / sizeof *lacks };

static void set_lack(const struct lack *l, const char *transport)
{
    const struct rlimit little = {64 << 10, 64 << 10};
    scene = (struct scene){.transport = transport, .hosts = true};
    open_world(3, 2);
    change_world(l->world);
    scene.hca[0] = l->hca[0] ? l->hca[0] : "=test0";
    scene.hca[1] = l->hca[1] ? l->hca[1] : "=test1";
    memcpy(scene.library, l->library, sizeof l->library);
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &little), 0);
}

/* What people see meanwhile goes to a file. */
static void run_listening(struct job *j, char *text_out, size_t cap)
{
    const int file = memfd_create("log", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
    cr_assert(file >= 0 && kept >= 0);
    fflush(stderr);
    dup2(file, STDERR_FILENO);
    run(j);
    dup2(kept, STDERR_FILENO);
    close(kept);
    const ssize_t n = pread(file, text_out, cap - 1, 0);
    text_out[n > 0 ? n : 0] = '\0';
    close(file);
}

static unsigned lines_of(const char *text)
{
    unsigned n = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

ParameterizedTestParameters(verbs_job, auto_goes_without_and_says_why) { return numbers(FEW ? 2 : LACKS); }

ParameterizedTest(int *i, verbs_job, auto_goes_without_and_says_why, .timeout = 60)
{
    const struct lack *l = &lacks[*i];
    struct job j = {.size = 2, .body = work_a_little};
    char log[4096];
    set_lack(l, "auto");
    run_listening(&j, log, sizeof log);
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(scene.end[r].status, RING_OK, "%s: rank %u: %s", l->name, r, scene.end[r].text);
        cr_assert_str_eq(scene.end[r].transport, "tcp", "%s: rank %u goes over %s", l->name, r, scene.end[r].transport);
    }
    cr_assert_eq(lines_of(log), l->lines, "%s: %s", l->name, log);
    cr_assert(!l->lines || (strstr(log, "goes over tcp") && says_one_of(log, l->said)), "%s: %s", l->name, log);
    expect_clean();
}

ParameterizedTestParameters(verbs_job, who_insists_hears_why) { return numbers(FEW ? 2 : LACKS); }

ParameterizedTest(int *i, verbs_job, who_insists_hears_why, .timeout = 60)
{
    const struct lack *l = &lacks[*i];
    struct job j = {.size = 2, .body = work_a_little};
    set_lack(l, "verbs");
    const uint64_t begun = ri_now();
    run(&j);
    cr_assert_lt(ri_now() - begun, SOON_MS * RI_MILLISECOND);
    const char *text = expect_one_end(&j, RING_ERR_UNSUPPORTED);
    cr_assert(strstr(text, "RING_TRANSPORT=verbs") && says_one_of(text, l->said), "%s: %s", l->name, text);
    expect_clean();
}
