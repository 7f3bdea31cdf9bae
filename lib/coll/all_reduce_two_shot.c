/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce_two_shot.c - every rank adds up one chunk from all others, and sends them the result: two steps, for
 * medium messages among few ranks and wherever the order of ranks has to be kept.
 *
 * As few bytes as the ring, 2 (n - 1) / n of the buffer, but over n - 1 links a rank.  A chunk is combined in rank
 * order with one rounding (collect.h), and its segments leave for the others as soon as they are complete. */
#include "lib/coll/collect.h"

static struct ri_cut chunk_of(const struct ri_coll_args *a, uint32_t rank)
{
    return ri_cut_of(a->count, a->size, rank);
}

/* Messages that carry a rank's chunk. */
static size_t pieces(const struct ri_coll_args *a, uint32_t rank)
{
    const struct ri_cut chunk = chunk_of(a, rank);
    return chunk.count ? ri_segments(a, chunk.count) : 0;
}

static struct ri_span part(const struct ri_coll_args *a, enum ri_slot slot, uint32_t rank, size_t i)
{
    return ri_segment(a, slot, chunk_of(a, rank), pieces(a, rank), i);
}

/* Their chunks to all others; sent: by rank and segment. */
static void deal(struct ri_sched *s, const struct ri_coll_args *a, size_t most, ri_step_id *sent)
{
    for (size_t i = 0; i < most; i++)
        for (uint32_t k = 1; k < a->size && s->status == RING_OK; k++) {
            const uint32_t to = (a->rank + k) % a->size;
            if (i < pieces(a, to))
                sent[to * most + i] = ri_send(s, to, part(a, RI_SRC, to, i), RI_NONE);
        }
}

/* Our chunk to all others, and theirs from them, over what was sent. */
static void share(struct ri_sched *s, const struct ri_coll_args *a, size_t most, const ri_step_id *sent,
                  const ri_step_id *made)
{
    for (size_t i = 0; i < most; i++)
        for (uint32_t k = 1; k < a->size && s->status == RING_OK; k++) {
            const uint32_t to = (a->rank + k) % a->size, from = (a->rank + a->size - k) % a->size;
            if (i < pieces(a, a->rank))
                ri_send(s, to, part(a, RI_DST, a->rank, i), made[i]);
            if (i < pieces(a, from))
                ri_recv(s, from, part(a, RI_DST, from, i), sent[from * most + i]);
        }
}

static ring_status_t build(struct ri_sched *s, const struct ri_coll_args *a)
{
    const struct ri_cut own = chunk_of(a, a->rank);
    const size_t most = pieces(a, 0);
    s->ranks = a->size;
    if (a->size == 1)
        return ri_build_alone(s, a);
    if (!a->count)
        return ri_build_tokens(s, a, build);
    ri_step_id *sent = ri_ids(s, a->size * most), *made = ri_ids(s, most);
    deal(s, a, most, sent);
    ri_collect(s, a, own, own.begin, NULL, made);
    share(s, a, most, sent, made);
    return ri_sched_done(s);
}

/* On every link a signature comes before the rest. */
static double cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    const struct ri_cut chunk = chunk_of(a, 0);
    const double bytes = (double)chunk.count * a->esize;
    const double segments = (double)ri_segments(a, chunk.count);
    return 2 * ri_cost_direct(a, m, segments + 1, bytes) + ri_cost_collect(a, m, bytes) + m->byte * bytes / segments;
}

const struct ri_algorithm ri_algorithm_all_reduce_two_shot = {
    .name = "two_shot",
    .help =
        "everybody adds up one chunk from all in rank order and sends it to all: least bytes in two steps; few ranks",
    .coll = RING_ALL_REDUCE,
    .ordered = true,
    .fits = ri_fits_any,
    .cost = cost,
    .build = build,
};
