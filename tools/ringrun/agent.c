/* SPDX-License-Identifier: Apache-2.0 */
/* agent.c - see agent.h: one loop over poll(), which moves messages, output, input and PMIx's requests.
 *
 * It never blocks but in poll(), so that the end of ringrun is noticed at once, whatever the ranks do. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "channel.h"
#include "env.h"
#include "guard.h"
#include "server.h"
#include "say.h"

struct agent {
    struct channel up; /* to ringrun */
    const struct original *original;
    struct job job;
    bool has_job, over;
    struct ranks ranks;
    uint32_t told;  /* ends of ranks that ringrun knows of */
    int64_t credit; /* bytes of output that may still be sent */
    int signals;
    int input; /* of rank 0; -1: not here, or closed */
    struct bytes input_queue;
    bool input_ended;
};

/* ---- messages to ringrun -------------------------------------------------------------------------------------------
 */

static void send_hello(struct agent *a)
{
    char name[256] = "";
    size_t mark;
    gethostname(name, sizeof name - 1);
    channel_send_magic(&a->up);
    struct bytes *b = channel_begin(&a->up, MSG_HELLO, &mark);
    put_u32(b, PROTOCOL);
    put_text(b, RINGRUN_VERSION);
    put_text(b, name);
    channel_end(&a->up, mark);
}

static void send_problem(struct agent *a, char *problem)
{
    size_t mark;
    put_text(channel_begin(&a->up, MSG_PROBLEM, &mark), problem);
    channel_end(&a->up, mark);
    free(problem);
}

static void send_taken(struct agent *a, uint32_t len)
{
    size_t mark;
    put_u32(channel_begin(&a->up, MSG_TAKEN, &mark), len);
    channel_end(&a->up, mark);
}

static void send_exit(struct agent *a, const struct rank *k)
{
    size_t mark;
    struct bytes *b = channel_begin(&a->up, MSG_EXIT, &mark);
    put_u32(b, k->number);
    put_u32(b, k->how);
    put_u32(b, k->value);
    channel_end(&a->up, mark);
}

static void send_shut(struct agent *a, struct rank *k)
{
    size_t mark;
    put_u32(channel_begin(&a->up, MSG_SHUT, &mark), k->number);
    channel_end(&a->up, mark);
    k->shut = true;
}

/* ---- standard input of rank 0 --------------------------------------------------------------------------------------
 */

static void close_input(struct agent *a, bool tell)
{
    if (a->input >= 0)
        close(a->input);
    a->input = -1;
    bytes_free(&a->input_queue);
    if (tell)
        send_taken(a, INPUT_CLOSED);
}

static void pump_input(struct agent *a)
{
    if (a->input >= 0 && a->input_queue.len) {
        ssize_t n = write(a->input, a->input_queue.data, a->input_queue.len);
        if (n > 0) {
            bytes_drop(&a->input_queue, (size_t)n);
            send_taken(a, (uint32_t)n);
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            close_input(a, true);
        }
    }
    if (a->input >= 0 && a->input_ended && !a->input_queue.len)
        close_input(a, false);
}

static void take_input(struct agent *a, const struct cursor *body)
{
    if (body->at == body->end)
        a->input_ended = true;
    else if (a->input >= 0)
        put_raw(&a->input_queue, body->at, (size_t)(body->end - body->at));
    pump_input(a);
}

/* ---- the job -------------------------------------------------------------------------------------------------------
 */

static char **environment_of(const struct job *job, char *const *base)
{
    char **env = env_copy(base);
    for (char **e = job->env; *e; e++)
        env_set(&env, *e);
    char *folder = need_format("PWD=%s", job->folder);
    env_set(&env, folder);
    free(folder);
    return env;
}

static void watch_ranks(struct agent *a)
{
    for (uint32_t i = 0; i < a->ranks.count; i++)
        server_watch(a->ranks.list[i].number, a->ranks.list[i].pid);
}

enum { FILES_PER_RANK = 3, FILES_BESIDE = 40 };

