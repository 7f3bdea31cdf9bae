/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - copying between the caller's buffers and memory that peers read or write.
 *
 * A plain store to a line that is in a peer's cache waits until it has been taken from there.  Two things help, and
 * which one more is a matter of the machine: to ask for lines well before they are stored to, so that many are on their
 * way at once; or to store past the caches, while memory that was just written is still near.  probe.c finds out.
 * Loads and stores are written out, because the C library's copy of this length is a string instruction, which on some
 * processors is ten times slower when both ends lie at certain distances within a page. */
#ifndef RI_STREAM_H
#define RI_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    STREAM_LEAST = 4096, /* bytes; below, the fence costs more than is won */
    AHEAD = 1024,        /* bytes between asking for a line and storing to it */
};

/* For writing.  On x86 the builtin is a prefetch for reading where the compiler may not assume the instruction, which
 * all processors take. */
static inline void ask_for(const void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

#if defined(__x86_64__)
static inline void copy_lines(unsigned char *to, const unsigned char *from, size_t bytes, bool stream, bool shared)
{
    for (size_t i = 0; i < bytes; i += 64) {
        const __m128i_u *s = (const __m128i_u *)(const void *)(from + i);
        __m128i *d = (__m128i *)(void *)(to + i);
        if (shared && !stream && bytes - i > AHEAD)
            ask_for(to + i + AHEAD);
        const __m128i x0 = _mm_loadu_si128(s), x1 = _mm_loadu_si128(s + 1), x2 = _mm_loadu_si128(s + 2),
                      x3 = _mm_loadu_si128(s + 3);
        if (stream) {
            _mm_stream_si128(d, x0);
            _mm_stream_si128(d + 1, x1);
            _mm_stream_si128(d + 2, x2);
            _mm_stream_si128(d + 3, x3);
        } else {
            _mm_store_si128(d, x0);
            _mm_store_si128(d + 1, x1);
            _mm_store_si128(d + 2, x2);
            _mm_store_si128(d + 3, x3);
        }
    }
}
#endif

static inline void copy_whole(void *to, const void *from, size_t bytes, bool stream, bool shared)
{
#if defined(__x86_64__)
    if (bytes >= STREAM_LEAST) {
        unsigned char *d = to;
        const unsigned char *s = from;
        const size_t head = -(uintptr_t)d % 64, whole = (bytes - head) / 64 * 64;
        memcpy(d, s, head);
        if (stream) {
            copy_lines(d + head, s + head, whole, true, false);
            _mm_sfence();
        } else if (shared)
            copy_lines(d + head, s + head, whole, false, true);
        else
            copy_lines(d + head, s + head, whole, false, false);
        memcpy(d + head + whole, s + head + whole, bytes - head - whole);
        return;
    }
#endif
    (void)stream;
    (void)shared;
    if (bytes)
        memcpy(to, from, bytes);
}

/* To memory of the caller's.  What is stored is visible to whoever sees a release store that follows. */
static inline void copy_long(void *to, const void *from, size_t bytes, bool stream)
{
    copy_whole(to, from, bytes, stream, false);
}

/* To a slot, which a peer has read before and will read again. */
static inline void copy_to_slot(void *to, const void *from, size_t bytes, bool stream)
{
    copy_whole(to, from, bytes, stream, true);
}

#endif
