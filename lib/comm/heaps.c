/* SPDX-License-Identifier: Apache-2.0 */
/* heaps.c - the ranks of a host show each other the memory that ring_mem_alloc() and ring_mem_register() use.
 *
 * Each sends the descriptor of its heap to the leader, which sends every one to everybody, rank by rank; each rank maps
 * it and says so.  The leader is never more than a few heaps ahead, because descriptors under way are counted against
 * the user's limit.  A rank without a heap sends none: then nobody uses heaps (lib/node agrees on that).  On the
 * connections that later only tell who has died, before they are watched.  Cost: N*N messages through the leader; so
 * hosts of very many ranks do without. */
#include "lib/comm/comm.h"

#include <fcntl.h>
#include <unistd.h>

#include "lib/base/mem.h"

enum { RANKS_MOST = 256, UNDER_WAY = 256 };

static ring_status_t get(struct ring_comm *c, struct ri_local *l, uint64_t deadline, int *fd_out)
{
    struct ri_wait w;
    int got;
    char byte;
    ri_wait_begin(&w, &c->board->abort, deadline, c->patience);
    while (!(got = ri_fd_recv(l->home.fd, fd_out, &byte, 1)))
        if (ri_wait_round(&w, NULL, NULL))
            return ri_fail(RING_ERR_TIMEOUT, "%s did not show its memory", ri_comm_name(c, l->rank));
    if (got < 0)
        return ri_fail(RING_ERR_SYSTEM, "%s closed its connection instead of showing its memory",
                       ri_comm_name(c, l->rank));
    return RING_OK;
}

/* A heap that cannot be mapped is one that there is not. */
static void map(struct ring_comm *c, uint32_t i, int fd)
{
    if (fd >= 0 && ri_heap_map_peer(fd, &c->heap[i]))
        ri_log(RI_LOG_INFO, "memory of %s cannot be mapped: %s", ri_comm_name(c, c->local_ranks[i]), ri_error_get());
}

/* A descriptor of our own; -1 when there is no heap. */
static int own_heap(void)
{
    int fd = -1;
    if (!ri_heap_fd(&fd))
        return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ri_log(RI_LOG_INFO, "no memory that other ranks can map: %s", ri_error_get());
    return -1;
}

static ring_status_t acknowledged(struct ring_comm *c, uint64_t deadline)
{
    ring_status_t status = RING_OK;
    int none;
    for (uint32_t i = 0; i < c->locals && !status; i++)
        status = get(c, &c->local[i], deadline, &none);
    return status;
}

/* The leader is the first of its host; heaps[i] is of the i-th rank. */
static ring_status_t hand_out(struct ring_comm *c, int *heaps, uint64_t deadline)
{
    const uint32_t ahead = UNDER_WAY / c->local_size;
    ring_status_t status = RING_OK;
    for (uint32_t i = 0; i < c->local_size && !status; i++) {
        for (uint32_t k = 0; k < c->locals && !status; k++)
            status = ri_fd_send(c->local[k].home.fd, heaps[i], "h", 1);
        map(c, i, heaps[i]);
        heaps[i] = -1;
        if (!status && i >= ahead)
            status = acknowledged(c, deadline);
    }
    for (uint32_t i = 0; i < ahead && i < c->local_size && !status; i++)
        status = acknowledged(c, deadline);
    return status;
}

static ring_status_t lead(struct ring_comm *c, uint64_t deadline)
{
    int heaps[RANKS_MOST];
    ring_status_t status = RING_OK;
    uint32_t n = 0;
    heaps[n++] = own_heap();
    for (uint32_t i = 0; i < c->locals && !status; i++) {
        heaps[n] = -1;
        status = get(c, &c->local[i], deadline, &heaps[n++]);
    }
    if (!status)
        status = hand_out(c, heaps, deadline);
    for (uint32_t i = 0; i < n; i++)
        if (heaps[i] >= 0)
            close(heaps[i]);
    return status;
}

static ring_status_t follow(struct ring_comm *c, uint64_t deadline)
{
    struct ri_local *leader = &c->local[0];
    const int mine = own_heap();
    ring_status_t status = ri_fd_send(leader->home.fd, mine, "h", 1);
    if (mine >= 0)
        close(mine);
    for (uint32_t i = 0; i < c->local_size && !status; i++) {
        int fd = -1;
        if ((status = get(c, leader, deadline, &fd)))
            break;
        map(c, i, fd);
        status = ri_fd_send(leader->home.fd, -1, "a", 1);
    }
    return status;
}

ring_status_t ri_heaps_exchange(struct ring_comm *c, uint64_t deadline)
{
    if (c->local_size > RANKS_MOST || c->conf.node == RI_NODE_OFF)
        return RING_OK;
    c->heap = ri_new(c->local_size, sizeof *c->heap);
    if (!c->heap)
        return ri_fail(RING_ERR_NOMEM, "no memory for %u ranks of this host", c->local_size);
    return ri_comm_leads(c) ? lead(c, deadline) : follow(c, deadline);
}

void ri_heaps_close(struct ring_comm *c)
{
    for (uint32_t i = 0; c->heap && i < c->local_size; i++)
        ri_heap_unmap_peer(&c->heap[i]);
    ri_free(c->heap);
    c->heap = NULL;
}
