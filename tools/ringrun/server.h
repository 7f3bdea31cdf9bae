/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - the PMIx server of one host (the only part that sees PMIx): it registers the job, prepares the ranks'
 * environments, and turns what the ranks ask for into events for the agent.
 *
 * PMIx calls us on a thread of its own; nothing is decided there.  Requests wait in a list with a descriptor that
 * becomes readable; the agent takes them and answers from its own thread.  A fence among ranks of this host only is
 * answered at once.  Nothing is written to disk: the
 * key-value store is PMIx's "hash", and there is no rendezvous file.
 *
 * There is no close: PMIx_server_finalize() may never return when ranks were killed while they connected, and it has
 * nothing to tidy up that the end of the process does not. */
#ifndef RINGRUN_SERVER_H
#define RINGRUN_SERVER_H

#include <sys/types.h>

#include "protocol.h"

enum server_event_kind {
    SERVER_FENCE, /* answer with server_answer() */
    SERVER_FETCH, /* data of a rank on another host is wanted: answer with server_answer() */
    SERVER_FOUND, /* the answer to server_lookup() */
    SERVER_ABORT,
    SERVER_JOINED, /* a rank has called PMIx_Init */
    SERVER_LEFT,   /* a rank has called PMIx_Finalize */
};

struct server_event {
    enum server_event_kind kind;
    uint64_t id;            /* of the request, for the answer */
    uint32_t rank;          /* FETCH: whose data; ABORT, JOINED, LEFT: who */
    uint32_t seconds;       /* the asker's time limit; 0: none */
    int32_t code;           /* ABORT; FOUND: enum exchange */
    char *text;             /* ABORT */
    uint32_t *ranks, count; /* FENCE: who takes part, sorted; count 0: all */
    uint8_t *data;
    size_t len;
    struct server_event *next;
};

/* NULL when good, else a sentence. */
char *server_open(const struct job *job);
int server_fd(void); /* poll it for reading */
/* The next event, or NULL; the caller ends it with server_event_free(). */
struct server_event *server_next(void);
void server_event_free(struct server_event *e);

/* Answers; the data is copied.  Each request is answered once, unknown ids are ignored. */
void server_answer(uint64_t id, enum exchange how, const void *data, size_t len);
/* Ask for the data of a rank of this host; the answer comes as a SERVER_FOUND with this id. */
void server_lookup(uint64_t id, uint32_t rank);
/* The process of a rank of this host; 0 when it has ended.  A fence that waits for a rank that has ended fails: PMIx
 * itself would take the rank as one that has come. */
void server_watch(uint32_t rank, pid_t pid);
/* Add what a rank needs to find this server. */
char *server_setup(uint32_t rank, char ***env);

#endif
