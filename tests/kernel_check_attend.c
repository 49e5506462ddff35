/*
 * kernel_check_attend.c: tests of the attention kernels.
 *
 * Sums are compared with a double reference within a bound that follows from the number of
 * roundings: a sum of n products in eight lanes goes through at most ceil(n / 8) additions, one
 * rounding of the product where it is not fused, and three additions of the tree. Whatever has to
 * repeat exactly (a pair alone or in company, keys in one call or in many) is compared bit for bit.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

enum { MAX_ROWS = 64, MAX_KEYS = 40 };

/* Rows as the sweep hands them over: pointers into one array, with gaps between the rows. */
typedef struct rows {
    float *at[MAX_ROWS];
    size_t n, size, gap;
} rows;

static rows take_rows(check *c, size_t n, size_t size, int pattern, int is_input)
{
    rows result = {.n = n, .size = size, .gap = random_below(c, 10)};
    const size_t stride = size + result.gap;
    float *all = take_floats(c, (n - 1) * stride + size, is_input);
    for (size_t r = 0; r < n; r++) {
        result.at[r] = all + r * stride;
        if (pattern >= 0) fill_floats(c, pattern, result.at[r], size);
    }
    return result;
}

static void expect_gaps_untouched(check *c, const rows *r, const char *what)
{
    for (size_t i = 0; i + 1 < r->n; i++)
        expect_untouched(c, r->at[i] + r->size, r->gap, what);
}

static const float *const *readable(const rows *r)
{
    return (const float *const *)r->at;
}

static float *take_matrix(check *c, size_t n_rows, size_t size, int pattern)
{
    float *all = take_floats(c, n_rows * size, INPUT);
    fill_floats(c, pattern, all, n_rows * size);
    return all;
}

static size_t random_rows(check *c, size_t size)
{
    return 1 + random_below(c, size < 200 && random_below(c, 8) == 0 ? MAX_ROWS : 7);
}

/* ---- attend_scores ------------------------------------------------------------------------- */

