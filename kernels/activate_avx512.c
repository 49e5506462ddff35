/*
 * activate_avx512.c: activations of feed-forward blocks, sixteen numbers at a time.
 *
 * The formula and the steps of activate_avx2.c, and so its bits. Nothing here fails.
 */
#include "kernels.h"

#include "exp_avx512.h"

ALWAYS_INLINE __m512 silu_lanes(__m512 z)
{
    const __m512 e = exp_lanes(_mm512_or_ps(z, _mm512_set1_ps(-0.0f)));
    const __m512 above = _mm512_mask_mul_ps(z, _mm512_movepi32_mask(_mm512_castps_si512(z)), z, e);
    return _mm512_div_ps(above, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

static void silu(float *z, size_t n)
{
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm512_storeu_ps(z + i, silu_lanes(_mm512_loadu_ps(z + i)));
    if (i < n) _mm512_mask_storeu_ps(z + i, wide_first(n - i), silu_lanes(wide_rest(z + i, n - i)));
}

void cl_activate_fill_avx512(cl_matmul_table *table)
{
    table->silu = silu;
}
