/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - what a rank can ask PMIx about its job: sizes, who is where. For server.c only. */
#ifndef RINGRUN_FACTS_H
#define RINGRUN_FACTS_H

#include <pmix_server.h>

#include "protocol.h"

/* The host's name as PMIx sees it: without the characters that its node maps cannot hold; unique in the job. Allocated.
 */
char *pmix_host_name(const struct job *job, uint32_t place);
/* Register the namespace and the ranks of this host. */
pmix_status_t pmix_register_job(const struct job *job);

#endif
