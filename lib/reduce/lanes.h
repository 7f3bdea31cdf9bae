/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - what one compilation of kernels.c computes with: a vector of each element type, as wide as the instruction
 * set of this compilation has them, or single elements for the plain reference.
 *
 * The vectors are those of gcc and clang, so that nearly all of the arithmetic is the same text for every set; here is
 * what has no operator: choosing by a mask, converting to and from narrow elements, and stores that pass the caches. */
#ifndef RI_LANES_H
#define RI_LANES_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES_INLINE static inline __attribute__((always_inline))

/* ---- types ----------------------------------------------------------------------------------------------------- */

#if RI_LANES_PLAIN
#define LANES_VECTOR(T) typedef T v_##T
#define LANES_OF(T) 1
#elif defined(__AVX512BW__)
#define LANES_BYTES 64
#elif defined(__AVX2__)
#define LANES_BYTES 32
#else
#define LANES_BYTES 16
#endif
#ifdef LANES_BYTES
#define LANES_VECTOR(T) typedef T v_##T __attribute__((vector_size(LANES_BYTES)))
#define LANES_OF(T) (LANES_BYTES / sizeof(T))
#endif

LANES_VECTOR(int8_t);
LANES_VECTOR(uint8_t);
LANES_VECTOR(int16_t);
LANES_VECTOR(uint16_t);
LANES_VECTOR(int32_t);
LANES_VECTOR(uint32_t);
LANES_VECTOR(int64_t);
LANES_VECTOR(uint64_t);
LANES_VECTOR(float);
LANES_VECTOR(double);

/* ---- operators that C has for single elements only ------------------------------------------------------------- */

/* PICK: a where the comparison held, else b.  TIMES: products wrap, and small integers would be promoted to int. */
#if RI_LANES_PLAIN
#define SPLAT(T, value) ((T)(value))
#define PICK(mask, a, b) ((mask) ? (a) : (b))
#define TIMES(x, y) ((x)*UINT32_C(1) * (y))
#else
#define SPLAT(T, value) ((v_##T){0} + (T)(value))
#define PICK(mask, a, b) ((__typeof__(a))(((__typeof__(mask))(a) & (mask)) | ((__typeof__(mask))(b) & ~(mask))))
#define TIMES(x, y) ((x) * (y))
#endif

