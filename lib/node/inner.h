/* SPDX-License-Identifier: Apache-2.0 */
/* inner.h - what the files of lib/node share: one rank's state, and signalling.
 * The segment is in segment.h, who gives what to whom in flow.h, the straight lines of short calls in quick.h. */
#ifndef RI_NODE_INNER_H
#define RI_NODE_INNER_H

#include <stdatomic.h>
#include <string.h>

#include "lib/node/flow.h"
#include "lib/node/heap.h"
#include "lib/node/node.h"
#include "lib/node/quick.h"
#include "lib/node/segment.h"
#include "lib/node/stream.h"

/* Every way is in these stages first. */
enum { STAGE_ANNOUNCED, STAGE_HEARD };

enum step { STEP_MOVED, STEP_WAIT, STEP_DONE, STEP_FAILED };

struct way;

struct op {
    struct ri_call call;
    const struct ri_reduction *red;
    const struct way *way;
    enum step (*advance)(struct ri_node *node); /* until announced, ri_node_enter() */
    size_t bytes;                               /* of call.count elements           */
    uint32_t seq, sig;
    uint32_t kind;    /* of what this rank gives                                    */
    bool personal;    /* every reader gets something else                           */
    bool hears_all;   /* this rank looks at everybody's line, else at most at root's */
    uint32_t stage;   /* of the way; 0 until announced */
    uint32_t cursor;  /* peers that the current wait is through with, counted from 1 */
    uint32_t least;   /* while entering: how far the peers behind the cursor have come at least */
    size_t unit;      /* bytes of a flow in one piece */
    uint64_t lengths; /* of the blocks in the own line, KIND_HEADS */
    uint64_t pieces;  /* that this rank puts into its slots */
    uint64_t rounds;  /* of pieces that it takes */
    bool stream;      /* what is larger than the caches is stored past them */
    bool counts;      /* the rounds, because a giver may wait for them */
    bool took_more;   /* something that was not in a line: counts in `done` */
    uint64_t i;       /* chunk, piece or round */
    ring_status_t status;
};

/* Where what pays, in bytes of a call, or of a rank's longest block. */
struct ri_pays {
    size_t cma_from, cma_to; /* [from, to): peers read the giver's memory */
    size_t stream_from;      /* slots are stored to past the caches */
};

/* What this rank's last long sums have written, and which stores are faster for what is written again (recent.c). */
enum { RECENT = 8, CONTESTS = 32, RUNS = 16 };
struct contest {
    uint32_t runs;
    uint32_t took[2][RUNS]; /* nanoseconds for 4 KiB, with plain stores and past the caches */
    bool past_wins;
};
struct recent {
    uint64_t touched; /* bytes read and written, in all */
    uint32_t next;    /* of `call`, to be forgotten     */
    struct {
        const void *dst;
        size_t own; /* bytes read and written */
        uint64_t touched;
    } call[RECENT];
    struct contest contest[CONTESTS]; /* by the logarithm of how much has been touched meanwhile */
    struct contest *now;              /* that the sum under way is a part of, or NULL            */
    size_t own;                       /* of this sum                                             */
    bool past;                        /* that it goes past the caches                            */
    uint64_t took;
};

