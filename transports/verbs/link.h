/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - what two ranks say to each other over queue pairs, and the state of one end.
 *
 * A short message (EAGER), of no more than a slot and a request hold, is written into the next of a few slots that the
 * peer has set aside, with immediate data; the peer gives slots back in credits.  For a longer one the receiver grants
 * memory, piece by piece: where it is to go itself, when that is registered, else a landing slot.  A grant is written
 * into the sender's memory, with immediate data; the sender writes the piece there and ends with immediate data.  Both
 * ends know the length of every message, and take them in order, so neither kind is announced.
 *
 *     immediate data    what has happened
 *     EAGER, length     the next slot is full
 *     DATA, grant       a part of what was granted has been written, the last if all lanes have said so
 *     GRANT, grant      the next grant is there
 *     CREDIT, count     so many slots have been emptied since the beginning
 *
 * Grant number g goes over lane g % lanes, or a part of it over each lane (RING_IB_SPLIT); all else goes over lane 0,
 * so it comes in order.  When a port is lost its lanes' work goes over others (move.c).
 *
 * The socket brings the two together (greet.h); then it is there to end: a peer that goes says how much it has sent,
 * so that what is on its way still arrives, and one that dies says nothing. */
#ifndef RI_VERBS_LINK_H
#define RI_VERBS_LINK_H

#include "transports/verbs/gid.h"
#include "transports/verbs/lane.h"

enum {
    VERBS_RAILS = VERBS_RAILS_MOST, /* ports of a link */
    VERBS_LANES = 64,               /* queue pairs of it */
    VERBS_EAGER = 8 << 10,          /* bytes             */
    VERBS_EAGERS = 32,              /* slots of so many  */
    VERBS_CHUNK = 256 << 10,        /* bytes             */
    VERBS_CHUNKS = 4,               /* slots of so many, each way */
    VERBS_GRANTS = 16,              /* under way         */
    VERBS_REQUEST = 4096,           /* bytes that one may carry, or a multiple of it */
    VERBS_GREETING = 4096,          /* bytes of the longest message over the socket */
};
enum verbs_tell { VERBS_TELL_EAGER, VERBS_TELL_DATA, VERBS_TELL_GRANT, VERBS_TELL_CREDIT, VERBS_TELL_AT = 30 };

struct verbs_grant {
    uint64_t at, bytes;
    uint32_t key[VERBS_RAILS]; /* of the receiver's, by rail */
    uint32_t number, unused;
};

/* Registered with every rail of the link. */
struct verbs_window {
    struct verbs_grant granted[VERBS_GRANTS]; /* by the peer */
    struct verbs_grant grant[VERBS_GRANTS];   /* to the peer, where it cannot be inline */
    uint32_t words[VERBS_LANES][LANE_RECEIVES];
    uint32_t words_out[VERBS_LANES][LANE_SENDS];
    _Alignas(4096) unsigned char eager_in[VERBS_EAGERS][VERBS_EAGER];
    unsigned char eager_out[VERBS_EAGERS][VERBS_EAGER];
    unsigned char chunk_in[VERBS_CHUNKS][VERBS_CHUNK];
    unsigned char chunk_out[VERBS_CHUNKS][VERBS_CHUNK];
};

/* What was granted to the peer. */
struct verbs_landing {
    unsigned char *at;
    size_t bytes;
    uint32_t parts;         /* still to be told of */
    bool slot;              /* one of chunk_in     */
    bool flush;             /* memory of a GPU (flush.h) */
    uint32_t unread, reads; /* rails by which it came and that have not read from it, bits; reads under way */
};

struct verbs_greeting {
    unsigned char out[VERBS_GREETING], in[VERBS_GREETING];
    size_t out_len, out_at, in_len;
};

/* What became of a rail that is lost. */
struct verbs_loss {
    bool lost;         /* its lanes are stopped                                     */
    bool said, heard;  /* what the lanes had heard till then: to the peer, of it    */
    uint64_t deadline; /* for the device to give back what was posted               */
};

enum verbs_stage { VERBS_HELLO, VERBS_MEET, VERBS_READY, VERBS_UP };

struct verbs_ctx;
struct verbs_link {
    struct ri_link base;
    int fd;
    bool has_fd, watched_out; /* watched_out: it is waited for no more */
    enum verbs_stage stage;
    struct verbs_greeting *greeting;
    struct verbs_window *window;
    struct ibv_mr *window_mr[VERBS_RAILS];
    uint64_t peer_window;
    uint32_t peer_key[VERBS_RAILS];
    struct verbs_rail *rail[VERBS_RAILS];
    struct verbs_route route[VERBS_RAILS];
    size_t most;                       /* bytes of a request, whichever lane carries it */
    size_t eager_most;                 /* bytes of a message that fills a slot          */
    struct verbs_end end[VERBS_PORTS]; /* as the peer was told    */
    struct verbs_rail *end_rail[VERBS_PORTS];
    unsigned ends;
    struct verbs_lane *lane;
    uint32_t rails, lanes;
    struct verbs_loss loss[VERBS_RAILS]; /* by rail */
    uint32_t lost_rails, moving;         /* moving: of them, those whose work others have not got yet */
    uint32_t move[VERBS_RAILS];          /* those, in the order in which they were lost               */

