/* SPDX-License-Identifier: Apache-2.0 */
/* limit.h - asking for room before it is needed: a process that has run out of descriptors can say little. */
#ifndef RI_LIMIT_H
#define RI_LIMIT_H

#include <stdint.h>
#include <ring/ring.h>

/* Make sure that `more` files can be opened beside those that are; raises the soft limit (RLIMIT_NOFILE) when it must.
 * `why` goes into the sentence, e.g. "for 24 ranks".  RING_ERR_LIMIT says what is needed. */
ring_status_t ri_limit_files(uint32_t more, const char *why);

#endif