struct ri_node {
    struct ri_node_setup s;
    uint32_t me, size;
    struct control *control;            /* of rank 0; the others follow */
    unsigned char *data;                /* of rank 0 */
    size_t data_stride, out_bytes, sub; /* bytes: of a rank's data, of an output slot, of a sub-slot */
    size_t edges_at;                    /* bytes of a rank's data before its edge areas */
    size_t line_share;                  /* bytes of a line that are for one taker, when each gets something else */
    struct plan plan[PLANS];            /* by collective, of which there are at most so many */
    struct again again;
    struct recent recent;
    struct op op;
    uint32_t seq;                     /* the last operation begun */
    uint32_t seen;                    /* every peer has come to this operation, and agreed with all up to it */
    uint32_t put, took, out;          /* this rank's counters before the operation under way */
    uint32_t slot_used[SLOTS];        /* the operation from which others may still read it; 0: none */
    uint32_t slot_taker[SLOTS];       /* who: a rank or EVERYBODY                                   */
    uint64_t history;                 /* of all signatures announced */
    bool sleepers_fence;              /* who goes to sleep makes the others' memory barrier too (signal.c) */
    _Atomic uint32_t *awaited;        /* what the operation waits for: this word of */
    uint32_t awaited_rank;            /* this rank                                   */
    uint32_t awaited_value;           /* to come to this value                       */
    uint64_t waiting_since, report;   /* 0: not in a long wait */
    size_t one_shot_max, direct_from; /* bytes */
    struct ri_pays pays[USES];
    const struct way *forced;         /* by the probe and by tests */
    uint32_t spins;                   /* pauses that have paid lately, at most patience.spins */
    int outwaited;                    /* how many waits in a row have outlasted them          */
    unsigned char *bounce;            /* two pieces */
    const void **operands;            /* one pointer per rank */
    void **results;                   /* the same             */
    struct place *src, *dst;          /* of every rank in this operation, as announced and checked */
    uint32_t *kind;                   /* the same                                                  */
    const struct ri_heap_view *heaps; /* of every rank; NULL when they cannot all reach each other\'s */
    uint32_t hint[2];                 /* for ri_heap_find(): src, dst */
    uint32_t *order;                  /* the peers as this rank goes through them, from 1; 0 is itself */
    struct ri_reduction red[RI_DTYPES][RI_REDOPS];
};

/* A way of doing a call.  begin announces it, or finds that it must wait before it can; advance does one piece of work
 * or finds that it must wait. */
struct way {
    const char *name;
    enum step (*begin)(struct ri_node *node);
    enum step (*advance)(struct ri_node *node);
};
extern const struct way ri_node_line, ri_node_pull, ri_node_shares, ri_node_two_shot, ri_node_cma, ri_node_direct;

static inline struct control *control_of(const struct ri_node *node, uint32_t rank) { return node->control + rank; }

static inline struct line *line_of(const struct ri_node *node, uint32_t rank)
{
    return &control_of(node, rank)->line[node->op.seq % LINES];
}

/* The same, of the last operation begun, whose state may not be set up. */
static inline struct line *line_at(const struct ri_node *node, uint32_t rank)
{
    return &control_of(node, rank)->line[node->seq % LINES];
}

static inline unsigned char *in_slot(const struct ri_node *node, uint32_t rank, uint32_t turn)
{
    return node->data + rank * node->data_stride + turn % SLOTS * (size_t)SLOT;
}

static inline unsigned char *out_slot(const struct ri_node *node, uint32_t rank, uint32_t turn)
{
    return node->data + rank * node->data_stride + SLOTS * (size_t)SLOT + turn % SLOTS * node->out_bytes;
}

/* Where the share of a rank begins among `count` elements; rank == size gives the end of the last. */
static inline size_t share_begin(const struct ri_node *node, size_t count, uint32_t rank)
{
    const size_t unit = UNIT / node->op.red->esize, units = count / unit + (count % unit != 0);
    const size_t each = units / node->size, more = units % node->size;
    const size_t at = unit * (each * rank + (rank < more ? rank : more));
    return at < count ? at : count;
}

/* As announced by a rank that was heard. */
static inline uint32_t kind_of(const struct ri_node *node, uint32_t rank) { return node->kind[rank] & KIND_MASK; }
static inline bool has_heads(const struct ri_node *node, uint32_t rank) { return node->kind[rank] & KIND_HEADS; }
/* All that an announcement of this kind gives is in the line; no slot is used. */
static inline bool all_in_line(const struct ri_node *node, uint32_t kind)
{
    return kind == KIND_LINE || (kind == (KIND_LINE | KIND_HEADS) && node->size <= FEW);
}

