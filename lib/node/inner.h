/* SPDX-License-Identifier: Apache-2.0 */
/* inner.h - what the files of lib/node share: the layout of the segment, one rank's state, and signalling.
 *
 * The segment.  Every rank has a control block and a data area; only the owner writes them, except `sleepers`.
 *   line[seq % 2]  announces an operation: sequence number, signature, and the payload or the addresses of the buffers.
 *                  A rank that announces k has finished k-1, so who has seen all of them knows that nobody reads
 *                  k-1 any more, and may write k+1 there.
 *   in, out, left  count, over all operations: pieces copied into the data area, pieces reduced, operations whose
 *                  buffers this rank has stopped reading.  All ranks count the same, so each knows what to wait for.
 *   data area      two input slots and two output slots, used by turns in each operation and from one to the next.
 *
 * Sizes and offsets come from this rank's own call; from a peer come only signatures, which are compared, counters,
 * which are waited for, and addresses, which only process_vm_readv follows.  (Ranks that are threads trust their
 * process.) */
#ifndef RI_NODE_INNER_H
#define RI_NODE_INNER_H

#include <stdatomic.h>
#include <string.h>

#include "lib/node/node.h"

enum {
    LINE_PAYLOAD = 48,
    LINES = 2,
    CHUNK = 256 << 10, /* bytes of an input slot */
    BLOCK = 16 << 10,  /* bytes reduced from all operands before the next: stays in the first-level cache */
    PIECE = 256 << 10, /* bytes of a share read from a peer at a time: stays in the second-level cache */
    PROBE_SIZES = 2,
    SHARE_UNIT = 64, /* shares begin at multiples: no two ranks write one line of a slot */
};

struct line {
    _Alignas(128) _Atomic uint32_t seq; /* written last */
    uint32_t sig;
    uint64_t count;
    union {
        unsigned char payload[LINE_PAYLOAD];
        struct {
            uint64_t src, dst;
        } at;
    };
};

struct control {
    struct line line[LINES];
    _Alignas(128) _Atomic uint32_t in, out, left;
    _Atomic uint32_t sleepers;            /* ranks that sleep on one of the words of this block, or are about to */
    _Alignas(128) _Atomic uint32_t probe; /* stages of ri_node_probe() that are done */
    uint32_t works;
    uint64_t nonce_at, nonce;
    uint64_t slots_took[PROBE_SIZES], cma_took[PROBE_SIZES]; /* nanoseconds */
    _Atomic uint32_t processor; /* on which the rank last waited past its pauses, plus one */
};

enum step { STEP_MOVED, STEP_WAIT, STEP_DONE, STEP_FAILED };

struct way;

struct op {
    struct ri_call call;
    const struct ri_reduction *red;
    const struct way *way;
    size_t bytes;
    uint32_t seq, sig;
    uint32_t stage;  /* of the way; 0 after begin */
    uint32_t cursor; /* peers that the current wait is through with, counted from 1 */
    uint64_t i;      /* chunk or piece */
    ring_status_t status;
};

struct ri_node {
    struct ri_node_setup s;
    uint32_t me, size;
    struct control *control; /* of rank 0; the others follow */
    unsigned char *data;     /* of rank 0 */
    size_t data_stride, out_bytes;
    struct op op;
    uint32_t seq, in, out, left;    /* counters as all ranks have them after the last operation */
    _Atomic uint32_t *owed;         /* a word that was changed without looking for sleepers since */
    _Atomic uint32_t *awaited;      /* what the operation waits for: this word of */
    uint32_t awaited_rank;          /* this rank                                   */
    uint32_t awaited_value;         /* to come to this value                       */
    uint64_t waiting_since, report; /* 0: not in a long wait */
    size_t one_shot_max, direct_from;
    size_t cma_from, cma_to;  /* bytes, [from, to) */
    const struct way *forced; /* by the probe */
    uint32_t spins;           /* pauses that have paid lately, at most patience.spins */
    int outwaited;            /* how many waits in a row have outlasted them          */
    unsigned char *bounce;    /* two pieces */
    const void **operands;    /* one pointer per rank */
    struct ri_reduction red[RI_DTYPES][RI_REDOPS];
};

