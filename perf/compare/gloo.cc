/* SPDX-License-Identifier: Apache-2.0 */
/* gloo.cc - the collectives of Gloo, for bench.c.  Ranks meet in a folder.
 *
 * Environment: GLOO_RANK, GLOO_SIZE, GLOO_STORE (a new folder), GLOO_IFACE, and GLOO_ALGO for all_reduce: ring or bcube
 * (the functions), halving or chunked (the older classes, which work in place, so that the input is copied first).
 * scatterv and gatherv are not there; the reduce-scatter is the older class. */
#include "bench.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

namespace {

struct Now {
    std::shared_ptr<gloo::rendezvous::Context> context;
    const struct perf_case *what;
    const struct perf_shape *shape;
    std::string algorithm;
    std::function<void(const float *, float *)> call;
    std::map<float *, std::shared_ptr<gloo::Algorithm>> older; /* by buffer: they are made for one */
} now;

const char *variable(const char *name)
{
    const char *value = std::getenv(name);
    if (!value) {
        std::cerr << "bench: " << name << " is not set\n";
        std::exit(2);
    }
    return value;
}

float *mine(const float *src) { return const_cast<float *>(src); } /* Gloo's inputs are not const */

void all_reduce(const float *src, float *dst)
{
    gloo::AllreduceOptions options(now.context);
    options.setAlgorithm(now.algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                  : gloo::AllreduceOptions::Algorithm::RING);
    options.setInput(mine(src), now.shape->count);
    options.setOutput(dst, now.shape->count);
    options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
}

template <typename Algorithm> void all_reduce_in_place(const float *src, float *dst)
{
    auto &algorithm = now.older[dst];
    if (!algorithm)
        algorithm = std::make_shared<Algorithm>(now.context, std::vector<float *>{dst}, now.shape->count);
    std::memcpy(dst, src, now.shape->count * sizeof *dst);
    algorithm->run();
}

/* In place too, and dst has room for all blocks. */
void reduce_scatter(const float *src, float *dst)
{
    auto &algorithm = now.older[dst];
    if (!algorithm) {
        const std::vector<int> counts(now.shape->blocks, now.shape->blocks + now.shape->size);
        algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
            now.context, std::vector<float *>{dst}, now.shape->sends, counts);
    }
    std::memcpy(dst, src, now.shape->sends * sizeof *dst);
    algorithm->run();
}

void reduce(const float *src, float *dst)
{
    gloo::ReduceOptions options(now.context);
    options.setRoot(0);
    options.setInput(mine(src), now.shape->count);
    options.setOutput(dst, now.shape->count);
    options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::reduce(options);
}

void broadcast(const float *src, float *dst)
{
    gloo::BroadcastOptions options(now.context);
    options.setRoot(0);
    if (now.shape->rank == 0)
        options.setInput(mine(src), now.shape->count);
    options.setOutput(dst, now.shape->count);
    gloo::broadcast(options);
}

void all_gather(const float *src, float *dst)
{
    gloo::AllgatherOptions options(now.context);
    options.setInput(mine(src), now.shape->sends);
    options.setOutput(dst, now.shape->receives);
    gloo::allgather(options);
}

void all_gatherv(const float *src, float *dst)
{
    gloo::AllgathervOptions options(now.context);
    options.setInput(mine(src), now.shape->sends);
    options.setOutput(dst, std::vector<size_t>(now.shape->blocks, now.shape->blocks + now.shape->size));
    gloo::allgatherv(options);
}

void all_to_all(const float *src, float *dst)
{
    gloo::AlltoallOptions options(now.context);
    options.setInput(mine(src), now.shape->sends);
    options.setOutput(dst, now.shape->receives);
    gloo::alltoall(options);
}

void all_to_allv(const float *src, float *dst)
{
    const std::vector<int64_t> counts(now.shape->blocks, now.shape->blocks + now.shape->size);
    gloo::AlltoallvOptions options(now.context);
    options.setInput(mine(src), counts);
    options.setOutput(dst, counts);
    gloo::alltoallv(options);
}

