/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as data: nothing in them is left unordered, nothing is ordered without need, and they read as expected. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "tests/sim/world.h"

/* A rank's program of a call that all ranks make together; of float elements, as they are short. */
static struct ri_sched build(const struct ri_algorithm *a, const struct shape *sh, uint32_t rank, size_t seg)
{
    const struct ri_coll_args args = shape_args(sh, rank, RING_FLOAT, seg);
    struct ri_sched s = {0};
    a = shape_algorithm(sh, a, rank);
    cr_assert_eq(a ? a->build(&s, &args) : ri_sched_done(&s), RING_OK);
    return s;
}

static bool fits(const struct ri_algorithm *a, const struct shape *sh)
{
    bool all = true;
    for (uint32_t r = 0; r < sh->size; r++) {
        const struct ri_coll_args args = shape_args(sh, r, RING_FLOAT, 1000);
        const struct ri_algorithm *here = shape_algorithm(sh, a, r);
        all &= !here || here->fits(&args);
    }
    return all;
}

#define ABOUT "%s %s, rank %u of %u, root %u, %zu%s elements, segments of %zu%s"
#define ABOUT_ARGS(a, sh, rank, seg)                                                                                \
    ring_coll_str((a)->coll), (a)->name, (unsigned)(rank), (unsigned)(sh)->size, (unsigned)(sh)->root, (sh)->count, \
        (sh)->variable ? " at most" : "", (size_t)(seg), (sh)->layout ? ", with a layout" : ""

typedef void check_fn(const struct ri_algorithm *a, const struct shape *sh, uint32_t rank, size_t seg);

static void for_ranks(const struct ri_algorithm *a, struct shape *sh, uint64_t *random, check_fn *check)
{
    static const size_t segs[] = {4, 12, 1000};
    struct sim_layout l;
    sh->root = (uint32_t)sim_chance(random, sh->size);
    sim_lay_out(&l, sh->size, 1 + (uint32_t)sim_chance(random, sh->size), random);
    sh->layout = sim_chance(random, 2) ? &l.layout : NULL;
    shape_make(sh, random);
    for (size_t s = 0; s < sizeof segs / sizeof *segs && fits(a, sh); s++)
        for (uint32_t rank = 0; rank < sh->size; rank++)
            check(a, sh, rank, segs[s]);
}

/* Calls check for every algorithm, rank, size, and several counts and segments; root, layout and blocks by chance. */
static void for_all(uint32_t most, check_fn *check)
{
    static const size_t counts[] = {0, 1, 2, 7, 16, 17, 61};
    uint64_t random = world_seed();
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
        for (uint32_t size = 1; size <= most && (*a)->coll != RING_RECV; size++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int variable = 0; variable <= shape_has_blocks((*a)->coll); variable++) {
                    struct shape sh = {.coll = (*a)->coll,
                                       .size = size,
                                       .count = (*a)->coll == RING_BARRIER ? 0 : counts[c],
                                       .variable = variable,
                                       .in_place = shape_in_place_allowed((*a)->coll)};
                    for_ranks(*a, &sh, &random, check);
                }
}

/* In bytes; RI_APART where a rank has two buffers. */
static int64_t src_at(const struct shape *sh, uint32_t rank)
{
    int64_t at;
    return shape_place(sh, rank, &at) ? 4 * at : RI_APART;
}

static void expect_no_hazard(const struct ri_algorithm *a, const struct shape *sh, uint32_t rank, size_t seg)
{
    char why[256] = "";
    struct ri_sched s = build(a, sh, rank, seg);
    cr_assert_eq(ri_sched_hazards(&s, RI_APART, why, sizeof why), 0, ABOUT ": %s", ABOUT_ARGS(a, sh, rank, seg), why);
    cr_assert_eq(ri_sched_hazards(&s, src_at(sh, rank), why, sizeof why), 0, ABOUT ", in place: %s",
                 ABOUT_ARGS(a, sh, rank, seg), why);
    ri_sched_free(&s);
}

Test(programs, no_two_steps_race, .timeout = 200) { for_all(WORLD_MAX, expect_no_hazard); }

