/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - see channel.h. */
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char magic[] = "\x01ringrun-agent\x01\n";
enum { MAGIC = sizeof magic - 1, HEAD = 8, READ_AT_ONCE = 256 << 10 };

static void prepare(int fd)
{
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void channel_init(struct channel *c, int in, int out, bool awaits_magic)
{
    *c = (struct channel){.in = in, .out = out, .awaits_magic = awaits_magic};
    prepare(in);
    prepare(out);
}

void channel_close(struct channel *c)
{
    if (c->in >= 0)
        close(c->in);
    if (c->out >= 0 && c->out != c->in)
        close(c->out);
    c->in = c->out = -1;
    c->ended = true;
    bytes_free(&c->rx);
    bytes_free(&c->tx);
}

void channel_send_magic(struct channel *c) { put_raw(&c->tx, magic, MAGIC); }

struct bytes *channel_begin(struct channel *c, uint32_t type, size_t *mark_out)
{
    if (c->tx_done && c->tx_done == c->tx.len) {
        bytes_drop(&c->tx, c->tx_done);
        c->tx_done = 0;
    }
    *mark_out = c->tx.len;
    put_u32(&c->tx, 0);
    put_u32(&c->tx, type);
    return &c->tx;
}

void channel_end(struct channel *c, size_t mark)
{
    size_t len = c->tx.len - mark - HEAD;
    for (int i = 0; i < 4; i++)
        c->tx.data[mark + (size_t)i] = (uint8_t)(len >> (8 * i));
}

bool channel_wants_write(const struct channel *c) { return c->out >= 0 && c->tx_done < c->tx.len; }

void channel_flush(struct channel *c)
{
    while (channel_wants_write(c)) {
        ssize_t n = write(c->out, c->tx.data + c->tx_done, c->tx.len - c->tx_done);
        if (n > 0) {
            c->tx_done += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            break;
        } else {
            c->tx_done = c->tx.len; /* the reading side says that it is gone; the other direction may still hold news */
        }
    }
    if (c->tx_done > c->tx.len / 2) {
        bytes_drop(&c->tx, c->tx_done);
        c->tx_done = 0;
    }
}

void channel_fill(struct channel *c)
{
    bytes_drop(&c->rx, c->rx_done);
    c->rx_done = 0;
    for (size_t got = 0; got < READ_AT_ONCE && !c->ended && c->in >= 0;) {
        bytes_reserve(&c->rx, 64 << 10);
        ssize_t n = read(c->in, c->rx.data + c->rx.len, c->rx.cap - c->rx.len);
        if (n > 0) {
            c->rx.len += (size_t)n;
            got += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            break;
        } else {
            c->ended = true;
        }
    }
}

/* Skip what a login shell printed; true when the magic has been found. */
static bool past_magic(struct channel *c)
{
    if (!c->awaits_magic)
        return true;
    uint8_t *found = c->rx.len ? memmem(c->rx.data, c->rx.len, magic, MAGIC) : NULL;
    if (found) {
        c->rx_done = (size_t)(found - c->rx.data) + MAGIC;
        c->awaits_magic = false;
        return true;
    }
    size_t keep = c->rx.len < MAGIC ? c->rx.len : MAGIC - 1;
    c->noise += c->rx.len - keep;
    bytes_drop(&c->rx, c->rx.len - keep);
    if (c->noise > CHANNEL_NOISE_MAX)
        c->ended = true;
    return false;
}

bool channel_next(struct channel *c, uint32_t *type_out, struct cursor *body_out)
{
    if (!past_magic(c) || c->rx.len - c->rx_done < HEAD)
        return false;
    struct cursor head = {.at = c->rx.data + c->rx_done, .end = c->rx.data + c->rx.len};
    uint32_t len = get_u32(&head), type = get_u32(&head);
    if (len > CHANNEL_BODY_MAX) {
        c->ended = true;
        c->rx_done = c->rx.len;
        return false;
    }
    if ((size_t)(head.end - head.at) < len)
        return false;
    *type_out = type;
    *body_out = (struct cursor){.at = head.at, .end = head.at + len};
    c->rx_done += HEAD + len;
    return true;
}
