/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - see control.h: one loop over poll(), in one thread. */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ending.h"
#include "exchange.h"
#include "input.h"
#include "output.h"
#include "plan.h"
#include "reach.h"
#include "say.h"
#include "signals.h"

enum { HELLO_MS = 60000, LEAVE_MS = 3000, CREDIT_STEP = 64 << 10 };

struct control {
    struct options *options;
    const struct original *original;
    struct job job;
    struct link *links; /* one a place */
    struct output out;
    struct ending ending;
    struct exchange_state exchange;
    struct input input;
    int signals;
    uint64_t hello_by, timeout_at;
    bool broken_said, give_up;
};

/* ---- to the agents -------------------------------------------------------------------------------------------------
 */

static void send_number(struct link *l, enum message type, uint32_t value)
{
    size_t mark;
    put_u32(channel_begin(&l->ch, type, &mark), value);
    channel_end(&l->ch, mark);
}

static void signal_all(struct control *c, int number)
{
    for (uint32_t i = 0; i < c->job.place_count; i++)
        if (!c->links[i].ch.ended)
            send_number(&c->links[i], MSG_SIGNAL, (uint32_t)number);
}

static void send_answer(void *owner, const struct answer *a)
{
    struct control *c = owner;
    struct link *l = &c->links[a->place];
    size_t mark;
    if (l->ch.ended)
        return;
    struct bytes *b = channel_begin(&l->ch, a->type, &mark);
    put_u64(b, a->id);
    if (a->type == MSG_LOOKUP) {
        put_u32(b, a->rank);
    } else {
        put_u32(b, a->how);
        put_blob(b, a->data, a->len);
    }
    channel_end(&l->ch, mark);
}

static void send_job(struct control *c, struct link *l)
{
    size_t mark;
    job_put(channel_begin(&l->ch, MSG_JOB, &mark), &c->job, l->place);
    channel_end(&l->ch, mark);
}

static void send_credit(struct control *c)
{
    bool idle = output_empty(&c->out);
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        uint64_t *owed = &c->out.owed[i];
        if (*owed && (idle || *owed >= CREDIT_STEP) && !c->links[i].ch.ended) {
            send_number(&c->links[i], MSG_CREDIT, (uint32_t)*owed);
            *owed = 0;
        }
    }
}

static void send_input(struct control *c)
{
    static uint8_t chunk[CHUNK];
    struct link *l = &c->links[0]; /* rank 0 lives in the first place */
    ssize_t n = input_read(&c->input, chunk, sizeof chunk);
    if (n < 0 || l->ch.ended)
        return;
    size_t mark;
    put_raw(channel_begin(&l->ch, MSG_INPUT, &mark), chunk, (size_t)n); /* nothing: the end */
    channel_end(&l->ch, mark);
}

/* ---- from the agents -----------------------------------------------------------------------------------------------
 */

static void rank_over(struct control *c, uint32_t rank, enum ended how, uint32_t value)
{
    ending_rank(&c->ending, rank, how, value);
    exchange_gone(&c->exchange, rank);
    if (rank == 0)
        input_close(&c->input);
}

static void rank_shut(struct control *c, struct link *l, struct cursor *body)
{
    const struct place *p = &c->job.places[l->place];
    uint32_t rank = get_u32(body);
    if (cursor_done(body) && rank >= p->first && rank - p->first < p->count)
        ending_shut(&c->ending, rank);
}

static const char *host_of(const struct control *c, const struct link *l) { return c->job.places[l->place].host; }

/* Why an agent went, for people. */
static char *reason(struct link *l)
{
    if (!reach_ended(l, 300))
        return need_format("%s closed the connection", l->local ? "its agent" : l->command);
    const char *who = l->local ? "its agent" : l->command;
    if (WIFSIGNALED(l->status))
        return need_format("%s was killed by signal %d (%s)", who, WTERMSIG(l->status), strsignal(WTERMSIG(l->status)));
    return need_format("%s ended with exit code %d", who, WEXITSTATUS(l->status));
}