/* Two pipes a rank and PMIx's own connection to it, beside a handful.  NULL: there is room. */
static char *too_few_files(uint32_t ranks)
{
    struct rlimit limit;
    const uint64_t least = FILES_BESIDE + (uint64_t)FILES_PER_RANK * ranks;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least)
        return NULL;
    return need_format("%llu open files are needed to start %u ranks, the limit is %llu: raise it (ulimit -n %llu)",
                       (unsigned long long)least, ranks, (unsigned long long)limit.rlim_cur, (unsigned long long)least);
}

static void start_ranks(struct agent *a)
{
    uint32_t count = a->job.places[a->job.here].count, first = a->job.places[a->job.here].first;
    char **base = env_copy(environ);
    char *problem = too_few_files(count);
    if (!problem)
        problem = server_open(&a->job);
    char ***env = need(count * sizeof *env);
    for (uint32_t i = 0; i < count && !problem; i++) {
        env[i] = environment_of(&a->job, base);
        problem = server_setup(first + i, &env[i]);
    }
    if (problem) {
        send_problem(a, problem);
        a->over = true;
    } else {
        ranks_start(&a->ranks, &a->job, env, a->original, &a->input);
        watch_ranks(a);
    }
    for (uint32_t i = 0; i < count; i++)
        env_free(env[i]);
    free(env);
    env_free(base);
}

/* Tell of ranks that have ended, first to last; and when all that they wrote is on its way. */
static void tell_ends(struct agent *a)
{
    bool settled = a->told < a->ranks.ended_count && ranks_settled(&a->ranks, a->told);
    for (; settled && a->told < a->ranks.ended_count; a->told++) {
        struct rank *k = &a->ranks.list[a->ranks.ended[a->told]];
        send_exit(a, k);
        if (k->number == 0)
            close_input(a, true);
    }
    for (uint32_t i = 0; i < a->told; i++) {
        struct rank *k = &a->ranks.list[a->ranks.ended[i]];
        if (k->shut)
            continue;
        bool drained = stream_drained(&k->out[0], &a->up, &a->credit);
        if (stream_drained(&k->out[1], &a->up, &a->credit) && drained)
            send_shut(a, k);
    }
}

/* ---- PMIx ----------------------------------------------------------------------------------------------------------
 */

static void send_fence(struct agent *a, const struct server_event *e)
{
    size_t mark;
    struct bytes *b = channel_begin(&a->up, MSG_FENCE, &mark);
    put_u64(b, e->id);
    put_u32(b, e->seconds);
    put_u32(b, e->count);
    for (uint32_t i = 0; i < e->count; i++)
        put_u32(b, e->ranks[i]);
    put_blob(b, e->data, e->len);
    channel_end(&a->up, mark);
}

static void send_event(struct agent *a, const struct server_event *e)
{
    size_t mark;
    if (e->kind == SERVER_FENCE) {
        send_fence(a, e);
    } else if (e->kind == SERVER_FETCH) {
        struct bytes *b = channel_begin(&a->up, MSG_FETCH, &mark);
        put_u64(b, e->id);
        put_u32(b, e->seconds);
        put_u32(b, e->rank);
        channel_end(&a->up, mark);
    } else if (e->kind == SERVER_FOUND) {
        struct bytes *b = channel_begin(&a->up, MSG_FOUND, &mark);
        put_u64(b, e->id);
        put_u32(b, (uint32_t)e->code);
        put_blob(b, e->data, e->len);
        channel_end(&a->up, mark);
    } else if (e->kind == SERVER_ABORT) {
        struct bytes *b = channel_begin(&a->up, MSG_ABORT, &mark);
        put_u32(b, e->rank);
        put_u32(b, (uint32_t)e->code);
        put_text(b, e->text);
        channel_end(&a->up, mark);
    }
}

static void take_events(struct agent *a)
{
    for (struct server_event *e; (e = server_next()) != NULL; server_event_free(e)) {
        if (e->len > CHANNEL_BLOB_MAX && e->kind == SERVER_FENCE)
            server_answer(e->id, EXCHANGE_REFUSED, NULL, 0);
        else
            send_event(a, e);
    }
}

