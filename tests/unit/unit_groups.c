/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks, groups, persistent operations, operations of the caller's own, and communicators made
 * from others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/ranks.h"
#include "tests/unit/slower.h"

static int32_t mark(uint32_t from, uint32_t to, uint32_t i) { return (int32_t)(from * 1000003 + to * 1009 + i); }

static void fill(int32_t *p, size_t n, int32_t x)
{
    for (size_t i = 0; i < n; i++)
        p[i] = x + (int32_t)i;
}

static void expect(const int32_t *p, size_t n, int32_t x, const char *what)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(p[i], x + (int32_t)i, "%s: element %zu is %d instead of %d", what, i, p[i], x + (int32_t)i);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* Round the ring, in sizes from nothing to what no buffer of a link holds. */
static void around(struct rank *r)
{
    const uint32_t n = r->job->size, next = (r->rank + 1) % n, prev = (r->rank + n - 1) % n;
    static const size_t counts[] = {0, 1, 7, 5000, 600000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t count = counts[i];
        int32_t *src = malloc(count * 4 + 4), *dst = malloc(count * 4 + 4);
        fill(src, count, mark(r->rank, next, (uint32_t)i));
        dst[count] = -7;
        WORKS(ring_sendrecv(r->comm, src, count, next, dst, count, prev, RING_INT32));
        expect(dst, count, mark(prev, r->rank, (uint32_t)i), "sendrecv");
        cr_assert_eq(dst[count], -7);
        free(src);
        free(dst);
    }
}

Test(messages, around_the_ring, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 5, 0}, around); }

static void ping_pong(struct rank *r)
{
    const uint32_t peer = r->rank ^ 1;
    for (int32_t i = 0; i < 500 / SLOWER && peer < r->job->size; i++) {
        int32_t x = i, y = -1;
        if (r->rank < peer) {
            WORKS(ring_send(r->comm, &x, 1, RING_INT32, peer));
            WORKS(ring_recv(r->comm, &y, 1, RING_INT32, peer));
        } else {
            WORKS(ring_recv(r->comm, &y, 1, RING_INT32, peer));
            WORKS(ring_send(r->comm, &y, 1, RING_INT32, peer));
        }
        cr_assert_eq(y, i);
    }
    WORKS(ring_barrier(r->comm));
}

Test(messages, blocking_there_and_back, .timeout = 100) { by_every_way((uint32_t[]){2, 5, 0}, ping_pong); }

/* Each rank goes through its peers in another order; blocking calls in that order would not end. */
static void everybody_to_everybody(struct rank *r)
{
    enum { COUNT = 3000 };
    const uint32_t n = r->job->size;
    int32_t *src = malloc(n * COUNT * 4), *dst = calloc(n * COUNT, 4), sums[2] = {(int32_t)r->rank, 1};
    for (uint32_t p = 0; p < n; p++)
        fill(src + p * COUNT, COUNT, mark(r->rank, p, 0));
    WORKS(ring_group_start(r->comm));
    WORKS(ring_all_reduce(r->comm, sums, sums, 1, RING_INT32, RING_SUM));
    for (uint32_t i = 0; i < n; i++)
        WORKS(ring_send(r->comm, src + (r->rank * 3 + i) % n * COUNT, COUNT, RING_INT32, (r->rank * 3 + i) % n));
    for (uint32_t i = 0; i < n; i++)
        WORKS(ring_recv(r->comm, dst + (r->rank + n - i) % n * COUNT, COUNT, RING_INT32, (r->rank + n - i) % n));
    WORKS(ring_all_reduce(r->comm, sums + 1, sums + 1, 1, RING_INT32, RING_SUM));
    WORKS(ring_group_end(r->comm));
    for (uint32_t p = 0; p < n; p++)
        expect(dst + p * COUNT, COUNT, mark(p, r->rank, 0), "group");
    cr_assert_eq(sums[0], (int32_t)(n * (n - 1) / 2));
    cr_assert_eq(sums[1], (int32_t)n);
    free(src);
    free(dst);
}

Test(groups, messages_in_any_order, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 5, 0}, everybody_to_everybody); }

