/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[RI_ERROR_MAX];

const char *ring_status_str(ring_status_t status)
{
    switch (status) {
#define X(name, value, text) \
    case name:               \
        return text;
        RING_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *ri_error_get(void) { return sentence; }

/* The arguments may point into the sentence itself, so it is written beside and copied. */
__attribute__((format(printf, 1, 0))) static void keep(const char *format, va_list args)
{
    char text[RI_ERROR_MAX];
    vsnprintf(text, sizeof text, format, args);
    memcpy(sentence, text, sizeof sentence);
}

ring_status_t ri_fail(ring_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep(format, args);
    va_end(args);
    return status;
}

static ring_status_t status_of(int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE:
        return RING_ERR_LIMIT;
    case ENOMEM:
        return RING_ERR_NOMEM;
    default:
        return RING_ERR_SYSTEM;
    }
}

ring_status_t ri_fail_errno(const char *format, ...)
{
    const int error = errno;
    char what[RI_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return ri_fail(status_of(error), "%s: %s", what, strerror(error));
}
