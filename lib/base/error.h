/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - how a failure is told: a status code passed up, and one sentence for people, written where it was seen.
 *
 * The sentence is kept per thread (ring_last_error()); lib/comm copies it into the communicator.  Only the place that
 * detects an error calls ri_fail(); everybody else passes the status up unchanged. */
#ifndef RI_ERROR_H
#define RI_ERROR_H

#include <stdarg.h>
#include <ring/ring.h>

enum { RI_ERROR_MAX = 512 };

/* Keep the sentence for this thread and return status, so that a detector can write "return ri_fail(...)". */
ring_status_t ri_fail(ring_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As ri_fail(RING_ERR_SYSTEM, "what: strerror(errno)"), but EMFILE, ENFILE and ENOMEM get their own codes. */
ring_status_t ri_fail_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));

const char *ri_error_get(void);

#endif