/* Many at once, more than are packed into one, of several types; nested, with a refused one among them. */
static void many_small(struct rank *r)
{
    enum { MANY = 200 };
    static const size_t lengths[] = {1, 3, 0, 700, 2, 5000};
    const uint32_t n = r->job->size;
    double *d = malloc(MANY * 8);
    int32_t *buffers[MANY];
    WORKS(ring_group_start(r->comm));
    WORKS(ring_group_start(r->comm));
    for (uint32_t i = 0; i < MANY; i++) {
        const size_t count = lengths[i % 6];
        buffers[i] = malloc(count * 4 + 4);
        fill(buffers[i], count, (int32_t)(i * r->rank));
        WORKS(ring_all_reduce(r->comm, buffers[i], buffers[i], count, RING_INT32, i < 150 ? RING_SUM : RING_MAX));
        d[i] = r->rank + i;
        if (i % 7 == 0)
            WORKS(ring_all_reduce(r->comm, &d[i], &d[i], 1, RING_DOUBLE, RING_SUM));
    }
    cr_assert_eq(ring_all_reduce(r->comm, NULL, d, 1, RING_DOUBLE, RING_SUM), RING_ERR_INVALID);
    WORKS(ring_group_end(r->comm));
    WORKS(ring_group_end(r->comm));
    for (uint32_t i = 0; i < MANY; i++) {
        for (size_t k = 0; k < lengths[i % 6]; k++)
            cr_assert_eq(buffers[i][k], i < 150 ? (int32_t)(i * (n * (n - 1) / 2) + n * k) : (int32_t)(i * (n - 1) + k),
                         "call %u, element %zu", i, k);
        if (i % 7 == 0)
            cr_assert_float_eq(d[i], n * (n - 1) / 2.0 + n * i, 1e-9);
        free(buffers[i]);
    }
    free(d);
}

Test(groups, many_small_reductions, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 5, 0}, many_small); }

static void wrong_groups(struct rank *r)
{
    int32_t x = 1;
    ring_op_t *op;
    ring_comm_t *other;
    cr_assert_eq(ring_group_end(r->comm), RING_ERR_STATE);
    WORKS(ring_group_start(r->comm));
    cr_assert_eq(ring_all_reduce_start(r->comm, &x, &x, 1, RING_INT32, RING_SUM, &op), RING_ERR_STATE);
    cr_assert_eq(ring_comm_duplicate(r->comm, &other), RING_ERR_STATE);
    WORKS(ring_group_end(r->comm));
    /* A send to itself that nothing takes is taken back. */
    WORKS(ring_group_start(r->comm));
    WORKS(ring_send(r->comm, &x, 1, RING_INT32, r->rank));
    cr_assert_eq(ring_group_end(r->comm), RING_ERR_STATE);
    WORKS(ring_all_reduce(r->comm, &x, &x, 1, RING_INT32, RING_SUM));
    cr_assert_eq(x, (int32_t)r->job->size);
    WORKS(ring_group_start(r->comm)); /* never ended: destroy drops it */
    WORKS(ring_barrier(r->comm));
}

Test(groups, used_wrongly, .timeout = 100) { by_every_way((uint32_t[]){2, 0}, wrong_groups); }

static void differing_messages(struct rank *r)
{
    int32_t x[4] = {0};
    ring_status_t status = r->rank ? ring_recv(r->comm, x, 4, RING_INT32, 0) : ring_send(r->comm, x, 3, RING_INT32, 1);
    while (!status)
        status = ring_barrier(r->comm);
    cr_assert_eq(status, RING_ERR_MISMATCH, "%s", ring_last_error());
}

Test(messages, of_differing_lengths, .timeout = 100) { by_every_way((uint32_t[]){2, 0}, differing_messages); }

/* One that carries nothing is told from one that should carry something, whatever comes behind it. */
static void nothing_for_something(struct rank *r)
{
    int32_t x[4] = {0};
    ring_status_t status = r->rank ? ring_recv(r->comm, x, 4, RING_INT32, 0) : ring_send(r->comm, x, 0, RING_INT32, 1);
    while (!status)
        status = ring_barrier(r->comm);
    cr_assert_eq(status, RING_ERR_MISMATCH, "%s", ring_last_error());
    cr_assert_not_null(strstr(ring_last_error(), "calls recv of 4 int32, rank 0"), "%s", ring_last_error());
}

