/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the command line: one table of options, from which parsing, range checks and --help come.
 *
 * Letters and meanings are those of nccl-tests wherever both have the option. */
#include "perf.h"

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum kind { BYTES, COUNT, DTYPES, REDOPS, ROOT, TEXT, INJECT, ONE, MEMORY, SIZES, FLAG };

struct row {
    char letter; /* 0: long form only */
    const char *name, *value, *fallback;
    enum kind kind;
    uint64_t lowest, highest;
    size_t offset;
    const char *help; /* NULL: not listed */
};

#define AT(field) offsetof(struct perf_options, field)
#define MOST_BYTES (UINT64_C(1) << 46)
#define MOST_ROUNDS UINT64_C(10000000)
static const struct row rows[] = {
    {'b', "minbytes", "BYTES", "32M", BYTES, 0, MOST_BYTES, AT(min_bytes), "first size; K, M, G are powers of 2"},
    {'e', "maxbytes", "BYTES", "32M", BYTES, 0, MOST_BYTES, AT(max_bytes), "last size"},
    {'i', "stepbytes", "BYTES", "1M", BYTES, 1, MOST_BYTES, AT(step_bytes), "add this to get the next size"},
    {'f', "stepfactor", "N", "0", COUNT, 0, 1000000, AT(step_factor), "multiply by this instead (2 or more; 0: add)"},
    {'n', "iters", "N", "20", COUNT, 1, MOST_ROUNDS, AT(iters), "timed operations for each size"},
    {'w', "warmup_iters", "N", "5", COUNT, 0, MOST_ROUNDS, AT(warmup),
     "operations before those, not timed; more when it takes more to use every buffer once"},
    {'c', "check", "N", "1", COUNT, 0, MOST_ROUNDS, AT(checks), "operations whose result is checked (0: none)"},
    {'o', "op", "OP", "sum", REDOPS, 0, 0, AT(redops), "an operation, several with commas, or all"},
    {'d', "datatype", "TYPE", "float", DTYPES, 0, 0, AT(dtypes), "a type, several with commas, or all"},
    {'r', "root", "RANK", "0", ROOT, 0, UINT32_MAX - 1, AT(root), "a rank; -1 or all: each in turn"},
    {'a', "average", "0-3", "1", COUNT, 0, 3, AT(average),
     "time shown: 0 rank 0's, 1 mean, 2 least, 3 most of the ranks"},
    {'C', "cold", "0|1", "0", COUNT, 0, 1, AT(cold), "1: go round many buffers, so that they are not in cache"},
    {'M', "memory", "KIND", "malloc", MEMORY, 0, 0, AT(memory),
     "buffers: malloc, registered (ring_mem_register), alloc (ring_mem_alloc)"},
    {'B', "buffers", "N", "0", COUNT, 0, 16384, AT(buffers), "go round this many (0: 1, or more when cold)"},
    {'m', "group", "N", "1", COUNT, 1, 1024, AT(group), "calls at a time, in one group; time is that of one call"},
    {'s', "start", NULL, NULL, FLAG, 0, 0, AT(start),
     "start and wait instead of blocking calls (-m: this many at once)"},
    {'p', "persistent", NULL, NULL, FLAG, 0, 0, AT(persistent), "the same, prepared before and repeated"},
    {'S', "sizes", "LIST", NULL, SIZES, 0, MOST_BYTES, AT(sizes),
     "these sizes instead of -b to -e, with commas; SIZE:N times N operations after N/10"},
    {'T', "timeout", "SECONDS", "0", COUNT, 0, 1000000, AT(timeout), "abort on all ranks after this long (0: never)"},
    {'J', "output_file", "FILE", NULL, TEXT, 0, 0, AT(json), "write results as JSON; an existing file is replaced"},
    {'g', "ngpus", "1", "1", ONE, 1, 1, AT(gpus), "accepted for nccl-tests' sake: a rank has one buffer"},
    {'t', "nthreads", "1", "1", ONE, 1, 1, AT(threads), "accepted for nccl-tests' sake: a rank is a process"},
    {'m', "agg_iters", "N", NULL, COUNT, 1, 1024, AT(group), NULL}, /* nccl-tests' name */
    {0, "inject-error", "INDEX|guard|send", NULL, INJECT, 0, UINT64_MAX, AT(inject), NULL},
};
enum { ROWS = sizeof rows / sizeof *rows, LONG_BASE = 256 };

/* Started by a launcher every rank reads the same line: one complaint is enough. */
static FILE *complaints(void)
{
    static FILE *nowhere;
    const char *rank = getenv("PMIX_RANK");
    if (!rank || !strcmp(rank, "0"))
        return stderr;
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    return nowhere ? nowhere : stderr;
}

