/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h - what collectives have in common, and which block of whom goes where. */
#ifndef RI_NODE_FLOW_H
#define RI_NODE_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

struct ri_node;

#define ONE(coll) (1u << RING_##coll)
static inline bool ri_node_combines(ring_coll_t coll) /* the taker reduces what it gets */
{
    return (ONE(ALL_REDUCE) | ONE(REDUCE) | ONE(REDUCE_SCATTER)) >> coll & 1;
}
static inline bool ri_node_personal(ring_coll_t coll) /* every taker gets something else */
{
    return (ONE(SCATTER) | ONE(ALL_TO_ALL) | ONE(REDUCE_SCATTER)) >> coll & 1;
}
static inline bool ri_node_from_root(ring_coll_t coll) { return (ONE(BROADCAST) | ONE(SCATTER)) >> coll & 1; }
static inline bool ri_node_to_root(ring_coll_t coll) { return (ONE(REDUCE) | ONE(GATHER)) >> coll & 1; }
static inline bool ri_node_rooted(ring_coll_t coll) { return ri_node_from_root(coll) || ri_node_to_root(coll); }
static inline bool ri_node_whole(ring_coll_t coll) /* no blocks: src and dst are of one length */
{
    return (ONE(ALL_REDUCE) | ONE(REDUCE) | ONE(BROADCAST)) >> coll & 1;
}
#undef ONE

/* Who gives what to whom: a block of the giver's src, and where it goes in the taker's dst; in bytes. */
struct flow {
    size_t at, bytes;
};
uint32_t ri_node_taker(const struct ri_node *node); /* of what this rank gives: root or EVERYBODY */
bool ri_node_gives(const struct ri_node *node, uint32_t to);
bool ri_node_takes(const struct ri_node *node, uint32_t from);
struct flow ri_node_flow_to(const struct ri_node *node, uint32_t to);     /* at: in src */
struct flow ri_node_flow_from(const struct ri_node *node, uint32_t from); /* at: in dst */
size_t ri_node_src_bytes(const struct ri_node *node);                     /* all of src that others may take from */
size_t ri_node_most_given(const struct ri_node *node);                    /* bytes of the longest flow to a peer */
size_t ri_node_most_taken(const struct ri_node *node);                    /* and from any rank, itself too       */
uint64_t ri_node_count_to_announce(const struct ri_node *node);
/* Does what a rank announced fit to this call?  If not, how many elements it gives is in *theirs_out. */
bool ri_node_count_fits(const struct ri_node *node, uint32_t from, uint64_t *theirs_out);

#endif
