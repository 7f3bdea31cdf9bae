/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - the grammar of RING_ALGO, see rules.h.
 *
 * Read from left to right, once per communicator.  Everything is checked here, so that looking a rule up cannot fail:
 * names against the table of algorithms, and that the ranges of one collective do not overlap.  No memory of its own:
 * names are those of the table. */
#include "lib/coll/rules.h"

#include <string.h>

#include "lib/base/conf.h"
#include "lib/base/error.h"

/* Part of the text. */
struct word {
    const char *at;
    size_t len;
};

static bool is(struct word w, const char *text) { return strlen(text) == w.len && !memcmp(text, w.at, w.len); }

/* The part of w before the first `mark`; what is behind it goes to rest, which is empty at NULL when there is none. */
static struct word split(struct word w, char mark, struct word *rest)
{
    const char *end = memchr(w.at, mark, w.len);
    const size_t len = end ? (size_t)(end - w.at) : w.len;
    const struct word first = {w.at, len};
    *rest = end ? (struct word){end + 1, w.len - len - 1} : (struct word){NULL, 0};
    return first;
}

/* ---- what is accepted ------------------------------------------------------------------------------------------ */

struct list {
    char text[256];
    size_t n;
};

static void append(struct list *l, const char *name)
{
    const int n = snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s", l->n ? ", " : "", name);
    l->n += (size_t)n < sizeof l->text - l->n ? (size_t)n : sizeof l->text - 1 - l->n;
}

static bool named_before(const struct ri_algorithm *const *row)
{
    const struct ri_algorithm *const *p = ri_algorithms;
    while (p != row && strcmp((*p)->name, (*row)->name))
        p++;
    return p != row;
}

static ring_status_t refuse(struct word part, const char *what, const char *accepted)
{
    return ri_fail(RING_ERR_CONFIG, "RING_ALGO is not accepted: \"%.*s\" is no %s; it takes %s",
                   (int)(part.len < 80 ? part.len : 80), part.at, what, accepted);
}

static bool collective(ring_coll_t coll) { return coll <= RING_RECV && ring_coll_str(coll); }

/* The forms with counts are the same collectives, and have no rules of their own. */
static ring_status_t refuse_counts(struct word part)
{
    return ri_fail(RING_ERR_CONFIG,
                   "RING_ALGO is not accepted: \"%.*s\" is no collective of its own here; what is said of %.*s is for "
                   "the form with counts too",
                   (int)part.len, part.at, (int)part.len - 1, part.at);
}

static ring_status_t refuse_collective(struct word part)
{
    struct list l = {.n = 0};
    for (unsigned i = RING_RECV + 1; ring_coll_str((ring_coll_t)i); i++)
        if (is(part, ring_coll_str((ring_coll_t)i)))
            return refuse_counts(part);
    for (unsigned i = 0; collective((ring_coll_t)i); i++)
        append(&l, ring_coll_str((ring_coll_t)i));
    return refuse(part, "collective", l.text);
}

