/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - see server.h. */
#include "server.h"

#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "env.h"
#include "facts.h"
#include "guard.h"
#include "proc.h"
#include "say.h"

/* What a rank waits for. */
struct request {
    uint64_t id;
    pmix_modex_cbfunc_t answer;
    void *asker;
    struct request *next;
};

/* PMIx has one server per process, and so have we. */
static struct {
    const struct job *job;
    int fd;
    pthread_mutex_t lock; /* the rest */
    struct server_event *first, **last;
    struct request *requests;
    uint64_t ids;
    pid_t *pids; /* of the ranks here, in order; -1: not started yet, 0: ended */
} server = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .last = &server.first};

/* ---- on PMIx's thread ----------------------------------------------------------------------------------------------
 */

static void post(struct server_event *e)
{
    pthread_mutex_lock(&server.lock);
    *server.last = e;
    server.last = &e->next;
    pthread_mutex_unlock(&server.lock);
    uint64_t one = 1;
    if (write(server.fd, &one, sizeof one) < 0) {
        /* the counter is full, so the descriptor is readable already */
    }
}

static struct server_event *event(enum server_event_kind kind, uint32_t rank)
{
    struct server_event *e = need(sizeof *e);
    e->kind = kind;
    e->rank = rank;
    return e;
}

/* Remember who asks; the event carries the number. */
static void remember(struct server_event *e, pmix_modex_cbfunc_t answer, void *asker)
{
    struct request *r = need(sizeof *r);
    *r = (struct request){.answer = answer, .asker = asker};
    pthread_mutex_lock(&server.lock);
    r->id = e->id = ++server.ids;
    r->next = server.requests;
    server.requests = r;
    pthread_mutex_unlock(&server.lock);
}

static void set_data(struct server_event *e, const void *data, size_t len)
{
    e->data = need(len);
    e->len = data ? len : 0;
    if (e->len)
        memcpy(e->data, data, len);
}

static uint32_t time_limit(const pmix_info_t info[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_TIMEOUT) && info[i].value.type == PMIX_INT && info[i].value.data.integer > 0)
            return (uint32_t)info[i].value.data.integer;
    return 0;
}

static bool ours(const pmix_proc_t *proc) { return strncmp(proc->nspace, server.job->name, PMIX_MAX_NSLEN) == 0; }

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Who takes part; false: somebody who is not in the job. */
static bool set_ranks(struct server_event *e, const pmix_proc_t procs[], size_t count)
{
    if (!procs || count == 0 || count > server.job->size)
        return false;
    e->ranks = need(count * sizeof *e->ranks);
    bool all = false;
    for (size_t i = 0; i < count; i++) {
        if (!ours(&procs[i]) || (procs[i].rank != PMIX_RANK_WILDCARD && procs[i].rank >= server.job->size))
            return false;
        all = all || procs[i].rank == PMIX_RANK_WILDCARD;
        e->ranks[i] = procs[i].rank;
    }
    qsort(e->ranks, count, sizeof *e->ranks, by_number);
    for (size_t i = 1; i < count && !all; i++)
        if (e->ranks[i] == e->ranks[i - 1])
            return false;
    e->count = all || count == server.job->size ? 0 : (uint32_t)count;
    return true;
}

static bool only_here(const struct server_event *e)
{
    const struct place *here = &server.job->places[server.job->here];
    if (e->count == 0)
        return server.job->place_count == 1;
    return e->ranks[0] >= here->first && e->ranks[e->count - 1] < here->first + here->count;
}

/* A rank of this host that should be in the fence has ended. */
static bool misses_one(const struct server_event *e)
{
    const struct place *here = &server.job->places[server.job->here];
    uint32_t count = e->count ? e->count : here->count;
    bool ended = false;
    pthread_mutex_lock(&server.lock);
    for (uint32_t i = 0; i < count && !ended; i++) {
        uint32_t index = e->count ? e->ranks[i] - here->first : i; /* one of another host is beyond the list */
        ended = index < here->count && server.pids[index] >= 0 && proc_ends(server.pids[index]);
    }
    pthread_mutex_unlock(&server.lock);
    return ended;
}

