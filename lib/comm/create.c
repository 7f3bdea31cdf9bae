/* SPDX-License-Identifier: Apache-2.0 */
/* create.c - from a boot to a working communicator, and back to nothing. One teardown takes any half-built state. */
#include "lib/comm/comm.h"

#include <pthread.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

/* ---- fork ------------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void forked(void) { atomic_fetch_add(&generation, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }
uint32_t ri_comm_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

/* ---- making ---------------------------------------------------------------------------------------------------- */

static ring_status_t allocate(const struct ri_boot *b, const struct ri_conf *conf, struct ring_comm **comm_out)
{
    struct ring_comm *c = ri_new_aligned(64, sizeof *c);
    if (!c)
        return ri_fail(RING_ERR_NOMEM, "no memory for a communicator");
    c->peer = ri_new(b->size, sizeof *c->peer);
    c->leader = ri_new(b->size, sizeof *c->leader);
    c->local_ranks = ri_new(b->size, sizeof *c->local_ranks);
    c->conf = *conf;
    c->rank = b->rank;
    c->size = b->size;
    c->comm_id = b->comm_id;
    c->last = &c->first;
    c->generation = ri_comm_generation();
    memcpy(c->secret, b->secret, sizeof c->secret);
    *comm_out = c;
    return c->peer && c->leader && c->local_ranks ? RING_OK
                                                  : ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", b->size);
}

static void node_disagrees(void *owner, uint32_t peer, const struct ri_node_call *mine,
                           const struct ri_node_call *theirs)
{
    struct ring_comm *c = owner;
    struct ri_signature s;
    char a[96], b[96];
    const uint32_t rank = peer < c->local_size ? c->local_ranks[peer] : UINT32_MAX;
    ri_op_signature(c, mine, 0, 0, &s);
    ri_call_text(&s, a, sizeof a);
    ri_op_signature(c, theirs, 0, 0, &s);
    ri_call_text(&s, b, sizeof b);
    ri_comm_raise(c, RING_ERR_MISMATCH, rank, "ranks disagree on operation %u: %s calls %s, %s calls %s", c->seq,
                  ri_comm_name(c, c->rank), a, ri_comm_name(c, rank), b);
}

static ring_status_t open_node(struct ring_comm *c, uint64_t deadline)
{
    if (c->size == 1 || ri_wires_wanted(c))
        return RING_OK;
    int32_t *pids = c->pids = ri_new(c->local_size, sizeof *pids);
    if (!pids)
        return ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", c->local_size);
    const struct ri_peer *me = &c->peer[c->rank];
    bool one_process = true;
    for (uint32_t i = 0; i < c->local_size; i++) {
        const struct ri_peer *p = &c->peer[c->local_ranks[i]];
        pids[i] = p->pid_space == me->pid_space ? p->pid : 0;
        one_process &= pids[i] == me->pid;
    }
    const struct ri_node_setup setup = {.rank = c->local_rank,
                                        .size = c->local_size,
                                        .base = (char *)ri_seg_base(c->seg) + ri_board_bytes(c->size),
                                        .abort = &c->board->abort,
                                        .patience = c->patience,
                                        .pids = pids,
                                        .one_process = one_process,
                                        .cma = (int)c->conf.cma,
                                        .mismatch = node_disagrees,
                                        .stalled = ri_op_stalled,
                                        .owner = c};
    const ring_status_t status = ri_node_open(&setup, &c->node);
    return status ? status : ri_node_probe(c->node, deadline);
}

static ring_status_t join_up(struct ring_comm *c, struct ri_port *port, struct ri_member *m, uint64_t deadline)
{
    ring_status_t status = ri_watch_locals(c);
    if (!status)
        status = ri_control_connect(c, port, m, deadline);
    if (!status)
        status = ri_wires_connect(c, port, m, deadline);
    if (!status)
        status = open_node(c, deadline);
    return status;
}

