/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"
#include "say.h"

/* What a child that cannot become its program writes into failed[1]; less than PIPE_BUF, so never torn. */
struct failure {
    uint32_t index;
    uint32_t how;
    uint32_t value;
};

static void mark(struct rank *k, enum ended how, uint32_t value)
{
    k->over = true;
    k->how = how;
    k->value = value;
}

/* ---- in the child --------------------------------------------------------------------------------------------------
 */

static void set_fds(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            _exit(EXIT_LAUNCHER);
}

static _Noreturn void become(const struct job *job, char **env, const int fds[3], const struct original *original,
                             pid_t agent, int report, uint32_t index)
{
    struct failure f = {.index = index};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(EXIT_LAUNCHER); /* it died before we were bound to it */
    set_fds(fds);
    setrlimit(RLIMIT_NOFILE, &original->files);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &original->mask, NULL);
    if (chdir(job->folder) != 0) {
        f.how = ENDED_NO_FOLDER;
    } else {
        environ = env;
        execvp(job->argv[0], job->argv);
        f.how = ENDED_NO_EXEC;
    }
    f.value = (uint32_t)errno;
    /* the file is there, but the kernel found none: it means the interpreter */
    if (f.how == ENDED_NO_EXEC && errno == ENOENT && strchr(job->argv[0], '/') && access(job->argv[0], F_OK) == 0)
        f.value = ELIBACC;
    if (write(report, &f, sizeof f) < 0) {
        /* the agent is gone, and so are we */
    }
    _exit(EXIT_NOT_FOUND);
}

/* ---- in the agent --------------------------------------------------------------------------------------------------
 */

struct start {
    const struct job *job;
    const struct original *original;
    int nothing; /* /dev/null */
    int *input_out;
};

/* fds for the rank: input, output, error; -1 where there is none yet. */
static bool open_fds(struct rank *k, const struct start *s, int fds[3])
{
    if (k->number == 0) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0)
            return false;
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        fds[0] = ends[0];
        *s->input_out = ends[1];
    } else {
        fds[0] = fcntl(s->nothing, F_DUPFD_CLOEXEC, 3);
    }
    return fds[0] >= 0 && stream_open(&k->out[0], 1, k->number, s->job->tag_output, &fds[1]) &&
           stream_open(&k->out[1], 2, k->number, s->job->tag_output, &fds[2]);
}

static void start_one(struct ranks *r, uint32_t index, char **env, const struct start *s)
{
    struct rank *k = &r->list[index];
    int fds[3] = {-1, -1, -1};
    pid_t agent = getpid();
    if (!open_fds(k, s, fds)) {
        mark(k, ENDED_NO_START, (uint32_t)errno);
    } else {
        k->pid = fork();
        if (k->pid == 0)
            become(s->job, env, fds, s->original, agent, r->failed[1], index);
        if (k->pid < 0) {
            mark(k, ENDED_NO_START, (uint32_t)errno);
            k->pid = 0;
        } else {
            setpgid(k->pid, k->pid); /* the child does it too: whoever is first */
        }
    }
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

void ranks_start(struct ranks *r, const struct job *job, char ***env, const struct original *original, int *input_out)
{
    const struct place *here = &job->places[job->here];
    r->count = here->count;
    r->list = need(r->count * sizeof *r->list);
    r->ended = need(r->count * sizeof *r->ended);
    *input_out = -1;
    struct start s = {.job = job, .original = original, .input_out = input_out};
    s.nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool good = s.nothing >= 0 && pipe2(r->failed, O_CLOEXEC) == 0;
    int problem = errno;
    if (good)
        fcntl(r->failed[0], F_SETFL, O_NONBLOCK);
    for (uint32_t i = 0; i < r->count; i++) {
        struct rank *k = &r->list[i];
        *k = (struct rank){.number = here->first + i, .out = {{.fd = -1}, {.fd = -1}}};
        if (good)
            start_one(r, i, env[i], &s);
        else
            mark(k, ENDED_NO_START, (uint32_t)problem);
        if (k->over)
            r->ended[r->ended_count++] = i;
    }
    if (s.nothing >= 0)
        close(s.nothing);
}

static void read_failures(struct ranks *r)
{
    struct failure f;
    while (read(r->failed[0], &f, sizeof f) == (ssize_t)sizeof f)
        if (f.index < r->count)
            mark(&r->list[f.index], (enum ended)f.how, f.value);
}

static struct rank *by_pid(struct ranks *r, pid_t pid)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->list[i].pid == pid)
            return &r->list[i];
    return NULL;
}

static void reaped(struct ranks *r, struct rank *k, int status)
{
    k->pid = 0;
    read_failures(r);
    if (!k->over && WIFSIGNALED(status))
        mark(k, ENDED_SIGNAL, (uint32_t)WTERMSIG(status));
    else if (!k->over)
        mark(k, ENDED_EXIT, (uint32_t)WEXITSTATUS(status));
    r->ended[r->ended_count++] = (uint32_t)(k - r->list);
    for (int i = 0; i < 2; i++)
        stream_last_call(&k->out[i]);
}

void ranks_reap(struct ranks *r, pid_t first)
{
    int status;
    for (pid_t wanted = first > 0 ? first : -1;; wanted = -1) {
        pid_t pid = waitpid(wanted, &status, WNOHANG);
        struct rank *k = pid > 0 ? by_pid(r, pid) : NULL;
        if (k)
            reaped(r, k, status); /* else something that a rank had left behind */
        if (pid <= 0 && wanted < 0)
            break;
    }
}

static bool failed_by_itself(const struct rank *k) { return k->how == ENDED_EXIT && k->value != 0; }

/* Stable: signals first. */
static void signals_first(struct ranks *r, uint32_t from)
{
    for (uint32_t i = from; i < r->ended_count; i++) {
        uint32_t index = r->ended[i];
        if (r->list[index].how != ENDED_SIGNAL)
            continue;
        memmove(&r->ended[from + 1], &r->ended[from], (i - from) * sizeof *r->ended);
        r->ended[from++] = index;
    }
}

bool ranks_settled(struct ranks *r, uint32_t told)
{
    bool in_question = false, ending = false;
    for (uint32_t i = told; i < r->ended_count; i++)
        in_question = in_question || failed_by_itself(&r->list[r->ended[i]]);
    for (uint32_t i = 0; i < r->count && in_question && !ending; i++)
        ending = r->list[i].pid && proc_ends(r->list[i].pid);
    if (!ending || (r->settle_by && now_ms() >= r->settle_by)) {
        r->settle_by = 0;
        signals_first(r, told);
        return true;
    }
    if (!r->settle_by)
        r->settle_by = now_ms() + SETTLE_MS;
    return false;
}

void ranks_signal(struct ranks *r, int number)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct rank *k = &r->list[i];
        if (k->pid && kill(-k->pid, number) != 0)
            kill(k->pid, number); /* it has joined another group */
    }
}

/* ---- what ranks leave behind ---------------------------------------------------------------------------------------
 */

static void kill_once(void)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    for (struct dirent *d; (d = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)atol(d->d_name); /* 0: not a process */
        if (pid > 0 && proc_parent(pid) == getpid())
            kill(pid, SIGKILL);
    }
    closedir(proc);
}

void kill_children(void)
{
    uint64_t deadline = now_ms() + 2000; /* a process in an uninterruptible call is the kernel's to end */
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid > 0)
            continue;
        if (pid < 0 || now_ms() > deadline)
            break;
        kill_once();
        usleep(500);
    }
}