static int refuse(const struct row *row, const char *text, const char *accepted)
{
    const char letter[] = {row->letter ? '-' : '\0', row->letter, row->letter ? '/' : '\0', '\0'};
    fprintf(complaints(), "ring_perf: %s--%s \"%s\" is not accepted: it takes %s\n", letter, row->name, text, accepted);
    return 2;
}

static bool number(const char *text, bool units, uint64_t *value_out)
{
    uint64_t value = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    static const char letters[] = "KMGT";
    const char *unit = units && *p ? strchr(letters, toupper((unsigned char)*p)) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - letters + 1) : 0;
    if (p == text || p[unit ? 1 : 0] || value > UINT64_MAX >> shift)
        return false;
    *value_out = value << shift;
    return true;
}

static int read_number(const struct row *row, const char *text, void *field)
{
    uint64_t value;
    char accepted[120];
    if (number(text, row->kind == BYTES, &value) && value >= row->lowest && value <= row->highest) {
        memcpy(field, &value, sizeof value);
        return 0;
    }
    if (row->kind == ONE)
        return refuse(row, text, "only 1: ranks are processes; start more of them with ringrun -n RANKS");
    snprintf(accepted, sizeof accepted, "a whole number%s from %llu to %llu",
             row->kind == BYTES ? " of bytes, with K, M or G," : "", (unsigned long long)row->lowest,
             (unsigned long long)row->highest);
    return refuse(row, text, accepted);
}

static const char *dtype_name(unsigned i) { return ring_dtype_str((ring_dtype_t)i); }
static const char *redop_name(unsigned i) { return ring_redop_str((ring_redop_t)i); }
static const char *coll_name(unsigned i) { return i < PERF_COLLS ? perf_colls[i].name : NULL; }

static void join_names(const char *(*name)(unsigned), char *text, size_t cap)
{
    size_t n = 0;
    text[0] = '\0';
    for (unsigned i = 0; name(i) && n < cap; i++)
        n += (size_t)snprintf(text + n, cap - n, "%s%s", i ? ", " : "", name(i));
}

/* The bit of one name of length len; all bits for "all"; 0 when there is none. */
static uint64_t name_bits(const char *(*name)(unsigned), const char *text, size_t len)
{
    uint64_t all = 0;
    for (unsigned i = 0; name(i); i++) {
        all |= UINT64_C(1) << i;
        if (strlen(name(i)) == len && !memcmp(name(i), text, len))
            return UINT64_C(1) << i;
    }
    return len == 3 && !memcmp(text, "all", 3) ? all : 0;
}

static int read_names(const struct row *row, const char *text, uint64_t *bits_out)
{
    const char *(*name)(unsigned) = row->kind == DTYPES ? dtype_name : redop_name;
    uint64_t bits = 0;
    for (const char *p = text;; p++) {
        const size_t len = strcspn(p, ",");
        const uint64_t bit = name_bits(name, p, len);
        if (!bit) {
            char names[400], accepted[500];
            join_names(name, names, sizeof names);
            snprintf(accepted, sizeof accepted, "all, or some of %s with commas between", names);
            return refuse(row, text, accepted);
        }
        bits |= bit;
        p += len;
        if (!*p)
            break;
    }
    *bits_out = bits;
    return 0;
}

static int read_root(const struct row *row, const char *text, int64_t *root_out)
{
    uint64_t value;
    if (!strcmp(text, "all") || !strcmp(text, "-1"))
        *root_out = PERF_ROOT_ALL;
    else if (number(text, false, &value) && value <= row->highest)
        *root_out = (int64_t)value;
    else
        return refuse(row, text, "a rank, or -1 or all for each in turn");
    return 0;
}

static int read_inject(const struct row *row, const char *text, struct perf_options *opt)
{
    if (!strcmp(text, "guard"))
        opt->inject = PERF_INJECT_GUARD;
    else if (!strcmp(text, "send"))
        opt->inject = PERF_INJECT_SEND;
    else if (number(text, false, &opt->inject_index))
        opt->inject = PERF_INJECT_ELEMENT;
    else
        return refuse(row, text, "the index of an element, guard, or send");
    return 0;
}

static int read_memory(const struct row *row, const char *text, uint64_t *memory_out)
{
    static const char *const kinds[] = {"malloc", "registered", "alloc"};
    for (uint64_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(text, kinds[i])) {
            *memory_out = i;
            return 0;
        }
    return refuse(row, text, "malloc, registered or alloc");
}

