/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - the rounds in which the ranks find each other.
 *
 *     card      who am I?                     -> all compare settings; ranks are grouped into hosts
 *     end       where can I be reached?       -> connections become possible
 *     memory    could I map the host's segment? -> a host where somebody could not is taken apart: links only
 *
 * A rank that cannot go on says why in the next round, so that the others hear it instead of waiting. */
#include "lib/comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/limit.h"
#include "lib/base/mem.h"
#include "lib/base/pack.h"

enum { MEMORY_WAIT_S = 10 };

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

/* Tell all ranks `bytes`, or that we failed with `status` and this thread's error; then hear whether all are well. */
static ring_status_t tell(struct ri_boot *b, const char *key, ring_status_t status, const uint8_t *bytes, size_t len,
                          uint64_t deadline)
{
    uint8_t blob[RI_BOOT_BLOB_MAX];
    struct ri_packer p = {.at = blob, .end = blob + sizeof blob};
    ri_pack_number(&p, (uint32_t)status, 4);
    if (status)
        ri_pack_text(&p, ri_error_get());
    else
        ri_pack(&p, bytes, len);
    if (p.bad)
        return ri_fail(RING_ERR_INTERNAL, "a message of %zu bytes to all ranks is too long", len);
    const ring_status_t said = b->ops->put(b, key, blob, (size_t)(p.at - blob));
    return said ? said : b->ops->fence(b, deadline);
}

/* What `rank` told; its failure becomes ours, marked with who it was. */
static ring_status_t hear(struct ri_boot *b, const char *key, uint32_t rank, const char *name, uint8_t *bytes,
                          size_t *len_out)
{
    uint8_t blob[RI_BOOT_BLOB_MAX];
    size_t len;
    char text[RI_ERROR_MAX];
    const ring_status_t status = b->ops->get(b, rank, key, blob, &len);
    if (status)
        return status;
    struct ri_unpacker u = {.at = blob, .end = blob + len};
    const ring_status_t theirs = (ring_status_t)(int32_t)ri_unpack_number(&u, 4);
    if (u.bad || theirs > 0)
        return ri_fail(RING_ERR_MISMATCH, "what %s told under \"%s\" cannot be read", name, key);
    if (theirs) {
        ri_unpack_text(&u, text, sizeof text);
        return ri_fail(theirs, "%s: %.400s", name, text);
    }
    *len_out = (size_t)(u.end - u.at);
    memcpy(bytes, u.at, *len_out);
    return RING_OK;
}

/* ---- cards and hosts ------------------------------------------------------------------------------------------- */

/* A pid does not tell processes of different pid namespaces apart; a number drawn by chance does. */
static uint64_t process_mark(void)
{
    static uint64_t mark;
    static pid_t owner; /* a forked child draws its own */
    ri_loop_lock();
    if (owner != getpid()) {
        owner = getpid();
        ri_random(&mark, sizeof mark);
    }
    const uint64_t mine = mark;
    ri_loop_unlock();
    return mine;
}

static void describe_self(struct ring_comm *c, struct ri_peer *me)
{
    struct stat st;
    *me = (struct ri_peer){.rank = c->rank, .pid = (int32_t)getpid()};
    me->pid_space = stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
    me->process = process_mark();
    ri_wires_look(&c->conf, me);
    ri_processors_get(&me->processors);
    memcpy(me->key, c->identity.public_half, RI_KEY);
    ri_host_get(&c->conf, &me->host);
    snprintf(me->name, sizeof me->name, "rank %u (%.63s:%d)", c->rank, me->host.name, me->pid);
}