static size_t bytes_of(const struct ri_step *p) { return p->op == RI_SEND ? p->a.len : p->dst.len; }

/* Where there is no data, steps wait for each other because ranks do. */
static bool only_tokens(const struct shape *sh) { return sh->coll == RING_BARRIER || (!sh->count && !sh->variable); }

/* Take one dependency away, wherever bytes hang on it: the check has to see it. */
static void expect_each_order_is_missed(const struct ri_algorithm *a, const struct shape *sh, uint32_t rank, size_t seg)
{
    struct ri_sched s = build(a, sh, rank, seg);
    for (uint32_t i = 0; i < s.n && !only_tokens(sh); i++)
        for (int d = 0; d < 2; d++) {
            const ri_step_id after = s.step[i].after[d];
            if (after == RI_NONE || !bytes_of(&s.step[i]) || !bytes_of(&s.step[after]))
                continue;
            s.step[i].after[d] = RI_NONE;
            char why[256] = "";
            cr_assert_gt(ri_sched_hazards(&s, src_at(sh, rank), why, sizeof why), 0,
                         ABOUT ": step %u need not wait for %u", ABOUT_ARGS(a, sh, rank, seg), (unsigned)i,
                         (unsigned)after);
            cr_assert_not_null(strstr(why, "nothing orders them"));
            s.step[i].after[d] = after;
        }
    ri_sched_free(&s);
}

Test(programs, every_dependency_is_needed_and_missed_when_dropped, .timeout = 200)
{
    for_all(6, expect_each_order_is_missed);
}

Test(programs, the_check_is_quick_for_ten_thousand_steps, .timeout = 120)
{
    const struct ri_coll_args args = {.rank = 3, .size = 50, .count = 50 * 50 * 256, .esize = 4, .seg = 1024};
    struct ri_sched s = {0};
    cr_assert_eq(ri_algorithm_named(RING_ALL_REDUCE, "ring")->build(&s, &args), RING_OK);
    const uint64_t begin = ri_now();
    cr_assert_geq(s.n, 9000);
    cr_assert_eq(ri_sched_hazards(&s, 0, NULL, 0), 0);
    cr_assert_lt(ri_now() - begin, 2 * RI_SECOND);
    s.step[s.n / 2].after[0] = RI_NONE;
    cr_assert_gt(ri_sched_hazards(&s, 0, NULL, 0), 0);
    ri_sched_free(&s);
}

/* ---- the two ends of each link --------------------------------------------------------------------------------- */

static size_t next_to(const struct ri_sched *s, uint32_t *at, uint32_t peer, bool sends)
{
    while (*at < s->n &&
           !(s->step[*at].op <= RI_RECV_REDUCE && s->step[*at].peer == peer && (s->step[*at].op == RI_SEND) == sends))
        ++*at;
    return *at < s->n ? bytes_of(&s->step[(*at)++]) : SIZE_MAX;
}

static void expect_ends_agree(const struct ri_algorithm *a, const struct shape *sh, uint32_t rank, size_t seg)
{
    struct ri_sched mine = build(a, sh, rank, seg);
    for (uint32_t i = 0; i < mine.npeers; i++) {
        const uint32_t peer = mine.peers[i];
        struct ri_sched theirs = build(a, sh, peer, seg);
        uint32_t out = 0, in = 0;
        size_t sent, come;
        do {
            sent = next_to(&mine, &out, peer, true);
            come = next_to(&theirs, &in, rank, false);
            cr_assert_eq(sent, come, ABOUT ": to %u", ABOUT_ARGS(a, sh, rank, seg), (unsigned)peer);
        } while (sent != SIZE_MAX);
        bool listed = false;
        for (uint32_t k = 0; k < theirs.npeers; k++)
            listed |= theirs.peers[k] == rank;
        cr_assert(listed, "a signature would not be answered");
        ri_sched_free(&theirs);
    }
    ri_sched_free(&mine);
}

Test(programs, the_kth_send_meets_a_receive_of_its_length, .timeout = 200) { for_all(9, expect_ends_agree); }

/* ---- how they read --------------------------------------------------------------------------------------------- */

