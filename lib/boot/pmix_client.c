/* SPDX-License-Identifier: Apache-2.0 */
/* pmix_client.c - see pmix_client.h.
 *
 * PMIx answers on a thread of its own.  A request is counted twice, by the caller and by the answer to come, and the
 * last one frees it.  PMIx_Init and PMIx_Finalize block without a deadline when the server is stopped, so each runs on
 * a thread that can be left behind. */
#include "lib/boot/pmix_client.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/base/wait.h"
#include "lib/boot/boot.h"

#define FINALIZE_TIME (3 * RI_SECOND)

struct ri_pmix_ask {
    _Atomic uint32_t done;
    _Atomic uint32_t holders;
    pmix_status_t status;
    pmix_proc_t proc; /* PMIx keeps pointers to these three until it answers */
    pmix_info_t info[1];
    char key[64];
    size_t len;
    uint8_t bytes[RI_BOOT_BLOB_MAX];
};

enum life { NEVER, STARTING, UP };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum life life;
static struct ri_pmix_job job;
static pid_t process; /* that called PMIx_Init: a forked child is not the rank */

/* ---- requests ---- */

static struct ri_pmix_ask *new_ask(void)
{
    struct ri_pmix_ask *a = ri_new(1, sizeof *a);
    if (a)
        a->holders = 2;
    return a;
}

void ri_pmix_drop(struct ri_pmix_ask *ask)
{
    if (ask && atomic_fetch_sub(&ask->holders, 1) == 1)
        ri_free(ask);
}

static void answer(struct ri_pmix_ask *a, pmix_status_t status)
{
    a->status = status;
    atomic_store(&a->done, 1);
    ri_word_wake(&a->done);
    ri_pmix_drop(a);
}

static void on_done(pmix_status_t status, void *arg) { answer(arg, status); }

static bool copy_value(struct ri_pmix_ask *a, const pmix_value_t *v)
{
    const void *from = v->type == PMIX_UINT32 ? (const void *)&v->data.uint32 : v->data.bo.bytes;
    if (v->type != PMIX_UINT32 && v->type != PMIX_BYTE_OBJECT)
        return false;
    a->len = v->type == PMIX_UINT32 ? sizeof v->data.uint32 : v->data.bo.size;
    if (a->len > sizeof a->bytes || (a->len && !from))
        return false;
    if (a->len)
        memcpy(a->bytes, from, a->len);
    return true;
}

static void on_value(pmix_status_t status, pmix_value_t *value, void *arg)
{
    if (status == PMIX_SUCCESS && (!value || !copy_value(arg, value)))
        status = PMIX_ERR_TYPE_MISMATCH;
    answer(arg, status);
}

static void sleep_on(void *arg, int ms) { ri_word_sleep(arg, 0, ms); }

ring_status_t ri_pmix_wait(struct ri_pmix_ask *ask, uint64_t deadline, pmix_status_t *status_out)
{
    struct ri_wait w;
    ring_status_t status = RING_OK;
    ri_wait_begin(&w, NULL, deadline, (struct ri_patience){0, 0});
    while (!status && !atomic_load(&ask->done))
        status = ri_wait_round(&w, sleep_on, &ask->done);
    if (!status)
        *status_out = ask->status;
    return status;
}

const void *ri_pmix_bytes(const struct ri_pmix_ask *ask, size_t *len_out)
{
    *len_out = ask->len;
    return ask->bytes;
}

ring_status_t ri_pmix_fail(const char *what, pmix_status_t status)
{
    const char *name = PMIx_Error_string(status);
    switch (status) {
    case PMIX_ERR_UNREACH:
    case PMIX_ERR_LOST_CONNECTION:
    case PMIX_ERR_COMM_FAILURE:
        return ri_fail(RING_ERR_PEER_LOST, "%s: the launcher's PMIx server on this host is gone (%s)", what, name);
    case PMIX_ERR_TIMEOUT:
        return ri_fail(RING_ERR_TIMEOUT, "%s: the launcher gave up waiting for the other ranks (%s)", what, name);
    case PMIX_ERR_NOMEM:
        return ri_fail(RING_ERR_NOMEM, "%s: %s", what, name);
    case PMIX_ERR_INIT:
        return ri_fail(RING_ERR_LAUNCH, "%s: somebody else in this process has ended PMIx (%s)", what, name);
    default:
        return ri_fail(RING_ERR_PEER_LOST, "%s: the launcher reports %s (%d)", what, name, (int)status);
    }
}

/* PMIx has taken the request, or will never answer. */
static ring_status_t begun(struct ri_pmix_ask *a, pmix_status_t status, const char *what, struct ri_pmix_ask **ask_out)
{
    if (status == PMIX_OPERATION_SUCCEEDED)
        on_done(PMIX_SUCCESS, a);
    else if (status != PMIX_SUCCESS) {
        ri_free(a);
        return ri_pmix_fail(what, status);
    }
    *ask_out = a;
    return RING_OK;
}

static void set_true(pmix_info_t *info, const char *key)
{
    const bool yes = true;
    PMIX_INFO_LOAD(info, key, &yes, PMIX_BOOL);
}

ring_status_t ri_pmix_fence(const pmix_proc_t *me, struct ri_pmix_ask **ask_out)
{
    struct ri_pmix_ask *a = new_ask();
    if (!a)
        return ri_fail(RING_ERR_NOMEM, "no memory for a PMIx fence");
    a->proc = *me;
    a->proc.rank = PMIX_RANK_WILDCARD;
    set_true(&a->info[0], PMIX_COLLECT_DATA);
    return begun(a, PMIx_Fence_nb(&a->proc, 1, a->info, 1, on_done, a), "PMIx fence", ask_out);
}

