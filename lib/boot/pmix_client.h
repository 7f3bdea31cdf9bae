/* SPDX-License-Identifier: Apache-2.0 */
/* pmix_client.h - this process as a PMIx client: one PMIx_Init for all communicators, kept until the process ends, and
 * the few requests that the bootstrap makes, each with a deadline (PMIx's own blocking calls have none). */
#ifndef RI_PMIX_CLIENT_H
#define RI_PMIX_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <pmix.h>
#include <ring/ring.h>

/* Who we are; the same for every caller in the process. */
struct ri_pmix_job {
    pmix_proc_t me;
    uint32_t size;
};
ring_status_t ri_pmix_start(uint64_t deadline, struct ri_pmix_job *job_out);

/* A request under way.  Its memory is shared with PMIx, which may answer long after the caller has given up. */
struct ri_pmix_ask;

ring_status_t ri_pmix_put(const char *key, const void *bytes, size_t len);
ring_status_t ri_pmix_commit(void);

/* All ranks of the job; brings everybody's data here. */
ring_status_t ri_pmix_fence(const pmix_proc_t *me, struct ri_pmix_ask **ask_out);
/* What `rank` (PMIX_RANK_WILDCARD: the job) has under key.  soon: from where that rank is, and not waiting for it to be
 * put for longer than a second (Slurm answers nothing across nodes to PMIX_IMMEDIATE, so that is not used). */
ring_status_t ri_pmix_get(const pmix_proc_t *me, pmix_rank_t rank, const char *key, bool soon,
                          struct ri_pmix_ask **ask_out);

/* RING_ERR_TIMEOUT: no answer yet. Otherwise RING_OK, and *status_out is the answer. */
ring_status_t ri_pmix_wait(struct ri_pmix_ask *ask, uint64_t deadline, pmix_status_t *status_out);
/* After ri_pmix_wait said PMIX_SUCCESS to a get: what came. */
const void *ri_pmix_bytes(const struct ri_pmix_ask *ask, size_t *len_out);
void ri_pmix_drop(struct ri_pmix_ask *ask); /* NULL is fine */

/* The sentence for a request that PMIx refused. */
ring_status_t ri_pmix_fail(const char *what, pmix_status_t status);

#endif
