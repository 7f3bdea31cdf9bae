/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of the all-reduces have to be beyond what is checked of all programs: how many bytes they send and
 * over which links, also when hosts hold several ranks; the bits of rank order where they are promised; how they read.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/coll/tree.h"
#include "tests/sim/world.h"

static struct world w;

/* ---- ranks on hosts -------------------------------------------------------------------------------------------- */

struct hosts {
    struct ri_layout layout;
    uint32_t node_of[WORLD_MAX], order[WORLD_MAX], first[WORLD_MAX + 1];
};

/* From the host of every rank; hosts are numbered as they come. */
static void list_hosts(struct hosts *h, uint32_t size)
{
    uint32_t n = 0;
    for (uint32_t node = 0; n < size; node++) {
        h->first[node] = n;
        for (uint32_t r = 0; r < size; r++)
            if (h->node_of[r] == node)
                h->order[n++] = r;
        h->first[node + 1] = n;
        h->layout = (struct ri_layout){.nodes = node + 1, .node_of = h->node_of, .order = h->order, .first = h->first};
    }
}

/* Any ranks on any hosts, most of the time not one after the other. */
static void scatter(struct hosts *h, uint32_t size)
{
    const uint32_t most = 1 + (uint32_t)world_chance(&w, size);
    uint32_t number[WORLD_MAX], known = 0;
    memset(number, 0xff, sizeof number);
    for (uint32_t r = 0; r < size; r++) {
        const uint64_t host = world_chance(&w, most);
        if (number[host] == UINT32_MAX)
            number[host] = known++;
        h->node_of[r] = number[host];
    }
    list_hosts(h, size);
}

static void even(struct hosts *h, uint32_t nodes, uint32_t each)
{
    for (uint32_t r = 0; r < nodes * each; r++)
        h->node_of[r] = r % nodes;
    list_hosts(h, nodes * each);
}

