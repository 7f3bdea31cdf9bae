/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c - see reach.h. */
#include "reach.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "say.h"
#include "words.h"

static char *const default_rsh[] = {
    "ssh", "-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "--", NULL};

bool reach_is_here(const char *host)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    if (strcmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0)
        return true;
    if (strcmp(host, own) == 0)
        return true;
    /* "node1" is "node1.cluster", but an address is no abbreviation */
    size_t first = strcspn(host, "."), own_first = strcspn(own, ".");
    bool one_short = !host[first] || !own[own_first];
    return one_short && first == own_first && strncmp(host, own, first) == 0;
}

/* Two pipes; the child's ends are child[0] to read and child[1] to write. */
static bool open_pipes(int child[2], int parent[2])
{
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0)
        return false;
    if (pipe2(up, O_CLOEXEC) != 0) {
        close(down[0]);
        close(down[1]);
        return false;
    }
    child[0] = down[0];
    child[1] = up[1];
    parent[0] = up[0];
    parent[1] = down[1];
    return true;
}

static char *start(struct link *l, int child[2])
{
    int parent[2];
    if (!open_pipes(child, parent))
        return need_format("cannot make a pipe to an agent: %s", strerror(errno));
    l->pid = fork();
    if (l->pid == 0)
        return NULL;
    int problem = errno;
    close(child[0]);
    close(child[1]);
    channel_init(&l->ch, parent[0], parent[1], true);
    if (l->pid > 0) {
        setpgid(l->pid, l->pid);
        return NULL;
    }
    l->pid = 0;
    return need_format("cannot start an agent: %s", strerror(problem));
}

char *reach_local(struct link *l, const struct original *original)
{
    int child[2];
    l->local = true;
    l->command = need_text("fork");
    char *problem = start(l, child);
    if (!problem && l->pid == 0)
        agent_run(child[0], child[1], original);
    return problem;
}

static char *remote_path(void)
{
    const char *chosen = getenv("RINGRUN_REMOTE");
    if (chosen && *chosen)
        return need_text(chosen);
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return need_text("ringrun");
    path[n] = 0;
    return need_text(path);
}

static size_t count_words(char *const *words)
{
    size_t count = 0;
    while (words[count])
        count++;
    return count;
}

/* rsh words, host, path, --agent. */
static char **command(char *const *rsh, const char *host, const char *path)
{
    size_t count = count_words(rsh);
    char **words = need((count + 4) * sizeof *words);
    memcpy(words, rsh, count * sizeof *words);
    words[count] = need_text(host);
    words[count + 1] = word_quote(path);
    words[count + 2] = need_text("--agent");
    return words;
}

static _Noreturn void become_rsh(char **words, const int child[2], const struct original *original)
{
    setpgid(0, 0); /* Ctrl-C is for ringrun, which ends the job in order */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(child[0], STDIN_FILENO);
    dup2(child[1], STDOUT_FILENO);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_NOFILE, &original->files);
    sigprocmask(SIG_SETMASK, &original->mask, NULL);
    execvp(words[0], words);
    say("cannot run '%s': %s", words[0], strerror(errno));
    _exit(EXIT_NOT_FOUND);
}

char *reach_remote(struct link *l, char *const *rsh, const char *host, const struct original *original)
{
    int child[2];
    rsh = rsh ? rsh : default_rsh;
    char *path = remote_path(), **words = command(rsh, host, path);
    l->command = need_text(words[0]);
    char *problem = start(l, child);
    if (!problem && l->pid == 0)
        become_rsh(words, child, original);
    for (size_t i = count_words(rsh); words[i]; i++) /* those before are the caller's */
        free(words[i]);
    free(words);
    free(path);
    return problem;
}

bool reach_ended(struct link *l, int ms)
{
    for (uint64_t deadline = now_ms() + (uint64_t)ms; l->pid;) {
        pid_t pid = waitpid(l->pid, &l->status, WNOHANG);
        if (pid == l->pid || (pid < 0 && errno == ECHILD))
            l->pid = 0;
        else if (now_ms() >= deadline)
            return false;
        else
            usleep(500);
    }
    return true;
}

void reach_close(struct link *l)
{
    channel_close(&l->ch);
    if (l->pid) {
        kill(-l->pid, SIGKILL);
        reach_ended(l, 2000);
    }
    free(l->command);
    l->command = NULL;
}
