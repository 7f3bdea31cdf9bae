/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - the collectives of an MPI library, for bench.c. */
#include "bench.h"

#include <mpi.h>
#include <stdlib.h>

static struct {
    const struct perf_case *what;
    const struct perf_shape *shape;
    int count, rank, size;
    int *blocks, *begins;
} now;

void peer_open(int *argc, char ***argv, int *rank_out, int *size_out)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &now.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &now.size);
    *rank_out = now.rank;
    *size_out = now.size;
}

void peer_close(void) { MPI_Finalize(); }

bool peer_prepare(const struct perf_case *what, const struct perf_shape *shape)
{
    now.what = what;
    now.shape = shape;
    now.count = (int)shape->count;
    now.blocks = calloc((size_t)now.size, sizeof *now.blocks);
    now.begins = calloc((size_t)now.size, sizeof *now.begins);
    if (!now.blocks || !now.begins)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < now.size; i++) {
        now.blocks[i] = (int)shape->blocks[i];
        now.begins[i] = (int)shape->begins[i];
    }
    return true;
}

void peer_done(void)
{
    free(now.blocks);
    free(now.begins);
}

/* Root is 0. */
void peer_call(const float *src, float *dst)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (now.what->coll->coll) {
    case RING_ALL_REDUCE:
        MPI_Allreduce(src, dst, now.count, MPI_FLOAT, MPI_SUM, world);
        break;
    case RING_REDUCE:
        MPI_Reduce(src, dst, now.count, MPI_FLOAT, MPI_SUM, 0, world);
        break;
    case RING_BROADCAST: /* only in place: what root has is in src */
        MPI_Bcast(now.rank ? dst : (float *)(uintptr_t)src, now.count, MPI_FLOAT, 0, world);
        break;
    case RING_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(src, dst, now.count, MPI_FLOAT, MPI_SUM, world);
        break;
    case RING_ALL_GATHER:
        MPI_Allgather(src, now.count, MPI_FLOAT, dst, now.count, MPI_FLOAT, world);
        break;
    case RING_ALL_TO_ALL:
        MPI_Alltoall(src, now.count, MPI_FLOAT, dst, now.count, MPI_FLOAT, world);
        break;
    case RING_GATHER:
        MPI_Gather(src, now.count, MPI_FLOAT, dst, now.count, MPI_FLOAT, 0, world);
        break;
    case RING_SCATTER:
        MPI_Scatter(src, now.count, MPI_FLOAT, dst, now.count, MPI_FLOAT, 0, world);
        break;
    case RING_BARRIER:
        MPI_Barrier(world);
        break;
    case RING_REDUCE_SCATTERV:
        MPI_Reduce_scatter(src, dst, now.blocks, MPI_FLOAT, MPI_SUM, world);
        break;
    case RING_ALL_GATHERV:
        MPI_Allgatherv(src, now.count, MPI_FLOAT, dst, now.blocks, now.begins, MPI_FLOAT, world);
        break;
    case RING_ALL_TO_ALLV:
        MPI_Alltoallv(src, now.blocks, now.begins, MPI_FLOAT, dst, now.blocks, now.begins, MPI_FLOAT, world);
        break;
    case RING_GATHERV:
        MPI_Gatherv(src, now.count, MPI_FLOAT, dst, now.blocks, now.begins, MPI_FLOAT, 0, world);
        break;
    case RING_SCATTERV:
        MPI_Scatterv(src, now.blocks, now.begins, MPI_FLOAT, dst, now.count, MPI_FLOAT, 0, world);
        break;
    default:
        MPI_Sendrecv(src, now.count, MPI_FLOAT, (now.rank + 1) % now.size, 0, dst, now.count, MPI_FLOAT,
                     (now.rank + now.size - 1) % now.size, 0, world, MPI_STATUS_IGNORE);
    }
}

void peer_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

void peer_largest(double *values, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void peer_sum(double *values, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
