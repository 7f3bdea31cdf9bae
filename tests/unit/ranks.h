/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - threads as ranks: jobs in one process, so that the sanitizers see what ranks do to each other, by every way
 * that data can go. */
#ifndef RANKS_H
#define RANKS_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <ring/ring.h>

#include "lib/base/conf.h"

enum { MAX_RANKS = 8 };

/* VERBS_LIBRARY: libibverbs without hardware (tests/verbs), whose devices then are one way more. */
#ifdef VERBS_LIBRARY
enum { WAYS = 7 };
#else
enum { WAYS = 6 };
#endif

struct way {
    const char *name;
    uint32_t most; /* ranks, where more show nothing new; 0: any number */
    const char *variable[3], *value[3];
};
extern const struct way ways[WAYS];
bool way_takes(const struct way *w, uint32_t size);
void go_by(const struct way *w);
void go_back(const struct way *w);

void nap_ms(int ms);

struct job;
struct rank {
    pthread_t thread;
    struct job *job;
    uint32_t rank;
    ring_comm_t *comm;
    ring_status_t status; /* of create */
    char text[512];
};
struct job {
    uint32_t size, present; /* present: how many of the ranks come at all */
    ring_uid_t uid;
    void (*body)(struct rank *r);
    const void *arg;
    void (*settings)(uint32_t rank, struct ri_conf *conf); /* of each rank by itself; NULL: those of the environment */
    struct rank rank[MAX_RANKS];
};
void start_job(struct job *j);
void run_job(struct job *j);
void run_ranks(uint32_t size, void (*body)(struct rank *r), const void *arg);
/* sizes end in 0 */
void by_every_way(const uint32_t *sizes, void (*body)(struct rank *r));

#define WORKS(call) cr_assert_eq((call), RING_OK, "%s: %s", #call, ring_last_error())

#endif
