/* SPDX-License-Identifier: Apache-2.0 */
/* create.c - from a boot to a working communicator, and back to nothing. One teardown takes any half-built state. */
#include "lib/comm/comm.h"

#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

/* ---- fork ------------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static struct ring_comm *all; /* of this process; under the loop's lock, which is held over a fork */

/* A child must not keep connections open whose end tells others that this rank is gone. */
static void forked(void)
{
    atomic_fetch_add(&generation, 1);
    for (struct ring_comm *c = all; c; c = c->older) {
        ri_watch_forget(c);
        ri_control_forget(c);
    }
    all = NULL;
    ri_help_forget();
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

static void enlist(struct ring_comm *c)
{
    ri_loop_lock();
    c->older = all;
    all = c;
    ri_loop_unlock();
}

static void strike_out(struct ring_comm *c)
{
    ri_loop_lock();
    struct ring_comm **at = &all;
    while (*at && *at != c)
        at = &(*at)->older;
    if (*at)
        *at = c->older;
    ri_loop_unlock();
}

uint32_t ri_comm_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

/* ---- making ---------------------------------------------------------------------------------------------------- */

static ring_status_t allocate(const struct ri_boot *b, const struct ri_conf *conf, struct ring_comm **comm_out)
{
    struct ring_comm *c = ri_new_aligned(64, sizeof *c);
    if (!c)
        return ri_fail(RING_ERR_NOMEM, "no memory for a communicator");
    c->peer = ri_new(b->size, sizeof *c->peer);
    c->leader = ri_new(b->size, sizeof *c->leader);
    c->board = c->own_board = ri_new_aligned(64, ri_board_bytes(b->size));
    c->local_ranks = ri_new(b->size, sizeof *c->local_ranks);
    c->conf = *conf;
    if (ri_conf_is_auto(conf->algo) || ri_rules_parse(conf->algo, &c->rules))
        c->rules.n = 0; /* what is wrong was refused when the settings were read */
    c->rank = b->rank;
    c->size = b->size;
    c->comm_id = b->comm_id;
    c->last = &c->first;
    c->generation = ri_comm_generation();
    memcpy(c->secret, b->secret, sizeof c->secret);
    *comm_out = c;
    return c->peer && c->leader && c->local_ranks && c->board ? RING_OK
                                                  : ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", b->size);
}

static void node_disagrees(void *owner, uint32_t peer, const struct ri_call *mine, const struct ri_call *theirs)
{
    struct ring_comm *c = owner;
    struct ri_signature s;
    char a[96], b[96];
    const uint32_t rank = peer < c->local_size ? c->local_ranks[peer] : UINT32_MAX;
    ri_op_signature(c, mine, 0, &s);
    ri_call_text(&s, a, sizeof a);
    ri_op_signature(c, theirs, 0, &s);
    ri_call_text(&s, b, sizeof b);
    ri_comm_raise(c, RING_ERR_MISMATCH, rank, "ranks disagree on operation %u: %s calls %s, %s calls %s", c->seq,
                  ri_comm_name(c, c->rank), a, ri_comm_name(c, rank), b);
}

static ring_status_t open_node(struct ring_comm *c, uint64_t deadline)
{
    if (!ri_wires_direct(c))
        return RING_OK;
    int32_t *pids = c->pids = ri_new(c->local_size, sizeof *pids);
    if (!pids)
        return ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", c->local_size);
    const struct ri_peer *me = &c->peer[c->rank];
    bool one_process = true;
    for (uint32_t i = 0; i < c->local_size; i++) {
        const struct ri_peer *p = &c->peer[c->local_ranks[i]];
        pids[i] = ri_peer_visible(me, p) ? p->pid : 0;
        one_process &= p->process == me->process;
    }
    const struct ri_node_setup setup = {.rank = c->local_rank,
                                        .size = c->local_size,
                                        .base = (char *)ri_seg_base(c->seg) + ri_board_bytes(c->size),
                                        .abort = &c->board->abort,
                                        .patience = c->patience,
                                        .pids = pids,
                                        .one_process = one_process,
                                        .heaps = c->heap,
                                        .cma = (int)c->conf.cma,
                                        .mismatch = node_disagrees,
                                        .stalled = ri_op_stalled,
                                        .owner = c};
    const ring_status_t status = ri_node_open(&setup, &c->node);
    return status ? status : ri_node_probe(c->node, deadline);
}

static ring_status_t join_up(struct ring_comm *c, uint64_t deadline)
{
    ring_status_t status = ri_control_connect(c, deadline);
    if (!status)
        status = ri_wires_connect(c, deadline);
    if (!status)
        status = ri_model_find(c);
    if (!status)
        status = open_node(c, deadline);
    return status;
}

/* Others may wait for us in the rounds to come: they hear why there will be none. */
static ring_status_t give_up(struct ring_comm *c, ring_status_t status)
{
    if (!ri_comm_broken(c))
        ri_comm_raise(c, status == RING_ERR_ABORTED ? RING_ERR_INTERNAL : status, c->rank,
                      "%s could not join the communicator: %s", ri_comm_name(c, c->rank), ri_error_get());
    return ri_comm_verdict(c);
}

/* What the meeting place hears of a rank that is lost while all connect. */
struct alarm {
    struct ri_watch watch;
    struct ring_comm *comm;
    struct ri_boot *boot;
    bool on;
};

static void alarmed(struct ri_watch *w, uint32_t events)
{
    (void)events;
    struct alarm *a = (struct alarm *)w;
    const ring_status_t status = a->boot->ops->alert(a->boot);
    if (status)
        ri_comm_raise(a->comm, status, UINT32_MAX, "%s", ri_error_get());
    ri_loop_remove(w); /* it has said all that it will */
    a->on = false;
}

static ring_status_t join_alertly(struct ring_comm *c, struct ri_boot *boot, uint64_t deadline)
{
    struct alarm a = {.watch = {.ready = alarmed}, .comm = c, .boot = boot};
    if (boot->ops->alert_fd) {
        a.watch.fd = boot->ops->alert_fd(boot);
        a.on = !ri_loop_add(&a.watch, EPOLLIN);
    }
    ring_status_t status = join_up(c, deadline);
    if (status)
        status = give_up(c, status);
    ri_loop_lock();
    if (a.on)
        ri_loop_remove(&a.watch);
    ri_loop_unlock();
    return status;
}

/* RING_ALGO names an algorithm that cannot do what it is asked for here. */
static void warn_of_choice(const struct ring_comm *c)
{
    for (uint32_t i = 0; i < c->rules.n && c->size > 1; i++) {
        const struct ri_rule *rule = &c->rules.rule[i];
        const ring_coll_t coll = rule->any ? RING_ALL_REDUCE : rule->coll;
        const struct ri_call call = {
            .coll = coll, .dtype = RING_UINT8, .redop = RING_SUM, .count = rule->from < SIZE_MAX ? rule->from : 0};
        struct ri_coll_args args;
        const struct ri_algorithm *a = ri_program_choose(c, &call, &args);
        const bool node = !strcmp(rule->name, "node"), fits = a && !strcmp(a->name, rule->name);
        if (fits || !strcmp(rule->name, "auto") || (node && c->node) ||
            (rule->any && !ri_algorithm_named(coll, rule->name)))
            continue;
        const struct ri_algorithm *asked = ri_algorithm_named(coll, rule->name);
        if (args.ordered && asked && !asked->ordered) {
            ri_log(RI_LOG_WARN,
                   "RING_ALGO: %s does not give %s the same bits in every run (RING_DETERMINISTIC=1): "
                   "others are used",
                   rule->name, ring_coll_str(coll));
            continue;
        }
        ri_log(RI_LOG_WARN, "RING_ALGO: %s is not possible for %s of %u ranks on %u host%s over %s: others are used",
               rule->name, ring_coll_str(coll), c->size, c->nodes, c->nodes == 1 ? "" : "s",
               c->wires.names[0] ? c->wires.names : "direct shared memory");
    }
}

static void tell_about(const struct ring_comm *c)
{
    if (c->rank == 0)
        warn_of_choice(c);
    const char *by = c->size == 1 ? "alone" : c->node ? "direct shared memory, as all are on one host" : c->wires.names;
    ri_log(RI_LOG_INFO, "joined: rank %u of %u, host %u of %u, %u of %u on this host; %s", c->rank, c->size,
           c->node_index, c->nodes, c->local_rank, c->local_size, by);
}

static void dismantle(struct ring_comm *c)
{
    strike_out(c);
    ri_op_orphan(c);
    if (c->member.owner)
        ri_port_leave(c->port, &c->member);
    ri_port_close(c->port);
    ri_watch_close(c);
    ri_control_close(c);
    ri_wires_hang_up(c);
    ri_group_close(c);
    ri_program_close(c);
    ri_wires_close(c);
    ri_node_close(c->node);
    ri_free(c->pids);
    if (c->holds_loop)
        ri_loop_release();
    ri_free(c->own_board);
    ri_heaps_close(c);
    ri_seg_close(c->seg);
    ri_identity_clear(&c->identity);
    ri_free(c->peer);
    ri_free(c->leader);
    ri_free(c->local_ranks);
    ri_layout_free(c);
    ri_free(c->made);
    ri_free(c->room);
    ri_free(c->sent);
    ri_free(c->received);
    ri_free(c);
}

#define HEED_PARENT (20 * RI_MILLISECOND)

/* A rank of the parent that is lost, or gives up, does not come here either; and only the parent may notice. */
static void heed_parent(struct ri_timer *t, uint64_t now)
{
    (void)now;
    struct ring_comm *c = (struct ring_comm *)((char *)t - offsetof(struct ring_comm, heed));
    const struct ri_failure *f = ri_comm_failure(c->parent);
    if (f && !ri_comm_broken(c))
        ri_comm_raise(c, (ring_status_t)f->status, UINT32_MAX, "%s", f->text);
}

static void join_family(struct ring_comm *c, struct ring_comm *parent)
{
    if (!parent || !c->holds_loop)
        return;
    c->parent = parent;
    c->heed = (struct ri_timer){.period = HEED_PARENT, .fire = heed_parent};
    ri_loop_timer_add(&c->heed);
}

static void leave_family(struct ring_comm *c)
{
    if (c->parent)
        ri_loop_timer_remove(&c->heed);
    c->parent = NULL;
}

ring_status_t ri_comm_create(struct ri_boot *boot, const struct ri_conf *conf, struct ring_comm *parent,
                             uint64_t deadline, struct ring_comm **comm_out)
{
    struct ring_comm *c = NULL;
    pthread_once(&fork_once, watch_forks);
    ring_status_t status = allocate(boot, conf, &c);
    if (!status)
        status = ri_identity_make(&c->identity);
    if (!status)
        enlist(c);
    if (!status && c->size > 1 && !(status = ri_loop_hold()))
        c->holds_loop = true;
    if (!status) {
        join_family(c, parent);
        status = ri_comm_meet(c, boot, deadline);
    }
    if (!status && c->size > 1)
        status = join_alertly(c, boot, deadline);
    if (c)
        leave_family(c);
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

static ring_status_t too_late(struct ring_comm *c)
{
    char who[RI_FAILURE_TEXT / 2];
    ri_stall_missing(c, RI_SECOND, who, sizeof who);
    ri_comm_raise(c, RING_ERR_TIMEOUT, c->rank,
                  "ring_comm_destroy() waited on %s until RING_TIMEOUT; not responding: %s", ri_comm_name(c, c->rank),
                  who);
    return ri_comm_verdict(c);
}

static ring_status_t await_all(struct ring_comm *c)
{
    struct ri_board *b = c->board;
    struct ri_wait w;
    const struct ri_signature calls = {.magic = RI_SIGNATURE_MAGIC, .seq = c->seq + 1, .coll = RI_COLL_DESTROY};
    const uint64_t begun = ri_now();
    ri_wait_begin(&w, &b->abort, ri_deadline(c->conf.timeout), (struct ri_patience){.yields = 10});
    while (!atomic_load(&b->all_left)) {
        const ring_status_t status = ri_wait_round(&w, sleep_until_all_left, b);
        if (atomic_load(&b->all_left))
            break;
        if (status)
            return status == RING_ERR_TIMEOUT ? too_late(c) : ri_comm_verdict(c);
        ri_comm_stalled(c, &calls, ri_now() - begun);
    }
    ri_stall_over(c);
    return RING_OK;
}

/* Nobody goes before everybody has come here, so that what a rank sent last is not lost. */
static ring_status_t leave(struct ring_comm *c)
{
    struct ri_board *b = c->board;
    const uint64_t mine = (c->node ? c->history ^ ri_node_history(c->node) : c->history) | 1;
    uint64_t first = 0;
    if (!atomic_compare_exchange_strong(&b->history, &first, mine) && first != mine) {
        ri_comm_raise(c, RING_ERR_MISMATCH, c->rank,
                      "%s has not made the same calls as a rank of its host that left before it: a collective, count, "
                      "type, operation or root was another",
                      ri_comm_name(c, c->rank));
        return ri_comm_verdict(c);
    }
    if (atomic_fetch_add(&b->left, 1) + 1 == c->local_size) {
        if (c->nodes == 1) {
            atomic_store(&b->all_left, 1);
            ri_word_wake(&b->all_left);
        } else
            ri_control_spread(c);
    }
    return await_all(c);
}

ring_status_t ri_comm_destroy(struct ring_comm *c)
{
    ring_status_t status = RING_OK;
    if (c->size > 1) {
        if (!ri_comm_broken(c))
            ri_op_drain(c);
        status = ri_comm_broken(c) ? ri_comm_verdict(c) : leave(c);
    }
    /* What a failure left in flight, and messages to itself that nobody will take. */
    ri_op_finish_all(c, status ? status : RING_ERR_STATE);
    dismantle(c);
    return status;
}
