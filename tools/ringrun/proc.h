/* SPDX-License-Identifier: Apache-2.0 */
/* proc.h - two things that only /proc tells about a process. */
#ifndef RINGRUN_PROC_H
#define RINGRUN_PROC_H

#include <stdbool.h>
#include <sys/types.h>

/* -1: no such process. */
pid_t proc_parent(pid_t pid);
/* It is ending or has ended.  True before its descriptors are closed, so whoever sees its socket closed can ask. */
bool proc_ends(pid_t pid);

#endif
