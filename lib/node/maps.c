/* SPDX-License-Identifier: Apache-2.0 */
/* maps.c - reading /proc/self/maps, or smaps when this process has locked memory: that is slower, as the kernel counts
 * pages for it, but only there locked mappings are marked.  Cost: a line of text for every mapping of the process. */
#include "lib/node/maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"

enum { LINE_MAX_BYTES = 4352 };

static bool anything_locked(void)
{
    char text[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(text, sizeof text, f))
        if (sscanf(text, "VmLck: %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib != 0;
}

/* "7f0c8e600000-7f0c8e621000 rw-p 00000000 00:00 0   [heap]" */
static bool parse(const char *text, struct ri_mapping *m)
{
    char mode[5];
    unsigned major, minor;
    int at = 0;
    if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &m->begin, &m->end, mode,
               &m->offset, &major, &minor, &m->inode, &at) < 7 ||
        !at)
        return false;
    m->readable = mode[0] == 'r';
    m->writable = mode[1] == 'w';
    m->shared = mode[3] == 's';
    m->locked = false;
    snprintf(m->name, sizeof m->name, "%.*s", (int)strcspn(text + at, "\n"), text + at);
    m->anonymous = !m->inode && m->name[0] != '/';
    return true;
}

struct scan {
    uintptr_t begin, end;
    ri_mapping_fn *fn;
    void *arg;
    struct ri_mapping at;
    bool have;
};

static ring_status_t tell(struct scan *s)
{
    struct ri_mapping *m = &s->at;
    const bool inside = s->have && m->begin < s->end && m->end > s->begin;
    s->have = false;
    if (!inside)
        return RING_OK;
    if (m->begin < s->begin) {
        m->offset += s->begin - m->begin;
        m->begin = s->begin;
    }
    m->end = m->end < s->end ? m->end : s->end;
    return s->fn(s->arg, m);
}

/* In smaps the lines after a mapping's own tell of it; the last one is its flags. */
ring_status_t ri_maps_each(uintptr_t begin, uintptr_t end, ri_mapping_fn *fn, void *arg)
{
    char text[LINE_MAX_BYTES];
    struct scan s = {.begin = begin, .end = end, .fn = fn, .arg = arg};
    struct ri_mapping next;
    const char *path = anything_locked() ? "/proc/self/smaps" : "/proc/self/maps";
    FILE *f = fopen(path, "re");
    ring_status_t status = f ? RING_OK : ri_fail_errno("open %s", path);
    while (f && !status && fgets(text, sizeof text, f))
        if (parse(text, &next)) {
            status = tell(&s);
            s.at = next;
            s.have = true;
        } else if (!strncmp(text, "VmFlags:", 8))
            s.at.locked = strstr(text, " lo") != NULL;
    if (!status)
        status = tell(&s);
    if (f)
        fclose(f);
    return status;
}
