/*
 * attend_neon.c: attention over a tile of keys with NEON.
 *
 * Rows of K and V are shared by several query rows, so the kernels work on blocks of rows and keys whose
 * accumulators stay in registers: up to three query rows by four keys for the scores, up to three rows by
 * 32 columns for the weighted sum, with wider blocks for a single row. That is 24 of the 32 registers.
 *
 * The promise: a block's shape never changes a value. Each score is one chain of eight lanes over the row
 * and the tree of lanes_neon.h; each accumulated number is one chain of FMAs over the keys in their order.
 *
 * Nothing here fails. NaN policy as in attend_scalar.c.
 */
#include "kernels.h"

#include <math.h>

#include "exp_neon.h"
#include "lanes_neon.h"

/* ---- scores -------------------------------------------------------------------------------- */

/* One chunk of eight numbers from i on for `rows` queries and `keys` keys, both constants. */
ALWAYS_INLINE void score_chunk(float32x4_t (*sum)[8][HALVES], int rows, int keys,
                               const float *const *q, const float *k, size_t size, size_t i)
{
    foreach(h, HALVES) {
        float32x4_t query[3];
        foreach(r, rows)
            query[r] = vld1q_f32(q[r] + i + FOUR * h);
        foreach(j, keys) {
            const float32x4_t key = vld1q_f32(k + (size_t)j * size + i + FOUR * h);
            foreach(r, rows)
                sum[r][j][h] = vfmaq_f32(sum[r][j][h], query[r], key);
        }
        loads_stay();
    }
}

/* The last size - i < 8 numbers: filled up with zeros, they are a chunk like any other. */
ALWAYS_INLINE void score_rest(float32x4_t (*sum)[8][HALVES], int rows, int keys,
                              const float *const *q, const float *k, size_t size, size_t i)
{
    float queries[3][LANES], key_rests[8][LANES];
    const float *const query_rests[3] = {queries[0], queries[1], queries[2]};
    for (int r = 0; r < rows; r++)
        rest_copy(queries[r], q[r] + i, size - i);
    for (int j = 0; j < keys; j++)
        rest_copy(key_rests[j], k + (size_t)j * size + i, size - i);
    score_chunk(sum, rows, keys, query_rests, key_rests[0], LANES, 0);
}

