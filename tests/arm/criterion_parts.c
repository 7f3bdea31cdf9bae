/* SPDX-License-Identifier: Apache-2.0 */
/* criterion_parts.c - the rest of what an assertion calls in libcriterion, where that library is not there.
 *
 * plain_runner.c has the runner.  An assertion's own message is cut short to where it stands; a message that the test
 * gives is printed whole. */
#include <criterion/criterion.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/reduce/reduce.h"

struct criterion_options criterion_options;

int cr_asprintf(char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vasprintf(out, format, args);
    va_end(args);
    return length;
}

void cr_asprintf_free(char *text) { free(text); }

char *cr_translate_assert_msg(int index, ...)
{
    (void)index;
    return strdup("an assertion failed");
}

void cri_asserts_passed_incr(void) {}

/* Of lib/api.c, which needs all of the library. */
size_t ring_dtype_size(ring_dtype_t dtype) { return ri_dtype_size(dtype); }
