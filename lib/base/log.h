/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - lines on standard error for people, at the level of RING_LOG.
 *
 * A line is one write(2), so lines of several threads and ranks do not mix.  Errors are not logged when they are also
 * returned: the caller decides.  Nothing here allocates or waits. */
#ifndef RI_LOG_H
#define RI_LOG_H

#include <stdint.h>

enum ri_log_level { RI_LOG_ERROR, RI_LOG_WARN, RI_LOG_INFO, RI_LOG_DEBUG };

void ri_log_set_level(enum ri_log_level level);
int ri_log_on(enum ri_log_level level);

/* The rank that lines of this thread are marked with; UINT32_MAX for none. */
void ri_log_set_rank(uint32_t rank);

void ri_log(enum ri_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
