/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - copying into memory that a peer has read before and will read next: stores that pass the caches.
 *
 * A plain store to a line that is in the peer's cache waits until it has been taken from there, which is several times
 * as slow as the peer's reading; a store past the caches is not, and memory that was just written is still near. */
#ifndef RI_NODE_STREAM_H
#define RI_NODE_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { STREAM_LEAST = 4096 }; /* bytes; below, the fence costs more than is won */

/* What is stored is visible to whoever sees a release store that follows. */
static inline void stream_copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    if (bytes >= STREAM_LEAST) {
        unsigned char *d = to;
        const unsigned char *s = from;
        const size_t head = -(uintptr_t)d % 64, whole = (bytes - head) / 64 * 64;
        memcpy(d, s, head);
        d += head;
        s += head;
        for (size_t i = 0; i < whole; i += 64)
            for (size_t k = 0; k < 64; k += 16)
                _mm_stream_si128((__m128i *)(void *)(d + i + k),
                                 _mm_loadu_si128((const __m128i_u *)(const void *)(s + i + k)));
        memcpy(d + whole, s + whole, bytes - head - whole);
        _mm_sfence();
        return;
    }
#endif
    if (bytes)
        memcpy(to, from, bytes);
}

#endif
