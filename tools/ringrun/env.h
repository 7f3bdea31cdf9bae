/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - environments as lists of NAME=VALUE: allocated, ended by NULL. */
#ifndef RINGRUN_ENV_H
#define RINGRUN_ENV_H

/* A copy of `from` without what another launcher left (PMIX_*, OMPI_COMM_WORLD_* ...): a rank must not take itself for
 * part of that job. */
char **env_copy(char *const *from);
void env_free(char **env);
void env_set(char ***env, const char *entry); /* NAME=VALUE */
const char *env_get(char *const *env, const char *name);

/* What ranks on other hosts get from here: PATH, LD_LIBRARY_PATH and RING_*. */
char **env_for_remote(char *const *from);

#endif