Test(messages, of_nothing, .timeout = 100) { by_every_way((uint32_t[]){2, 0}, nothing_for_something); }

/* All have joined; but rank 0, which aborts next, may do so before the others are out of the barrier. */
static void meet_before_an_abort(struct rank *r)
{
    const ring_status_t met = ring_barrier(r->comm);
    cr_assert(!met || (r->rank && met == RING_ERR_ABORTED), "%s", ring_last_error());
}

/* ---- operations that outlive their communicator ----------------------------------------------------------------- */

/* What a failure cut short must not look complete. */
static void cut_short(struct rank *r)
{
    enum { COUNT = 1000 };
    int32_t *buffer = calloc(4 * COUNT, sizeof *buffer);
    ring_op_t *op[3];
    int done = 0;
    meet_before_an_abort(r);
    /* Nobody sends or calls what rank 0 waits for; nor does anybody receive from it, where the all-reduce would come
     * first and not be what is expected. */
    if (r->rank) {
        const uint32_t other = ring_comm_size(r->comm) - r->rank;
        while (other == r->rank && !*ring_comm_error(r->comm))
            usleep(1000);
        cr_assert_eq(ring_recv(r->comm, buffer, 1, RING_INT32, other == r->rank ? 0 : other), RING_ERR_ABORTED, "%s",
                     ring_last_error());
        free(buffer);
        return;
    }
    WORKS(ring_recv_start(r->comm, buffer, COUNT, RING_INT32, 1, &op[0]));
    WORKS(ring_recv_start(r->comm, buffer + COUNT, COUNT, RING_INT32, 0, &op[1]));
    WORKS(ring_all_reduce_start(r->comm, buffer + 2 * COUNT, buffer + 3 * COUNT, COUNT, RING_INT32, RING_SUM, &op[2]));
    ring_comm_abort(r->comm, "enough");
    cr_assert_eq(ring_comm_destroy(r->comm), RING_ERR_ABORTED);
    r->comm = NULL;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(ring_op_wait(op[i]), RING_ERR_ABORTED, "operation %d", i);
        cr_assert_eq(ring_op_test(op[i], &done), RING_ERR_ABORTED, "operation %d", i);
        cr_assert_eq(done, 1);
    }
    for (int i = 0; i < 3; i++)
        ring_op_free(op[i]);
    free(buffer);
}

Test(outliving, an_abort, .timeout = 100) { by_every_way((uint32_t[]){2, 3, 0}, cut_short); }

/* A receive from itself that met no send. */
static void met_nothing(struct rank *r)
{
    int32_t x = 0;
    ring_op_t *op;
    WORKS(ring_recv_start(r->comm, &x, 1, RING_INT32, r->rank, &op));
    cr_assert_eq(ring_comm_destroy(r->comm), RING_OK);
    r->comm = NULL;
    cr_assert_eq(ring_op_wait(op), RING_ERR_STATE);
    ring_op_free(op);
}

Test(outliving, a_message_that_met_nothing, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 0}, met_nothing); }

/* ---- each rank in its own way ---------------------------------------------------------------------------------- */

/* Who waits when, and who gives the same buffer twice, is a rank's own affair: the calls are the same. */
static void in_its_own_way(struct rank *r)
{
    enum { COUNT = 400 };
    const uint32_t n = r->job->size;
    int32_t *src = malloc(n * COUNT * 4), *dst = malloc(n * COUNT * 4), x = (int32_t)r->rank, y = -1;
    for (uint32_t round = 0; round < 3 * n; round++) {
        const bool odd = r->rank == round % n;
        const uint32_t root = round / 3;
        ring_op_t *op;
        WORKS(ring_broadcast_start(r->comm, &x, &y, 1, RING_INT32, root, &op));
        if (odd)
            WORKS(ring_op_wait(op));
        WORKS(ring_barrier(r->comm));
        WORKS(ring_op_wait(op));
        ring_op_free(op);
        cr_assert_eq(y, (int32_t)root);
        for (uint32_t p = 0; p < n; p++)
            fill(src + p * COUNT, COUNT, mark(r->rank, p, round));
        WORKS(ring_all_to_all(r->comm, src, odd ? src : dst, COUNT, RING_INT32));
        for (uint32_t p = 0; p < n; p++)
            expect((odd ? src : dst) + p * COUNT, COUNT, mark(p, r->rank, round), "all_to_all");
    }
    WORKS(ring_comm_destroy(r->comm));
    r->comm = NULL;
    free(src);
    free(dst);
}

