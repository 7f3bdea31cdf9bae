/* SPDX-License-Identifier: Apache-2.0 */
/* spread.c - getting ranks off each other's processor.
 *
 * Where there is a processor for every rank, ranks pause while they wait and are fast.  But on a machine that also runs
 * something else, the scheduler may have put two of them on one processor, and sees no reason to part them: that is
 * fair to the something else.  They then take turns by yielding, twenty times slower, and nothing that they do changes
 * it.  A rank that has waited past its pauses many times in a row therefore looks where the others ran last, and if a
 * lower one shares its processor, moves to one that none of them uses.  Its affinity is narrowed only for the moment of
 * the move: the scheduler is free again afterwards, and the user's own binding is never left. */
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

void ri_node_spread(struct ri_node *node)
{
    cpu_set_t allowed, others;
    const int mine = sched_getcpu();
    if (mine < 0)
        return;
    atomic_store_explicit(&control_of(node, node->me)->processor, (uint32_t)mine + 1, memory_order_relaxed);
    if (++node->outwaited < MANY || sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    node->outwaited = -REST;
    others = allowed;
    if (exclude_others(node, mine, &others) && CPU_COUNT(&others))
        move(&others, &allowed);
}