    struct ri_queue out, in;
    struct ri_xfer *next_out;   /* not wholly posted           */
    struct ri_xfer *next_grant; /* not wholly granted for      */
    size_t granted_for;         /* bytes of it                 */
    uint64_t eager_sent, eager_credit, eager_heard, eager_taken, eager_told;
    uint64_t grants_heard, grants_used;
    size_t grant_at; /* bytes of grants_used that are posted */
    uint32_t grant_part;
    uint64_t grants_given, landings_taken;
    struct verbs_landing landing[VERBS_GRANTS];
    uint32_t chunks_in_free, chunks_out_free; /* bits */
    uint32_t flushing;                        /* of the landings, those told of wholly that are not there yet */

    uint64_t felt; /* by verbs_link_feel(): all that was heard and complete */
    bool listed;   /* among the context's links with something to do */
    bool ended;    /* the socket has: what has been sent still comes, up to these, until then */
    bool told_end;
    uint64_t end_eager, end_data, data_sent, data_heard, end_deadline;
    bool broken;
    uint32_t flushed; /* lanes; the reason may still come, until then */
    uint64_t flush_deadline;
    bool lost; /* a receive has failed, so what came for it is not the next one's */
    struct verbs_link *next;
};

/* Lane i, or the one that does its work. */
static inline struct verbs_lane *verbs_link_lane(const struct verbs_link *l, uint32_t i)
{
    while (l->loss[l->lane[i].rail_at].lost)
        i = (i + 1) % l->lanes;
    return &l->lane[i];
}

static inline struct verbs_ctx *verbs_ctx_of(const struct verbs_link *l) { return (struct verbs_ctx *)l->base.ctx; }

/* Whole messages that could be moved now; > 0 when anything moved. */
unsigned verbs_link_move(struct verbs_link *l, struct ri_queue *done);
/* Immediate data of the peer's, by this lane; false: it makes no sense. */
bool verbs_link_told(struct verbs_lane *lane, uint32_t word);
/* Of a lane: all places up to `to` are complete.  False: they were of nothing but empty writes (verbs_link_feel). */
bool verbs_link_sent(struct verbs_lane *lane, uint64_t to);
/* why: with the device, where it is about one; "": the other end has closed it. */
void verbs_link_break(struct verbs_link *l, const char *why);
/* The same, when a device has failed, and it is said. */
void verbs_link_fail(struct verbs_link *l, const struct verbs_rail *rail, const char *what);
/* A device refuses what was asked of it, errno: the rail is lost. */
void verbs_link_refused(struct verbs_lane *lane, const char *what);

/* An empty write: it fails when the peer's host is not there any more. */
void verbs_link_probe(struct verbs_lane *lane);
/* Who waits sends nothing, so its devices would not notice that the peer's host is gone.  Called every now and then:
 * when nothing has moved since the last time, each rail asks. */
void verbs_link_feel(struct verbs_link *l);

/* ---- greet.c: until the link is up ------------------------------------------------------------------------------ */

ring_status_t verbs_greet_begin(struct verbs_link *l);
void verbs_greet_fini(struct verbs_link *l);
/* > 0 when something moved; a failure breaks the link. */
unsigned verbs_greet(struct verbs_link *l);
/* More of what is to be said, when the socket did not take all of it; > 0 when something moved. */
unsigned verbs_greet_speak(struct verbs_link *l);
/* The socket of a link that is up has something to say: that the peer has lost a rail, or goes. */
void verbs_greet_listen(struct verbs_link *l);
/* To the peer: this end has lost that rail, and what its lanes had heard.  False: it does not fit. */
bool verbs_greet_lost(struct verbs_link *l, uint32_t rail);
/* To the peer: how much this end has sent. */
void verbs_greet_goodbye(struct verbs_link *l);

/* ---- move.c: when a rail is lost --------------------------------------------------------------------------------- */

/* The link goes on without this one of its rails, or breaks when it has no other. */
void verbs_move_lose(struct verbs_link *l, uint32_t rail, const char *why);
/* The peer's lane `i` has heard so much, in all; false: it cannot have. */
bool verbs_move_hear(struct verbs_link *l, uint32_t i, uint32_t heard);
/* There is a rail whose device has not given back what was posted: nothing wakes a sleeper for that. */
bool verbs_move_is_due(const struct verbs_link *l);
/* Do what can be done now for rails that are lost; > 0 when something moved. */
unsigned verbs_move(struct verbs_link *l);

#endif
