/*
 * kernel_check_rounded.c: tests of rounded activations and of their products.
 *
 * Rounding has to keep to kernels/rounded.h: each number within half a step, sums exact, what is not finite
 * marked. A row is read here by the layout that stands there. Products have to be near the exact sums of
 * the weights (true_weight) and the rounded numbers, within a bound derived from their roundings; to have the
 * bits of the scalar version; and to have the same bits for a (row, token) pair whatever is computed beside it
 * and in whichever form the token's numbers are.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

#include "packed.h"

enum { LARGEST = 32512 };

/* One product: a matrix with gaps between its rows, activations and how they were rounded. */
typedef struct product {
    unsigned char *w, *rounded;
    float *x, *y;
    size_t n_in, n_rows, n_tokens, row_bytes, y_stride;
    uint32_t first, last;
} product;

/* ---- a rounded row --------------------------------------------------------------------------- */

static int whole_number(const unsigned char *row, size_t n, size_t i, size_t n_tokens)
{
    static const size_t place[4] = {0, 2, 1, 3};
    if (n_tokens <= CL_FEW_TOKENS) return 256 * (signed char)row[i] + (signed char)row[n + i];
    int16_t word;
    memcpy(&word, row + 2 * (i / 4 * 4 + place[i % 4]), sizeof word);
    return word;
}

static float float_at(const unsigned char *row, size_t at)
{
    float value;
    memcpy(&value, row + at, sizeof value);
    return value;
}

static float scale_at(const unsigned char *row, size_t n, size_t i)
{
    return float_at(row, 2 * n + i / 32 * 4);
}

static double rounded_number(const unsigned char *row, size_t n, size_t i, size_t n_tokens)
{
    return (double)scale_at(row, n, i) * whole_number(row, n, i, n_tokens);
}

/* What a row says of the sixteen numbers from i on, and of the 32 if they begin there. */
static void check_sums(check *c, const unsigned char *row, size_t n, size_t i, size_t n_tokens)
{
    const unsigned char *const sums = row + 2 * n + n / 32 * 4;
    int32_t sum = 0, both = 0, stored;
    for (size_t l = 0; l < 32; l++)
        *(l < 16 ? &sum : &both) += i + l < n ? whole_number(row, n, i + l, n_tokens) : 0;
    memcpy(&stored, sums + i / 16 * 4, sizeof stored);
    if (stored != sum) check_fail(c, "sum of 16 from [%zu]: %d, not %d", i, stored, sum);
    const float scale = scale_at(row, n, i);
    expect_same(c, float_at(sums, n / 16 * 4 + i / 16 * 4), (float)sum * scale, "weighted sum", n,
                i);
    if (i % 32 == 0)
        expect_same(c, float_at(sums, n / 16 * 8 + i / 32 * 4), (float)(sum + both) * scale,
                    "weighted sum of 32", n, i);
}

static void check_rounding(check *c, const unsigned char *row, const float *x, size_t n,
                           size_t n_tokens)
{
    for (size_t i = 0; i < n; i++) {
        float most = 0x1p-100f;
        int is_finite = 1;
        for (size_t l = i / 32 * 32; l < i / 32 * 32 + 32; l++) {
            most = fabsf(x[l]) > most ? fabsf(x[l]) : most;
            is_finite &= isfinite(x[l]) != 0;
        }
        const float scale = scale_at(row, n, i);
        if (i % 16 == 0) check_sums(c, row, n, i, n_tokens);
        expect_same(c, scale, is_finite ? most / LARGEST : NAN, "scale", n, i);
        if (is_finite)
            expect_near(c, (float)rounded_number(row, n, i, n_tokens), x[i],
                        (0.5 + 0x1p-8) * (double)scale + fabs((double)x[i]) * 0x1p-23, "rounded", n,
                        i);
        else if (whole_number(row, n, i, n_tokens) != 0)
            check_fail(c, "number [%zu] beside a NaN or infinity is not 0", i);
    }
}