static ring_status_t exchange_cards(struct ring_comm *c, struct ri_boot *b, uint64_t deadline)
{
    uint8_t card[RI_BOOT_BLOB_MAX];
    char name[24];
    struct ri_peer *me = &c->peer[c->rank];
    const size_t len = ri_card_encode(me, &c->conf, card, sizeof card - 64);
    ring_status_t status = len ? RING_OK : ri_fail(RING_ERR_CONFIG, "the settings are too long to be compared");
    if ((status = tell(b, "card", status, card, len, deadline)))
        return status;
    for (uint32_t r = 0; r < c->size && !status; r++) {
        size_t got = 0;
        snprintf(name, sizeof name, "rank %u", r);
        status = hear(b, "card", r, name, card, &got);
        if (!status && r != c->rank)
            status = ri_card_decode(card, got, r, me, &c->conf, &c->peer[r]);
    }
    return status ? status : ri_wires_possible(c);
}

/* Hosts by the order of their lowest rank.  apart[r]: rank r shares memory with nobody. */
static ring_status_t group(struct ring_comm *c, const bool *apart)
{
    c->nodes = c->local_size = 0;
    for (uint32_t r = 0; r < c->size; r++) {
        struct ri_peer *p = &c->peer[r];
        uint32_t first = 0;
        p->local_rank = 0;
        while (first < r && (apart[r] || apart[first] || memcmp(c->peer[first].host.id, p->host.id, sizeof p->host.id)))
            first++;
        p->node = first < r ? c->peer[first].node : c->nodes++;
        if (first == r)
            c->leader[p->node] = r;
        for (uint32_t q = first; q < r; q++)
            p->local_rank += c->peer[q].node == p->node;
    }
    c->node_index = c->peer[c->rank].node;
    c->local_rank = c->peer[c->rank].local_rank;
    for (uint32_t r = 0; r < c->size; r++)
        if (c->peer[r].node == c->node_index)
            c->local_ranks[c->local_size++] = r;
    return ri_layout_make(c);
}

/* Said before anything is opened. */
static ring_status_t check_descriptors(const struct ring_comm *c)
{
    char why[64];
    const uint32_t others = c->local_size - 1;
    snprintf(why, sizeof why, "for %u ranks (%u on this host)", c->size, c->local_size);
    return ri_limit_files(
        others + (ri_comm_leads(c) ? others : 1) + ri_control_count(c, c->node_index) + ri_wires_sockets(c), why);
}

/* ---- endpoints ------------------------------------------------------------------------------------------------- */

/* On the background thread, when a peer connects. */
static bool key_of(void *owner, uint32_t from, uint8_t key_out[RI_KEY])
{
    struct ring_comm *c = owner;
    return atomic_load_explicit(&c->acquainted, memory_order_acquire) && from < c->size && from != c->rank &&
           !ri_pair_key(&c->identity, c->rank, c->peer[from].key, from, c->comm_id, c->secret, key_out);
}

static ring_status_t exchange_ends(struct ring_comm *c, struct ri_boot *b, uint64_t deadline)
{
    uint8_t bytes[RI_BOOT_BLOB_MAX];
    size_t len = 0;
    const struct sockaddr *toward = b->toward.ss_family ? (const struct sockaddr *)&b->toward : NULL;
    ring_status_t status = check_descriptors(c);
    if (!status)
        status = ri_port_open_toward(&c->conf, c->nodes == 1, toward, &c->port);
    if (!status) {
        c->member = (struct ri_member){.comm_id = c->comm_id, .rank = c->rank, .key = key_of, .owner = c};
        ri_port_join(c->port, &c->member);
        len = ri_endpoint_encode(ri_port_endpoint(c->port), bytes, sizeof bytes);
    }
    const ring_status_t mine = status;
    if ((status = tell(b, "end", mine, bytes, len, deadline)))
        return mine ? mine : status;
    for (uint32_t r = 0; r < c->size && !status; r++) {
        if ((status = hear(b, "end", r, c->peer[r].name, bytes, &len)))
            break;
        if (!ri_endpoint_decode(bytes, len, &c->peer[r].end))
            status = ri_fail(RING_ERR_MISMATCH, "the address of %s cannot be read", c->peer[r].name);
    }
    return status;
}

/* ---- the host's memory ----------------------------------------------------------------------------------------- */

