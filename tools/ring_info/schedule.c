/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - "ring_info schedule": the program that an algorithm makes, as text, with its unordered conflicts if any.
 *
 * Rank r is on host r / --per-host; for send and recv, --root is the other rank. */
#include "ring_info.h"

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
    struct ri_call call;
    uint32_t rank, size;
    uint32_t per_host; /* this many ranks share a host, one after another */
    size_t segment;
    bool all_ranks;
    uint32_t *hosts; /* node_of, order and first of the layout, one behind the other */
    struct ri_layout layout;
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

static int read_number(const char *name, const char *text, uint64_t low, uint64_t high, uint64_t *value_out)
{
    char accepted[100];
    if (ri_conf_bytes(text, value_out) && *value_out >= low && *value_out <= high)
        return 0;
    snprintf(accepted, sizeof accepted, "a whole number from %llu to %llu", (unsigned long long)low,
             (unsigned long long)high);
    return refuse(name, text, accepted);
}

/* text NULL: the option is not there. */
static int read_algorithm(struct request *q, const char *text)
{
    char names[400] = "";
    size_t n = 0;
    q->algorithm = text ? ri_algorithm_named(q->coll, text) : NULL;
    if (q->algorithm)
        return 0;
    for (const struct ri_algorithm *const *a = ri_algorithms; *a && n < sizeof names; a++)
        if ((*a)->coll == q->coll)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "one of ", (*a)->name);
    if (!names[0])
        snprintf(names, sizeof names, "nothing: this collective has no algorithm");
    if (!text)
        return missing("--algo", names);
    n = strlen(names);
    if (!strcmp(text, "node"))
        snprintf(names + n, sizeof names - n, "; node is direct loads and stores, which are no messages to list");
    return refuse("--algo", text, names);
}

static int read_dtype(struct request *q, const char *text)
{
    for (unsigned i = 0; ring_dtype_str((ring_dtype_t)i); i++)
        if (!strcmp(ring_dtype_str((ring_dtype_t)i), text)) {
            q->call.dtype = (ring_dtype_t)i;
            return 0;
        }
    return refuse("--dtype", text, "a name like float, int32 or uint8");
}

static int read_option(struct request *q, const char *name, const char *text)
{
    uint64_t size = q->size, rank = q->rank, root = q->call.root, count = q->call.count, segment = q->segment;
    uint64_t per_host = q->per_host;
    const struct {
        const char *name;
        uint64_t low, high, *value;
    } numbers[] = {
        {"--size", 1, 65536, &size},
        {"--rank", 0, 65535, &rank},
        {"--root", 0, 65535, &root},
        {"--count", 0, UINT64_C(1) << 40, &count},
        {"--segment", 1, UINT64_C(1) << 30, &segment},
        {"--per-host", 1, 65536, &per_host},
    };
    int code = -1;
    if (!strcmp(name, "--algo"))
        return read_algorithm(q, text);
    if (!strcmp(name, "--dtype"))
        return read_dtype(q, text);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && code < 0; i++)
        if (!strcmp(name, numbers[i].name))
            code = read_number(name, text, numbers[i].low, numbers[i].high, numbers[i].value);
    if (code < 0)
        return refuse("option", name,
                      "--algo, --size, --rank, --root, --count, --dtype, --segment and --per-host, each with a value");
    q->all_ranks &= strcmp(name, "--rank") != 0;
    q->size = (uint32_t)size;
    q->rank = (uint32_t)rank;
    q->call.root = (uint32_t)root;
    q->call.count = (size_t)count;
    q->segment = (size_t)segment;
    q->per_host = (uint32_t)per_host;
    return code;
}

static bool is_rank(const struct request *q, const char *name, uint32_t rank)
{
    if (rank >= q->size)
        fprintf(stderr, "ring_info schedule: %s %u is not a rank of --size %u\n", name, (unsigned)rank,
                (unsigned)q->size);
    return rank < q->size;
}