/* A way of doing an all-reduce.  begin must announce; advance does one piece of work or finds that it must wait. */
struct way {
    const char *name;
    void (*begin)(struct ri_node *node);
    enum step (*advance)(struct ri_node *node);
};
extern const struct way ri_node_line, ri_node_one_shot, ri_node_two_shot, ri_node_cma, ri_node_direct;

static inline struct control *control_of(const struct ri_node *node, uint32_t rank) { return node->control + rank; }

static inline struct line *line_of(const struct ri_node *node, uint32_t rank)
{
    return &control_of(node, rank)->line[node->op.seq % LINES];
}

static inline unsigned char *in_slot(const struct ri_node *node, uint32_t rank, uint32_t turn)
{
    return node->data + rank * node->data_stride + turn % 2 * (size_t)CHUNK;
}

static inline unsigned char *out_slot(const struct ri_node *node, uint32_t rank, uint32_t turn)
{
    return node->data + rank * node->data_stride + 2 * (size_t)CHUNK + turn % 2 * node->out_bytes;
}

/* Where the share of a rank begins among `count` elements; rank == size gives the end of the last. */
static inline size_t share_begin(const struct ri_node *node, size_t count, uint32_t rank)
{
    const size_t unit = SHARE_UNIT / node->op.red->esize, units = count / unit + (count % unit != 0);
    const size_t each = units / node->size, more = units % node->size;
    const size_t at = unit * (each * rank + (rank < more ? rank : more));
    return at < count ? at : count;
}

/* Called after a wait that outlasted the pauses. */
void ri_node_spread(struct ri_node *node);

void ri_node_look_for_sleepers(struct ri_node *node, _Atomic uint32_t *word);

/* Sleepers are looked for at once, in an order that misses none. */
static inline void publish(struct ri_node *node, _Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    ri_node_look_for_sleepers(node, word);
}

/* Has the word of a rank come to a value?  If not, this is what the operation waits for. */
static inline bool reached(struct ri_node *node, uint32_t rank, _Atomic uint32_t *word, uint32_t value)
{
    if ((int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0)
        return true;
    node->awaited = word;
    node->awaited_rank = rank;
    node->awaited_value = value;
    return false;
}

static inline uint32_t peer_at(const struct ri_node *node, uint32_t cursor)
{
    const uint32_t rank = node->me + cursor;
    return rank < node->size ? rank : rank - node->size;
}

enum counter { COUNTER_IN, COUNTER_OUT, COUNTER_LEFT };

static inline _Atomic uint32_t *counter_of(const struct ri_node *node, uint32_t rank, enum counter which)
{
    struct control *c = control_of(node, rank);
    return which == COUNTER_IN ? &c->in : which == COUNTER_OUT ? &c->out : &c->left;
}

/* Have all peers counted to value?  Goes on where the last look ended. */
bool ri_node_all_reached(struct ri_node *node, enum counter which, uint32_t value);

/* Announce the operation (the payload of the own line is already written). */
void ri_node_announce(struct ri_node *node);

/* The same, for ways that work on the callers' buffers: the payload is where they are. */
void ri_node_announce_buffers(struct ri_node *node);

/* STEP_MOVED when all peers have announced the same call, else STEP_WAIT or STEP_FAILED (mismatch). */
enum step ri_node_all_announced(struct ri_node *node);

/* dst = operands[0] op operands[1] ..., divided if the operation says so, and the same to `shared`, which peers read
 * (may be NULL).  dst may be one of the operands.  Uses the bounce buffer. */
void ri_node_combine(const struct ri_node *node, void *dst, void *shared, size_t count);

/* cma.c: read a peer's memory; false with op.status set when that failed. */
bool ri_node_read_peer(struct ri_node *node, uint32_t rank, void *to, uint64_t from, size_t bytes);

#endif
