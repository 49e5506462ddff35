/*
 * attend_avx512.c: scores and weighted sums of attention with 512-bit registers.
 *
 * As in attend_avx2.c, query rows that share K and V are taken together: up to four rows by four keys for
 * the scores, up to four rows by 64 columns for the weighted sum, with wider blocks for a single row.
 *
 * The promise: a block's shape never changes a value. Each score is one chain of sixteen lanes and their
 * tree (lanes_avx512.h); each accumulated number is one chain of FMAs over the keys in their order.
 *
 * The softmax stays AVX2's: it is no sum of products, and it is short. Nothing here fails. NaN policy as
 * in attend_scalar.c.
 */
#include "kernels.h"

#include "lanes_avx512.h"

/* ---- scores -------------------------------------------------------------------------------- */

/* Sixteen numbers from i on, or as many as `mask` says, for `rows` queries and `keys` keys. */
ALWAYS_INLINE void score_chunk(__m512 (*sum)[8], int rows, int keys, const float *const *q,
                               const float *k, size_t size, size_t i, __mmask16 mask)
{
    __m512 query[4];
    foreach(r, rows)
        query[r] = _mm512_maskz_loadu_ps(mask, q[r] + i);
    foreach(j, keys) {
        const __m512 key = _mm512_maskz_loadu_ps(mask, k + (size_t)j * size + i);
        foreach(r, rows)
            sum[r][j] = _mm512_fmadd_ps(query[r], key, sum[r][j]);
    }
}

/* Scores of `rows` queries against `keys` consecutive keys from k; keys is 8, 4 or 1. */
ALWAYS_INLINE void score_block(int rows, int keys, const float *const *q, const float *k,
                               size_t size, float scale, float *const *s, size_t first)
{
    __m512 sum[4][8];
    foreach(r, rows)
        foreach(j, keys)
            sum[r][j] = _mm512_setzero_ps();

    size_t i = 0;
    for (; i + WIDE <= size; i += WIDE)
        score_chunk(sum, rows, keys, q, k, size, i, 0xffff);
    if (i < size) score_chunk(sum, rows, keys, q, k, size, i, wide_first(size - i));

    const __m128 scales = _mm_set1_ps(scale);
    foreach(r, rows) {
        float *const to = s[r] + first;
        foreach(group, keys / 4)
            _mm_storeu_ps(to + 4 * group, _mm_mul_ps(scales, wide_sum4(&sum[r][4 * group])));
        if (keys == 1) *to = scale * wide_sum(sum[r][0]);
    }
}

/* All keys for `rows` queries. */
ALWAYS_INLINE void score_rows(int rows, const float *const *q, const float *k, size_t n_keys,
                              size_t size, float scale, float *const *s)
{
    size_t j = 0;
    if (rows <= 2)
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
    for (; n_rows - r >= 4; r += 4)
        score_rows(4, q + r, k, n_keys, size, scale, s + r);
    if (n_rows - r == 3)
        score_rows(3, q + r, k, n_keys, size, scale, s + r);
    else if (n_rows - r == 2)
        score_rows(2, q + r, k, n_keys, size, scale, s + r);
    else if (n_rows - r == 1)
        score_rows(1, q + r, k, n_keys, size, scale, s + r);
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

void cl_attend_fill_avx512(cl_kernels *table)
{
    table->attend_scores = attend_scores;
    table->attend_accumulate = attend_accumulate;
}
