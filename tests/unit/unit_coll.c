/* SPDX-License-Identifier: Apache-2.0 */
/* lib/coll: which algorithm, in what pieces, cut where. */
#include <criterion/criterion.h>

#include <string.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/coll/coll.h"
#include "lib/coll/rules.h"
#include "lib/coll/tree.h"

/* Processes on hosts with 10 Gbit/s between them: 20 us, 0.8 ns a byte. */
static const struct ri_cost_model net = {.latency = 20000, .byte = 0.8, .reduce_byte = 0.1, .message = 500};

static const struct ri_algorithm *choose_for(const struct ri_coll_args *a, const char *forced)
{
    return ri_algorithm_choose(RING_ALL_REDUCE, a, &net, forced);
}

static const char *choice(uint32_t size, size_t bytes, const char *forced)
{
    struct ri_coll_args a = {.size = size, .count = bytes / 4, .esize = 4};
    a.seg = ri_segment_for(bytes, size, a.esize, 256 << 10);
    return ri_algorithm_choose(RING_ALL_REDUCE, &a, &net, forced)->name;
}

Test(select, the_ring_for_large_direct_or_doubling_for_small_exchange_for_two)
{
    for (uint32_t size = 3; size <= 64; size++) {
        if (size <= 8 || size == 64)
            cr_assert_str_eq(choice(size, 4, NULL), size <= 8 ? "direct" : "doubling", "%u ranks", (unsigned)size);
        cr_assert_str_eq(choice(size, 256 << 20, NULL), "ring", "%u ranks", (unsigned)size);
    }
    cr_assert_str_eq(choice(2, 8, NULL), "exchange");
    cr_assert_str_eq(choice(2, 64 << 10, NULL), "exchange");
    cr_assert_str_eq(choice(2, 256 << 20, NULL), "ring");
    cr_assert_not_null(choice(1, 0, NULL));
    cr_assert_not_null(choice(1, 1 << 20, NULL));
    cr_assert_not_null(choice(17, 0, NULL));
}

/* As a communicator asks, for a call of so many bytes in all. */
static const struct ri_algorithm *choice_of(ring_coll_t coll, uint32_t size, size_t bytes, bool ordered)
{
    const bool blocks = coll >= RING_REDUCE_SCATTER && coll <= RING_SCATTER;
    const struct ri_call call = {
        .coll = coll, .dtype = RING_FLOAT, .count = bytes / 4 / (blocks ? size : 1), .root = size - 1};
    struct ri_coll_args a = ri_coll_args_for(&call, 0, size, NULL, 256 << 10);
    a.ordered = ordered;
    return ri_algorithm_choose(coll, &a, &net, NULL);
}

Test(select, there_is_one_for_every_call_also_in_rank_order)
{
    for (unsigned coll = 0; coll <= RING_RECV; coll++)
        for (uint32_t size = 2; size <= 40; size++)
            for (size_t bytes = 0; bytes <= 64 << 20; bytes = bytes * 16 + 4)
                for (int ordered = 0; ordered < 2; ordered++) {
                    const struct ri_algorithm *a = choice_of((ring_coll_t)coll, size, bytes, ordered);
                    cr_assert(a, "%s, %u ranks, %zu bytes", ring_coll_str((ring_coll_t)coll), (unsigned)size, bytes);
                    cr_assert(!ordered || a->ordered ||
                              (coll != RING_ALL_REDUCE && coll != RING_REDUCE && coll != RING_REDUCE_SCATTER));
                }
}

