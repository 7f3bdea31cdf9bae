/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - a communicator from inside: who is in it, how they are joined, what is under way, and what ended it.
 *
 * The parts, a file each:
 *     create.c   from a boot to a working communicator, and back to nothing
 *     meet.c     the rounds in which the ranks find each other, their hosts and their shared memory
 *     card.c     what a rank tells the others of itself, and what all must agree on
 *     board.c    what the ranks of one host share: the failure, who has left, who waits where
 *     fail.c     the first failure wins and reaches everybody
 *     control.c  connections among the hosts' first ranks, by which failures and leaving travel
 *     watch.c    seeing the ranks of this host die
 *     layout.c   which ranks share a host, for algorithms
 *     wires.c    transports, links and the engine
 *     model.c    what messages cost here
 *     figures.c  which times cannot be, and what the others say
 *     program.c  the cache of programs
 *     arguments.c  what a caller gave, checked
 *     redop.c    reduction operations that a program made
 *     op.c       operations: start, progress, wait
 *     self.c     what a rank does with itself: jobs of one, sends to oneself
 *     group.c    calls that are noted first and run together
 *     help.c     progress for what a thread has left in flight, while it waits in another communicator
 *     split.c    new communicators from old ones
 *     stall.c    saying who is waited for
 *
 * Threads: the caller's thread does everything to do with data; the background thread (lib/base/loop.h) delivers
 * control messages and deaths.  What both touch is on the board (atomics) or under the loop's lock. */
#ifndef RI_COMM_H
#define RI_COMM_H

#include "lib/base/error.h"
#include "lib/base/loop.h"
#include "lib/base/seg.h"
#include "lib/base/wait.h"
#include "lib/boot/boot.h"
#include "lib/boot/host.h"
#include "lib/boot/port.h"
#include "lib/coll/rules.h"
#include "lib/node/heap.h"
#include "lib/node/node.h"
#include "lib/sched/engine.h"

/* ---- card.c ---------------------------------------------------------------------------------------------------- */

/* A rank as the others know it.  off: "verbs is off: there is no RDMA device", for those that RING_TRANSPORT allows. */
enum { RI_OFF_TEXT = 200 };
struct ri_peer {
    uint32_t rank, node, local_rank;
    int32_t pid;
    uint64_t pid_space;              /* inode of its pid namespace; 0: unknown                   */
    uint64_t process;                /* random, one a process: equal for ranks that are threads  */
    uint32_t transports;             /* bit i: ri_transports[i] can work there                  */
    uint32_t blocked;                /* the same: it should, and cannot                         */
    struct ri_processors processors; /* that it may use */
    uint8_t key[RI_KEY];             /* public half                                             */
    struct ri_host host;
    struct ri_endpoint end;
    char name[112]; /* "rank 3 (host:pid)" for messages */
    char off[RI_OFF_TEXT];
};

size_t ri_card_encode(const struct ri_peer *me, const struct ri_conf *conf, uint8_t *card, size_t cap);
/* Reads rank `rank`'s card; RING_ERR_MISMATCH when it disagrees with ours on version, transports or a setting. */
ring_status_t ri_card_decode(const uint8_t *card, size_t len, uint32_t rank, const struct ri_peer *me,
                             const struct ri_conf *conf, struct ri_peer *peer_out);

/* ---- board.c --------------------------------------------------------------------------------------------------- */

enum { RI_FAILURE_TEXT = 400 };
struct ri_failure {
    int32_t status;
    uint32_t culprit; /* rank, or UINT32_MAX */
    char text[RI_FAILURE_TEXT];
};

/* What a rank that waits long says of the operation it is in. */
struct ri_notice {
    _Atomic uint32_t version; /* odd: being written */
    _Atomic uint64_t since;   /* when it came here, on this host's clock */
    _Atomic uint64_t word[sizeof(struct ri_signature) / 8];
};
enum { RI_SIGNATURE_WORDS = sizeof(struct ri_signature) / 8 };

struct ri_board {
    ri_abort_word abort; /* 1: `failure` is complete */
    _Atomic uint32_t claim;
    struct ri_failure failure;
    _Atomic uint64_t history;  /* of the first of them                                     */
    _Atomic uint32_t left;     /* ranks of this host that wait to leave                   */
    _Atomic uint32_t all_left; /* 1: every rank of the communicator does; futex           */
    struct ri_notice notice[]; /* by rank of the communicator                             */
};
size_t ri_board_bytes(uint32_t size);

