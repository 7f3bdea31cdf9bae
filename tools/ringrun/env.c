/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - see env.h. */
#include "env.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static bool of_a_launcher(const char *entry)
{
    static const char *const prefixes[] = {
        "PMIX_", "PMI_",   "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE=", "MPIRUN_", "PRTE_",
        "HYDI_", "HYDRA_", "OMPI_MCA_ess",     "OMPI_MCA_orte",       "PMI2_",   "OMPI_MCA_pmix"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (begins(entry, prefixes[i]))
            return !begins(entry, "PMIX_MCA_");
    return false;
}

static char **copy_if(char *const *from, bool (*wanted)(const char *))
{
    size_t count = 0, kept = 0;
    while (from[count])
        count++;
    char **env = need((count + 1) * sizeof *env);
    for (size_t i = 0; i < count; i++)
        if (wanted(from[i]))
            env[kept++] = need_text(from[i]);
    return env;
}

static bool not_of_a_launcher(const char *entry) { return !of_a_launcher(entry); }

static bool for_remote(const char *entry)
{
    return begins(entry, "RING_") || begins(entry, "PATH=") || begins(entry, "LD_LIBRARY_PATH=");
}

char **env_copy(char *const *from) { return copy_if(from, not_of_a_launcher); }
char **env_for_remote(char *const *from) { return copy_if(from, for_remote); }

void env_free(char **env)
{
    for (char **e = env; e && *e; e++)
        free(*e);
    free(env);
}

void env_set(char ***env, const char *entry)
{
    const char *equals = strchr(entry, '=');
    size_t name = equals ? (size_t)(equals - entry) + 1 : strlen(entry), count = 0;
    for (; (*env)[count]; count++) {
        if (strncmp((*env)[count], entry, name) == 0) {
            free((*env)[count]);
            (*env)[count] = need_text(entry);
            return;
        }
    }
    *env = need_more(*env, (count + 2) * sizeof **env);
    (*env)[count] = need_text(entry);
    (*env)[count + 1] = NULL;
}

const char *env_get(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}
