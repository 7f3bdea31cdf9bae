/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - ring_info: version, build, host, transports, algorithms, kernels and settings, as this process sees them.
 *
 * Settings are read one by one, so that a wrong one does not hide the others; the exit code is then 1. */
#include "ring_info.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/boot/host.h"
#include "lib/coll/coll.h"
#include "lib/comm/comm.h"
#include "lib/reduce/reduce.h"
#include "transports/transport.h"

static void print_build(void)
{
    printf("libring %s\n\nBuild\n  compiler     %s\n  PMIx         %s\n  sanitizers   %s\n  assertions   %s\n",
           ring_version(), RING_INFO_COMPILER, RING_INFO_PMIX, RING_INFO_SANITIZE,
#ifdef NDEBUG
           "off"
#else
           "on"
#endif
    );
}

static void print_host(const struct ri_conf *conf)
{
    struct ri_host host;
    ri_host_get(conf, &host);
    printf("\nHost\n  name         %s\n  identity     ", host.name);
    for (size_t i = 0; i < sizeof host.id; i++)
        printf("%02x", host.id[i]);
    printf("\n");
}

static void print_transports(const struct ri_conf *conf)
{
    printf("\nTransports\n");
    for (const struct ri_transport *const *t = ri_transports; *t; t++) {
        char why[160] = "";
        const bool usable = (*t)->usable(conf, why, sizeof why);
        printf("  %-12s %s%s - %s\n", (*t)->name, usable ? "usable" : "off: ", usable ? "" : why, (*t)->help);
    }
    if (!ri_transports[0])
        printf("  none in this build\n");
    for (const struct ri_transport *const *t = ri_transports; *t; t++)
        if ((*t)->explain)
            (*t)->explain(conf, stdout);
}

static void print_algorithms(void)
{
    printf("\nAlgorithms (RING_ALGO; a form with counts follows its collective: all_gather is for all_gatherv too)\n");
    printf("  %-12s %s\n", "node",
           "every collective - direct loads and stores; what auto takes when all ranks are on one host");
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
        printf("  %-12s %s - %s\n", (*a)->name, ring_coll_str((*a)->coll), (*a)->help);
}

static void print_kernels(void)
{
    printf("\nReduction kernels this processor can run, best last\n ");
    for (size_t i = 0; i < ri_kernel_sets(); i++)
        printf(" %s", ri_kernel_set_name(i));
    printf("\n");
}

static void print_range(const struct ri_conf_row *row)
{
    if (row->type == RI_CONF_CHOICE)
        printf("one of %s", row->highest);
    else if (row->type == RI_CONF_TEXT)
        printf("text of 1 to %d bytes", RI_CONF_TEXT_MAX - 1);
    else
        printf("%s to %s", row->lowest, row->highest);
}

/* A transport looks at its own settings when it is opened: RING_TCP_CONGESTION names what this kernel has. */
static bool transports_refuse(const struct ri_conf *conf)
{
    ring_status_t status = RING_OK;
    for (const struct ri_transport *const *t = ri_transports; *t && status != RING_ERR_CONFIG; t++) {
        char why[160];
        struct ri_tctx *ctx = (*t)->usable(conf, why, sizeof why) ? ri_new_aligned(64, (*t)->ctx_size) : NULL;
        if (!ctx)
            continue;
        *ctx = (struct ri_tctx){.transport = *t, .conf = conf};
        status = (*t)->open(ctx);
        (*t)->close(ctx);
        ri_free(ctx);
    }
    return status == RING_ERR_CONFIG;
}

/* Whether the library refuses this value, looked at alone; the error is then in ri_error_get(). */
static bool refused(const struct ri_conf_row *row, const char *text)
{
    struct ri_conf alone;
    ri_conf_defaults(&alone);
    return ri_conf_set(&alone, row, text) || ri_wires_check(&alone) || transports_refuse(&alone);
}

