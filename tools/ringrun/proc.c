/* SPDX-License-Identifier: Apache-2.0 */
/* proc.c - see proc.h. */
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FLAG_EXITING = 4 }; /* PF_EXITING of the kernel, set first thing in do_exit() */

struct stat_line {
    char state;
    int parent;
    unsigned flags;
};

static bool read_stat(pid_t pid, struct stat_line *line_out)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    char *after = strrchr(text, ')'); /* the name before it may hold anything */
    return after &&
           sscanf(after, ") %c %d %*d %*d %*d %*d %u", &line_out->state, &line_out->parent, &line_out->flags) == 3;
}

pid_t proc_parent(pid_t pid)
{
    struct stat_line line;
    return read_stat(pid, &line) ? line.parent : -1;
}

bool proc_ends(pid_t pid)
{
    struct stat_line line;
    return pid <= 0 || !read_stat(pid, &line) || line.state == 'Z' || line.state == 'X' || (line.flags & FLAG_EXITING);
}
