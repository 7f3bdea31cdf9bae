/* SPDX-License-Identifier: Apache-2.0 */
/* api.c - the exported functions: validate, delegate. */
#include <ring/ring.h>

#include "lib/base/error.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *ring_version(void) { return VERSION(RING_VERSION_MAJOR, RING_VERSION_MINOR, RING_VERSION_PATCH); }

const char *ring_last_error(void) { return ri_error_get(); }
