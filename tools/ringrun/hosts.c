/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - see hosts.h. */
#include "hosts.h"

#include <stdlib.h>
#include <string.h>

#include "say.h"

static char *name_problem(const char *name)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:%@";
    size_t len = strlen(name);
    if (!len)
        return need_text("a host name is missing");
    if (len > HOST_NAME_MAX_BYTES)
        return need_format("host name '%.20s...' has %zu bytes, more than %d", name, len, HOST_NAME_MAX_BYTES);
    if (name[0] == '-' || name[strspn(name, legal)])
        return need_format("'%s' is no host name (letters, digits and . _ - : %% @, not beginning with -)", name);
    return NULL;
}

static char *parse_slots(const char *text, uint32_t *slots_out)
{
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < digits && value <= HOST_SLOTS_MAX; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    if (!digits || text[digits] || value < 1 || value > HOST_SLOTS_MAX)
        return need_format("'%s' is no number of slots (1 to %d)", text, HOST_SLOTS_MAX);
    *slots_out = (uint32_t)value;
    return NULL;
}

static void add(struct hosts *hosts, const char *name, uint32_t slots)
{
    for (size_t i = 0; i < hosts->count; i++) {
        struct host *h = &hosts->list[i];
        if (strcmp(h->name, name) == 0) {
            /* named twice without a number: two slots, as elsewhere */
            uint32_t before = h->slots ? h->slots : 1, more = slots ? slots : 1;
            h->slots = before + more < HOST_SLOTS_MAX ? before + more : HOST_SLOTS_MAX;
            return;
        }
    }
    hosts->list = need_more(hosts->list, (hosts->count + 1) * sizeof *hosts->list);
    hosts->list[hosts->count++] = (struct host){.name = need_text(name), .slots = slots};
}

/* host, host:slots, [v6], [v6]:slots.  `entry` is ours to cut up. */
static char *parse_entry(struct hosts *hosts, char *entry)
{
    uint32_t slots = 0;
    char *name = entry, *rest = NULL;
    char *open = strchr(entry, '['), *shut = open ? strchr(open, ']') : NULL;
    if (open) {
        if (!shut || (shut[1] && shut[1] != ':') || (open != entry && open[-1] != '@'))
            return need_format("'%s' has brackets that do not enclose an address", entry);
        rest = shut[1] ? shut + 2 : NULL;
        *shut = 0;
        memmove(open, open + 1, strlen(open + 1) + 1);
    } else {
        char *colon = strchr(entry, ':');
        if (colon && strchr(colon + 1, ':'))
            return need_format("'%s' has several colons: put an IPv6 address in brackets", entry);
        if (colon) {
            rest = colon + 1;
            *colon = 0;
        }
    }
    char *problem = name_problem(name);
    if (!problem && rest)
        problem = parse_slots(rest, &slots);
    if (!problem)
        add(hosts, name, slots);
    return problem;
}

static char *with_place(char *problem, const char *name, size_t line)
{
    if (!problem)
        return NULL;
    char *whole = line ? need_format("%s:%zu: %s", name, line, problem) : need_format("%s: %s", name, problem);
    free(problem);
    return whole;
}

char *hosts_parse_list(struct hosts *hosts, const char *name, const char *text)
{
    char *copy = need_text(text), *problem = NULL;
    for (char *at = copy; at && !problem;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = 0;
        problem = parse_entry(hosts, at);
        at = comma ? comma + 1 : NULL;
    }
    free(copy);
    return with_place(problem, name, 0);
}

/* One line of a host file: an entry, and perhaps slots=N. */
static char *parse_line(struct hosts *hosts, char *line)
{
    static const char blanks[] = " \t\r";
    char *hash = strchr(line, '#');
    if (hash)
        *hash = 0;
    char *state, *entry = strtok_r(line, blanks, &state);
    char *slots = entry ? strtok_r(NULL, blanks, &state) : NULL;
    char *more = slots ? strtok_r(NULL, blanks, &state) : NULL;
    if (!entry)
        return NULL;
    if (!slots)
        return parse_entry(hosts, entry);
    uint32_t count = 0;
    if (more)
        return need_format("'%s' is one word too many (a line is: host [slots=N])", more);
    if (strncmp(slots, "slots=", 6) != 0)
        return need_format("'%s' is not slots=N", slots);
    char *problem = parse_slots(slots + 6, &count);
    if (problem)
        return problem;
    if (strchr(entry, ':') && !strchr(entry, '['))
        return need_format("'%s' gives the slots twice", entry);
    char *whole = need_format("%s:%u", entry, count);
    problem = parse_entry(hosts, whole);
    free(whole);
    return problem;
}

char *hosts_parse_file(struct hosts *hosts, const char *name, const char *text, size_t len)
{
    char *problem = NULL;
    const char *end = text + len;
    for (size_t number = 1; text < end && !problem; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t size = (size_t)((stop ? stop : end) - text);
        char *line = need(size + 1);
        memcpy(line, text, size);
        if (memchr(line, 0, size))
            problem = need_text("a byte 0: this is no text");
        else
            problem = parse_line(hosts, line);
        free(line);
        problem = with_place(problem, name, number);
        text += size + 1;
    }
    return problem;
}

void hosts_free(struct hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        free(hosts->list[i].name);
    free(hosts->list);
    *hosts = (struct hosts){0};
}

/* Hosts without a number share `left` in even blocks. */
static void share(struct hosts *hosts, uint64_t left, size_t open)
{
    for (size_t i = 0; i < hosts->count; i++) {
        struct host *h = &hosts->list[i];
        if (h->slots)
            continue;
        h->ranks = (uint32_t)((left + open - 1) / open);
        left -= h->ranks;
        open--;
    }
}

char *hosts_place(struct hosts *hosts, uint32_t wanted)
{
    uint64_t fixed = 0;
    size_t open = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        fixed += hosts->list[i].slots;
        open += hosts->list[i].slots == 0;
    }
    uint64_t ranks = wanted ? wanted : fixed + open;
    if (ranks > fixed && !open)
        return need_format(
            "-n %u asks for more ranks than the hosts have slots (%llu); give them more (host:slots), or "
            "no numbers at all to share the ranks evenly",
            wanted, (unsigned long long)fixed);
    if (ranks > HOST_SLOTS_MAX)
        return need_format("the hosts have %llu slots, more than %d", (unsigned long long)ranks, HOST_SLOTS_MAX);
    uint64_t left = ranks;
    for (size_t i = 0; i < hosts->count; i++) {
        struct host *h = &hosts->list[i];
        h->ranks = h->slots < left ? h->slots : (uint32_t)left;
        left -= h->ranks;
    }
    if (open)
        share(hosts, left, open);
    return NULL;
}