Test(same_calls, each_rank_in_its_own_way, .timeout = 100) { by_every_way((uint32_t[]){2, 3, 0}, in_its_own_way); }

/* And another root is another call, in whatever way it is made.  All have joined; but who is late to hear so may hear
 * how it ended. */
static void another_root(struct rank *r)
{
    int32_t x[2] = {0};
    ring_op_t *op = NULL;
    ring_status_t status = ring_barrier(r->comm);
    if (!status && r->rank)
        status = ring_broadcast_start(r->comm, x, x, 1, RING_INT32, r->rank, &op);
    else if (!status)
        status = ring_broadcast(r->comm, x, x, 1, RING_INT32, 0);
    if (op) {
        const ring_status_t waited = ring_op_wait(op);
        status = status ? status : waited;
        ring_op_free(op);
    }
    const ring_status_t left = ring_comm_destroy(r->comm);
    r->comm = NULL;
    cr_assert_eq(left, RING_ERR_MISMATCH, "%s", ring_last_error());
    cr_assert(!status || status == RING_ERR_MISMATCH);
}

Test(same_calls, another_root_is_another_call, .timeout = 100) { by_every_way((uint32_t[]){2, 3, 0}, another_root); }

/* ---- two communicators ----------------------------------------------------------------------------------------- */

static void leave_it(ring_comm_t *c) { WORKS(ring_comm_destroy(c)); }

static void meet_there(ring_comm_t *c)
{
    WORKS(ring_barrier(c));
    leave_it(c);
}

static void meet_there_in_a_group(ring_comm_t *c)
{
    WORKS(ring_group_start(c));
    WORKS(ring_barrier(c));
    WORKS(ring_group_end(c));
    leave_it(c);
}

static void part_there(ring_comm_t *c)
{
    ring_comm_t *part;
    WORKS(ring_comm_split(c, 0, 0, &part));
    leave_it(part);
    leave_it(c);
}

static void ask_there(ring_comm_t *c)
{
    ring_op_t *op;
    WORKS(ring_barrier_start(c, &op));
    for (int done = 0; !done;)
        WORKS(ring_op_test(op, &done));
    ring_op_free(op);
    leave_it(c);
}

/* What is too large to be under way without its root: the last rank waits for it, the others for the last rank in
 * another communicator. */
static void waits_elsewhere(struct rank *r)
{
    enum { COUNT = 3 << 20, LAST = 1000 };
    static void (*const there[])(ring_comm_t * c) = {leave_it, meet_there, meet_there_in_a_group, part_there,
                                                     ask_there};
    int32_t *x = malloc(COUNT * 4);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        ring_comm_t *other;
        ring_op_t *op;
        WORKS(ring_comm_duplicate(r->comm, &other));
        fill(x, COUNT, r->rank ? -1 : (int32_t)i);
        WORKS(ring_broadcast_start(r->comm, x, x, COUNT, RING_INT32, 0, &op));
        if (r->rank == r->job->size - 1)
            WORKS(ring_op_wait(op));
        there[i](other);
        WORKS(ring_op_wait(op));
        ring_op_free(op);
        expect(x, LAST, (int32_t)i, "broadcast");
        expect(x + COUNT - LAST, LAST, (int32_t)i + COUNT - LAST, "broadcast");
    }
    free(x);
}

Test(two_communicators, of_which_each_rank_waits_in_another, .timeout = 100)
{
    by_every_way((uint32_t[]){2, 3, 0}, waits_elsewhere);
}

/* ---- persistent operations ------------------------------------------------------------------------------------- */

