/* SPDX-License-Identifier: Apache-2.0 */
/* sched.h - a collective as data: a flat program of steps for one rank.
 *
 * A step may start when the (at most two) earlier steps it names are complete; one that needs more waits for steps that
 * join two.  Links are FIFO: the k-th SEND to a peer meets that peer's k-th RECV or RECV_REDUCE from us, and has the
 * same length.  Messages of no bytes are not sent and do not count: such a step is complete as soon as those it waits
 * for are, and a peer with no other steps is none.  Buffers are named slots, bound to addresses only when the program
 * runs, so a program is kept and run again for every call of the same shape.
 *
 * Order of steps matters for speed: a link carries its messages in program order.  Write step by step over the
 * segments, not segment by segment, or nothing overlaps.
 *
 * Builders never check errors: the first failure sticks in status, later calls do nothing, and ri_sched_done() reports
 * it once.  Everything is in bytes; spans of reducing steps are whole elements. */
#ifndef RI_SCHED_H
#define RI_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ring/ring.h>

typedef uint32_t ri_step_id;
#define RI_NONE UINT32_MAX

enum ri_slot { RI_SRC, RI_DST, RI_TMP };
enum ri_opcode {
    RI_SEND,        /* a -> peer                                          */
    RI_RECV,        /* peer -> dst                                        */
    RI_RECV_REDUCE, /* dst = a op what the peer sends (same length as a)  */
    RI_COPY,        /* dst = a                                            */
    RI_REDUCE,      /* dst = a op b                                       */
    RI_COMBINE,     /* dst = operand 0 op operand 1 op ..., rounded once: operand `own` is a, operand k of the
                       others is as long and lies k * stride bytes behind b */
    RI_JOIN         /* nothing: waits for two steps                       */
};
struct ri_span {
    enum ri_slot slot;
    size_t off, len; /* bytes */
};
struct ri_step {
    enum ri_opcode op;
    bool final; /* reducing steps: the result is complete; apply what the operation does last (average: divide) */
    bool swap;  /* RI_RECV_REDUCE: dst = what the peer sends op a */
    uint32_t peer;
    struct ri_span dst, a, b;
    ri_step_id after[2];
    uint32_t n, own; /* RI_COMBINE */
    size_t stride;
};

static inline bool ri_communicates(const struct ri_step *p) { return p->op <= RI_RECV_REDUCE; }

/* What it moves or makes, in bytes. */
static inline size_t ri_step_bytes(const struct ri_step *p) { return p->op == RI_SEND ? p->a.len : p->dst.len; }

struct ri_sched {
    ring_status_t status;
    uint32_t n, cap;
    struct ri_step *step;
    size_t tmp_len;
    uint32_t ranks; /* what an average is divided by; the builder of a reducing program sets it */
    /* Filled in by ri_sched_done(): who waits for whom, so that the engine needs no search. */
    uint32_t *first_next; /* n + 1: the successors of step i are next[first_next[i]] .. next[first_next[i+1]-1] */
    uint32_t *next;
    uint32_t *peers; /* distinct peers that bytes go to or come from, ascending */
    uint32_t npeers;
    void *scratch[8]; /* builders' */
    int nscratch;
};

ri_step_id ri_send(struct ri_sched *s, uint32_t peer, struct ri_span a, ri_step_id after);
ri_step_id ri_recv(struct ri_sched *s, uint32_t peer, struct ri_span dst, ri_step_id after);
ri_step_id ri_recv_reduce(struct ri_sched *s, uint32_t peer, struct ri_span dst, struct ri_span a, ri_step_id after);
ri_step_id ri_copy(struct ri_sched *s, struct ri_span dst, struct ri_span a, ri_step_id after);
ri_step_id ri_reduce(struct ri_sched *s, struct ri_span dst, struct ri_span a, struct ri_span b, ri_step_id after);
/* dst = the n operands in order, of which number `own` is a and the others lie in b's slot, k * stride behind b: as
 * many bytes each, so that one place there stays unused.  Of two, stride may be 0. */
ri_step_id ri_combine(struct ri_sched *s, struct ri_span dst, struct ri_span a, struct ri_span b, uint32_t n,
                      uint32_t own, size_t stride, ri_step_id after);
/* Complete when both are; the other one itself when one is RI_NONE. */
ri_step_id ri_join(struct ri_sched *s, ri_step_id one, ri_step_id other);
ri_step_id ri_also(struct ri_sched *s, ri_step_id step, ri_step_id after); /* names the second one; returns step */
ri_step_id ri_final(struct ri_sched *s, ri_step_id step);                  /* marks it final; returns step       */
ri_step_id ri_swap(struct ri_sched *s, ri_step_id step); /* marks it swap: the peer's operand comes first           */
struct ri_span ri_tmp(struct ri_sched *s, size_t len);   /* 64-byte aligned scratch            */
ri_step_id *ri_ids(struct ri_sched *s, size_t n); /* n scratch ids, all RI_NONE, freed by done; NULL after an error */

ring_status_t ri_sched_done(struct ri_sched *s);
void ri_sched_free(struct ri_sched *s); /* leaves it zeroed; accepts any state */

/* The program as text, one step a line; for ring_info and golden tests. */
void ri_sched_print(const struct ri_sched *s, FILE *out);

/* Two steps that touch the same bytes, one of them writing, that nothing orders: how many such pairs.  src_at: in
 * place, SRC begins this many bytes behind the begin of DST, or before it; RI_APART: they are two buffers.  A step that
 * writes over a shifted part of what it reads counts as a pair with itself.  The
 * first pair is described in why (may be NULL).  Costs n * n / 8 bytes of memory; SIZE_MAX when they are not there. */
#define RI_APART INT64_MIN
size_t ri_sched_hazards(const struct ri_sched *s, int64_t src_at, char *why, size_t cap);

#endif