static bool all_reduces(const struct ri_algorithm *a, const struct ri_coll_args *args)
{
    return a->coll == RING_ALL_REDUCE && a->fits(args);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

static struct ri_sched build(const char *name, const struct ri_coll_args *args)
{
    struct ri_sched s = {0};
    cr_assert_eq(ri_algorithm_named(RING_ALL_REDUCE, name)->build(&s, args), RING_OK);
    return s;
}

/* What a rank sends, to all or only to other hosts. */
static size_t sent_by(const char *name, struct ri_coll_args args, uint32_t rank, bool only_across)
{
    size_t bytes = 0;
    args.rank = rank;
    struct ri_sched s = build(name, &args);
    for (uint32_t i = 0; i < s.n; i++)
        if (s.step[i].op == RI_SEND &&
            !(only_across && args.layout->node_of[rank] == args.layout->node_of[s.step[i].peer]))
            bytes += s.step[i].a.len;
    ri_sched_free(&s);
    return bytes;
}

Test(bytes, halving_and_doubling_need_as_few_as_the_ring)
{
    for (uint32_t size = 4; size <= 32; size *= 2)
        for (size_t seg = 100; seg <= 100000; seg *= 10) {
            const struct ri_coll_args args = {.size = size, .count = 32 * 33, .esize = 4, .seg = seg};
            for (uint32_t r = 0; r < size; r++)
                cr_assert_eq(sent_by("rabenseifner", args, r, false), 2 * (size - 1) * (4 * args.count / size));
        }
}

Test(bytes, directly_in_one_step_or_in_two)
{
    for (uint32_t size = 2; size <= 9; size++) {
        const struct ri_coll_args args = {.size = size, .count = 2520, .esize = 4, .seg = 512};
        for (uint32_t r = 0; r < size; r++) {
            cr_assert_eq(sent_by("direct", args, r, false), (size - 1) * 4 * args.count);
            cr_assert_eq(sent_by("two_shot", args, r, false), 2 * (size - 1) * (4 * args.count / size));
        }
    }
}

Test(bytes, folding_costs_the_whole_buffer_there_and_back)
{
    for (uint32_t size = 3; size <= 17; size++) {
        const struct ri_coll_args args = {.size = size, .count = 32 * 33, .esize = 4, .seg = 512};
        const uint32_t power = size >= 16 ? 16 : size >= 8 ? 8 : size >= 4 ? 4 : 2, rest = size - power;
        size_t total = 0;
        for (uint32_t r = 0; r < size; r++)
            total += sent_by("rabenseifner", args, r, false);
        cr_assert_eq(total, 4 * args.count * (2 * (power - 1) + 2 * rest), "%u ranks", (unsigned)size);
    }
}

Test(bytes, two_trees_share_the_work)
{
    for (uint32_t size = 2; size <= 33; size++) {
        const struct ri_coll_args args = {.size = size, .count = 6400, .esize = 4, .seg = 400};
        const size_t whole = 4 * args.count;
        size_t total = 0;
        for (uint32_t r = 0; r < size; r++) {
            const size_t sent = sent_by("tree", args, r, false);
            cr_assert_leq(sent, 2 * whole, "rank %u of %u", (unsigned)r, (unsigned)size);
            total += sent;
        }
        cr_assert_eq(total, 2 * (size - 1) * whole, "%u ranks", (unsigned)size);
    }
}

Test(bytes, across_hosts_as_few_as_there_can_be)
{
    for (uint32_t nodes = 2; nodes <= 4; nodes++)
        for (uint32_t each = 1; each <= 4; each++) {
            struct hosts h;
            even(&h, nodes, each);
            const uint32_t size = nodes * each;
            const struct ri_coll_args args = {
                .size = size, .count = 144 * 10, .esize = 4, .seg = 256, .layout = &h.layout};
            for (uint32_t node = 0; node < nodes; node++) {
                size_t ring = 0, hier = 0;
                for (uint32_t i = h.first[node]; i < h.first[node + 1]; i++) {
                    ring += sent_by("ring", args, h.order[i], true);
                    hier += each > 1 ? sent_by("hier", args, h.order[i], true) : 0;
                }
                cr_assert_eq(ring, 2 * (size - 1) * (4 * args.count / size));
                cr_assert(each == 1 || hier == 2 * (nodes - 1) * (4 * args.count / nodes), "%zu", hier);
            }
        }
}

/* ---- hosts with several ranks ---------------------------------------------------------------------------------- */

static void expect_sound(const struct ri_algorithm *a, const struct ri_coll_args *args)
{
    char why[256] = "";
    struct ri_sched s = build(a->name, args);
    for (int in_place = 0; in_place < 2; in_place++)
        cr_assert_eq(ri_sched_hazards(&s, in_place ? 0 : RI_APART, why, sizeof why), 0,
                     "%s, rank %u of %u, %zu elements: %s", a->name, (unsigned)args->rank, (unsigned)args->size,
                     args->count, why);
    ri_sched_free(&s);
}

static void run_on(const struct ri_algorithm *a, const struct ri_layout *layout, size_t count)
{
    struct job job = {.algorithm = a,
                      .count = count,
                      .seg = 4 * (1 + world_chance(&w, 40)),
                      .dtype = RING_INT32,
                      .redop = RING_AVG,
                      .in_place = world_chance(&w, 2),
                      .exact = true,
                      .layout = layout};
    job_prepare(&w, &job);
    job_start(&w, &job);
    cr_assert(world_settle(&w, &job, 1), "%s stands still, SIM_SEED=%llu", a->name, (unsigned long long)w.seed);
    job_check(&w, &job);
    job_end(&w, &job);
}

Test(hosts, any_ranks_on_any_hosts, .timeout = 120)
{
    static const size_t counts[] = {0, 1, 5, 61, 500};
    fprintf(stderr, "SIM_SEED=%llu\n", (unsigned long long)world_seed());
    for (uint32_t size = 2; size <= WORLD_MAX; size++)
        for (int i = 0; i < 4; i++) {
            struct hosts h;
            world_open(&w, size, world_seed() + 50 * size + (unsigned)i);
            scatter(&h, size);
            for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    struct ri_coll_args args = {
                        .size = size, .count = counts[c], .esize = 4, .seg = 44, .layout = &h.layout};
                    if (!all_reduces(*a, &args))
                        continue;
                    for (args.rank = 0; args.rank < size; args.rank++)
                        expect_sound(*a, &args);
                    run_on(*a, &h.layout, counts[c]);
                }
            world_close(&w);
        }
}

