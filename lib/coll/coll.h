/* SPDX-License-Identifier: Apache-2.0 */
/* coll.h - algorithms as rows of a table, and the choice among them.
 *
 * An algorithm is a builder of programs (lib/sched/sched.h) plus its cost in the latency-bandwidth model, one file each,
 * ending in one const row; the build generates the table from the list of files. */
#ifndef RI_COLL_H
#define RI_COLL_H

#include "lib/sched/sched.h"

struct ri_coll_args {
    uint32_t rank, size;
    size_t count;   /* elements                                    */
    uint32_t esize; /* bytes of an element                         */
    size_t seg;     /* bytes: longest message, a multiple of esize */
};

/* Seconds are too long here: nanoseconds, and nanoseconds per byte. */
struct ri_cost_model {
    double latency;     /* one empty message over the slowest link      */
    double byte;        /* one more byte of a message on it             */
    double reduce_byte; /* reducing one byte                            */
    double message;     /* processor time to start one more message     */
};

struct ri_algorithm {
    const char *name, *help;
    ring_coll_t coll;
    bool (*fits)(const struct ri_coll_args *a);
    double (*cost)(const struct ri_coll_args *a, const struct ri_cost_model *m); /* nanoseconds */
    ring_status_t (*build)(struct ri_sched *s, const struct ri_coll_args *a);
};
extern const struct ri_algorithm *const ri_algorithms[]; /* generated; NULL-terminated */

const struct ri_algorithm *ri_algorithm_named(ring_coll_t coll, const char *name); /* NULL: there is none */

/* The cheapest that fits; `forced` (a name, or NULL) wins when it fits, otherwise the choice is free.  Never NULL for a
 * collective that has an algorithm for every shape. */
const struct ri_algorithm *ri_algorithm_choose(ring_coll_t coll, const struct ri_coll_args *a,
                                               const struct ri_cost_model *m, const char *forced);

/* The segment to use for a message of `bytes` cut among `parts` ranks: at most `limit`, a multiple of esize, and so many
 * that a program stays below some ten thousand steps. */
size_t ri_segment_for(size_t bytes, uint32_t parts, uint32_t esize, size_t limit);

#endif