/* true: we are the first, and the failure stands. */
bool ri_board_fail(struct ri_board *b, const struct ri_failure *failure);
void ri_board_note(struct ri_board *b, uint32_t rank, const struct ri_signature *signature);
/* The notice of a rank: its version, 0 when there is none or it is being written. */
uint32_t ri_board_read(struct ri_board *b, uint32_t rank, struct ri_signature *signature_out, uint64_t *since_out);

/* ---- control.c, watch.c ---------------------------------------------------------------------------------------- */

enum { RI_FRAME = 512 };
struct ri_channel { /* to the first rank of another host */
    struct ri_watch watch;
    struct ring_comm *comm;
    uint32_t node;
    bool gone;
    uint32_t notices; /* sent since it last said anything */
    size_t have;
    uint8_t in[RI_FRAME];
};
struct ri_local {            /* to another rank of this host */
    struct ri_watch death;   /* pidfd; fd -1: none */
    struct ri_watch home;    /* AF_UNIX between it and the host's first rank; fd -1: none */
    struct ri_timer hang_up; /* running since the home connection ended */
    bool hung_up;
    struct ring_comm *comm;
    uint32_t rank;
};

/* ---- wires.c, program.c ---------------------------------------------------------------------------------------- */

enum { RI_TRANSPORTS_MAX = 8 };
struct ri_wires {
    uint32_t count;
    struct ri_link **link;        /* by number; NULL: the peer has not connected yet */
    uint32_t *number;             /* by rank; RI_NONE: no link                     */
    struct ri_expected *expected; /* links that peers are to connect        */
    struct ri_tctx *ctx[RI_TRANSPORTS_MAX];
    uint32_t ctxs;
    struct ri_engine *engine;
    struct ri_cost_model model;
    char names[64]; /* "shm+tcp" */
};

struct ri_program { /* cached: one shape */
    struct ri_program *next;
    const struct ri_algorithm *algorithm;
    struct ri_call call; /* its shape: coll, root, count and arrays count */
    uint32_t esize;
    struct ri_sched sched;
    struct ri_spare *spare; /* runs not in use */
    uint32_t in_use;
    size_t arrays[]; /* of call */
};
struct ri_spare {
    struct ri_spare *next;
    struct ri_run *run;
};

/* ---- the communicator ------------------------------------------------------------------------------------------ */

struct ring_op {
    struct ring_comm *comm;          /* NULL: destroyed                                       */
    struct ring_op *next;            /* in flight                                             */
    struct ring_op *newer, **handle; /* all that the caller holds; handle: what points to us  */
    struct ri_call call;
    struct ri_reduction reduction;
    struct ri_program *program; /* NULL: by the node, or by itself */
    struct ri_spare *run;
    struct ring_op *next_self; /* sends to itself that wait for the receive, and the other way round */
    const void *given;         /* src as the caller gave it, when `scratch` or dst stands in for it */
    void *scratch;             /* the operation's own */
    uint64_t deadline;
    uint32_t seq; /* 0 for send and recv */
    ring_status_t status;
    bool persistent, begun, done, alone; /* alone: nobody else takes part */
    size_t room[];                       /* arrays of call */
};

/* Made by ring_redop_create(): a user's function, or a pre-multiplied sum (fn NULL). */
struct ri_made_op {
    bool used;
    ring_reduce_fn *fn;
    void *context;
    ring_dtype_t dtype;
    _Alignas(8) unsigned char scalar[8];
};
enum { RI_REDOP_MADE = 128, RI_REDOPS_MADE = 128 };
/* Roots that are none: of an all-gather that is one of ring_comm_split(), and of a message as its two ends see it. */
enum { RI_ROOT_SPLIT = 0xfff, RI_ROOT_MESSAGE = 0xffe };

/* The last call of a collective that was found right, so that the next one like it is found right in a few
 * instructions. */
struct ri_shape {
    struct ri_call call;
    size_t src_bytes, dst_bytes;
    uintptr_t unaligned; /* bits of an address that must be 0        */
    bool may_meet;       /* src and dst may overlap, when src - dst is: */
    uintptr_t in_place;
};
enum { RI_SHAPES = RING_BARRIER };

/* busy: who is inside. */
enum { RI_NOBODY_INSIDE, RI_CALL_INSIDE, RI_HELPER_INSIDE };

