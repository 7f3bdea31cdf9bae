/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - see stream.h. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "say.h"

bool stream_open(struct stream *s, uint32_t which, uint32_t rank, bool tagged, int *write_end_out)
{
    int ends[2];
    *s = (struct stream){.fd = -1, .which = which};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    s->fd = ends[0];
    *write_end_out = ends[1];
    if (tagged)
        snprintf(s->tag, sizeof s->tag, "[%u] ", rank);
    return true;
}

void stream_close(struct stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    bytes_free(&s->line);
}

static void send_raw(struct stream *s, struct channel *to, int64_t *credit, const void *data, size_t len)
{
    size_t mark;
    struct bytes *b = channel_begin(to, MSG_OUTPUT, &mark);
    put_u32(b, s->which);
    put_raw(b, data, len);
    channel_end(to, mark);
    *credit -= (int64_t)len;
}

/* Send the first `len` bytes of the line buffer: whole lines, each with its tag; `end` closes the last one. */
static void send_lines(struct stream *s, struct channel *to, int64_t *credit, size_t len, bool end)
{
    size_t mark, tag = strlen(s->tag);
    struct bytes *b = channel_begin(to, MSG_OUTPUT, &mark);
    put_u32(b, s->which);
    size_t before = b->len;
    const uint8_t *at = s->line.data, *stop = at + len;
    while (at < stop) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(stop - at));
        const uint8_t *next = newline ? newline + 1 : stop;
        put_raw(b, s->tag, tag);
        put_raw(b, at, (size_t)(next - at));
        at = next;
    }
    if (end)
        put_raw(b, "\n", 1);
    *credit -= (int64_t)(b->len - before);
    channel_end(to, mark);
    bytes_drop(&s->line, len);
}

static void take(struct stream *s, struct channel *to, int64_t *credit, const uint8_t *data, size_t len)
{
    if (!s->tag[0]) {
        send_raw(s, to, credit, data, len);
        return;
    }
    const uint8_t *newline = memrchr(data, '\n', len);
    size_t whole = newline ? s->line.len + (size_t)(newline + 1 - data) : 0;
    put_raw(&s->line, data, len);
    if (whole)
        send_lines(s, to, credit, whole, false);
    if (s->line.len >= LINE_MAX_BYTES)
        send_lines(s, to, credit, LINE_MAX_BYTES, true);
}

static void finish_line(struct stream *s, struct channel *to, int64_t *credit)
{
    if (s->line.len)
        send_lines(s, to, credit, s->line.len, true);
}

void stream_pump(struct stream *s, struct channel *to, int64_t *credit)
{
    uint8_t chunk[CHUNK];
    ssize_t n = read(s->fd, chunk, sizeof chunk);
    if (n > 0) {
        s->left = s->left > (size_t)n ? s->left - (size_t)n : 0;
        take(s, to, credit, chunk, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        finish_line(s, to, credit);
        stream_close(s);
    }
}

void stream_last_call(struct stream *s)
{
    int ready = 0;
    if (s->fd >= 0 && ioctl(s->fd, FIONREAD, &ready) == 0 && ready > 0)
        s->left = (size_t)ready;
    s->last_call = true;
}

bool stream_drained(struct stream *s, struct channel *to, int64_t *credit)
{
    while (s->fd >= 0 && s->left && *credit > 0)
        stream_pump(s, to, credit);
    if (s->fd >= 0 && s->left)
        return false;
    finish_line(s, to, credit);
    return true;
}
