/*
 * attend_avx512.c: attention over a tile of keys with 512-bit registers.
 *
 * As in attend_avx2.c, query rows that share K and V are taken together: up to three rows by eight keys for
 * the scores, up to four rows by 64 columns for the weighted sum, with wider blocks for a single row. Adding
 * up lanes costs as much as a short row's products; eight sums share the work.
 *
 * The promise: a block's shape never changes a value. Each score is one chain of sixteen lanes and their
 * tree (lanes_avx512.h); each accumulated number is one chain of FMAs over the keys in their order.
 *
 * Nothing here fails. NaN policy as in attend_scalar.c.
 */
#include "kernels.h"

#include <math.h>

#include "exp_avx512.h"

enum { SUMS = 16 /* for a row, in registers */ };

/* ---- scores -------------------------------------------------------------------------------- */

/* One load for several products: gcc would give each of them its own, and loads are what is short. */
#define stay_in_register(value) __asm__("" : "+v"(value))

/* Sixteen numbers from i on, or as many as `mask` says, for `rows` queries and `keys` keys. */
ALWAYS_INLINE void score_chunk(__m512 (*sum)[SUMS], int rows, int keys, const float *const *q,
                               const float *k, size_t size, size_t i, __mmask16 mask)
{
    __m512 query[3];
    foreach(r, rows)
        query[r] = _mm512_maskz_loadu_ps(mask, q[r] + i);
    foreach(j, keys) {
        __m512 key = _mm512_maskz_loadu_ps(mask, k + (size_t)j * size + i);
        if (rows > 1) stay_in_register(key);
        foreach(r, rows)
            sum[r][j] = _mm512_fmadd_ps(query[r], key, sum[r][j]);
    }
}

/* Scores of `rows` queries against `keys` consecutive keys from k; keys is 16, 8, 4 or 1. */
ALWAYS_INLINE void score_block(int rows, int keys, const float *const *q, const float *k,
                               size_t size, float scale, float *const *s, size_t first)
{
    __m512 sum[3][SUMS];
    foreach(r, rows)
        foreach(j, keys)
            sum[r][j] = _mm512_setzero_ps();

    size_t i = 0;
    for (; i + WIDE <= size; i += WIDE)
        score_chunk(sum, rows, keys, q, k, size, i, 0xffff);
    if (i < size) score_chunk(sum, rows, keys, q, k, size, i, wide_first(size - i));

    foreach(r, rows) {
        float *const to = s[r] + first;
        foreach(group, keys / 8) {
            const __m256 sums = wide_sum8(&sum[r][8 * group]);
            _mm256_storeu_ps(to + 8 * group, _mm256_mul_ps(_mm256_set1_ps(scale), sums));
        }
        if (keys == 4) _mm_storeu_ps(to, _mm_mul_ps(_mm_set1_ps(scale), wide_sum4(sum[r])));
        if (keys == 1) *to = scale * wide_sum(sum[r][0]);
    }
}

/* All keys for `rows` queries. */
ALWAYS_INLINE void score_rows(int rows, const float *const *q, const float *k, size_t n_keys,
                              size_t size, float scale, float *const *s)
{
    size_t j = 0;
    if (rows == 1)
        for (; j + 16 <= n_keys; j += 16)
            score_block(rows, 16, q, k + j * size, size, scale, s, j);
    for (; j + 8 <= n_keys; j += 8)
        score_block(rows, 8, q, k + j * size, size, scale, s, j);
    for (; j + 4 <= n_keys; j += 4)
        score_block(rows, 4, q, k + j * size, size, scale, s, j);
    for (; j < n_keys; j++)
        score_block(rows, 1, q, k + j * size, size, scale, s, j);
}

static void attend_scores(const float *const *q, uint32_t n_rows, const float *k, uint32_t n_keys,
                          uint32_t size, float scale, float *const *s)
{
    uint32_t r = 0;
    for (; n_rows - r >= 3; r += 3)
        score_rows(3, q + r, k, n_keys, size, scale, s + r);
    if (n_rows - r == 2)
        score_rows(2, q + r, k, n_keys, size, scale, s + r);
    else if (n_rows - r == 1)
        score_rows(1, q + r, k, n_keys, size, scale, s + r);
}

/* ---- softmax ------------------------------------------------------------------------------- */