void gather(const float *src, float *dst)
{
    gloo::GatherOptions options(now.context);
    options.setRoot(0);
    options.setInput(mine(src), now.shape->sends);
    if (now.shape->rank == 0)
        options.setOutput(dst, now.shape->receives);
    gloo::gather(options);
}

void scatter(const float *src, float *dst)
{
    gloo::ScatterOptions options(now.context);
    options.setRoot(0);
    if (now.shape->rank == 0) {
        std::vector<float *> blocks;
        for (uint32_t r = 0; r < now.shape->size; r++)
            blocks.push_back(mine(src) + now.shape->begins[r]);
        options.setInputs(blocks, now.shape->count);
    }
    options.setOutput(dst, now.shape->receives);
    gloo::scatter(options);
}

void barrier(const float *, float *)
{
    gloo::BarrierOptions options(now.context);
    gloo::barrier(options);
}

void sendrecv(const float *src, float *dst)
{
    const int size = static_cast<int>(now.shape->size), rank = static_cast<int>(now.shape->rank);
    const size_t bytes = now.shape->count * sizeof *src;
    auto out = now.context->createUnboundBuffer(mine(src), bytes);
    auto in = now.context->createUnboundBuffer(dst, bytes);
    in->recv((rank + size - 1) % size, 7);
    out->send((rank + 1) % size, 7);
    out->waitSend();
    in->waitRecv();
}

std::function<void(const float *, float *)> call_of(const struct perf_case *what)
{
    switch (what->coll->coll) {
    case RING_ALL_REDUCE:
        if (now.algorithm == "halving")
            return all_reduce_in_place<gloo::AllreduceHalvingDoubling<float>>;
        if (now.algorithm == "chunked")
            return all_reduce_in_place<gloo::AllreduceRingChunked<float>>;
        return all_reduce;
    case RING_REDUCE:
        return reduce;
    case RING_BROADCAST:
        return broadcast;
    case RING_REDUCE_SCATTER:
    case RING_REDUCE_SCATTERV:
        return reduce_scatter;
    case RING_ALL_GATHER:
        return all_gather;
    case RING_ALL_GATHERV:
        return all_gatherv;
    case RING_ALL_TO_ALL:
        return all_to_all;
    case RING_ALL_TO_ALLV:
        return all_to_allv;
    case RING_GATHER:
        return gather;
    case RING_SCATTER:
        return scatter;
    case RING_BARRIER:
        return barrier;
    case RING_SEND:
        return sendrecv;
    default:
        return nullptr;
    }
}

void over_ranks(double *values, int count, void (*function)(void *, const void *, const void *, size_t))
{
    gloo::AllreduceOptions options(now.context);
    options.setOutput(values, static_cast<size_t>(count));
    options.setReduceFunction(function);
    gloo::allreduce(options);
}

} // namespace

void peer_open(int *, char ***, int *rank_out, int *size_out)
{
    gloo::transport::tcp::attr where;
    const char *algorithm = std::getenv("GLOO_ALGO");
    *rank_out = std::atoi(variable("GLOO_RANK"));
    *size_out = std::atoi(variable("GLOO_SIZE"));
    where.iface = variable("GLOO_IFACE");
    where.ai_family = AF_INET;
    now.algorithm = algorithm ? algorithm : "ring";
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(variable("GLOO_STORE"));
    now.context = std::make_shared<gloo::rendezvous::Context>(*rank_out, *size_out);
    now.context->connectFullMesh(store, device);
}

void peer_close() { now.context.reset(); }

bool peer_prepare(const struct perf_case *what, const struct perf_shape *shape)
{
    now.what = what;
    now.shape = shape;
    now.call = call_of(what);
    return static_cast<bool>(now.call);
}

void peer_call(const float *src, float *dst) { now.call(src, dst); }

void peer_done()
{
    peer_barrier();
    now.older.clear();
}

void peer_barrier() { barrier(nullptr, nullptr); }

void peer_largest(double *values, int count)
{
    over_ranks(values, count, static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::max<double>));
}

void peer_sum(double *values, int count)
{
    over_ranks(values, count, static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<double>));
}
