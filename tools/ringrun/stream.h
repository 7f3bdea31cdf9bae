/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - standard output or error of one rank, on its way from the pipe into OUTPUT messages; with tags, line by
 * line.
 *
 * Memory: with tags at most one line of LINE_MAX_BYTES, else nothing.  Reading stops when there is no credit. */
#ifndef RINGRUN_STREAM_H
#define RINGRUN_STREAM_H

#include "channel.h"
#include "protocol.h"

struct stream {
    int fd;         /* reading end, non-blocking; -1: closed */
    uint32_t which; /* 1 or 2 */
    char tag[16];   /* "[3] "; "" for none */
    struct bytes line;
    bool last_call; /* the rank is gone: only `left` bytes are its own */
    size_t left;
};

/* *write_end_out is for the rank.  false: errno says why. */
bool stream_open(struct stream *s, uint32_t which, uint32_t rank, bool tagged, int *write_end_out);
void stream_close(struct stream *s);
/* Read once and send what can be sent; *credit goes down by the bytes sent. */
void stream_pump(struct stream *s, struct channel *to, int64_t *credit);
/* The rank has been reaped: what is in the pipe now is all of its output (others may go on writing). */
void stream_last_call(struct stream *s);
/* After the last call: all has been sent.  Ends an unfinished line. */
bool stream_drained(struct stream *s, struct channel *to, int64_t *credit);

#endif
