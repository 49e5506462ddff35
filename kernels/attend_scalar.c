/*
 * attend_scalar.c: attention over a tile of keys, written to be read.
 *
 * The four steps of the running softmax: scores of some query rows against some keys, weights from
 * scores, weighted sum of the values, and the scaling of what was summed before under a smaller
 * maximum. These versions state the meaning that every other instruction set must have. They use
 * plain multiply and add, so that their results are the same on every processor (expf apart, which
 * is the C library's).
 *
 * Nothing here fails. NaN in gives NaN out in the places that depend on it.
 */
#include "kernels.h"

#include <math.h>

#include "lanes.h"

static void attend_scores(const float *const *q, uint32_t n_rows, const float *k, uint32_t n_keys,
                          uint32_t size, float scale, float *const *s)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t j = 0; j < n_keys; j++) {
            float lane[LANES] = {0};
            lanes_add_products(lane, q[r], k + (size_t)j * size, size);
            s[r][j] = scale * lanes_sum(lane);
        }
    }
}

static float attend_softmax(float *s, uint32_t n, float *m, float *l)
{
    const float before = *m;
    float maximum = before;
    for (uint32_t j = 0; j < n; j++)
        if (s[j] > maximum) /* a NaN is never greater and so never becomes the maximum */
            maximum = s[j];

    /*
     * While everything seen is -infinity there is no finite maximum to subtract: weights are
     * exp(-inf).
     */
    const float subtracted = maximum == -INFINITY ? 0.0f : maximum;
    float lane[LANES] = {0};
    for (uint32_t j = 0; j < n; j++) {
        s[j] = expf(s[j] - subtracted);
        lane[j % LANES] += s[j];
    }
    const float correction = maximum == before ? 1.0f : expf(before - subtracted);
    *l = *l * correction + lanes_sum(lane);
    *m = maximum;
    return correction;
}

/* Eight columns over all keys: as many as compilers keep in registers. */
static void accumulate_eight(const float *w, const float *v, uint32_t n_keys, size_t size,
                             float *acc)
{
    float sum[LANES];
    for (size_t l = 0; l < LANES; l++)
        sum[l] = acc[l];
    for (size_t j = 0; j < n_keys; j++)
        for (size_t l = 0; l < LANES; l++)
            sum[l] += w[j] * v[j * size + l];
    for (size_t l = 0; l < LANES; l++)
        acc[l] = sum[l];
}

static void attend_accumulate(const float *const *w, uint32_t n_rows, const float *v,
                              uint32_t n_keys, uint32_t size, float *const *acc)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        size_t i = 0;
        for (; i + LANES <= size; i += LANES)
            accumulate_eight(w[r], v + i, n_keys, size, acc[r] + i);
        for (; i < size; i++)
            for (size_t j = 0; j < n_keys; j++)
                acc[r][i] += w[r][j] * v[j * size + i];
    }
}

static void attend_scale(float *x, uint32_t n, float factor)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] *= factor;
}

void cl_attend_fill_scalar(cl_kernels *table)
{
    table->attend_scores = attend_scores;
    table->attend_softmax = attend_softmax;
    table->attend_accumulate = attend_accumulate;
    table->attend_scale = attend_scale;
}
