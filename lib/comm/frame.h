/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - what travels on a control connection: messages of one fixed size, so that a reader needs no length from
 * outside. */
#ifndef RI_CONTROL_FRAME_H
#define RI_CONTROL_FRAME_H

#include "lib/comm/comm.h"

enum ri_control_kind {
    RI_CONTROL_FAILURE = 1, /* what ended the communicator                         */
    RI_CONTROL_BYE,         /* all ranks of a host wait to leave                   */
    RI_CONTROL_NOTICE       /* a rank waits long, and in which operation (stall.c) */
};

struct ri_control_frame {
    enum ri_control_kind kind;
    struct ri_failure failure;     /* FAILURE                                          */
    uint32_t node;                 /* BYE                                              */
    uint64_t history;              /* BYE: hash of the calls that its ranks made       */
    uint32_t rank, version;        /* NOTICE: a later one of a rank has a higher version */
    struct ri_signature signature; /* NOTICE                                           */
};

void ri_frame_encode(const struct ri_control_frame *f, uint8_t wire[RI_FRAME]);
/* false: not a frame of a communicator of that many hosts and ranks. */
bool ri_frame_decode(const uint8_t wire[RI_FRAME], uint32_t nodes, uint32_t size, struct ri_control_frame *f_out);

#endif
