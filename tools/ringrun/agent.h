/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - ringrun's representative on one host. */
#ifndef RINGRUN_AGENT_H
#define RINGRUN_AGENT_H

#include "ranks.h"

/* Serve ringrun over the two descriptors until it says END or is gone; then the process ends.  `original`: what ranks
 * get back.  Everything else that is open, but standard error, is closed. */
_Noreturn void agent_run(int in, int out, const struct original *original);

#endif