/* Where this rank runs, for the others; returns it plus one, 0 when that is not known. */
uint32_t ri_node_note_processor(struct ri_node *node);

/* Should the sum under way, in which this rank reads and writes `own` bytes, be stored past the caches?  Asked once for
 * each.  If recent.now is set then, the time that its loops take is added to recent.took and told at its end. */
bool ri_node_streams(struct ri_node *node, size_t own);
void ri_node_streamed(struct ri_node *node);

/* Called after a wait that outlasted the pauses. */
void ri_node_spread(struct ri_node *node);

/* Where ranks share processors: may this rank keep its own while it waits, because all it waits for was last seen on
 * others? */
bool ri_node_may_stay(struct ri_node *node);

/* After a change of a word, in an order that misses none of those who sleep on it. */
void ri_node_look_for_sleepers(struct ri_node *node, _Atomic uint32_t *word);

static inline void publish(struct ri_node *node, _Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    if (!node->sleepers_fence) {
        ri_node_look_for_sleepers(node, word);
        return;
    }
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&node->control[node->me].sleepers, memory_order_relaxed))
        ri_word_wake(word);
}

static inline bool not_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) >= 0; }

/* Has the word of a rank come to a value?  If not, this is what the operation waits for. */
static inline bool reached(struct ri_node *node, uint32_t rank, _Atomic uint32_t *word, uint32_t value)
{
    if (not_before(atomic_load_explicit(word, memory_order_acquire), value))
        return true;
    node->awaited = word;
    node->awaited_rank = rank;
    node->awaited_value = value;
    return false;
}

/* To the operation under way? */
static inline bool has_come(const struct ri_node *node, uint32_t rank)
{
    return not_before(atomic_load_explicit(&line_of(node, rank)->seq, memory_order_acquire), node->op.seq);
}

static inline uint32_t peer_at(const struct ri_node *node, uint32_t cursor) { return node->order[cursor]; }

enum counter { COUNTER_PUT, COUNTER_TOOK, COUNTER_OUT, COUNTER_DONE };

static inline _Atomic uint32_t *counter_of(const struct ri_node *node, uint32_t rank, enum counter which)
{
    struct control *c = control_of(node, rank);
    return which == COUNTER_PUT    ? &c->put
           : which == COUNTER_TOOK ? &c->took
           : which == COUNTER_OUT  ? &c->out
                                   : &c->done;
}

static inline void tell(struct ri_node *node, enum counter which, uint32_t value)
{
    publish(node, counter_of(node, node->me, which), value);
}

#define EVERYBODY UINT32_MAX

static inline enum use use_of(ring_coll_t coll)
{
    return ri_node_combines(coll) ? USE_SUM : coll == RING_BROADCAST ? USE_BROADCAST : USE_BLOCKS;
}
static inline const struct ri_pays *pays(const struct ri_node *node) { return &node->pays[use_of(node->op.call.coll)]; }
static inline bool pays_to_read(const struct ri_node *node, size_t bytes)
{
    return bytes >= pays(node)->cma_from && bytes < pays(node)->cma_to;
}
static inline bool pays_to_stream(const struct ri_node *node) { return node->op.bytes >= pays(node)->stream_from; }

/* Is a rank, or everybody, through with operation `seq`?  Goes on where the last look ended. */
bool ri_node_done(struct ri_node *node, uint32_t rank, uint32_t seq);

/* ---- signal.c -------------------------------------------------------------------------------------------------- */

/* Until the operation is announced, its advance: waits until the line may be written, then begins the way. */
enum step ri_node_enter(struct ri_node *node);

/* What ranks compare of a call but for its count, and of what kind the announcement is. */
enum { ROOT_AT = 16, KIND_AT = 29, SIGNATURE = (1u << KIND_AT) - 1 };
uint32_t ri_node_signature(const struct ri_call *call);
uint64_t ri_node_hashed(const struct ri_call *call, uint32_t sig, uint64_t count);

