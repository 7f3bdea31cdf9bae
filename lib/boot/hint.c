/* SPDX-License-Identifier: Apache-2.0 */
/* hint.c - does the environment say that this process is one of several tasks of a launcher?
 *
 * A size of 1 is no hint (a job of one is what such a launcher means), nor is an allocation without tasks (SLURM_JOB_ID
 * alone): only what would make several processes each believe to be rank 0 of 1. */
#include "lib/boot/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In order of how telling they are. A rank without a size is a hint; size is looked at first. */
static const struct pair {
    const char *rank, *size;
} pairs[] = {
    {"PMIX_RANK", NULL},
    {"PMIX_NAMESPACE", NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMI_FD", "PMI_SIZE"},
    {"PMI_PORT", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {NULL, "SLURM_NTASKS"},
    {NULL, "WORLD_SIZE"},
};

static bool set(const char *name) { return name && getenv(name) && *getenv(name); }

static bool one(const char *text) { return !strcmp(text, "1"); }

static const char *telling(const struct pair *p)
{
    if (set(p->size))
        return one(getenv(p->size)) ? NULL : p->size;
    if (!set(p->rank))
        return NULL;
    /* sbatch's shell has SLURM_PROCID=0 and, with -n 1, SLURM_NTASKS=1. */
    if (!strcmp(p->rank, "SLURM_PROCID") && set("SLURM_NTASKS") && one(getenv("SLURM_NTASKS")))
        return NULL;
    return p->rank;
}

const char *ri_boot_launcher_hint(char *text, size_t cap)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *name = telling(&pairs[i]);
        if (name && !(pairs[i].rank == NULL && !strcmp(name, "SLURM_NTASKS") && set("SLURM_STEP_NUM_TASKS"))) {
            snprintf(text, cap, "%s=%.64s", name, getenv(name));
            return text;
        }
    }
    return NULL;
}
