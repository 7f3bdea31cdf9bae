/* SPDX-License-Identifier: Apache-2.0 */
/* recent.c - whether a sum is stored past the caches when the same results were written a moment ago.
 *
 * A store past the caches saves reading the line before.  A program that reduces one buffer again and again finds the
 * line near, so there nothing is saved, and what is stored has to reach memory: on a virtual EPYC with 1 MiB of
 * second-level cache two ranks add a registered MiB in 26 us with plain stores and in 58 us past the caches, but in 112
 * and 87 us when they go round many buffers.  How much may be touched in between depends on a last cache of which
 * nobody describes what part a virtual machine has, and on what all ranks do at once; so it is found out on the calls
 * themselves, which all ranks make at the same time: sixteen of a size with plain stores, as many past the caches, and
 * from then on what was faster, past the caches only if clearly.  First comes what is likely to win, as some programs
 * make no more calls than these: past the caches where many times the second-level cache has been touched.
 *
 * Counts the bytes of long sums only: short calls push nothing out, and what the program itself touches is not known.
 * Ranks may come to different answers: it concerns speed only. */
#include <stdlib.h>

#include "lib/node/inner.h"

enum { EACH = 4096, FAR = 16 };

/* How much has been touched since dst was last written, this call's bytes among it; SIZE_MAX: it is not known that it
 * was. */
static size_t since(struct recent *r, const void *dst, size_t own)
{
    size_t found = SIZE_MAX;
    uint32_t i = 0;
    while (i < RECENT && r->call[i].dst != dst)
        i++;
    r->touched += own;
    if (i == RECENT)
        i = r->next++ % RECENT;
    else if (own <= r->call[i].own)
        found = (size_t)(r->touched - r->call[i].touched);
    r->call[i].dst = dst;
    r->call[i].own = own;
    r->call[i].touched = r->touched;
    return found;
}

static uint32_t logarithm(size_t n)
{
    uint32_t found = 0;
    while (n >>= 1)
        found++;
    return found < CONTESTS ? found : CONTESTS - 1;
}

static bool past_comes_first(uint32_t which) { return (size_t)1 << which > FAR * ri_second_cache_bytes(); }

bool ri_node_streams(struct ri_node *node, size_t own)
{
    struct recent *r = &node->recent;
    const struct ri_call *call = &node->op.call;
    const size_t touched = since(r, call->dst, own);
    r->now = NULL;
    if (!ri_stream_pays(own, node->size))
        return false;
    /* In place nothing goes past the caches anyway. */
    if (touched > ri_cache_bytes() / node->size || call->src == call->dst)
        return true;
    const uint32_t which = logarithm(touched);
    struct contest *t = &r->contest[which];
    if (t->runs == 2 * RUNS)
        return t->past_wins;
    r->now = t;
    r->own = own;
    r->took = 0;
    r->past = (t->runs >= RUNS) != past_comes_first(which);
    return r->past;
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Of the later half: what lies in a cache changes for some runs after the way has. */
static uint32_t median(uint32_t took[RUNS])
{
    qsort(took + RUNS / 2, RUNS / 2, sizeof *took, compare);
    return took[RUNS * 3 / 4];
}

void ri_node_streamed(struct ri_node *node)
{
    struct recent *r = &node->recent;
    struct contest *t = r->now;
    if (!t)
        return;
    t->took[r->past][t->runs % RUNS] = (uint32_t)(r->took * EACH / r->own);
    if (++t->runs == 2 * RUNS) {
        const uint32_t plain = median(t->took[0]), past = median(t->took[1]);
        t->past_wins = past < plain - plain / 10;
    }
    r->now = NULL;
}
