/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - the core interface of libring, a collective communication library.
 *
 * A communicator is a numbered group of processes (ranks 0 .. size-1).  Every rank calls the same collectives on it in
 * the same order; the library moves and reduces the data over the best transport there is.
 *
 * Errors.  A function that can fail returns ring_status_t: RING_OK, or a negative code.  ring_last_error() then has the
 * whole story as a sentence.  Out-parameters are written on success only.  RING_ERR_INVALID, RING_ERR_BUSY and
 * RING_ERR_NOMEM leave the communicator as it was; any other error of a collective is final: all ranks are told, and
 * each later call on that communicator returns the same error at once, so that the only thing left to do is
 * ring_comm_destroy().
 *
 * Threads.  Different communicators may be used from different threads at the same time.  One communicator (its
 * operations included) belongs to one thread at a time; a second thread that calls into it meanwhile gets RING_ERR_BUSY
 * and nothing is harmed.  Handing a communicator over from one thread to another is fine when the hand-over itself is
 * synchronised.
 *
 * Processes.  After fork() the child may not use the parent's communicators: calls return RING_ERR_STATE.
 */
#ifndef RING_H
#define RING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RING_VERSION_MAJOR 0
#define RING_VERSION_MINOR 1
#define RING_VERSION_PATCH 0

#define RING_API __attribute__((visibility("default")))
#define RING_CHECK __attribute__((warn_unused_result))

/* ---- status ---------------------------------------------------------------------------------------------------- */

#define RING_STATUS_MAP(X)                                              \
    X(RING_OK, 0, "success")                                            \
    X(RING_ERR_INVALID, -1, "invalid argument")                         \
    X(RING_ERR_NOMEM, -2, "out of memory")                              \
    X(RING_ERR_SYSTEM, -3, "system call failed")                        \
    X(RING_ERR_PEER_LOST, -4, "a rank died or its connection was lost") \
    X(RING_ERR_MISMATCH, -5, "ranks disagree on the call")              \
    X(RING_ERR_UNSUPPORTED, -6, "not supported")                        \
    X(RING_ERR_TIMEOUT, -7, "deadline passed")                          \
    X(RING_ERR_CONFIG, -8, "wrong setting")                             \
    X(RING_ERR_LAUNCH, -9, "cannot join the launcher")                  \
    X(RING_ERR_BUSY, -10, "communicator in use by another thread")      \
    X(RING_ERR_STATE, -11, "not possible in this state")                \
    X(RING_ERR_ABORTED, -12, "aborted by a rank")                       \
    X(RING_ERR_LIMIT, -13, "a limit of the system is too low")          \
    X(RING_ERR_INTERNAL, -14, "internal error")

typedef enum ring_status {
#define X(name, value, text) name = value,
    RING_STATUS_MAP(X)
#undef X
} ring_status_t;

/* The fixed text of a status code, e.g. "out of memory"; "unknown status" for a number that is none. Never NULL. */
RING_API const char *ring_status_str(ring_status_t status);

/* The last error of the calling thread as a sentence; "" when there was none.  The text is the thread's own and stays
 * until that thread's next failing call. */
RING_API const char *ring_last_error(void);

/* The version of the library that is loaded, e.g. "0.1.0" (compare with RING_VERSION_* of the header). */
RING_API const char *ring_version(void);

/* ---- types ----------------------------------------------------------------------------------------------------- */

typedef enum ring_dtype {
    RING_INT8 = 0,
    RING_UINT8 = 1,
    RING_INT16 = 2,
    RING_UINT16 = 3,
    RING_INT32 = 4,
    RING_UINT32 = 5,
    RING_INT64 = 6,
    RING_UINT64 = 7,
    RING_FLOAT = 8,        /* IEEE 754 binary32 */
    RING_DOUBLE = 9,       /* IEEE 754 binary64 */
    RING_FLOAT16 = 10,     /* IEEE 754 binary16 */
    RING_BFLOAT16 = 11,    /* the upper half of a binary32 */
    RING_FLOAT8_E4M3 = 12, /* OCP, as float8_e4m3fn elsewhere: up to 448, no infinities */
    RING_FLOAT8_E5M2 = 13  /* OCP: the upper half of a binary16 */
} ring_dtype_t;