/* The answer to a fence or a fetch. */
static void take_answer(struct cursor *body)
{
    size_t len;
    uint64_t id = get_u64(body);
    uint32_t how = get_u32(body);
    const uint8_t *data = get_blob(body, &len);
    if (cursor_done(body))
        server_answer(id, (enum exchange)how, data, len);
}

static void take_lookup(struct cursor *body)
{
    uint64_t id = get_u64(body);
    uint32_t rank = get_u32(body);
    if (cursor_done(body))
        server_lookup(id, rank);
}

/* ---- the loop ------------------------------------------------------------------------------------------------------
 */

/* The ranks are told to go: what PMIx prints about connections that break is of no use to anybody. */
static void hush(void) { dup2(STDOUT_FILENO, STDERR_FILENO); }

static void take_signal(struct agent *a, struct cursor *body)
{
    uint32_t number = get_u32(body);
    if (!cursor_done(body) || number == 0 || number >= (uint32_t)SIGRTMIN)
        return;
    if (number == SIGTERM || number == SIGKILL || number == SIGINT || number == SIGHUP || number == SIGQUIT)
        hush();
    ranks_signal(&a->ranks, (int)number);
    if (number == SIGTERM)
        ranks_signal(&a->ranks, SIGCONT); /* a stopped rank would not hear it */
}

static void take_message(struct agent *a, uint32_t type, struct cursor *body)
{
    if (type == MSG_JOB && !a->has_job) {
        a->has_job = job_get(body, &a->job);
        if (a->has_job)
            start_ranks(a);
        else
            a->over = true;
    } else if (type == MSG_END || !a->has_job) {
        a->over = true;
    } else if (type == MSG_INPUT) {
        take_input(a, body);
    } else if (type == MSG_SIGNAL) {
        take_signal(a, body);
    } else if (type == MSG_CREDIT) {
        a->credit += get_u32(body);
    } else if (type == MSG_FENCED || type == MSG_FETCHED) {
        take_answer(body);
    } else if (type == MSG_LOOKUP) {
        take_lookup(body);
    }
}

static void take_messages(struct agent *a)
{
    uint32_t type;
    struct cursor body;
    channel_fill(&a->up);
    while (!a->over && channel_next(&a->up, &type, &body))
        take_message(a, type, &body);
    if (a->up.ended)
        a->over = true;
}

static void take_signals(struct agent *a)
{
    struct signalfd_siginfo info;
    while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            ranks_reap(&a->ranks, (pid_t)info.ssi_pid); /* the kernel keeps the first of several SIGCHLD */
            continue;
        }
        send_problem(
            a, need_format("the agent was ended by signal %u (%s)", info.ssi_signo, strsignal((int)info.ssi_signo)));
        a->over = true;
    }
    watch_ranks(a);
}

enum { AT_IN, AT_OUT, AT_SIGNALS, AT_SERVER, AT_INPUT, AT_GUARD, AT_STREAMS };

/* What one turn waits for.  Streams that are closed, or have to wait for credit, are left out: poll() refuses a list
 * that is longer than the limit of open files. */
struct waits {
    struct pollfd *polls;
    struct stream **streams; /* of polls[AT_STREAMS ...] */
    size_t count;
};

