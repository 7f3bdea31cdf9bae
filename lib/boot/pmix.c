/* SPDX-License-Identifier: Apache-2.0 */
/* pmix.c - the bootstrap through the launcher's PMIx server (PMIx standard 4.x: put, commit, fence, get).
 *
 * One job can make several communicators: all ranks make them in the same order, so a count tells them apart, in the
 * keys and in the identity.  A fence collects all data, so that a get is local.  Before a fence each rank also puts a
 * mark; when the deadline passes, the marks that can be got tell who has come. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/boot/boot.h"
#include "lib/boot/bytes.h"
#include "lib/boot/pmix_client.h"
#include "lib/boot/ranks.h"

#define LOOK_TIME (2 * RI_SECOND)

struct client {
    struct ri_boot base;
    struct ri_pmix_job job;
    uint32_t count, fences;
    uint64_t get_time;
    char timeout[32];
};

static void full_key(const struct client *c, const char *key, char text[64])
{
    snprintf(text, 64, "ring.%u.%.*s", c->count, RI_BOOT_KEY_MAX - 1, key);
}

static void mark_key(const struct client *c, char text[64])
{
    snprintf(text, 64, "ring.%u.here.%u", c->count, c->fences);
}

static ring_status_t put(struct ri_boot *b, const char *key, const void *blob, size_t len)
{
    char name[64];
    if (strlen(key) >= RI_BOOT_KEY_MAX || len > RI_BOOT_BLOB_MAX)
        return ri_fail(RING_ERR_INTERNAL, "bootstrap entry \"%s\" of %zu bytes is too large", key, len);
    full_key((struct client *)b, key, name);
    return ri_pmix_put(name, blob, len);
}

/* ---- who is missing ---- */

static bool has_come(struct ri_pmix_ask *ask, uint64_t deadline)
{
    pmix_status_t answered;
    return ask && !ri_pmix_wait(ask, deadline, &answered) && answered == PMIX_SUCCESS;
}

static void ask_all(const struct client *c, struct ri_pmix_ask **asks, bool *missing)
{
    char name[64];
    const uint64_t deadline = ri_deadline(LOOK_TIME);
    mark_key(c, name);
    for (uint32_t r = 0; r < c->base.size; r++)
        if (r != c->base.rank && ri_pmix_get(&c->job.me, r, name, true, &asks[r]))
            asks[r] = NULL;
    for (uint32_t r = 0; r < c->base.size; r++) {
        missing[r] = r != c->base.rank && !has_come(asks[r], deadline);
        ri_pmix_drop(asks[r]);
    }
}

/* false: nobody is known to be missing. */
static bool find_missing(const struct client *c, char *text, size_t cap)
{
    struct ri_pmix_ask **asks = ri_new(c->base.size, sizeof(struct ri_pmix_ask *));
    bool *missing = ri_new(c->base.size, sizeof *missing);
    bool any = false;
    if (asks && missing) {
        ask_all(c, asks, missing);
        for (uint32_t r = 0; r < c->base.size; r++)
            any = any || missing[r];
        ri_ranks_print(missing, c->base.size, text, cap);
    }
    ri_free(asks);
    ri_free(missing);
    return any;
}

static ring_status_t too_late(const struct client *c)
{
    char text[256];
    if (find_missing(c, text, sizeof text))
        return ri_fail(RING_ERR_TIMEOUT, "%s did not arrive within %s (RING_TIMEOUT)", text, c->timeout);
    return ri_fail(RING_ERR_TIMEOUT, "all ranks have arrived, but not together within %s (RING_TIMEOUT)", c->timeout);
}

/* Some rank has ended: because it gave up waiting for others, or by itself. */
static ring_status_t cut_short(const struct client *c, pmix_status_t answered)
{
    char text[256];
    const bool any = find_missing(c, text, sizeof text);
    return ri_fail(RING_ERR_PEER_LOST, "a rank ended before all had met (the launcher says %s)%s%s%s",
                   PMIx_Error_string(answered), any ? "; " : "", any ? text : "", any ? " had not arrived" : "");
}

/* ---- the table ---- */

