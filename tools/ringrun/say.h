/* SPDX-License-Identifier: Apache-2.0 */
/* say.h - what ringrun tells its user (one line on standard error, "ringrun: sentence"), and memory that is there or
 * ends the program.  Any thread. */
#ifndef RINGRUN_SAY_H
#define RINGRUN_SAY_H

#include <stddef.h>
#include <stdint.h>

/* Exit codes that are ringrun's own; the same as those of timeout(1), env(1) and the shells. */
enum { EXIT_TIMEOUT = 124, EXIT_LAUNCHER = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNALED = 128 };

/* The line as allocated text with its newline; *len_out may be NULL. */
char *say_line(size_t *len_out, const char *format, ...) __attribute__((format(printf, 2, 3)));

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

void *need(size_t bytes); /* zeroed; never NULL; free() it */
void *need_more(void *old, size_t bytes);
char *need_text(const char *text);
char *need_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t now_ms(void); /* monotonic */

#endif