/* Floats of 16 and 8 bits are computed in float and rounded to nearest, ties to even.  What is too large becomes an
 * infinity, and a NaN where there are none (e4m3): overflow is never hidden by the largest number.  Subnormal numbers
 * are kept.  Which NaN a sum or product gives is not said; that of RING_MIN and RING_MAX is always the same one. */

typedef enum ring_redop {
    RING_SUM = 0,  /* integers wrap */
    RING_PROD = 1, /* integers wrap */
    RING_MIN = 2,  /* a NaN on any rank gives NaN */
    RING_MAX = 3,  /* a NaN on any rank gives NaN */
    RING_AVG = 4,  /* the sum, then one division by the number of ranks; integers truncate toward zero */
    RING_BAND = 5, /* from here on integers only: and, or, exclusive or of all bits */
    RING_BOR = 6,
    RING_BXOR = 7,
    RING_LAND = 8, /* of truth, which is any bit set: the result is 1 or 0 */
    RING_LOR = 9,
    RING_LXOR = 10
} ring_redop_t;

typedef enum ring_coll {
    RING_ALL_REDUCE = 0,
    RING_REDUCE = 1,
    RING_BROADCAST = 2,
    RING_REDUCE_SCATTER = 3,
    RING_ALL_GATHER = 4,
    RING_ALL_TO_ALL = 5,
    RING_GATHER = 6,
    RING_SCATTER = 7,
    RING_BARRIER = 8,
    RING_SEND = 9,
    RING_RECV = 10,
    RING_REDUCE_SCATTERV = 11,
    RING_ALL_GATHERV = 12,
    RING_ALL_TO_ALLV = 13,
    RING_GATHERV = 14,
    RING_SCATTERV = 15
} ring_coll_t;

/* dst[i] = a[i] op b[i], i < count, for an operation of the caller's (ring_redop_create).  dst may be a or b. */
typedef void ring_reduce_fn(void *dst, const void *a, const void *b, size_t count, ring_dtype_t dtype, void *context);

/* Bytes of one element; 0 when dtype is none. */
RING_API size_t ring_dtype_size(ring_dtype_t dtype);

/* 1 when the operation is there for the type, else 0: operations on bits and truth want integers. */
RING_API int ring_redop_fits(ring_dtype_t dtype, ring_redop_t redop);

/* "int8", "float", "sum", "all_reduce" ...; NULL when the value is none.  The loop "while name" over 0, 1, 2 ... lists
 * all of them. */
RING_API const char *ring_dtype_str(ring_dtype_t dtype);
RING_API const char *ring_redop_str(ring_redop_t redop);
RING_API const char *ring_coll_str(ring_coll_t coll);

/* ---- communicators --------------------------------------------------------------------------------------------- */

typedef struct ring_comm ring_comm_t; /* opaque */

/* Join all ranks of the job that the launcher started (ringrun, Open MPI's mpirun, srun --mpi=pmix: any PMIx server).
 * Collective.  A program that was started alone becomes a job of one; but when the environment shows a launcher that
 * cannot be joined, that is RING_ERR_LAUNCH, never a silent job of one.  May be called again for further communicators
 * over the same ranks; what ranks tell each other stays in the PMIx library's store (some KiB a communicator) until the
 * process ends, so programs that make thousands are better served by tickets.
 * On success *comm_out belongs to the caller, who ends it with ring_comm_destroy().
 * Errors: LAUNCH, CONFIG (a RING_ variable is wrong), TIMEOUT (names the ranks that did not arrive within
 * RING_TIMEOUT), MISMATCH (ranks have different settings or versions), PEER_LOST, LIMIT, NOMEM, SYSTEM. */
