/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - ringrun's standard input, read for rank 0 no faster than rank 0 takes it. */
#ifndef RINGRUN_INPUT_H
#define RINGRUN_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct input {
    bool open;
    size_t under_way; /* bytes that rank 0 has not taken */
};

void input_open(struct input *in);
void input_close(struct input *in);
/* The descriptor to wait for; -1: not now.  A terminal is left alone while ringrun is in the background. */
int input_fd(const struct input *in);
/* Bytes read; 0: the end; -1: nothing now. */
ssize_t input_read(struct input *in, void *buf, size_t cap);
void input_taken(struct input *in, uint32_t len);

#endif
