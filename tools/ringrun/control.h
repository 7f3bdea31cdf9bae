/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - the job from ringrun's side: agents started, messages moved, the end found. */
#ifndef RINGRUN_CONTROL_H
#define RINGRUN_CONTROL_H

#include "options.h"
#include "ranks.h"

/* Run the job; returns the exit code. */
int control_run(struct options *options, const struct original *original);

#endif
