/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - messages over a pair of descriptors, without ever blocking: the way between ringrun and one agent.
 *
 * A message is a 32-bit length, a 32-bit type and a body of that length.  Nothing secret or large waits here for long:
 * output and input are limited by credit (see protocol.h).  An agent begins with a magic text, because a remote login
 * shell may print something before it; whatever comes earlier is skipped. */
#ifndef RINGRUN_CHANNEL_H
#define RINGRUN_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

enum { CHANNEL_BODY_MAX = 64 << 20, CHANNEL_BLOB_MAX = CHANNEL_BODY_MAX - 4096, CHANNEL_NOISE_MAX = 64 << 10 };

struct channel {
    int in, out; /* -1 when closed; both non-blocking and close-on-exec; they belong to the channel */
    struct bytes rx, tx;
    size_t rx_done; /* bytes of rx that were taken as messages */
    size_t tx_done; /* bytes of tx that were written */
    size_t noise;   /* bytes skipped before the magic */
    bool awaits_magic;
    bool ended; /* the other side is gone, or sent nonsense: nothing more will come */
};

void channel_init(struct channel *c, int in, int out, bool awaits_magic);
void channel_close(struct channel *c);
void channel_send_magic(struct channel *c);

/* Begin a message, put its fields, end it. */
struct bytes *channel_begin(struct channel *c, uint32_t type, size_t *mark_out);
void channel_end(struct channel *c, size_t mark);

bool channel_wants_write(const struct channel *c);
void channel_flush(struct channel *c); /* writes what can be written now; a broken pipe drops the rest */
void channel_fill(struct channel *c);  /* reads what is there, up to a limit */
/* The next complete message: false when there is none (yet).  The body stays valid until the next fill. */
bool channel_next(struct channel *c, uint32_t *type_out, struct cursor *body_out);

#endif
