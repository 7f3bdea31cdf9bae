/* SPDX-License-Identifier: Apache-2.0 */
/* engine_cost.c - what the engine itself costs: nanoseconds per message and per small operation, over a transport that
 * does nothing.  Run by "meson test --benchmark"; prints, and fails only when a program does not end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/coll/coll.h"
#include "lib/sched/engine.h"

/* Sends are done at once; what is received is the signature that was sent, then nothing but zeros. */
static struct ri_queue sends, recvs;
static const void *introduction;

static void null_send(struct ri_link *l, struct ri_xfer *x)
{
    (void)l;
    if (!introduction)
        introduction = x->buf;
    ri_queue_put(&sends, x);
}

static void null_recv(struct ri_link *l, struct ri_xfer *x)
{
    (void)l;
    ri_queue_put(&recvs, x);
}

static unsigned null_progress(struct ri_tctx *t, struct ri_queue *done)
{
    static _Alignas(64) char zeros[4096];
    struct ri_xfer *x;
    unsigned moved = 0;
    (void)t;
    while ((x = ri_queue_take(&sends))) {
        ri_queue_put(done, x);
        moved++;
    }
    while (introduction && (x = ri_queue_take(&recvs))) {
        if (x->sink)
            x->sink(x, 0, x->len == sizeof(struct ri_signature) ? introduction : zeros, x->len);
        ri_queue_put(done, x);
        moved++;
    }
    return moved;
}

static uint32_t only_link(const void *arg, uint32_t peer)
{
    (void)arg, (void)peer;
    return 0;
}

static struct ri_transport null_transport = {.send = null_send, .recv = null_recv, .progress = null_progress};
static struct ri_tctx ctx = {.transport = &null_transport};
static struct ri_link wire = {.ctx = &ctx};

static void once(struct ri_engine *e, struct ri_run *run, void *memory, const struct ri_reduction *reduction)
{
    const struct ri_signature signature = {.magic = RI_SIGNATURE_MAGIC};
    bool done = false;
    introduction = NULL;
    ri_run_start(run, memory, memory, reduction, &signature);
    for (unsigned turns = 0; !done; turns++) {
        struct ri_queue list = {0};
        null_progress(&ctx, &list);
        ri_engine_progress(e, &list);
        if (ri_run_state(run, &done) != RING_OK || turns > 1000000) {
            fprintf(stderr, "the program does not end\n");
            exit(1);
        }
    }
}

static void measure(const char *name, size_t count, int times)
{
    struct ri_link *const links[] = {&wire};
    const struct ri_engine_setup setup = {.links = 1, .link = links, .link_of = only_link};
    const struct ri_coll_args args = {.size = 2, .count = count, .esize = 8, .seg = 8};
    const struct ri_reduction reduction = ri_reduction_for(RING_INT64, RING_SUM);
    struct ri_engine *e;
    struct ri_run *run;
    struct ri_sched s = {0};
    void *memory = calloc(count, 8);
    if (!memory || ri_algorithm_named(RING_ALL_REDUCE, name)->build(&s, &args) != RING_OK ||
        ri_engine_open(&setup, &e) != RING_OK || ri_run_new(e, &s, &run) != RING_OK)
        exit(1);
    uint32_t messages = 2; /* the signatures */
    for (uint32_t i = 0; i < s.n; i++)
        messages += s.step[i].op <= RI_RECV_REDUCE;
    once(e, run, memory, &reduction);
    const uint64_t begin = ri_now();
    for (int i = 0; i < times; i++)
        once(e, run, memory, &reduction);
    const double each = (double)(ri_now() - begin) / times;
    printf("%-9s %6zu elements  %6u messages  %10.0f ns an operation  %6.1f ns a message\n", name, count,
           (unsigned)messages, each, each / messages);
    ri_run_free(run);
    ri_engine_close(e);
    ri_sched_free(&s);
    free(memory);
}

/* With arguments (ALGORITHM COUNT TIMES) only that: for who counts instructions. */
int main(int argc, char **argv)
{
    if (argc == 4) {
        measure(argv[1], strtoul(argv[2], NULL, 10), atoi(argv[3]));
        return 0;
    }
    measure("exchange", 1, 300000);
    measure("ring", 2, 300000);
    measure("doubling", 1, 300000);
    measure("ring", 64, 20000);
    measure("ring", 5000, 500);
    measure("exchange", 3000, 500);
    return 0;
}
