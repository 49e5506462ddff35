/*
 * lanes_avx2.h: eight lanes in a register; what the AVX2 kernels share. The vector side of lanes.h.
 *
 * Rows whose length is no multiple of eight end in a masked chunk: lanes behind the end are loaded as zero
 * without touching memory, so the last numbers go through the same instructions as all others and get the
 * same bits. Lanes are added in the tree of lanes.h, one vector or four at a time with equal results.
 *
 * Blocks of accumulators are written as small arrays with constant bounds, in functions that are inlined
 * with constant arguments; UNROLL makes sure that both compilers keep them in registers.
 */
#ifndef CL_LANES_AVX2_H
#define CL_LANES_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 8 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The first `count` lanes on, count < 8. */
ALWAYS_INLINE __m256i lanes_first(size_t count)
{
    static const int32_t edge[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(edge + 8 - count));
}

/* Eight numbers, or those of the mask and zeros. is_masked is a constant where this is inlined. */
ALWAYS_INLINE __m256 lanes_load(const float *from, int is_masked, __m256i mask)
{
    return is_masked ? _mm256_maskload_ps(from, mask) : _mm256_loadu_ps(from);
}

ALWAYS_INLINE void lanes_store(float *to, __m256 value, int is_masked, __m256i mask)
{
    if (is_masked)
        _mm256_maskstore_ps(to, mask, value);
    else
        _mm256_storeu_ps(to, value);
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
