/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - see facts.h. */
#include "facts.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

char *pmix_host_name(const struct job *job, uint32_t place)
{
    const char *host = job->places[place].host;
    if (!strpbrk(host, ":%@"))
        return need_text(host);
    char *name = need_format("%s.n%u", host, place);
    for (char *p = name; (p = strpbrk(p, ":%@")) != NULL; p++)
        *p = '_';
    return name;
}

/* PMIx answers on its own thread. */
struct answer {
    sem_t ready;
    pmix_status_t status;
};

static void answered(pmix_status_t status, void *data)
{
    struct answer *a = data;
    a->status = status;
    sem_post(&a->ready);
}

static pmix_status_t wait_for(struct answer *a, pmix_status_t asked)
{
    if (asked == PMIX_SUCCESS) {
        while (sem_wait(&a->ready) != 0) {
            /* a signal; go on */
        }
        asked = a->status;
    }
    sem_destroy(&a->ready);
    return asked == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : asked;
}

/* A growing list of facts. */
struct facts {
    pmix_info_t *list;
    size_t count, cap;
};

static struct facts facts_new(size_t cap)
{
    struct facts f = {.cap = cap};
    PMIX_INFO_CREATE(f.list, cap);
    return f;
}

static void fact(struct facts *f, const char *key, const void *value, pmix_data_type_t type)
{
    if (f->count == f->cap)
        die("too many facts about the job");
    PMIX_INFO_LOAD(&f->list[f->count], key, value, type);
    f->count++;
}

static void number(struct facts *f, const char *key, uint32_t value) { fact(f, key, &value, PMIX_UINT32); }

/* The hosts, and the ranks of each, as the two maps that PMIx wants. */
static pmix_status_t maps(struct facts *f, const struct job *job)
{
    struct bytes nodes = {0}, ranks = {0};
    for (uint32_t i = 0; i < job->place_count; i++) {
        const struct place *p = &job->places[i];
        char *name = pmix_host_name(job, i);
        if (i) {
            put_raw(&nodes, ",", 1);
            put_raw(&ranks, ";", 1);
        }
        put_raw(&nodes, name, strlen(name));
        free(name);
        for (uint32_t r = p->first; r < p->first + p->count; r++) {
            char *text = need_format(r == p->first ? "%u" : ",%u", r);
            put_raw(&ranks, text, strlen(text));
            free(text);
        }
    }
    put_raw(&nodes, "", 1);
    put_raw(&ranks, "", 1);
    char *node_map = NULL, *rank_map = NULL;
    pmix_status_t status = PMIx_generate_regex((char *)nodes.data, &node_map);
    if (status == PMIX_SUCCESS)
        status = PMIx_generate_ppn((char *)ranks.data, &rank_map);
    if (status == PMIX_SUCCESS) {
        fact(f, PMIX_NODE_MAP, node_map, PMIX_REGEX);
        fact(f, PMIX_PROC_MAP, rank_map, PMIX_REGEX);
    }
    free(node_map);
    free(rank_map);
    bytes_free(&nodes);
    bytes_free(&ranks);
    return status;
}

static void local_peers(struct facts *f, const struct place *p)
{
    struct bytes list = {0};
    for (uint32_t r = p->first; r < p->first + p->count; r++) {
        char *text = need_format(r == p->first ? "%u" : ",%u", r);
        put_raw(&list, text, strlen(text));
        free(text);
    }
    put_raw(&list, "", 1);
    fact(f, PMIX_LOCAL_PEERS, list.data, PMIX_STRING);
    bytes_free(&list);
}

static void rank_facts(struct facts *f, const struct job *job, uint32_t place, uint32_t rank, char *host)
{
    struct facts own = facts_new(9);
    pmix_rank_t number_of = rank;
    uint16_t local = (uint16_t)(rank - job->places[place].first);
    fact(&own, PMIX_RANK, &number_of, PMIX_PROC_RANK); /* first, by PMIx's rule */
    fact(&own, PMIX_GLOBAL_RANK, &number_of, PMIX_PROC_RANK);
    fact(&own, PMIX_APP_RANK, &number_of, PMIX_PROC_RANK);
    fact(&own, PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    fact(&own, PMIX_NODE_RANK, &local, PMIX_UINT16);
    fact(&own, PMIX_HOSTNAME, host, PMIX_STRING);
    number(&own, PMIX_NODEID, place);
    number(&own, PMIX_APPNUM, 0);
    number(&own, PMIX_REINCARNATION, 0);
    pmix_data_array_t array = {.type = PMIX_INFO, .size = own.count, .array = own.list};
    fact(f, PMIX_PROC_INFO_ARRAY, &array, PMIX_DATA_ARRAY); /* copies */
    PMIX_INFO_FREE(own.list, own.cap);
}

static pmix_status_t all_facts(struct facts *f, const struct job *job)
{
    const struct place *here = &job->places[job->here];
    pmix_rank_t lowest = here->first;
    fact(f, PMIX_JOBID, job->name, PMIX_STRING);
    number(f, PMIX_JOB_SIZE, job->size);
    number(f, PMIX_UNIV_SIZE, job->size);
    number(f, PMIX_MAX_PROCS, job->size);
    number(f, PMIX_APP_SIZE, job->size);
    number(f, PMIX_JOB_NUM_APPS, 1);
    number(f, PMIX_NUM_NODES, job->place_count);
    number(f, PMIX_LOCAL_SIZE, here->count);
    number(f, PMIX_NODE_SIZE, here->count);
    fact(f, PMIX_LOCALLDR, &lowest, PMIX_PROC_RANK);
    local_peers(f, here);
    pmix_status_t status = maps(f, job);
    for (uint32_t place = 0; place < job->place_count; place++) {
        char *host = pmix_host_name(job, place);
        const struct place *p = &job->places[place];
        for (uint32_t rank = p->first; rank < p->first + p->count; rank++)
            rank_facts(f, job, place, rank, host);
        free(host);
    }
    return status;
}

static pmix_status_t register_ranks(const struct job *job)
{
    const struct place *here = &job->places[job->here];
    pmix_status_t status = PMIX_SUCCESS;
    for (uint32_t i = 0; i < here->count && status == PMIX_SUCCESS; i++) {
        pmix_proc_t proc;
        PMIX_LOAD_PROCID(&proc, job->name, here->first + i);
        struct answer a = {.status = PMIX_SUCCESS};
        sem_init(&a.ready, 0, 0);
        status = wait_for(&a, PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, answered, &a));
    }
    return status;
}

pmix_status_t pmix_register_job(const struct job *job)
{
    struct facts f = facts_new(16 + (size_t)job->size);
    pmix_status_t status = all_facts(&f, job);
    if (status == PMIX_SUCCESS) {
        pmix_nspace_t nspace;
        PMIX_LOAD_NSPACE(nspace, job->name);
        struct answer a = {.status = PMIX_SUCCESS};
        sem_init(&a.ready, 0, 0);
        int local = (int)job->places[job->here].count;
        status = wait_for(&a, PMIx_server_register_nspace(nspace, local, f.list, f.count, answered, &a));
    }
    PMIX_INFO_FREE(f.list, f.cap);
    return status == PMIX_SUCCESS ? register_ranks(job) : status;
}
