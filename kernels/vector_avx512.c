/*
 * vector_avx512.c: rows added, multiplied and normed, sixteen numbers at a time.
 *
 * The bits of vector_scalar.c: each sum and product is rounded once, and the norm keeps its sixteen sums of
 * squares in double in the order of vector.h. Nothing here fails.
 */
#include "kernels.h"

#include "lanes_avx512.h"
#include "vector.h"

static void add(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm512_storeu_ps(y + i, _mm512_add_ps(_mm512_loadu_ps(y + i), _mm512_loadu_ps(x + i)));
    if (i < n)
        _mm512_mask_storeu_ps(y + i, wide_first(n - i),
                              _mm512_add_ps(wide_rest(y + i, n - i), wide_rest(x + i, n - i)));
}

static void multiply(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm512_storeu_ps(y + i, _mm512_mul_ps(_mm512_loadu_ps(y + i), _mm512_loadu_ps(x + i)));
    if (i < n)
        _mm512_mask_storeu_ps(y + i, wide_first(n - i),
                              _mm512_mul_ps(wide_rest(y + i, n - i), wide_rest(x + i, n - i)));
}

/* Squares of sixteen numbers to their sums: of the first eight, and of the others. */
ALWAYS_INLINE void add_squares(__m512d part[2], __m512 x)
{
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    part[0] = _mm512_fmadd_pd(low, low,
                              part[0]); /* the square is exact: fused or not is the same */
    part[1] = _mm512_fmadd_pd(high, high, part[1]);
}

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float epsilon)
{
    __m512d part[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    double sum[SQUARE_LANES];
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        add_squares(part, _mm512_loadu_ps(x + i));
    if (i < n) add_squares(part, wide_rest(x + i, n - i));
    _mm512_storeu_pd(sum, part[0]);
    _mm512_storeu_pd(sum + 8, part[1]);

    const __m512 factor = _mm512_set1_ps(vector_norm_factor(sum, n, epsilon));
    for (i = 0; i + WIDE <= n; i += WIDE) {
        __m512 value = _mm512_mul_ps(_mm512_loadu_ps(x + i), factor);
        if (weight) value = _mm512_mul_ps(value, _mm512_loadu_ps(weight + i));
        _mm512_storeu_ps(out + i, value);
    }
    if (i == n) return;
    __m512 value = _mm512_mul_ps(wide_rest(x + i, n - i), factor);
    if (weight) value = _mm512_mul_ps(value, wide_rest(weight + i, n - i));
    _mm512_mask_storeu_ps(out + i, wide_first(n - i), value);
}

void cl_vector_fill_avx512(cl_matmul_table *table)
{
    table->add = add;
    table->multiply = multiply;
    table->rms_norm = rms_norm;
}
