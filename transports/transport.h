/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - the one boundary between lib/ and transports/.
 *
 * A transport moves bytes over reliable, ordered links between two ranks.  It knows nothing of communicators,
 * schedules, reductions, topology or the environment: it gets const settings, const facts about both ends, and
 * connected sockets.
 *
 * How a link comes to be.  The core finds the peer, connects one or more sockets to it and makes both ends prove who
 * they are (lib/boot/port.c); so a transport neither listens nor authenticates.  It says in `rendezvous` and `sockets`
 * what it wants, gets the connected descriptors in connect(), and owns them from then on: tcp moves its data over them,
 * shm passes a memory segment over its AF_UNIX socket, verbs exchanges queue pair numbers and keys.
 *
 * Rules that hold for every call:
 *   - nothing blocks; progress() is the only place where work is done (send and recv may do a little, but complete
 * nothing);
 *   - the core owns the memory of ctx, link and xfer; it allocates ctx_size and link_size zeroed bytes; a transport
 * owns only what it hangs below them, and close() and disconnect() accept any half-built state;
 *   - links are FIFO: the k-th send on a link meets the k-th recv of the other end, of the same length.  There are no
 * tags and no unexpected queue.  Completion order on one link is posting order, for sends and for recvs separately;
 *   - a posted xfer belongs to the transport until progress() returns it in the done list;
 *   - a link that breaks fails every posted and later xfer with RING_ERR_PEER_LOST (through the done list), and keeps
 * in `why` what this end knows of the reason;
 *   - calls for one ctx never run concurrently. */
#ifndef RI_TRANSPORT_H
#define RI_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ring/ring.h>

#include "lib/base/conf.h"

enum { RI_TRANSPORT_ABI = 1 };

/* What kind of socket the core connects for a link. */
enum ri_rendezvous {
    RI_RENDEZVOUS_NONE, /* no socket: connect() finds the peer by itself (loop)                    */
    RI_RENDEZVOUS_TCP,  /* TCP over the chosen interface                                           */
    RI_RENDEZVOUS_UNIX  /* AF_UNIX, only there when both ranks are on one host and of one user     */
};

/* What is known of one end. */
struct ri_end {
    uint32_t rank;
    uint32_t node;    /* ranks with equal node can connect AF_UNIX sockets to each other */
    const char *name; /* "rank 3 (host:pid)" for messages; lives as long as the link   */
};

/* Moves bytes between memory of a device, at one or both ends, and of the host; they have arrived when it returns.
 * Takes as long as the bytes do.  A failure has said its reason (ri_fail).  Any thread. */
typedef ring_status_t ri_copy_fn(void *to, const void *from, size_t bytes);

/* Memory that the caller has registered, or had from the library.  serial: no other region of the process has it, or
 * will.
 *
 * It is the host's, or that of a device (a GPU), which the processor neither reads nor writes: its bytes go by copy(),
 * or by the hardware of a transport that can reach them.  Then the last three say how.  dmabuf is the owner's, who has
 * it open for as long as the region is found; who needs the memory longer holds it by something made of it. */
struct ri_region {
    void *begin;
    size_t bytes;
    uint64_t serial;
    ri_copy_fn *copy;   /* NULL: the host's memory                                                   */
    int dmabuf;         /* a descriptor of the device's memory, or -1: there is none                 */
    uint64_t dmabuf_at; /* where in it the region begins, in bytes                                   */
    bool flush;         /* what other hardware has written may still be on its way when it says so:
                           all of it is there once that hardware has read from the region again      */
};

/* For transports that register memory with a device.  find: the region that a buffer is wholly inside of; false: none.
 * version: changes whenever a region comes or goes; odd: just now.  Any thread, and neither waits.
 *
 * devices: there may be regions of devices.  Then a buffer is looked for before any byte of it is touched, and what is
 * not found, or is not wholly inside one region, is the host's.  Else all are the host's, and nobody looks.  So far
 * only verbs looks: no other transport may be given a buffer of a device's. */
struct ri_memory {
    bool (*find)(const void *at, size_t bytes, struct ri_region *region_out);
    uint32_t (*version)(void);
    bool devices;
};

/* A transport's private structs start with these. */
struct ri_tctx {
    const struct ri_transport *transport;
    const struct ri_conf *conf;
    const struct ri_memory *memory; /* NULL: nothing is registered */
};
enum { RI_LINK_WHY = 200 };
struct ri_link {
    struct ri_tctx *ctx;
    struct ri_end self, peer;
    bool initiator; /* exactly one end of a link is */
    /* Of a link that broke, for people: what happened, and to which device or address.  "": all that this end knows is
     * that the other has closed it; that one may know why. */
    char why[RI_LINK_WHY];
};

