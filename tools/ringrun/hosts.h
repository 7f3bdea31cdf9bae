/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - which hosts, with how many ranks each: the host list (-H), the host file, and the placement of ranks.
 *
 *   list:  [user@]host[:slots], separated by commas; an IPv6 address stands in brackets: [fd00::1]:4
 *   file:  one host a line: host, host:slots or "host slots=N"; # begins a comment
 * A host that is named again gets its slots added up. */
#ifndef RINGRUN_HOSTS_H
#define RINGRUN_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host {
    char *name;     /* as it was given, without brackets */
    uint32_t slots; /* 0: was not said */
    uint32_t ranks; /* hosts_place() */
};

struct hosts {
    struct host *list;
    size_t count;
};

enum { HOST_NAME_MAX_BYTES = 255, HOST_SLOTS_MAX = 1 << 20 };

/* Both append.  NULL when good, else a sentence, allocated. `name` stands in the sentences: "-H" or the file's name. */
char *hosts_parse_list(struct hosts *hosts, const char *name, const char *text);
char *hosts_parse_file(struct hosts *hosts, const char *name, const char *text, size_t len);
void hosts_free(struct hosts *hosts);

/* Give each host its ranks, in blocks and in order.  wanted == 0: as many as there are slots, one for a host without a
 * number.  A host with a number never gets more; hosts without a number share evenly what is left.
 * NULL when good, else a sentence. */
char *hosts_place(struct hosts *hosts, uint32_t wanted);

#endif
