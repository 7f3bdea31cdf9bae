/* SPDX-License-Identifier: Apache-2.0 */
/* rig.h - the two ends of one connection on the provider's devices, and the smallest things to do with them.
 *
 * Every function asserts that what it does succeeds; what a test wants to see refused it does itself. */
#ifndef TESTS_VERBS_RIG_H
#define TESTS_VERBS_RIG_H

#include "tests/verbs/provider.h"

enum {
    RIG_ROOM = 16, /* work requests in each queue */
    RIG_CQ = 64,   /* completions */
    RIG_SGE = 4,   /* pieces */
    RIG_INLINE = 64,
    RIG_BYTES = 1 << 17,
    RIG_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    RIG_GID = 3, /* RoCE version 2, IPv4 */
    RIG_TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    RIG_TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    RIG_TO_RTS =
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    unsigned char *bytes;    /* RIG_BYTES, registered */
    struct ibv_qp_attr attr; /* all that the way to RTS asks for */
};

struct rig {
    struct end a, b; /* on test0 and test1 */
};

/* Both ends in RESET, and what they will say. */
void rig_open(struct rig *r);
/* On to RTS.  With `attr` changed, it may be another connection than a good one. */
void rig_init(struct end *e);
void rig_ready(struct end *e);
void rig_connect(struct rig *r);
/* All of it gone, and nothing was wrong. */
void rig_close(struct rig *r);
void rig_expect_clean(void);
/* There was a violation, and it says this. */
void rig_expect_violation(const char *text);

struct ibv_sge rig_sge(const struct end *e, size_t at, uint32_t bytes);
/* A write of bytes of `e` to the same place of `to`; with WRITE_WITH_IMM or SEND as opcode, that. */
struct ibv_send_wr rig_wr(const struct end *to, size_t at, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
                          unsigned flags);
void rig_send(struct end *e, const struct end *to, size_t at, uint32_t bytes, enum ibv_wr_opcode opcode,
              unsigned flags);
void rig_recv(struct end *e, unsigned n);
/* Polls until there are n completions, which it asserts; a second is enough for any. */
void rig_poll(struct end *e, int n, struct ibv_wc *wc);

#endif
