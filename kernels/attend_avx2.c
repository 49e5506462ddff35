/*
 * attend_avx2.c: attention over a tile of keys with AVX2 and FMA.
 *
 * Rows of K and V are shared by several query rows, so the kernels work on blocks of rows and keys
 * whose accumulators stay in registers: up to three query rows by four keys for the scores, up to
 * three rows by 32 columns for the weighted sum, with wider blocks for a single row. Twelve
 * accumulators, three operands and one load fill the sixteen registers and hide the latency of FMA.
 *
 * The promise: a block's shape never changes a value. Each score is one chain of eight lanes over
 * the row and the tree of lanes_avx2.h; each accumulated number is one chain of FMAs over the keys
 * in their order.
 *
 * Nothing here fails. NaN policy as in attend_scalar.c.
 */
#include "kernels.h"

#include <math.h>

#include "exp_avx2.h"
#include "lanes_avx2.h"

/* ---- scores -------------------------------------------------------------------------------- */

/* One chunk of eight numbers from i on for `rows` queries and `keys` keys, both constants. */
ALWAYS_INLINE void score_chunk(__m256 (*sum)[8], int rows, int keys, const float *const *q,
                               const float *k, size_t size, size_t i)
{
    __m256 query[3];
    foreach(r, rows)
        query[r] = _mm256_loadu_ps(q[r] + i);
    foreach(j, keys) {
        const __m256 key = _mm256_loadu_ps(k + (size_t)j * size + i);
        foreach(r, rows)
            sum[r][j] = _mm256_fmadd_ps(query[r], key, sum[r][j]);
    }
}

/* The last size - i < 8 numbers: filled up with zeros, they are a chunk like any other. */
ALWAYS_INLINE void score_rest(__m256 (*sum)[8], int rows, int keys, const float *const *q,
                              const float *k, size_t size, size_t i)
{
    float queries[3][LANES], key_rests[8][LANES];
    const float *const query_rests[3] = {queries[0], queries[1], queries[2]};
    for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(queries[r], rest_load(q[r] + i, size - i));
    for (int j = 0; j < keys; j++)
        _mm256_storeu_ps(key_rests[j], rest_load(k + (size_t)j * size + i, size - i));
    score_chunk(sum, rows, keys, query_rests, key_rests[0], LANES, 0);
}

/* Scores of `rows` queries against `keys` consecutive keys from k; keys is 8, 4 or 1. */
ALWAYS_INLINE void score_block(int rows, int keys, const float *const *q, const float *k,
                               size_t size, float scale, float *const *s, size_t first)
{
    __m256 sum[3][8];
    foreach(r, rows)
        foreach(j, keys)
            sum[r][j] = _mm256_setzero_ps();

    size_t i = 0;
    for (; i + LANES <= size; i += LANES)
        score_chunk(sum, rows, keys, q, k, size, i);
    if (i < size) score_rest(sum, rows, keys, q, k, size, i);

    const __m128 scales = _mm_set1_ps(scale);
    foreach(r, rows) {
        float *const to = s[r] + first;
        foreach(group, keys / 4) {
            const __m256 *const four = &sum[r][4 * group];
            const __m128 sums = lanes_sum4(four[0], four[1], four[2], four[3]);
            _mm_storeu_ps(to + 4 * group, _mm_mul_ps(scales, sums));
        }
        if (keys == 1) *to = scale * lanes_sum(sum[r][0]);
    }
}

/* All keys for `rows` queries. */
ALWAYS_INLINE void score_rows(int rows, const float *const *q, const float *k, size_t n_keys,
                              size_t size, float scale, float *const *s)
{
    size_t j = 0;
    if (rows == 1)
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
    for (; r + 3 <= n_rows; r += 3)
        score_rows(3, q + r, k, n_keys, size, scale, s + r);
    if (n_rows - r == 2)
        score_rows(2, q + r, k, n_keys, size, scale, s + r);
    else if (n_rows - r == 1)
        score_rows(1, q + r, k, n_keys, size, scale, s + r);
}

/* ---- softmax ------------------------------------------------------------------------------- */

static float exp_one(float x)
{
    return _mm256_cvtss_f32(exp_lanes(_mm256_set1_ps(x)));
}

