/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - see signals.h. */
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "say.h"

int signals_open(void)
{
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        struct sigaction now;
        if (sigaction(watched[i], NULL, &now) == 0 && (now.sa_handler != SIG_IGN || watched[i] == SIGCHLD))
            sigaddset(&set, watched[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take the exit codes away */
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        die("cannot watch signals: %s", strerror(errno));
    return fd;
}

int signals_next(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}