static ring_status_t meet(struct client *c, uint64_t deadline)
{
    struct ri_pmix_ask *ask = NULL;
    pmix_status_t answered = PMIX_SUCCESS;
    ring_status_t status = ri_pmix_fence(&c->job.me, &ask);
    if (status)
        return status;
    status = ri_pmix_wait(ask, deadline, &answered);
    ri_pmix_drop(ask);
    if (status)
        return too_late(c);
    if (answered == PMIX_ERR_PARTIAL_SUCCESS || answered == PMIX_ERR_LOST_CONNECTION)
        return cut_short(c, answered);
    return answered == PMIX_SUCCESS ? RING_OK : ri_pmix_fail("meeting the other ranks", answered);
}

static ring_status_t fence(struct ri_boot *b, uint64_t deadline)
{
    struct client *c = (struct client *)b;
    char name[64];
    mark_key(c, name);
    ring_status_t status = ri_pmix_put(name, "", 1);
    if (!status)
        status = ri_pmix_commit();
    if (!status)
        status = meet(c, deadline);
    c->fences++;
    return status;
}

static ring_status_t get(struct ri_boot *b, uint32_t rank, const char *key, void *blob, size_t *len_out)
{
    const struct client *c = (struct client *)b;
    struct ri_pmix_ask *ask = NULL;
    pmix_status_t answered = PMIX_SUCCESS;
    char name[64];
    full_key(c, key, name);
    ring_status_t status = ri_pmix_get(&c->job.me, rank, name, false, &ask);
    if (status)
        return status;
    status = ri_pmix_wait(ask, ri_deadline(c->get_time), &answered);
    if (status)
        status = ri_fail(status, "the launcher did not bring \"%s\" of rank %u within %s (RING_TIMEOUT)", key, rank,
                         c->timeout);
    else if (answered != PMIX_SUCCESS)
        status = ri_fail(RING_ERR_PEER_LOST, "the launcher does not know \"%s\" of rank %u (%s)", key, rank,
                         PMIx_Error_string(answered));
    else {
        size_t len;
        const void *bytes = ri_pmix_bytes(ask, &len);
        memcpy(blob, bytes, len);
        *len_out = len;
    }
    ri_pmix_drop(ask);
    return status;
}

static void shut(struct ri_boot *b) { ri_free(b); }

/* ---- opening ---- */

static uint32_t next_count(void)
{
    static _Atomic uint32_t count;
    return count++;
}

static uint64_t identity(const struct client *c)
{
    uint8_t id[16], number[4];
    crypto_generichash_state s;
    ri_put32(number, c->count);
    crypto_generichash_init(&s, NULL, 0, sizeof id);
    crypto_generichash_update(&s, number, sizeof number);
    crypto_generichash_update(&s, (const uint8_t *)c->job.me.nspace, strnlen(c->job.me.nspace, PMIX_MAX_NSLEN));
    crypto_generichash_final(&s, id, sizeof id);
    return ri_get64(id);
}

static void remember_times(struct client *c, const struct ri_conf *conf)
{
    c->get_time = conf->timeout;
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_rows[i].offset == offsetof(struct ri_conf, timeout))
            ri_conf_print(conf, &ri_conf_rows[i], c->timeout, sizeof c->timeout);
}

ring_status_t ri_boot_pmix(const struct ri_conf *conf, uint64_t deadline, struct ri_boot **boot_out)
{
    static const struct ri_boot_ops ops = {.name = "pmix", .put = put, .fence = fence, .get = get, .close = shut};
    struct ri_pmix_job job;
    if (!getenv("PMIX_NAMESPACE"))
        return ri_fail(RING_ERR_LAUNCH,
                       "there is no PMIx server to join (PMIX_NAMESPACE is not set): start the program "
                       "with ringrun, Open MPI's mpirun or srun --mpi=pmix");
    const ring_status_t status = ri_pmix_start(deadline, &job);
    if (status)
        return status;
    struct client *c = ri_new(1, sizeof *c);
    if (!c)
        return ri_fail(RING_ERR_NOMEM, "no memory for the bootstrap");
    c->job = job;
    c->count = next_count();
    c->base = (struct ri_boot){.ops = &ops, .rank = job.me.rank, .size = job.size, .comm_id = identity(c)};
    remember_times(c, conf);
    *boot_out = &c->base;
    return RING_OK;
}
