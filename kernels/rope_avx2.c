/*
 * rope_avx2.c: rotation of pairs with AVX2 and FMA.
 *
 * Both layouts compute a' = fma(a, c, -(b s)) and b' = fma(b, c, a s) with the inner product rounded, in the
 * body and in the masked rest alike, so a pair's result depends neither on its place in the row nor on the
 * layout. Nothing here fails.
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
        _mm256_storeu_ps(x + 2 * i, rotated_beside(pairs, _mm_loadu_ps(c + i), _mm_loadu_ps(s + i)));
    }
    if (i < n_pairs) {
        const __m256i mask = lanes_first(2 * (n_pairs - i));
        const __m128i pair_mask = _mm256_castsi256_si128(lanes_first(n_pairs - i));
        const __m256 pairs = _mm256_maskload_ps(x + 2 * i, mask);
        const __m256 turned = rotated_beside(pairs, _mm_maskload_ps(c + i, pair_mask),
                                             _mm_maskload_ps(s + i, pair_mask));
        _mm256_maskstore_ps(x + 2 * i, mask, turned);
    }
}

ALWAYS_INLINE void rotate_apart(float *a, float *b, const float *c, const float *s, int is_masked,
                                __m256i mask)
{
    const __m256 first = lanes_load(a, is_masked, mask), second = lanes_load(b, is_masked, mask);
    const __m256 cosine = lanes_load(c, is_masked, mask), sine = lanes_load(s, is_masked, mask);
    const __m256 turned_first = _mm256_fmsub_ps(first, cosine, _mm256_mul_ps(second, sine));
    const __m256 turned_second = _mm256_fmadd_ps(second, cosine, _mm256_mul_ps(first, sine));
    lanes_store(a, turned_first, is_masked, mask);
    lanes_store(b, turned_second, is_masked, mask);
}

static void rope_neox(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    size_t i = 0;
    for (; i + LANES <= n_pairs; i += LANES)
        rotate_apart(x + i, x + n_pairs + i, c + i, s + i, 0, _mm256_setzero_si256());
    if (i < n_pairs)
        rotate_apart(x + i, x + n_pairs + i, c + i, s + i, 1, lanes_first(n_pairs - i));
}

void cl_rope_fill_avx2(cl_kernels *table)
{
    table->rope_normal = rope_normal;
    table->rope_neox = rope_neox;
}
