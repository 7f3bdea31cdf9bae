/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - the two trees of tree.h.
 *
 * Tree 0 over the numbers 1 .. m is the in-order tree whose leaves are the odd numbers: a node with b zeros at the end
 * of its number stands b levels above them.  Tree 1 is its mirror image when m is even, so that odd and even change
 * places, and the same shifted by one when m is odd (number 1 is then a leaf of both). */
#include "lib/coll/tree.h"

uint32_t ri_position_of(const struct ri_coll_args *a, uint32_t rank)
{
    uint32_t position = 0;
    if (!a->layout)
        return rank;
    while (a->layout->order[position] != rank)
        position++;
    return position;
}

uint32_t ri_rank_at(const struct ri_coll_args *a, uint32_t position)
{
    return a->layout ? a->layout->order[position] : position;
}

uint32_t ri_tree_depth(uint32_t size) { return size > 1 ? 32 - (uint32_t)__builtin_clz(size - 1) : 0; }

/* Tree 0 of 1 .. m; 0 is nobody. */
static uint32_t above(uint32_t v, uint32_t m)
{
    const uint32_t bit = v & -v, up = (v ^ bit) | bit << 1;
    return up <= m ? up : v ^ bit;
}

static uint32_t below(uint32_t v, uint32_t m, bool right)
{
    uint32_t step = (v & -v) / 2;
    while (right && step && v + step > m)
        step /= 2;
    return !step ? 0 : right ? v + step : v - step;
}

/* Between a number and its place in tree 0. */
static uint32_t place_of(uint32_t number, uint32_t m, unsigned which)
{
    if (!which)
        return number;
    if (m % 2 == 0)
        return m + 1 - number;
    return number == 1 ? m : number - 1;
}

static uint32_t number_at(uint32_t place, uint32_t m, unsigned which)
{
    if (!which)
        return place;
    if (m % 2 == 0)
        return m + 1 - place;
    return place == m ? 1 : place + 1;
}

static void add_child(struct ri_tree *t, uint32_t rank, bool before)
{
    t->child[t->children] = rank;
    t->before[t->children++] = before;
}

struct ri_tree ri_tree_of(const struct ri_coll_args *a, uint32_t root, unsigned which)
{
    const uint32_t n = a->size, m = n - 1, top = ri_position_of(a, root);
    const uint32_t number = (ri_position_of(a, a->rank) + n - top) % n;
    struct ri_tree t = {.parent = RI_NONE};
    if (!m)
        return t;
    if (!number) {
        const uint32_t highest = UINT32_C(1) << (ri_tree_depth(n) - 1);
        add_child(&t, ri_rank_at(a, (number_at(highest, m, which) + top) % n), false);
        return t;
    }
    const uint32_t place = place_of(number, m, which), up = above(place, m);
    t.parent = up ? ri_rank_at(a, (number_at(up, m, which) + top) % n) : root;
    uint32_t low = below(place, m, false), high = below(place, m, true);
    low = low ? number_at(low, m, which) : 0;
    high = high ? number_at(high, m, which) : 0;
    if (low && high && low > high) { /* mirrored */
        const uint32_t swap = low;
        low = high;
        high = swap;
    }
    if (low)
        add_child(&t, ri_rank_at(a, (low + top) % n), low < number);
    if (high)
        add_child(&t, ri_rank_at(a, (high + top) % n), high < number);
    return t;
}

struct ri_tree ri_chain_of(const struct ri_coll_args *a, uint32_t root)
{
    const uint32_t n = a->size, top = ri_position_of(a, root), place = ri_position_of(a, a->rank);
    struct ri_tree t = {.parent = place == top ? RI_NONE : ri_rank_at(a, (place + n - 1) % n)};
    if ((place + 1) % n != top)
        add_child(&t, ri_rank_at(a, (place + 1) % n), false);
    return t;
}

void ri_pass_down(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_tree *t, size_t n, size_t i)
{
    const bool top = t->parent == RI_NONE;
    const struct ri_span x = ri_segment(a, top ? RI_SRC : RI_DST, (struct ri_cut){0, a->count}, n, i);
    const ri_step_id here = top ? RI_NONE : ri_recv(s, t->parent, x, RI_NONE);
    for (uint32_t c = 0; c < t->children; c++)
        ri_send(s, t->child[c], x, here);
}
