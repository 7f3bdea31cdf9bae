/* SPDX-License-Identifier: Apache-2.0 */
/* ending.c - see ending.h. */
#include "ending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

enum { GROUPS_MAX = 8 };

void ending_init(struct ending *e, const struct job *job, struct output *out)
{
    *e = (struct ending){.job = job,
                         .out = out,
                         .left = job->size,
                         .term_at = UINT64_MAX,
                         .kill_at = UINT64_MAX,
                         .give_up_at = UINT64_MAX,
                         .first = UINT32_MAX,
                         .name_at = UINT64_MAX};
    e->ranks = need(job->size * sizeof *e->ranks);
}

void ending_free(struct ending *e) { free(e->ranks); }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void decide(struct ending *e, int code)
{
    if (!e->decided)
        e->code = code;
    e->decided = true;
}

void ending_begin(struct ending *e, int code, uint64_t delay_ms)
{
    decide(e, code);
    if (!e->ours)
        e->term_at = sooner(e->term_at, now_ms() + delay_ms);
}

bool ending_signal(struct ending *e, int code)
{
    bool second = e->ours && e->decided && e->code >= EXIT_SIGNALED && e->kill_at != UINT64_MAX;
    decide(e, code);
    e->ours = true;
    e->term_at = UINT64_MAX;
    e->kill_at = second ? now_ms() : sooner(e->kill_at, now_ms() + TERM_MS);
    return !second;
}

/* ---- ranks ---------------------------------------------------------------------------------------------------------
 */

static bool not_found(uint32_t value) { return value == ENOENT || value == ENOTDIR; }

static int code_of(enum ended how, uint32_t value)
{
    switch (how) {
    case ENDED_EXIT:
        return (int)value;
    case ENDED_SIGNAL:
        return EXIT_SIGNALED + (int)value;
    case ENDED_NO_EXEC:
        return not_found(value) ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    case ENDED_NO_FOLDER:
    case ENDED_NO_START:
    case ENDED_LOST:
        break;
    }
    return EXIT_LAUNCHER;
}

/* What happened, to follow "rank 3 on host a". */
static char *what(const struct ending *e, enum ended how, uint32_t value)
{
    const char *program = e->job->argv[0];
    switch (how) {
    case ENDED_EXIT:
        return need_format("exited with code %u", value);
    case ENDED_SIGNAL:
        return need_format("died by signal %u (%s)", value, strsignal((int)value));
    case ENDED_NO_EXEC:
        if (not_found(value))
            return need_format("cannot start: program '%s' was not found", program);
        if (value == ELIBACC)
            return need_format("cannot run '%s': the interpreter it names does not exist", program);
        return need_format("cannot run '%s': %s", program, strerror((int)value));
    case ENDED_NO_FOLDER:
        return need_format("cannot enter the working directory '%s': %s", e->job->folder, strerror((int)value));
    case ENDED_NO_START:
        return need_format("cannot be started: %s", strerror((int)value));
    case ENDED_LOST:
        break;
    }
    return need_text("was lost");
}

static void name_first(struct ending *e)
{
    const struct end_of *k = &e->ranks[e->first];
    e->name_at = UINT64_MAX;
    if (k->how == ENDED_LOST)
        return; /* the host was named */
    char *text = what(e, k->how, k->value);
    output_say(e->out, "rank %u on host %s %s", e->first, e->job->places[job_place(e->job, e->first)].host, text);
    free(text);
}

static void choose_first(struct ending *e, uint32_t rank)
{
    const struct end_of *k = &e->ranks[rank];
    if (!e->decided) {
        e->first = rank;
        e->name_at = now_ms() + SETTLE_ACROSS_MS;
    } else if (e->name_at != UINT64_MAX && e->ranks[e->first].how == ENDED_EXIT && k->how == ENDED_SIGNAL &&
               job_place(e->job, rank) != job_place(e->job, e->first)) {
        e->first = rank;
        e->code = code_of(k->how, k->value);
    }
}

void ending_rank(struct ending *e, uint32_t rank, enum ended how, uint32_t value)
{
    struct end_of *k = &e->ranks[rank];
    if (k->over)
        return;
    k->over = true;
    k->how = how;
    k->value = value;
    k->blamed = !e->ours && (how != ENDED_EXIT || value != 0);
    if (!k->blamed)
        return;
    bool started = how == ENDED_EXIT || how == ENDED_SIGNAL || how == ENDED_LOST;
    choose_first(e, rank);
    ending_begin(e, code_of(how, value), started ? GRACE_MS : 0);
}

void ending_shut(struct ending *e, uint32_t rank)
{
    struct end_of *k = &e->ranks[rank];
    if (k->shut)
        return;
    k->shut = true;
    e->left--;
}

int ending_due(struct ending *e, uint64_t now, bool *give_up_out)
{
    *give_up_out = now >= e->give_up_at;
    if (now >= e->name_at && e->ranks[e->first].shut)
        name_first(e);
    if (now >= e->kill_at) {
        e->kill_at = UINT64_MAX;
        e->ours = true;
        e->give_up_at = sooner(e->give_up_at, now + GIVE_UP_MS);
        return 9;
    }
    if (now >= e->term_at) {
        e->term_at = UINT64_MAX;
        e->ours = true;
        e->kill_at = sooner(e->kill_at, now + TERM_MS);
        return 15;
    }
    return 0;
}

uint64_t ending_next(const struct ending *e)
{
    uint64_t named = e->name_at != UINT64_MAX && e->ranks[e->first].shut ? e->name_at : UINT64_MAX;
    return sooner(sooner(named, e->term_at), sooner(e->kill_at, e->give_up_at));
}

static bool alike(const struct ending *e, uint32_t a, uint32_t b)
{
    const struct end_of *x = &e->ranks[a], *y = &e->ranks[b];
    return y->blamed && b != e->first && x->how == y->how && x->value == y->value &&
           job_place(e->job, a) == job_place(e->job, b);
}

void ending_summary(struct ending *e)
{
    uint32_t groups = 0, more = 0;
    if (e->name_at != UINT64_MAX)
        name_first(e);
    for (uint32_t rank = 0, last; rank < e->job->size; rank = last + 1) {
        last = rank;
        const struct end_of *k = &e->ranks[rank];
        if (!k->blamed || rank == e->first || k->how == ENDED_LOST)
            continue;
        while (last + 1 < e->job->size && alike(e, rank, last + 1))
            last++;
        if (++groups > GROUPS_MAX) {
            more += last - rank + 1;
            continue;
        }
        char *text = what(e, k->how, k->value);
        const char *host = e->job->places[job_place(e->job, rank)].host;
        if (last == rank)
            output_say(e->out, "then rank %u on host %s %s", rank, host, text);
        else
            output_say(e->out, "then ranks %u-%u on host %s %s", rank, last, host, text);
        free(text);
    }
    if (more)
        output_say(e->out, "then %u more ranks failed", more);
}
