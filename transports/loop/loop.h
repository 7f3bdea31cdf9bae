/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - what tests can ask of the loop transport beyond its seed. */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop_knobs {
    bool calm;         /* no delays, nothing cut short: for measurements                              */
    uint32_t capacity; /* bytes under way in one direction, at least 16; 0: seeded, 8 KiB to 64 KiB */
    bool cut;          /* break a link: the one between these ranks, after so many bytes over it, both ways together */
    uint32_t cut_one, cut_other;
    uint64_t cut_after;
};

/* For links connected from now on; NULL: back to the defaults. */
void loop_set_knobs(const struct loop_knobs *knobs);

/* Bytes and messages that were sent from one rank to another since loop_reset_counts(), over all links of the process.
 */
struct loop_counts {
    uint64_t bytes, messages;
};
struct loop_counts loop_counts_of(uint32_t from);
void loop_reset_counts(void);

#endif