static void again_and_again(struct rank *r)
{
    enum { COUNT = 2000, OPS = 3 };
    const uint32_t n = r->job->size;
    int32_t *src = malloc(COUNT * 4), *dst[OPS];
    ring_op_t *op[OPS];
    for (int i = 0; i < OPS; i++) {
        dst[i] = malloc(COUNT * 4);
        const ring_call_t call = {.coll = RING_ALL_REDUCE,
                                  .dtype = RING_INT32,
                                  .redop = i ? RING_MAX : RING_SUM,
                                  .src = src,
                                  .dst = dst[i],
                                  .count = COUNT};
        WORKS(ring_op_prepare(r->comm, &call, &op[i]));
        WORKS(ring_op_wait(op[i])); /* not started: nothing to wait for */
    }
    for (int32_t round = 0; round < 50; round++) {
        fill(src, COUNT, round * (int32_t)(r->rank + 1));
        for (int i = 0; i < OPS; i++)
            WORKS(ring_op_start(op[(round + i) % OPS]));
        for (int i = 0; i < OPS; i++)
            WORKS(ring_op_wait(op[(r->rank + (uint32_t)i) % OPS]));
        for (int32_t k = 0; k < COUNT; k++) {
            cr_assert_eq(dst[0][k], round * (int32_t)(n * (n + 1) / 2) + (int32_t)n * k);
            cr_assert_eq(dst[1][k], round * (int32_t)n + k);
        }
    }
    for (int i = 0; i < OPS; i++) {
        ring_op_free(op[i]);
        free(dst[i]);
    }
    free(src);
}

Test(persistent, started_again_and_again, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 5, 0}, again_and_again); }

static void persistent_used_wrongly(struct rank *r)
{
    int32_t x = 1, y;
    ring_op_t *op, *once;
    const ring_call_t call = {
        .coll = RING_ALL_REDUCE, .dtype = RING_INT32, .redop = RING_SUM, .src = &x, .dst = &y, .count = 1};
    WORKS(ring_op_prepare(r->comm, &call, &op));
    if (r->rank) {
        nap_ms(50);
        WORKS(ring_op_start(op));
    } else {
        WORKS(ring_op_start(op));
        cr_assert_eq(ring_op_start(op), RING_ERR_STATE);
    }
    WORKS(ring_op_wait(op));
    cr_assert_eq(y, (int32_t)r->job->size);
    WORKS(ring_all_reduce_start(r->comm, &x, &y, 1, RING_INT32, RING_SUM, &once));
    WORKS(ring_op_wait(once));
    cr_assert_eq(ring_op_start(once), RING_ERR_STATE);
    ring_op_free(once);
    ring_comm_t *c = r->comm;
    WORKS(ring_comm_duplicate(c, &r->comm));
    WORKS(ring_comm_destroy(c));
    cr_assert_eq(ring_op_start(op), RING_ERR_STATE);
    ring_op_free(op);
}

Test(persistent, used_wrongly, .timeout = 100) { by_every_way((uint32_t[]){2, 0}, persistent_used_wrongly); }

/* ---- operations of the caller's own ---------------------------------------------------------------------------- */

/* x (+) y = x + y + context; associative and commutative. */
static void add_and_more(void *dst, const void *a, const void *b, size_t count, ring_dtype_t dtype, void *context)
{
    cr_assert_eq(dtype, RING_INT32);
    for (size_t i = 0; i < count; i++)
        ((int32_t *)dst)[i] = ((const int32_t *)a)[i] + ((const int32_t *)b)[i] + *(const int32_t *)context;
}

