/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - see plan.h. */
#include "plan.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "env.h"
#include "reach.h"
#include "say.h"

bool plan_is_local(const struct options *options, const char *host)
{
    return (!options->rsh || options->hosts.count == 0) && reach_is_here(host);
}

/* CPUs that this process may use. */
static uint32_t own_cpus(void)
{
    size_t bytes = CPU_ALLOC_SIZE(8192);
    cpu_set_t *set = need(bytes);
    int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 1;
    free(set);
    return count > 0 ? (uint32_t)count : 1;
}

static char *own_name(void)
{
    char name[HOST_NAME_MAX_BYTES + 1] = "";
    gethostname(name, sizeof name - 1);
    return need_text(name[0] ? name : "localhost");
}

/* All names of this host are one host. */
static void join_own_names(struct options *o, struct hosts *hosts)
{
    struct host *own = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        struct host *h = &hosts->list[i];
        if (!plan_is_local(o, h->name)) {
            hosts->list[kept++] = *h;
        } else if (!own) {
            own = &hosts->list[kept++];
            *own = *h;
        } else {
            own->slots = (own->slots ? own->slots : 1) + (h->slots ? h->slots : 1);
            free(h->name);
        }
    }
    hosts->count = kept;
    if (own) {
        free(own->name);
        own->name = own_name();
    }
}

static void place_ranks(struct options *o, struct job *job)
{
    struct hosts *hosts = &o->hosts;
    if (hosts->count == 0) {
        hosts->list = need(sizeof *hosts->list);
        hosts->count = 1;
        hosts->list[0] = (struct host){.name = own_name(), .slots = o->ranks ? o->ranks : own_cpus()};
    } else {
        join_own_names(o, hosts);
    }
    char *problem = hosts_place(hosts, o->ranks);
    if (problem)
        die("%s", problem);
    job->places = need(hosts->count * sizeof *job->places);
    for (size_t i = 0; i < hosts->count; i++) {
        const struct host *h = &hosts->list[i];
        if (h->ranks == 0)
            continue;
        job->places[job->place_count++] = (struct place){.host = h->name, .first = job->size, .count = h->ranks};
        job->size += h->ranks;
    }
}

/* Ranks here inherit the environment; what stands in the job goes on top of it, everywhere. */
static char **environment(const struct options *o)
{
    char **env = env_for_remote(environ);
    for (char **s = o->set; *s; s++)
        env_set(&env, *s);
    return env;
}

static char *working_folder(const struct options *o)
{
    char here[PATH_MAX];
    if (o->folder && o->folder[0] == '/')
        return need_text(o->folder);
    if (o->folder && !o->folder[0])
        die("--wdir is empty");
    if (!getcwd(here, sizeof here))
        die("the current folder cannot be found (%s); give --wdir", strerror(errno));
    return o->folder ? need_format("%s/%s", here, o->folder) : need_text(here);
}

/* Random, because who knows it is let in by the PMIx server (guard.h). */
static char *job_name(void)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        die("the kernel gives no random numbers: %s", strerror(errno));
    return need_format("ringrun-%d-%016llx%016llx", (int)getpid(), (unsigned long long)random[0],
                       (unsigned long long)random[1]);
}

static void check_size(const struct job *job)
{
    struct bytes b = {0};
    job_put(&b, job, 0);
    if (b.len > CHANNEL_BODY_MAX)
        die("arguments and environment are too long (%zu bytes)", b.len);
    bytes_free(&b);
}

void plan_make(struct options *options, struct job *job_out)
{
    *job_out = (struct job){.tag_output = options->tag_output, .argv = options->argv};
    place_ranks(options, job_out);
    job_out->name = job_name();
    job_out->folder = working_folder(options);
    job_out->env = environment(options);
    check_size(job_out);
}

void plan_free(struct job *job)
{
    free(job->places);
    free(job->name);
    free(job->folder);
    env_free(job->env);
}
