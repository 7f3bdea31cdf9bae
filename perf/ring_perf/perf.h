/* SPDX-License-Identifier: Apache-2.0 */
/* perf.h - what the files of ring_perf share.
 *
 * options.c reads the command line, data.c makes inputs whose result is known and checks outputs, measure.c runs and
 * times one case, report.c writes the table and the JSON file, main.c joins the job and walks through the cases.  Uses
 * include/ring only, so it measures what a user gets.  One thread, but for the watchdog of --timeout. */
#ifndef RING_PERF_H
#define RING_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ring/ring.h>

/* ---- options.c ---- */

enum perf_average { PERF_RANK0, PERF_MEAN, PERF_MIN, PERF_MAX };
enum perf_inject { PERF_INJECT_NONE, PERF_INJECT_ELEMENT, PERF_INJECT_GUARD, PERF_INJECT_SEND };
enum { PERF_ROOT_ALL = -1 };

struct perf_options {
    ring_coll_t coll;
    uint64_t min_bytes, max_bytes, step_bytes, step_factor; /* step_factor 0: add step_bytes */
    uint64_t iters, warmup, checks, timeout, average, cold;
    uint64_t gpus, threads;  /* 1 and 1: a rank is a process with one buffer; so that nccl-tests' command lines work */
    uint64_t dtypes, redops; /* bit i: the dtype or redop of number i */
    int64_t root;            /* PERF_ROOT_ALL; of no meaning to all_reduce */
    const char *json;        /* NULL: none */
    uint64_t inject;         /* enum perf_inject, for testing the checker itself */
    uint64_t inject_index;
};

/* 0: go on; 1: --help or --version was printed; 2: an error was printed.  Texts in opt point into argv. */
int perf_options_read(struct perf_options *opt, int argc, char **argv);

/* ---- data.c ---- */

/* Inputs and results for one dtype, redop and number of ranks: element i of rank r is in[(k + r) % 64] with k = k(i,
 * seed), and the result is out[k], whatever the order of the reduction. Values are raw bits in the low bytes. */
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
struct perf_wrong perf_check_input(const struct perf_pattern *p, const void *data, size_t count, uint32_t rank,
                                   uint64_t seed);
struct perf_wrong perf_check_result(const struct perf_pattern *p, const void *data, size_t count, uint64_t seed);
/* A raw value as text. */
void perf_value_print(ring_dtype_t dtype, uint64_t bits, char *text, size_t cap);

/* PERF_GUARD bytes on both sides of a buffer that nobody may touch. */
enum { PERF_GUARD = 4096 };
void perf_guard_set(void *data, size_t bytes);
/* Damaged bytes; *offset_out (from data; negative: before it) is the first, when there are any. */
uint64_t perf_guard_check(const void *data, size_t bytes, int64_t *offset_out);

/* ---- measure.c ---- */

struct perf_case {
    ring_coll_t coll;
    ring_dtype_t dtype;
    ring_redop_t redop;
    int32_t root;
    size_t count;
};
struct perf_time { /* microseconds for one operation */
    double mean, p50, p99;
};
struct perf_result {
    struct perf_case what;
    ring_choice_t choice;
    bool checked;
    struct perf_time time[2]; /* out of place, in place */
    uint64_t wrong[2];
};

struct perf_run; /* the communicator, the buffers and the options of this run */

ring_status_t perf_run_open(const struct perf_options *opt, ring_comm_t *comm, struct perf_run **run_out);
void perf_run_close(struct perf_run *run);
/* Collective: time and check one case. */
ring_status_t perf_measure(struct perf_run *run, const struct perf_case *what, struct perf_result *result_out);

/* ---- report.c ---- */

struct perf_report;

/* Whether the file of -J can be written, asked without changing what is in it; prints why not. */
bool perf_report_possible(const char *path);

/* Only on the rank that prints; all other ranks have NULL, which every function accepts. */
struct perf_report *perf_report_open(const struct perf_options *opt, ring_comm_t *comm);
ring_status_t perf_report_header(struct perf_report *r);
void perf_report_row(struct perf_report *r, const struct perf_result *result);
void perf_report_progress(struct perf_report *r, const struct perf_case *what, const char *doing);
/* Footer and JSON; error NULL: the run was complete.  Values found wrong by any rank, or -1 when the file could not be
 * written. */
int64_t perf_report_close(struct perf_report *r, const char *error);

/* Fewer digits after the point as the number grows, so that columns stay aligned. */
void perf_number_print(double value, int width, char *text, size_t cap);

#endif