/* The names that have algorithms; a form with counts runs those of its collective. */
static int read_coll(struct request *q, const char *text)
{
    char names[200] = "one of ";
    unsigned coll = 0;
    while (ring_coll_str((ring_coll_t)coll) && strcmp(ring_coll_str((ring_coll_t)coll), text))
        coll++;
    if (coll > RING_RECV && ring_coll_str((ring_coll_t)coll)) {
        fprintf(stderr, "ring_info schedule: %s has no algorithms of its own: it runs those of %.*s, ask for that\n",
                text, (int)strlen(text) - 1, text);
        return 2;
    }
    q->coll = q->call.coll = (ring_coll_t)coll;
    if (coll <= RING_RECV)
        return 0;
    for (unsigned i = 0; i <= RING_RECV; i++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", ring_coll_str((ring_coll_t)i));
    }
    return refuse("collective", text, names);
}

static int read_request(struct request *q, int argc, char **argv)
{
    *q = (struct request){
        .call = {.dtype = RING_FLOAT, .count = 1000}, .segment = 256 << 10, .per_host = 1, .all_ranks = true};
    if (!argc)
        return missing("the collective", "a name like all_reduce");
    int code = read_coll(q, argv[0]);
    for (int i = 1; i < argc && !code; i += 2) {
        char value[80];
        snprintf(value, sizeof value, "the value of %.60s", argv[i]);
        code = i + 1 < argc ? read_option(q, argv[i], argv[i + 1]) : missing(value, "a name or a number");
    }
    if (code)
        return code;
    if (!q->size)
        return missing("--size", "the number of ranks");
    if (!is_rank(q, "--rank", q->rank) || !is_rank(q, "--root", q->call.root))
        return 2;
    if (!q->algorithm)
        return read_algorithm(q, NULL);
    return 0;
}

static bool lay_out(struct request *q)
{
    const uint32_t nodes = (q->size - 1) / q->per_host + 1;
    q->hosts = calloc((size_t)2 * q->size + nodes + 1, sizeof *q->hosts);
    if (!q->hosts)
        return false;
    uint32_t *node_of = q->hosts, *order = node_of + q->size, *first = order + q->size;
    q->layout = (struct ri_layout){.nodes = nodes, .node_of = node_of, .order = order, .first = first};
    for (uint32_t r = 0; r < q->size; r++) {
        node_of[r] = r / q->per_host;
        order[r] = r;
    }
    for (uint32_t i = 0; i <= nodes; i++)
        first[i] = i < nodes ? i * q->per_host : q->size;
    return true;
}

static int print_rank(const struct request *q, uint32_t rank)
{
    struct ri_sched sched = {.status = RING_OK};
    const struct ri_coll_args args = ri_coll_args_for(&q->call, rank, q->size, &q->layout, q->segment);
    char why[256];
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

/* Of send and recv, --root is the other rank, which has no program of its own here. */
static bool peer_itself(const struct request *q, uint32_t rank)
{
    return (q->coll == RING_SEND || q->coll == RING_RECV) && rank == q->call.root;
}

static bool fits(const struct request *q, uint32_t rank)
{
    const struct ri_coll_args args = ri_coll_args_for(&q->call, rank, q->size, &q->layout, q->segment);
    return q->algorithm->fits(&args);
}

/* What works by hosts does not where every rank has one of its own, which is how they are laid out unless told. */
static bool fits_by_twos(const struct request *q, uint32_t rank)
{
    struct request other = *q;
    other.per_host = 2;
    const bool good = lay_out(&other) && fits(&other, rank);
    free(other.hosts);
    return good;
}

static int print_all(const struct request *q)
{
    const uint32_t end = q->all_ranks ? q->size : q->rank + 1;
    int code = 0;
    for (uint32_t r = q->all_ranks ? 0 : q->rank; r < end && !code; r++) {
        if (q->all_ranks && peer_itself(q, r))
            continue;
        if (fits(q, r)) {
            code = print_rank(q, r);
            continue;
        }
        fprintf(stderr, "ring_info schedule: %s does not work for rank %u of %u, %u a host, and %zu elements: %s%s\n",
                q->algorithm->name, (unsigned)r, (unsigned)q->size, (unsigned)q->per_host, q->call.count,
                q->algorithm->help, fits_by_twos(q, r) ? "; it would with --per-host 2" : "");
        code = 1;
    }
    return code;
}

int ring_info_schedule(int argc, char **argv)
{
    struct request q;
    int code = read_request(&q, argc, argv);
    if (code)
        return code;
    if (!lay_out(&q)) {
        fprintf(stderr, "ring_info schedule: no memory for %u ranks\n", (unsigned)q.size);
        return 1;
    }
    code = print_all(&q);
    free(q.hosts);
    return code;
}