ring_status_t ri_pmix_get(const pmix_proc_t *me, pmix_rank_t rank, const char *key, bool soon,
                          struct ri_pmix_ask **ask_out)
{
    struct ri_pmix_ask *a = new_ask();
    if (!a)
        return ri_fail(RING_ERR_NOMEM, "no memory for a PMIx request");
    a->proc = *me;
    a->proc.rank = rank;
    snprintf(a->key, sizeof a->key, "%s", key);
    if (soon) {
        const int seconds = 1;
        PMIX_INFO_LOAD(&a->info[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    }
    return begun(a, PMIx_Get_nb(&a->proc, a->key, soon ? a->info : NULL, soon ? 1 : 0, on_value, a), key, ask_out);
}

ring_status_t ri_pmix_put(const char *key, const void *bytes, size_t len)
{
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    char none[1] = "";
    value.data.bo.bytes = len ? (char *)(uintptr_t)bytes : none; /* PMIx copies it */
    value.data.bo.size = len;
    const pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);
    return status == PMIX_SUCCESS ? RING_OK : ri_pmix_fail("PMIx put", status);
}

ring_status_t ri_pmix_commit(void)
{
    const pmix_status_t status = PMIx_Commit();
    return status == PMIX_SUCCESS ? RING_OK : ri_pmix_fail("PMIx commit", status);
}

/* ---- beginning and end ---- */

static bool run_apart(void *(*run)(void *), struct ri_pmix_ask *a)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = !pthread_create(&thread, NULL, run, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

static void *init(void *arg)
{
    struct ri_pmix_ask *a = arg;
    answer(a, PMIx_Init(&a->proc, NULL, 0));
    return NULL;
}

static void *finalize(void *arg)
{
    answer(arg, PMIx_Finalize(NULL, 0));
    return NULL;
}

/* The launcher takes a rank that ends without PMIx_Finalize for a crash. */
static void at_exit(void)
{
    pmix_status_t ignored;
    struct ri_pmix_ask *a = getpid() == process && life == UP ? new_ask() : NULL;
    if (!a)
        return;
    if (run_apart(finalize, a))
        (void)ri_pmix_wait(a, ri_deadline(FINALIZE_TIME), &ignored);
    ri_pmix_drop(a);
}

static const char *env(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "(not set)";
}

static ring_status_t refused(pmix_status_t status)
{
    return ri_fail(
        RING_ERR_LAUNCH,
        "the environment says that this is rank %.16s of the PMIx job %.64s, but its server does not take us "
        "(%s): the launcher may have ended, or is one that libring cannot join; RING_BOOT=single makes a job "
        "of one",
        env("PMIX_RANK"), env("PMIX_NAMESPACE"), PMIx_Error_string(status));
}

static ring_status_t silent(const char *what)
{
    return ri_fail(RING_ERR_TIMEOUT, "the launcher's PMIx server on this host did not answer within RING_TIMEOUT (%s)",
                   what);
}

static ring_status_t join(uint64_t deadline, pmix_proc_t *me_out)
{
    pmix_status_t answered = PMIX_SUCCESS;
    struct ri_pmix_ask *a = new_ask();
    if (!a || !run_apart(init, a)) {
        ri_free(a);
        return ri_fail(RING_ERR_NOMEM, "no memory or thread to join the launcher with");
    }
    life = STARTING;
    ring_status_t status = ri_pmix_wait(a, deadline, &answered);
    if (status)
        status = silent("PMIx_Init"); /* stays STARTING: that thread may yet come back, and nobody may start another */
    else if (answered != PMIX_SUCCESS) {
        life = NEVER;
        status = refused(answered);
    } else
        *me_out = a->proc;
    ri_pmix_drop(a);
    return status;
}

static ring_status_t find_size(const pmix_proc_t *me, uint64_t deadline, uint32_t *size_out)
{
    struct ri_pmix_ask *a = NULL;
    pmix_status_t answered = PMIX_SUCCESS;
    ring_status_t status = ri_pmix_get(me, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, false, &a);
    if (status)
        return status;
    if (ri_pmix_wait(a, deadline, &answered))
        status = silent("size of the job");
    else if (answered != PMIX_SUCCESS || a->len != sizeof *size_out)
        status = ri_fail(RING_ERR_LAUNCH, "the launcher does not tell the size of the job (%s)",
                         PMIx_Error_string(answered));
    else
        memcpy(size_out, a->bytes, sizeof *size_out);
    ri_pmix_drop(a);
    if (!status && me->rank >= *size_out)
        status = ri_fail(RING_ERR_LAUNCH, "the launcher says that we are rank %u of %u", me->rank, *size_out);
    return status;
}

static ring_status_t start(uint64_t deadline)
{
    struct ri_pmix_job found;
    if (life == STARTING)
        return silent("an earlier PMIx_Init");
    if (life == UP)
        return getpid() == process
                   ? RING_OK
                   : ri_fail(RING_ERR_STATE, "this process was forked from a rank: it is not a rank of the job itself");
    process = getpid();
    ring_status_t status = join(deadline, &found.me);
    if (status)
        return status;
    life = UP;
    atexit(at_exit);
    status = find_size(&found.me, deadline, &found.size);
    if (!status)
        job = found;
    return status;
}

ring_status_t ri_pmix_start(uint64_t deadline, struct ri_pmix_job *job_out)
{
    pthread_mutex_lock(&lock);
    const ring_status_t status = start(deadline);
    if (!status)
        *job_out = job;
    pthread_mutex_unlock(&lock);
    return status;
}
