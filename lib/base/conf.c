/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/conf.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

const struct ri_conf_row ri_conf_rows[] = {
#define X(field, var, kind, def, low, high, same, text)                                                                \
    {.variable = var,                                                                                                  \
     .fallback = def,                                                                                                  \
     .lowest = low,                                                                                                    \
     .highest = high,                                                                                                  \
     .help = text,                                                                                                     \
     .type = RI_CONF_##kind,                                                                                           \
     .agree = same,                                                                                                    \
     .offset = offsetof(struct ri_conf, field)},
    RI_CONF_MAP(X)
#undef X
};
const size_t ri_conf_row_count = sizeof ri_conf_rows / sizeof *ri_conf_rows;

struct unit {
    const char *name;
    uint64_t factor;
};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};
static const struct unit byte_units[] = {
    {"", 1}, {"K", UINT64_C(1) << 10}, {"M", UINT64_C(1) << 20}, {"G", UINT64_C(1) << 30}, {NULL, 0}};
static const struct unit time_units[] = {{"", RI_SECOND},       {"ms", RI_MILLISECOND},  {"s", RI_SECOND},
                                         {"min", 60 * RI_SECOND}, {"h", 3600 * RI_SECOND}, {NULL, 0}};

static const struct unit *units_of(enum ri_conf_type type)
{
    return type == RI_CONF_BYTES ? byte_units : type == RI_CONF_TIME ? time_units : no_units;
}

/* Digits, then a unit, and nothing else: no sign, no blank, no hexadecimal, no exponent. */
static bool number(const char *text, const struct unit *units, uint64_t *value_out)
{
    uint64_t value = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    if (p == text)
        return false;
    for (const struct unit *u = units; u->name; u++)
        if (!strcmp(p, u->name))
            return !__builtin_mul_overflow(value, u->factor, value_out);
    return false;
}

static bool choice(const char *words, const char *text, uint64_t *index_out)
{
    const size_t len = strlen(text);
    uint64_t index = 0;
    for (const char *w = words; *w; index++) {
        const size_t n = strcspn(w, "|");
        if (n == len && !memcmp(w, text, n)) {
            *index_out = index;
            return true;
        }
        w += n + (w[n] == '|');
    }
    return false;
}

/* At most 64 bytes of the value, with what a terminal cannot show replaced. */
static const char *shown(const char *text, char buffer[80])
{
    size_t n = 0;
    for (; text[n] && n < 64; n++)
        buffer[n] = isprint((unsigned char)text[n]) ? text[n] : '?';
    memcpy(buffer + n, text[n] ? "..." : "", text[n] ? 4 : 1);
    return buffer;
}

static ring_status_t refuse(const struct ri_conf_row *row, const char *text)
{
    char value[80], accepted[160];
    static const char *const kinds[] = {"a whole number", "bytes with K, M or G", "a time with ms, s, min or h"};
    if (row->type == RI_CONF_CHOICE)
        snprintf(accepted, sizeof accepted, "one of %s", row->highest);
    else if (row->type == RI_CONF_TEXT)
        snprintf(accepted, sizeof accepted, "a text of 1 to %d bytes", RI_CONF_TEXT_MAX - 1);
    else
        snprintf(accepted, sizeof accepted, "%s, %s to %s", kinds[row->type], row->lowest, row->highest);
    return ri_fail(RING_ERR_CONFIG, "%s=\"%s\" is not accepted: it takes %s (default %s)", row->variable,
                   shown(text, value), accepted, row->fallback);
}