/* What was given, with what a terminal cannot show replaced; not what stands instead of it, which nobody uses. */
static void print_given(const char *text)
{
    int n = 0;
    for (; text[n] && n < 64; n++)
        putchar(isprint((unsigned char)text[n]) ? text[n] : '?');
    printf("%*s REFUSED, from the environment; ", n < 10 ? 10 - n : 0, "");
}

static void print_value(const struct ri_conf *conf, const struct ri_conf_row *row, const char *origin)
{
    char value[RI_CONF_TEXT_MAX];
    ri_conf_print(conf, row, value, sizeof value);
    printf("%-10s %s; ", value, origin);
}

/* The default is said once, and as values are. */
static void print_default(const struct ri_conf_row *row)
{
    struct ri_conf defaults;
    char value[RI_CONF_TEXT_MAX];
    ri_conf_defaults(&defaults);
    ri_conf_print(&defaults, row, value, sizeof value);
    printf("default %s; ", value);
}

/* Returns the number of settings whose value is wrong. */
static int print_settings(const struct ri_conf *conf)
{
    int wrong = 0;
    printf("\nSettings (environment variables)\n");
    for (size_t i = 0; i < ri_conf_row_count; i++) {
        const struct ri_conf_row *row = &ri_conf_rows[i];
        const char *text = getenv(row->variable);
        const bool bad = text && refused(row, text);
        printf("  %-22s ", row->variable);
        if (bad)
            print_given(text);
        else
            print_value(conf, row, text ? "from the environment" : "default");
        if (text)
            print_default(row);
        print_range(row);
        printf("%s\n  %-22s %s\n", row->agree ? "; the same on all ranks" : "", "", row->help);
        if (bad)
            printf("  %-22s WRONG: %s\n", "", ri_error_get());
        wrong += bad;
    }
    return wrong;
}

/* The settings as ri_conf_load() gives them, but a wrong one leaves the others as they are. */
static void load(struct ri_conf *conf)
{
    if (!ri_conf_load(conf)) /* also warns of variables that are no settings */
        return;
    for (size_t i = 0; i < ri_conf_row_count; i++) {
        const char *text = getenv(ri_conf_rows[i].variable);
        if (text)
            (void)ri_conf_set(conf, &ri_conf_rows[i], text); /* leaves the default when it refuses */
    }
}

static int list(void)
{
    struct ri_conf conf;
    load(&conf);
    print_build();
    print_host(&conf);
    print_transports(&conf);
    print_algorithms();
    print_kernels();
    const int wrong = print_settings(&conf);
    fflush(stdout);
    if (wrong)
        fprintf(stderr, "ring_info: %d setting%s wrong in the environment\n", wrong, wrong == 1 ? " is" : "s are");
    return wrong ? 1 : 0;
}

static const char usage[] =
    "usage: ring_info                                     what this library is and how it is set\n"
    "       ring_info schedule COLLECTIVE --algo NAME --size N [--rank R] [--root R] [--count ELEMENTS]\n"
    "                 [--dtype TYPE] [--segment BYTES] [--per-host RANKS]\n"
    "                                                     the program an algorithm makes for one rank, or for all\n"
    "       ring_info --help | --version\n";

static int act(int argc, char **argv)
{
    if (argc == 1)
        return list();
    if (!strcmp(argv[1], "schedule"))
        return ring_info_schedule(argc - 2, argv + 2);
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        return fputs(usage, stdout) < 0;
    if (argc == 2 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")))
        return printf("ring_info %s\n", ring_version()) < 0;
    fprintf(stderr, "ring_info: \"%s\" is not understood\n%s", argv[1], usage);
    return 2;
}

int main(int argc, char **argv)
{
    const int code = act(argc, argv);
    if (!fflush(stdout) && !ferror(stdout))
        return code;
    fprintf(stderr, "ring_info: cannot write to standard output\n");
    return 1;
}