static void expect_text(ring_coll_t coll, const char *name, struct ri_coll_args args, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    struct ri_sched s = {0};
    cr_assert_eq(ri_algorithm_named(coll, name)->build(&s, &args), RING_OK);
    FILE *out = open_memstream(&text, &len);
    ri_sched_print(&s, out);
    fclose(out);
    cr_assert_str_eq(text, want, "%s %s is\n%s", ring_coll_str(coll), name, text);
    free(text);
    ri_sched_free(&s);
}

Test(programs, read_as_expected)
{
    expect_text(RING_ALL_REDUCE, "ring",
                (struct ri_coll_args){.rank = 0, .size = 3, .count = 9, .esize = 4, .seg = 1024},
                "    0  send         src[0,12) to 1\n"
                "    1  recv_reduce  dst[24,36) = src[24,36) op from 2\n"
                "    2  send         dst[24,36) to 1  after 1\n"
                "    3  recv_reduce  dst[12,24) = src[12,24) op from 2, final\n"
                "    4  send         dst[12,24) to 1  after 3\n"
                "    5  recv         dst[0,12) from 2  after 0\n"
                "    6  send         dst[0,12) to 1  after 5\n"
                "    7  recv         dst[24,36) from 2  after 2\n");
    expect_text(
        RING_ALL_REDUCE, "exchange", (struct ri_coll_args){.rank = 1, .size = 2, .count = 5, .esize = 8, .seg = 24},
        "    0  send         src[0,24) to 0\n"
        "    1  recv         tmp[0,24) from 0\n"
        "    2  combine      dst[0,24) = 2 operands tmp[0,24) + 0 k, operand 1 src[0,24), final  after 1, 0\n"
        "    3  send         src[24,40) to 0\n"
        "    4  recv         tmp[64,80) from 0\n"
        "    5  combine      dst[24,40) = 2 operands tmp[64,80) + 0 k, operand 1 src[24,40), final  after 4, 3\n");
    expect_text(RING_ALL_REDUCE, "doubling",
                (struct ri_coll_args){.rank = 4, .size = 5, .count = 2, .esize = 4, .seg = 64},
                "    0  send         src[0,8) to 3\n"
                "    1  recv_reduce  tmp[0,8) = from 3 op src[0,8)\n"
                "    2  send         tmp[0,8) to 2  after 1\n"
                "    3  recv_reduce  dst[0,8) = from 2 op tmp[0,8), final  after 1, 0\n");
    expect_text(RING_ALL_REDUCE, "doubling",
                (struct ri_coll_args){.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 64},
                "    0  send         src[0,8) to 0\n"
                "    1  recv         dst[0,8) from 0  after 0\n");
    expect_text(RING_ALL_REDUCE, "ring", (struct ri_coll_args){.rank = 0, .size = 1, .count = 2, .esize = 4, .seg = 64},
                "    0  copy         dst[0,8) = src[0,8)\n");
}

