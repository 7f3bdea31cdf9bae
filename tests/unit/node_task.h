/* SPDX-License-Identifier: Apache-2.0 */
/* node_task.h - what the ranks of a node are asked to do in tests: a random call, its buffers in any kind of memory,
 * and what they must hold in the end.
 *
 * The oracle is the plain kernel of lib/reduce (which has an oracle of its own), rank after rank. */
#ifndef NODE_TASK_H
#define NODE_TASK_H

#include <stdio.h>
#include <stdlib.h>

#include "lib/node/inner.h"
#include "tests/unit/slower.h"

enum { RANKS = 17, GUARD = 64 };

#define CHECK(cond, ...)                                               \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__);                              \
            fputc('\n', stderr);                                       \
            abort();                                                   \
        }                                                              \
    } while (0)

struct task { /* one collective, the same on all ranks */
    uint64_t seed;
    ring_coll_t coll;
    ring_dtype_t dtype;
    ring_redop_t redop;
    uint32_t root;
    size_t count;
    bool arrays, in_place;
    unsigned shared;       /* each rank's buffers are in one of the first so many kinds of memory; 0: plain */
    const struct way *way; /* NULL: the node's choice */
    struct ri_pays pays;
};

/* One buffer of one rank: a block for every rank, or only one. */
struct layout {
    size_t count[RANKS], begin[RANKS], total;
};

/* What kind of memory the buffers of a rank are in. */
enum memory { PLAIN, ALLOCATED, REGISTERED, SRC_REGISTERED, DST_REGISTERED, MEMORIES };

struct buffers { /* of one rank for one task, with guards, at any alignment of the element */
    unsigned char *memory, *src, *dst, *wanted; /* wanted: what memory must be in the end */
    size_t total;
    enum memory kind;
    void *registered; /* NULL: nothing */
    struct layout from, to;
};

/* Randomness: everything follows from one printed seed. */
uint64_t mix(uint64_t x);
uint64_t first_seed(void);
uint64_t next(uint64_t *state);
void buffers_free(struct buffers *b);
/* What a rank needs for a task; check: dst is right, and nothing else was written. */
void buffers_make(struct buffers *b, const struct task *t, uint32_t rank, uint32_t size);
void buffers_check(const struct buffers *b, const struct task *t, uint32_t rank, uint32_t size);
struct ri_call call_for(const struct task *t, const struct buffers *b, uint32_t rank);
/* The next random task for so many ranks, of at most so many bytes. */
struct task pick_task(uint64_t *state, uint32_t size, size_t most);
/* Is this buffer used on this rank? */
bool holds(const struct task *t, uint32_t rank, bool src);

#endif
