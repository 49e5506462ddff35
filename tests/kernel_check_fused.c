/*
 * kernel_check_fused.c: AVX2 and NEON give the same bits.
 *
 * They cannot be compared on one machine, so each is held to what both have to compute, written with fmaf():
 * a sum of products is eight chains of fused steps and one tree, a weighted sum is a chain over the keys, and
 * a rotation rounds one product and fuses the other. Scalar and AVX-512 have other roundings; for them there
 * is nothing to test here. A product of any weight type is that of its decoded numbers, so F32 stands for all.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, ROWS = 5, KEYS = 11 };

static int is_fused_in_eight(const check *c)
{
    return strcmp(c->kernels.isa, "avx2") == 0 || strcmp(c->kernels.isa, "neon") == 0;
}

/* A row that is no multiple of eight long is filled up with zeros, which turn -0 into 0. */
static float fused_sum(const float *a, const float *b, size_t n)
{
    float lane[LANES] = {0};
    for (size_t i = 0; i < (n + LANES - 1) / LANES * LANES; i++)
        lane[i % LANES] = fmaf(i < n ? a[i] : 0, i < n ? b[i] : 0, lane[i % LANES]);
    const float low = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    return low + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void scores_have_the_bits_of_fused_lanes(check *c)
{
    for (size_t trial = 0, size; is_fused_in_eight(c) && (size = size_of_trial(c, trial)) > 0;
         trial++) {
        begin(c);
        float *q = take_floats(c, ROWS * size, INPUT), *k = take_floats(c, KEYS * size, INPUT);
        float *s = take_floats(c, ROWS * KEYS, OUTPUT);
        const float *rows[ROWS];
        float *to[ROWS];
        for (size_t r = 0; r < ROWS; r++) {
            rows[r] = q + r * size;
            to[r] = s + r * KEYS;
        }
        fill_floats(c, random_pattern(c), q, ROWS * size);
        fill_floats(c, random_pattern(c), k, KEYS * size);
        c->kernels.attend_scores(rows, ROWS, k, KEYS, (uint32_t)size, 0.3f, to);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t j = 0; j < KEYS; j++)
                expect_same(c, to[r][j], 0.3f * fused_sum(rows[r], k + j * size, size), "score", r,
                            j);
    }
}

static void weighted_sums_have_the_bits_of_a_fused_chain(check *c)
{
    for (size_t trial = 0, size; is_fused_in_eight(c) && (size = size_of_trial(c, trial)) > 0;
         trial++) {
        begin(c);
        float *w = take_floats(c, KEYS, INPUT), *v = take_floats(c, KEYS * size, INPUT);
        float *acc = take_floats(c, size, OUTPUT), *sum = take_floats(c, size, OUTPUT);
        fill_floats(c, random_pattern(c), w, KEYS);
        fill_floats(c, random_pattern(c), v, KEYS * size);
        fill_floats(c, random_pattern(c), acc, size);
        memcpy(sum, acc, size * sizeof *sum);
        c->kernels.attend_accumulate((const float *const[]){w}, 1, v, KEYS, (uint32_t)size,
                                     (float *const[]){acc});
        for (size_t i = 0; i < size; i++) {
            for (size_t j = 0; j < KEYS; j++)
                sum[i] = fmaf(w[j], v[j * size + i], sum[i]);
            expect_same(c, acc[i], sum[i], "weighted sum", size, i);
        }
    }
}

static void pairs_have_the_bits_of_one_fused_product(check *c)
{
    for (size_t trial = 0, n; is_fused_in_eight(c) && (n = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        float *x = take_floats(c, 2 * n, OUTPUT), *before = take_floats(c, 2 * n, OUTPUT);
        float *cosine = take_floats(c, n, INPUT), *sine = take_floats(c, n, INPUT);
        fill_floats(c, random_pattern(c), before, 2 * n);
        fill_floats(c, NORMAL, cosine, n);
        fill_floats(c, NORMAL, sine, n);
        memcpy(x, before, 2 * n * sizeof *x);
        c->kernels.rope_normal(x, (uint32_t)n, cosine, sine);
        for (size_t i = 0; i < n; i++) {
            const float a = before[2 * i], b = before[2 * i + 1];
            expect_same(c, x[2 * i], fmaf(a, cosine[i], -(b * sine[i])), "first of a pair", n, i);
            expect_same(c, x[2 * i + 1], fmaf(b, cosine[i], a * sine[i]), "second of a pair", n, i);
        }
    }
}

static void products_have_the_bits_of_fused_lanes(check *c)
{
    for (size_t trial = 0, n; is_fused_in_eight(c) && (n = size_of_trial(c, trial)) > 0; trial++) {
        const size_t n_tokens = 1 + trial % 7;
        begin(c);
        float *w = take_floats(c, KEYS * n, INPUT), *x = take_floats(c, n_tokens * n, INPUT);
        float *y = take_floats(c, n_tokens * KEYS, OUTPUT);
        fill_floats(c, random_pattern(c), w, KEYS * n);
        fill_floats(c, random_pattern(c), x, n_tokens * n);
        c->weights.weight[CL_WEIGHT_F32].matmul(w, n * sizeof *w, (uint32_t)n, 0, KEYS, x, n,
                                                (uint32_t)n_tokens, y, KEYS);
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t i = 0; i < KEYS; i++)
                expect_same(c, y[t * KEYS + i], fused_sum(w + i * n, x + t * n, n), "product", i,
                            t);
    }
}

#define KERNEL(member) .kernel = #member, .offset = offsetof(cl_kernels, member), .type = OF_KERNELS
#define AS_FUSED .aspect = "has the bits that AVX2 and NEON share"

const test fused_tests[] = {
    {KERNEL(attend_scores), AS_FUSED, .run = scores_have_the_bits_of_fused_lanes},
    {KERNEL(attend_accumulate), AS_FUSED, .run = weighted_sums_have_the_bits_of_a_fused_chain},
    {KERNEL(rope_normal), AS_FUSED, .run = pairs_have_the_bits_of_one_fused_product},
    {.kernel = "matmul_f32",
     .offset = offsetof(cl_weight, matmul),
     .type = CL_WEIGHT_F32,
     AS_FUSED,
     .run = products_have_the_bits_of_fused_lanes},
};
const size_t n_fused_tests = sizeof fused_tests / sizeof *fused_tests;