/* One small case of each, read and found right once. */
static const struct {
    ring_coll_t coll;
    const char *name;
    struct ri_coll_args args;
    const char *text;
} others[] = {
    {RING_ALL_GATHER,
     "ring",
     {.rank = 0, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  copy         dst[0,8) = src[0,8)\n"
     "    1  send         src[0,8) to 1\n"
     "    2  recv         dst[16,24) from 2\n"
     "    3  send         dst[16,24) to 1  after 2\n"
     "    4  recv         dst[8,16) from 2\n"},
    {RING_ALL_GATHER,
     "bruck",
     {.rank = 1, .size = 5, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  copy         dst[8,16) = src[0,8)\n"
     "    1  copy         tmp[0,8) = src[0,8)\n"
     "    2  send         tmp[0,8) to 0  after 1\n"
     "    3  recv         tmp[8,16) from 2\n"
     "    4  copy         dst[16,24) = tmp[8,16)  after 3\n"
     "    5  join           after 1, 3\n"
     "    6  send         tmp[0,16) to 4  after 5\n"
     "    7  recv         tmp[16,32) from 3\n"
     "    8  copy         dst[24,40) = tmp[16,32)  after 7\n"
     "    9  join           after 5, 7\n"
     "   10  send         tmp[0,8) to 2  after 1\n"
     "   11  recv         tmp[32,40) from 0\n"
     "   12  copy         dst[0,8) = tmp[32,40)  after 11\n"
     "   13  join           after 9, 11\n"},
    {RING_ALL_GATHER,
     "direct",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  copy         dst[8,16) = src[0,8)\n"
     "    1  send         src[0,8) to 2\n"
     "    2  recv         dst[0,8) from 0\n"
     "    3  send         src[0,8) to 0\n"
     "    4  recv         dst[16,24) from 2\n"},
    {RING_REDUCE_SCATTER,
     "ring",
     {.rank = 0, .size = 4, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  send         src[24,32) to 1\n"
     "    1  recv_reduce  tmp[64,72) = src[16,24) op from 3\n"
     "    2  send         tmp[64,72) to 1  after 1\n"
     "    3  recv_reduce  tmp[128,136) = src[8,16) op from 3\n"
     "    4  send         tmp[128,136) to 1  after 3\n"
     "    5  recv_reduce  dst[0,8) = src[0,8) op from 3, final\n"},
    {RING_REDUCE_SCATTER,
     "direct",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  send         src[16,24) to 2\n"
     "    1  send         src[0,8) to 0\n"
     "    2  recv         tmp[64,72) from 0\n"
     "    3  recv         tmp[80,88) from 2\n"
     "    4  join           after 2, 3\n"
     "    5  combine      dst[0,8) = 3 operands tmp[64,72) + 8 k, operand 1 src[8,16), final  after 4\n"},
    {RING_ALL_TO_ALL,
     "pairwise",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  copy         dst[8,16) = src[8,16)\n"
     "    1  send         src[16,24) to 2\n"
     "    2  recv         dst[0,8) from 0\n"
     "    3  send         src[0,8) to 0\n"
     "    4  recv         dst[16,24) from 2\n"},
    {RING_ALL_TO_ALL,
     "bruck",
     {.rank = 1, .size = 4, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  copy         tmp[0,8) = src[16,24)\n"
     "    1  copy         tmp[8,16) = src[0,8)  after 0\n"
     "    2  send         tmp[0,16) to 2  after 1\n"
     "    3  recv         tmp[64,80) from 0\n"
     "    4  copy         tmp[128,136) = src[24,32)\n"
     "    5  copy         tmp[136,144) = tmp[72,80)  after 4, 3\n"
     "    6  send         tmp[128,144) to 3  after 5\n"
     "    7  recv         tmp[192,208) from 3\n"
     "    8  copy         dst[8,16) = src[8,16)\n"
     "    9  copy         dst[0,8) = tmp[64,72)  after 3\n"
     "   10  copy         dst[24,32) = tmp[192,200)  after 7\n"
     "   11  copy         dst[16,24) = tmp[200,208)  after 7\n"},
    {RING_GATHER,
     "direct",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 1},
     "    0  copy         dst[8,16) = src[0,8)\n"
     "    1  recv         dst[16,24) from 2\n"
     "    2  recv         dst[0,8) from 0\n"},
    {RING_GATHER,
     "binomial",
     {.rank = 2, .size = 4, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  copy         tmp[0,8) = src[0,8)\n"
     "    1  recv         tmp[8,16) from 3\n"
     "    2  join           after 0, 1\n"
     "    3  send         tmp[0,16) to 0  after 2\n"},
    {RING_GATHER,
     "binomial",
     {.rank = 3, .size = 4, .count = 2, .esize = 4, .seg = 8, .root = 2},
     "    0  send         src[0,8) to 2\n"},
    {RING_SCATTER,
     "direct",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 1},
     "    0  send         src[16,24) to 2\n"
     "    1  send         src[0,8) to 0\n"
     "    2  copy         dst[0,8) = src[8,16)\n"},
    {RING_SCATTER,
     "binomial",
     {.rank = 2, .size = 4, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  recv         tmp[0,16) from 0\n"
     "    1  send         tmp[8,16) to 3  after 0\n"
     "    2  copy         dst[0,8) = tmp[0,8)  after 0\n"},
    {RING_SCATTER,
     "binomial",
     {.rank = 1, .size = 4, .count = 2, .esize = 4, .seg = 8, .root = 1},
     "    0  copy         tmp[0,8) = src[24,32)\n"
     "    1  copy         tmp[8,16) = src[0,8)\n"
     "    2  send         tmp[0,16) to 3  after 0, 1\n"
     "    3  send         src[16,24) to 2\n"
     "    4  copy         dst[0,8) = src[8,16)\n"},
    {RING_BROADCAST,
     "tree",
     {.rank = 2, .size = 4, .count = 4, .esize = 4, .seg = 8, .root = 0},
     "    0  recv         dst[0,8) from 0\n"
     "    1  send         dst[0,8) to 1  after 0\n"
     "    2  send         dst[0,8) to 3  after 0\n"
     "    3  recv         dst[8,16) from 3\n"},
    {RING_BROADCAST,
     "chain",
     {.rank = 2, .size = 4, .count = 4, .esize = 4, .seg = 8, .root = 0},
     "    0  recv         dst[0,8) from 1\n"
     "    1  send         dst[0,8) to 3  after 0\n"
     "    2  recv         dst[8,16) from 1\n"
     "    3  send         dst[8,16) to 3  after 2\n"},
    {RING_BROADCAST,
     "direct",
     {.rank = 0, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  send         src[0,8) to 1\n"
     "    1  send         src[0,8) to 2\n"
     "    2  copy         dst[0,8) = src[0,8)\n"},
    {RING_REDUCE,
     "tree",
     {.rank = 2, .size = 4, .count = 4, .esize = 4, .seg = 8, .root = 0},
     "    0  recv_reduce  tmp[0,8) = from 1 op src[0,8)\n"
     "    1  recv_reduce  tmp[0,8) = tmp[0,8) op from 3  after 0\n"
     "    2  send         tmp[0,8) to 0  after 1\n"
     "    3  send         src[8,16) to 3\n"},
    {RING_REDUCE,
     "tree",
     {.rank = 0, .size = 4, .count = 4, .esize = 4, .seg = 8, .root = 0},
     "    0  recv_reduce  dst[0,8) = src[0,8) op from 2, final\n"
     "    1  recv_reduce  dst[8,16) = src[8,16) op from 3, final\n"},
    {RING_REDUCE,
     "direct",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 1},
     "    0  recv         tmp[0,8) from 0\n"
     "    1  recv         tmp[16,24) from 2\n"
     "    2  join           after 0, 1\n"
     "    3  combine      dst[0,8) = 3 operands tmp[0,8) + 8 k, operand 1 src[0,8), final  after 2\n"},
    {RING_BARRIER,
     "dissemination",
     {.rank = 1, .size = 5, .count = 0, .esize = 4, .seg = 8, .root = 0},
     "    0  send         tmp[0,1) to 2\n"
     "    1  recv         tmp[64,65) from 0\n"
     "    2  send         tmp[0,1) to 3  after 1\n"
     "    3  recv         tmp[128,129) from 4\n"
     "    4  join           after 1, 3\n"
     "    5  send         tmp[0,1) to 0  after 4\n"
     "    6  recv         tmp[192,193) from 2\n"
     "    7  join           after 4, 6\n"},
    {RING_SEND,
     "direct",
     {.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 0},
     "    0  send         src[0,8) to 0\n"},
    {RING_RECV,
     "direct",
     {.rank = 0, .size = 3, .count = 2, .esize = 4, .seg = 8, .root = 1},
     "    0  recv         dst[0,8) from 1\n"},
};

Test(programs, of_other_collectives_read_as_expected)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_text(others[i].coll, others[i].name, others[i].args, others[i].text);
}

/* ---- what theory says ------------------------------------------------------------------------------------------ */

enum { MOST_STEPS = 4096 };

/* All ranks' programs of one call, and for each step how many messages came one after another until it was done. */
static struct {
    uint32_t size;
    struct ri_sched program[WORLD_MAX];
    uint32_t hops[WORLD_MAX][MOST_STEPS];
} all;

/* The step of `from` that sends what step `at` of `rank` receives. */
static uint32_t source_of(uint32_t rank, uint32_t at)
{
    const struct ri_sched *mine = &all.program[rank], *theirs = &all.program[mine->step[at].peer];
    uint32_t number = 0, i = 0;
    for (uint32_t k = 0; k < at; k++)
        number +=
            ri_communicates(&mine->step[k]) && mine->step[k].op != RI_SEND && mine->step[k].peer == mine->step[at].peer;
    for (;; i++)
        if (theirs->step[i].op == RI_SEND && theirs->step[i].peer == rank && !number--)
            return i;
}

static bool update(uint32_t rank, uint32_t at)
{
    const struct ri_step *p = &all.program[rank].step[at];
    uint32_t hops = 0;
    for (int d = 0; d < 2; d++)
        if (p->after[d] != RI_NONE && all.hops[rank][p->after[d]] > hops)
            hops = all.hops[rank][p->after[d]];
    if (ri_communicates(p) && p->op != RI_SEND) {
        const uint32_t sent = all.hops[p->peer][source_of(rank, at)];
        hops = sent + 1 > hops ? sent + 1 : hops;
    }
    const bool changed = hops != all.hops[rank][at];
    all.hops[rank][at] = hops;
    return changed;
}

/* Builds all programs and follows the messages; returns the hops of the last step to be done. */
static uint32_t follow(const struct ri_algorithm *a, const struct shape *sh)
{
    bool changed = true;
    uint32_t most = 0;
    all.size = sh->size;
    memset(all.hops, 0, sizeof all.hops);
    for (uint32_t r = 0; r < sh->size; r++) {
        all.program[r] = build(a, sh, r, 1 << 20);
        cr_assert_leq(all.program[r].n, MOST_STEPS);
    }
    while (changed) {
        changed = false;
        for (uint32_t r = 0; r < sh->size; r++)
            for (uint32_t i = 0; i < all.program[r].n; i++)
                changed |= update(r, i);
    }
    for (uint32_t r = 0; r < sh->size; r++)
        for (uint32_t i = 0; i < all.program[r].n; i++)
            most = all.hops[r][i] > most ? all.hops[r][i] : most;
    return most;
}

static size_t sent_by(uint32_t rank, uint32_t *messages_out)
{
    size_t bytes = 0;
    *messages_out = 0;
    for (uint32_t i = 0; i < all.program[rank].n; i++)
        if (all.program[rank].step[i].op == RI_SEND) {
            bytes += all.program[rank].step[i].a.len;
            ++*messages_out;
        }
    return bytes;
}

static uint32_t log2_up(uint32_t n) { return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0; }

/* Blocks that a rank sends in Bruck's all_to_all: in each step those whose number has one bit. */
static size_t bits_below(uint32_t n)
{
    size_t bits = 0;
    for (uint32_t i = 1; i < n; i++)
        bits += (size_t)__builtin_popcount(i);
    return bits;
}

static uint32_t log2_down(uint32_t n) { return 31 - (uint32_t)__builtin_clz(n); }

/* What is left over for the last step waits only for as much as that needs. */
static uint32_t bruck_hops(uint32_t n)
{
    const uint32_t whole = log2_down(n), rest = n - (UINT32_C(1) << whole);
    const uint32_t last = rest ? log2_up(rest) + 1 : 0;
    return last > whole ? last : whole;
}

static uint32_t one(uint32_t n) { return n > 1; }
static uint32_t others_of(uint32_t n) { return n - 1; }
static size_t one_block(uint32_t n) { return n > 1; }
static size_t two_blocks(uint32_t n) { return n > 3 ? 2 : n > 1; }
static size_t all_but_one(uint32_t n) { return n - 1; }
static size_t by_all(uint32_t n) { return (size_t)n * (n - 1); }
static size_t bits_by_all(uint32_t n) { return n * bits_below(n); }
static size_t tokens(uint32_t n) { return (size_t)n * log2_up(n); }
static size_t log2_tokens(uint32_t n) { return log2_up(n); }

/* hops: of the last step.  most: blocks that a rank sends at most, total: that all send together.  NULL: not stated. */
static const struct theory {
    ring_coll_t coll;
    const char *name;
    uint32_t (*hops)(uint32_t n);
    size_t (*most)(uint32_t n), (*total)(uint32_t n);
} theory[] = {
    {RING_ALL_GATHER, "ring", others_of, all_but_one, by_all},
    {RING_ALL_GATHER, "bruck", bruck_hops, all_but_one, by_all},
    {RING_ALL_GATHER, "direct", one, all_but_one, by_all},
    {RING_REDUCE_SCATTER, "ring", others_of, all_but_one, by_all},
    {RING_REDUCE_SCATTER, "direct", one, all_but_one, by_all},
    {RING_ALL_TO_ALL, "pairwise", one, all_but_one, by_all},
    {RING_ALL_TO_ALL, "bruck", bruck_hops, bits_below, bits_by_all},
    {RING_GATHER, "direct", one, one_block, all_but_one},
    {RING_GATHER, "binomial", log2_down, NULL, NULL},
    {RING_SCATTER, "direct", one, all_but_one, all_but_one},
    {RING_SCATTER, "binomial", log2_down, NULL, NULL},
    {RING_BROADCAST, "tree", log2_up, two_blocks, all_but_one},
    {RING_BROADCAST, "chain", others_of, one_block, all_but_one},
    {RING_BROADCAST, "direct", one, all_but_one, all_but_one},
    {RING_REDUCE, "tree", log2_up, one_block, all_but_one},
    {RING_REDUCE, "direct", one, one_block, all_but_one},
    {RING_BARRIER, "dissemination", log2_up, log2_tokens, tokens},
    {RING_SEND, "direct", one, one_block, one_block},
};

static void expect_theory(const struct theory *t, uint32_t size)
{
    const struct ri_algorithm *a = ri_algorithm_named(t->coll, t->name);
    struct shape sh = {.coll = t->coll, .size = size, .count = t->coll == RING_BARRIER ? 0 : 6};
    const size_t block = t->coll == RING_BARRIER ? 1 : 24;
    uint64_t random = world_seed();
    size_t most = 0, total = 0;
    shape_make(&sh, &random);
    if (!fits(a, &sh))
        return;
    const uint32_t hops = follow(a, &sh);
    cr_assert_eq(hops, t->hops(size), "%s %s, %u ranks: %u hops", ring_coll_str(t->coll), t->name, (unsigned)size,
                 (unsigned)hops);
    for (uint32_t r = 0; r < size; r++) {
        uint32_t messages;
        const size_t bytes = sent_by(r, &messages);
        most = bytes > most ? bytes : most;
        total += bytes;
        ri_sched_free(&all.program[r]);
    }
    cr_assert(!t->most || most == block * t->most(size), "%s %s, %u ranks: %zu bytes by one", ring_coll_str(t->coll),
              t->name, (unsigned)size, most);
    cr_assert(!t->total || total == block * t->total(size), "%s %s, %u ranks: %zu bytes by all", ring_coll_str(t->coll),
              t->name, (unsigned)size, total);
}

Test(programs, hops_and_bytes_are_what_theory_says, .timeout = 60)
{
    for (size_t i = 0; i < sizeof theory / sizeof *theory; i++)
        for (uint32_t size = 1; size <= WORLD_MAX; size++)
            expect_theory(&theory[i], size);
}

/* Carried by two trees, a long message leaves no rank but the root with more to send than once. */
Test(programs, two_trees_share_the_load, .timeout = 60)
{
    for (uint32_t size = 2; size <= WORLD_MAX; size++) {
        struct shape sh = {.coll = RING_BROADCAST, .size = size, .count = 64};
        uint64_t random = world_seed();
        shape_make(&sh, &random);
        for (uint32_t r = 0; r < size; r++) {
            uint32_t messages;
            all.program[r] = build(ri_algorithm_named(RING_BROADCAST, "tree"), &sh, r, 16);
            const size_t bytes = sent_by(r, &messages);
            cr_assert_leq(bytes, 64 * 4, "rank %u of %u sends %zu bytes", (unsigned)r, (unsigned)size, bytes);
            ri_sched_free(&all.program[r]);
        }
    }
}
