/* SPDX-License-Identifier: Apache-2.0 */
/* spread.c - which processor each rank of a node uses: getting off each other's, and taking turns on it.
 *
 * Where there is a processor for every rank, ranks pause while they wait and are fast.  But on a machine that also runs
 * something else, the scheduler may have put two of them on one processor, and sees no reason to part them: that is
 * fair to the something else.  They then take turns by yielding, twenty times slower, and nothing that they do changes
 * it.  A rank that has waited past its pauses many times in a row therefore looks where the others ran last, and if a
 * lower one shares its processor, moves to one that none of them uses.  Its affinity is narrowed only for the moment of
 * the move: the scheduler is free again afterwards, and the user's own binding is never left.
 *
 * Where ranks outnumber processors, who waits gives way to those on its own processor; but once all of these have done
 * what it waits for, giving way would only go round among those who wait too, and each turn costs a switch. */
#include <sched.h>

#include "lib/base/log.h"
#include "lib/node/inner.h"

enum { MANY = 64, REST = 1024 };

/* Processors on which the node's other ranks were seen, taken out of `set`; true: a lower rank was seen on ours. */
static bool exclude_others(const struct ri_node *node, int mine, cpu_set_t *set)
{
    bool shared = false;
    for (uint32_t r = 0; r < node->size; r++) {
        const int cpu = (int)atomic_load_explicit(&control_of(node, r)->processor, memory_order_relaxed) - 1;
        if (r == node->me || cpu < 0 || cpu >= CPU_SETSIZE)
            continue;
        shared |= cpu == mine && r < node->me;
        CPU_CLR((size_t)cpu, set);
    }
    return shared;
}

static void move(const cpu_set_t *to, const cpu_set_t *allowed)
{
    if (sched_setaffinity(0, sizeof *to, to))
        return;
    ri_log(RI_LOG_DEBUG, "moved off a processor that another rank of this host uses");
    (void)sched_setaffinity(0, sizeof *allowed, allowed);
}

uint32_t ri_node_note_processor(struct ri_node *node)
{
    const uint32_t mine = (uint32_t)(sched_getcpu() + 1);
    _Atomic uint32_t *seen = &control_of(node, node->me)->processor;
    if (atomic_load_explicit(seen, memory_order_relaxed) != mine)
        atomic_store_explicit(seen, mine, memory_order_relaxed);
    return mine;
}

static bool was_seen_on(const struct ri_node *node, uint32_t rank, uint32_t processor)
{
    return atomic_load_explicit(&control_of(node, rank)->processor, memory_order_relaxed) == processor;
}

bool ri_node_may_stay(struct ri_node *node)
{
    const struct op *op = &node->op;
    const uint32_t mine = ri_node_note_processor(node);
    if (!mine || was_seen_on(node, node->awaited_rank, mine))
        return false;
    if (!op->hears_all || op->stage != STAGE_ANNOUNCED)
        return true;
    for (uint32_t cursor = op->cursor; cursor < node->size; cursor++) {
        const uint32_t peer = peer_at(node, cursor);
        if (was_seen_on(node, peer, mine) && !has_come(node, peer))
            return false;
    }
    return true;
}

void ri_node_spread(struct ri_node *node)
{
    cpu_set_t allowed, others;
    const int mine = (int)ri_node_note_processor(node) - 1;
    if (mine < 0)
        return;
    if (++node->outwaited < MANY || sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    node->outwaited = -REST;
    others = allowed;
    if (exclude_others(node, mine, &others) && CPU_COUNT(&others))
        move(&others, &allowed);
}