static void release(void *data) { free(data); }

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,
                              char *data, size_t ndata, pmix_modex_cbfunc_t cbfunc, void *cbdata)
{
    struct server_event *e = event(SERVER_FENCE, 0);
    if (!set_ranks(e, procs, nprocs)) {
        server_event_free(e);
        return PMIX_ERR_BAD_PARAM;
    }
    if (misses_one(e)) {
        server_event_free(e);
        cbfunc(PMIX_ERR_LOST_CONNECTION, NULL, 0, cbdata, NULL, NULL);
        return PMIX_SUCCESS;
    }
    set_data(e, data, ndata);
    if (only_here(e)) { /* all of them have come, or PMIx would not have asked */
        uint8_t *same = e->data;
        size_t len = e->len;
        e->data = NULL;
        server_event_free(e);
        cbfunc(PMIX_SUCCESS, (char *)same, len, cbdata, release, same);
        return PMIX_SUCCESS;
    }
    e->seconds = time_limit(info, ninfo);
    remember(e, cbfunc, cbdata);
    post(e);
    return PMIX_SUCCESS;
}

static pmix_status_t on_fetch(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                              pmix_modex_cbfunc_t cbfunc, void *cbdata)
{
    if (!ours(proc) || proc->rank >= server.job->size)
        return PMIX_ERR_NOT_FOUND;
    struct server_event *e = event(SERVER_FETCH, proc->rank);
    e->seconds = time_limit(info, ninfo);
    remember(e, cbfunc, cbdata);
    post(e);
    return PMIX_SUCCESS;
}

