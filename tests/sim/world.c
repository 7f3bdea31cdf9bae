/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - ranks of one process: see world.h.  Everything asserts; nothing returns errors. */
#include "tests/sim/world.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { QUIET_TURNS = 3000 }; /* per rank without any movement: delays end much sooner */

uint64_t world_seed(void)
{
    const char *text = getenv("SIM_SEED");
    return text ? strtoull(text, NULL, 10) : 20260101;
}

uint64_t world_chance(struct world *w, uint64_t below) { return sim_chance(&w->random, below); }

static uint32_t link_of(const void *arg, uint32_t peer)
{
    (void)arg;
    return peer;
}

static void on_mismatch(void *owner, uint32_t peer, const struct ri_signature *mine, const struct ri_signature *theirs)
{
    struct member *m = owner;
    m->mismatches++;
    m->mismatch_peer = peer;
    cr_assert(memcmp(mine, theirs, sizeof *mine));
}

static void connect_all(struct world *w, struct member *m)
{
    for (uint32_t peer = 0; peer < w->size; peer++) {
        if (peer == m->rank)
            continue;
        struct ri_link *l = ri_new(1, ri_transport_loop.link_size);
        *l = (struct ri_link){.ctx = m->ctx,
                              .self = {.rank = m->rank, .name = "self"},
                              .peer = {.rank = peer, .name = "peer"},
                              .initiator = m->rank < peer};
        m->link[peer] = l;
        struct loop_knobs knobs = w->knobs;
        if (!knobs.capacity && !knobs.calm) /* down to where every message waits for its receiver */
            knobs.capacity = 16u << world_chance(w, 13);
        loop_set_knobs(&knobs);
        cr_assert_eq(ri_transport_loop.connect(l, NULL, 0), RING_OK);
    }
}

void world_open(struct world *w, uint32_t size, uint64_t seed)
{
    *w = (struct world){.size = size, .seed = seed, .random = seed, .knobs = w->knobs};
    for (uint32_t r = 0; r < size; r++) {
        struct member *m = &w->member[r];
        m->world = w;
        m->rank = r;
        ri_conf_defaults(&m->conf);
        m->conf.loop_seed = seed * 31 + r;
        m->ctx = ri_new(1, ri_transport_loop.ctx_size);
        m->ctx->transport = &ri_transport_loop;
        m->ctx->conf = &m->conf;
        cr_assert_eq(ri_transport_loop.open(m->ctx), RING_OK);
        connect_all(w, m);
        const struct ri_engine_setup setup = {
            .rank = r, .links = size, .link = m->link, .link_of = link_of, .mismatch = on_mismatch, .owner = m};
        cr_assert_eq(ri_engine_open(&setup, &m->engine), RING_OK);
    }
}

void world_cut_links(struct world *w)
{
    for (uint32_t r = 0; r < w->size; r++)
        for (uint32_t peer = 0; peer < w->size; peer++) {
            struct ri_link *l = w->member[r].link[peer];
            if (l)
                ri_transport_loop.disconnect(l);
            ri_free(l);
            w->member[r].link[peer] = NULL;
        }
}

void world_close(struct world *w)
{
    world_cut_links(w);
    for (uint32_t r = 0; r < w->size; r++) {
        ri_engine_close(w->member[r].engine);
        ri_transport_loop.close(w->member[r].ctx);
        ri_free(w->member[r].ctx);
    }
}

unsigned world_turn(struct world *w)
{
    struct member *m = &w->member[world_chance(w, w->size)];
    struct ri_queue done = {0};
    const unsigned moved = ri_transport_loop.progress(m->ctx, &done);
    return moved + ri_engine_progress(m->engine, &done);
}

bool world_settle(struct world *w, struct job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint64_t quiet = 0; !job_done(w, &jobs[i]); quiet++) {
            if (world_turn(w))
                quiet = 0;
            if (quiet > (uint64_t)QUIET_TURNS * w->size)
                return false;
        }
    return true;
}
