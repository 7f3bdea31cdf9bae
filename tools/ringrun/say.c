/* SPDX-License-Identifier: Apache-2.0 */
/* say.c - see say.h. */
#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void out_of_memory(void)
{
    static const char text[] = "ringrun: out of memory\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
        /* nobody left to tell */
    }
    _exit(EXIT_LAUNCHER);
}

void *need(size_t bytes)
{
    void *fresh = calloc(1, bytes ? bytes : 1);
    if (!fresh)
        out_of_memory();
    return fresh;
}

void *need_more(void *old, size_t bytes)
{
    void *fresh = realloc(old, bytes ? bytes : 1);
    if (!fresh)
        out_of_memory();
    return fresh;
}

char *need_text(const char *text)
{
    size_t len = strlen(text) + 1;
    return memcpy(need(len), text, len);
}

static __attribute__((format(printf, 1, 0))) char *format_text(const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0)
        out_of_memory();
    return text;
}

char *need_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    return text;
}

static __attribute__((format(printf, 2, 0))) char *line(size_t *len_out, const char *format, va_list args)
{
    char *sentence = format_text(format, args);
    char *whole = need_format("ringrun: %s\n", sentence);
    free(sentence);
    if (len_out)
        *len_out = strlen(whole);
    return whole;
}

char *say_line(size_t *len_out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *whole = line(len_out, format, args);
    va_end(args);
    return whole;
}

static __attribute__((format(printf, 1, 0))) void write_line(const char *format, va_list args)
{
    size_t len;
    char *whole = line(&len, format, args);
    if (write(STDERR_FILENO, whole, len) < 0) {
        /* nobody left to tell */
    }
    free(whole);
}

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
    exit(EXIT_LAUNCHER);
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
