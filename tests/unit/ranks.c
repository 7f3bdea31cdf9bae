/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - see ranks.h. */
#include "tests/unit/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct way ways[WAYS] = {
    {"node", {"RING_NODE", "RING_CMA"}, {"auto", "auto"}},
    {"slots", {"RING_NODE", "RING_CMA"}, {"auto", "off"}},
    {"shm", {"RING_NODE", "RING_TRANSPORT"}, {"off", "shm"}},
    {"tcp", {"RING_NODE", "RING_TRANSPORT"}, {"off", "tcp"}},
    {"ring", {"RING_ALGO", "RING_TCP_SOCKETS"}, {"ring", "2"}},
    {"doubling", {"RING_ALGO", "RING_SEGMENT"}, {"doubling", "4K"}},
};
void go_by(const struct way *w)
{
    for (int i = 0; i < 2; i++)
        setenv(w->variable[i], w->value[i], 1);
}

void go_back(const struct way *w)
{
    for (int i = 0; i < 2; i++)
        unsetenv(w->variable[i]);
}

void nap_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- ranks as threads ------------------------------------------------------------------------------------------ */

static void *live(void *arg)
{
    struct rank *r = arg;
    r->status = ring_comm_create_uid(&r->job->uid, r->rank, r->job->size, &r->comm);
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
            go_by(&ways[w]);
            run_ranks(*size, body, &ways[w]);
            go_back(&ways[w]);
        }
}
