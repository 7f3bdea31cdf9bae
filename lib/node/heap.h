/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - memory of this process that other ranks of its host can map: ring_mem_alloc() and ring_mem_register().
 *
 * One sparse sealed memfd a process.  Its peers map all of it when a communicator is made, so that an address is their
 * base and an offset, whatever is allocated or registered later.  Allocations are pages of it; registering moves the
 * whole pages of a user's buffer into it and maps them, shared, at the address where the buffer was.  The partial pages
 * at the ends of a registered buffer (its edges) stay private.
 *
 * A forked child shares these pages with its parent, as it does any shared memory, but has no heap of its own: calls
 * there are RING_ERR_STATE.  One lock; ri_heap_find() takes none. */
#ifndef RI_HEAP_H
#define RI_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

enum { RI_HEAP_PAGE = 4096 };

/* What include/ring/ring.h says of ring_mem_*. */
ring_status_t ri_heap_alloc(size_t bytes, void **ptr_out);
ring_status_t ri_heap_free(void *ptr);
ring_status_t ri_heap_register(void *ptr, size_t bytes);
ring_status_t ri_heap_deregister(void *ptr);

/* Where a buffer is in the heap: its first `head` bytes are a private edge, then it goes on at offset `at` of the heap,
 * until from byte `tail` on there is a private edge again (tail == bytes: none).  Edges are shorter than a page. */
struct ri_heap_place {
    uint64_t at, tail;
    uint32_t head;
};

/* False when the buffer is not wholly inside one allocation or registration.  *hint is kept by the caller, zeroed at
 * first: where the last one was found. */
bool ri_heap_find(const void *ptr, size_t bytes, uint32_t *hint, struct ri_heap_place *place_out);

/* The whole allocation or registration that a buffer is inside of; false: there is none.  serial: no other one of this
 * process ever has it. */
struct ri_heap_block {
    void *begin;
    size_t bytes;
    uint64_t serial;
};
bool ri_heap_block(const void *ptr, size_t bytes, struct ri_heap_block *block_out);

/* Changes whenever something is allocated, freed, registered or deregistered: what was found stays true until then. */
uint32_t ri_heap_version(void);

/* The heap's descriptor, for peers; it stays the heap's.  Makes the heap if there is none. */
ring_status_t ri_heap_fd(int *fd_out);

/* A peer's heap, or our own (ranks that are threads), as this process sees it. */
struct ri_seg;
struct ri_heap_view {
    unsigned char *base; /* NULL: none */
    size_t bytes;
    struct ri_seg *seg;
};
ring_status_t ri_heap_map_peer(int fd, struct ri_heap_view *view_out); /* fd is taken over in any case */
void ri_heap_unmap_peer(struct ri_heap_view *view);                    /* zeroed is fine */

#endif