ring_status_t ri_conf_set(struct ri_conf *conf, const struct ri_conf_row *row, const char *text)
{
    void *member = (char *)conf + row->offset;
    if (row->type == RI_CONF_TEXT) {
        const size_t len = strlen(text);
        if (!len || len >= RI_CONF_TEXT_MAX)
            return refuse(row, text);
        memcpy(member, text, len + 1);
        return RING_OK;
    }
    uint64_t value, low = 0, high = 0;
    if (row->type == RI_CONF_CHOICE) {
        if (!choice(row->highest, text, &value))
            return refuse(row, text);
    } else {
        const struct unit *units = units_of(row->type);
        if (!number(text, units, &value) || !number(row->lowest, units, &low) ||
            !number(row->highest, units, &high) || value < low || value > high)
            return refuse(row, text);
    }
    memcpy(member, &value, sizeof value);
    return RING_OK;
}

void ri_conf_defaults(struct ri_conf *conf)
{
    memset(conf, 0, sizeof *conf);
    for (size_t i = 0; i < ri_conf_row_count; i++)
        if (ri_conf_set(conf, &ri_conf_rows[i], ri_conf_rows[i].fallback))
            abort(); /* a row's default is out of its own range: the table is wrong */
}

static unsigned distance(const char *a, size_t la, const char *b)
{
    const size_t lb = strlen(b);
    unsigned row[64], diagonal;
    if (la >= 64 || lb >= 64)
        return 64;
    for (unsigned j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            const unsigned swap = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            unsigned best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = swap < best ? swap : best;
        }
    }
    return row[lb];
}

static void warn_unknown(const char *name, size_t len)
{
    const char *nearest = ri_conf_rows[0].variable;
    unsigned least = 64;
    for (size_t i = 0; i < ri_conf_row_count; i++) {
        const char *known = ri_conf_rows[i].variable;
        if (strlen(known) == len && !memcmp(known, name, len))
            return;
        const unsigned d = distance(name, len, known);
        if (d < least) {
            least = d;
            nearest = known;
        }
    }
    ri_log(RI_LOG_WARN, "%.*s is not a setting and is ignored; the nearest is %s", (int)(len < 64 ? len : 64), name,
           nearest);
}

extern char **environ;

static void look_for_unknown(void)
{
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, "RING_", 5))
            warn_unknown(*e, strcspn(*e, "="));
}

ring_status_t ri_conf_load(struct ri_conf *conf)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ring_status_t status = RING_OK;
    ri_conf_defaults(conf);
    if (getauxval(AT_SECURE))
        return RING_OK;
    for (size_t i = 0; i < ri_conf_row_count && !status; i++) {
        const char *text = getenv(ri_conf_rows[i].variable);
        status = text ? ri_conf_set(conf, &ri_conf_rows[i], text) : RING_OK;
    }
    ri_log_set_level((enum ri_log_level)conf->log);
    pthread_once(&once, look_for_unknown); /* also when a value is wrong: both may be slips of the same hand */
    return status;
}

void ri_conf_print(const struct ri_conf *conf, const struct ri_conf_row *row, char *text, size_t cap)
{
    const void *member = (const char *)conf + row->offset;
    if (row->type == RI_CONF_TEXT) {
        snprintf(text, cap, "%s", (const char *)member);
        return;
    }
    uint64_t value;
    memcpy(&value, member, sizeof value);
    if (row->type == RI_CONF_CHOICE) {
        const char *w = row->highest;
        for (uint64_t i = 0; i < value; i++)
            w += strcspn(w, "|") + 1;
        snprintf(text, cap, "%.*s", (int)strcspn(w, "|"), w);
        return;
    }
    const struct unit *units = units_of(row->type), *best = units;
    for (const struct unit *u = units; u->name; u++)
        if (value && value % u->factor == 0 && u->factor >= best->factor)
            best = u;
    if (row->type == RI_CONF_TIME && value && value % RI_SECOND)
        best = &time_units[1];
    snprintf(text, cap, "%llu%s", (unsigned long long)(value / best->factor), best->name);
}

int ri_conf_bytes(const char *text, uint64_t *bytes_out) { return number(text, byte_units, bytes_out); }

int ri_conf_is_auto(const char *text) { return !strcmp(text, "auto"); }
