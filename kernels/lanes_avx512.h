/*
 * lanes_avx512.h: sixteen lanes in a register; what the AVX-512 kernels share.
 *
 * A sum over a row is one chain of sixteen lanes: product i goes to lane i % 16, in rising order, fused. At
 * the end lanes l and l + 8 are added, and the eight sums in the tree of lanes_avx2.h. A row that is no
 * multiple of sixteen long ends in a chunk filled up with zeros. Its loads are masked: what is masked out is
 * not accessed (Intel's manual, volume 1, section 15.6.4; AMD's, volume 4).
 */
#ifndef CL_LANES_AVX512_H
#define CL_LANES_AVX512_H

#include "lanes_avx2.h"

enum { WIDE = 16 /* lanes */ };

/* The first `count` lanes, count < 16. */
ALWAYS_INLINE __mmask16 wide_first(size_t count)
{
    return (__mmask16)((1u << count) - 1);
}

/* count < 16 numbers, then zeros. */
ALWAYS_INLINE __m512 wide_rest(const float *from, size_t count)
{
    return _mm512_maskz_loadu_ps(wide_first(count), from);
}

/* Lanes l and l + 8 added. */
ALWAYS_INLINE __m256 wide_fold(__m512 a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

ALWAYS_INLINE float wide_sum(__m512 a)
{
    return lanes_sum(wide_fold(a));
}

/* Four of them at once, to equal results. */
ALWAYS_INLINE __m128 wide_sum4(const __m512 *a)
{
    return lanes_sum4(wide_fold(a[0]), wide_fold(a[1]), wide_fold(a[2]), wide_fold(a[3]));
}

/* Lanes l and l + 8 of two: eight numbers of a, then eight of b. */
ALWAYS_INLINE __m512 wide_fold2(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* In each quarter: neighbours of a added, two numbers, then those of b. */
ALWAYS_INLINE __m512 wide_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Eight of them at once, to equal results. */
ALWAYS_INLINE __m256 wide_sum8(const __m512 *a)
{
    const __m512 first = wide_pairs(wide_fold2(a[0], a[4]), wide_fold2(a[1], a[5]));
    const __m512 last = wide_pairs(wide_fold2(a[2], a[6]), wide_fold2(a[3], a[7]));
    const __m512 fours = wide_pairs(first,
                                    last); /* quarters: 0..3 of sums 0..3, 4..7 of them; of 4..7 */
    return _mm512_castps512_ps256(_mm512_add_ps(_mm512_shuffle_f32x4(fours, fours, 0x88),
                                                _mm512_shuffle_f32x4(fours, fours, 0xdd)));
}

#endif /* CL_LANES_AVX512_H */
