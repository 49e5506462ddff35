/*
 * lanes_avx2.h: eight lanes in a register; what the AVX2 kernels share. The vector side of lanes.h.
 *
 * Rows whose length is no multiple of eight end in a chunk of their last 1 to 7 numbers and zeros,
 * so that the last numbers go through the same instructions as all others and get the same bits. It
 * is put together from loads of 16, 8 and 4 bytes and not by a masked load: whether lanes that are
 * masked out may fault at the end of a page is left open by AMD's manual, and under QEMU 7.2 they
 * do. Lanes are added in the tree of lanes.h, one vector or four at a time with equal results.
 */
#ifndef CL_LANES_AVX2_H
#define CL_LANES_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "unroll.h"

enum { LANES = 8 };

/* A mask of the first `count` lanes, count < 8. */
ALWAYS_INLINE __m256 lanes_first(size_t count)
{
    static const int32_t edge[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_castsi256_ps(
        _mm256_loadu_si256((const __m256i *)(const void *)(edge + 8 - count)));
}

/* count < 4 numbers, then zeros. */
ALWAYS_INLINE __m128 few_load(const float *from, size_t count)
{
    if (count == 0) return _mm_setzero_ps();
    if (count == 1) return _mm_load_ss(from);
    const __m128 two = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)from));
    return count == 2 ? two
                      : _mm_insert_ps(two, _mm_load_ss(from + 2), 0x20); /* lane 0 to lane 2 */
}

ALWAYS_INLINE void few_store(float *to, __m128 value, size_t count)
{
    if (count >= 2) _mm_storel_epi64((__m128i *)(void *)to, _mm_castps_si128(value));
    if (count == 3) _mm_store_ss(to + 2, _mm_movehl_ps(value, value));
    if (count == 1) _mm_store_ss(to, value);
}

/* count < 8 numbers, then zeros. */
ALWAYS_INLINE __m256 rest_load(const float *from, size_t count)
{
    if (count < 4) return _mm256_insertf128_ps(_mm256_setzero_ps(), few_load(from, count), 0);
    const __m128 low = _mm_loadu_ps(from), high = few_load(from + 4, count - 4);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

ALWAYS_INLINE void rest_store(float *to, __m256 value, size_t count)
{
    const __m128 low = _mm256_castps256_ps128(value);
    if (count < 4) {
        few_store(to, low, count);
    } else {
        _mm_storeu_ps(to, low);
        few_store(to + 4, _mm256_extractf128_ps(value, 1), count - 4);
    }
}

/* ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) of four vectors at once. */
ALWAYS_INLINE __m128 lanes_sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

ALWAYS_INLINE float lanes_sum(__m256 a)
{
    return _mm_cvtss_f32(lanes_sum4(a, a, a, a));
}

#endif /* CL_LANES_AVX2_H */
