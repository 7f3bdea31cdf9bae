/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - two binary trees over the same ranks, for algorithms that pipeline segments through both in turns.
 *
 * In one tree alone the leaves, half of the ranks, only receive, and their way out is idle.  So there are two, and who
 * is an inner node of one is a leaf of the other: whoever carries every other segment through each tree has both
 * directions of every link busy (Sanders, Speck and Traeff, Parallel Computing 35(12), 2009).
 *
 * The root stands above both trees.  The others are numbered 1 .. n - 1 along layout->order, starting behind the root,
 * and each tree holds them in order: what lies below a node is one range around it (but for one leaf of the second tree
 * when n is even), so that the ranks of a host stay together.  Depth: ceil(log2 n) hops.  No memory; each look costs
 * O(n) for the rank's place in the layout. */
#ifndef RI_TREE_H
#define RI_TREE_H

#include "lib/coll/coll.h"

struct ri_tree {
    uint32_t parent;             /* a rank; RI_NONE for the root                                            */
    uint32_t children, child[2]; /* ranks; of two, the one with the lower numbers comes first               */
    bool before[2];              /* what lies below child i comes before this rank's own in a reduction     */
};

enum { RI_TREES = 2 };

/* The neighbours of a->rank in tree `which`, 0 or 1, with `root` at the top.  Every rank but the root is in both. */
struct ri_tree ri_tree_of(const struct ri_coll_args *a, uint32_t root, unsigned which);

/* The same for the chain that begins at the root and follows layout->order: every rank has one child but the last. */
struct ri_tree ri_chain_of(const struct ri_coll_args *a, uint32_t root);

/* A broadcast's segment i of n on its way down: from the parent into DST, or from SRC at the root, to the children. */
void ri_pass_down(struct ri_sched *s, const struct ri_coll_args *a, const struct ri_tree *t, size_t n, size_t i);

/* Hops from the root to the farthest leaf of `size` ranks. */
uint32_t ri_tree_depth(uint32_t size);

/* Where a rank stands in layout->order, and who stands there; both the rank itself when there is no layout. */
uint32_t ri_position_of(const struct ri_coll_args *a, uint32_t rank);
uint32_t ri_rank_at(const struct ri_coll_args *a, uint32_t position);

#endif
