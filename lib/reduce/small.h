/* SPDX-License-Identifier: Apache-2.0 */
/* small.h - floats of 16 and 8 bits to float and back, a vector at a time.
 *
 * As integer arithmetic without branches, which every set has.  The bits are in the low end of a word.  Widening is
 * exact; narrowing rounds to nearest, ties to even.  The one addition of floats aligns a subnormal number's bits, and
 * is exact or does the rounding; it never gives a subnormal float, so that a program that has the processor treat those
 * as zero sees no difference.  NaN becomes the one quiet NaN of its type.
 *
 * Where the processor converts with the same result, that is used: F16C, and NEON for float16; BFCVT for bfloat16. They
 * keep more of a NaN, which is not promised.  VCVTNEPS2BF16 of AVX-512 is not used: it takes subnormals for zeros. */
#ifndef RI_SMALL_H
#define RI_SMALL_H

#include "lib/reduce/lanes.h"

/* A type with `exp` bits of exponent and `mant` of fraction; finite: all exponents are of numbers, and only the largest
 * code of each sign is NaN. */
#define SMALL_REBIAS(exp) ((uint32_t)(127 - ((1 << ((exp)-1)) - 1)) << 23)
#define SMALL_LEAST(exp) (SMALL_REBIAS(exp) + (UINT32_C(1) << 23)) /* its smallest normal number, as a float */

LANES_INLINE v_float small_widen(v_uint32_t h, unsigned exp, unsigned mant, int finite)
{
    const uint32_t most = (UINT32_C(1) << (exp + mant)) - 1, top = ((UINT32_C(1) << exp) - 1) << 23;
    const v_uint32_t sign = h >> (exp + mant) << 31, mag = (h & most) << (23 - mant);
    const v_float least = lanes_as_float(SPLAT(uint32_t, SMALL_LEAST(exp)));
    const v_uint32_t subnormal = lanes_as_bits(lanes_as_float(mag + SMALL_LEAST(exp)) - least);
    const v_uint32_t normal = mag + SMALL_REBIAS(exp);
    const v_uint32_t bits = PICK(mag < (UINT32_C(1) << 23), subnormal, normal);
    return lanes_as_float(sign | (finite ? PICK(mag == most << (23 - mant), SPLAT(uint32_t, 0x7fc00000), bits)
                                         : PICK(mag >= top, (mag - top) | 0x7f800000, bits)));
}

LANES_INLINE v_uint32_t small_narrow(v_float f, unsigned exp, unsigned mant, int finite)
{
    const uint32_t infinity = finite ? (UINT32_C(1) << (exp + mant)) - 1 : ((UINT32_C(1) << exp) - 1) << mant;
    const uint32_t quiet = finite ? infinity : infinity | UINT32_C(1) << (mant - 1);
    const uint32_t align = SMALL_LEAST(exp) + ((23 - mant) << 23); /* its last place is the smallest subnormal number */
    const v_uint32_t u = lanes_as_bits(f), sign = u >> 31 << (exp + mant), mag = u & 0x7fffffff;
    const v_uint32_t odd = mag >> (23 - mant) & 1;
    const v_uint32_t normal = (mag - SMALL_REBIAS(exp) + ((UINT32_C(1) << (22 - mant)) - 1) + odd) >> (23 - mant);
    const v_float aligner = lanes_as_float(SPLAT(uint32_t, align));
    const v_uint32_t subnormal = lanes_as_bits(lanes_as_float(mag) + aligner) - align;
    const v_uint32_t code = PICK(mag < SMALL_LEAST(exp), subnormal, normal);
    const v_uint32_t fits = PICK(code > infinity, SPLAT(uint32_t, infinity), code);
    return PICK(mag > 0x7f800000, SPLAT(uint32_t, quiet), sign | fits);
}

/* ---- what kernels call: a vector of stored elements to floats and back ----------------------------------------- */

#if defined(__AVX512BW__) && !RI_LANES_PLAIN
LANES_INLINE v_float small_from_f16(lanes_half h) { return (v_float)_mm512_cvtph_ps((__m256i)h); }
LANES_INLINE lanes_half small_to_f16(v_float f) { return (lanes_half)_mm512_cvtps_ph((__m512)f, 0); }
#elif defined(__F16C__) && !RI_LANES_PLAIN
LANES_INLINE v_float small_from_f16(lanes_half h) { return (v_float)_mm256_cvtph_ps((__m128i)h); }
LANES_INLINE lanes_half small_to_f16(v_float f) { return (lanes_half)_mm256_cvtps_ph((__m256)f, 0); }
#elif defined(__aarch64__) && !RI_LANES_PLAIN
LANES_INLINE v_float small_from_f16(lanes_half h) { return (v_float)vcvt_f32_f16((float16x4_t)h); }
LANES_INLINE lanes_half small_to_f16(v_float f) { return (lanes_half)vcvt_f16_f32((float32x4_t)f); }
#else
LANES_INLINE v_float small_from_f16(lanes_half h) { return small_widen(lanes_from_half(h), 5, 10, 0); }
LANES_INLINE lanes_half small_to_f16(v_float f) { return lanes_to_half(small_narrow(f, 5, 10, 0)); }
#endif

