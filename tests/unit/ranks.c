/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - see ranks.h. */
#include "tests/unit/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/comm/comm.h"
#include "tests/unit/slower.h"
#ifdef VERBS_LIBRARY
#include "tests/verbs/provider.h"
#endif

const struct way ways[WAYS] = {
    {"node", 0, {"RING_NODE", "RING_CMA"}, {"auto", "auto"}},
    {"slots", 0, {"RING_NODE", "RING_CMA"}, {"auto", "off"}},
    {"shm", 0, {"RING_NODE", "RING_TRANSPORT"}, {"off", "shm"}},
    {"tcp", 0, {"RING_NODE", "RING_TRANSPORT"}, {"off", "tcp"}},
    {"ring", 0, {"RING_ALGO", "RING_TCP_SOCKETS"}, {"ring", "2"}},
    {"doubling", 0, {"RING_ALGO", "RING_SEGMENT"}, {"doubling", "4K"}},
#ifdef VERBS_LIBRARY
    {"verbs", SLOWER > 2 ? 2 : 4, {"RING_NODE", "RING_TRANSPORT", "RING_IB_LIBRARY"}, {"off", "verbs", VERBS_LIBRARY}},
#endif
};

/* ---- devices --------------------------------------------------------------------------------------------------- */

#ifdef VERBS_LIBRARY
/* 2 to 4 of them, which carry and end what is asked of them in an order that the seed decides. */
static void open_world(void)
{
    static uint64_t seed;
    const char *given = getenv("RING_TEST_SEED");
    struct provider_world w;
    if (!seed) {
        seed = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 1000;
        fprintf(stderr, "# devices: seed %llu (RING_TEST_SEED)\n", (unsigned long long)seed);
    }
    (void)provider_control.reset(++seed);
    provider_control.get_world(&w);
    w.devices = 2 + (int)(seed % 3);
    provider_control.set_world(&w);
}

static void close_world(void)
{
    char text[512] = "";
    struct provider_counters n;
    cr_assert_eq(provider_control.violations(text, sizeof text), 0, "%s", text);
    provider_control.counters(&n);
    cr_assert_eq(n.rnr, 0, "%llu messages found no receive request", (unsigned long long)n.rnr);
    cr_assert_eq(n.devices + n.contexts + n.pds + n.mrs + n.channels + n.cqs + n.qps, 0, "not all is given back");
}
#else
static void open_world(void) {}
static void close_world(void) {}
#endif

/* ---- ways ------------------------------------------------------------------------------------------------------ */

bool way_takes(const struct way *w, uint32_t size) { return !w->most || size <= w->most; }

void go_by(const struct way *w)
{
    for (int i = 0; i < 3 && w->variable[i]; i++)
        setenv(w->variable[i], w->value[i], 1);
    if (w->variable[2])
        open_world();
}

void go_back(const struct way *w)
{
    for (int i = 0; i < 3 && w->variable[i]; i++)
        unsetenv(w->variable[i]);
    if (w->variable[2])
        close_world();
}

void nap_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- ranks as threads ------------------------------------------------------------------------------------------ */

/* As ring_comm_create_uid(), with settings of this rank's own: the environment is all ranks'. */
static ring_status_t join(struct rank *r)
{
    struct ri_conf conf;
    struct ri_boot *boot;
    if (!r->job->settings)
        return ring_comm_create_uid(&r->job->uid, r->rank, r->job->size, &r->comm);
    ring_status_t status = ri_conf_load(&conf);
    if (status)
        return status;
    r->job->settings(r->rank, &conf);
    const uint64_t deadline = ri_deadline(conf.timeout);
    if ((status = ri_boot_open_uid(&conf, &r->job->uid, r->rank, r->job->size, deadline, &boot)))
        return status;
    ri_log_set_rank(r->rank);
    status = ri_comm_create(boot, &conf, NULL, deadline, &r->comm);
    boot->ops->close(boot);
    return status;
}

static void *live(void *arg)
{
    struct rank *r = arg;
    r->status = join(r);
    snprintf(r->text, sizeof r->text, "%s", ring_last_error());
    if (!r->status) {
        r->job->body(r);
        (void)ring_comm_destroy(r->comm); /* NULL when the body did that */
    }
    return NULL;
}

void start_job(struct job *j)
{
    for (uint32_t i = 0; i < j->present; i++) {
        j->rank[i] = (struct rank){.job = j, .rank = i};
        cr_assert_eq(pthread_create(&j->rank[i].thread, NULL, live, &j->rank[i]), 0);
    }
    for (uint32_t i = 0; i < j->present; i++)
        pthread_join(j->rank[i].thread, NULL);
}

void run_job(struct job *j)
{
    cr_assert_eq(ring_uid_create(&j->uid), RING_OK, "%s", ring_last_error());
    start_job(j);
}

void run_ranks(uint32_t size, void (*body)(struct rank *r), const void *arg)
{
    struct job j = {.size = size, .present = size, .body = body, .arg = arg};
    run_job(&j);
    for (uint32_t i = 0; i < size; i++)
        cr_assert_eq(j.rank[i].status, RING_OK, "rank %u: %s", i, j.rank[i].text);
}

void by_every_way(const uint32_t *sizes, void (*body)(struct rank *r))
{
    for (size_t w = 0; w < WAYS; w++)
        for (const uint32_t *size = sizes; *size; size++) {
            if (!way_takes(&ways[w], *size))
                continue;
            go_by(&ways[w]);
            run_ranks(*size, body, &ways[w]);
            go_back(&ways[w]);
        }
}
