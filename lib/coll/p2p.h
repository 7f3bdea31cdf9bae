/* SPDX-License-Identifier: Apache-2.0 */
/* p2p.h - what send and recv have in common: all of one buffer between two ranks, in segments, the peer in root.  What has
 * no elements is a token, so that a message of nothing meets its receive too, or is found to be another one's. */
#ifndef RI_P2P_H
#define RI_P2P_H

#include "lib/coll/coll.h"

static inline bool ri_p2p_fits(const struct ri_coll_args *a) { return a->root != a->rank; } /* lib/comm copies */

static inline double ri_p2p_cost(const struct ri_coll_args *a, const struct ri_cost_model *m)
{
    return ri_cost_of(m, (double)ri_segments(a, a->count), (double)a->count * a->esize);
}

#endif
