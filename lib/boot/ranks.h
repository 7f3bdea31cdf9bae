/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - a set of ranks as people write it. */
#ifndef RI_RANKS_H
#define RI_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "rank 2", "ranks 2, 5-7"; what does not fit into cap is counted: "ranks 2, 5-7 and 90 more".  in[r]: r belongs to it.
 */
void ri_ranks_print(const bool *in, uint32_t size, char *text, size_t cap);

#endif