/* One SIZE or SIZE:N of a list; false when it is neither. */
static bool read_size(const struct row *row, char *text, struct perf_size *size)
{
    char *colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    if (!number(text, true, &size->bytes) || size->bytes > row->highest)
        return false;
    if (!colon)
        return true;
    const bool fine = number(colon + 1, false, &size->iters) && size->iters && size->iters <= MOST_ROUNDS;
    size->warmup = size->iters < 20 ? 2 : size->iters / 10;
    return fine;
}

static int read_sizes(const struct row *row, const char *text, struct perf_options *opt)
{
    for (const char *p = text;; p++) {
        char one[64];
        const size_t len = strcspn(p, ",");
        struct perf_size size = {0, 0, 0};
        snprintf(one, sizeof one, "%.*s", (int)(len < sizeof one ? len : 0), p);
        if (opt->size_count == PERF_SIZES_MAX || !read_size(row, one, &size))
            return refuse(row, text,
                          "up to 64 sizes such as 8,64K or 8:20000,64K:500 (bytes, and how many operations)");
        opt->sizes[opt->size_count++] = size;
        p += len;
        if (!*p)
            return 0;
    }
}

static int read_row(const struct row *row, const char *text, struct perf_options *opt)
{
    void *field = (char *)opt + row->offset;
    switch (row->kind) {
    case BYTES:
    case COUNT:
    case ONE:
        return read_number(row, text, field);
    case DTYPES:
    case REDOPS:
        return read_names(row, text, field);
    case ROOT:
        return read_root(row, text, field);
    case INJECT:
        return read_inject(row, text, opt);
    case MEMORY:
        return read_memory(row, text, field);
    case SIZES:
        return read_sizes(row, text, opt);
    case FLAG:
        memcpy(field, &(bool){true}, sizeof(bool));
        return 0;
    case TEXT:
        memcpy(field, &text, sizeof text);
        return 0;
    }
    return 2;
}

static int help(void)
{
    printf("usage: ringrun -n RANKS ring_perf COLLECTIVE [options]\n\n"
           "Measures and checks a collective over a range of sizes.  COLLECTIVE is all, or one of\n");
    for (unsigned i = 0; coll_name(i); i++)
        printf("%s%s%s", i % 8 ? " " : "  ", coll_name(i), i % 8 == 7 || !coll_name(i + 1) ? "\n" : "");
    printf("\n");
    for (const struct row *row = rows; row < rows + ROWS; row++) {
        char form[64];
        if (!row->help)
            continue;
        snprintf(form, sizeof form, "-%c, --%s %s", row->letter, row->name, row->value ? row->value : "");
        printf("  %-30s %s%s%s%s\n", form, row->help, row->fallback ? " [" : "", row->fallback ? row->fallback : "",
               row->fallback ? "]" : "");
    }
    printf("  %-30s %s\n  %-30s %s\n\n", "-h, --help", "this text", "-V, --version", "the version of the library");
    printf(
        "size is that of the larger buffer of a rank; collectives of blocks cut it into one for each rank, and count "
        "is\n"
        "that of the call.  In the ...v forms blocks are one, two, three, one, two ... shares.  time is the mean over "
        "the\n"
        "timed operations (see -a for how ranks count), in microseconds; algbw = size / time and busbw = algbw times\n"
        "what each rank must move of it: 2(n-1)/n in all_reduce; 1 in broadcast, reduce and sendrecv; (n-1)/n in the\n"
        "others; in units of 1e9 bytes a second.  #wrong counts elements, of all ranks, that are not exactly what "
        "they\n"
        "must be: inputs are such that no order of the operation rounds.  The exit code is 0 when all is well, 1 when\n"
        "values are wrong or the library failed, 2 when an option is.\n");
    return 1;
}

/* What getopt_long wants, made from the table. */
struct forms {
    char letters[2 * ROWS + 4];
    struct option longs[ROWS + 3];
};

static void forms_make(struct forms *f)
{
    char *p = f->letters;
    memset(f, 0, sizeof *f);
    *p++ = ':'; /* tells a missing value from an unknown option */
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].letter) {
            *p++ = rows[i].letter;
            if (rows[i].kind != FLAG)
                *p++ = ':';
        }
        f->longs[i] =
            (struct option){rows[i].name, rows[i].kind == FLAG ? no_argument : required_argument, NULL, LONG_BASE + i};
    }
    *p++ = 'h';
    *p = 'V';
    f->longs[ROWS] = (struct option){"help", no_argument, NULL, 'h'};
    f->longs[ROWS + 1] = (struct option){"version", no_argument, NULL, 'V'};
}