Test(select, few_steps_for_small_calls_and_few_bytes_for_large_ones)
{
    cr_assert_str_eq(choice_of(RING_ALL_GATHER, 512, 4096, false)->name, "bruck");
    cr_assert_str_eq(choice_of(RING_ALL_GATHER, 4, 1024, false)->name, "direct");
    cr_assert_str_eq(choice_of(RING_ALL_GATHER, 32, 1 << 30, false)->name, "ring");
    cr_assert_str_eq(choice_of(RING_ALL_TO_ALL, 512, 4096, false)->name, "bruck");
    cr_assert_str_eq(choice_of(RING_ALL_TO_ALL, 32, 64 << 20, false)->name, "pairwise");
    cr_assert_str_eq(choice_of(RING_BROADCAST, 4, 8, false)->name, "direct");
    cr_assert_str_eq(choice_of(RING_BROADCAST, 32, 1 << 20, false)->name, "tree");
    cr_assert_str_eq(choice_of(RING_GATHER, 4, 64 << 20, false)->name, "direct");
    cr_assert_str_eq(choice_of(RING_REDUCE, 32, 64 << 20, false)->name, "tree");
}

Test(args, bytes_are_those_of_all_blocks_unless_only_some_ranks_know_them)
{
    const size_t counts[] = {5, 0, 7}, displs[] = {0, 5, 5};
    struct ri_coll_args a = {.size = 3, .count = 10, .esize = 4};
    cr_assert_eq(ri_coll_bytes(RING_ALL_REDUCE, &a), 40);
    cr_assert_eq(ri_coll_bytes(RING_ALL_GATHER, &a), 120);
    cr_assert_eq(ri_coll_bytes(RING_SCATTER, &a), 120);
    cr_assert_eq(ri_coll_bytes(RING_BARRIER, &a), 0);
    cr_assert_eq(ri_longest(&a, NULL), 10);
    cr_assert_eq(ri_longest(&a, counts), 7);
    a.variable = true;
    a.scounts = a.rcounts = counts;
    a.sdispls = a.rdispls = displs;
    cr_assert_eq(ri_coll_bytes(RING_ALL_GATHER, &a), 48);
    cr_assert_eq(ri_coll_bytes(RING_REDUCE_SCATTER, &a), 48);
    cr_assert_eq(ri_coll_bytes(RING_GATHER, &a), 0);
    cr_assert_eq(ri_coll_bytes(RING_ALL_TO_ALL, &a), 0);
    a.count = SIZE_MAX / 2;
    a.variable = false;
    cr_assert_eq(ri_coll_bytes(RING_GATHER, &a), UINT64_MAX);
}

/* The root of a gather has an array of counts, the others only their own: all must cut alike. */
Test(args, segments_do_not_depend_on_what_only_some_ranks_know)
{
    const size_t counts[] = {5, 100000, 7}, displs[] = {0, 5, 100005};
    for (unsigned coll = RING_ALL_TO_ALL; coll <= RING_SCATTER; coll++) {
        struct ri_call call = {.coll = (ring_coll_t)coll, .dtype = RING_DOUBLE, .count = 5, .variable = true};
        const size_t seg = ri_coll_args_for(&call, 0, 3, NULL, 100001).seg;
        call.count = 100000;
        call.scounts = call.rcounts = counts;
        call.sdispls = call.rdispls = displs;
        cr_assert_eq(ri_coll_args_for(&call, 1, 3, NULL, 100001).seg, seg);
        cr_assert_eq(seg, 100000);
    }
}

Test(select, a_forced_one_wins_when_it_fits)
{
    cr_assert_str_eq(choice(2, 8, "ring"), "ring");
    cr_assert_str_eq(choice(2, 256 << 20, "exchange"), "exchange");
    cr_assert_str_eq(choice(5, 256 << 20, "doubling"), "doubling");
    cr_assert_str_eq(choice(5, 256 << 20, "exchange"), "ring");
    cr_assert_str_eq(choice(5, 256 << 20, "nonsense"), "ring");
}

/* 64 ranks: the more bytes, the fewer of them are sent twice. */
Test(select, halving_and_doubling_in_between_and_trees_where_folding_is_dear)
{
    cr_assert_str_eq(choice(64, 1 << 10, NULL), "doubling");
    cr_assert_str_eq(choice(64, 1 << 20, NULL), "rabenseifner");
    cr_assert_str_eq(choice(64, 256 << 20, NULL), "ring");
    cr_assert_str_eq(choice(63, 4 << 20, NULL), "tree");
    cr_assert_str_eq(choice(63, 256 << 20, NULL), "ring");
    cr_assert_str_neq(choice(2, 1 << 20, "rabenseifner"), "rabenseifner", "with two ranks it would be the ring");
}