RING_API RING_CHECK ring_status_t ring_comm_create(ring_comm_t **comm_out);

/* A ticket for one communicator, for programs that have a store or a channel of their own: one process makes it, all
 * get a copy.  `text` is a NUL-terminated printable string without spaces; it holds the secret by which the ranks know
 * each other, so hand it on as you would a password. */
typedef struct ring_uid {
    char text[128];
} ring_uid_t;

/* Make a ticket.  The calling process serves the rendezvous until the communicator is complete; it is usually, but need
 * not be, rank 0.  One ticket makes one communicator. */
RING_API RING_CHECK ring_status_t ring_uid_create(ring_uid_t *uid_out);

/* Join the communicator of a ticket as `rank` of `size`.  Collective; errors as ring_comm_create(), and INVALID for a
 * damaged ticket, rank >= size or a rank that is taken. Ranks may be threads of one process. */
RING_API RING_CHECK ring_status_t ring_comm_create_uid(const ring_uid_t *uid, uint32_t rank, uint32_t size,
                                                       ring_comm_t **comm_out);

/* Leave the communicator and free it.  Collective: waits until all ranks have come here (at most RING_TIMEOUT), so that
 * nobody loses data still under way; after an error it does not wait.  Operations still in flight are completed first;
 * their handles stay the caller's, and may still be waited for, tested and freed.  MISMATCH when another rank calls a
 * collective instead, or the ranks have not made the same calls; STATE when a group was never ended.  The communicator is gone whatever is returned; NULL is fine. */
RING_API ring_status_t ring_comm_destroy(ring_comm_t *comm);

/* Part the ranks of comm into new communicators: those that give the same color (0 or more) become one, numbered by key
 * and, where keys are equal, by their rank in comm.  Collective over comm.  A rank that gives RING_NO_COLOR joins none:
 * *comm_out becomes NULL.  comm stays as it is, and either may be destroyed first.  The new one takes comm's settings
 * and its measured costs; nothing is asked of the launcher.  Errors as ring_comm_create(), and those of a collective.
 */
enum { RING_NO_COLOR = -1 };
RING_API RING_CHECK ring_status_t ring_comm_split(ring_comm_t *comm, int32_t color, int32_t key,
                                                  ring_comm_t **comm_out);

/* The same ranks under the same numbers once more, for calls that are to be kept apart (a library's, or another
 * thread's). Collective; errors as ring_comm_split(). */
RING_API RING_CHECK ring_status_t ring_comm_duplicate(ring_comm_t *comm, ring_comm_t **comm_out);

/* End every operation on every rank with RING_ERR_ABORTED and `reason` (may be NULL; cut at 200 bytes).  Not
 * collective, does not wait, and may be called from any thread while another is inside a call on comm, except
 * ring_comm_destroy(): when that returns, comm is gone. */
RING_API void ring_comm_abort(ring_comm_t *comm, const char *reason);

/* Facts that do not change.  node: index of the host, 0 .. node_count-1, in order of the lowest rank there; local rank
 * and size: among the ranks of that host that share memory. */
RING_API uint32_t ring_comm_rank(const ring_comm_t *comm);
RING_API uint32_t ring_comm_size(const ring_comm_t *comm);
RING_API uint32_t ring_comm_local_rank(const ring_comm_t *comm);
RING_API uint32_t ring_comm_local_size(const ring_comm_t *comm);
RING_API uint32_t ring_comm_node(const ring_comm_t *comm);
RING_API uint32_t ring_comm_node_count(const ring_comm_t *comm);

/* The error that ended comm as a sentence, "" while it works.  Stays until ring_comm_destroy(). */
RING_API const char *ring_comm_error(const ring_comm_t *comm);

