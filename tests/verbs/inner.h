/* SPDX-License-Identifier: Apache-2.0 */
/* inner.h - what the files of the provider share.
 *
 * One mutex guards everything (world.lock); a function pv_... here is called with it held unless it says otherwise.
 * Objects begin with libibverbs' struct of the same name, so that a pointer to one is a pointer to the other. */
#ifndef TESTS_VERBS_INNER_H
#define TESTS_VERBS_INNER_H

#include <pthread.h>

#include "tests/verbs/provider.h"
#include "transports/verbs/api.h"

#define EXPORT __attribute__((visibility("default")))

enum call {
#define PV_CALL(symbol, result, name, arguments) CALL_##name,
    VERBS_FUNCTIONS(PV_CALL) VERBS_OPTIONAL(PV_CALL)
#undef PV_CALL
        CALL_post_send,
    CALL_post_recv,
    CALL_poll_cq,
    CALL_req_notify_cq,
    CALLS
};

enum kind { DEVICE, CONTEXT, PD, MR, CHANNEL, CQ, QP, KINDS };

enum { PORT = 1, PIECES = 4, FAULTS = 32, TEXT = 512, PAGE = 4096 };

/* In the list of its kind. */
struct object {
    struct object *next;
    void *self;
};

/* Events that wait to be read.  The socket holds one byte when there are any, and has the flags its owner gave it. */
struct event {
    struct event *next;
    void *about; /* a CQ or QP; or NULL */
    struct ibv_async_event async;
};

struct queue {
    int fd[2]; /* the reader's, ours */
    struct event *first;
};

struct device {
    struct ibv_device base;
    struct object object;
    int index;
    int uses;
};

struct context {
    struct ibv_context base;
    struct object object;
    struct queue events;
    int uses;
};

struct pd {
    struct ibv_pd base;
    struct object object;
    int uses;
};

/* Bytes that have been written and that nobody sees. */
struct hidden {
    struct hidden *next;
    char *to;
    size_t bytes;
    uint64_t before; /* the read that came behind it; 0: none has */
    char data[];
};

struct mr {
    struct ibv_mr base;
    struct object object;
    char *at;
    uint64_t iova;
    unsigned access;
    size_t locked;
    void *map; /* of a dma-buf */
    size_t mapped;
    struct hidden *first, **last; /* of a dma-buf, in the order in which they came */
};

struct channel {
    struct ibv_comp_channel base;
    struct object object;
    struct queue events;
};

struct cqe {
    struct cqe *next;
    struct ibv_wc wc;
    struct qp *qp;
    bool send;
    bool solicited;
    uint64_t slot;
    uint64_t read; /* of a read, its number */
};

struct cqes {
    struct cqe *first, *last;
    unsigned count;
};

enum armed { NOT_ARMED, ARMED_SOLICITED, ARMED };

struct cq {
    struct ibv_cq base;
    struct object object;
    struct cqes seen; /* what a poll finds */
    int held;         /* these, and those that are on their way */
    enum armed armed;
    bool dead;
    int uses;
    unsigned got, acked, async_got, async_acked;
};

struct send {
    struct ibv_send_wr wr; /* its own copies of what it points to are below */
    struct ibv_sge sge[PROVIDER_SGE];
    char *inlined;
    uint64_t bytes;
    uint64_t cut[PIECES + 1]; /* piece i is cut[i] to cut[i + 1] */
    unsigned todo;            /* a bit a piece */
    uint64_t read;            /* of a read that has been done, its number among all */
    bool checked;
    enum ibv_wc_status status;
};

struct recv {
    uint64_t wr_id;
    struct ibv_sge sge[PROVIDER_SGE];
    int sges;
    uint64_t bytes;
};

/* Work requests are numbered from 0; a queue has room for those from `freed` on.  Those before `done` have ended, and
 * those before `freed` have been seen to. */
struct work {
    uint64_t freed, done, next;
    uint32_t room;
};

struct qp {
    struct ibv_qp base;
    struct object object;
    int device;
    struct ibv_qp_cap cap;
    bool signal_all;
    enum ibv_qp_state state; /* base.state is what the owner asked for last */
    struct ibv_qp_attr attr;
    struct send *send;
    struct work sq;
    struct recv *recv;
    struct work rq;
    struct cqes out[2]; /* completions on their way: of receives, of sends */
    bool silent;
    bool established;
    uint64_t lonely_since; /* ns; 0: answered */
    uint64_t rnr_until;
    unsigned rnr_tries;
    unsigned async_got, async_acked;
    struct qp *peer; /* as it was in this epoch */
    uint64_t epoch;
};

