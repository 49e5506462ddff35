/*
 * hadamard_avx2.c: the Walsh-Hadamard transform, eight numbers at a time.
 *
 * The butterflies are those of hadamard_scalar.c, and so is every bit: distances 1, 2 and 4 inside
 * a register, then two distances for each pass over memory, which changes nothing about what is
 * added to what. A difference is a sum with the sign of one side turned. Nothing here fails.
 */
#include "kernels.h"

#include "hadamard.h"
#include "lanes_avx2.h"

/* `swapped` has the partner of each number; where `sign` is set, the number is the second. */
ALWAYS_INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256 sign)
{
    return _mm256_add_ps(swapped, _mm256_xor_ps(x, sign));
}

/* Distances 1, 2, 4. */
ALWAYS_INLINE __m256 transform_lanes(__m256 x)
{
    const __m256 odd = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
    const __m256 odd_pairs = _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f);
    const __m256 upper = _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f);
    x = butterfly(x, _mm256_permute_ps(x, 0xb1), odd);
    x = butterfly(x, _mm256_permute_ps(x, 0x4e), odd_pairs);
    return butterfly(x, _mm256_permute2f128_ps(x, x, 0x01), upper);
}

/* distance and 2 * distance, both multiples of 8. */
static void transform_twice(float *x, uint32_t n, uint32_t distance)
{
    for (uint32_t start = 0; start < n; start += 4 * distance)
        for (uint32_t i = start; i < start + distance; i += LANES) {
            float *const at[4] = {x + i, x + i + distance, x + i + 2 * distance,
                                  x + i + 3 * distance};
            const __m256 a = _mm256_loadu_ps(at[0]), b = _mm256_loadu_ps(at[1]);
            const __m256 c = _mm256_loadu_ps(at[2]), d = _mm256_loadu_ps(at[3]);
            const __m256 ab = _mm256_add_ps(a, b), a_b = _mm256_sub_ps(a, b);
            const __m256 cd = _mm256_add_ps(c, d), c_d = _mm256_sub_ps(c, d);
            _mm256_storeu_ps(at[0], _mm256_add_ps(ab, cd));
            _mm256_storeu_ps(at[1], _mm256_add_ps(a_b, c_d));
            _mm256_storeu_ps(at[2], _mm256_sub_ps(ab, cd));
            _mm256_storeu_ps(at[3], _mm256_sub_ps(a_b, c_d));
        }
}

/* The last distance, n / 2, if it was left over; and the factor. */
static void finish(float *x, uint32_t n, int is_left_over, float factor)
{
    const __m256 factors = _mm256_set1_ps(factor);
    const uint32_t half = n / 2;
    if (!is_left_over) {
        for (uint32_t i = 0; i < n; i += LANES)
            _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factors));
        return;
    }
    for (uint32_t i = 0; i < half; i += LANES) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_add_ps(a, b), factors));
        _mm256_storeu_ps(x + half + i, _mm256_mul_ps(_mm256_sub_ps(a, b), factors));
    }
}

static void transform_few(float *x, uint32_t n, float factor)
{
    for (uint32_t distance = 1; distance < n; distance *= 2)
        for (uint32_t i = 0; i < n; i++) {
            if (i & distance) continue;
            const float a = x[i], b = x[i + distance];
            x[i] = a + b;
            x[i + distance] = a - b;
        }
    for (uint32_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void hadamard(float *x, uint32_t n)
{
    const float factor = hadamard_factor(n);
    if (n < LANES) {
        transform_few(x, n, factor);
        return;
    }
    for (uint32_t i = 0; i < n; i += LANES)
        _mm256_storeu_ps(x + i, transform_lanes(_mm256_loadu_ps(x + i)));
    uint32_t distance = LANES;
    for (; 2 * distance < n; distance *= 4)
        transform_twice(x, n, distance);
    finish(x, n, distance < n, factor);
}

void cl_hadamard_fill_avx2(cl_kernels *table)
{
    table->hadamard = hadamard;
}