static void rounding_keeps_to_its_steps(check *c)
{
    for (size_t trial = 0, n; (n = size_of_trial(c, trial)) > 0; trial++) {
        n = (n + 31) / 32 * 32;
        for (uint32_t n_tokens = 1; n_tokens <= CL_FEW_TOKENS + 1; n_tokens += CL_FEW_TOKENS) {
            begin(c);
            float *x = take_floats(c, n, INPUT);
            unsigned char *to = take(c, cl_rounded_bytes(n), 64, OUTPUT),
                          *scalar = take(c, cl_rounded_bytes(n), 64, OUTPUT);
            fill_floats(c, random_pattern(c), x, n);
            if (random_below(c, 4) == 0) x[random_below(c, n)] = trial % 2 ? NAN : -INFINITY;
            seal(c);
            c->weights.round(to, x, n, n_tokens);
            verify(c);
            check_rounding(c, to, x, n, n_tokens);
            c->scalar_weights.round(scalar, x, n, n_tokens);
            for (size_t i = 0; i < n; i++)
                if (whole_number(to, n, i, n_tokens) != whole_number(scalar, n, i, n_tokens))
                    check_fail(c, "number [%zu][%zu] is not that of the scalar version", n, i);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static product take_product(check *c, size_t n_in)
{
    const size_t row_bytes = weight_bytes(c, n_in), budget = SLOT_BYTES / 4 / (n_in + 16);
    product p = {.n_in = n_in, .n_rows = 1 + random_below(c, 50), .n_tokens = random_below(c, 30)};
    p.n_rows = p.n_rows > budget ? budget : p.n_rows;
    p.row_bytes = row_bytes + random_below(c, 9);
    p.y_stride = p.n_rows + random_below(c, 9);
    p.first = (uint32_t)random_below(c, p.n_rows);
    p.last = p.first + (uint32_t)random_below(c, p.n_rows - p.first + 1);
    if (random_below(c, 3) == 0) {
        p.first = 0;
        p.last = (uint32_t)p.n_rows;
    }
    p.w = take(c, (p.n_rows - 1) * p.row_bytes + row_bytes, 1, INPUT);
    p.x = take_floats(c, p.n_tokens * n_in, INPUT);
    p.rounded = take(c, p.n_tokens * cl_rounded_bytes(n_in), 64, INPUT);
    p.y = take_floats(c, p.n_tokens ? (p.n_tokens - 1) * p.y_stride + p.n_rows : 0, OUTPUT);
    const int of_weights = random_pattern(c), of_activations = random_pattern(c);
    for (size_t i = 0; i < p.n_rows; i++)
        fill_weight_row(c, of_weights, p.w + i * p.row_bytes, n_in);
    fill_floats(c, of_activations, p.x, p.n_tokens * n_in);
    return p;
}

static void round_all(check *c, const product *p)
{
    memset(p->rounded, 0, p->n_tokens * cl_rounded_bytes(p->n_in));
    for (size_t t = 0; t < p->n_tokens; t++)
        c->weights.round(p->rounded + t * cl_rounded_bytes(p->n_in), p->x + t * p->n_in, p->n_in,
                         (uint32_t)p->n_tokens);
    seal(c);
}

static void multiply(const cl_matmul_table *table, const check *c, const product *p, float *y)
{
    table->multiply_rounded[weight_type(c)](p->w, p->row_bytes, (uint32_t)p->n_in, p->first,
                                            p->last, p->rounded, (uint32_t)p->n_tokens, y,
                                            p->y_stride);
}

static void expect_others_untouched(check *c, const product *p)
{
    for (size_t t = 0; t < p->n_tokens; t++) {
        const float *y = p->y + t * p->y_stride;
        const size_t end = t + 1 < p->n_tokens ? p->y_stride : p->n_rows;
        expect_untouched(c, y, p->first, "results before the first row");
        expect_untouched(c, y + p->last, end - p->last, "results behind the last row");
    }
}

/* The magnitude of what is added: quants and offsets apart, as they are added apart. */
static double magnitude_of(int type, const unsigned char *row, size_t i)
{
    unpacked u;
    const size_t block = block_of(type), in_block = i % block;
    packed_unpack(type, &u, row + bytes_of(type, i - in_block), block);
    const double offset = has_offset(type) ? (double)u.offset[in_block / part_of(type)] : 0;
    return fabs(true_weight(type, row, i) - offset) + fabs(offset);
}

static void check_pair(check *c, const product *p, size_t i, size_t t)
{
    const int type = weight_type(c);
    const unsigned char *row = p->rounded + t * cl_rounded_bytes(p->n_in);
    double sum = 0, magnitude = 0;
    for (size_t j = 0; j < p->n_in; j++) {
        const double x = rounded_number(row, p->n_in, j, p->n_tokens);
        sum += true_weight(type, p->w + i * p->row_bytes, j) * x;
        magnitude += magnitude_of(type, p->w + i * p->row_bytes, j) * fabs(x);
    }
    /* of a part: conversion, scales, fusing; then chains of at most 8, two levels, stretches */
    const double bound = gamma_of(16 + ceil((double)p->n_in / 256)) * magnitude +
                         2 * (double)(p->n_in + 8) * SMALLEST_STEP;
    expect_near(c, p->y[t * p->y_stride + i], sum, bound, "product", i, t);
}

static void products_are_near(check *c)
{
    for (size_t trial = 0, n_in; (n_in = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        const product p = take_product(c, n_in);
        round_all(c, &p);
        multiply(&c->weights, c, &p, p.y);
        verify(c);
        expect_others_untouched(c, &p);
        for (size_t i = p.first; i < p.last; i += 1 + random_below(c, 8))
            for (size_t t = 0; t < p.n_tokens; t += 1 + random_below(c, 8))
                check_pair(c, &p, i, t);
    }
}

static void products_have_the_bits_of_scalar(check *c)
{
    for (size_t trial = 0, n_in; (n_in = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        const product p = take_product(c, n_in);
        float *expected = take_floats(c, p.n_tokens * p.y_stride, OUTPUT);
        round_all(c, &p);
        multiply(&c->weights, c, &p, p.y);
        multiply(&c->scalar_weights, c, &p, expected);
        for (size_t i = p.first; i < p.last; i++)
            for (size_t t = 0; t < p.n_tokens; t++)
                expect_same(c, p.y[t * p.y_stride + i], expected[t * p.y_stride + i],
                            "product beside the scalar version's", i, t);
    }
}

/* Rows [first, last) of one token alone, whose numbers are then in the form for few. */
static void multiply_alone(const check *c, const product *p, size_t t, float *y)
{
    static _Alignas(64) unsigned char row[3 * SLOT_BYTES / 4];
    c->weights.round(row, p->x + t * p->n_in, p->n_in, 1);
    for (size_t i = p->first; i < p->last; i++)
        c->weights.multiply_rounded[weight_type(c)](p->w, p->row_bytes, (uint32_t)p->n_in,
                                                    (uint32_t)i, (uint32_t)i + 1, row, 1, y, 1);
}

static void products_do_not_depend_on_company(check *c)
{
    for (size_t trial = 0, n_in; (n_in = weight_length(c, trial)) > 0; trial++) {
        begin(c);
        const product p = take_product(c, n_in);
        round_all(c, &p);
        multiply(&c->weights, c, &p, p.y);
        for (size_t t = 0; t < p.n_tokens; t++) {
            float alone[64];
            multiply_alone(c, &p, t, alone);
            for (size_t i = p.first; i < p.last; i++)
                expect_same(c, p.y[t * p.y_stride + i], alone[i], "product in company", i, t);
        }
    }
}

/* Tokens of one call that are nobody's multiple, and more than the versions keep together. */
static void products_of_large_batches(check *c)
{
    const size_t n_in = weight_type(c) == CL_WEIGHT_Q8_0 ? 608 : 512;
    for (size_t n_tokens = 31; n_tokens < (c->is_quick ? 100 : 500); n_tokens = n_tokens * 3 + 1) {
        enum { N_ROWS = 53 };
        begin(c);
        product p = {.n_in = n_in,
                     .n_rows = N_ROWS,
                     .n_tokens = n_tokens,
                     .last = N_ROWS,
                     .y_stride = N_ROWS,
                     .row_bytes = weight_bytes(c, n_in)};
        p.w = take(c, N_ROWS * p.row_bytes, 1, INPUT);
        p.x = take_floats(c, n_tokens * n_in, INPUT);
        p.rounded = take(c, n_tokens * cl_rounded_bytes(n_in), 64, INPUT);
        p.y = take_floats(c, n_tokens * N_ROWS, OUTPUT);
        for (size_t i = 0; i < N_ROWS; i++)
            fill_weight_row(c, NORMAL, p.w + i * p.row_bytes, n_in);
        fill_floats(c, NORMAL, p.x, n_tokens * n_in);
        round_all(c, &p);
        multiply(&c->weights, c, &p, p.y);
        verify(c);
        for (size_t t = 0; t < n_tokens; t++) {
            float alone[N_ROWS];
            multiply_alone(c, &p, t, alone);
            for (size_t i = 0; i < N_ROWS; i++)
                expect_same(c, p.y[t * N_ROWS + i], alone[i], "product in a large batch", i, t);
        }
    }
}

static void products_keep_nan_apart(check *c)
{
    for (size_t trial = 0; trial < 70; trial++) {
        const size_t n_in = weight_length(c, trial);
        begin(c);
        const product p = take_product(c, n_in);
        if (p.n_tokens == 0 || p.first == p.last) continue;
        round_all(c, &p);
        multiply(&c->weights, c, &p, p.y);
        float *clean = take_floats(c, p.n_tokens * p.n_rows, OUTPUT);
        for (size_t t = 0; t < p.n_tokens; t++)
            memcpy(clean + t * p.n_rows, p.y + t * p.y_stride, p.n_rows * sizeof *clean);
        const size_t bad_token = random_below(c, p.n_tokens);
        p.x[bad_token * n_in + random_below(c, n_in)] = NAN;
        round_all(c, &p);
        multiply(&c->weights, c, &p, p.y);
        for (size_t t = 0; t < p.n_tokens; t++)
            for (size_t i = p.first; i < p.last; i++)
                expect_same(c, p.y[t * p.y_stride + i],
                            t == bad_token ? NAN : clean[t * p.n_rows + i], "product beside a NaN",
                            i, t);
    }
}

#define PRODUCT(text, weight)                                                                      \
    .kernel = "multiply_rounded_" text, .offset = 0, .type = OF_ROUNDED + (weight)
#define TESTS(text, weight)                                                                        \
    {PRODUCT(text, weight), .aspect = "is near the exact sums", .run = products_are_near},         \
        {PRODUCT(text, weight), .aspect = "has the bits of the scalar version",                    \
         .run = products_have_the_bits_of_scalar},                                                 \
        {PRODUCT(text, weight), .aspect = "does not depend on company",                            \
         .run = products_do_not_depend_on_company},                                                \
        {PRODUCT(text, weight), .aspect = "does not depend on large batches",                      \
         .run = products_of_large_batches},                                                        \
    {                                                                                              \
        PRODUCT(text, weight), .aspect = "keeps NaN apart", .run = products_keep_nan_apart         \
    }

const test rounded_tests[] = {
    {.kernel = "round",
     .offset = offsetof(cl_matmul_table, round),
     .type = OF_WEIGHTS,
     .aspect = "keeps to its steps",
     .run = rounding_keeps_to_its_steps},
    TESTS("q8_0", CL_WEIGHT_Q8_0),
    TESTS("q4_0", CL_WEIGHT_Q4_0),
    TESTS("q4_1", CL_WEIGHT_Q4_1),
    TESTS("q5_0", CL_WEIGHT_Q5_0),
    TESTS("q5_1", CL_WEIGHT_Q5_1),
    TESTS("q2_k", CL_WEIGHT_Q2_K),
    TESTS("q3_k", CL_WEIGHT_Q3_K),
    TESTS("q4_k", CL_WEIGHT_Q4_K),
    TESTS("q5_k", CL_WEIGHT_Q5_K),
    TESTS("q6_k", CL_WEIGHT_Q6_K),
    TESTS("iq4_nl", CL_WEIGHT_IQ4_NL),
    TESTS("iq4_xs", CL_WEIGHT_IQ4_XS),
    TESTS("mxfp4", CL_WEIGHT_MXFP4),
};
const size_t n_rounded_tests = sizeof rounded_tests / sizeof *rounded_tests;