struct fault {
    enum call call;
    unsigned after; /* calls that still succeed */
    unsigned times; /* 0: for good */
    int error;
    bool on;
};

struct world {
    pthread_mutex_t lock;
    struct provider_world shape;
    struct provider_counters count;
    struct object *all[KINDS];
    uint64_t alive[KINDS];
    unsigned calls[CALLS];
    struct fault fault[FAULTS];
    uint64_t spoilt_after[FAULTS]; /* work requests that still end as they do; 0: none */
    enum ibv_wc_status spoilt[FAULTS];
    bool fatal[PROVIDER_DEVICES];
    uint32_t next_key;
    uint32_t reads;
    uint32_t next_qp[PROVIDER_DEVICES];
    uint64_t random;
    uint64_t epoch; /* counts changes of who may talk to whom */
    bool held;
    bool thread;
    unsigned violations;
    char text[TEXT];
};

extern struct world world;

/* ---- control.c ---- */

/* Not for use with the lock held: takes it, and begins with the default world in a process' first call. */
void pv_lock(void);
void pv_unlock(void);
/* Keeps what is wrong; the error. */
int pv_violation(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* 0, or the error that this call was made to fail with. */
int pv_fault(enum call call);
/* The status with which the next work request ends. */
enum ibv_wc_status pv_spoil(void);
uint64_t pv_random(uint64_t below);
bool pv_chance(unsigned one_in);
uint64_t pv_now(void);
void *pv_new(enum kind kind, size_t bytes, size_t object);
void pv_free(enum kind kind, void *self);
struct provider_device *pv_device(const struct ibv_context *context);
int pv_index(const struct ibv_context *context);

/* ---- events.c ---- */

bool pv_queue_open(struct queue *q);
void pv_queue_close(struct queue *q);
void pv_queue_put(struct queue *q, void *about, const struct ibv_async_event *async);
/* Events about something that is no more. */
void pv_queue_forget(struct queue *q, const void *about);
void pv_async(struct ibv_context *context, enum ibv_event_type event, void *about);

/* ---- memory.c ---- */

struct mr *pv_mr_find(uint32_t key);
/* Where those bytes are; NULL: one may not have them, and why_out is what is wrong.  Local: of a queue pair's owner.
 * Remote: of the other end, which may only do what `q` allows. */
char *pv_local(const struct qp *q, const struct ibv_sge *sge, unsigned access, const char **why_out);
char *pv_remote(const struct qp *q, uint64_t addr, uint64_t bytes, uint32_t key, unsigned access);
/* Where bytes that another end writes to `at` go to: there, or where nobody sees them yet. */
char *pv_hide(uint32_t key, char *at, uint64_t bytes);
/* A read of this memory has been done: its number, by which what had come before is seen once the read is polled. */
uint64_t pv_read(uint32_t key);
void pv_uncover(uint64_t read);
void pv_mr_free(struct mr *mr);

/* ---- queues.c ---- */

void pv_cqes_put(struct cqes *list, struct cqe *e);
struct cqe *pv_cqes_take(struct cqes *list);
void pv_cqes_free(struct cqes *list);
/* A completion comes to be; it is seen later.  read: that of a read, by its number; else 0. */
void pv_complete(struct qp *q, bool send, uint64_t slot, const struct ibv_wc *wc, bool solicited, uint64_t read);
/* It is seen now. */
void pv_show(struct cq *cq, struct cqe *e);
void pv_cq_free(struct cq *cq);
int pv_poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc);
int pv_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* ---- pairs.c ---- */

void pv_qp_forget_work(struct qp *q);
void pv_qp_free(struct qp *q);
const struct provider_gid *pv_gid(int device, uint32_t index);

/* ---- post.c ---- */

int pv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out);
int pv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out);

/* ---- wire.c ---- */

/* Time passes. */
void pv_tick(void);
/* The thread that lets time pass when nobody calls. */
void pv_thread(void);
/* All that is posted is flushed, and whatever comes. */
void pv_fail(struct qp *q);
struct send *pv_send(struct qp *q, uint64_t slot);
struct recv *pv_recv(struct qp *q, uint64_t slot);

#endif
