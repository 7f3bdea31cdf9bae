/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as data: nothing in them is left unordered, nothing is ordered without need, and they read as expected. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "tests/sim/world.h"

static struct ri_sched build(const struct ri_algorithm *a, struct ri_coll_args args)
{
    struct ri_sched s = {0};
    cr_assert_eq(a->build(&s, &args), RING_OK);
    return s;
}

/* Calls check for every algorithm, rank, size, and several counts and segments. */
static void for_all(uint32_t most, void (*check)(const struct ri_algorithm *a, const struct ri_coll_args *args))
{
    static const size_t counts[] = {0, 1, 2, 7, 16, 17, 61};
    static const size_t segs[] = {4, 12, 1000};
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
        for (uint32_t size = 1; size <= most; size++)
            for (uint32_t rank = 0; rank < size; rank++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    for (size_t s = 0; s < sizeof segs / sizeof *segs; s++) {
                        const struct ri_coll_args args = {
                            .rank = rank, .size = size, .count = counts[c], .esize = 4, .seg = segs[s]};
                        if ((*a)->fits(&args))
                            check(*a, &args);
                    }
}

static void expect_no_hazard(const struct ri_algorithm *a, const struct ri_coll_args *args)
{
    char why[256] = "";
    struct ri_sched s = build(a, *args);
    for (int in_place = 0; in_place < 2; in_place++)
        cr_assert_eq(ri_sched_hazards(&s, in_place ? 0 : RI_APART, why, sizeof why), 0,
                     "%s, rank %u of %u, %zu elements: %s", a->name, (unsigned)args->rank, (unsigned)args->size,
                     args->count, why);
    ri_sched_free(&s);
}

Test(programs, no_two_steps_race, .timeout = 120) { for_all(WORLD_MAX, expect_no_hazard); }

static size_t bytes_of(const struct ri_step *p) { return p->op == RI_SEND ? p->a.len : p->dst.len; }

/* Take one dependency away, wherever bytes hang on it: the check has to see it. */
static void expect_each_order_is_missed(const struct ri_algorithm *a, const struct ri_coll_args *args)
{
    struct ri_sched s = build(a, *args);
    for (uint32_t i = 0; i < s.n; i++)
        for (int d = 0; d < 2; d++) {
            const ri_step_id after = s.step[i].after[d];
            if (after == RI_NONE || !bytes_of(&s.step[i]) || !bytes_of(&s.step[after]))
                continue;
            s.step[i].after[d] = RI_NONE;
            char why[256] = "";
            cr_assert_gt(ri_sched_hazards(&s, 0, why, sizeof why), 0,
                         "%s, rank %u of %u, %zu elements: step %u need not wait for %u", a->name, (unsigned)args->rank,
                         (unsigned)args->size, args->count, (unsigned)i, (unsigned)after);
            cr_assert_not_null(strstr(why, "nothing orders them"));
            s.step[i].after[d] = after;
        }
    ri_sched_free(&s);
}

Test(programs, every_dependency_is_needed_and_missed_when_dropped, .timeout = 120)
{
    for_all(6, expect_each_order_is_missed);
}

Test(programs, the_check_is_quick_for_ten_thousand_steps, .timeout = 120)
{
    const struct ri_coll_args args = {.rank = 3, .size = 50, .count = 50 * 50 * 256, .esize = 4, .seg = 1024};
    struct ri_sched s = build(ri_algorithm_named(RING_ALL_REDUCE, "ring"), args);
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

static void expect_ends_agree(const struct ri_algorithm *a, const struct ri_coll_args *args)
{
    struct ri_sched mine = build(a, *args);
    for (uint32_t i = 0; i < mine.npeers; i++) {
        struct ri_coll_args there = *args;
        there.rank = mine.peers[i];
        struct ri_sched theirs = build(a, there);
        uint32_t out = 0, in = 0;
        size_t sent, come;
        do {
            sent = next_to(&mine, &out, there.rank, true);
            come = next_to(&theirs, &in, args->rank, false);
            cr_assert_eq(sent, come, "%s, %u ranks: %u to %u", a->name, (unsigned)args->size, (unsigned)args->rank,
                         (unsigned)there.rank);
        } while (sent != SIZE_MAX);
        bool listed = false;
        for (uint32_t k = 0; k < theirs.npeers; k++)
            listed |= theirs.peers[k] == args->rank;
        cr_assert(listed, "a signature would not be answered");
        ri_sched_free(&theirs);
    }
    ri_sched_free(&mine);
}

Test(programs, the_kth_send_meets_a_receive_of_its_length, .timeout = 120) { for_all(9, expect_ends_agree); }

/* ---- how they read --------------------------------------------------------------------------------------------- */

static void expect_text(const char *name, struct ri_coll_args args, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    struct ri_sched s = build(ri_algorithm_named(RING_ALL_REDUCE, name), args);
    FILE *out = open_memstream(&text, &len);
    ri_sched_print(&s, out);
    fclose(out);
    cr_assert_str_eq(text, want, "%s is\n%s", name, text);
    free(text);
    ri_sched_free(&s);
}

Test(programs, read_as_expected)
{
    expect_text("ring", (struct ri_coll_args){.rank = 0, .size = 3, .count = 9, .esize = 4, .seg = 1024},
                "    0  send         src[0,12) to 1\n"
                "    1  recv_reduce  dst[24,36) = src[24,36) op from 2\n"
                "    2  send         dst[24,36) to 1  after 1\n"
                "    3  recv_reduce  dst[12,24) = src[12,24) op from 2, final\n"
                "    4  send         dst[12,24) to 1  after 3\n"
                "    5  recv         dst[0,12) from 2  after 0\n"
                "    6  send         dst[0,12) to 1  after 5\n"
                "    7  recv         dst[24,36) from 2  after 2\n");
    expect_text(
        "exchange", (struct ri_coll_args){.rank = 1, .size = 2, .count = 5, .esize = 8, .seg = 24},
        "    0  send         src[0,24) to 0\n"
        "    1  recv         tmp[0,24) from 0\n"
        "    2  combine      dst[0,24) = 2 operands tmp[0,24) + 0 k, operand 1 src[0,24), final  after 1, 0\n"
        "    3  send         src[24,40) to 0\n"
        "    4  recv         tmp[64,80) from 0\n"
        "    5  combine      dst[24,40) = 2 operands tmp[64,80) + 0 k, operand 1 src[24,40), final  after 4, 3\n");
    expect_text("doubling", (struct ri_coll_args){.rank = 4, .size = 5, .count = 2, .esize = 4, .seg = 64},
                "    0  send         src[0,8) to 3\n"
                "    1  recv_reduce  tmp[0,8) = from 3 op src[0,8)\n"
                "    2  send         tmp[0,8) to 2  after 1\n"
                "    3  recv_reduce  dst[0,8) = from 2 op tmp[0,8), final  after 1, 0\n");
    expect_text("doubling", (struct ri_coll_args){.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 64},
                "    0  send         src[0,8) to 0\n"
                "    1  recv         dst[0,8) from 0  after 0\n");
    expect_text("ring", (struct ri_coll_args){.rank = 0, .size = 1, .count = 2, .esize = 4, .seg = 64},
                "    0  copy         dst[0,8) = src[0,8)\n");
}
