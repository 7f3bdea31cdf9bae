/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - does one thing many times, so that cost.py can count the instructions of it under callgrind.
 *
 * usage: cost CASE TIMES.  Cases of two ranks have both in this process, made by two threads and then driven by one:
 * each starts an operation, and they are tested in turn until both are done, so that nothing waits and a run is the
 * same every time.  The environment says over which way they go. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ring/ring.h>

#include "lib/reduce/reduce.h"

static void die(const char *what)
{
    fprintf(stderr, "cost: %s: %s\n", what, ring_last_error());
    exit(1);
}

/* ---- ranks ---- */

struct member {
    const ring_uid_t *uid;
    uint32_t rank, size;
    ring_comm_t *comm;
    long times;
};

static void *join(void *arg)
{
    struct member *m = arg;
    if (ring_comm_create_uid(m->uid, m->rank, m->size, &m->comm))
        die("joining");
    return NULL;
}

static void *leave(void *arg)
{
    const struct member *m = arg;
    if (ring_comm_destroy(m->comm))
        die("leaving");
    return NULL;
}

static void all(void *(*what)(void *), struct member *members, uint32_t size)
{
    pthread_t thread[2];
    for (uint32_t r = 0; r < size; r++)
        if (pthread_create(&thread[r], NULL, what, &members[r]))
            die("a thread");
    for (uint32_t r = 0; r < size; r++)
        pthread_join(thread[r], NULL);
}

/* ---- cases ---- */

static void one_rank(struct member *members, long times)
{
    float in = 1, out = 0;
    for (long i = 0; i < times; i++)
        if (ring_all_reduce(members[0].comm, &in, &out, 1, RING_FLOAT, RING_SUM))
            die("all-reduce");
}

static void two_ranks_once(struct member *members)
{
    float in[2] = {1, 2}, out[2] = {0, 0};
    ring_op_t *op[2];
    int done[2] = {0, 0};
    for (int r = 0; r < 2; r++)
        if (ring_all_reduce_start(members[r].comm, &in[r], &out[r], 1, RING_FLOAT, RING_SUM, &op[r]))
            die("starting");
    while (!done[0] || !done[1])
        for (int r = 0; r < 2; r++)
            if (!done[r] && ring_op_test(op[r], &done[r]))
                die("testing");
    for (int r = 0; r < 2; r++)
        ring_op_free(op[r]);
    if (out[0] < 3 || out[1] < 3)
        die("a wrong sum");
}

static void two_ranks(struct member *members, long times)
{
    for (long i = 0; i < times; i++)
        two_ranks_once(members);
}

/* Blocking calls, a thread each.  On one processor whoever waits gives it up at once. */
static void *block(void *arg)
{
    struct member *m = arg;
    one_rank(m, m->times);
    return NULL;
}

static void two_blocking(struct member *members, long times)
{
    members[0].times = members[1].times = times;
    all(block, members, 2);
}

static void with_ranks(uint32_t size, void (*work)(struct member *, long), long times)
{
    ring_uid_t uid;
    struct member members[2];
    if (ring_uid_create(&uid))
        die("a ticket");
    for (uint32_t r = 0; r < size; r++)
        members[r] = (struct member){&uid, r, size, NULL, 0};
    all(join, members, size);
    work(members, times);
    all(leave, members, size);
}

enum { ELEMENTS = 1000, FEW = 2 };

/* The best kernels that there are under valgrind, which has no AVX-512. */
static void kernel(ring_dtype_t dtype, size_t count, long times)
{
    static _Alignas(64) double a[ELEMENTS], b[ELEMENTS], c[ELEMENTS];
    const struct ri_reduction r = ri_reduction_for(dtype, RING_SUM);
    for (long i = 0; i < times; i++)
        r.reduce(&r, c, a, b, count);
}

int main(int argc, char **argv)
{
    const char *name = argc == 3 ? argv[1] : "";
    const long times = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (times < 1)
        die("usage: cost CASE TIMES");
    if (!strcmp(name, "call"))
        with_ranks(1, one_rank, times);
    else if (!strcmp(name, "operation"))
        with_ranks(2, two_ranks, times);
    else if (!strcmp(name, "blocking"))
        with_ranks(2, two_blocking, times);
    else if (!strcmp(name, "sum-float"))
        kernel(RING_FLOAT, ELEMENTS, times);
    else if (!strcmp(name, "sum-few-float"))
        kernel(RING_FLOAT, FEW, times);
    else if (!strcmp(name, "sum-bfloat16"))
        kernel(RING_BFLOAT16, ELEMENTS, times);
    else
        die("no such case");
    return 0;
}
