/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - one queue pair of a link, and the device that it is on.
 *
 * Everything posted has a place in the lane's send queue, in order.  A signalled completion frees all places up to its
 * own, and what they stand for: a piece of a message, a slot that was copied from.  Receive requests carry no data of
 * their own but where a device cannot write with immediate data; as many are posted as the peer may use up, and a used
 * one is posted again at once, so nobody ever finds none.
 *
 * Memory: the caller's; init makes the queue pair, fini destroys it.  Threads: those of the context. */
#ifndef RI_VERBS_LANE_H
#define RI_VERBS_LANE_H

#include <ring/ring.h>

#include "transports/transport.h"
#include "transports/verbs/api.h"

enum {
    LANE_SENDS = 128,    /* places in a send queue                                              */
    LANE_SIGNAL = 32,    /* without a signalled request for so many places, the next one is it  */
    LANE_RECEIVES = 128, /* posted at any time                                                  */
    LANE_CONTROL = 16,   /* of LANE_SENDS kept for grants and credits, without which all stops  */
    LANE_WRITE = 2,      /* places that verbs_lane_write() takes at most                        */
    LANE_WORD = 4,       /* bytes of a message where there is no immediate data                 */
};

/* A port that links of a context use, one for all its links. */
struct verbs_rail {
    const struct verbs_api *api;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_comp_channel *channel;
    char name[80]; /* "mlx5_0 port 1" */
    uint32_t index;
    uint8_t port;
    bool immediate; /* immediate: can write with immediate data */
    uint16_t lid;
    enum ibv_mtu mtu;
    size_t fence_from;     /* bytes from which what is written is followed by an empty write with the immediate data */
    int cq_room, cq_taken; /* completions            */
    unsigned cq_events;    /* not acknowledged yet   */
    struct verbs_flush *flush; /* NULL: not needed yet */
};

/* How packets reach the peer's queue pair. */
struct verbs_route {
    uint8_t gid_index;
    union ibv_gid peer_gid;
    bool global;
    uint16_t peer_lid;
    enum ibv_mtu mtu;
};

/* Something to be written.  at NULL or bytes 0: nothing but the immediate data. */
struct verbs_write {
    const void *at;
    size_t bytes;
    uint32_t key;
    uint64_t to;
    const uint32_t *to_key; /* by the link's rails; there until it is complete */
    bool tells;             /* the peer, with these */
    uint32_t immediate;     /* data                 */
    bool signalled;
    bool gpu;             /* at: the processor cannot read it      */
    struct ri_xfer *xfer; /* a piece of this; or NULL           */
    unsigned char *slot;  /* that it is copied from; or NULL    */
};

/* A request in the send queue. */
struct verbs_place {
    struct verbs_write write; /* that ends with it                              */
    bool whole;               /* false: the next one ends it                    */
    uint64_t told;            /* writes that tell, of the lane's, up to here    */
};

struct verbs_lane {
    struct verbs_link *link;
    struct verbs_rail *rail;
    uint32_t rail_at; /* among those of the link */
    struct ibv_qp *qp;
    uint32_t id; /* in the context's table, with a generation: of its completions */
    uint32_t psn;
    uint32_t inline_most;
    uint64_t posted, complete, signalled; /* places: all up to */
    uint64_t told, told_complete;         /* writes that tell: posted, and complete */
    uint64_t heard, arrived;              /* of the peer's; of those told, by what the peer has said */
    uint32_t receives;                    /* posted */
    bool stopped;                         /* the queue pair takes and sends nothing more        */
    bool flushed;                         /* the queue pair has failed, and it is not known why */
    bool wild;                            /* but the device would not have it, and may go on    */
    uint32_t *words;                      /* LANE_RECEIVES, where receives carry data */
    uint32_t *words_out;                  /* LANE_SENDS, where that cannot be inline  */
    uint32_t words_key;                   /* with which both are registered           */
    struct verbs_place place[LANE_SENDS];
};

ring_status_t verbs_lane_init(struct verbs_lane *lane);
/* Receives are posted, nothing can be sent yet. */
ring_status_t verbs_lane_connect(struct verbs_lane *lane, const struct verbs_route *route, uint32_t peer_qp,
                                 uint32_t peer_psn, const struct ri_conf *conf);
/* Nothing is done any more; what was posted comes back as failed.  False: it does not, for the queue pair is gone. */
bool verbs_lane_stop(struct verbs_lane *lane);
void verbs_lane_fini(struct verbs_lane *lane);

static inline uint32_t verbs_lane_room(const struct verbs_lane *lane)
{
    return LANE_SENDS - (uint32_t)(lane->posted - lane->complete);
}
/* There is room for LANE_WRITE.  False: the device refuses, errno. */
bool verbs_lane_write(struct verbs_lane *lane, const struct verbs_write *w);

/* wr_id of requests: whose, and which. */
static inline uint64_t verbs_wr_id(const struct verbs_lane *lane, bool receive, uint32_t at)
{
    return (uint64_t)lane->id << 32 | (uint64_t)receive << 31 | (at & 0x7fffffff);
}
bool verbs_lane_receive(struct verbs_lane *lane, uint32_t at); /* posts request `at` (again) */

#endif