struct ring_comm {
    _Atomic uint32_t busy;
    bool left; /* with operations in flight, and not entered since: help.c has it in its list */
    uint32_t rank, size, generation;
    struct ri_node *node; /* NULL: links only */
    struct ri_board *board;
    struct ring_op *first, **last; /* in flight, in the order they were started */
    struct ring_op *handles;       /* that the caller holds */
    uint32_t seq;
    uint64_t history; /* a hash of all collective calls so far over links; the node has its own of the others */
    const struct ri_call *running; /* the blocking call that is inside the node */
    struct ri_shape shape[RI_SHAPES];
    struct ri_shape
        arrays; /* of the last blocking call with arrays, which are in `room`; call.variable: there was one */
    ring_call_t arrays_given;
    struct ri_made_op *made;   /* operations of the caller's, or NULL */
    size_t *room;              /* arrays of the blocking call */
    uint32_t *sent, *received; /* by rank: sends and receives so far, where there were any */
    struct ring_op *selves;    /* sends to, or receives from, this rank itself that are not matched; of one kind */
    struct {
        uint32_t depth, count, room;
        struct ri_noted *noted;
    } group;
    uint32_t children;
    struct ring_comm *parent; /* while it is made: what it is split off, or NULL */
    struct ri_timer heed;     /* running meanwhile */
    struct ri_patience patience;
    struct ri_wires wires;
    struct ri_program *programs; /* most recently used first */

    struct ri_conf conf;
    struct ri_rules rules; /* RING_ALGO */
    uint64_t comm_id;
    uint8_t secret[RI_SECRET];
    struct ri_identity identity;
    struct ri_peer *peer;    /* by rank */
    _Atomic bool acquainted; /* peer[] is filled in */
    uint32_t node_index, nodes, local_rank, local_size;
    struct ri_layout layout;
    uint32_t *layout_numbers;
    struct ri_port *port; /* open while links may still be made */
    struct ri_member member;
    uint32_t *leader;      /* by node: its first rank                          */
    uint32_t *local_ranks; /* by local rank: the rank                          */
    int32_t *pids;         /* by local rank; for the node                      */

    struct ring_comm *older; /* of this process, for forks */
    struct ring_comm *next_left;
    const bool *left_by;        /* a thread, help.c knows which */
    struct ri_board *own_board; /* until the host's is there, and where there is none */
    struct ri_heap_view *heap;  /* of the host's ranks; NULL: none */
    struct ri_seg *seg;         /* holds the host's board, then the node's memory; or NULL */
    struct ri_local *local;
    uint32_t locals;
    struct ri_channel *channel;
    uint32_t channels;
    bool *bye;            /* by node (first rank of the host only) */
    uint64_t bye_history; /* of the first host that left */
    bool spread;          /* the failure was passed on */
    uint32_t *relayed;    /* by rank: version of its notice that was passed on */

    bool holds_loop;
    struct ri_failure failure; /* copied from the board once */
    _Atomic bool settled;
    struct {
        uint64_t last, next_note, next_report;
        bool reported;
    } stall;
};

/* Its pid means the same here as there. */
static inline bool ri_peer_visible(const struct ri_peer *me, const struct ri_peer *p)
{
    return p->node == me->node && p->pid_space && p->pid_space == me->pid_space;
}
static inline bool ri_comm_leads(const struct ring_comm *c) { return c->local_rank == 0; }
static inline bool ri_comm_broken(const struct ring_comm *c)
{
    return atomic_load_explicit(&c->board->abort, memory_order_acquire) != 0;
}

/* meet.c */
/* Cards, hosts, endpoints, shared memory: fills in everything of c that other ranks decide. */
ring_status_t ri_comm_meet(struct ring_comm *c, struct ri_boot *boot, uint64_t deadline);

/* create.c */
uint32_t ri_comm_generation(void); /* changes in a child after fork() */
/* parent: the communicator that this one is split off; NULL: none. */
ring_status_t ri_comm_create(struct ri_boot *boot, const struct ri_conf *conf, struct ring_comm *parent,
                             uint64_t deadline, struct ring_comm **comm_out);
ring_status_t ri_comm_destroy(struct ring_comm *c);