static ring_status_t refuse_name(struct word part, const struct ri_rule *rule)
{
    struct list l = {.n = 0};
    char what[60];
    append(&l, "auto");
    append(&l, "node");
    for (const struct ri_algorithm *const *p = ri_algorithms; *p; p++)
        if (rule->any ? !named_before(p) : (*p)->coll == rule->coll)
            append(&l, (*p)->name);
    snprintf(what, sizeof what, "algorithm%s%s", rule->any ? "" : " of ", rule->any ? "" : ring_coll_str(rule->coll));
    return refuse(part, what, l.text);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static ring_status_t read_name(struct word w, struct ri_rule *rule)
{
    rule->name = is(w, "auto") ? "auto" : is(w, "node") ? "node" : NULL;
    for (const struct ri_algorithm *const *p = ri_algorithms; *p && !rule->name; p++)
        if ((rule->any || (*p)->coll == rule->coll) && is(w, (*p)->name))
            rule->name = (*p)->name;
    return rule->name ? RING_OK : refuse_name(w, rule);
}

static bool read_bytes(struct word w, uint64_t *bytes_out)
{
    char text[32];
    if (w.len >= sizeof text)
        return false;
    memcpy(text, w.at, w.len);
    text[w.len] = '\0';
    return ri_conf_bytes(text, bytes_out);
}

static ring_status_t read_range(struct word w, struct ri_rule *rule)
{
    struct word to;
    const struct word from = split(w, '-', &to);
    bool right = to.at && read_bytes(from, &rule->from);
    if (right && is(to, "inf"))
        rule->to = UINT64_MAX;
    else
        right = right && read_bytes(to, &rule->to);
    if (right && rule->from < rule->to)
        return RING_OK;
    return refuse(w, "range of sizes", "FROM-TO in bytes with K, M or G, TO also inf, FROM less than TO");
}

static ring_status_t keep(struct ri_rules *rules, const struct ri_rule *rule, struct word part)
{
    for (uint32_t i = 0; i < rules->n && !rule->any; i++) {
        const struct ri_rule *other = &rules->rule[i];
        if (!other->any && other->coll == rule->coll && other->from < rule->to && rule->from < other->to)
            return refuse(part, "rule of its own", "ranges of one collective that do not overlap");
    }
    if (rules->n == RI_RULES_MAX)
        return ri_fail(RING_ERR_CONFIG, "RING_ALGO is not accepted: it takes at most %d rules", RI_RULES_MAX);
    rules->rule[rules->n++] = *rule;
    return RING_OK;
}

/* RANGE@NAME,RANGE@NAME ... */
static ring_status_t read_ranges(struct word rest, struct ri_rule rule, struct ri_rules *rules)
{
    ring_status_t status = RING_OK;
    while (rest.at && !status) {
        const struct word part = split(rest, ',', &rest);
        struct word name;
        const struct word range = split(part, '@', &name);
        status = name.at ? read_range(range, &rule) : refuse(part, "rule", "FROM-TO@NAME");
        if (!status)
            status = read_name(name, &rule);
        if (!status)
            status = keep(rules, &rule, part);
    }
    return status;
}

/* NAME, COLLECTIVE@NAME or COLLECTIVE:RANGES */
static ring_status_t read_part(struct word part, struct ri_rules *rules)
{
    struct ri_rule rule = {.to = UINT64_MAX};
    struct word name, ranges;
    const struct word before = split(part, ':', &ranges);
    const struct word coll = split(before, '@', &name);
    ring_status_t status;
    unsigned i = 0;
    rule.any = !ranges.at && !name.at;
    if (rule.any) {
        status = read_name(part, &rule);
        return status ? status : keep(rules, &rule, part);
    }
    while (collective((ring_coll_t)i) && !is(coll, ring_coll_str((ring_coll_t)i)))
        i++;
    rule.coll = (ring_coll_t)i;
    if (!collective(rule.coll))
        return refuse_collective(coll);
    if (ranges.at && name.at)
        return refuse(part, "rule", "NAME, COLLECTIVE@NAME or COLLECTIVE:FROM-TO@NAME,FROM-TO@NAME");
    if (ranges.at)
        return read_ranges(ranges, rule, rules);
    status = read_name(name, &rule);
    return status ? status : keep(rules, &rule, part);
}

ring_status_t ri_rules_parse(const char *text, struct ri_rules *rules_out)
{
    struct ri_rules rules = {.n = 0};
    struct word rest = {text, strlen(text)};
    ring_status_t status = RING_OK;
    while (rest.at && !status) {
        const struct word part = split(rest, ';', &rest);
        status = read_part(part, &rules);
    }
    if (!status)
        *rules_out = rules;
    return status;
}

/* ---- looking up ------------------------------------------------------------------------------------------------ */

static bool serves(const struct ri_rule *r, ring_coll_t coll, uint64_t bytes)
{
    if (r->any)
        return !strcmp(r->name, "node") || ri_algorithm_named(coll, r->name);
    return r->coll == coll && r->from <= bytes && (bytes < r->to || r->to == UINT64_MAX);
}

const char *ri_rules_find(const struct ri_rules *rules, ring_coll_t coll, uint64_t bytes)
{
    const struct ri_rule *best = NULL;
    for (uint32_t i = 0; i < rules->n; i++)
        if (serves(&rules->rule[i], coll, bytes) && (!best || (best->any && !rules->rule[i].any)))
            best = &rules->rule[i];
    return best && strcmp(best->name, "auto") ? best->name : NULL;
}
