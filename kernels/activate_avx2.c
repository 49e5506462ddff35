/*
 * activate_avx2.c: activations of feed-forward blocks, eight numbers at a time.
 *
 * silu(z) = z / (1 + e^-z) is computed from e = e^-|z|, which cannot overflow: z / (1 + e) where z >= 0, and
 * z e / (1 + e) where z < 0. Below -87.33 e is 0, and so is the result, which would be above -2^-119. A number
 * depends on itself alone. NaN stays NaN. Nothing here fails.
 */
#include "kernels.h"

#include "exp_avx2.h"

ALWAYS_INLINE __m256 silu_lanes(__m256 z)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 e = exp_lanes(_mm256_or_ps(z, sign));
    const __m256 above = _mm256_blendv_ps(z, _mm256_mul_ps(z, e), z); /* by the sign of z */
    return _mm256_div_ps(above, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static void silu(float *z, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(z + i, silu_lanes(_mm256_loadu_ps(z + i)));
    if (i < n) rest_store(z + i, silu_lanes(rest_load(z + i, n - i)), n - i);
}

void cl_activate_fill_avx2(cl_matmul_table *table)
{
    table->silu = silu;
}