static void own_operations(struct rank *r)
{
    static const size_t counts[] = {1, 3000, 100000};
    const int32_t n = (int32_t)r->job->size;
    int32_t more = 10;
    ring_redop_t op, scaled;
    const float factor = (float)(r->rank + 1);
    WORKS(ring_redop_create(r->comm, add_and_more, &more, &op));
    WORKS(ring_redop_create_premul(r->comm, &factor, RING_FLOAT, &scaled));
    for (size_t i = 0; i < 3; i++) {
        int32_t *src = malloc(counts[i] * 4), *dst = malloc(counts[i] * 4);
        float *f = malloc(counts[i] * 4), *g = malloc(counts[i] * 4);
        fill(src, counts[i], (int32_t)r->rank);
        WORKS(ring_all_reduce(r->comm, src, dst, counts[i], RING_INT32, op));
        for (size_t k = 0; k < counts[i]; k++) {
            cr_assert_eq(dst[k], n * (n - 1) / 2 + n * (int32_t)k + (n - 1) * more);
            f[k] = (float)(k % 100);
        }
        WORKS(ring_all_reduce(r->comm, f, g, counts[i], RING_FLOAT, scaled));
        for (size_t k = 0; k < counts[i]; k++) {
            cr_assert_eq(f[k], (float)(k % 100), "the source changed");
            cr_assert_eq(g[k], (float)(k % 100) * (float)(n * (n + 1) / 2));
        }
        WORKS(ring_reduce(r->comm, f, f, counts[i], RING_FLOAT, scaled, 0));
        for (size_t k = 0; k < counts[i]; k++)
            cr_assert_eq(f[k], (float)(k % 100) * (r->rank ? 1.f : (float)(n * (n + 1) / 2)));
        free(src);
        free(dst);
        free(f);
        free(g);
    }
    int32_t x = 0;
    cr_assert_eq(ring_all_reduce(r->comm, &x, &x, 1, RING_INT32, scaled), RING_ERR_INVALID);
    WORKS(ring_redop_destroy(r->comm, op));
    cr_assert_eq(ring_redop_destroy(r->comm, op), RING_ERR_INVALID);
    cr_assert_eq(ring_all_reduce(r->comm, &x, &x, 1, RING_INT32, op), RING_ERR_INVALID);
    cr_assert_eq(ring_redop_create(r->comm, NULL, NULL, &op), RING_ERR_INVALID);
}

Test(operations, of_the_callers_own, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 5, 0}, own_operations); }

/* ---- split and duplicate --------------------------------------------------------------------------------------- */

static void check_part(ring_comm_t *c, int32_t mine, int32_t sum)
{
    int32_t x = mine, y = 0;
    WORKS(ring_all_reduce(c, &x, &y, 1, RING_INT32, RING_SUM));
    cr_assert_eq(y, sum);
}

/* Odd and even, numbered backwards; the last rank joins nothing. */
static void odd_and_even(struct rank *r)
{
    const uint32_t n = r->job->size;
    const bool out = r->rank == n - 1;
    ring_comm_t *part = r->comm, *twin;
    WORKS(ring_comm_split(r->comm, out ? RING_NO_COLOR : (int32_t)(r->rank % 2), -(int32_t)r->rank, &part));
    cr_assert_eq(part == NULL, out);
    uint32_t size = 0, before = 0;
    int32_t sum = 0;
    for (uint32_t p = r->rank % 2; p < n - 1; p += 2) {
        size++;
        before += p > r->rank;
        sum += (int32_t)p;
    }
    if (part) {
        cr_assert_eq(ring_comm_size(part), size);
        cr_assert_eq(ring_comm_rank(part), before);
        check_part(part, (int32_t)r->rank, sum);
        WORKS(ring_comm_duplicate(part, &twin));
        WORKS(ring_comm_destroy(part));
        check_part(twin, (int32_t)r->rank, sum);
        WORKS(ring_comm_destroy(twin));
    }
    check_part(r->comm, 1, (int32_t)n);
}

Test(split, odd_and_even, .timeout = 100) { by_every_way((uint32_t[]){1, 2, 5, 8, 0}, odd_and_even); }

static void split_that_fails(struct rank *r)
{
    ring_comm_t *part;
    meet_before_an_abort(r);
    if (!r->rank)
        ring_comm_abort(r->comm, "no wish to split");
    const ring_status_t status = ring_comm_split(r->comm, 0, 0, &part);
    cr_assert_eq(status, RING_ERR_ABORTED, "%s", ring_last_error());
    cr_assert_not_null(strstr(ring_last_error(), "no wish to split"), "%s", ring_last_error());
}

Test(split, after_an_abort, .timeout = 100) { by_every_way((uint32_t[]){2, 3, 0}, split_that_fails); }

static void split_against_reduce(struct rank *r)
{
    int32_t x = 0;
    ring_comm_t *part;
    const ring_status_t status =
        r->rank ? ring_comm_split(r->comm, 0, 0, &part) : ring_all_reduce(r->comm, &x, &x, 1, RING_INT32, RING_SUM);
    cr_assert_eq(status, RING_ERR_MISMATCH, "%s", ring_last_error());
    cr_assert_not_null(strstr(ring_last_error(), "ring_comm_split()"), "%s", ring_last_error());
}

Test(split, against_another_call, .timeout = 100) { by_every_way((uint32_t[]){2, 0}, split_against_reduce); }