/* Operations of the caller's own, for use on comm until they are destroyed or comm is.  All ranks make them in the same
 * order: the number that *redop_out gets is compared like any other argument.  Not to be destroyed while a call that
 * uses them is in flight.
 *
 * fn must be associative and commutative; it is called by the thread that is inside a call on comm (or on another
 * communicator, while operations on comm are in flight), for a part of the elements at a time, and context is handed on
 * as it is.
 * Pre-multiplied sum: every rank's elements are multiplied by *scalar (an element of dtype, read now; each rank may
 * have its own), then added up; for elements of that dtype only. Errors: INVALID, NOMEM, BUSY; LIMIT when comm has 128
 * already. */
RING_API RING_CHECK ring_status_t ring_redop_create(ring_comm_t *comm, ring_reduce_fn *fn, void *context,
                                                    ring_redop_t *redop_out);
RING_API RING_CHECK ring_status_t ring_redop_create_premul(ring_comm_t *comm, const void *scalar, ring_dtype_t dtype,
                                                           ring_redop_t *redop_out);
RING_API RING_CHECK ring_status_t ring_redop_destroy(ring_comm_t *comm, ring_redop_t redop);

/* Who a rank is. */
typedef struct ring_peer {
    uint32_t rank, node, local_rank;
    int32_t pid;
    char host[64]; /* its host's name as it gave it: for people, not an identity */
} ring_peer_t;
RING_API RING_CHECK ring_status_t ring_comm_peer(const ring_comm_t *comm, uint32_t rank, ring_peer_t *peer_out);

/* How a call would be carried out.  Both strings live as long as the communicator. */
typedef struct ring_choice {
    const char *algorithm; /* "node", "ring", "doubling", "exchange" ...; "copy" for one rank */
    const char *transport; /* "shm", "tcp", "shm+tcp": of all links that are in use; "self" for one rank */
} ring_choice_t;
RING_API RING_CHECK ring_status_t ring_comm_choice(ring_comm_t *comm, ring_coll_t coll, size_t count,
                                                   ring_dtype_t dtype, ring_redop_t redop, ring_choice_t *choice_out);

/* ---- collectives ------------------------------------------------------------------------------------------------
 *
 * All ranks call the same collective with the same count, type, operation and root, else RING_ERR_MISMATCH on all
 * ranks; a rank that waits for nobody (the root of a broadcast, a sender of a gather) may hear it at a later call,
 * ring_comm_destroy() at the latest.  Counts are in elements and may be 0; a buffer of which nothing is used may be NULL.  Buffers need no
 * alignment beyond that of the element type, belong to the caller, and are borrowed until the call returns (or its
 * operation is done).  src and dst must not overlap except where "in place" says how; src is then what dst was, and
 * each rank may do so or not.
 * n is the size of the communicator, and a block is `count` elements; block r begins at element r * count.
 *
 * Every one exists as a blocking call and as NAME_start(), which only begins it and gives an operation; see below. */

/* dst[i] = src[i] of rank 0 op src[i] of rank 1 op ..., i < count, on every rank; all ranks get the same bits.  In
 * place: src == dst.  Patarasuk and Yuan, JPDC 69(2), 2009, for the ring. */
RING_API RING_CHECK ring_status_t ring_all_reduce(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                  ring_dtype_t dtype, ring_redop_t redop);

/* The same, on rank root only; dst counts on root alone.  In place: src == dst on root. */
RING_API RING_CHECK ring_status_t ring_reduce(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                              ring_dtype_t dtype, ring_redop_t redop, uint32_t root);

/* dst = src of root; src counts on root alone.  In place: src == dst on root. */
RING_API RING_CHECK ring_status_t ring_broadcast(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                 ring_dtype_t dtype, uint32_t root);

/* src is n blocks; dst becomes block `rank` of what an all-reduce of src would give.  In place: dst is the own block of
 * src; the rest of src stays as it is. */
RING_API RING_CHECK ring_status_t ring_reduce_scatter(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                      ring_dtype_t dtype, ring_redop_t redop);

