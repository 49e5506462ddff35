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

#endif /* CL_LANES_AVX512_H */