/* Two hosts of two ranks, 200 Mbit/s between them. */
Test(select, hosts_of_several_ranks_work_inside_first)
{
    static const uint32_t node_of[] = {0, 1, 0, 1}, order[] = {0, 2, 1, 3}, first[] = {0, 2, 4};
    static const struct ri_layout hosts = {.nodes = 2, .node_of = node_of, .order = order, .first = first};
    static const struct ri_cost_model slow = {
        .latency = 40000, .byte = 40, .near_latency = 1000, .near_byte = 0.2, .reduce_byte = 0.1, .message = 500};
    struct ri_coll_args a = {.size = 4, .count = 4 << 20, .esize = 4, .seg = 256 << 10, .layout = &hosts};
    const struct ri_algorithm *hier = ri_algorithm_named(RING_ALL_REDUCE, "hier");
    cr_assert_eq(ri_algorithm_choose(RING_ALL_REDUCE, &a, &slow, NULL), hier);
    cr_assert_gt(ri_algorithm_named(RING_ALL_REDUCE, "ring")->cost(&a, &slow), 1.4 * hier->cost(&a, &slow));
    a.layout = NULL;
    cr_assert_not(hier->fits(&a), "it has to know who shares a host");
}

Test(select, ordered_ones_only_when_asked_for)
{
    struct ri_coll_args a = {.size = 2, .count = 64 << 20, .esize = 4, .seg = 256 << 10, .ordered = true};
    const struct ri_algorithm *free_choice = choose_for(&a, NULL), *forced = choose_for(&a, "ring");
    cr_assert(free_choice && free_choice->ordered);
    cr_assert(forced && forced->ordered);
    a.ordered = false;
    cr_assert_str_eq(choose_for(&a, NULL)->name, "ring");
    a = (struct ri_coll_args){.size = 12, .count = 1, .esize = 4, .seg = 4, .ordered = true};
    cr_assert_str_eq(choose_for(&a, "doubling")->name, "direct");
    a.count = 64 << 20;
    a.seg = 256 << 10;
    cr_assert_str_eq(choose_for(&a, "ring")->name, "two_shot");
}

Test(select, names_are_found_and_unique)
{
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++) {
        cr_assert_eq(ri_algorithm_named((*a)->coll, (*a)->name), *a);
        cr_assert(strlen((*a)->help));
    }
    cr_assert_null(ri_algorithm_named(RING_ALL_REDUCE, ""));
    cr_assert_null(ri_algorithm_named((ring_coll_t)99, "ring"));
}

