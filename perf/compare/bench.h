/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what a peer library has to give so that bench.c can measure it as ring_perf measures ours.
 *
 * Collectives, sizes and blocks are those of ring_perf (its colls.c is compiled in), the loop is that of perf/loop.h.
 * Float, sum, out of place, root 0. */
#ifndef RING_PERF_BENCH_H
#define RING_PERF_BENCH_H

#include "perf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions that a peer's file defines; what goes wrong is printed there, and ends the program. */
void peer_open(int *argc, char ***argv, int *rank_out, int *size_out);
void peer_close(void);
/* Before the calls of a case; false: the library does not have this collective. */
bool peer_prepare(const struct perf_case *what, const struct perf_shape *shape);
void peer_call(const float *src, float *dst);
void peer_done(void); /* after them */
void peer_barrier(void);
void peer_largest(double *values, int count); /* of all ranks, on rank 0 */
void peer_sum(double *values, int count);     /* on rank 0 */

#ifdef __cplusplus
}
#endif
#endif