/* Into the history, which goes first: what follows is in one cache line, which leaves as soon as a peer looks at it. */
static inline void note(struct ri_node *node, uint32_t seq, uint64_t hashed)
{
    uint64_t history = (node->history ^ hashed) * UINT64_C(0xbf58476d1ce4e5b9);
    node->history = history ^= history >> 29;
    atomic_store_explicit(&control_of(node, node->me)->history[seq % LINES], (uint64_t)seq << 32 | (uint32_t)history,
                          memory_order_relaxed);
}

static inline void write_line(struct line *line, uint32_t sig, uint64_t count)
{
    atomic_store_explicit(&line->sig, sig, memory_order_relaxed);
    atomic_store_explicit(&line->count, count, memory_order_relaxed);
}

/* Instead of a payload: whoever gives more than goes into a line waits for takers, counting from here. */
static inline void write_counters(const struct ri_node *node, struct line *line)
{
    line->at.put = node->put;
    line->at.took = node->took;
    line->at.out = node->out;
}

/* The same beside a payload of blocks of unequal length: some of them may be short, and others wait for it. */
static inline void write_counters_beside(const struct ri_node *node, struct line *line)
{
    line->beside.put = node->put;
    line->beside.took = node->took;
    line->beside.out = node->out;
}

static inline uint32_t took_before(const struct ri_node *node, const struct line *line)
{
    const uint32_t kind = atomic_load_explicit(&line->sig, memory_order_relaxed) >> KIND_AT;
    return kind == (KIND_LINE | KIND_HEADS) && node->size <= FEW ? line->beside.took : line->at.took;
}

static inline void write_places(const struct ri_node *node, struct line *line, const struct place *src,
                                const struct place *dst)
{
    write_counters(node, line);
    line->at.src = *src;
    line->at.dst = *dst;
}

/* Nobody waits for this line yet, so it stays here once it has come: fetched when it is written, it would hold up a
 * rank that only gives as long as the takers need for it. */
enum { LINES_AHEAD = 2 };
static inline void ask_for_next_line(const struct ri_node *node, uint32_t seq)
{
    ask_for(&control_of(node, node->me)->line[(seq + LINES_AHEAD) % LINES]);
}

/* The block for this rank in a line with blocks of unequal length; NULL: it is not announced so, or not in time. */
static inline const unsigned char *uneven_block(const struct ri_node *node, uint32_t peer, uint32_t sig, size_t bytes,
                                                uint32_t looks)
{
    struct line *line = line_at(node, peer);
    if (!comes(&line->seq, node->seq, looks) || atomic_load_explicit(&line->sig, memory_order_relaxed) != sig)
        return NULL;
    const struct few block = block_in_line(atomic_load_explicit(&line->count, memory_order_relaxed), node->me);
    return block.bytes == bytes ? line->payload + block.at : NULL;
}

/* The last step. */
static inline void show_line(struct ri_node *node, uint32_t seq)
{
    if (!node->s.patience.spins)
        ri_node_note_processor(node);
    publish(node, &control_of(node, node->me)->line[seq % LINES].seq, seq);
    ask_for_next_line(node, seq);
}

/* Announce the operation: op.kind, and the payload of the own line if there is one, are already written. */
void ri_node_announce(struct ri_node *node);

/* The same for ways that do not put the payload into the line: it says where the buffers are. */
void ri_node_announce_places(struct ri_node *node);

/* STEP_MOVED when all ranks that this one takes from have announced the same call, else STEP_WAIT or STEP_FAILED
 * (mismatch).  Moves the operation on to STAGE_HEARD. */
enum step ri_node_hear(struct ri_node *node);

/* ---- pull.c ---------------------------------------------------------------------------------------------------- */

