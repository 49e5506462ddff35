/*
 * exp_avx512.h: the exponential of sixteen numbers, none above 0; for softmax and activations.
 *
 * The steps and numbers of exp_avx2.h, so that every result has its bits.
 */
#ifndef CL_EXP_AVX512_H
#define CL_EXP_AVX512_H

#include "lanes_avx512.h"

/* e^x for x <= 0. Exactly 1 for 0, exactly 0 below -87.33654; NaN stays NaN. */
ALWAYS_INLINE __m512 exp_lanes(__m512 x)
{
    const __m512 lowest = _mm512_set1_ps(-87.33654f);
    const __mmask16 is_kept = _mm512_cmp_ps_mask(x, lowest, _CMP_NLT_UQ); /* true for NaN */
    x = _mm512_max_ps(lowest, x); /* of a number and NaN: the second */
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);

    __m512 p = _mm512_set1_ps(0x1.6a2434p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.1239e2p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(is_kept, p, n);
}

#endif /* CL_EXP_AVX512_H */