/* Scores of `rows` queries against `keys` consecutive keys from k; keys is 8, 4 or 1. */
ALWAYS_INLINE void score_block(int rows, int keys, const float *const *q, const float *k,
                               size_t size, float scale, float *const *s, size_t first)
{
    float32x4_t sum[3][8][HALVES];
    foreach(r, rows)
        foreach(j, keys)
            foreach(h, HALVES)
                sum[r][j][h] = vdupq_n_f32(0);

    size_t i = 0;
    for (; i + LANES <= size; i += LANES)
        score_chunk(sum, rows, keys, q, k, size, i);
    if (i < size) score_rest(sum, rows, keys, q, k, size, i);

    foreach(r, rows) {
        float *const to = s[r] + first;
        foreach(group, keys / 4) {
            float32x4_t(*const four)[HALVES] = &sum[r][4 * group];
            const float32x4_t sums = lanes_sum4(four[0], four[1], four[2], four[3]);
            vst1q_f32(to + 4 * group, vmulq_n_f32(sums, scale));
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
    for (; n_rows - r >= 3; r += 3)
        score_rows(3, q + r, k, n_keys, size, scale, s + r);
    if (n_rows - r == 2)
        score_rows(2, q + r, k, n_keys, size, scale, s + r);
    else if (n_rows - r == 1)
        score_rows(1, q + r, k, n_keys, size, scale, s + r);
}

/* ---- softmax ------------------------------------------------------------------------------- */

/* The last count < 8 scores, then -infinity: no maximum, and of weight 0. */
ALWAYS_INLINE void last_scores(float to[LANES], const float *s, size_t count)
{
    for (size_t l = 0; l < LANES; l++)
        to[l] = -INFINITY;
    for (size_t l = 0; l < count; l++)
        to[l] = s[l];
}

/* The larger of each pair; a NaN in s counts as nothing. */
ALWAYS_INLINE float32x4_t larger(float32x4_t maximum, float32x4_t s)
{
    return vbslq_f32(vcgtq_f32(s, maximum), s, maximum);
}

/* max(start, s[0..n)) where NaN counts as nothing. */
ALWAYS_INLINE float maximum_of(const float *s, size_t n, float start)
{
    float32x4_t maximum[HALVES] = {vdupq_n_f32(start), vdupq_n_f32(start)};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        foreach(h, HALVES)
            maximum[h] = larger(maximum[h], vld1q_f32(s + j + FOUR * h));
    if (j < n) {
        float last[LANES];
        last_scores(last, s + j, n - j);
        foreach(h, HALVES)
            maximum[h] = larger(maximum[h], vld1q_f32(last + FOUR * h));
    }
    return vmaxvq_f32(larger(maximum[0], maximum[1]));
}

/* Replaces eight scores by their weights and adds these to the sum. */
ALWAYS_INLINE void weigh(float *s, float32x4_t shift, float32x4_t sum[HALVES])
{
    foreach(h, HALVES) {
        const float32x4_t weight = exp_four(vsubq_f32(vld1q_f32(s + FOUR * h), shift));
        vst1q_f32(s + FOUR * h, weight);
        sum[h] = vaddq_f32(sum[h], weight);
    }
}

static float attend_softmax(float *s, uint32_t n, float *m, float *l)
{
    const float before = *m;
    const float maximum = maximum_of(s, n, before);
    /* While everything seen is -infinity no finite maximum is there: weights are exp(-inf). */
    const float subtracted = maximum == -INFINITY ? 0.0f : maximum;

    const float32x4_t shift = vdupq_n_f32(subtracted);
    float32x4_t sum[HALVES] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        weigh(s + j, shift, sum);
    if (j < n) {
        float last[LANES];
        last_scores(last, s + j, n - j);
        weigh(last, shift, sum);
        memcpy(s + j, last, (n - j) * sizeof *s);
    }
    float correction = 1;
    if (maximum != before)
        correction = vgetq_lane_f32(exp_four(vdupq_n_f32(before - subtracted)), 0);
    *l = *l * correction + lanes_sum(sum);
    *m = maximum;
    return correction;
}

/* ---- weighted sum -------------------------------------------------------------------------- */

/* acc[r][i ..] over all keys, for `rows` rows and `chunks` chunks of four columns from column i. */
ALWAYS_INLINE void accumulate_block(int rows, int chunks, const float *const *w, const float *v,
                                    size_t n_keys, size_t size, float *const *acc, size_t i)
{
    float32x4_t sum[3][16];
    foreach(r, rows)
        foreach(c, chunks)
            sum[r][c] = vld1q_f32(acc[r] + i + FOUR * c);

    const float *value = v + i;
    for (size_t j = 0; j < n_keys; j++, value += size) {
        float32x4_t weight[3];
        foreach(r, rows)
            weight[r] = vld1q_dup_f32(w[r] + j);
        foreach(c, chunks) {
            const float32x4_t chunk = vld1q_f32(value + FOUR * c);
            foreach(r, rows)
                sum[r][c] = vfmaq_f32(sum[r][c], weight[r], chunk);
            if (c % 2) loads_stay();
        }
    }
    foreach(r, rows)
        foreach(c, chunks)
            vst1q_f32(acc[r] + i + FOUR * c, sum[r][c]);
}

/* One row's last size - i < 4 columns over all keys. */
static void accumulate_rest(const float *w, const float *v, size_t n_keys, size_t size, float *acc,
                            size_t i)
{
    float last[LANES];
    rest_copy(last, acc + i, size - i);
    float32x4_t sum = vld1q_f32(last);
    for (size_t j = 0; j < n_keys; j++) {
        rest_copy(last, v + j * size + i, size - i);
        sum = vfmaq_f32(sum, vld1q_dup_f32(w + j), vld1q_f32(last));
    }
    vst1q_f32(last, sum);
    memcpy(acc + i, last, (size - i) * sizeof *acc);
}

/* All columns for `rows` rows. */
ALWAYS_INLINE void accumulate_rows(int rows, const float *const *w, const float *v, size_t n_keys,
                                   size_t size, float *const *acc)
{
    size_t i = 0;
    if (rows == 1)
        for (; i + 16 * FOUR <= size; i += 16 * FOUR)
            accumulate_block(rows, 16, w, v, n_keys, size, acc, i);
    for (; i + 8 * FOUR <= size; i += 8 * FOUR)
        accumulate_block(rows, 8, w, v, n_keys, size, acc, i);
    for (; i + FOUR <= size; i += FOUR)
        accumulate_block(rows, 1, w, v, n_keys, size, acc, i);
    for (int r = 0; i < size && r < rows; r++)
        accumulate_rest(w[r], v, n_keys, size, acc[r], i);
}

static void attend_accumulate(const float *const *w, uint32_t n_rows, const float *v,
                              uint32_t n_keys, uint32_t size, float *const *acc)
{
    uint32_t r = 0;
    for (; n_rows - r >= 3; r += 3)
        accumulate_rows(3, w + r, v, n_keys, size, acc + r);
    if (n_rows - r == 2)
        accumulate_rows(2, w + r, v, n_keys, size, acc + r);
    else if (n_rows - r == 1)
        accumulate_rows(1, w + r, v, n_keys, size, acc + r);
}

static void attend_scale(float *x, uint32_t n, float factor)
{
    size_t i = 0;
    for (; i + FOUR <= n; i += FOUR)
        vst1q_f32(x + i, vmulq_n_f32(vld1q_f32(x + i), factor));
    for (; i < n; i++)
        x[i] *= factor;
}

void cl_attend_fill_neon(cl_kernels *table)
{
    table->attend_scores = attend_scores;
    table->attend_softmax = attend_softmax;
    table->attend_accumulate = attend_accumulate;
    table->attend_scale = attend_scale;
}