/* Go on with pull after another way has announced the operation, without putting anything into slots. */
void ri_node_pull_join(struct ri_node *node);

/* ---- uneven.c -------------------------------------------------------------------------------------------------- */

/* Do root's blocks for its peers fit into a line, by the arrays of a scatter?  If so they can be put there; what the
 * line is to say of their lengths is returned. */
bool ri_node_uneven_fits(const struct ri_node *node, const struct ri_call *call, size_t esize);
uint64_t ri_node_put_uneven(const struct ri_node *node, unsigned char *payload, const struct ri_call *call,
                            size_t esize);

/* ---- direct.c -------------------------------------------------------------------------------------------------- */

/* Go on where this rank has stored its share and said so. */
void ri_node_direct_join(struct ri_node *node);

/* ---- slots.c --------------------------------------------------------------------------------------------------- */

/* May piece i of this operation, one of the first, go into its slot?  Not while an earlier operation is read there. */
bool ri_node_slot_free(struct ri_node *node, uint64_t i);
void ri_node_slot_taken(struct ri_node *node, uint64_t i);
/* Is everybody through with piece i of this operation? */
bool ri_node_piece_taken(struct ri_node *node, uint64_t i);
/* Where the part of a slot begins that a rank fills for one taker: a head and then data. */
unsigned char *ri_node_sub_slot(const struct ri_node *node, uint32_t from, uint32_t to, uint32_t turn);
const struct head *ri_node_head_of(const struct ri_node *node, uint32_t from); /* in the first piece */

/* ---- reach.c --------------------------------------------------------------------------------------------------- */

/* Can other ranks reach the first `bytes` of this rank's src, or dst?  If so, what they need for that is got ready. */
bool ri_node_share_src(struct ri_node *node, size_t bytes);
bool ri_node_share_dst(struct ri_node *node, size_t bytes);
/* Bytes [from, to) of dst, of `bytes`, that others have stored: those that went to the edge areas. */
void ri_node_take_edges(struct ri_node *node, size_t from, size_t to, size_t bytes);
enum step ri_node_note_places(struct ri_node *node, uint32_t peer);
/* Where byte `offset` of a rank's src or dst is, which has been announced; *bytes is cut to how far it goes on there.
 * NULL, with op.status set, when the rank does not share that. */
unsigned char *ri_node_reach(struct ri_node *node, uint32_t rank, bool dst, size_t offset, size_t *bytes);

/* ---- combine.c ------------------------------------------------------------------------------------------------- */

/* results[k] = operands[0] op operands[1] ..., in the order of the ranks, divided if the operation says so. */
void ri_node_combine(const struct ri_node *node, uint32_t outs, size_t count, bool stream);

/* The same over bytes [begin, end) of piece i.  operand and results tell where byte `at` is, and cut *bytes
 * to how far it goes on there; NULL and 0 end it, with op.status set. */
struct range {
    const void *(*operand)(struct ri_node *node, uint32_t rank, uint64_t i, size_t at, size_t *bytes);
    uint32_t (*results)(struct ri_node *node, uint64_t i, size_t at, size_t *bytes); /* into node->results; how many */
    uint64_t i;
    size_t begin, end;
    bool stream;
};
bool ri_node_combine_range(struct ri_node *node, const struct range *range);

/* Lengths up to a line, without a call: eight bytes at a time, the last eight overlapping those before. */
static inline void copy_few(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes < 8) {
        for (size_t i = 0; i < bytes; i++)
            to[i] = from[i];
        return;
    }
    for (size_t i = 0; i + 8 < bytes; i += 8)
        memcpy(to + i, from + i, 8);
    memcpy(to + bytes - 8, from + bytes - 8, 8);
}

/* cma.c: read a peer's memory; false with op.status set when that failed. */
bool ri_node_read_peer(struct ri_node *node, uint32_t rank, void *to, uint64_t from, size_t bytes);

#endif
