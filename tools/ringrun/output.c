/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - see output.h. */
#include "output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"

struct piece {
    struct piece *next;
    int fd;
    uint32_t agent;
    size_t len, done;
    char data[];
};

#define NOBODY UINT32_MAX
enum { AT_ONCE = 256 << 10 };

void output_init(struct output *o, uint32_t agents)
{
    struct stat out, err;
    *o = (struct output){.owed = need(agents * sizeof *o->owed)};
    for (int i = 0; i < 2; i++)
        o->sinks[i].last = &o->sinks[i].first;
    o->same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
              out.st_ino == err.st_ino;
}

static void pop(struct output *o, struct sink *s)
{
    struct piece *p = s->first;
    s->first = p->next;
    if (!s->first)
        s->last = &s->first;
    if (p->agent != NOBODY)
        o->owed[p->agent] += p->len;
    free(p);
}

void output_drop(struct output *o)
{
    for (int i = 0; i < 2; i++)
        while (o->sinks[i].first)
            pop(o, &o->sinks[i]);
}

void output_free(struct output *o)
{
    output_drop(o);
    free(o->owed);
}

static void append(struct output *o, int fd, uint32_t agent, const void *data, size_t len)
{
    struct sink *s = &o->sinks[o->same ? 0 : fd - 1];
    if (s->broken) {
        if (agent != NOBODY)
            o->owed[agent] += len;
        return;
    }
    struct piece *p = need(sizeof *p + len);
    p->fd = fd;
    p->agent = agent;
    p->len = len;
    memcpy(p->data, data, len);
    *s->last = p;
    s->last = &p->next;
}

void output_put(struct output *o, uint32_t which, uint32_t agent, const void *data, size_t len)
{
    if (len)
        append(o, which == 2 ? STDERR_FILENO : STDOUT_FILENO, agent, data, len);
}

void output_say(struct output *o, const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        return;
    size_t size;
    char *line = say_line(&size, "%s", text);
    append(o, STDERR_FILENO, NOBODY, line, size);
    free(line);
    free(text);
}

int output_fd(const struct output *o, int sink) { return o->sinks[sink].first ? o->sinks[sink].first->fd : -1; }

bool output_empty(const struct output *o) { return !o->sinks[0].first && !o->sinks[1].first; }

static bool writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

/* As much as surely fits: a pipe or terminal that is ready takes PIPE_BUF without blocking, a file takes anything. */
static ssize_t write_some(int fd, const char *data, size_t len)
{
    struct stat st;
    mode_t mode = fstat(fd, &st) == 0 ? st.st_mode : S_IFIFO;
    if (S_ISSOCK(mode))
        return send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!S_ISREG(mode) && len > PIPE_BUF)
        len = PIPE_BUF;
    return write(fd, data, len);
}

void output_write(struct output *o, int sink)
{
    struct sink *s = &o->sinks[sink];
    for (size_t written = 0; s->first && written < AT_ONCE && writable(s->first->fd);) {
        struct piece *p = s->first;
        ssize_t n = write_some(p->fd, p->data + p->done, p->len - p->done);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            s->broken = errno;
            while (s->first)
                pop(o, s);
            break;
        }
        if (n < 0)
            break;
        p->done += (size_t)n;
        written += (size_t)n;
        if (p->done == p->len)
            pop(o, s);
    }
}