static size_t board_and_node(const struct ring_comm *c)
{
    return ri_board_bytes(c->size) + ri_node_bytes(c->local_size);
}

static ring_status_t give_memory(struct ring_comm *c, uint64_t deadline)
{
    ring_status_t status = ri_seg_create("libring", board_and_node(c), &c->seg);
    for (uint32_t i = 0; i < c->locals; i++) {
        struct ri_local *l = &c->local[i];
        ring_status_t one =
            ri_port_collect(c->port, &c->member, l->rank, RI_FOR_NODE, 0, &c->board->abort, deadline, &l->home.fd);
        if (!one && c->seg)
            one = ri_fd_send(l->home.fd, ri_seg_fd(c->seg), "m", 1);
        status = status ? status : one;
    }
    if (!status)
        status = ri_heaps_exchange(c, deadline);
    for (uint32_t i = 0; i < c->locals; i++) {
        const ring_status_t one = c->local[i].home.fd >= 0 ? ri_watch_home(&c->local[i]) : RING_OK;
        status = status ? status : one;
    }
    return status;
}

static ring_status_t take_memory(struct ring_comm *c, uint64_t deadline)
{
    const struct ri_peer *first = &c->peer[c->leader[c->node_index]];
    struct ri_local *l = &c->local[0];
    uint8_t key[RI_KEY];
    struct ri_hello h = {.comm_id = c->comm_id, .from = c->rank, .to = first->rank, .purpose = RI_FOR_NODE};
    ring_status_t status = ri_pair_key(&c->identity, c->rank, first->key, first->rank, c->comm_id, c->secret, key);
    if (!status)
        status = ri_port_connect(c->port, &first->end, true, &h, key, &c->board->abort, deadline, &l->home.fd);
    struct ri_wait w;
    ri_wait_begin(&w, &c->board->abort, deadline, c->patience);
    int fd = -1, got = 0;
    char byte;
    while (!status && !(got = ri_fd_recv(l->home.fd, &fd, &byte, 1)))
        if (ri_wait_round(&w, NULL, NULL))
            status = ri_fail(RING_ERR_TIMEOUT, "%s did not send its memory", first->name);
    if (!status && (got < 0 || fd < 0))
        status = ri_fail(RING_ERR_SYSTEM, "%s closed its connection instead of sending its memory", first->name);
    if (!status)
        status = ri_seg_adopt(fd, board_and_node(c), &c->seg);
    if (!status)
        status = ri_heaps_exchange(c, deadline);
    return status ? status : ri_watch_home(l);
}

/* Leader: one for each other local rank.  Others: the leader first, then the rest. */
static ring_status_t list_locals(struct ring_comm *c)
{
    c->local = ri_new(c->local_size, sizeof *c->local);
    if (!c->local)
        return ri_fail(RING_ERR_NOMEM, "no memory for %u ranks of this host", c->local_size);
    for (uint32_t i = 0; i < c->local_size; i++)
        if (c->local_ranks[i] != c->rank)
            c->local[c->locals++] =
                (struct ri_local){.comm = c, .rank = c->local_ranks[i], .death = {.fd = -1}, .home = {.fd = -1}};
    return RING_OK;
}

static ring_status_t share_memory(struct ring_comm *c, uint64_t deadline)
{
    const uint64_t part = c->conf.timeout / 4, most = MEMORY_WAIT_S * RI_SECOND;
    const uint64_t soon = ri_deadline(part < most ? part : most);
    const uint64_t until = soon < deadline ? soon : deadline;
    if (c->local_size == 1)
        return RING_OK;
    return ri_comm_leads(c) ? give_memory(c, until) : take_memory(c, until);
}

static void unshare(struct ring_comm *c)
{
    ri_watch_close(c);
    ri_heaps_close(c);
    ri_seg_close(c->seg);
    c->seg = NULL;
}

