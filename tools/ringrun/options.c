/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - see options.h. */
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "say.h"
#include "words.h"

static const char help[] =
    "Usage: ringrun [options] [--] program [arguments]\n"
    "Start N copies of a program (ranks 0 .. N-1), on this host or on several, as one PMIx job.\n"
    "\n"
    "  -n N                    number of ranks; default: one a slot, without hosts one a CPU\n"
    "  -H host[:slots],...     hosts; [user@]host, IPv6 in brackets: [fd00::1]:4\n"
    "  --hostfile FILE         the same, a line each: host, host:slots or 'host slots=N'; # begins a comment\n"
    "  --rsh CMD               reach hosts by 'CMD HOST RINGRUN --agent' instead of ssh; with it, every host is "
    "reached\n"
    "                          so, otherwise localhost and this host's own name are not\n"
    "  -x NAME[=VALUE]         set an environment variable for all ranks; without a value: the one it has here\n"
    "  --tag-output            begin each line of output with its rank: '[3] '\n"
    "  --timeout SECONDS       end the job when it takes longer\n"
    "  --wdir DIR              working directory of the ranks; default: this one, on every host\n"
    "  --help, --version\n"
    "\n"
    "Hosts with slots get at most so many ranks; hosts without share the rest evenly, however many. Ranks are placed "
    "in\n"
    "blocks, in the order of the hosts. The hosts of -H and --hostfile add up.\n"
    "\n"
    "Environment: ranks on this host get all of ringrun's. Ranks elsewhere get what a login there gives, and from "
    "here\n"
    "PATH, LD_LIBRARY_PATH, all RING_* variables and those of -x. RINGRUN_REMOTE is the path of ringrun on the other\n"
    "hosts, when it is not the same as here. Nothing is ever handed to a shell but that path.\n"
    "\n"
    "Standard input goes to rank 0. Output comes as it is written; with --tag-output a line is never torn (lines over\n"
    "1 MiB are cut there).\n"
    "\n"
    "Exit code: that of the first rank that failed, 128+n if signal n killed it, else 0. 127: program not found,\n"
    "126: not executable, 125: ringrun's own failure (options, a host lost), 124: --timeout, 128+n: signal n to "
    "ringrun.\n"
    "When a rank fails, the others have 5 s to end by themselves, then get TERM, and 2 s later KILL. INT, TERM, HUP\n"
    "and QUIT go on to the ranks, which have 2 s; a second one kills at once.\n";

enum { OPT_HOSTFILE = 256, OPT_RSH, OPT_TAG, OPT_TIMEOUT, OPT_WDIR, OPT_HELP, OPT_VERSION };

static const struct option names[] = {
    {"hostfile", required_argument, NULL, OPT_HOSTFILE},
    {"rsh", required_argument, NULL, OPT_RSH},
    {"tag-output", no_argument, NULL, OPT_TAG},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"wdir", required_argument, NULL, OPT_WDIR},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {"host", required_argument, NULL, 'H'},
    {NULL, 0, NULL, 0},
};

static uint32_t parse_ranks(const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < 1 || value > JOB_RANKS_MAX)
        die("-n '%s' is no number of ranks (1 to %d)", text, JOB_RANKS_MAX);
    return (uint32_t)value;
}

static uint64_t parse_timeout(const char *text)
{
    char *end;
    double seconds = strtod(text, &end);
    if (!((text[0] >= '0' && text[0] <= '9') || text[0] == '.') || *end || !isfinite(seconds) || seconds <= 0 ||
        seconds > 1e9)
        die("--timeout '%s' is no number of seconds (above 0, at most 1e9)", text);
    uint64_t ms = (uint64_t)(seconds * 1000);
    return ms ? ms : 1;
}

static void add_set(struct options *o, size_t *count, const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == text || !*text)
        die("-x '%s' names no variable (NAME or NAME=VALUE)", text);
    const char *value = equals ? NULL : getenv(text);
    if (!equals && !value)
        die("-x %s: there is no such variable in ringrun's environment (give NAME=VALUE to set one)", text);
    o->set = need_more(o->set, (*count + 2) * sizeof *o->set);
    o->set[(*count)++] = equals ? need_text(text) : need_format("%s=%s", text, value);
    o->set[*count] = NULL;
}

static char *read_file(const char *path, size_t *len_out)
{
    struct bytes b = {0};
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("cannot open host file %s: %s", path, strerror(errno));
    for (;;) {
        bytes_reserve(&b, 64 << 10);
        ssize_t n = read(fd, b.data + b.len, b.cap - b.len);
        if (n < 0)
            die("cannot read host file %s: %s", path, strerror(errno));
        if (n == 0)
            break;
        b.len += (size_t)n;
        if (b.len > (64 << 20))
            die("host file %s is longer than 64 MiB", path);
    }
    close(fd);
    *len_out = b.len;
    return (char *)b.data;
}

static void add_host_file(struct options *o, const char *path)
{
    size_t len, before = o->hosts.count;
    char *text = read_file(path, &len);
    char *problem = hosts_parse_file(&o->hosts, path, text, len);
    if (problem)
        die("%s", problem);
    if (o->hosts.count == before && before == 0)
        die("host file %s names no host", path);
    free(text);
}

static void add_host_list(struct options *o, const char *text)
{
    char *problem = hosts_parse_list(&o->hosts, "-H", text);
    if (problem)
        die("%s", problem);
}

static char **parse_rsh(const char *text)
{
    if (text[strspn(text, " \t\n")] == 0)
        die("--rsh is empty (expected a command, such as 'ssh -p 2222')");
    char **words = words_split(text);
    if (!words)
        die("--rsh \"%s\": a quote is not closed", text);
    return words;
}

static void take(struct options *o, size_t *sets, int option)
{
    switch (option) {
    case 'n':
        o->ranks = parse_ranks(optarg);
        break;
    case 'H':
        add_host_list(o, optarg);
        break;
    case 'x':
        add_set(o, sets, optarg);
        break;
    case OPT_HOSTFILE:
        add_host_file(o, optarg);
        break;
    case OPT_RSH:
        words_free(o->rsh);
        o->rsh = parse_rsh(optarg);
        break;
    case OPT_TAG:
        o->tag_output = true;
        break;
    case OPT_TIMEOUT:
        o->timeout_ms = parse_timeout(optarg);
        break;
    case OPT_WDIR:
        free(o->folder);
        o->folder = need_text(optarg);
        break;
    case OPT_HELP:
        fputs(help, stdout);
        exit(fflush(stdout) ? EXIT_LAUNCHER : 0);
    case OPT_VERSION:
        puts("ringrun " RINGRUN_VERSION);
        exit(fflush(stdout) ? EXIT_LAUNCHER : 0);
    default:
        fputs("Try 'ringrun --help'.\n", stderr);
        exit(EXIT_LAUNCHER);
    }
}

void options_parse(int argc, char **argv, struct options *options_out)
{
    struct options o = {0};
    size_t sets = 0;
    o.set = need(sizeof *o.set);
    static char own_name[] = "ringrun";
    if (argc > 0)
        argv[0] = own_name; /* getopt begins its messages with it */
    for (int option; (option = getopt_long(argc, argv, "+n:H:x:", names, NULL)) != -1;)
        take(&o, &sets, option);
    if (optind >= argc)
        die("no program given (ringrun [options] program arguments; see --help)");
    if (!argv[optind][0])
        die("the program's name is empty");
    o.argv = argv + optind;
    *options_out = o;
}

void options_free(struct options *options)
{
    hosts_free(&options->hosts);
    words_free(options->rsh);
    words_free(options->set);
    free(options->folder);
}