/* A link may carry messages of RI_STRIPE bytes and more side by side (several sockets), so their bytes may come before
 * those of an earlier message.  The bytes of shorter ones come in posting order, so that what one message says can be
 * known when the next one's sink is called. */
enum { RI_STRIPE = 64 << 10 };

/* One send or recv in flight; caller's memory.
 *
 * A recv with a sink does not store: as bytes arrive the transport hands them to sink() in order, in pieces whose
 * length is a multiple of `unit` (except that nothing is handed on twice or left out), straight from where they landed,
 * on memory aligned to `unit`.  That is the fused receive-and-reduce.  buf is then not used. */
struct ri_xfer;
typedef void ri_sink_fn(struct ri_xfer *x, size_t offset, const void *bytes, size_t len);
struct ri_xfer {
    void *buf;            /* send: only read                                              */
    size_t len;           /* may be 0: still matched and completed                        */
    ri_sink_fn *sink;     /* recv only, or NULL                                           */
    uint32_t unit;        /* sink only: 1, 2, 4 or 8; len is a multiple of it             */
    ring_status_t status; /* set when it is on the done list                            */
    size_t moved;         /* the transport's own, starts at 0: bytes done so far          */
    uint32_t lane, held;  /* the transport's own                                         */
    struct ri_xfer *next; /* list link, for whoever holds the xfer now                  */
};
struct ri_queue {
    struct ri_xfer *head, **tail; /* tail NULL: empty and not yet used */
};

static inline void ri_queue_put(struct ri_queue *q, struct ri_xfer *x)
{
    x->next = NULL;
    if (!q->head)
        q->tail = &q->head;
    *q->tail = x;
    q->tail = &x->next;
}

static inline struct ri_xfer *ri_queue_take(struct ri_queue *q)
{
    struct ri_xfer *x = q->head;
    if (x)
        q->head = x->next;
    return x;
}

struct ri_transport {
    uint32_t abi; /* RI_TRANSPORT_ABI */
    const char *name, *help;
    size_t ctx_size, link_size;
    enum ri_rendezvous rendezvous;

    /* Can it work in this process at all?  false: why_out (cap bytes) says the reason in a few words. */
    bool (*usable)(const struct ri_conf *conf, char *why_out, size_t cap);
    /* Of one that is not: is there what it needs, but it cannot be had?  That is worth a warning, where nothing being
     * there is not, nor what the settings leave out.  NULL: never. */
    bool (*blocked)(const struct ri_conf *conf);
    /* What it sees on this machine and what it makes of it, for people: lines that begin with two spaces.  NULL:
     * nothing that `usable` does not say. */
    void (*explain)(const struct ri_conf *conf, FILE *out);
    /* Sockets the core is to connect per link. */
    uint32_t (*sockets)(const struct ri_conf *conf);
    /* Rough cost of a link for the choice between transports: nanoseconds for an empty message and picoseconds per
     * byte; false when these two ends cannot be joined. */
    bool (*cost)(const struct ri_conf *conf, const struct ri_end *self, const struct ri_end *peer, uint32_t *latency_ns,
                 uint32_t *byte_ps);

    /* t->transport and t->conf are set. */
    ring_status_t (*open)(struct ri_tctx *t);
    /* All links are disconnected before. */
    void (*close)(struct ri_tctx *t);

    /* l's base is filled in.  fds: `sockets` connected, non-blocking descriptors, in the same order at both ends; taken
     * over in any case.  The link may be used at once; what is still to be negotiated is done in progress(). */
    ring_status_t (*connect)(struct ri_link *l, const int *fds, uint32_t count);
    /* Fails every xfer still posted (they are not returned: the core has forgotten them) and frees. */
    void (*disconnect)(struct ri_link *l);

    void (*send)(struct ri_link *l, struct ri_xfer *x);
    void (*recv)(struct ri_link *l, struct ri_xfer *x);

    /* Move what can be moved on all links; append what is finished to done; returns > 0 when anything at all moved. */
    unsigned (*progress)(struct ri_tctx *t, struct ri_queue *done);

    /* For sleeping.  arm: say so to the peers; false when there is work already (do not sleep).  wait_fd: a descriptor
     * that becomes readable (poll) when progress() may have work. disarm after the sleep. */
    bool (*arm)(struct ri_tctx *t);
    int (*wait_fd)(struct ri_tctx *t);
    void (*disarm)(struct ri_tctx *t);
};

extern const struct ri_transport *const ri_transports[]; /* generated from the build's list; NULL-terminated */
extern const struct ri_transport ri_transport_loop;      /* tests only, not in the list */

#endif
