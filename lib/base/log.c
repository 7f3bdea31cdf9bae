/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int threshold = RI_LOG_WARN;
static _Thread_local uint32_t rank_mark = UINT32_MAX;

void ri_log_set_level(enum ri_log_level level) { atomic_store_explicit(&threshold, (int)level, memory_order_relaxed); }

int ri_log_on(enum ri_log_level level)
{
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void ri_log_set_rank(uint32_t rank) { rank_mark = rank; }

static size_t head(char *line, size_t cap, enum ri_log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    int n = rank_mark == UINT32_MAX ? snprintf(line, cap, "libring: %s: ", names[level])
                                    : snprintf(line, cap, "libring: rank %u: %s: ", rank_mark, names[level]);
    return (size_t)n;
}

void ri_log(enum ri_log_level level, const char *format, ...)
{
    if (!ri_log_on(level))
        return;
    const int saved = errno;
    char line[1024];
    size_t n = head(line, sizeof line, level);
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    if (body > 0)
        n += (size_t)body < sizeof line - n - 1 ? (size_t)body : sizeof line - n - 2;
    line[n++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
    errno = saved;
}