/* max(start, s[0..n)) where NaN counts as nothing. */
ALWAYS_INLINE float maximum_of(const float *s, size_t n, float start)
{
    __m512 maximum = _mm512_set1_ps(start);
    size_t j = 0;
    for (; j + WIDE <= n; j += WIDE) /* of NaN and a number: the second */
        maximum = _mm512_max_ps(_mm512_loadu_ps(s + j), maximum);
    if (j < n)
        maximum = _mm512_mask_max_ps(maximum, wide_first(n - j), wide_rest(s + j, n - j), maximum);
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(maximum),
                                       _mm512_extractf32x8_ps(maximum, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

static float attend_softmax(float *s, uint32_t n, float *m, float *l)
{
    const float before = *m;
    const float maximum = maximum_of(s, n, before);
    /* While everything seen is -infinity no finite maximum is there: weights are exp(-inf). */
    const float subtracted = maximum == -INFINITY ? 0.0f : maximum;

    const __m512 shift = _mm512_set1_ps(subtracted);
    __m512 sum = _mm512_setzero_ps();
    size_t j = 0;
    for (; j + WIDE <= n; j += WIDE) {
        const __m512 weight = exp_lanes(_mm512_sub_ps(_mm512_loadu_ps(s + j), shift));
        _mm512_storeu_ps(s + j, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    if (j < n) {
        const __mmask16 mask = wide_first(n - j);
        const __m512 weight = exp_lanes(_mm512_sub_ps(wide_rest(s + j, n - j), shift));
        _mm512_mask_storeu_ps(s + j, mask, weight);
        sum = _mm512_mask_add_ps(sum, mask, sum, weight);
    }
    float correction = 1;
    if (maximum != before)
        correction = _mm512_cvtss_f32(exp_lanes(_mm512_set1_ps(before - subtracted)));
    *l = *l * correction + wide_sum(sum);
    *m = maximum;
    return correction;
}

/* ---- weighted sum -------------------------------------------------------------------------- */

/* acc[r][i ..] over all keys: `chunks` chunks of sixteen columns, the last of those that `mask` says. */
ALWAYS_INLINE void accumulate_block(int rows, int chunks, const float *const *w, const float *v,
                                    size_t n_keys, size_t size, float *const *acc, size_t i,
                                    __mmask16 mask)
{
    __m512 sum[4][8];
    foreach(r, rows)
        foreach(c, chunks)
            sum[r][c] = _mm512_maskz_loadu_ps(mask, acc[r] + i + WIDE * c);

    const float *value = v + i;
    for (size_t j = 0; j < n_keys; j++, value += size) {
        __m512 weight[4];
        foreach(r, rows)
            weight[r] = _mm512_set1_ps(w[r][j]);
        foreach(c, chunks) {
            const __m512 chunk = _mm512_maskz_loadu_ps(mask, value + WIDE * c);
            foreach(r, rows)
                sum[r][c] = _mm512_fmadd_ps(weight[r], chunk, sum[r][c]);
        }
    }
    foreach(r, rows)
        foreach(c, chunks)
            _mm512_mask_storeu_ps(acc[r] + i + WIDE * c, mask, sum[r][c]);
}

/* All columns for `rows` rows. */
ALWAYS_INLINE void accumulate_rows(int rows, const float *const *w, const float *v, size_t n_keys,
                                   size_t size, float *const *acc)
{
    size_t i = 0;
    if (rows == 1)
        for (; i + 8 * WIDE <= size; i += 8 * WIDE)
            accumulate_block(rows, 8, w, v, n_keys, size, acc, i, 0xffff);
    for (; i + 4 * WIDE <= size; i += 4 * WIDE)
        accumulate_block(rows, 4, w, v, n_keys, size, acc, i, 0xffff);
    for (; i + WIDE <= size; i += WIDE)
        accumulate_block(rows, 1, w, v, n_keys, size, acc, i, 0xffff);
    if (i < size) accumulate_block(rows, 1, w, v, n_keys, size, acc, i, wide_first(size - i));
}

static void attend_accumulate(const float *const *w, uint32_t n_rows, const float *v,
                              uint32_t n_keys, uint32_t size, float *const *acc)
{
    uint32_t r = 0;
    for (; n_rows - r >= 4; r += 4)
        accumulate_rows(4, w + r, v, n_keys, size, acc + r);
    if (n_rows - r == 3)
        accumulate_rows(3, w + r, v, n_keys, size, acc + r);
    else if (n_rows - r == 2)
        accumulate_rows(2, w + r, v, n_keys, size, acc + r);
    else if (n_rows - r == 1)
        accumulate_rows(1, w + r, v, n_keys, size, acc + r);
}

static void attend_scale(float *x, uint32_t n, float factor)
{
    const __m512 factors = _mm512_set1_ps(factor);
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), factors));
    if (i < n)
        _mm512_mask_storeu_ps(x + i, wide_first(n - i),
                              _mm512_mul_ps(wide_rest(x + i, n - i), factors));
}

void cl_attend_fill_avx512(cl_kernels *table)
{
    table->attend_scores = attend_scores;
    table->attend_softmax = attend_softmax;
    table->attend_accumulate = attend_accumulate;
    table->attend_scale = attend_scale;
}
