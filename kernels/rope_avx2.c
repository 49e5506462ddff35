/*
 * rope_avx2.c: rotation of pairs with AVX2 and FMA.
 *
 * Both layouts compute a' = fma(a, c, -(b s)) and b' = fma(b, c, a s) with the inner product
 * rounded, in the body and in the rest alike, so a pair's result depends neither on its place in
 * the row nor on the layout. Nothing here fails.
 */
#include "kernels.h"

#include "lanes_avx2.h"

/* Four numbers twice each: 0 0 1 1 2 2 3 3. */
ALWAYS_INLINE __m256 doubled(__m128 four)
{
    const __m256i order = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four), order);
}

/* x = a0 b0 a1 b1 ...: the even lanes subtract b s from a c, the odd ones add a s to b c. */
ALWAYS_INLINE __m256 rotated_beside(__m256 x, __m128 c, __m128 s)
{
    const __m256 swapped = _mm256_permute_ps(x, _MM_SHUFFLE(2, 3, 0, 1));
    return _mm256_fmaddsub_ps(x, doubled(c), _mm256_mul_ps(swapped, doubled(s)));
}

static void rope_normal(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    size_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        const __m256 pairs = _mm256_loadu_ps(x + 2 * i);
        _mm256_storeu_ps(x + 2 * i,
                         rotated_beside(pairs, _mm_loadu_ps(c + i), _mm_loadu_ps(s + i)));
    }
    if (i < n_pairs) {
        const size_t rest = n_pairs - i; /* 1 to 3 pairs */
        const __m256 pairs = rest_load(x + 2 * i, 2 * rest);
        rest_store(x + 2 * i, rotated_beside(pairs, few_load(c + i, rest), few_load(s + i, rest)),
                   2 * rest);
    }
}

ALWAYS_INLINE __m256 turned_first(__m256 a, __m256 b, __m256 c, __m256 s)
{
    return _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s));
}

ALWAYS_INLINE __m256 turned_second(__m256 a, __m256 b, __m256 c, __m256 s)
{
    return _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s));
}

static void rope_neox(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    float *const y = x + n_pairs; /* the second halves */
    size_t i = 0;
    for (; i + LANES <= n_pairs; i += LANES) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(y + i);
        const __m256 cosine = _mm256_loadu_ps(c + i), sine = _mm256_loadu_ps(s + i);
        _mm256_storeu_ps(x + i, turned_first(a, b, cosine, sine));
        _mm256_storeu_ps(y + i, turned_second(a, b, cosine, sine));
    }
    if (i < n_pairs) {
        const size_t rest = n_pairs - i;
        const __m256 a = rest_load(x + i, rest), b = rest_load(y + i, rest);
        const __m256 cosine = rest_load(c + i, rest), sine = rest_load(s + i, rest);
        rest_store(x + i, turned_first(a, b, cosine, sine), rest);
        rest_store(y + i, turned_second(a, b, cosine, sine), rest);
    }
}

void cl_rope_fill_avx2(cl_kernels *table)
{
    table->rope_normal = rope_normal;
    table->rope_neox = rope_neox;
}
