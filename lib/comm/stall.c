/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c - what a rank does while it waits long: say where it waits, see whether others wait somewhere else, and tell
 * people who does not respond.
 *
 * A rank that has waited NOTE_AFTER publishes the signature of its operation on the board (and so to all hosts).  Two
 * ranks that wait in different operations of one number disagree; links notice that too, but only between ranks that
 * the algorithm joins.  Whoever has published is alive and waiting: the ones that have not are those waited for. */
#include "lib/comm/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"

#define NOTE_AFTER (200 * RI_MILLISECOND)
/* Clocks of several ranks' waits: a notice counts as "waits now" when it is not older than our wait by more. */
#define SLACK RI_SECOND

static bool reduces(uint8_t coll)
{
    return coll == RING_ALL_REDUCE || coll == RING_REDUCE || coll == RING_REDUCE_SCATTER ||
           coll == RING_REDUCE_SCATTERV;
}

static bool rooted(uint8_t coll)
{
    return coll == RING_REDUCE || coll == RING_BROADCAST || coll == RING_GATHER || coll == RING_SCATTER ||
           coll == RING_GATHERV || coll == RING_SCATTERV;
}

/* Each rank has its own, or only root knows. */
static bool counted(uint8_t coll) { return coll != RING_ALL_TO_ALLV && coll != RING_GATHERV && coll != RING_SCATTERV; }

static void redop_text(uint8_t redop, char *text, size_t cap)
{
    const char *name = ring_redop_str((ring_redop_t)redop);
    if (name)
        snprintf(text, cap, "%s", name);
    else
        snprintf(text, cap, "operation %u", redop);
}

void ri_call_text(const struct ri_signature *s, char *text, size_t cap)
{
    char redop[24] = "", root[24] = "", count[24] = "";
    if (s->coll == RI_COLL_DESTROY || s->root == RI_ROOT_SPLIT || s->coll == RING_BARRIER) {
        snprintf(text, cap, "%s",
                 s->coll == RI_COLL_DESTROY ? "ring_comm_destroy()"
                 : s->coll == RING_BARRIER  ? "barrier"
                                            : "ring_comm_split()");
        return;
    }
    const char *coll = ring_coll_str((ring_coll_t)s->coll), *dtype = ring_dtype_str((ring_dtype_t)s->dtype);
    if (reduces(s->coll))
        redop_text(s->redop, redop, sizeof redop);
    if (rooted(s->coll))
        snprintf(root, sizeof root, "%sroot %u", redop[0] ? ", " : "", s->root);
    const bool message = s->coll == RING_SEND || s->coll == RING_RECV;
    if (message && s->root != RI_ROOT_MESSAGE)
        snprintf(root, sizeof root, "%s rank %u", s->coll == RING_SEND ? "to" : "from", s->root);
    if (counted(s->coll))
        snprintf(count, sizeof count, "%" PRIu64 " ", s->count);
    snprintf(text, cap, "%s of %s%s%s%s%s%s", coll ? coll : "an unknown collective", count,
             dtype ? dtype : "of an unknown type", redop[0] || root[0] ? " (" : "", redop, root,
             redop[0] || root[0] ? ")" : "");
}

static bool waits(struct ring_comm *c, uint32_t rank, uint64_t waited)
{
    struct ri_signature s;
    uint64_t since;
    return ri_board_read(c->board, rank, &s, &since) && since + waited + SLACK > ri_now();
}

/* 'T' in /proc/PID/stat; only where the process can be seen. */
static bool stopped(const struct ring_comm *c, uint32_t rank)
{
    const struct ri_peer *p = &c->peer[rank], *me = &c->peer[c->rank];
    char path[48], text[256] = "";
    if (!ri_peer_visible(me, p))
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", p->pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    const char *end = fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
    fclose(f);
    return end && (end[2] == 'T' || end[2] == 't');
}

void ri_stall_missing(struct ring_comm *c, uint64_t waited, char *text, size_t cap)
{
    size_t n = 0;
    uint32_t named = 0, more = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < c->size; r++) {
        if (r == c->rank || waits(c, r, waited))
            continue;
        if (named == 4) {
            more++;
            continue;
        }
        const int len = snprintf(text + n, cap - n, "%s%s%s", named ? ", " : "", ri_comm_name(c, r),
                                 stopped(c, r) ? ", which is stopped" : "");
        n = len > 0 && n + (size_t)len < cap ? n + (size_t)len : cap - 1;
        named++;
    }
    if (more)
        snprintf(text + n, cap - n, " and %u more", more);
    if (!named)
        snprintf(text, cap, "none, every rank waits: does a send or receive lack its counterpart?");
}

static void compare(struct ring_comm *c, const struct ri_signature *mine)
{
    /* Messages between two ranks are theirs alone. */
    for (uint32_t r = 0; r < c->size && mine->seq; r++) {
        struct ri_signature theirs;
        uint64_t since;
        if (r == c->rank || !ri_board_read(c->board, r, &theirs, &since) || theirs.seq != mine->seq ||
            !memcmp(&theirs, mine, sizeof theirs))
            continue;
        char a[96], b[96];
        ri_call_text(mine, a, sizeof a);
        ri_call_text(&theirs, b, sizeof b);
        ri_comm_raise(c, RING_ERR_MISMATCH, r, "ranks disagree on operation %u: %s calls %s, %s calls %s", mine->seq,
                      ri_comm_name(c, c->rank), a, ri_comm_name(c, r), b);
        return;
    }
}

static void report(struct ring_comm *c, const struct ri_signature *s, uint64_t waited)
{
    char call[96], who[RI_ERROR_MAX / 2];
    ri_call_text(s, call, sizeof call);
    ri_stall_missing(c, waited, who, sizeof who);
    if (s->seq)
        ri_log(RI_LOG_WARN, "operation %u, %s, waits since %.1f s, not responding: %s", s->seq, call,
               (double)waited / RI_SECOND, who);
    else
        ri_log(RI_LOG_WARN, "%s waits since %.1f s, not responding: %s", call, (double)waited / RI_SECOND, who);
    c->stall.reported = true;
}

void ri_comm_stalled(struct ring_comm *c, const struct ri_signature *calls, uint64_t waited)
{
    if (waited < c->stall.last || !c->stall.next_note) {
        c->stall.next_note = NOTE_AFTER;
        c->stall.next_report = c->conf.stall_time;
    }
    c->stall.last = waited;
    if (waited < NOTE_AFTER)
        return;
    if (waited >= c->stall.next_note) {
        c->stall.next_note = waited + RI_SECOND;
        ri_board_note(c->board, c->rank, calls);
        ri_control_spread(c);
    }
    compare(c, calls);
    if (waited >= c->stall.next_report) {
        c->stall.next_report = 2 * waited;
        report(c, calls, waited);
    }
}

void ri_stall_end(struct ring_comm *c)
{
    if (c->stall.reported && !ri_comm_broken(c)) /* a wait that a failure has ended goes on to nothing */
        ri_log(RI_LOG_WARN, "goes on after %.1f s", (double)c->stall.last / RI_SECOND);
    c->stall.reported = false;
    c->stall.last = c->stall.next_note = 0;
}
