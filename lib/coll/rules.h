/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h - RING_ALGO: which algorithm the user wants for which collective and size.
 *
 *     auto                                               choose freely, as where no rule says anything
 *     ring                                               for every collective that has an algorithm of this name
 *     broadcast@tree;ring                                for one collective; a rule for all gives way to it
 *     all_reduce:0-64K@doubling,64K-inf@ring             by the bytes of the call's buffer, from <= bytes < to
 *
 * "node" names direct shared memory, which every collective has; "auto" behind an @ takes a collective out of a rule
 * for all.  A form with counts follows its collective: all_gather is for all_gatherv too.  The bytes are those that
 * ring_perf shows: of the whole buffer, for collectives of blocks of all blocks. */
#ifndef RI_RULES_H
#define RI_RULES_H

#include "lib/coll/coll.h"

enum { RI_RULES_MAX = 64 };

struct ri_rule {
    bool any; /* for every collective that has it; coll says nothing */
    ring_coll_t coll;
    uint64_t from, to; /* to UINT64_MAX: no end */
    const char *name;  /* of an algorithm, or "node" or "auto"; lives as long as the program */
};
struct ri_rules {
    uint32_t n;
    struct ri_rule rule[RI_RULES_MAX];
};

/* The value of RING_ALGO as rules; RING_ERR_CONFIG names the part that is wrong and what would be accepted. */
ring_status_t ri_rules_parse(const char *text, struct ri_rules *rules_out);

/* What is wanted for a call: an algorithm that the collective has, or "node"; NULL: choose freely. */
const char *ri_rules_find(const struct ri_rules *rules, ring_coll_t coll, uint64_t bytes);

#endif
