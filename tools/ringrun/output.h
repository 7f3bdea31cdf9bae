/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - what the ranks have written, and ringrun's own sentences, on their way to standard output and error.
 *
 * Pieces are written whole and in order; when output and error are the same file there is one queue for both, so that
 * nothing is torn.  A reader that is slow never blocks ringrun: it is only written what fits.  (O_NONBLOCK is not set:
 * it would change the file for everybody who shares it.) */
#ifndef RINGRUN_OUTPUT_H
#define RINGRUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece;

struct sink {
    struct piece *first, **last;
    int broken; /* errno of the write that failed; later pieces are dropped */
};

struct output {
    struct sink sinks[2];
    bool same;      /* everything goes through sinks[0] */
    uint64_t *owed; /* bytes written (or dropped) for each agent, to be given back as credit */
};

void output_init(struct output *o, uint32_t agents);
void output_free(struct output *o);
/* which: 1 or 2.  agent: who gets the credit. */
void output_put(struct output *o, uint32_t which, uint32_t agent, const void *data, size_t len);
/* A sentence of ringrun's own: "ringrun: " is put in front. */
void output_say(struct output *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The descriptor that sink 0 or 1 waits for; -1: nothing to write. */
int output_fd(const struct output *o, int sink);
void output_write(struct output *o, int sink);
bool output_empty(const struct output *o);
void output_drop(struct output *o);

#endif