/* An agent is gone, or must not go on: its ranks are lost. */
static void lose(struct control *c, struct link *l, const char *why)
{
    const struct place *p = &c->job.places[l->place];
    uint32_t missed = 0;
    for (uint32_t r = p->first; r < p->first + p->count; r++)
        missed += !c->ending.ranks[r].shut;
    l->lost = l->ch.ended = true;
    if (!missed)
        return;
    if (!c->ending.ours)
        output_say(&c->out, "%s host %s (ranks %u-%u): %s", l->hello ? "lost" : "cannot start on", p->host, p->first,
                   p->first + p->count - 1, why);
    if (!l->hello && !c->ending.ours)
        ending_begin(&c->ending, EXIT_LAUNCHER, 0); /* before ENDED_LOST gives the others time */
    for (uint32_t r = p->first; r < p->first + p->count; r++) {
        rank_over(c, r, ENDED_LOST, 0); /* if it was not over before */
        ending_shut(&c->ending, r);
    }
}

static void take_hello(struct control *c, struct link *l, struct cursor *body)
{
    uint32_t protocol = get_u32(body);
    char *version = get_text(body), *name = get_text(body);
    if (body->bad || protocol != PROTOCOL) {
        char *why = need_format("ringrun there is version %s with protocol %u, here it is %s with protocol %d", version,
                                protocol, RINGRUN_VERSION, PROTOCOL);
        lose(c, l, why);
        free(why);
    } else {
        l->hello = true;
    }
    free(version);
    free(name);
}

static void take_exit(struct control *c, struct link *l, struct cursor *body)
{
    const struct place *p = &c->job.places[l->place];
    uint32_t rank = get_u32(body), how = get_u32(body), value = get_u32(body);
    if (cursor_done(body) && rank >= p->first && rank - p->first < p->count && how < ENDED_LOST)
        rank_over(c, rank, (enum ended)how, value);
}

static void take_abort(struct control *c, struct link *l, struct cursor *body)
{
    uint32_t rank = get_u32(body), code = get_u32(body);
    char *text = get_text(body);
    if (cursor_done(body) && !c->ending.ours) {
        output_say(&c->out, "rank %u on host %s aborted the job with code %d%s%s", rank, host_of(c, l), (int)code,
                   *text ? ": " : "", text);
        ending_begin(&c->ending, (code & 0xff) ? (int)(code & 0xff) : 1, 0);
    }
    free(text);
}

static void take_problem(struct control *c, struct link *l, struct cursor *body)
{
    char *text = get_text(body);
    l->hello = false; /* it never came to start anything, or it says why it goes */
    lose(c, l, text);
    free(text);
}

static void take_output(struct control *c, struct link *l, struct cursor *body)
{
    uint32_t which = get_u32(body);
    if (!body->bad)
        output_put(&c->out, which, l->place, body->at, (size_t)(body->end - body->at));
}

static void take_message(struct control *c, struct link *l, uint32_t type, struct cursor *body)
{
    switch (type) {
    case MSG_HELLO:
        take_hello(c, l, body);
        break;
    case MSG_OUTPUT:
        take_output(c, l, body);
        break;
    case MSG_TAKEN:
        input_taken(&c->input, get_u32(body));
        break;
    case MSG_EXIT:
        take_exit(c, l, body);
        break;
    case MSG_SHUT:
        rank_shut(c, l, body);
        break;
    case MSG_ABORT:
        take_abort(c, l, body);
        break;
    case MSG_FENCE:
        exchange_fence(&c->exchange, l->place, body);
        break;
    case MSG_FETCH:
        exchange_fetch(&c->exchange, l->place, body);
        break;
    case MSG_FOUND:
        exchange_found(&c->exchange, body);
        break;
    case MSG_PROBLEM:
        take_problem(c, l, body);
        break;
    default:
        lose(c, l, "it sent a message that this version does not know");
    }
}

static void take_messages(struct control *c, struct link *l)
{
    uint32_t type;
    struct cursor body;
    channel_fill(&l->ch);
    bool over = l->ch.ended;
    while (!l->lost && channel_next(&l->ch, &type, &body))
        take_message(c, l, type, &body);
    if ((over || l->ch.ended) && !l->lost) {
        char *why = l->ch.in >= 0 && !over ? need_text("it sent nonsense") : reason(l);
        lose(c, l, why);
        free(why);
    }
}

