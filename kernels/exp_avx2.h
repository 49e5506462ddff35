/*
 * exp_avx2.h: the exponential of eight numbers, none above 0; for softmax and activations.
 *
 * Within 2 units in the last place. A lane depends on its own number alone. docs/kernels.md has the bound.
 */
#ifndef CL_EXP_AVX2_H
#define CL_EXP_AVX2_H

#include "lanes_avx2.h"

/*
 * e^x for x <= 0. With x = n ln 2 + r, |r| <= ln 2 / 2: e^x = 2^n e^r, and e^r = 1 + r + r^2 p(r)
 * where p has degree 4. p was fitted in the minimax sense for the relative error of e^r (0.06 *
 * 2^-24) by reweighted least squares; ln 2 is split so that n times its upper part is exact.
 * Exactly 1 for 0. Below -87.33654, where the result would be no normal number, exactly 0. NaN
 * stays NaN.
 */
ALWAYS_INLINE __m256 exp_lanes(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(-87.33654f);
    const __m256 is_kept = _mm256_cmp_ps(x, lowest, _CMP_NLT_UQ); /* true for NaN */
    x = _mm256_max_ps(lowest, x); /* of a number and NaN: the second */
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);

    __m256 p = _mm256_set1_ps(0x1.6a2434p-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.1239e2p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));

    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    return _mm256_and_ps(_mm256_mul_ps(p, power), is_kept);
}

#endif /* CL_EXP_AVX2_H */
