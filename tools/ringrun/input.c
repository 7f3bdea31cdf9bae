/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - see input.h. */
#include "input.h"

#include <errno.h>
#include <unistd.h>

#include "protocol.h"

void input_open(struct input *in) { *in = (struct input){.open = true}; }
void input_close(struct input *in) { in->open = false; }

static bool in_background(void)
{
    pid_t front = tcgetpgrp(STDIN_FILENO);
    return front >= 0 && front != getpgrp();
}

int input_fd(const struct input *in)
{
    return in->open && in->under_way < INPUT_WINDOW && !in_background() ? STDIN_FILENO : -1;
}

ssize_t input_read(struct input *in, void *buf, size_t cap)
{
    ssize_t n = read(STDIN_FILENO, buf, cap);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    if (n <= 0) {
        in->open = false;
        return 0;
    }
    in->under_way += (size_t)n;
    return n;
}

void input_taken(struct input *in, uint32_t len)
{
    if (len == INPUT_CLOSED)
        in->open = false;
    else
        in->under_way = in->under_way > len ? in->under_way - len : 0;
}