/* fail.c */
/* Record a failure and tell everybody; when somebody was first, theirs stands.  Any thread. */
void ri_comm_raise(struct ring_comm *c, ring_status_t status, uint32_t culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The failure that stands, as this thread's error; RING_OK when there is none. */
ring_status_t ri_comm_verdict(struct ring_comm *c);
const struct ri_failure *ri_comm_failure(struct ring_comm *c);
/* Give those who know why something broke 750 ms to say so; RING_OK: nobody did. */
ring_status_t ri_comm_hear(struct ring_comm *c);
/* The link to rank `culprit` broke, why as in struct ri_link: when nobody knows better for 500 ms, or somewhat longer
 * where it is "", that is the failure. */
ring_status_t ri_comm_suspect(struct ring_comm *c, uint32_t culprit, const char *why);
const char *ri_comm_name(const struct ring_comm *c, uint32_t rank);

/* control.c */
ring_status_t ri_control_connect(struct ring_comm *c, uint64_t deadline);
uint32_t ri_control_count(const struct ring_comm *c, uint32_t node); /* channels of a node's first rank */
/* Pass on whatever of the board is new: to the other hosts, or by way of the host's first rank. */
void ri_control_spread(struct ring_comm *c);
/* Take in what has come, where the background thread has not been let run yet. */
void ri_control_listen(struct ring_comm *c);
void ri_control_close(struct ring_comm *c);
void ri_control_forget(const struct ring_comm *c); /* in a forked child: close, and nothing else */

/* watch.c */
/* The processes of the host's other ranks, from when they are known; and a home connection, from when it is made. */
ring_status_t ri_watch_locals(struct ring_comm *c);
ring_status_t ri_watch_home(struct ri_local *l);

/* heaps.c: before the homes are watched. */
ring_status_t ri_heaps_exchange(struct ring_comm *c, uint64_t deadline);
void ri_heaps_close(struct ring_comm *c);
void ri_watch_close(struct ring_comm *c);
void ri_watch_forget(const struct ring_comm *c);

/* wires.c */
/* transports, blocked and off of this process. */
void ri_wires_look(const struct ri_conf *conf, struct ri_peer *me);
/* Every rank has a transport that RING_TRANSPORT allows; else all ranks say the same of one that has not. */
ring_status_t ri_wires_possible(const struct ring_comm *c);
const char *ri_wires_transports(void); /* "shm,tcp" */
/* Texts that have a grammar, or name things that must exist: RING_TRANSPORT, RING_ALGO, RING_PORT_RANGE and
 * RING_SOCKET_IFNAME. */
ring_status_t ri_wires_check(const struct ri_conf *conf);
bool ri_wires_allowed(const struct ri_conf *conf, const char *transport);
/* "shm+tcp": what the links go over that there are; before the first one, what those would that may come. */
const char *ri_wires_names(struct ring_comm *c);
bool ri_wires_direct(const struct ring_comm *c);      /* all ranks share memory, and may use it */
uint32_t ri_wires_sockets(const struct ring_comm *c); /* descriptors that the links will need */
/* The links that all-reduces need; the rest are made when they are wanted. */
ring_status_t ri_wires_connect(struct ring_comm *c, uint64_t deadline);
/* Ready for programs, if it is not yet. */
ring_status_t ri_wires_open(struct ring_comm *c);
/* See to it that there is, or will be, a link to each of these ranks; what runs over it waits until it is there. */
ring_status_t ri_wires_want(struct ring_comm *c, const uint32_t *peers, uint32_t count);
/* Why the link to a rank broke; "": not known. */
const char *ri_wires_why(const struct ring_comm *c, uint32_t rank);
unsigned ri_wires_progress(struct ring_comm *c);
void ri_wires_sleep(void *comm, int ms); /* a ri_sleep_fn */
/* First the links let go of what is posted, then the runs that own it may be freed, then the rest. */
void ri_wires_hang_up(struct ring_comm *c);
void ri_wires_close(struct ring_comm *c);

/* model.c */
/* Measure, and agree; nothing where there are no links.  Collective. */
ring_status_t ri_model_find(struct ring_comm *c);

/* program.c */
ring_status_t ri_program_get(struct ring_comm *c, const struct ri_call *call, struct ri_program **program_out,
                             struct ri_spare **run_out);
void ri_program_put(struct ri_program *p, struct ri_spare *run);
/* Elements of all blocks together; 0 when only some ranks could know. */
uint64_t ri_program_count(const struct ring_comm *c, const struct ri_call *call);
/* No rule of RING_ALGO asks for anything but direct shared memory. */
bool ri_program_leaves_to_node(const struct ring_comm *c, const struct ri_call *call);
/* NULL: there is no algorithm for that here. */
const struct ri_algorithm *ri_program_choose(const struct ring_comm *c, const struct ri_call *call,
                                             struct ri_coll_args *args_out);
void ri_program_close(struct ring_comm *c);

/* layout.c */
ring_status_t ri_layout_make(struct ring_comm *c);
void ri_layout_free(struct ring_comm *c);

/* redop.c */
ring_status_t ri_redop_check(const struct ring_comm *c, ring_dtype_t dtype, ring_redop_t redop);
struct ri_reduction ri_redop_reduction(const struct ring_comm *c, ring_dtype_t dtype, ring_redop_t redop);
/* What every rank's elements are multiplied by first; NULL: nothing. */
const void *ri_redop_scalar(const struct ring_comm *c, ring_redop_t redop);
ring_status_t ri_redop_make(struct ring_comm *c, const struct ri_made_op *op, ring_redop_t *redop_out);
ring_status_t ri_redop_drop(struct ring_comm *c, ring_redop_t redop);

/* op.c */
bool ri_op_by_node(const struct ring_comm *c, const struct ri_call *call); /* by direct shared memory */
ring_status_t ri_op_choice(struct ring_comm *c, const struct ri_call *call, ring_choice_t *choice_out);
ring_status_t ri_op_run(struct ring_comm *c, const struct ri_call *call);
/* An operation with room for the arrays of a call of `coll`; nothing of it is begun. */
ring_status_t ri_op_new(struct ring_comm *c, ring_coll_t coll, struct ring_op **op_out);
/* Everything short of beginning; op->call is filled in.  On failure op may be freed. */
ring_status_t ri_op_prepare(struct ring_comm *c, struct ring_op *op);
void ri_op_launch(struct ring_comm *c, struct ring_op *op);
/* A handle of the caller's, so that destroying the communicator can tell it. */
void ri_op_hold(struct ring_comm *c, struct ring_op *op);
ring_status_t ri_op_test(struct ring_op *op, int *done_out);
ring_status_t ri_op_wait(struct ring_op *op);
void ri_op_finish(struct ring_op *op, ring_status_t status); /* one that is in no list */
void ri_op_discard(struct ring_op *op);                      /* frees one that is not in flight and not held */
void ri_op_free(struct ring_op *op);                         /* frees one that is not in flight */
void ri_op_orphan(struct ring_comm *c);                      /* the handles that the caller still holds outlive c */
void ri_op_finish_all(struct ring_comm *c, ring_status_t status);
void ri_op_drain(struct ring_comm *c); /* complete everything in flight */
unsigned ri_op_progress(struct ring_comm *c);
void ri_op_stalled(void *comm, uint64_t waited);
/* How a call shows itself to people, and to the ranks of its host. */
void ri_op_signature(const struct ring_comm *c, const struct ri_call *call, uint32_t seq,
                     struct ri_signature *signature_out);

/* self.c */
void ri_self_run(struct ring_comm *c, struct ring_op *op);
void ri_self_meet(struct ring_comm *c, struct ring_op *op); /* a send to, or a receive from, itself */
void ri_self_forget(struct ring_comm *c, struct ring_op *op);

/* group.c */
/* Both, or neither; other may be NULL. */
ring_status_t ri_group_note(struct ring_comm *c, struct ring_op *one, struct ring_op *other);
ring_status_t ri_group_end(struct ring_comm *c);
void ri_group_close(struct ring_comm *c); /* calls that are noted and never ended are dropped */

/* help.c */
void ri_help_begin(struct ring_comm *c);
void ri_help_end(struct ring_comm *c);
/* Come in after the helper; false: somebody else is inside. */
bool ri_help_await(struct ring_comm *c);
void ri_help_forget(void); /* in a forked child */

/* split.c */
ring_status_t ri_comm_split(struct ring_comm *c, int32_t color, int32_t key, struct ring_comm **comm_out);

/* stall.c */
/* `calls`: with which call it waits. */
void ri_comm_stalled(struct ring_comm *c, const struct ri_signature *calls, uint64_t waited);
enum { RI_COLL_DESTROY = 255 }; /* in a signature: ring_comm_destroy() */
void ri_stall_end(struct ring_comm *c);
static inline void ri_stall_over(struct ring_comm *c)
{
    if (c->stall.last)
        ri_stall_end(c);
}
/* "rank 2", "ranks 2, 5-7" of those that a report would name. */
void ri_stall_missing(struct ring_comm *c, uint64_t waited, char *text, size_t cap);
void ri_call_text(const struct ri_signature *s, char *text, size_t cap); /* "all_reduce of 10 float (sum)" */

#endif