LANES_INLINE v_float lanes_as_float(v_uint32_t bits)
{
    v_float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

LANES_INLINE v_uint32_t lanes_as_bits(v_float f)
{
    v_uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* ---- elements of 16 and 8 bits as words, and back -------------------------------------------------------------- */

#if RI_LANES_PLAIN
typedef uint16_t lanes_half;
typedef uint8_t lanes_quarter;
LANES_INLINE v_uint32_t lanes_from_half(lanes_half h) { return h; }
LANES_INLINE v_uint32_t lanes_from_quarter(lanes_quarter q) { return q; }
LANES_INLINE lanes_half lanes_to_half(v_uint32_t w) { return (lanes_half)w; }
LANES_INLINE lanes_quarter lanes_to_quarter(v_uint32_t w) { return (lanes_quarter)w; }
#else
typedef uint16_t lanes_half __attribute__((vector_size(LANES_BYTES / 2)));
#if LANES_BYTES == 16
typedef uint32_t lanes_quarter; /* four bytes: there is no vector that small */
#else
typedef uint8_t lanes_quarter __attribute__((vector_size(LANES_BYTES / 4)));
#endif
#if defined(__AVX512BW__)
LANES_INLINE v_uint32_t lanes_from_half(lanes_half h) { return (v_uint32_t)_mm512_cvtepu16_epi32((__m256i)h); }
LANES_INLINE v_uint32_t lanes_from_quarter(lanes_quarter q) { return (v_uint32_t)_mm512_cvtepu8_epi32((__m128i)q); }
LANES_INLINE lanes_half lanes_to_half(v_uint32_t w) { return (lanes_half)_mm512_cvtepi32_epi16((__m512i)w); }
LANES_INLINE lanes_quarter lanes_to_quarter(v_uint32_t w) { return (lanes_quarter)_mm512_cvtepi32_epi8((__m512i)w); }
#elif defined(__AVX2__)
LANES_INLINE v_uint32_t lanes_from_half(lanes_half h) { return (v_uint32_t)_mm256_cvtepu16_epi32((__m128i)h); }
LANES_INLINE v_uint32_t lanes_from_quarter(lanes_quarter q)
{
    return (v_uint32_t)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)q));
}
/* Words are below 65536, so that saturation does not happen. */
LANES_INLINE lanes_half lanes_to_half(v_uint32_t w)
{
    return (lanes_half)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)w), _mm256_extracti128_si256((__m256i)w, 1));
}
LANES_INLINE lanes_quarter lanes_to_quarter(v_uint32_t w)
{
    const __m128i h = (__m128i)lanes_to_half(w);
    return (lanes_quarter)_mm_cvtsi128_si64(_mm_packus_epi16(h, h));
}
#elif defined(__x86_64__)
LANES_INLINE v_uint32_t lanes_from_half(lanes_half h)
{
    return (v_uint32_t)_mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)h), _mm_setzero_si128());
}
LANES_INLINE v_uint32_t lanes_from_quarter(lanes_quarter q)
{
    const __m128i zero = _mm_setzero_si128();
    return (v_uint32_t)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128((int)q), zero), zero);
}
/* SSE2 packs with signed saturation only: make the words sign-extended ones first. */
LANES_INLINE __m128i lanes_pack(v_uint32_t w)
{
    const __m128i wide = _mm_srai_epi32(_mm_slli_epi32((__m128i)w, 16), 16);
    return _mm_packs_epi32(wide, wide);
}
LANES_INLINE lanes_half lanes_to_half(v_uint32_t w) { return (lanes_half)_mm_cvtsi128_si64(lanes_pack(w)); }
LANES_INLINE lanes_quarter lanes_to_quarter(v_uint32_t w)
{
    const __m128i h = lanes_pack(w);
    return (lanes_quarter)_mm_cvtsi128_si32(_mm_packus_epi16(h, h));
}
#elif defined(__aarch64__)
LANES_INLINE v_uint32_t lanes_from_half(lanes_half h) { return (v_uint32_t)vmovl_u16((uint16x4_t)h); }
LANES_INLINE v_uint32_t lanes_from_quarter(lanes_quarter q)
{
    return (v_uint32_t)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(q))));
}
LANES_INLINE lanes_half lanes_to_half(v_uint32_t w) { return (lanes_half)vmovn_u32((uint32x4_t)w); }
LANES_INLINE lanes_quarter lanes_to_quarter(v_uint32_t w)
{
    const uint16x4_t h = vmovn_u32((uint32x4_t)w);
    return vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(h, h))), 0);
}
#else
#error "this architecture has the plain kernels only"
#endif
#endif

/* ---- stores that pass the caches ------------------------------------------------------------------------------- */

/* `bytes` is a constant, and `to` a multiple of it. */
#if defined(__x86_64__) && !RI_LANES_PLAIN
enum { LANES_STREAM = 1 };
LANES_INLINE void lanes_stream(void *to, const void *from, size_t bytes)
{
    if (bytes == 4) {
        int word;
        memcpy(&word, from, sizeof word);
        _mm_stream_si32(to, word);
    } else if (bytes == 8) {
        long long word;
        memcpy(&word, from, sizeof word);
        _mm_stream_si64(to, word);
    } else if (bytes == 16) {
        _mm_stream_si128(to, _mm_loadu_si128(from));
#if defined(__AVX2__)
    } else if (bytes == 32) {
        _mm256_stream_si256(to, _mm256_loadu_si256(from));
#endif
#if defined(__AVX512BW__)
    } else if (bytes == 64) {
        _mm512_stream_si512(to, _mm512_loadu_si512(from));
#endif
    }
}
/* Stores past the caches are not ordered by a release store. */
LANES_INLINE void lanes_stream_end(void) { _mm_sfence(); }
#else
enum { LANES_STREAM = 0 };
LANES_INLINE void lanes_stream(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
LANES_INLINE void lanes_stream_end(void) {}
#endif

#endif
