/* SPDX-License-Identifier: Apache-2.0 */
/* seg.h - a segment of memory shared by processes: a sealed memfd.
 *
 * It has no name in any file system, cannot be truncated by a peer (F_SEAL_SHRINK, F_SEAL_GROW), does not count against
 * /dev/shm, and is gone with its last user.  The descriptor travels over an AF_UNIX socket (SCM_RIGHTS).
 *
 * Inside one process a segment is mapped once: the second ri_seg_adopt() of the same segment gets the first mapping, so
 * that ranks which are threads share one mapping and ThreadSanitizer sees what they do to each other. */
#ifndef RI_SEG_H
#define RI_SEG_H

#include <stddef.h>
#include <stdint.h>
#include <ring/ring.h>

struct ri_seg;

/* Make a segment of `bytes` (rounded up to pages), zeroed. `what` is for error texts and /proc/PID/maps. */
ring_status_t ri_seg_create(const char *what, size_t bytes, struct ri_seg **seg_out);

/* The same without pages: they come as they are written, or with fallocate(), so `bytes` may be more than there is. */
ring_status_t ri_seg_create_sparse(const char *what, size_t bytes, struct ri_seg **seg_out);

/* Map a segment whose descriptor a peer sent; fd is taken over in any case.  It must be sealed and hold at least `bytes`,
 * else RING_ERR_INVALID. */
ring_status_t ri_seg_adopt(int fd, size_t bytes, struct ri_seg **seg_out);

void *ri_seg_base(const struct ri_seg *seg);
size_t ri_seg_bytes(const struct ri_seg *seg);
int ri_seg_fd(const struct ri_seg *seg); /* stays the segment's; -1 after ri_seg_keep_mapping() */

/* The descriptor is not needed any more, only the mapping.  For segments that were adopted. */
void ri_seg_keep_mapping(struct ri_seg *seg);

void ri_seg_close(struct ri_seg *seg); /* NULL is fine */

/* One message with a descriptor (or none: fd -1) over an AF_UNIX socket.  ri_fd_send does not wait: RING_ERR_SYSTEM with
 * EAGAIN kept in errno when it would.  ri_fd_recv: 1 got it, 0 nothing there yet, -1 the peer is gone; a message without a
 * descriptor gives *fd_out = -1. len is exact. */
ring_status_t ri_fd_send(int sock, int fd, const void *bytes, size_t len);
int ri_fd_recv(int sock, int *fd_out, void *bytes, size_t len);

#endif
