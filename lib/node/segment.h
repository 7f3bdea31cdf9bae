/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - what the ranks of a node share: the layout of the segment.
 *
 * The segment.  Every rank has a control block and a data area; only the owner writes them, except `sleepers`.
 *   line[seq % LINES]  announces an operation: sequence number, signature, and the payload, or where it is.  Before a
 *                  rank writes operation k there, it must have seen everybody at k-LINES+1: they are through with
 *                  k-LINES (signal.c).  So a rank from which others only take may run ahead.
 *   put, took, out count, over all operations of this rank: pieces copied into its input slots, rounds of pieces it has
 *                  taken from others, pieces of results in its output slots.  Each line gives what they were before the
 *                  operation, so nobody need know what a rank does with third parties.
 *   done           the last operation, of those that do not fit in lines, from whose peers this rank takes no more.
 *   data area      input slots and output slots, used by turns in each operation and from one to the next.
 *
 * Sizes and offsets come from this rank's own call; from a peer come only signatures, which are compared, counters,
 * which are waited for, and places, which are checked against what is mapped, or which only process_vm_readv follows.
 * (Ranks that are threads trust their process.) */
#ifndef RI_NODE_SEGMENT_H
#define RI_NODE_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    LINE_PAYLOAD = 48,
    LINES = 256,
    SLOTS = 2,         /* input slots, and as many output slots; a power of two */
    SLOT = 256 << 10,  /* bytes of an input slot */
    BLOCK = 16 << 10,  /* bytes of a share that stay in the first-level cache */
    PIECE = 256 << 10, /* bytes of a share read from a peer at a time: stays in the second-level cache */
    PROBE_SIZES = 3,
    PROBE_WAYS = 3,
    FEW = 10, /* ranks of a node to which blocks of unequal length may go in a line */
    FEW_BITS = 6,
    UNIT = 64, /* shares and sub-slots begin at multiples: no two ranks write one line of a slot */
    HEAD = 16, /* bytes before the data in a sub-slot: struct head */
};

/* What data is moved for, as far as it matters to how: on root of a broadcast and on the others copying goes on at the
 * same time, while with blocks every rank copies both in and out, or root waits for the giver. */
enum use { USE_BROADCAST, USE_BLOCKS, USE_SUM, USES };

/* Where a rank's buffer lies, for others that read or write it. */
enum { PLACE_NONE, PLACE_ADDRESS, PLACE_HEAP };
struct place {
    uint64_t at;        /* address, or offset in the owner's heap of byte `head` */
    uint64_t tail : 48; /* the bytes before `head` and from `tail` on are in the owner's edge areas */
    uint64_t head : 14;
    uint64_t how : 2;
};

/* In what form a rank gives what others take from it in an operation. */
enum kind {
    KIND_LINE,   /* in the line                                                      */
    KIND_SLOT,   /* in slots; the first piece is there with the announcement         */
    KIND_DIRECT, /* where src is: mapped                                             */
    KIND_REMOTE, /* where src is: read with process_vm_readv                         */
    KIND_MASK = 3,
    KIND_HEADS = 4, /* or-ed: blocks of unequal length, described in the sub-slots' heads, or in the line */
};

struct line {
    _Alignas(128) _Atomic uint32_t seq; /* written last */
    _Atomic uint32_t sig;               /* see signal.c; the kind in the top bits */
    _Atomic uint64_t count;             /* KIND_LINE with KIND_HEADS: the bytes for each rank, see block_in_line() */
    union {
        unsigned char payload[LINE_PAYLOAD];
        struct {
            uint32_t put, took, out; /* the counters before this operation */
            uint32_t unused;
            struct place src, dst; /* of KIND_DIRECT */
        } at;
    };
    union { /* the second cache line, whose readers have time */
        struct {
            uint64_t src, dst; /* addresses, for KIND_REMOTE */
        };
        struct {
            uint32_t put, took, out; /* KIND_LINE with KIND_HEADS: as in `at` */
        } beside;
    };
};
_Static_assert(sizeof(struct line) == 128, "a line and what comes along with it");

_Static_assert(LINE_PAYLOAD < 1 << FEW_BITS && FEW * FEW_BITS <= 64, "lengths of blocks are in a line's count");

/* Where the block of a rank is in a line with blocks of unequal length, one behind the other in the order of ranks;
 * inside of it, whatever the line says. */
struct few {
    uint32_t at, bytes;
};
static inline struct few block_in_line(uint64_t lengths, uint32_t rank)
{
    struct few block = {0, 0};
    for (uint32_t r = 0; r <= rank; r++, lengths >>= FEW_BITS) {
        block.at += block.bytes;
        block.bytes = lengths & ((1 << FEW_BITS) - 1);
    }
    return block.at + block.bytes <= LINE_PAYLOAD ? block : (struct few){0, 0};
}

/* Before the data of a block in a sub-slot: where it begins in src and how long it is, in bytes. */
struct head {
    uint64_t begin, bytes;
};

struct control {
    struct line line[LINES];
    _Alignas(128) _Atomic uint64_t history[LINES]; /* of each line: seq, and a hash of all signatures up to it */
    _Alignas(128) _Atomic uint32_t put, took, out, done;
    _Atomic uint32_t sleepers;            /* ranks that sleep on one of the words of this block, or are about to */
    _Alignas(128) _Atomic uint32_t probe; /* stages of ri_node_probe() that are done */
    uint32_t works;
    uint32_t heaps, fence;
    uint64_t nonce_at, nonce;
    uint64_t took_ns[USES][PROBE_WAYS][PROBE_SIZES];
    _Atomic uint32_t processor; /* on which the rank was seen last, plus one */
};

#endif
