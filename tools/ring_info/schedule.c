/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - "ring_info schedule": the program that an algorithm makes, as text, with its unordered conflicts if any.
 */
#include "ring_info.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/coll/coll.h"

struct request {
    ring_coll_t coll;
    const struct ri_algorithm *algorithm;
    struct ri_coll_args args;
    bool all_ranks;
};

static int refuse(const char *what, const char *value, const char *accepted)
{
    fprintf(stderr, "ring_info schedule: %s \"%s\" is not accepted: it takes %s\n", what, value, accepted);
    return 2;
}

static int missing(const char *what, const char *accepted)
{
    fprintf(stderr, "ring_info schedule: %s is missing: it takes %s\n", what, accepted);
    return 2;
}

static bool number(const char *text, uint64_t *value_out)
{
    static const char letters[] = "KMGT";
    uint64_t value = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    const char *unit = *p ? strchr(letters, *p) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - letters + 1) : 0;
    if (p == text || p[unit ? 1 : 0] || value > UINT64_MAX >> shift)
        return false;
    *value_out = value << shift;
    return true;
}

static int read_number(const char *name, const char *text, uint64_t low, uint64_t high, uint64_t *value_out)
{
    char accepted[100];
    if (number(text, value_out) && *value_out >= low && *value_out <= high)
        return 0;
    snprintf(accepted, sizeof accepted, "a whole number from %llu to %llu", (unsigned long long)low,
             (unsigned long long)high);
    return refuse(name, text, accepted);
}

/* text NULL: the option is not there. */
static int read_algorithm(struct request *q, const char *text)
{
    char names[256] = "";
    size_t n = 0;
    q->algorithm = text ? ri_algorithm_named(q->coll, text) : NULL;
    if (q->algorithm)
        return 0;
    for (const struct ri_algorithm *const *a = ri_algorithms; *a && n < sizeof names; a++)
        if ((*a)->coll == q->coll)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "one of ", (*a)->name);
    if (!names[0])
        snprintf(names, sizeof names, "nothing: this collective has no algorithm");
    return text ? refuse("--algo", text, names) : missing("--algo", names);
}

static int read_dtype(struct request *q, const char *text)
{
    for (unsigned i = 0; ring_dtype_str((ring_dtype_t)i); i++)
        if (!strcmp(ring_dtype_str((ring_dtype_t)i), text)) {
            q->args.esize = (uint32_t)ring_dtype_size((ring_dtype_t)i);
            return 0;
        }
    return refuse("--dtype", text, "a name like float, int32 or uint8");
}

static int read_option(struct request *q, const char *name, const char *text)
{
    uint64_t value = 0;
    int code;
    if (!strcmp(name, "--algo"))
        return read_algorithm(q, text);
    if (!strcmp(name, "--dtype"))
        return read_dtype(q, text);
    if (!strcmp(name, "--size")) {
        code = read_number(name, text, 1, 65536, &value);
        q->args.size = (uint32_t)value;
    } else if (!strcmp(name, "--rank")) {
        code = read_number(name, text, 0, 65535, &value);
        q->args.rank = (uint32_t)value;
        q->all_ranks = false;
    } else if (!strcmp(name, "--count")) {
        code = read_number(name, text, 0, UINT64_C(1) << 40, &value);
        q->args.count = (size_t)value;
    } else if (!strcmp(name, "--segment")) {
        code = read_number(name, text, 1, UINT64_C(1) << 30, &value);
        q->args.seg = (size_t)value;
    } else {
        code = refuse("option", name, "--algo, --size, --rank, --count, --dtype and --segment, each with a value");
    }
    return code;
}

static int read_request(struct request *q, int argc, char **argv)
{
    int code = 0;
    unsigned coll = 0;
    *q = (struct request){.args = {.count = 1000, .esize = 4, .seg = 256 << 10}, .all_ranks = true};
    while (argc && ring_coll_str((ring_coll_t)coll) && strcmp(ring_coll_str((ring_coll_t)coll), argv[0]))
        coll++;
    if (!argc)
        return missing("the collective", "a name like all_reduce");
    if (!ring_coll_str((ring_coll_t)coll))
        return refuse("collective", argv[0], "a name like all_reduce");
    q->coll = (ring_coll_t)coll;
    for (int i = 1; i < argc && !code; i += 2) {
        char value[80];
        snprintf(value, sizeof value, "the value of %.60s", argv[i]);
        code = i + 1 < argc ? read_option(q, argv[i], argv[i + 1]) : missing(value, "a name or a number");
    }
    if (code)
        return code;
    if (!q->args.size)
        return missing("--size", "the number of ranks");
    if (q->args.rank >= q->args.size) {
        fprintf(stderr, "ring_info schedule: --rank %u is not a rank of --size %u\n", (unsigned)q->args.rank,
                (unsigned)q->args.size);
        return 2;
    }
    if (!q->algorithm)
        return read_algorithm(q, NULL);
    return 0;
}

static int print_rank(const struct request *q, uint32_t rank)
{
    struct ri_sched sched = {.status = RING_OK};
    struct ri_coll_args args = q->args;
    char why[256];
    args.rank = rank;
    args.seg = ri_segment_for(args.count * args.esize, args.size, args.esize, q->args.seg);
    printf("# %s %s, rank %u of %u, %zu elements of %u bytes, segments of %zu bytes; ranges are in bytes\n",
           ring_coll_str(q->coll), q->algorithm->name, (unsigned)rank, (unsigned)args.size, args.count,
           (unsigned)args.esize, args.seg);
    const ring_status_t status = q->algorithm->build(&sched, &args);
    if (status) {
        fprintf(stderr, "ring_info schedule: %s: %s\n", ring_status_str(status), ri_error_get());
        ri_sched_free(&sched);
        return 1;
    }
    ri_sched_print(&sched, stdout);
    const size_t hazards = ri_sched_hazards(&sched, RI_APART, why, sizeof why);
    if (hazards)
        fprintf(stderr, "ring_info schedule: %zu unordered conflicts; first: %s\n", hazards, why);
    ri_sched_free(&sched);
    return hazards ? 1 : 0;
}

int ring_info_schedule(int argc, char **argv)
{
    struct request q;
    int code = read_request(&q, argc, argv);
    if (code)
        return code;
    if (!q.algorithm->fits(&q.args)) {
        fprintf(stderr, "ring_info schedule: %s does not work for %u ranks and %zu elements: %s\n", q.algorithm->name,
                (unsigned)q.args.size, q.args.count, q.algorithm->help);
        return 1;
    }
    for (uint32_t r = q.all_ranks ? 0 : q.args.rank; r < (q.all_ranks ? q.args.size : q.args.rank + 1) && !code; r++)
        code = print_rank(&q, r);
    return code;
}
