/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - ringrun: start the ranks of a job, on this host and on others, as a PMIx server.
 *
 *   ringrun (control.c) ---- channel ---- agent on each host (agent.c) ---- ranks, PMIx server
 *
 * ringrun itself starts nothing but agents: a copy of itself by fork on this host, "ringrun --agent" by ssh elsewhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "control.h"
#include "options.h"
#include "say.h"

/* Standard descriptors that the caller has closed would be given to something else. */
static void fill_standard_fds(void)
{
    for (;;) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0 || fd > STDERR_FILENO) {
            if (fd >= 0)
                close(fd);
            break;
        }
    }
}

/* Descriptors are needed for hosts here, for ranks in an agent; ranks themselves get the caller's limit. */
static void raise_files_limit(const struct rlimit *original)
{
    struct rlimit limit = {.rlim_cur = original->rlim_max, .rlim_max = original->rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    struct original original;
    struct options options;
    fill_standard_fds();
    sigprocmask(SIG_SETMASK, NULL, &original.mask);
    if (getrlimit(RLIMIT_NOFILE, &original.files) != 0)
        die("cannot read the limit of open files: %s", strerror(errno));
    raise_files_limit(&original.files);
    if (argc == 2 && strcmp(argv[1], "--agent") == 0)
        agent_run(STDIN_FILENO, STDOUT_FILENO, &original);
    options_parse(argc, argv, &options);
    int code = control_run(&options, &original);
    options_free(&options);
    return code;
}