/* src is a block; block r of dst becomes src of rank r, on all ranks.  In place: src is the own block of dst. */
RING_API RING_CHECK ring_status_t ring_all_gather(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                  ring_dtype_t dtype);

/* src and dst are n blocks; block r of dst becomes block `rank` of src of rank r.  In place: src == dst, at the price
 * of a copy. */
RING_API RING_CHECK ring_status_t ring_all_to_all(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                  ring_dtype_t dtype);

/* As all_gather, on root only.  In place: on root, src is the own block of dst. */
RING_API RING_CHECK ring_status_t ring_gather(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                              ring_dtype_t dtype, uint32_t root);

/* src of root is n blocks; dst becomes block `rank` of it.  In place: on root, dst is the own block of src. */
RING_API RING_CHECK ring_status_t ring_scatter(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                               ring_dtype_t dtype, uint32_t root);

/* Returns when all ranks have called it. */
RING_API RING_CHECK ring_status_t ring_barrier(ring_comm_t *comm);

/* The variable-count forms: block r is counts[r] elements and begins at element displs[r]; displs NULL means one block
 * after the other.  Arrays have n entries and are read during the call only.  counts of reduce_scatterv and all_gatherv
 * are the same on all ranks.  all_to_allv: rcounts[r] here is scounts[rank] on rank r.  gatherv and scatterv: the
 * arrays count on root alone; `count` is the length of the own block, the same number as root has for it.  In place as
 * the regular forms; all_to_allv: src == dst when all four arrays are alike. */
RING_API RING_CHECK ring_status_t ring_reduce_scatterv(ring_comm_t *comm, const void *src, void *dst,
                                                       const size_t *counts, ring_dtype_t dtype, ring_redop_t redop);
RING_API RING_CHECK ring_status_t ring_all_gatherv(ring_comm_t *comm, const void *src, void *dst, const size_t *counts,
                                                   const size_t *displs, ring_dtype_t dtype);
RING_API RING_CHECK ring_status_t ring_all_to_allv(ring_comm_t *comm, const void *src, const size_t *scounts,
                                                   const size_t *sdispls, void *dst, const size_t *rcounts,
                                                   const size_t *rdispls, ring_dtype_t dtype);
RING_API RING_CHECK ring_status_t ring_gatherv(ring_comm_t *comm, const void *src, size_t count, void *dst,
                                               const size_t *rcounts, const size_t *rdispls, ring_dtype_t dtype,
                                               uint32_t root);
RING_API RING_CHECK ring_status_t ring_scatterv(ring_comm_t *comm, const void *src, const size_t *scounts,
                                                const size_t *sdispls, void *dst, size_t count, ring_dtype_t dtype,
                                                uint32_t root);

/* ---- point to point --------------------------------------------------------------------------------------------
 *
 * The k-th send to a peer meets the peer's k-th receive from this rank; there are no tags, and both give the same count
 * and type, else RING_ERR_MISMATCH.  A send may return before the peer has received, or may not: a pattern that must
 * not depend on that is put into a group, or started.  A rank may send to itself, in a group or by operations.  Calls
 * that two ranks make on each other, collectives included, come in the same order on both. */
RING_API RING_CHECK ring_status_t ring_send(ring_comm_t *comm, const void *src, size_t count, ring_dtype_t dtype,
                                            uint32_t peer);
RING_API RING_CHECK ring_status_t ring_recv(ring_comm_t *comm, void *dst, size_t count, ring_dtype_t dtype,
                                            uint32_t peer);
/* Both at once: scount elements of src go to rank `to`, rcount elements of dst come from rank `from`. */
RING_API RING_CHECK ring_status_t ring_sendrecv(ring_comm_t *comm, const void *src, size_t scount, uint32_t to,
                                                void *dst, size_t rcount, uint32_t from, ring_dtype_t dtype);

