/* SPDX-License-Identifier: Apache-2.0 */
/* rig.h - two ends of a transport in one process, and messages whose content is known.
 *
 * A job is one send or receive with its memory.  The rig watches what every transport has promised: each job comes back
 * once, in posting order per link and direction; nothing outside a receive buffer is written; a sink gets every byte
 * once, in order, in whole aligned units.  The first broken promise is kept in `problem` of the end (threads cannot
 * assert). */
#ifndef RIG_H
#define RIG_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "transports/transport.h"

/* ThreadSanitizer makes every byte twenty times as dear, and so does a machine that is emulated (RING_TEST_SLOW). */
#ifdef __SANITIZE_THREAD__
#define RIG_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RIG_SANITIZED 1
#endif
#endif
#ifndef RIG_SANITIZED
#define RIG_SANITIZED 0
#endif
#define RIG_SLOW (RIG_SANITIZED || getenv("RING_TEST_SLOW"))

enum { RIG_LINKS = 8, RIG_GUARD = 64 };

struct job {
    struct ri_xfer x; /* first: the transport gives this back */
    struct job *next; /* all jobs of the end                  */
    bool sends, back;
    uint32_t link, unit, salt;
    uint64_t order;        /* among those of its link and direction */
    unsigned char *memory; /* guard, bytes, guard                   */
    size_t sunk;
    struct rig_end *end;
};

struct rig_end {
    const struct ri_transport *t;
    struct ri_conf conf;
    struct ri_tctx *ctx;
    struct ri_link *link[RIG_LINKS];
    uint32_t links;
    struct job *jobs;
    uint64_t posted[RIG_LINKS][2], returned[RIG_LINKS][2];
    uint64_t out; /* jobs not back yet */
    char problem[256];
};

struct rig {
    struct rig_end end[2];
};

/* settings: "RING_X=1 RING_Y=2".  Link i of end 0 leads to link i of end 1. */
void rig_open(struct rig *rig, const struct ri_transport *t, uint32_t links, const char *settings);
void rig_close(struct rig *rig);

/* The steps of rig_open(), for tests that stop half way. */
void rig_open_ends(struct rig *rig, const struct ri_transport *t, const char *settings);
uint32_t rig_sockets(const struct rig *rig, int mine[16], int theirs[16]);
ring_status_t rig_connect(struct rig *rig, int end, const int *fds, uint32_t count);
void rig_disconnect(struct rig *rig, int end, uint32_t link);

/* Content is made from salt and offset.  unit 0: a plain receive. */
struct job *rig_send(struct rig *rig, int end, uint32_t link, size_t len, uint32_t salt);
struct job *rig_recv(struct rig *rig, int end, uint32_t link, size_t len, uint32_t salt, uint32_t unit);

/* One progress() and what it returns; > 0 when something moved. */
unsigned rig_step(struct rig_end *e);
/* Both ends in turns until all jobs are back, 20 s at most. */
void rig_run(struct rig *rig);
/* One end until its jobs are back; sleep: by arm(), poll() and disarm() whenever nothing moves. */
void rig_run_end(struct rig_end *e, bool sleep);

/* Back with this status; a receive that succeeded has the right bytes, any one has intact guards. */
void rig_expect(const struct job *j, ring_status_t status);
void rig_expect_all(struct rig *rig, ring_status_t status);

uint64_t rig_random(uint64_t *state);
/* With settings that make buffers small; verbs has none of those, so once is enough. */
bool rig_repeats(const struct ri_transport *t);
const struct ri_transport *rig_transport(const char *name); /* NULL: not in this build */
unsigned rig_descriptors(void);

/* A link over verbs has one thread, and the devices of the tests one lock: nothing for ThreadSanitizer, and a minute. */
#if RIG_SANITIZED
#define RIG_VERBS_TEST(name)
#else
#define RIG_VERBS_TEST(name) RIG_TEST(verbs, name)
#endif

/* CHECK(name) { ... } is a test of every transport `t`. */
#define RIG_TEST(suite, name)                                          \
    Test(suite, name)                                                  \
    {                                                                  \
        const struct ri_transport *t = rig_transport(#suite);          \
        if (t)                                                         \
            check_##name(t);                                           \
        else                                                           \
            cr_skip_test("transport " #suite " is not in this build"); \
    }
#define CHECK(name)                                         \
    static void check_##name(const struct ri_transport *t); \
    RIG_TEST(loop, name)                                    \
    RIG_TEST(shm, name)                                     \
    RIG_TEST(tcp, name)                                     \
    RIG_VERBS_TEST(name)                                    \
    static void check_##name(const struct ri_transport *t)

#endif
