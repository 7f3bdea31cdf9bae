/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - from options to a job: where the ranks go, and what they get. */
#ifndef RINGRUN_PLAN_H
#define RINGRUN_PLAN_H

#include "options.h"
#include "protocol.h"

/* Ends the program with a sentence when the options do not go together. The job borrows argv. */
void plan_make(struct options *options, struct job *job_out);
void plan_free(struct job *job);
/* Without rsh: this host is meant. */
bool plan_is_local(const struct options *options, const char *host);

#endif
