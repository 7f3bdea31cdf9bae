/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - a ring of bytes in shared memory, one writer and one reader, and the segment that holds a link's two rings.
 *
 * head and tail count bytes written and read since the beginning and never wrap in practice (64 bits); each end owns
 * one, keeps its own copy of it privately, and checks the other's before use: whatever a peer writes there, no access
 * leaves the ring.  Every message starts at a multiple of 8, so that sinks find their elements aligned; so both
 * counters are multiples of 8 and so is the capacity.
 *
 * Publishing a counter is sequentially consistent, as is looking whether the other end sleeps just after: one of "the
 * sleeper sees the new counter" and "we see that it sleeps" is then always true. */
#ifndef RI_SHM_RING_H
#define RI_SHM_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHM_ALIGN = 8, SHM_LINE = 128 /* two lines: processors fetch them in pairs */ };

enum { SHM_WANTS_DATA = 1, SHM_WANTS_ROOM = 2 };

/* What lies at the start of the segment; the bytes of way 0 (initiator to acceptor) and way 1 follow. */
struct shm_way {
    alignas(SHM_LINE) _Atomic uint64_t head;
    alignas(SHM_LINE) _Atomic uint64_t tail;
};
struct shm_area {
    struct shm_way way[2];
    struct {
        alignas(SHM_LINE) _Atomic uint32_t asleep; /* SHM_WANTS_*: ring the bell when that has come */
    } end[2];                                      /* 0 the initiator, 1 the acceptor               */
};

size_t shm_area_bytes(size_t cap);

/* What the initiator says when it passes the segment. */
struct shm_hello {
    uint32_t magic, version;
    uint64_t cap; /* of each ring; must be what the acceptor's settings say */
};
enum { SHM_MAGIC = 0x6d687372, SHM_VERSION = 1 };

/* One end's private view of a ring. */
struct shm_ring {
    _Atomic uint64_t *mine, *other; /* the writer's: head, tail; the reader's: tail, head */
    unsigned char *bytes;
    size_t cap;
    uint64_t at, told, seen; /* own position, as published, and the other's when last looked at */
    size_t off;              /* at, as an offset into the ring                                  */
    bool broken;             /* the other's counter was impossible                              */
};

void shm_ring_writer(struct shm_ring *r, struct shm_area *a, unsigned way, size_t cap);
void shm_ring_reader(struct shm_ring *r, struct shm_area *a, unsigned way, size_t cap);

/* Bytes that may be written (read) at r->off without wrapping; a multiple of 8.  0 and r->broken when the peer's
 * counter is impossible. */
size_t shm_ring_room(struct shm_ring *r);
size_t shm_ring_data(struct shm_ring *r);

/* n bytes have been written or read, a multiple of 8 unless they end a message.  Returns them with the padding behind
 * them, which is counted too.  Not yet visible. */
size_t shm_ring_advance(struct shm_ring *r, size_t n);

/* Make it visible; true when it was not yet. */
bool shm_ring_publish(struct shm_ring *r);

#endif