/* A host on which one rank could not map the memory becomes as many hosts as it has ranks. */
static ring_status_t judge_memory(struct ring_comm *c, struct ri_boot *b, ring_status_t mine, uint64_t deadline)
{
    char why[RI_ERROR_MAX];
    uint8_t shares = mine == RING_OK;
    snprintf(why, sizeof why, "%s", ri_error_get());
    bool *apart = ri_new(2 * (size_t)c->size, sizeof *apart), *bad_node = apart ? apart + c->size : NULL;
    ring_status_t status = tell(b, "memory", RING_OK, &shares, 1, deadline);
    if (!apart)
        status = ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", c->size);
    for (uint32_t r = 0; r < c->size && !status; r++) {
        uint8_t bytes[RI_BOOT_BLOB_MAX];
        size_t len;
        status = hear(b, "memory", r, c->peer[r].name, bytes, &len);
        if (!status && (len != 1 || !bytes[0]))
            bad_node[c->peer[r].node] = true;
    }
    if (!status && mine)
        ri_log(RI_LOG_WARN, "%s cannot share memory with its host's ranks, which use links instead: %s",
               ri_comm_name(c, c->rank), why);
    bool any = false;
    for (uint32_t r = 0; r < c->size && !status; r++)
        any |= apart[r] = bad_node[c->peer[r].node];
    if (any && bad_node[c->node_index])
        unshare(c);
    if (any)
        status = group(c, apart);
    ri_free(apart);
    return status;
}

/* Failures that are noticed before the host's board is there go on one of our own, and then over to the host's. */
static ring_status_t change_board(struct ring_comm *c)
{
    if (!c->seg)
        return RING_OK;
    ri_loop_lock();
    c->board = ri_seg_base(c->seg);
    if (atomic_load(&c->own_board->abort))
        (void)ri_board_fail(c->board, &c->own_board->failure);
    ri_loop_unlock();
    return RING_OK;
}

/* Launchers bind ranks: what counts is how many processors they have together, not what each of them sees. */
static struct ri_patience patience_of(const struct ring_comm *c)
{
    struct ri_processors together = {{0}};
    for (uint32_t i = 0; i < c->local_size; i++)
        for (size_t w = 0; w < RI_PROCESSOR_WORDS; w++)
            together.word[w] |= c->peer[c->local_ranks[i]].processors.word[w];
    return ri_patience_for(c->local_size, ri_processors_count(&together));
}

/* From here on the ranks of this host see each other die. */
static ring_status_t meet_locals(struct ring_comm *c)
{
    c->patience = patience_of(c);
    atomic_store_explicit(&c->acquainted, true, memory_order_release);
    const ring_status_t status = c->local_size > 1 ? list_locals(c) : RING_OK;
    return status ? status : ri_watch_locals(c);
}

static ring_status_t meet_memory(struct ring_comm *c, struct ri_boot *b, uint64_t deadline)
{
    const ring_status_t mine = share_memory(c, deadline);
    if (!ri_comm_broken(c))
        return judge_memory(c, b, mine, deadline);
    /* A rank that we saw end may have ended because another was lost: the meeting place knows who was first. */
    const ring_status_t first = b->ops->alert ? b->ops->alert(b) : RING_OK;
    return first ? first : ri_comm_verdict(c);
}

ring_status_t ri_comm_meet(struct ring_comm *c, struct ri_boot *b, uint64_t deadline)
{
    bool *apart = ri_new(c->size, sizeof *apart);
    if (!apart)
        return ri_fail(RING_ERR_NOMEM, "no memory for %u ranks", c->size);
    describe_self(c, &c->peer[c->rank]);
    ring_status_t status = c->size > 1 ? exchange_cards(c, b, deadline) : RING_OK;
    if (!status)
        status = group(c, apart);
    ri_free(apart);
    if (status || c->size == 1)
        return status;
    if (!(status = meet_locals(c)))
        status = exchange_ends(c, b, deadline);
    if (!status)
        status = meet_memory(c, b, deadline);
    return status ? status : change_board(c);
}