/* max(start, s[0..n)) where NaN counts as nothing. */
static float maximum_of(const float *s, size_t n, float start)
{
    __m256 maximum = _mm256_set1_ps(start);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        maximum = _mm256_max_ps(_mm256_loadu_ps(s + j),
                                maximum); /* of NaN and a number: the second */
    if (j < n) {
        const __m256 last = _mm256_blendv_ps(maximum, rest_load(s + j, n - j), lanes_first(n - j));
        maximum = _mm256_max_ps(last, maximum);
    }
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(maximum), _mm256_extractf128_ps(maximum, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

static float attend_softmax(float *s, uint32_t n, float *m, float *l)
{
    const float before = *m;
    const float maximum = maximum_of(s, n, before);
    /*
     * While everything seen is -infinity there is no finite maximum to subtract: weights are
     * exp(-inf).
     */
    const float subtracted = maximum == -INFINITY ? 0.0f : maximum;

    const __m256 shift = _mm256_set1_ps(subtracted);
    __m256 sum = _mm256_setzero_ps();
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const __m256 weight = exp_lanes(_mm256_sub_ps(_mm256_loadu_ps(s + j), shift));
        _mm256_storeu_ps(s + j, weight);
        sum = _mm256_add_ps(sum, weight);
    }
    if (j < n) {
        const __m256 weight = exp_lanes(_mm256_sub_ps(rest_load(s + j, n - j), shift));
        rest_store(s + j, weight, n - j);
        sum = _mm256_add_ps(sum, _mm256_and_ps(weight, lanes_first(n - j)));
    }
    const float correction = maximum == before ? 1.0f : exp_one(before - subtracted);
    *l = *l * correction + lanes_sum(sum);
    *m = maximum;
    return correction;
}

/* ---- weighted sum -------------------------------------------------------------------------- */

/*
 * acc[r][i ..] over all keys, for `rows` rows and `chunks` chunks of eight columns from column i.
 */
ALWAYS_INLINE void accumulate_block(int rows, int chunks, const float *const *w, const float *v,
                                    size_t n_keys, size_t size, float *const *acc, size_t i)
{
    __m256 sum[3][8];
    foreach(r, rows)
        foreach(c, chunks)
            sum[r][c] = _mm256_loadu_ps(acc[r] + i + LANES * c);

    const float *value = v + i;
    for (size_t j = 0; j < n_keys; j++, value += size) {
        __m256 weight[3];
        foreach(r, rows)
            weight[r] = _mm256_broadcast_ss(w[r] + j);
        foreach(c, chunks) {
            const __m256 chunk = _mm256_loadu_ps(value + LANES * c);
            foreach(r, rows)
                sum[r][c] = _mm256_fmadd_ps(weight[r], chunk, sum[r][c]);
        }
    }
    foreach(r, rows)
        foreach(c, chunks)
            _mm256_storeu_ps(acc[r] + i + LANES * c, sum[r][c]);
}

/* One row's last size - i < 8 columns over all keys. */
static void accumulate_rest(const float *w, const float *v, size_t n_keys, size_t size, float *acc,
                            size_t i)
{
    __m256 sum = rest_load(acc + i, size - i);
    for (size_t j = 0; j < n_keys; j++)
        sum = _mm256_fmadd_ps(_mm256_broadcast_ss(w + j), rest_load(v + j * size + i, size - i),
                              sum);
    rest_store(acc + i, sum, size - i);
}

/* All columns for `rows` rows. */
ALWAYS_INLINE void accumulate_rows(int rows, const float *const *w, const float *v, size_t n_keys,
                                   size_t size, float *const *acc)
{
    size_t i = 0;
    if (rows == 1)
        for (; i + 8 * LANES <= size; i += 8 * LANES)
            accumulate_block(rows, 8, w, v, n_keys, size, acc, i);
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        accumulate_block(rows, 4, w, v, n_keys, size, acc, i);
    for (; i + LANES <= size; i += LANES)
        accumulate_block(rows, 1, w, v, n_keys, size, acc, i);
    for (int r = 0; i < size && r < rows; r++)
        accumulate_rest(w[r], v, n_keys, size, acc[r], i);
}

static void attend_accumulate(const float *const *w, uint32_t n_rows, const float *v,
                              uint32_t n_keys, uint32_t size, float *const *acc)
{
    uint32_t r = 0;
    for (; r + 3 <= n_rows; r += 3)
        accumulate_rows(3, w + r, v, n_keys, size, acc + r);
    if (n_rows - r == 2)
        accumulate_rows(2, w + r, v, n_keys, size, acc + r);
    else if (n_rows - r == 1)
        accumulate_rows(1, w + r, v, n_keys, size, acc + r);
}

static void attend_scale(float *x, uint32_t n, float factor)
{
    const __m256 factors = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factors));
    for (; i < n; i++)
        x[i] *= factor;
}

void cl_attend_fill_avx2(cl_kernels *table)
{
    table->attend_scores = attend_scores;
    table->attend_softmax = attend_softmax;
    table->attend_accumulate = attend_accumulate;
    table->attend_scale = attend_scale;
}