/* ---- rank order ------------------------------------------------------------------------------------------------ */

/* All operands at once, in the order of ranks, by the plain kernel. */
static void expect_bits_of_rank_order(const struct job *job)
{
    const struct ri_reduction plain = ri_reduction_from(0, job->dtype, job->redop);
    const void *from[WORLD_MAX];
    void *want = malloc(job->part[0].bytes);
    for (uint32_t r = 0; r < w.size; r++)
        from[r] = job->part[r].given + GUARD;
    const struct ri_combine all = {
        .from = from, .to = &want, .n = w.size, .outs = 1, .count = job->count, .divisor = plain.divide ? w.size : 0};
    plain.combine(&plain, &all);
    for (uint32_t r = 0; r < w.size; r++)
        cr_assert(!memcmp(job->part[r].dst, want, job->part[r].bytes), "%s, rank %u of %u, %s %s, SIM_SEED=%llu",
                  job->algorithm->name, (unsigned)r, (unsigned)w.size, ri_dtype_name(job->dtype),
                  ri_redop_name(job->redop), (unsigned long long)w.seed);
    free(want);
}

Test(ordered, the_bits_are_those_of_rank_order, .timeout = 120)
{
    unsigned checked = 0;
    for (uint32_t size = 2; size <= 9; size++) {
        world_open(&w, size, world_seed() + 700 + size);
        for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
            for (int d = RING_FLOAT; d < RI_DTYPES; d++)
                for (int o = 0; o < 4; o++) {
                    struct job job = {.algorithm = *a,
                                      .count = 1 + world_chance(&w, 300),
                                      .dtype = (ring_dtype_t)d,
                                      .redop = o % 2 ? RING_AVG : RING_SUM,
                                      .in_place = o / 2,
                                      .seg = 8 * (1 + world_chance(&w, 100))};
                    if (!(*a)->ordered || !all_reduces(*a, &(struct ri_coll_args){.size = size}))
                        continue;
                    job_prepare(&w, &job);
                    job_start(&w, &job);
                    cr_assert(world_settle(&w, &job, 1));
                    expect_bits_of_rank_order(&job);
                    job_end(&w, &job);
                    checked++;
                }
        world_close(&w);
    }
    cr_assert_geq(checked, 8);
}

/* ---- how they read --------------------------------------------------------------------------------------------- */

static void expect_text(const char *name, struct ri_coll_args args, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    struct ri_sched s = build(name, &args);
    FILE *out = open_memstream(&text, &len);
    ri_sched_print(&s, out);
    fclose(out);
    cr_assert_str_eq(text, want, "%s is\n%s", name, text);
    free(text);
    ri_sched_free(&s);
}

Test(text, halving_and_doubling)
{
    expect_text("rabenseifner", (struct ri_coll_args){.rank = 1, .size = 4, .count = 8, .esize = 4, .seg = 16},
                "    0  send         src[0,16) to 0\n"
                "    1  recv_reduce  dst[16,32) = from 0 op src[16,32)\n"
                "    2  send         dst[24,32) to 3  after 1\n"
                "    3  recv_reduce  dst[16,24) = dst[16,24) op from 3, final  after 1\n"
                "    4  send         dst[16,24) to 3  after 3\n"
                "    5  recv         dst[24,32) from 3  after 2\n"
                "    6  join           after 3, 5\n"
                "    7  recv         dst[0,16) from 0  after 0\n"
                "    8  send         dst[16,32) to 0  after 6\n");
}

