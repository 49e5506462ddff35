/*
 * vector_avx2.c: rows added, multiplied and normed, eight numbers at a time.
 *
 * The bits of vector_scalar.c: each sum and product is rounded once, and the norm keeps its sixteen sums of
 * squares in double in the order of vector.h. Nothing here fails.
 */
#include "kernels.h"

#include "lanes_avx2.h"
#include "vector.h"

static void add(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

static void multiply(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] *= x[i];
}

ALWAYS_INLINE __m256d add_squares(__m256d sum, const float *x)
{
    const __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(x));
    return _mm256_fmadd_pd(wide, wide, sum); /* the square is exact: fused or not is the same */
}

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float epsilon)
{
    __m256d part[SQUARE_LANES / 4];
    double sum[SQUARE_LANES];
    size_t i = 0;
    foreach(p, SQUARE_LANES / 4)
        part[p] = _mm256_setzero_pd();
    for (; i + SQUARE_LANES <= n; i += SQUARE_LANES)
        foreach(p, SQUARE_LANES / 4)
            part[p] = add_squares(part[p], x + i + 4 * (size_t)p);
    foreach(p, SQUARE_LANES / 4)
        _mm256_storeu_pd(sum + 4 * p, part[p]);
    for (; i < n; i++)
        sum[i % SQUARE_LANES] += (double)x[i] * (double)x[i];

    const float factor = vector_norm_factor(sum, n, epsilon);
    const __m256 factors = _mm256_set1_ps(factor);
    for (i = 0; i + LANES <= n; i += LANES) {
        __m256 value = _mm256_mul_ps(_mm256_loadu_ps(x + i), factors);
        if (weight) value = _mm256_mul_ps(value, _mm256_loadu_ps(weight + i));
        _mm256_storeu_ps(out + i, value);
    }
    for (; i < n; i++)
        out[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

void cl_vector_fill_avx2(cl_matmul_table *table)
{
    table->add = add;
    table->multiply = multiply;
    table->rms_norm = rms_norm;
}