/* ---- signals, time -------------------------------------------------------------------------------------------------
 */

static void take_signals(struct control *c)
{
    for (int number; (number = signals_next(c->signals)) != 0;) {
        if (number == SIGTSTP) {
            signal_all(c, SIGSTOP);
            for (uint32_t i = 0; i < c->job.place_count; i++)
                channel_flush(&c->links[i].ch);
            raise(SIGSTOP);
        } else if (number == SIGCONT || number == SIGUSR1 || number == SIGUSR2) {
            signal_all(c, number);
        } else if (number != SIGCHLD) {
            if (ending_signal(&c->ending, EXIT_SIGNALED + number)) {
                signal_all(c, number);
                signal_all(c, SIGCONT);
            } else {
                output_drop(&c->out);
            }
        }
    }
}

static void check_hellos(struct control *c, uint64_t now)
{
    bool all = true;
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        struct link *l = &c->links[i];
        if (!l->hello && !l->lost && now >= c->hello_by)
            lose(c, l, "no answer from ringrun's agent there within 60 s");
        all = all && (l->hello || l->lost);
    }
    if (all)
        c->hello_by = UINT64_MAX;
}

static void check_broken(struct control *c)
{
    for (int i = 0; i < 2; i++) {
        int problem = c->out.sinks[i].broken;
        if (!problem || c->broken_said)
            continue;
        c->broken_said = true;
        if (problem != EPIPE)
            say("cannot write %s: %s", i ? "standard error" : "standard output", strerror(problem));
        ending_begin(&c->ending, problem == EPIPE ? EXIT_SIGNALED + SIGPIPE : EXIT_LAUNCHER, 0);
    }
}

static void check_time(struct control *c)
{
    uint64_t now = now_ms();
    if (now >= c->hello_by)
        check_hellos(c, now);
    if (now >= c->timeout_at) {
        c->timeout_at = UINT64_MAX;
        if (!c->ending.ours && c->ending.left) {
            output_say(&c->out, "the job took longer than --timeout %g s and is ended",
                       (double)c->options->timeout_ms / 1000);
            ending_begin(&c->ending, EXIT_TIMEOUT, 0);
        }
    }
    bool give_up;
    for (int number; (number = ending_due(&c->ending, now, &give_up)) != 0;)
        signal_all(c, number);
    c->give_up = c->give_up || give_up;
    exchange_tick(&c->exchange, now);
}

static int next_wait(struct control *c)
{
    uint64_t now = now_ms(), at = ending_next(&c->ending), other = exchange_tick(&c->exchange, now);
    at = other < at ? other : at;
    at = c->hello_by < at ? c->hello_by : at;
    at = c->timeout_at < at ? c->timeout_at : at;
    if (at == UINT64_MAX)
        return -1;
    return at <= now ? 0 : at - now > 3600000 ? 3600000 : (int)(at - now);
}

/* ---- the loop ------------------------------------------------------------------------------------------------------
 */

enum { AT_SIGNALS, AT_STDIN, AT_STDOUT, AT_STDERR, AT_LINKS };

static size_t fill_polls(struct control *c, struct pollfd *p)
{
    p[AT_SIGNALS] = (struct pollfd){.fd = c->signals, .events = POLLIN};
    p[AT_STDIN] = (struct pollfd){.fd = input_fd(&c->input), .events = POLLIN};
    p[AT_STDOUT] = (struct pollfd){.fd = output_fd(&c->out, 0), .events = POLLOUT};
    p[AT_STDERR] = (struct pollfd){.fd = output_fd(&c->out, 1), .events = POLLOUT};
    size_t count = AT_LINKS;
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        struct channel *ch = &c->links[i].ch;
        p[count++] = (struct pollfd){.fd = ch->ended ? -1 : ch->in, .events = POLLIN};
        p[count++] = (struct pollfd){.fd = !ch->ended && channel_wants_write(ch) ? ch->out : -1, .events = POLLOUT};
    }
    return count;
}