Test(text, direct)
{
    expect_text("direct", (struct ri_coll_args){.rank = 1, .size = 3, .count = 2, .esize = 4, .seg = 16},
                "    0  send         src[0,8) to 2\n"
                "    1  send         src[0,8) to 0\n"
                "    2  join           after 0, 1\n"
                "    3  recv         tmp[0,8) from 0\n"
                "    4  recv         tmp[16,24) from 2\n"
                "    5  join           after 3, 4\n"
                "    6  combine      dst[0,8) = 3 operands tmp[0,8) + 8 k, operand 1 src[0,8), final  after 5, 2\n");
}

Test(text, two_shot)
{
    expect_text("two_shot", (struct ri_coll_args){.rank = 1, .size = 3, .count = 6, .esize = 4, .seg = 16},
                "    0  send         src[16,24) to 2\n"
                "    1  send         src[0,8) to 0\n"
                "    2  recv         tmp[0,8) from 0\n"
                "    3  recv         tmp[16,24) from 2\n"
                "    4  join           after 2, 3\n"
                "    5  combine      dst[8,16) = 3 operands tmp[0,8) + 8 k, operand 1 src[8,16), final  after 4\n"
                "    6  send         dst[8,16) to 2  after 5\n"
                "    7  recv         dst[0,8) from 0  after 1\n"
                "    8  send         dst[8,16) to 0  after 5\n"
                "    9  recv         dst[16,24) from 2  after 0\n");
}

Test(text, tree)
{
    expect_text("tree", (struct ri_coll_args){.rank = 2, .size = 4, .count = 8, .esize = 4, .seg = 16},
                "    0  recv_reduce  dst[0,16) = from 1 op src[0,16)\n"
                "    1  recv_reduce  dst[0,16) = dst[0,16) op from 3  after 0\n"
                "    2  send         dst[0,16) to 0  after 1\n"
                "    3  send         src[16,32) to 3\n"
                "    4  recv         dst[0,16) from 0  after 2\n"
                "    5  send         dst[0,16) to 1  after 4\n"
                "    6  send         dst[0,16) to 3  after 4\n"
                "    7  recv         dst[16,32) from 3  after 3\n");
}

/* Ranks 0 and 2 share a host, and 1 and 3. */
Test(text, hosts)
{
    struct hosts h;
    even(&h, 2, 2);
    struct ri_coll_args args = {.rank = 0, .size = 4, .count = 8, .esize = 4, .seg = 16, .layout = &h.layout};
    expect_text("hier", args,
                "    0  send         src[16,24) to 2\n"
                "    1  recv_reduce  dst[0,8) = src[0,8) op from 2\n"
                "    2  send         src[24,32) to 2\n"
                "    3  recv_reduce  dst[8,16) = src[8,16) op from 2\n"
                "    4  send         dst[0,8) to 1  after 1\n"
                "    5  recv_reduce  dst[8,16) = dst[8,16) op from 1, final  after 3\n"
                "    6  send         dst[8,16) to 1  after 5\n"
                "    7  recv         dst[0,8) from 1  after 4\n"
                "    8  send         dst[8,16) to 2  after 5\n"
                "    9  recv         dst[24,32) from 2  after 2\n"
                "   10  send         dst[0,8) to 2  after 7\n"
                "   11  recv         dst[16,24) from 2  after 0\n");
    args.rank = 3;
    args.count = 4;
    expect_text("ring", args,
                "    0  send         src[12,16) to 0\n"
                "    1  recv_reduce  dst[8,12) = src[8,12) op from 1\n"
                "    2  send         dst[8,12) to 0  after 1\n"
                "    3  recv_reduce  dst[4,8) = src[4,8) op from 1\n"
                "    4  send         dst[4,8) to 0  after 3\n"
                "    5  recv_reduce  dst[0,4) = src[0,4) op from 1, final\n"
                "    6  send         dst[0,4) to 0  after 5\n"
                "    7  recv         dst[12,16) from 1  after 0\n"
                "    8  send         dst[12,16) to 0  after 7\n"
                "    9  recv         dst[8,12) from 1  after 2\n"
                "   10  send         dst[8,12) to 0  after 9\n"
                "   11  recv         dst[4,8) from 1  after 4\n");
}