static const struct row *row_of(int code)
{
    for (int i = 0; i < ROWS; i++)
        if (code == LONG_BASE + i || (code < LONG_BASE && code == rows[i].letter))
            return &rows[i];
    return NULL;
}

static int unknown(int code, char **argv)
{
    const struct row *row = code == ':' ? row_of(optopt) : NULL;
    if (row)
        return refuse(row, "", row->value);
    fprintf(complaints(), "ring_perf: %s is not an option; ring_perf --help lists them\n", argv[optind - 1]);
    return 2;
}

static int read_coll(struct perf_options *opt, int argc, char **argv)
{
    char names[400];
    join_names(coll_name, names, sizeof names);
    if (optind != argc - 1) {
        fprintf(complaints(), "ring_perf: %s; all, or one of: %s (ring_perf --help)\n",
                optind == argc ? "which collective is to be measured" : "one collective at a time", names);
        return 2;
    }
    opt->name = argv[optind];
    opt->colls = name_bits(coll_name, opt->name, strlen(opt->name));
    if (opt->colls)
        return 0;
    fprintf(complaints(), "ring_perf: \"%s\" is not a collective; all, or one of: %s\n", argv[optind], names);
    return 2;
}

/* A type and an operation that never go together are an oversight; some of a list that do not are passed over. */
static bool some_fit(const struct perf_options *opt)
{
    for (int dtype = 0; dtype < 64; dtype++)
        for (int redop = 0; redop < 64; redop++)
            if (opt->dtypes >> dtype & 1 && opt->redops >> redop & 1 &&
                ring_redop_fits((ring_dtype_t)dtype, (ring_redop_t)redop))
                return true;
    return false;
}

/* What no single option can see. */
static int check_range(const struct perf_options *opt)
{
    if (opt->min_bytes > opt->max_bytes)
        fprintf(complaints(), "ring_perf: -b/--minbytes %llu is larger than -e/--maxbytes %llu\n",
                (unsigned long long)opt->min_bytes, (unsigned long long)opt->max_bytes);
    else if (opt->step_factor == 1)
        fprintf(complaints(), "ring_perf: -f/--stepfactor 1 would never reach -e: it takes 0, or 2 and more\n");
    else if (opt->step_factor && !opt->min_bytes && opt->max_bytes)
        fprintf(complaints(), "ring_perf: -b 0 does not grow by a factor: give -i instead of -f, or a larger -b\n");
    else if (opt->buffers && opt->buffers < opt->group)
        fprintf(complaints(), "ring_perf: -m/--group %llu needs as many buffers: give -B %llu or more, or no -B\n",
                (unsigned long long)opt->group, (unsigned long long)opt->group);
    else if (opt->start && opt->persistent)
        fprintf(complaints(), "ring_perf: -s/--start and -p/--persistent are two ways of calling: give one of them; -p "
                              "starts and waits too\n");
    else if (!some_fit(opt))
        fprintf(complaints(),
                "ring_perf: -o and -d: none of the operations is there for any of the types: those on bits "
                "and truth want integers\n");
    else
        return 0;
    return 2;
}

/* The least and most of what -S lists, so that the table and the file say what is measured. */
static void span_sizes(struct perf_options *opt)
{
    for (uint64_t i = 0; i < opt->size_count; i++) {
        const uint64_t bytes = opt->sizes[i].bytes;
        opt->min_bytes = !i || bytes < opt->min_bytes ? bytes : opt->min_bytes;
        opt->max_bytes = !i || bytes > opt->max_bytes ? bytes : opt->max_bytes;
    }
}

int perf_options_read(struct perf_options *opt, int argc, char **argv)
{
    struct forms forms;
    int code, status = 0;
    memset(opt, 0, sizeof *opt);
    for (int i = 0; i < ROWS && !status; i++)
        if (rows[i].fallback)
            status = read_row(&rows[i], rows[i].fallback, opt);
    forms_make(&forms);
    opterr = 0;
    while (!status && (code = getopt_long(argc, argv, forms.letters, forms.longs, NULL)) != -1) {
        const struct row *row = row_of(code);
        if (row)
            status = read_row(row, optarg, opt);
        else if (code == 'h')
            return help();
        else if (code == 'V')
            return printf("ring_perf %s\n", ring_version()), 1;
        else
            status = unknown(code, argv);
    }
    if (!status)
        status = read_coll(opt, argc, argv);
    if (!status)
        status = check_range(opt);
    span_sizes(opt);
    return status;
}