static struct waits what_to_wait_for(struct agent *a)
{
    size_t most = 2 * (size_t)a->ranks.count;
    struct waits w = {.polls = need((AT_STREAMS + most) * sizeof *w.polls), .streams = need(most * sizeof *w.streams)};
    w.polls[AT_IN] = (struct pollfd){.fd = a->up.in, .events = POLLIN};
    w.polls[AT_OUT] = (struct pollfd){.fd = channel_wants_write(&a->up) ? a->up.out : -1, .events = POLLOUT};
    w.polls[AT_SIGNALS] = (struct pollfd){.fd = a->signals, .events = POLLIN};
    w.polls[AT_SERVER] = (struct pollfd){.fd = a->has_job ? server_fd() : -1, .events = POLLIN};
    w.polls[AT_INPUT] = (struct pollfd){.fd = a->input, .events = a->input_queue.len ? POLLOUT : 0};
    w.polls[AT_GUARD] = (struct pollfd){.fd = guard_fd(), .events = POLLIN};
    w.count = AT_STREAMS;
    for (size_t i = 0; i < most && a->credit > 0; i++) {
        struct stream *s = &a->ranks.list[i / 2].out[i % 2];
        if (s->fd < 0)
            continue;
        w.streams[w.count - AT_STREAMS] = s;
        w.polls[w.count++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
    }
    return w;
}

static void pump_streams(struct agent *a, const struct waits *w)
{
    for (size_t i = AT_STREAMS; i < w->count; i++)
        if (w->polls[i].revents && a->credit > 0)
            stream_pump(w->streams[i - AT_STREAMS], &a->up, &a->credit);
}

static void take_what_came(struct agent *a, const struct waits *w)
{
    pump_streams(a, w); /* first: the list of ranks may be made below */
    if (w->polls[AT_IN].revents)
        take_messages(a);
    if (w->polls[AT_SERVER].revents)
        take_events(a);
    if (w->polls[AT_SIGNALS].revents)
        take_signals(a);
    if (w->polls[AT_INPUT].revents & POLLERR)
        close_input(a, true); /* rank 0 has closed its end */
    else if (w->polls[AT_INPUT].revents)
        pump_input(a);
}

static void turn(struct agent *a)
{
    struct waits w = what_to_wait_for(a);
    int ready = poll(w.polls, w.count, a->ranks.settle_by ? 5 : guard_wait());
    if (ready < 0 && errno != EINTR) {
        send_problem(a, need_format("the agent cannot wait for its ranks: %s", strerror(errno)));
        a->over = true;
    }
    guard_turn();
    if (ready > 0)
        take_what_came(a, &w);
    tell_ends(a);
    channel_flush(&a->up);
    free(w.polls);
    free(w.streams);
}

/* ---- the process ---------------------------------------------------------------------------------------------------
 */

static void close_from(unsigned first, unsigned last)
{
    if (first <= last)
        close_range(first, last, 0);
}

/* Only the channel, above 2, and standard error stay open. */
static void tidy_fds(int *in, int *out)
{
    int low = fcntl(*in, F_DUPFD_CLOEXEC, 3), high = fcntl(*out, F_DUPFD_CLOEXEC, 3);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (low < 0 || high < 0 || nothing < 0)
        die("the agent has no descriptors left: %s", strerror(errno));
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    if (fcntl(STDERR_FILENO, F_GETFD) < 0)
        dup2(nothing, STDERR_FILENO);
    unsigned a = (unsigned)(low < high ? low : high), b = (unsigned)(low < high ? high : low);
    close_from(3, a - 1);
    close_from(a + 1, b - 1);
    close_from(b + 1, ~0u);
    *in = low;
    *out = high;
}

static int watch_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigprocmask(SIG_BLOCK, &set, NULL); /* PMIx's threads inherit it */
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void leave(struct agent *a)
{
    hush();
    kill_children();
    for (int tries = 0; channel_wants_write(&a->up) && !a->up.ended && tries < 10; tries++) {
        struct pollfd p = {.fd = a->up.out, .events = POLLOUT};
        if (poll(&p, 1, 100) > 0)
            channel_flush(&a->up);
    }
}

void agent_run(int in, int out, const struct original *original)
{
    struct agent a = {.original = original, .credit = OUTPUT_WINDOW, .input = -1};
    setpgid(0, 0);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    tidy_fds(&in, &out);
    channel_init(&a.up, in, out, false);
    a.signals = watch_signals();
    if (a.signals < 0)
        die("the agent cannot watch signals: %s", strerror(errno));
    send_hello(&a);
    channel_flush(&a.up);
    while (!a.over)
        turn(&a);
    leave(&a);
    _exit(0); /* PMIx's thread is still there: no destructor may run */
}