static void scores_are_near(check *c)
{
    for (size_t trial = 0, size; (size = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const size_t n_rows = random_rows(c, size), n_keys = random_below(c, MAX_KEYS);
        const rows q = take_rows(c, n_rows, size, random_pattern(c), INPUT);
        const float *k = take_matrix(c, n_keys, size, random_pattern(c));
        const rows s = take_rows(c, n_rows, n_keys, -1, OUTPUT);
        const float scale = (float)(random_unit(c) * 2);
        seal(c);
        c->kernels.attend_scores(readable(&q), (uint32_t)n_rows, k, (uint32_t)n_keys,
                                 (uint32_t)size, scale, s.at);
        verify(c);
        expect_gaps_untouched(c, &s, "scores");

        const double roundings = ceil((double)size / 8) + 5;
        for (size_t r = 0; r < n_rows; r++) {
            for (size_t j = 0; j < n_keys; j++) {
                double sum = 0, magnitude = 0;
                for (size_t i = 0; i < size; i++) {
                    const double product = (double)q.at[r][i] * k[j * size + i];
                    sum += product;
                    magnitude += fabs(product);
                }
                const double bound = (double)scale * (gamma_of(roundings) * magnitude +
                                                      2 * (double)(size + 8) * SMALLEST_STEP) +
                                     SMALLEST_STEP;
                expect_near(c, s.at[r][j], scale * sum, bound, "score", r, j);
            }
        }
    }
}

static void scores_do_not_depend_on_company(check *c)
{
    for (size_t trial = 0, size; (size = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const size_t n_rows = random_rows(c, size), n_keys = random_below(c, MAX_KEYS);
        const rows q = take_rows(c, n_rows, size, random_pattern(c), INPUT);
        const float *k = take_matrix(c, n_keys, size, random_pattern(c));
        const rows s = take_rows(c, n_rows, n_keys, -1, OUTPUT);
        c->kernels.attend_scores(readable(&q), (uint32_t)n_rows, k, (uint32_t)n_keys,
                                 (uint32_t)size, 0.3f, s.at);
        for (size_t r = 0; r < n_rows; r++) {
            for (size_t j = 0; j < n_keys; j++) {
                float alone;
                float *const to[1] = {&alone};
                c->kernels.attend_scores(readable(&q) + r, 1, k + j * size, 1, (uint32_t)size, 0.3f,
                                         to);
                expect_same(c, s.at[r][j], alone, "score in company", r, j);
            }
        }
    }
}

/* A NaN in one query or one key must reach its own scores and no others. */
static void scores_keep_nan_apart(check *c)
{
    for (size_t size = 1; size <= 70; size++) {
        begin(c);
        const size_t n_rows = random_rows(c, size), n_keys = 1 + random_below(c, MAX_KEYS - 1);
        const rows q = take_rows(c, n_rows, size, NORMAL, INPUT);
        float *k = take_matrix(c, n_keys, size, NORMAL);
        const rows clean = take_rows(c, n_rows, n_keys, -1, OUTPUT);
        const rows s = take_rows(c, n_rows, n_keys, -1, OUTPUT);
        c->kernels.attend_scores(readable(&q), (uint32_t)n_rows, k, (uint32_t)n_keys,
                                 (uint32_t)size, 1, clean.at);
        const size_t bad_row = random_below(c, n_rows), bad_key = random_below(c, n_keys);
        q.at[bad_row][random_below(c, size)] = NAN;
        k[bad_key * size + random_below(c, size)] = NAN;
        c->kernels.attend_scores(readable(&q), (uint32_t)n_rows, k, (uint32_t)n_keys,
                                 (uint32_t)size, 1, s.at);
        for (size_t r = 0; r < n_rows; r++)
            for (size_t j = 0; j < n_keys; j++)
                expect_same(c, s.at[r][j], r == bad_row || j == bad_key ? NAN : clean.at[r][j],
                            "score beside a NaN", r, j);
    }
}

/* ---- attend_softmax ------------------------------------------------------------------------ */

static double ulps_apart(float got, double expected)
{
    const int exponent = expected > 0 ? ilogb(expected) : -126;
    return fabs(got - expected) / ldexp(1, (exponent < -126 ? -126 : exponent) - 23);
}

/* With *m = 0 the weights of s <= 0 are e^s itself; the contract says 2 units in the last place. */
static void exponential_is_within_two_ulp(check *c)
{
    enum { N = 61 };
    const uint32_t last = 0x42ae9999; /* 87.3 */
    const uint32_t stride = c->is_exhaustive ? 1 : c->is_quick ? 30011 : 1009;
    float x[N], s[N];
    uint64_t bits = random_below(c, stride);
    while (bits <= last) {
        uint32_t n = 0;
        for (; n < N && bits <= last; n++, bits += stride) {
            const uint32_t negative = 0x80000000u | (uint32_t)bits;
            memcpy(&x[n], &negative, sizeof x[n]);
            s[n] = x[n];
        }
        float m = 0, l = 0;
        const float correction = c->kernels.attend_softmax(s, n, &m, &l);
        for (uint32_t j = 0; j < n; j++)
            if (!(ulps_apart(s[j], exp((double)x[j])) <= 2))
                check_fail(c, "exp(%a) = %a, %.3g ulp off", (double)x[j], (double)s[j],
                           ulps_apart(s[j], exp((double)x[j])));
        expect_same(c, correction, 1, "factor of an unchanged maximum", 0, 0);
    }
}

/* The error of e^(s - m): the difference is rounded, and the exponential adds two ulp. */
static double bound_of_weight(double x, double weight)
{
    return weight * gamma_of(fabs(x) + 5) + 0x1p-126;
}

static void check_softmax_step(check *c, const float *before, float *s, size_t n, float *m,
                               float *l)
{
    const double m_before = *m, l_before = *l;
    double maximum = m_before;
    for (size_t j = 0; j < n; j++)
        maximum = fmax(maximum, before[j]);
    const float factor = c->kernels.attend_softmax(s, (uint32_t)n, m, l);

    expect_same(c, *m, (float)maximum, "maximum", n, 0);
    const double correction = exp(m_before - maximum); /* 0 at the start, where m is -infinity */
    expect_near(c, factor, correction,
                bound_of_weight(correction > 0 ? m_before - maximum : 0, correction), "factor", n,
                0);
    double sum = 0, bound = 0;
    for (size_t j = 0; j < n; j++) {
        const double x = before[j] - maximum, weight = exp(x);
        const double slack = bound_of_weight(weight > 0x1p-140 ? x : 0, weight);
        expect_near(c, s[j], weight, slack, "weight", n, j);
        sum += weight;
        bound += slack;
    }
    const double kept = l_before * correction;
    const double roundings = ceil((double)n / 8) + 6;
    bound += l_before * bound_of_weight(correction > 0 ? m_before - maximum : 0, correction);
    bound += gamma_of(roundings) * (sum + kept + bound);
    expect_near(c, *l, sum + kept, bound, "sum", n, 0);
}

static void softmax_is_near(check *c)
{
    for (size_t trial = 0, n; (n = size_of_trial(c, trial)) > 0; trial++) {
        float m = -INFINITY, l = 0;
        const float spread = ldexpf(1, (int)random_below(c, 9));
        for (int step = 0; step < 4; step++) {
            begin(c);
            float *before = take_floats(c, n, INPUT), *s = take_floats(c, n, OUTPUT);
            fill_floats(c, random_below(c, 4) ? NORMAL : RUNS, before, n);
            for (size_t j = 0; j < n; j++)
                before[j] = before[j] * spread;
            memcpy(s, before, n * sizeof *s);
            seal(c);
            check_softmax_step(c, before, s, n, &m, &l);
            verify(c);
        }
    }
}

static void weights_do_not_depend_on_company(check *c)
{
    for (size_t trial = 0, n; (n = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        float *before = take_floats(c, n, INPUT), *s = take_floats(c, n, OUTPUT);
        fill_floats(c, random_pattern(c), before, n);
        for (size_t j = 0; j < n; j++)
            before[j] = fmaxf(-200, fminf(before[j] * 8, 200));
        memcpy(s, before, n * sizeof *s);
        float m = -INFINITY, l = 0;
        c->kernels.attend_softmax(s, (uint32_t)n, &m, &l);
        for (size_t j = 0; j < n; j++) {
            float alone = before[j], same = m, sum = 0;
            c->kernels.attend_softmax(&alone, 1, &same, &sum);
            expect_same(c, s[j], alone, "weight in company", n, j);
        }
    }
}

static void softmax_of_special_values(check *c)
{
    for (uint32_t n = 1; n <= 20; n++) {
        float s[20], m = -INFINITY, l = 0;
        for (uint32_t j = 0; j < n; j++)
            s[j] = -INFINITY;
        expect_same(c, c->kernels.attend_softmax(s, n, &m, &l), 1, "factor of nothing seen", n, 0);
        for (uint32_t j = 0; j < n; j++)
            expect_same(c, s[j], 0, "weight of -inf where all are", n, j);
        expect_same(c, m, -INFINITY, "maximum of nothing", n, 0);
        expect_same(c, l, 0, "sum of nothing", n, 0);

        /* A first finite score: nothing was there before, so the factor may only be 0. */
        const uint32_t at = (uint32_t)random_below(c, n);
        for (uint32_t j = 0; j < n; j++)
            s[j] = j == at ? 3.5f : j % 2 ? -INFINITY : -3e38f;
        expect_same(c, c->kernels.attend_softmax(s, n, &m, &l), 0, "factor of a first score", n, 0);
        for (uint32_t j = 0; j < n; j++)
            expect_same(c, s[j], j == at ? 1 : 0, "weight beside one score", n, j);
        expect_same(c, m, 3.5f, "maximum", n, 0);
        expect_same(c, l, 1, "sum", n, 0);

        /* NaN reaches its own weight and the sum, and is no maximum. */
        for (uint32_t j = 0; j < n; j++)
            s[j] = j == at ? NAN : 3.5f;
        expect_same(c, c->kernels.attend_softmax(s, n, &m, &l), 1, "factor beside NaN", n, 0);
        for (uint32_t j = 0; j < n; j++)
            expect_same(c, s[j], j == at ? NAN : 1, "weight beside NaN", n, j);
        expect_same(c, m, 3.5f, "maximum beside NaN", n, 0);
        expect_same(c, l, NAN, "sum with NaN", n, 0);
    }
}

/* ---- attend_accumulate --------------------------------------------------------------------- */

static void accumulated_sums_are_near(check *c)
{
    for (size_t trial = 0, size; (size = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const size_t n_rows = random_rows(c, size), n_keys = random_below(c, MAX_KEYS);
        const rows w = take_rows(c, n_rows, n_keys, random_pattern(c), INPUT);
        const float *v = take_matrix(c, n_keys, size, random_pattern(c));
        const rows acc = take_rows(c, n_rows, size, random_pattern(c), OUTPUT);
        const rows before = take_rows(c, n_rows, size, -1, OUTPUT);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(before.at[r], acc.at[r], size * sizeof(float));
        seal(c);
        c->kernels.attend_accumulate(readable(&w), (uint32_t)n_rows, v, (uint32_t)n_keys,
                                     (uint32_t)size, acc.at);
        verify(c);
        expect_gaps_untouched(c, &acc, "accumulators");
        for (size_t r = 0; r < n_rows; r++) {
            for (size_t i = 0; i < size; i++) {
                double sum = before.at[r][i], magnitude = fabs(sum);
                for (size_t j = 0; j < n_keys; j++) {
                    const double product = (double)w.at[r][j] * v[j * size + i];
                    sum += product;
                    magnitude += fabs(product);
                }
                const double bound = gamma_of((double)n_keys + 1) * magnitude +
                                     2 * (double)n_keys * SMALLEST_STEP;
                expect_near(c, acc.at[r][i], sum, bound, "accumulator", r, i);
            }
        }
    }
}

/* All rows and keys in one call, or each row and key in a call of its own, keys rising. */
static void keys_are_added_in_their_order(check *c)
{
    for (size_t trial = 0, size; (size = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const size_t n_rows = random_rows(c, size), n_keys = random_below(c, MAX_KEYS);
        const rows w = take_rows(c, n_rows, n_keys, random_pattern(c), INPUT);
        const float *v = take_matrix(c, n_keys, size, random_pattern(c));
        const rows together = take_rows(c, n_rows, size, NORMAL, OUTPUT);
        const rows apart = take_rows(c, n_rows, size, -1, OUTPUT);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(apart.at[r], together.at[r], size * sizeof(float));
        c->kernels.attend_accumulate(readable(&w), (uint32_t)n_rows, v, (uint32_t)n_keys,
                                     (uint32_t)size, together.at);
        for (size_t r = 0; r < n_rows; r++) {
            for (size_t j = 0; j < n_keys; j++) {
                const float *const one[1] = {w.at[r] + j};
                c->kernels.attend_accumulate(one, 1, v + j * size, 1, (uint32_t)size, apart.at + r);
            }
            for (size_t i = 0; i < size; i++)
                expect_same(c, together.at[r][i], apart.at[r][i], "accumulator of one call", r, i);
        }
    }
}

static void accumulators_keep_nan_apart(check *c)
{
    for (size_t size = 1; size <= 70; size++) {
        begin(c);
        const size_t n_rows = random_rows(c, size), n_keys = 1 + random_below(c, MAX_KEYS - 1);
        const rows w = take_rows(c, n_rows, n_keys, NORMAL, INPUT);
        float *v = take_matrix(c, n_keys, size, NORMAL);
        const rows clean = take_rows(c, n_rows, size, ZEROS, OUTPUT);
        const rows acc = take_rows(c, n_rows, size, ZEROS, OUTPUT);
        c->kernels.attend_accumulate(readable(&w), (uint32_t)n_rows, v, (uint32_t)n_keys,
                                     (uint32_t)size, clean.at);
        const size_t bad_row = random_below(c, n_rows), bad_column = random_below(c, size);
        w.at[bad_row][random_below(c, n_keys)] = NAN;
        v[random_below(c, n_keys) * size + bad_column] = NAN;
        c->kernels.attend_accumulate(readable(&w), (uint32_t)n_rows, v, (uint32_t)n_keys,
                                     (uint32_t)size, acc.at);
        for (size_t r = 0; r < n_rows; r++)
            for (size_t i = 0; i < size; i++)
                expect_same(c, acc.at[r][i], r == bad_row || i == bad_column ? NAN : clean.at[r][i],
                            "accumulator beside a NaN", r, i);
    }
}

/* ---- attend_scale -------------------------------------------------------------------------- */

static void scaling_is_one_product_each(check *c)
{
    for (size_t trial = 0; trial == 0 || size_of_trial(c, trial - 1) > 0; trial++) {
        const size_t n = trial == 0 ? 0 : trial <= 70 ? trial : 1 + random_below(c, 512);
        begin(c);
        float *x = take_floats(c, n, OUTPUT), *before = take_floats(c, n, INPUT);
        const float factor = (float)random_unit(c);
        fill_floats(c, random_pattern(c), before, n);
        for (size_t i = 0; i < n; i++)
            x[i] = before[i];
        seal(c);
        c->kernels.attend_scale(x, (uint32_t)n, factor);
        verify(c);
        for (size_t i = 0; i < n; i++)
            expect_same(c, x[i], before[i] * factor, "scaled", n, i);
    }
}

#define OF(member) #member
#define MEMBER(member) .kernel = OF(member), .offset = offsetof(cl_kernels, member), .type = -1

const test attend_tests[] = {
    {MEMBER(attend_scores), .aspect = "are near the exact sums", .run = scores_are_near},
    {MEMBER(attend_scores), .aspect = "do not depend on company",
     .run = scores_do_not_depend_on_company},
    {MEMBER(attend_scores), .aspect = "keep NaN apart", .run = scores_keep_nan_apart},
    {MEMBER(attend_softmax), .aspect = "exponential is within two ulp",
     .run = exponential_is_within_two_ulp},
    {MEMBER(attend_softmax), .aspect = "is near the exact weights", .run = softmax_is_near},
    {MEMBER(attend_softmax), .aspect = "weights do not depend on company",
     .run = weights_do_not_depend_on_company},
    {MEMBER(attend_softmax), .aspect = "special values", .run = softmax_of_special_values},
    {MEMBER(attend_accumulate), .aspect = "is near the exact sums",
     .run = accumulated_sums_are_near},
    {MEMBER(attend_accumulate), .aspect = "adds keys in their order",
     .run = keys_are_added_in_their_order},
    {MEMBER(attend_accumulate), .aspect = "keeps NaN apart", .run = accumulators_keep_nan_apart},
    {MEMBER(attend_scale), .aspect = "is one product each", .run = scaling_is_one_product_each},
};
const size_t n_attend_tests = sizeof attend_tests / sizeof *attend_tests;
