/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - see link.h: how a link goes on when one of its rails is lost.
 *
 * What was on its way may have arrived or not, and only the receiver knows.  So each end stops the rail's queue pairs,
 * waits until the device has given back all receive requests, and tells the other over the socket how much each lane
 * has heard.  Nothing of those lanes can arrive after that.  What the other has not heard is then written again, in the
 * order of the lane, over one of those that are left; until that is done nothing else is, so what goes over lane 0
 * stays in order.  Memory written to twice is the same memory: a grant is used up only when it has been heard of.
 *
 * When another rail is lost meanwhile, the one lost last comes first: it carried what the others had got so far.
 *
 * Cost: an idle peer answers when it next looks, and until then the link waits; an empty write shows that it lives. */
#include <stdio.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "transports/verbs/ctx.h"

#define GIVE_BACK_TIME (RI_SECOND / 2)

static void stop_lanes(struct verbs_link *l, uint32_t rail)
{
    bool known = true;
    for (uint32_t i = rail; i < l->lanes; i += l->rails)
        known &= verbs_lane_stop(&l->lane[i]);
    if (!known)
        verbs_link_fail(l, l->rail[rail], "a queue pair could not be stopped, so it is not known what it had heard");
}

void verbs_move_lose(struct verbs_link *l, uint32_t rail, const char *why)
{
    if (l->broken || l->loss[rail].lost)
        return;
    if (l->stage != VERBS_UP || l->lost_rails + 1 == l->rails) {
        verbs_link_fail(l, l->rail[rail], why);
        return;
    }
    l->loss[rail] = (struct verbs_loss){.lost = true, .deadline = ri_deadline(GIVE_BACK_TIME)};
    l->lost_rails++;
    l->move[l->moving++] = rail;
    ri_log(RI_LOG_WARN, "%s: %s: what goes to %s goes over %s", l->rail[rail]->name, why, l->base.peer.name,
           verbs_link_lane(l, rail)->rail->name);
    stop_lanes(l, rail);
    if (!l->broken)
        verbs_link_probe(verbs_link_lane(l, 0));
    verbs_ctx_list(l);
}

bool verbs_move_hear(struct verbs_link *l, uint32_t i, uint32_t heard)
{
    struct verbs_lane *lane = &l->lane[i];
    const uint32_t more = heard - (uint32_t)lane->told_complete;
    lane->arrived = lane->told_complete + more;
    return lane->arrived <= lane->told;
}

/* Nothing more can come over the rail. */
static bool is_silent(const struct verbs_link *l, uint32_t rail)
{
    uint32_t receives = 0;
    for (uint32_t i = rail; i < l->lanes; i += l->rails)
        receives += l->lane[i].receives;
    return !receives;
}

static unsigned say_lost(struct verbs_link *l, uint32_t rail)
{
    struct verbs_loss *loss = &l->loss[rail];
    if (loss->said || l->broken)
        return 0;
    if (!is_silent(l, rail)) {
        if (ri_now() >= loss->deadline)
            verbs_link_fail(l, l->rail[rail], "it does not give back what was posted");
        return 0;
    }
    loss->said = true;
    if (!verbs_greet_lost(l, rail))
        verbs_link_break(l, "the socket takes nothing more");
    return 1;
}

bool verbs_move_is_due(const struct verbs_link *l)
{
    bool due = false;
    for (uint32_t i = 0; i < l->moving; i++)
        due |= !l->loss[l->move[i]].said;
    return due;
}

/* The keys of another rail. */
static bool change_key(struct verbs_link *l, const struct verbs_lane *lane, struct verbs_write *w)
{
    const uintptr_t window = (uintptr_t)l->window, at = (uintptr_t)w->at;
    if (w->bytes <= lane->inline_most && !w->gpu)
        return true;
    if (at < window || at - window >= sizeof *l->window)
        return verbs_ctx_key(l, lane->rail, w->at, w->bytes, &w->key, &w->gpu);
    w->key = l->window_mr[lane->rail_at]->lkey;
    return true;
}

static bool write_again(struct verbs_link *l, uint32_t i, const struct verbs_write *old)
{
    struct verbs_lane *lane = verbs_link_lane(l, i);
    struct verbs_write w = *old;
    if (verbs_lane_room(lane) < LANE_WRITE)
        return false;
    if (!change_key(l, lane, &w))
        verbs_link_fail(l, lane->rail, "it does not take the registered memory of the rail that was lost");
    else if (!verbs_lane_write(lane, &w))
        verbs_link_refused(lane, "a request");
    return !l->broken;
}

/* What is told comes after what was written before it. */
static bool has_arrived(const struct verbs_lane *lane, const struct verbs_place *p)
{
    return !p->whole || (p->write.tells ? p->told <= lane->arrived : p->told < lane->arrived);
}

/* No other has been lost since. */
static bool is_last(const struct verbs_link *l, uint32_t rail) { return !l->broken && l->move[l->moving - 1] == rail; }

/* Write again what the peer has not heard.  False: not all of it yet. */
static bool write_lane(struct verbs_link *l, uint32_t i)
{
    struct verbs_lane *lane = &l->lane[i];
    while (lane->complete < lane->posted && is_last(l, lane->rail_at)) {
        const struct verbs_place *p = &lane->place[lane->complete % LANE_SENDS];
        if (has_arrived(lane, p))
            (void)verbs_link_sent(lane, lane->complete + 1);
        else if (!write_again(l, i, &p->write))
            return false;
        else
            lane->complete++;
    }
    return is_last(l, lane->rail_at);
}

static bool write_rail(struct verbs_link *l, uint32_t rail)
{
    bool all = l->loss[rail].said && l->loss[rail].heard;
    for (uint32_t i = rail; i < l->lanes && all; i += l->rails)
        all = write_lane(l, i);
    return all;
}

unsigned verbs_move(struct verbs_link *l)
{
    unsigned moved = 0;
    if (l->ended)
        return 0;
    for (uint32_t i = 0; i < l->moving; i++)
        moved += say_lost(l, l->move[i]);
    while (!l->broken && l->moving && write_rail(l, l->move[l->moving - 1])) {
        l->moving--;
        moved++;
    }
    return moved;
}