static void on_found(pmix_status_t status, char *data, size_t len, void *cbdata)
{
    struct server_event *e = cbdata;
    e->code = status == PMIX_SUCCESS ? EXCHANGE_OK : EXCHANGE_NOT_FOUND;
    if (status == PMIX_SUCCESS)
        set_data(e, data, len);
    post(e);
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char message[],
                              pmix_proc_t procs[], size_t nprocs, pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    (void)object, (void)procs, (void)nprocs, (void)cbfunc, (void)cbdata;
    struct server_event *e = event(SERVER_ABORT, proc->rank);
    e->code = status;
    e->text = need_text(message ? message : "");
    post(e);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_joined(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t ninfo,
                               pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    (void)object, (void)info, (void)ninfo, (void)cbfunc, (void)cbdata;
    if (ours(proc))
        post(event(SERVER_JOINED, proc->rank));
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_left(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    (void)object, (void)cbfunc, (void)cbdata;
    if (ours(proc))
        post(event(SERVER_LEFT, proc->rank));
    return PMIX_OPERATION_SUCCEEDED;
}

/* Events stay within the host: PMIx itself delivers them among the ranks here. */
static pmix_status_t on_register_events(pmix_status_t *codes, size_t ncodes, const pmix_info_t info[], size_t ninfo,
                                        pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    (void)codes, (void)ncodes, (void)info, (void)ninfo, (void)cbfunc, (void)cbdata;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_deregister_events(pmix_status_t *codes, size_t ncodes, pmix_op_cbfunc_t cbfunc, void *cbdata)
{
    (void)codes, (void)ncodes, (void)cbfunc, (void)cbdata;
    return PMIX_OPERATION_SUCCEEDED;
}

/* ---- on the agent's thread -----------------------------------------------------------------------------------------
 */

/* The server needs the machine's processors, not its devices and graphics cards: reading those takes four times as long
 * as all the rest of the start.  What the user has set stays. */
static void quick_start(void)
{
    setenv("HWLOC_PLUGINS_PATH", "/proc/self/task", 0);
    setenv("HWLOC_COMPONENTS", "-pci,-linuxio", 0);
    setenv("PMIX_MCA_gds", "hash", 1); /* the other stores are files in /tmp */
}

static pmix_status_t init(const struct job *job)
{
    pmix_server_module_t module = {
        .client_connected2 = on_joined,
        .client_finalized = on_left,
        .abort = on_abort,
        .fence_nb = on_fence,
        .direct_modex = on_fetch,
        .register_events = on_register_events,
        .deregister_events = on_deregister_events,
    };
    pmix_info_t *info;
    PMIX_INFO_CREATE(info, 4);
    bool no = false;
    pmix_rank_t rank = job->here;
    char *name = need_format("%s.server", job->name), *host = pmix_host_name(job, job->here);
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TOOL_SUPPORT, &no, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_SERVER_NSPACE, name, PMIX_STRING);
    PMIX_INFO_LOAD(&info[2], PMIX_SERVER_RANK, &rank, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&info[3], PMIX_HOSTNAME, host, PMIX_STRING);
    pmix_status_t status = PMIx_server_init(&module, info, 4);
    PMIX_INFO_FREE(info, 4);
    free(name);
    free(host);
    return status;
}

char *server_open(const struct job *job)
{
    server.job = job;
    server.pids = need(job->places[job->here].count * sizeof *server.pids);
    for (uint32_t i = 0; i < job->places[job->here].count; i++)
        server.pids[i] = -1;
    server.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server.fd < 0)
        return need_text("cannot make a descriptor for PMIx's events");
    quick_start();
    pmix_status_t status = init(job);
    if (status != PMIX_SUCCESS)
        return need_format("PMIx server does not start: %s", PMIx_Error_string(status));
    if (strstr(PMIx_Get_version(), " 4."))
        guard_open(job->name);
    status = pmix_register_job(job);
    if (status != PMIX_SUCCESS)
        return need_format("PMIx server does not accept the job: %s", PMIx_Error_string(status));
    return NULL;
}

void server_watch(uint32_t rank, pid_t pid)
{
    pthread_mutex_lock(&server.lock);
    server.pids[rank - server.job->places[server.job->here].first] = pid;
    pthread_mutex_unlock(&server.lock);
}

int server_fd(void) { return server.fd; }

struct server_event *server_next(void)
{
    pthread_mutex_lock(&server.lock);
    struct server_event *e = server.first;
    if (e) {
        server.first = e->next;
        if (!server.first)
            server.last = &server.first;
    }
    uint64_t count;
    if (!e && read(server.fd, &count, sizeof count) < 0) {
        /* nothing was posted since */
    }
    pthread_mutex_unlock(&server.lock);
    return e;
}

void server_event_free(struct server_event *e)
{
    free(e->text);
    free(e->ranks);
    free(e->data);
    free(e);
}

static pmix_status_t status_of(enum exchange how)
{
    switch (how) {
    case EXCHANGE_OK:
        return PMIX_SUCCESS;
    case EXCHANGE_TIMEOUT:
        return PMIX_ERR_TIMEOUT;
    case EXCHANGE_LOST:
        return PMIX_ERR_LOST_CONNECTION;
    case EXCHANGE_NOT_FOUND:
        return PMIX_ERR_NOT_FOUND;
    case EXCHANGE_REFUSED:
        break;
    }
    return PMIX_ERR_NOT_SUPPORTED;
}

void server_answer(uint64_t id, enum exchange how, const void *data, size_t len)
{
    pthread_mutex_lock(&server.lock);
    struct request **at = &server.requests;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct request *r = *at;
    if (r)
        *at = r->next;
    pthread_mutex_unlock(&server.lock);
    if (!r)
        return;
    char *copy = NULL;
    if (how == EXCHANGE_OK) {
        copy = need(len);
        if (len)
            memcpy(copy, data, len);
    }
    r->answer(status_of(how), copy, copy ? len : 0, r->asker, release, copy);
    free(r);
}

void server_lookup(uint64_t id, uint32_t rank)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, server.job->name, rank);
    struct server_event *e = event(SERVER_FOUND, rank);
    e->id = id;
    pmix_status_t status = PMIx_server_dmodex_request(&proc, on_found, e);
    if (status != PMIX_SUCCESS)
        on_found(status, NULL, 0, e);
}

char *server_setup(uint32_t rank, char ***env)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, server.job->name, rank);
    char **more = NULL;
    pmix_status_t status = PMIx_server_setup_fork(&proc, &more);
    for (char **m = more; m && *m; m++) {
        env_set(env, *m);
        free(*m);
    }
    free(more);
    return status == PMIX_SUCCESS
               ? NULL
               : need_format("PMIx server does not know rank %u: %s", rank, PMIx_Error_string(status));
}
