/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.h - where the ranks of a ticket meet: what its maker serves, and the frames between it and the ranks.
 *
 * A rank connects through the maker's port (port.h), joins, and takes part in rounds: it sends a blob, and when all
 * ranks have, each gets all blobs.  The first failure (a rank lost, a deadline passed, ranks that disagree on the size)
 * is told to all ranks.  The server ends when all ranks have left.  Cost: one round trip to the maker a round; at the
 * maker the blobs of one round are held once, whatever the number of ranks.
 *
 * A frame is a type and a length (u16, u16 zero, u32; little-endian) and a body. */
#ifndef RI_RENDEZVOUS_H
#define RI_RENDEZVOUS_H

#include "lib/base/conf.h"
#include "lib/boot/ticket.h"

enum ri_frame {
    RI_FRAME_JOIN = 1, /* rank: u32 size                                                               */
    RI_FRAME_ROUND,    /* rank: its blob                                                                */
    RI_FRAME_WHO,      /* rank: my deadline has passed; who is missing?                                 */
    RI_FRAME_BYE,      /* rank: done                                                                    */
    RI_FRAME_WELCOME,  /* maker: you are in                                                             */
    RI_FRAME_RESULT,   /* maker: for each rank u32 length and blob                                      */
    RI_FRAME_FAIL      /* maker: u32 -status and a sentence (TIMEOUT: only the missing ranks, as text)  */
};
enum {
    RI_FRAME_HEAD = 8,
    RI_ROUND_MAX = 1 << 16, /* bytes that one rank may give to one round */
    RI_RANKS_MAX = 1 << 20, /* ranks of one ticket                        */
    RI_FAIL_TEXT = 320
};
#define RI_MAKER UINT32_MAX /* the maker's "rank" in the handshake */

/* Serve the rendezvous of a new ticket from the background thread until all ranks have left. */
ring_status_t ri_rendezvous_serve(const struct ri_conf *conf, struct ri_ticket *ticket_out);

#endif