/* ---- groups ----------------------------------------------------------------------------------------------------
 *
 * Blocking calls between ring_group_start() and ring_group_end() are only noted; ring_group_end() begins all of them,
 * lets them run side by side, and returns when all are complete.  So sends and receives in a group cannot block each
 * other, and neighbouring small all-reduces of one type and operation travel as one.  Groups may be nested: the
 * outermost end counts.  A call that is refused (RING_ERR_INVALID) is not noted, the others are.  Operations cannot be
 * started inside a group: RING_ERR_STATE.  ring_group_end() returns the first failure. */
RING_API RING_CHECK ring_status_t ring_group_start(ring_comm_t *comm);
RING_API RING_CHECK ring_status_t ring_group_end(ring_comm_t *comm);

/* ---- operations ------------------------------------------------------------------------------------------------
 *
 * A call in flight, or prepared to be repeated.  The handle belongs to the caller, who ends it with ring_op_free();
 * buffers stay borrowed until ring_op_test() or ring_op_wait() has said done.  Any number may be in flight; all ranks
 * start them in the same order, and may wait for them in any.  Progress is made inside calls on the same
 * communicator, and by the thread that made the last of these also while it waits or tests in another one. */
typedef struct ring_op ring_op_t; /* opaque */

/* The calls above, only begun. */
RING_API RING_CHECK ring_status_t ring_all_reduce_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                        ring_dtype_t dtype, ring_redop_t redop, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_reduce_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                    ring_dtype_t dtype, ring_redop_t redop, uint32_t root,
                                                    ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_broadcast_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                       ring_dtype_t dtype, uint32_t root, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_reduce_scatter_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                            ring_dtype_t dtype, ring_redop_t redop, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_all_gather_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                        ring_dtype_t dtype, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_all_to_all_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                        ring_dtype_t dtype, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_gather_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                    ring_dtype_t dtype, uint32_t root, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_scatter_start(ring_comm_t *comm, const void *src, void *dst, size_t count,
                                                     ring_dtype_t dtype, uint32_t root, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_barrier_start(ring_comm_t *comm, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_reduce_scatterv_start(ring_comm_t *comm, const void *src, void *dst,
                                                             const size_t *counts, ring_dtype_t dtype,
                                                             ring_redop_t redop, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_all_gatherv_start(ring_comm_t *comm, const void *src, void *dst,
                                                         const size_t *counts, const size_t *displs, ring_dtype_t dtype,
                                                         ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_all_to_allv_start(ring_comm_t *comm, const void *src, const size_t *scounts,
                                                         const size_t *sdispls, void *dst, const size_t *rcounts,
                                                         const size_t *rdispls, ring_dtype_t dtype, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_gatherv_start(ring_comm_t *comm, const void *src, size_t count, void *dst,
                                                     const size_t *rcounts, const size_t *rdispls, ring_dtype_t dtype,
                                                     uint32_t root, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_scatterv_start(ring_comm_t *comm, const void *src, const size_t *scounts,
                                                      const size_t *sdispls, void *dst, size_t count,
                                                      ring_dtype_t dtype, uint32_t root, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_send_start(ring_comm_t *comm, const void *src, size_t count, ring_dtype_t dtype,
                                                  uint32_t peer, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_recv_start(ring_comm_t *comm, void *dst, size_t count, ring_dtype_t dtype,
                                                  uint32_t peer, ring_op_t **op_out);

/* A call as a value.  Fields that its collective has no use for are not looked at; peers of send and recv are roots. */
typedef struct ring_call {
    ring_coll_t coll;
    ring_dtype_t dtype;
    ring_redop_t redop;
    uint32_t root;
    const void *src;
    void *dst;
    size_t count;
    const size_t *scounts, *sdispls; /* of src: all_to_allv, scatterv, reduce_scatterv (counts) */
    const size_t *rcounts, *rdispls; /* of dst: all_to_allv, gatherv, all_gatherv               */
} ring_call_t;

/* A persistent operation: everything is set up now, so that ring_op_start() has nothing to look up, and may be repeated
 * on the same buffers as often as wanted, each time after the one before is done.  Preparing is not collective; all
 * ranks start in the same order.  RING_ERR_STATE: started while it is under way, or not a prepared one.  One that was never started counts as
 * complete. */
RING_API RING_CHECK ring_status_t ring_op_prepare(ring_comm_t *comm, const ring_call_t *call, ring_op_t **op_out);
RING_API RING_CHECK ring_status_t ring_op_start(ring_op_t *op);

/* Make progress, and set *done_out to 1 when the operation is complete, else 0.  Returns how it ended, or RING_OK. */
RING_API RING_CHECK ring_status_t ring_op_test(ring_op_t *op, int *done_out);

/* Make progress until the operation is complete; returns how it ended. */
RING_API RING_CHECK ring_status_t ring_op_wait(ring_op_t *op);

/* Give the handle back; waits first if the operation is still under way.  NULL is fine. */
RING_API void ring_op_free(ring_op_t *op);

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Ranks of one host that are processes cannot see each other's memory, so collectives copy through a buffer that they
 * share.  Memory from ring_mem_alloc(), and buffers given to ring_mem_register(), the others can see: collectives work
 * there directly, up to several times as fast.  Nothing else changes: any part of such memory may be src or dst, on some
 * ranks or on all, with every communicator of the process, made before or after.  These functions are not collective,
 * belong to the process and not to a communicator, and may be called from any thread, but not on memory that an
 * operation under way uses.
 *
 * It is memory of the kind that tmpfs has: it counts as "shared" memory of the process, is not in its core dumps unless
 * asked for, and is gone with the last process of the job that has it mapped.  A child made by fork() shares it with its
 * parent, as it would with any shared mapping: what one writes the other sees.  The child cannot call these functions
 * (RING_ERR_STATE); one that is to run on its own should call exec(). */

/* `bytes` zeroed bytes that other ranks of the host can see, at a page boundary; whole pages are used.  *ptr_out belongs
 * to the caller, who ends it with ring_mem_free().
 * Errors: INVALID (0 bytes), NOMEM, STATE (after fork), SYSTEM. */
RING_API RING_CHECK ring_status_t ring_mem_alloc(size_t bytes, void **ptr_out);

/* Give memory of ring_mem_alloc() back; NULL is fine.  INVALID for any other pointer, STATE after fork. */
RING_API ring_status_t ring_mem_free(void *ptr);

/* Let other ranks of the host see the caller's buffer [ptr, ptr + bytes), which stays where it is with what it holds:
 * its whole pages are moved under a shared mapping at the same address.  Takes several times as long as copying it, as
 * does taking it back (pages are made anew), so it is for buffers that are used often; needs the memory twice for that
 * time, and nobody may write to the buffer meanwhile.  The part of a page at either end is copied
 * at each call instead, so buffers of less than a page gain nothing (but may be registered).
 *
 * The memory must be private, anonymous, readable and writable: malloc() and mmap() give such, and large allocations are
 * best.  Before it is freed, unmapped, remapped, locked or given to madvise(MADV_DONTNEED), deregister it: an operation
 * on a registered buffer that has been freed reads and writes the old pages.
 * Errors: INVALID (NULL, 0 bytes, not mapped, overlaps what is registered or from ring_mem_alloc()), UNSUPPORTED (backed
 * by a file, shared, locked, read-only, the stack), NOMEM, STATE (after fork), SYSTEM; the buffer is then unchanged. */
RING_API RING_CHECK ring_status_t ring_mem_register(void *ptr, size_t bytes);

/* End ring_mem_register(): ptr as given there.  The buffer is private memory again, at the same address and with the
 * same content.
 * Errors: INVALID (not registered), STATE (after fork; or the buffer was freed or mapped anew while it was registered:
 * whatever is there now is left alone, and the registration is gone), NOMEM, SYSTEM. */
RING_API ring_status_t ring_mem_deregister(void *ptr);

#ifdef __cplusplus
}
#endif
#endif
