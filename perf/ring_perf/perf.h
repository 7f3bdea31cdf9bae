/* SPDX-License-Identifier: Apache-2.0 */
/* perf.h - what the files of ring_perf share.
 *
 * options.c reads the command line; colls.c knows what each collective moves and what must come of it; data.c makes
 * inputs whose result is known and checks outputs; call.c calls the library, in each of
 * the ways there are; measure.c runs and times one case; report.c writes the table and json.c the file; main.c joins
 * the job and walks through the cases.  Uses include/ring only, so it measures what a user gets.  One thread, but for
 * the watchdog of --timeout. */
#ifndef RING_PERF_H
#define RING_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ring/ring.h>

/* ---- colls.c: what can be measured ---- */

enum perf_bus { PERF_BUS_ONE, PERF_BUS_OTHERS, PERF_BUS_TWICE }; /* 1, (n-1)/n, 2(n-1)/n */
enum perf_place { PERF_NOWHERE, PERF_SAME, PERF_SRC_IN_DST, PERF_DST_IN_SRC };

struct perf_coll {
    const char *name;
    ring_coll_t coll; /* RING_SEND: to the next rank, and from the one before */
    enum perf_bus bus;
    enum perf_place in_place; /* where the one buffer lies in the other */
    bool rooted, reduces;
    bool blocks; /* the size is that of the whole, and cut into a block per rank */
    bool uneven; /* blocks differ: one, two, three, one ... shares */
};
enum { PERF_COLLS = 15 };
extern const struct perf_coll perf_colls[PERF_COLLS];

struct perf_case {
    const struct perf_coll *coll;
    ring_dtype_t dtype;
    ring_redop_t redop; /* of no meaning unless coll->reduces */
    int64_t root;       /* -1: there is none */
    size_t whole;       /* elements that the size stands for */
};

/* One rank's side of a case, in elements. */
struct perf_shape {
    uint32_t rank, size;
    size_t count;              /* what the call gets */
    size_t sends, receives;    /* what its buffers hold */
    size_t *blocks, *begins;   /* of the whole, by rank; for all_to_all those of this rank */
    enum perf_place in_place;  /* for this rank */
    size_t offset;             /* where the inner buffer begins in the outer one */
    size_t shown, shown_count; /* as nccl-tests prints them: the larger side in elements, and the count of the call */
};
/* memory: 2 * size elements, which shape keeps pointing into. */
void perf_shape_init(struct perf_shape *s, const struct perf_case *what, uint32_t rank, uint32_t size, size_t *memory);

/* What must come: piece k of dst holds elements from `index` on of rank `from`'s src, or of the reduction of all. */
struct perf_piece {
    size_t at, count, index;
    uint32_t from;
    bool reduced;
};
uint32_t perf_pieces(const struct perf_shape *s, const struct perf_case *what); /* how many */
struct perf_piece perf_piece_of(const struct perf_shape *s, const struct perf_case *what, uint32_t k);

double perf_bus_factor(const struct perf_coll *coll, uint32_t size);

/* ---- options.c ---- */

enum perf_average { PERF_RANK0, PERF_MEAN, PERF_MIN, PERF_MAX };
enum perf_memory { PERF_MALLOC, PERF_REGISTERED, PERF_ALLOC };
enum perf_inject { PERF_INJECT_NONE, PERF_INJECT_ELEMENT, PERF_INJECT_GUARD, PERF_INJECT_SEND };
enum { PERF_ROOT_ALL = -1, PERF_SIZES_MAX = 64 };

struct perf_size {
    uint64_t bytes, iters, warmup; /* iters 0: as -n and -w say */
};

struct perf_options {
    const char *name;                                       /* of what is measured; "all" */
    uint64_t colls;                                         /* bit i: perf_colls[i] */
    uint64_t min_bytes, max_bytes, step_bytes, step_factor; /* step_factor 0: add step_bytes */
    struct perf_size sizes[PERF_SIZES_MAX];                 /* instead of those, when size_count is not 0 */
    uint64_t size_count;
    uint64_t iters, warmup, checks, timeout, average, cold;
    uint64_t memory, buffers, group; /* enum perf_memory; pairs to go round, 0: as cold says; calls at a time */
    bool start, persistent;
    uint64_t gpus, threads;  /* 1 and 1: a rank is a process with one buffer; so that nccl-tests' command lines work */
    uint64_t dtypes, redops; /* bit i: the dtype or redop of number i */
    int64_t root;            /* PERF_ROOT_ALL: each in turn */
    const char *json;        /* NULL: none */
    uint64_t inject;         /* enum perf_inject, for testing the checker itself */
    uint64_t inject_index;
};

/* 0: go on; 1: --help or --version was printed; 2: an error was printed.  Texts in opt point into argv. */
int perf_options_read(struct perf_options *opt, int argc, char **argv);

/* ---- data.c ---- */

/* Inputs and results for one dtype, redop and number of ranks: element i of rank r is in[(k + r) % 64] with k = k(i,
 * seed), and the result is out[k], whatever the order of the reduction.  Values are raw bits in the low bytes. */