Test(segment, is_whole_elements_within_the_limit_and_bounds_the_steps)
{
    static const size_t sizes[] = {
        0, 1, 7, 100, 4096, 65536, 1 << 20, (1 << 20) + 1, 64 << 20, (size_t)1 << 34, SIZE_MAX / 2};
    static const size_t limits[] = {1024, 4097, 256 << 10, 1 << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
            for (uint32_t esize = 1; esize <= 8; esize *= 2)
                for (uint32_t parts = 1; parts <= 4096; parts = parts * 2 + 1) {
                    const size_t seg = ri_segment_for(sizes[i], parts, esize, limits[l]);
                    const size_t part = sizes[i] / parts + 1, segments = part / seg + 1;
                    cr_assert_eq(seg % esize, 0);
                    cr_assert_geq(seg, esize);
                    cr_assert(segments * parts <= 2500 + 2 * parts, "%zu bytes, %u parts, segments of %zu", sizes[i],
                              (unsigned)parts, seg);
                    if (part / limits[l] < 2000 / parts)
                        cr_assert_leq(seg, limits[l]);
                }
}

Test(segment, large_parts_overlap_and_small_ones_travel_whole)
{
    cr_assert_eq(ri_segment_for(1 << 20, 4, 4, 256 << 10), 64 << 10);
    cr_assert_eq(ri_segment_for(64 << 20, 4, 4, 256 << 10), 256 << 10);
    cr_assert_geq(ri_segment_for(32 << 10, 1, 4, 256 << 10), 32 << 10);
    cr_assert_geq(ri_segment_for(8, 4, 4, 256 << 10), 4);
}

Test(cut, parts_are_even_adjoining_and_complete)
{
    static const size_t totals[] = {0, 1, 6, 7, 1000, SIZE_MAX};
    for (size_t t = 0; t < sizeof totals / sizeof *totals; t++)
        for (size_t parts = 1; parts <= 19; parts++) {
            size_t at = 0;
            for (size_t i = 0; i < parts; i++) {
                const struct ri_cut c = ri_cut_of(totals[t], parts, i);
                cr_assert_eq(c.begin, at);
                cr_assert(c.count == totals[t] / parts || c.count == totals[t] / parts + 1);
                at += c.count;
            }
            cr_assert_eq(at, totals[t]);
        }
}

/* ---- rules ----------------------------------------------------------------------------------------------------- */

static const char *rule(const char *text, ring_coll_t coll, uint64_t bytes)
{
    struct ri_rules rules;
    cr_assert_eq(ri_rules_parse(text, &rules), RING_OK, "%s: %s", text, ri_error_get());
    const char *name = ri_rules_find(&rules, coll, bytes);
    return name ? name : "-";
}

Test(rules, a_name_is_for_every_collective_that_has_it)
{
    cr_assert_str_eq(rule("ring", RING_ALL_REDUCE, 0), "ring");
    cr_assert_str_eq(rule("exchange", RING_ALL_REDUCE, 1 << 30), "exchange");
    cr_assert_str_eq(rule("exchange", RING_BROADCAST, 8), "-");
    cr_assert_str_eq(rule("exchange;ring", RING_ALL_REDUCE, 8), "exchange");
    cr_assert_str_eq(rule("node", RING_GATHER, 8), "node");
    cr_assert_str_eq(rule("auto", RING_ALL_REDUCE, 8), "-");
}

Test(rules, one_for_a_collective_comes_before_one_for_all)
{
    cr_assert_str_eq(rule("ring;all_reduce@doubling", RING_ALL_REDUCE, 8), "doubling");
    cr_assert_str_eq(rule("all_reduce@doubling;ring", RING_ALL_REDUCE, 8), "doubling");
    cr_assert_str_eq(rule("all_reduce@auto;ring", RING_ALL_REDUCE, 8), "-");
    cr_assert_str_eq(rule("node;broadcast@auto", RING_BROADCAST, 8), "-");
    cr_assert_str_eq(rule("node;broadcast@auto", RING_REDUCE, 8), "node");
}

Test(rules, ranges_hold_their_begin_and_not_their_end)
{
    static const char text[] = "all_reduce:0-64K@doubling,64K-1M@node,2M-inf@ring";
    cr_assert_str_eq(rule(text, RING_ALL_REDUCE, 0), "doubling");
    cr_assert_str_eq(rule(text, RING_ALL_REDUCE, (64 << 10) - 1), "doubling");
    cr_assert_str_eq(rule(text, RING_ALL_REDUCE, 64 << 10), "node");
    cr_assert_str_eq(rule(text, RING_ALL_REDUCE, 1 << 20), "-");
    cr_assert_str_eq(rule(text, RING_ALL_REDUCE, 2 << 20), "ring");
    cr_assert_str_eq(rule(text, RING_ALL_REDUCE, UINT64_MAX), "ring");
    cr_assert_str_eq(rule(text, RING_ALL_GATHER, 8), "-");
    cr_assert_str_eq(rule("all_reduce:0-8@ring;exchange", RING_ALL_REDUCE, 8), "exchange");
}

Test(rules, what_is_wrong_is_named_with_what_is_accepted)
{
    static const struct {
        const char *text, *part, *accepted;
    } bad[] = {
        {"rnig", "\"rnig\" is no algorithm", "auto, node, ring, exchange, doubling"},
        {"", "\"\" is no algorithm", "auto, node"},
        {"ring;", "\"\" is no algorithm", "auto, node"},
        {"all_reduce@bingo", "\"bingo\" is no algorithm of all_reduce", "auto, node, ring, exchange, doubling"},
        {"all_redcue@ring", "\"all_redcue\" is no collective", "all_reduce, reduce, broadcast"},
        {"all_gatherv@ring", "\"all_gatherv\" is no collective of its own", "what is said of all_gather is for"},
        {"scatterv:0-1K@direct", "\"scatterv\" is no collective of its own", "what is said of scatter is for"},
        {"all_reducev@ring", "\"all_reducev\" is no collective;", "all_reduce, reduce, broadcast"},
        {"ring;all_reduce:64K@ring", "\"64K\" is no range", "FROM-TO"},
        {"all_reduce:64K-1K@ring", "\"64K-1K\" is no range", "FROM less than TO"},
        {"all_reduce:1K-1K@ring", "\"1K-1K\" is no range", "FROM less than TO"},
        {"all_reduce:inf-1K@ring", "\"inf-1K\" is no range", "TO also inf"},
        {"all_reduce:0-1T@ring", "\"0-1T\" is no range", "K, M or G"},
        {"all_reduce:0-1K", "\"0-1K\" is no rule", "FROM-TO@NAME"},
        {"all_reduce:0-1K@ring,", "\"\" is no rule", "FROM-TO@NAME"},
        {"all_reduce@ring:0-1K", "\"all_reduce@ring:0-1K\" is no rule", "COLLECTIVE:FROM-TO@NAME"},
        {"all_reduce:0-2K@ring,1K-4K@ring", "\"1K-4K@ring\"", "do not overlap"},
        {"all_reduce@ring;all_reduce:1K-4K@ring", "\"1K-4K@ring\"", "do not overlap"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ri_rules rules = {.n = 77};
        cr_assert_eq(ri_rules_parse(bad[i].text, &rules), RING_ERR_CONFIG, "%s", bad[i].text);
        cr_assert_eq(rules.n, 77, "touched on failure");
        cr_assert(strstr(ri_error_get(), bad[i].part), "%s: %s", bad[i].text, ri_error_get());
        cr_assert(strstr(ri_error_get(), bad[i].accepted), "%s: %s", bad[i].text, ri_error_get());
    }
}

Test(rules, there_is_room_for_many_but_not_for_any_number)
{
    char text[RI_RULES_MAX * 5 + 8] = "ring";
    struct ri_rules rules;
    for (int i = 1; i < RI_RULES_MAX; i++)
        strcat(text, ";ring");
    cr_assert_eq(ri_rules_parse(text, &rules), RING_OK);
    strcat(text, ";ring");
    cr_assert_eq(ri_rules_parse(text, &rules), RING_ERR_CONFIG);
    cr_assert(strstr(ri_error_get(), "at most 64"));
}

/* ---- trees ----------------------------------------------------------------------------------------------------- */

enum { MOST = 70 };

/* Hosts of three ranks dealt out like cards, so that neither ranks nor order are 0, 1, 2 ... */
static struct ri_layout deal(uint32_t size, uint32_t *node_of, uint32_t *order, uint32_t *first)
{
    const uint32_t nodes = (size + 2) / 3;
    uint32_t n = 0;
    for (uint32_t node = 0; node < nodes; node++) {
        first[node] = n;
        for (uint32_t r = node; r < size; r += nodes) {
            node_of[r] = node;
            order[n++] = r;
        }
    }
    first[nodes] = n;
    return (struct ri_layout){.nodes = nodes, .node_of = node_of, .order = order, .first = first};
}

static void check_tree(struct ri_coll_args a, uint32_t root, unsigned which, bool *inner)
{
    struct ri_tree tree[MOST];
    for (a.rank = 0; a.rank < a.size; a.rank++) {
        tree[a.rank] = ri_tree_of(&a, root, which);
        inner[a.rank] = tree[a.rank].children;
    }
    cr_assert_eq(tree[root].parent, RI_NONE);
    for (uint32_t r = 0; r < a.size; r++) {
        uint32_t hops = 0;
        for (uint32_t at = r; at != root; at = tree[at].parent, hops++) {
            const struct ri_tree *up = &tree[tree[at].parent];
            cr_assert_lt(hops, a.size, "a circle");
            cr_assert_eq((up->children > 0 && up->child[0] == at) + (up->children > 1 && up->child[1] == at), 1);
        }
        cr_assert_leq(hops, ri_tree_depth(a.size), "rank %u of %u", (unsigned)r, (unsigned)a.size);
    }
}

Test(tree, reaches_all_in_logarithmic_depth_and_inner_nodes_of_one_are_leaves_of_the_other)
{
    uint32_t node_of[MOST], order[MOST], first[MOST + 1];
    for (uint32_t size = 1; size <= MOST; size++)
        for (uint32_t root = 0; root < size; root += 1 + size / 5)
            for (int dealt = 0; dealt < 2; dealt++) {
                const struct ri_layout layout = deal(size, node_of, order, first);
                const struct ri_coll_args a = {.size = size, .layout = dealt ? &layout : NULL};
                bool inner[2][MOST];
                for (unsigned which = 0; which < RI_TREES; which++)
                    check_tree(a, root, which, inner[which]);
                for (uint32_t r = 0; r < size; r++)
                    cr_assert(r == root || !inner[0][r] || !inner[1][r], "rank %u of %u is inner twice", (unsigned)r,
                              (unsigned)size);
            }
    cr_assert_eq(ri_tree_depth(2), 1);
    cr_assert_eq(ri_tree_depth(8), 3);
    cr_assert_eq(ri_tree_depth(9), 4);
}

/* The lowest and the highest number below a rank are the ends of one range around it, and the sides are as told. */
static void range_below(struct ri_coll_args a, uint32_t rank, unsigned which, uint32_t *low, uint32_t *high,
                        uint32_t *count)
{
    a.rank = rank;
    const struct ri_tree t = ri_tree_of(&a, 0, which);
    *low = *high = rank;
    *count = 1;
    for (uint32_t i = 0; i < t.children; i++) {
        uint32_t from, to, n;
        range_below(a, t.child[i], which, &from, &to, &n);
        cr_assert_eq(to < rank, t.before[i]);
        cr_assert(t.before[i] ? to == *low - 1 : from == *high + 1);
        *low = from < *low ? from : *low;
        *high = to > *high ? to : *high;
        *count += n;
    }
    cr_assert_eq(*high - *low + 1, *count);
}

Test(tree, below_a_node_is_one_range_around_it)
{
    for (uint32_t size = 2; size <= MOST; size++) {
        uint32_t low, high, count;
        range_below((struct ri_coll_args){.size = size}, 0, 0, &low, &high, &count);
        cr_assert_eq(count, size);
        if (size % 2) { /* shifted trees wrap around */
            range_below((struct ri_coll_args){.size = size}, 0, 1, &low, &high, &count);
            cr_assert_eq(count, size);
        }
    }
}

Test(build, every_allocation_may_fail)
{
    for (const struct ri_algorithm *const *a = ri_algorithms; *a; a++)
        for (uint32_t size = 2; size <= 6; size++)
            for (uint32_t rank = 0; rank < size; rank++) {
                const struct ri_coll_args args = {.rank = rank, .size = size, .count = 500, .esize = 4, .seg = 64};
                struct ri_sched s = {0};
                ring_status_t status = RING_ERR_NOMEM;
                for (uint64_t n = 1; (*a)->fits(&args) && status == RING_ERR_NOMEM; n++) {
                    ri_mem_fail_at(n);
                    status = (*a)->build(&s, &args);
                    ri_mem_fail_at(0);
                    cr_assert(status == RING_OK || status == RING_ERR_NOMEM);
                    ri_sched_free(&s);
                }
            }
}
