/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.h - what ringrun and its agents say to each other, over one channel each; and the job, the longest message.
 *
 *   ringrun                         agent
 *      <--------------------------- magic, HELLO
 *   JOB --------------------------->            the agent starts its ranks
 *   INPUT, SIGNAL ----------------->            INPUT: standard input of rank 0; empty: its end
 *      <--------------------------- OUTPUT, TAKEN, EXIT, SHUT, ABORT, FENCE, FETCH
 *   CREDIT, FENCED, FETCHED, LOOKUP>            CREDIT: so many bytes of OUTPUT were written
 *      <--------------------------- FOUND
 *   END --------------------------->            all is over: the agent kills what is left, and leaves
 *
 * Flow: an agent has at most OUTPUT_WINDOW bytes of OUTPUT (and one line) under way, ringrun INPUT_WINDOW bytes of
 * INPUT; CREDIT and TAKEN give back.  So a reader that is slow stops the writers, never the messages that end a job.
 * End of file on its channel tells an agent that ringrun is gone: it kills its ranks and leaves. */
#ifndef RINGRUN_PROTOCOL_H
#define RINGRUN_PROTOCOL_H

#include "wire.h"

enum { PROTOCOL = 1, OUTPUT_WINDOW = 1 << 20, INPUT_WINDOW = 256 << 10, CHUNK = 64 << 10, LINE_MAX_BYTES = 1 << 20 };

enum message {
    MSG_HELLO = 1, /* u32 protocol, text version, text host's own name */
    MSG_JOB,       /* job_put() */
    MSG_INPUT,     /* raw bytes */
    MSG_TAKEN,     /* u32 bytes; INPUT_CLOSED: rank 0 reads no more */
    MSG_SIGNAL,    /* u32 signal, for all ranks of the agent */
    MSG_OUTPUT,    /* u32 stream (1, 2), raw bytes */
    MSG_CREDIT,    /* u32 bytes */
    MSG_EXIT,      /* u32 rank, u32 enum ended, u32 value */
    MSG_SHUT,      /* u32 rank: it has ended, and all its OUTPUT is sent */
    MSG_ABORT,     /* u32 rank, u32 code, text message */
    MSG_FENCE,     /* u64 id, u32 seconds (0: for ever), ranks, blob */
    MSG_FENCED,    /* u64 id, u32 enum exchange, blob */
    MSG_FETCH,     /* u64 id, u32 seconds, u32 rank */
    MSG_FETCHED,   /* u64 id, u32 enum exchange, blob */
    MSG_LOOKUP,    /* u64 id, u32 rank: ringrun asks the agent that has the rank */
    MSG_FOUND,     /* u64 id, u32 enum exchange, blob */
    MSG_PROBLEM,   /* text: the agent cannot go on */
    MSG_END,       /* nothing */
};

#define INPUT_CLOSED UINT32_MAX
enum { JOB_RANKS_MAX = 1 << 20 };

/* How a rank ended. */
enum ended {
    ENDED_EXIT = 1,  /* value: its exit code */
    ENDED_SIGNAL,    /* value: the signal */
    ENDED_NO_EXEC,   /* value: errno of the program's start */
    ENDED_NO_FOLDER, /* value: errno of entering the working directory */
    ENDED_NO_START,  /* value: errno of fork, pipe and the like */
    ENDED_LOST,      /* its host is gone (never on the wire) */
};

enum exchange { EXCHANGE_OK = 0, EXCHANGE_TIMEOUT, EXCHANGE_LOST, EXCHANGE_NOT_FOUND, EXCHANGE_REFUSED };

/* Ranks first .. first + count - 1 live on one host. */
struct place {
    char *host;
    uint32_t first, count;
};

struct job {
    char *name;    /* the PMIx namespace */
    uint32_t size; /* ranks in all */
    uint32_t here; /* index of the receiver's place */
    struct place *places;
    uint32_t place_count;
    bool tag_output;
    char *folder;       /* working directory */
    char **argv, **env; /* both end in NULL; env: what is set on top of the agent's own environment */
};

void job_put(struct bytes *b, const struct job *job, uint32_t here);
/* false, and nothing to free: the message is wrong. */
bool job_get(struct cursor *c, struct job *job_out);
void job_free(struct job *job);
/* The place of a rank. */
uint32_t job_place(const struct job *job, uint32_t rank);

#endif