#if !RI_LANES_PLAIN && !defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define SMALL_PAIRS 1
#else
#define SMALL_PAIRS 0
#endif

/* The bits of a bfloat16 in the upper half, anything in the lower one. */
LANES_INLINE v_uint32_t small_round_bf16(v_float f)
{
    const v_uint32_t u = lanes_as_bits(f);
#if defined(__AVX512BW__) && !RI_LANES_PLAIN
    const __mmask16 odd = _mm512_test_epi32_mask((__m512i)u, _mm512_set1_epi32(0x10000));
    const __m512i up = (__m512i)(u + 0x7fff), even = _mm512_mask_sub_epi32(up, odd, up, _mm512_set1_epi32(-1));
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)f, (__m512)f, _CMP_UNORD_Q);
    return (v_uint32_t)_mm512_mask_mov_epi32(even, nan, _mm512_set1_epi32(0x7fc00000));
#else
    return PICK(f != f, SPLAT(uint32_t, 0x7fc00000), u + 0x7fff + (u >> 16 & 1));
#endif
}

#if SMALL_PAIRS
/* A word has two of them, and neither changes place: elements with even and with odd numbers are two vectors. */
typedef struct {
    v_float even, odd;
} v_pair;

LANES_INLINE v_pair small_from_pairs(v_uint32_t w)
{
    return (v_pair){lanes_as_float(w << 16), lanes_as_float(w & 0xffff0000)};
}

LANES_INLINE v_uint32_t small_to_pairs(v_pair x)
{
    return small_round_bf16(x.even) >> 16 | (small_round_bf16(x.odd) & 0xffff0000);
}
#else
LANES_INLINE v_float small_from_bf16(lanes_half h) { return lanes_as_float(lanes_from_half(h) << 16); }
#if RI_LANES_PLAIN
LANES_INLINE lanes_half small_to_bf16(v_float f) { return lanes_to_half(small_round_bf16(f) >> 16); }
#else
LANES_INLINE lanes_half small_to_bf16(v_float f) { return (lanes_half)vcvt_bf16_f32((float32x4_t)f); }
#endif
#endif

LANES_INLINE v_float small_from_e4m3(lanes_quarter q) { return small_widen(lanes_from_quarter(q), 4, 3, 1); }
LANES_INLINE lanes_quarter small_to_e4m3(v_float f) { return lanes_to_quarter(small_narrow(f, 4, 3, 1)); }

#if (defined(__AVX512BW__) || defined(__F16C__)) && !RI_LANES_PLAIN
/* By way of float16, of which this is the upper half, where the processor converts that.  On the way back a float16
 * that was rounded to odd (what is cut off makes its last bit 1) has enough digits left to be rounded once more as if
 * for the first time.  The other float of 8 bits gains nothing by it: it has to be moved, scaled and looked at for NaN.
 */
#if defined(__AVX512BW__)
LANES_INLINE lanes_half small_toward_zero(v_float f) { return (lanes_half)_mm512_cvtps_ph((__m512)f, 3); }
LANES_INLINE lanes_half small_half(lanes_quarter q) { return (lanes_half)_mm256_cvtepu8_epi16((__m128i)q); }
LANES_INLINE lanes_quarter small_quarter(lanes_half h) { return (lanes_quarter)_mm256_cvtepi16_epi8((__m256i)h); }
#else
LANES_INLINE lanes_half small_toward_zero(v_float f) { return (lanes_half)_mm256_cvtps_ph((__m256)f, 3); }
LANES_INLINE lanes_half small_half(lanes_quarter q)
{
    return (lanes_half)_mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)q));
}
LANES_INLINE lanes_quarter small_quarter(lanes_half h)
{
    return (lanes_quarter)_mm_cvtsi128_si64(_mm_packus_epi16((__m128i)h, (__m128i)h));
}
#endif

LANES_INLINE lanes_half small_to_odd(v_float f)
{
    const lanes_half h = small_toward_zero(f);
    return h | lanes_to_half((v_uint32_t)(small_from_f16(h) != f) & 1);
}

LANES_INLINE v_float small_from_e5m2(lanes_quarter q) { return small_from_f16(small_half(q) << 8); }
LANES_INLINE lanes_quarter small_to_e5m2(v_float f)
{
    const lanes_half h = small_to_odd(f), mag = h & 0x7fff, code = (mag + 0x7f + (mag >> 8 & 1)) >> 8;
    return small_quarter(PICK(mag > 0x7c00, (lanes_half){0} + 0x7e, (h >> 8 & 0x80) | code));
}
#else
LANES_INLINE v_float small_from_e5m2(lanes_quarter q) { return small_widen(lanes_from_quarter(q), 5, 2, 0); }
LANES_INLINE lanes_quarter small_to_e5m2(v_float f) { return lanes_to_quarter(small_narrow(f, 5, 2, 0)); }
#endif

#endif
