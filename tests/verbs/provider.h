/* SPDX-License-Identifier: Apache-2.0 */
/* provider.h - how a test shapes, breaks and questions the devices of libibverbs_test.so.
 *
 * The library has libibverbs' functions and no hardware: both ends of every connection are in this process, and data is
 * moved by the calls themselves and by a thread of the library.  It is stricter than hardware: what a device might
 * forgive is refused and kept as a violation.  Where hardware is free (when a write arrives, in which pieces, when its
 * completion is seen) a seed decides.
 *
 * Tests link with the library, or find `provider_control` in it with dlsym().  Any thread may call any function here.
 */
#ifndef TESTS_VERBS_PROVIDER_H
#define TESTS_VERBS_PROVIDER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PROVIDER_DEVICES = 8,
    PROVIDER_GIDS = 16, /* the length of every table */
    PROVIDER_SGE = 16,
    PROVIDER_OPCODES = 16,
};

struct provider_gid {
    union ibv_gid gid;
    uint32_t index;
    enum ibv_gid_type type;
    uint32_t ifindex;
};

/* A device has one port, number 1. */
struct provider_device {
    char name[IBV_SYSFS_NAME_MAX];
    bool infiniband; /* otherwise Ethernet */
    uint16_t lid;    /* of InfiniBand */
    enum ibv_port_state state;
    enum ibv_mtu active_mtu;
    uint32_t max_msg_sz;
    uint32_t max_inline;
    int max_sge;
    int max_qp_wr;
    int max_cqe;
    int max_rd_atomic;
    bool no_imm;           /* as iWARP: WRITE_WITH_IMM and SEND_WITH_IMM are not known */
    bool relaxed_ordering; /* IBV_ACCESS_RELAXED_ORDERING is seen; otherwise left out, as an older kernel does */
    bool dmabuf;           /* ibv_reg_dmabuf_mr() takes what can be mapped; what is written there by RDMA is seen when a
                              read through the same registration, posted after it had come, has been polled */
    uint64_t locked_memory; /* bytes that may be registered, in whole pages; 0: any */
    int open_error;         /* errno of ibv_open_device() */
    uint8_t active_width;
    uint8_t active_speed;
    int gids;
    struct provider_gid gid[PROVIDER_GIDS];
};

struct provider_world {
    int devices;
    struct provider_device device[PROVIDER_DEVICES];
    bool calm;      /* everything at once and in order: not for finding faults */
    bool still;     /* the thread moves nothing, only calls do: a run of one thread is the same for the same seed */
    unsigned hurry; /* by what the timeouts of retries are shortened; at least 1 */
};

struct provider_counters {
    uint64_t wr[PROVIDER_OPCODES]; /* work requests by enum ibv_wr_opcode */
    uint64_t bytes;                /* theirs */
    uint64_t signalled;
    uint64_t inlined;
    uint64_t doorbells; /* calls of ibv_post_send() */
    uint64_t receives;  /* receive work requests */
    uint64_t receive_doorbells;
    uint64_t retired;     /* work requests that ended, also those without a completion */
    uint64_t completions; /* that were polled */
    uint64_t failures;    /* completions with an error */
    uint64_t reordered;   /* pieces of writes that overtook another */
    uint64_t rnr;         /* messages that found no receive; 0 in a healthy run */
    uint64_t unanswered;  /* send queues that failed because nobody answered */
    uint64_t denied;      /* remote accesses that were refused, also those to memory just deregistered */
    uint64_t notified;    /* events on completion channels */
    uint64_t async_events;
    uint64_t registrations; /* ever */
    uint64_t relaxed;       /* of them with IBV_ACCESS_RELAXED_ORDERING */
    uint64_t readable;      /* of them with IBV_ACCESS_REMOTE_READ */
    uint64_t dmabufs;
    uint64_t hidden; /* pieces of writes to them that nobody sees yet, or ever did */
    uint64_t locked; /* bytes now registered, in whole pages */
    /* what is alive now */
    uint64_t devices; /* structs of device lists that are not freed, or whose device is open */
    uint64_t contexts;
    uint64_t pds;
    uint64_t mrs;
    uint64_t channels;
    uint64_t cqs;
    uint64_t qps;
};

struct provider_qp {
    int device;
    uint32_t qp_num;
    uint32_t dest_qp_num;
    enum ibv_qp_state state;
    uint64_t sends; /* posted and not done */
    uint64_t receives;
};

struct provider_control {
    /* The default world, no faults, all counters 0, all objects gone.  How many were still alive. */
    unsigned (*reset)(uint64_t seed);
    /* The world is changed by getting it, and setting it again.  Open devices see the change at once. */
    void (*get_world)(struct provider_world *out);
    void (*set_world)(const struct provider_world *world);

    /* The nth call of a function from now (1: the next) fails, and `times` - 1 more after it (0: all).  The name is
     * that of the function: "ibv_reg_mr", "ibv_post_send".  A function without result does not fail.  False: no such
     * name, or too many faults. */
    bool (*fail_call)(const char *function, unsigned nth, unsigned times, int error);
    unsigned (*calls)(const char *function); /* since the reset */
    /* The nth work request to end from now, of any queue, signalled or not, ends with this status. */
    void (*fail_completion)(uint64_t nth, enum ibv_wc_status status);

    /* A port changes, and its device's contexts are told so.  Down: nothing passes, and the send queues fail after
     * their retries. */
    void (*set_port)(int device, enum ibv_port_state state);
    /* An event at all contexts of a device.  IBV_EVENT_DEVICE_FATAL ends all its queues too, and it makes nothing new;
     * those that end a queue pair come for each of the device, and end it. */
    void (*raise)(int device, enum ibv_event_type event);
    /* A queue pair answers no more, and sends nothing; qp_num 0: all of the device.  Its own state stays. */
    void (*silence)(int device, uint32_t qp_num, bool on);
    /* Nothing moves while held, whoever calls. */
    void (*hold)(bool on);

    /* How many queue pairs there are; `most` of them are described. */
    size_t (*queue_pairs)(struct provider_qp *out, size_t most);
    void (*counters)(struct provider_counters *out);
    /* How many violations there were; text_out (cap bytes, may be 0) says what the first was. */
    unsigned (*violations)(char *text_out, size_t cap);
};

extern const struct provider_control provider_control;

#endif