enum { PERF_VALUES = 64 };
struct perf_pattern {
    ring_dtype_t dtype;
    size_t esize;
    uint64_t in[PERF_VALUES], out[PERF_VALUES];
};
void perf_pattern_init(struct perf_pattern *p, ring_dtype_t dtype, ring_redop_t redop, uint32_t size);

/* What was wrong: how many elements, and the first. */
struct perf_wrong {
    uint64_t count;
    uint64_t index;
    uint64_t expected, seen; /* raw bits */
};
void perf_fill(const struct perf_pattern *p, void *data, size_t count, uint32_t rank, uint64_t seed);
/* data holds elements index, index + 1 ... of rank's input, or of the result. */
struct perf_wrong perf_check_input(const struct perf_pattern *p, const void *data, size_t count, size_t index,
                                   uint32_t rank, uint64_t seed);
struct perf_wrong perf_check_result(const struct perf_pattern *p, const void *data, size_t count, size_t index,
                                    uint64_t seed);

/* A raw value as text. */
void perf_value_print(ring_dtype_t dtype, uint64_t bits, char *text, size_t cap);

/* PERF_GUARD bytes on both sides of a buffer that nobody may touch. */
enum { PERF_GUARD = 4096 };
void perf_guard_set(void *data, size_t bytes);
/* Damaged bytes; *offset_out (from data; negative: before it) is the first, when there are any. */
uint64_t perf_guard_check(const void *data, size_t bytes, int64_t *offset_out);

/* ---- call.c ---- */

/* A call but for its buffers; sendrecv is two when it is not made by the blocking function. */
struct perf_call {
    const struct perf_coll *coll;
    ring_call_t part[2];
    unsigned parts;
};
void perf_call_init(struct perf_call *c, const struct perf_case *what, const struct perf_shape *s);
ring_status_t perf_call_block(ring_comm_t *comm, const struct perf_call *c, const void *src, void *dst);
/* One operation for each part; those that were begun are in op, also when it fails. */
ring_status_t perf_call_start(ring_comm_t *comm, const struct perf_call *c, const void *src, void *dst,
                              ring_op_t *op[2]);
ring_status_t perf_call_prepare(ring_comm_t *comm, const struct perf_call *c, const void *src, void *dst,
                                ring_op_t *op[2]);

/* ---- measure.c ---- */

struct perf_time { /* microseconds for one operation */
    double mean, p50, p99, steady;
    double processor; /* of all ranks together */
};
struct perf_result {
    struct perf_case what;
    size_t shown, shown_count; /* elements, see struct perf_shape */
    ring_choice_t choice;
    bool checked;
    bool there[2];            /* measured at all */
    struct perf_time time[2]; /* out of place, in place */
    uint64_t wrong[2];
};

struct perf_run; /* the communicator, the buffers and the options of this run */

ring_status_t perf_run_open(const struct perf_options *opt, ring_comm_t *comm, struct perf_run **run_out);
void perf_run_close(struct perf_run *run);
/* Collective: time and check one case; size->iters operations are timed. */
ring_status_t perf_measure(struct perf_run *run, const struct perf_case *what, const struct perf_size *size,
                           struct perf_result *result_out);

/* ---- report.c and json.c ---- */

struct perf_report;

/* Whether the file of -J can be written, asked without changing what is in it; prints why not. */
bool perf_report_possible(const char *path);

/* Only on the rank that prints; all other ranks have NULL, which every function accepts. */
struct perf_report *perf_report_open(const struct perf_options *opt, ring_comm_t *comm);
ring_status_t perf_report_header(struct perf_report *r);
/* The rows of another collective follow. */
void perf_report_coll(struct perf_report *r, const struct perf_coll *coll);
void perf_report_row(struct perf_report *r, const struct perf_result *result);
void perf_report_progress(struct perf_report *r, const struct perf_case *what, size_t bytes);
/* Footer and JSON; error NULL: the run was complete.  Values found wrong by any rank, or -1 when the file could not be
 * written. */
int64_t perf_report_close(struct perf_report *r, const char *error);

/* GB/s (1e9) of algorithm bandwidth; 0 for what took no measurable time. */
double perf_alg_bw(const struct perf_result *x, int place);
/* Fewer digits after the point as the number grows, so that columns stay aligned. */
void perf_number_print(double value, int width, char *text, size_t cap);

struct perf_json; /* the text of the file, kept in memory until the end */

struct perf_json *perf_json_open(const struct perf_options *opt);
void perf_json_config(struct perf_json *j, const ring_comm_t *comm);
void perf_json_peer(struct perf_json *j, const ring_peer_t *peer);
void perf_json_row(struct perf_json *j, const struct perf_result *x, uint32_t size);
/* wrong: -1 when nothing was checked.  Frees j; false when the file could not be written. */
bool perf_json_close(struct perf_json *j, int64_t wrong, double average, const char *error);

#endif
