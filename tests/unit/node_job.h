/* SPDX-License-Identifier: Apache-2.0 */
/* node_job.h - ranks of one node for tests: as threads on one mapping, or as processes that share it. */
#ifndef NODE_JOB_H
#define NODE_JOB_H

#include "tests/unit/node_task.h"

struct seen { /* what a rank was told */
    _Atomic uint32_t mismatches, stalls;
    uint32_t peer;
    struct ri_call mine, theirs;
};

struct job {
    uint32_t size;
    void *base;
    size_t bytes;
    int32_t pids[RANKS];
    bool one_process;
    int cma;
    struct ri_patience patience;
    ri_abort_word abort;
    uint64_t seed;
    size_t most;
    int tasks;
    uint64_t timeout;
    struct seen seen[RANKS];
    _Atomic uint32_t turn;
    int heap_fd[RANKS];
    _Atomic uint32_t heaps_shown, heaps_mapped;
};

void job_begin(struct job *job, uint32_t size);
void job_end(struct job *job);

/* Every rank's life at the same time, until all have ended; a failure of one is a failure of the test. */
void run_threads(struct job *job, void (*life)(struct job *job, uint32_t rank));
void run_processes(struct job *job, void (*life)(struct job *job, uint32_t rank));

/* Within a life. */
struct ri_node *open_rank(struct job *job, uint32_t rank);
void map_heaps(struct job *job, uint32_t rank, struct ri_heap_view *views);
void set_way(struct ri_node *node, const struct job *job, const struct task *t);
void run_task(struct ri_node *node, const struct job *job, const struct task *t, uint32_t rank);
void live(struct job *job, uint32_t rank);

#endif
