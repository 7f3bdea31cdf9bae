/* SPDX-License-Identifier: Apache-2.0 */
/* What arrives on a data link: a signature and then messages, all from the input.  A rank of a ring all-reduce of two
 * receives them; whatever they are, only its own buffer may change, and only after the right signature. */
#include <string.h>

#include "fuzz.h"
#include "lib/coll/coll.h"
#include "lib/sched/engine.h"

enum { COUNT = 300, GUARD = 64 };

static struct ri_queue sends, recvs;
static const uint8_t *input;
static size_t left;
static unsigned disagreements;

static void take_send(struct ri_link *l, struct ri_xfer *x)
{
    (void)l;
    ri_queue_put(&sends, x);
}

static void take_recv(struct ri_link *l, struct ri_xfer *x)
{
    (void)l;
    ri_queue_put(&recvs, x);
}

/* The input's bytes, then zeros. */
static void fill(struct ri_xfer *x)
{
    static _Alignas(64) uint8_t bytes[1 << 16];
    const size_t n = x->len < left ? x->len : left;
    HOLDS(x->len <= sizeof bytes);
    memcpy(bytes, input, n);
    memset(bytes + n, 0, x->len - n);
    input += n;
    left -= n;
    if (x->sink)
        x->sink(x, 0, bytes, x->len);
    else
        memcpy(x->buf, bytes, x->len);
}

static unsigned move(struct ri_queue *done)
{
    unsigned moved = 0;
    for (struct ri_xfer *x; (x = ri_queue_take(&sends)); moved++)
        ri_queue_put(done, x);
    struct ri_xfer *x = ri_queue_take(&recvs);
    if (x) {
        fill(x);
        ri_queue_put(done, x);
    }
    return moved + (x != NULL);
}

static uint32_t only_link(const void *arg, uint32_t peer)
{
    (void)arg, (void)peer;
    return 0;
}

static void differ(void *owner, uint32_t peer, const struct ri_signature *mine, const struct ri_signature *theirs)
{
    (void)owner;
    HOLDS(peer == 1 && memcmp(mine, theirs, sizeof *mine));
    disagreements++;
}

static void run_once(struct ri_engine *e, const struct ri_sched *s, int32_t *dst)
{
    static const int32_t src[COUNT];
    const struct ri_signature mine = {.magic = RI_SIGNATURE_MAGIC,
                                      .seq = 1,
                                      .dtype = RING_INT32,
                                      .count = COUNT,
                                      .bytes = COUNT * sizeof(int32_t)}; /* half of it in each lap */
    const struct ri_reduction sum = ri_reduction_for(RING_INT32, RING_SUM);
    struct ri_run *run;
    bool done = false;
    ring_status_t status = ri_run_new(e, s, &run);
    HOLDS(!status);
    uint8_t first[sizeof mine] = {0}; /* what is missing arrives as zeros */
    memcpy(first, input, left < sizeof first ? left : sizeof first);
    const bool right = !memcmp(first, &mine, sizeof mine);
    ri_run_start(run, src, dst, &sum, &mine);
    for (int i = 0; i < 1000 && !done && !status; i++) {
        struct ri_queue finished = {0};
        move(&finished);
        ri_engine_progress(e, &finished);
        status = ri_run_state(run, &done);
    }
    HOLDS(right ? done && !status && !disagreements : status == RING_ERR_MISMATCH && disagreements == 1);
    for (size_t i = 0; i < COUNT && !right; i++)
        HOLDS(dst[i] == 7);
    ri_run_free(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct ri_transport fake = {.send = take_send, .recv = take_recv};
    struct ri_tctx ctx = {.transport = &fake};
    struct ri_link link = {.ctx = &ctx}, *links[] = {&link};
    const struct ri_engine_setup setup = {.links = 1, .link = links, .link_of = only_link, .mismatch = differ};
    const struct ri_coll_args args = {.size = 2, .count = COUNT, .esize = 4, .seg = 256};
    int32_t memory[COUNT + 2 * GUARD];
    struct ri_sched s = {0};
    struct ri_engine *e = NULL;
    sends = recvs = (struct ri_queue){0};
    input = bytes;
    left = len;
    disagreements = 0;
    for (size_t i = 0; i < COUNT + 2 * GUARD; i++)
        memory[i] = 7;
    HOLDS(!ri_algorithm_named(RING_ALL_REDUCE, "ring")->build(&s, &args) && !ri_engine_open(&setup, &e));
    run_once(e, &s, memory + GUARD);
    for (size_t i = 0; i < GUARD; i++)
        HOLDS(memory[i] == 7 && memory[COUNT + GUARD + i] == 7);
    ri_engine_close(e);
    ri_sched_free(&s);
    return 0;
}