/* Others may wait for us in the rounds to come: they hear why there will be none. */
static ring_status_t give_up(struct ring_comm *c, ring_status_t status)
{
    if (!c->board)
        return status;
    if (!ri_comm_broken(c))
        ri_comm_raise(c, status == RING_ERR_ABORTED ? RING_ERR_INTERNAL : status, c->rank,
                      "%s could not join the communicator: %s", ri_comm_name(c, c->rank), ri_error_get());
    return ri_comm_verdict(c);
}

static void tell_about(const struct ring_comm *c)
{
    ri_log(RI_LOG_INFO, "joined a communicator of %u ranks on %u hosts: local rank %u of %u, %s", c->size, c->nodes,
           c->local_rank, c->local_size,
           c->size == 1 ? "alone"
           : c->node    ? "direct shared memory"
                        : c->wires.names);
}

static void dismantle(struct ring_comm *c)
{
    ri_watch_close(c);
    ri_control_close(c);
    ri_wires_hang_up(c);
    ri_program_close(c);
    ri_wires_close(c);
    ri_node_close(c->node);
    ri_free(c->pids);
    if (c->holds_loop)
        ri_loop_release();
    if (!c->seg)
        ri_free(c->board);
    ri_seg_close(c->seg);
    ri_identity_clear(&c->identity);
    ri_free(c->peer);
    ri_free(c->leader);
    ri_free(c->local_ranks);
    ri_free(c);
}

ring_status_t ri_comm_create(struct ri_boot *boot, const struct ri_conf *conf, uint64_t deadline,
                             struct ring_comm **comm_out)
{
    struct ring_comm *c = NULL;
    struct ri_port *port = NULL;
    struct ri_member member = {0};
    pthread_once(&fork_once, watch_forks);
    ring_status_t status = allocate(boot, conf, &c);
    if (!status)
        status = ri_identity_make(&c->identity);
    if (!status && c->size > 1 && !(status = ri_loop_hold()))
        c->holds_loop = true;
    if (!status)
        status = ri_comm_meet(c, boot, &member, deadline, &port);
    if (!status && c->size > 1 && (status = join_up(c, port, &member, deadline)))
        status = give_up(c, status);
    if (member.owner)
        ri_port_leave(port, &member);
    if (port)
        ri_port_close(port);
    if (status && c)
        dismantle(c);
    if (status)
        return status;
    tell_about(c);
    *comm_out = c;
    return RING_OK;
}

/* ---- leaving --------------------------------------------------------------------------------------------------- */

static void sleep_until_all_left(void *board, int ms)
{
    struct ri_board *b = board;
    ri_word_sleep(&b->all_left, 0, ms);
}

/* Nobody goes before everybody has come here, so that what a rank sent last is not lost. */
static ring_status_t leave(struct ring_comm *c)
{
    struct ri_board *b = c->board;
    if (atomic_fetch_add(&b->left, 1) + 1 == c->local_size) {
        if (c->nodes == 1) {
            atomic_store(&b->all_left, 1);
            ri_word_wake(&b->all_left);
        } else
            ri_control_spread(c);
    }
    struct ri_wait w;
    ri_wait_begin(&w, &b->abort, ri_deadline(c->conf.timeout), (struct ri_patience){.yields = 10});
    while (!atomic_load(&b->all_left)) {
        const ring_status_t status = ri_wait_round(&w, sleep_until_all_left, b);
        if (status == RING_ERR_TIMEOUT)
            ri_comm_raise(c, status, c->rank, "not all ranks came to ring_comm_destroy() in time (RING_TIMEOUT)");
        if (status)
            return atomic_load(&b->all_left) ? RING_OK : ri_comm_verdict(c);
    }
    return RING_OK;
}

ring_status_t ri_comm_destroy(struct ring_comm *c)
{
    ring_status_t status = RING_OK;
    if (c->size > 1) {
        if (!ri_comm_broken(c))
            ri_op_drain(c);
        status = ri_comm_broken(c) ? ri_comm_verdict(c) : leave(c);
    }
    dismantle(c);
    return status;
}