static void turn(struct control *c)
{
    struct pollfd *p = need((AT_LINKS + 2 * (size_t)c->job.place_count) * sizeof *p);
    size_t count = fill_polls(c, p);
    if (poll(p, count, next_wait(c)) > 0) {
        if (p[AT_SIGNALS].revents)
            take_signals(c);
        if (p[AT_STDIN].revents)
            send_input(c);
        if (p[AT_STDOUT].revents)
            output_write(&c->out, 0);
        if (p[AT_STDERR].revents)
            output_write(&c->out, 1);
        for (uint32_t i = 0; i < c->job.place_count; i++)
            if (p[AT_LINKS + 2 * i].revents)
                take_messages(c, &c->links[i]);
    }
    check_time(c);
    check_broken(c);
    send_credit(c);
    for (uint32_t i = 0; i < c->job.place_count; i++)
        if (!c->links[i].ch.ended)
            channel_flush(&c->links[i].ch);
    free(p);
}

/* ---- begin and end -------------------------------------------------------------------------------------------------
 */

static void start_links(struct control *c)
{
    c->links = need(c->job.place_count * sizeof *c->links);
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        c->links[i].place = i;
        c->links[i].ch.in = c->links[i].ch.out = -1;
    }
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        struct link *l = &c->links[i];
        const char *host = c->job.places[i].host;
        char *problem = plan_is_local(c->options, host) ? reach_local(l, c->original)
                                                        : reach_remote(l, c->options->rsh, host, c->original);
        if (problem)
            lose(c, l, problem);
        else
            send_job(c, l);
        free(problem);
    }
}

/* All is over: agents kill what is left and go. */
static void part(struct control *c)
{
    size_t mark;
    bool sweep = false;
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        struct link *l = &c->links[i];
        sweep = sweep || (l->lost && l->local);
        if (l->ch.ended)
            continue;
        channel_begin(&l->ch, MSG_END, &mark);
        channel_end(&l->ch, mark);
    }
    for (uint64_t deadline = now_ms() + LEAVE_MS; now_ms() < deadline;) {
        bool waits = false;
        for (uint32_t i = 0; i < c->job.place_count; i++) {
            struct channel *ch = &c->links[i].ch;
            if (ch->ended)
                continue;
            struct pollfd p[2] = {{.fd = ch->in, .events = POLLIN},
                                  {.fd = channel_wants_write(ch) ? ch->out : -1, .events = POLLOUT}};
            poll(p, 2, 100);
            channel_flush(ch);
            channel_fill(ch);
            waits = waits || !ch->ended;
        }
        if (!waits)
            break;
    }
    for (uint32_t i = 0; i < c->job.place_count; i++) {
        reach_ended(&c->links[i], c->links[i].lost ? 0 : 1000);
        reach_close(&c->links[i]);
    }
    if (sweep)
        kill_children(); /* an agent was killed: what it looked after has come to us */
}

static void finish(struct control *c)
{
    ending_summary(&c->ending);
    while (!output_empty(&c->out) && !c->give_up)
        turn(c);
    part(c);
    exchange_free(&c->exchange);
    ending_free(&c->ending);
    output_free(&c->out);
    free(c->links);
    plan_free(&c->job);
    close(c->signals);
}

int control_run(struct options *options, const struct original *original)
{
    struct control c = {.options = options, .original = original};
    plan_make(options, &c.job);
    c.signals = signals_open();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    output_init(&c.out, c.job.place_count);
    ending_init(&c.ending, &c.job, &c.out);
    exchange_init(&c.exchange, &c.job, send_answer, &c);
    input_open(&c.input);
    c.hello_by = now_ms() + HELLO_MS;
    c.timeout_at = options->timeout_ms ? now_ms() + options->timeout_ms : UINT64_MAX;
    start_links(&c);
    while (c.ending.left && !c.give_up)
        turn(&c);
    if (c.give_up)
        c.ending.left = 0;
    finish(&c);
    return c.ending.code;
}
