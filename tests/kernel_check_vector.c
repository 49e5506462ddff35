/*
 * kernel_check_vector.c: tests of rows added, multiplied and normed.
 *
 * A sum or a product is rounded once, so it has to be exactly what C gives. The norm is held to its formula in
 * double, and to the scalar version bit for bit.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

typedef void combine(float *y, const float *x, size_t n);

static void combines_exactly(check *c, combine *run, int is_sum)
{
    size_t n;
    for (size_t trial = 0; (n = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        float *x = take_floats(c, n, INPUT), *before = take_floats(c, n, INPUT);
        float *y = take_floats(c, n, OUTPUT);
        fill_floats(c, random_pattern(c), x, n);
        fill_floats(c, random_pattern(c), before, n);
        if (n > 1) x[random_below(c, n)] = (float[]){(float)NAN, INFINITY}[random_below(c, 2)];
        memcpy(y, before, n * sizeof *y);
        seal(c);
        run(y, x, n);
        verify(c);
        for (size_t i = 0; i < n; i++) {
            const float expected = is_sum ? before[i] + x[i] : before[i] * x[i];
            expect_same(c, y[i], expected, "number", n, i);
        }
    }
}

static void add_is_exact(check *c)
{
    combines_exactly(c, c->weights.add, 1);
}

static void multiply_is_exact(check *c)
{
    combines_exactly(c, c->weights.multiply, 0);
}

typedef struct norm_case {
    float *x, *weight, *out;
    size_t n;
    float epsilon;
} norm_case;

static norm_case take_norm(check *c, size_t n)
{
    begin(c);
    norm_case its = {take_floats(c, n, INPUT), take_floats(c, n, INPUT), take_floats(c, n, OUTPUT),
                     n, (float)(random_unit(c) * 1e-4 + 1e-6)};
    fill_floats(c, random_pattern(c), its.x, n);
    fill_floats(c, NORMAL, its.weight, n);
    if (random_below(c, 3) == 0) its.weight = NULL;
    seal(c);
    return its;
}

static void norm_is_near(check *c)
{
    size_t n;
    for (size_t trial = 0; (n = size_of_trial(c, trial)) > 0; trial++) {
        const norm_case its = take_norm(c, n);
        c->weights.rms_norm(its.out, its.x, its.weight, n, its.epsilon);
        verify(c);
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (double)its.x[i] * (double)its.x[i];
        const double factor = 1 / sqrt(sum / (double)n + (double)its.epsilon);
        for (size_t i = 0; i < n; i++) {
            const double weight = its.weight ? (double)its.weight[i] : 1;
            const double expected = (double)its.x[i] * factor * weight;
            expect_near(c, its.out[i], expected, gamma_of(4) * fabs(expected) + 2 * SMALLEST_STEP,
                        "number", n, i);
        }
    }
}

static void norm_has_the_bits_of_scalar(check *c)
{
    size_t n;
    for (size_t trial = 0; (n = size_of_trial(c, trial)) > 0; trial++) {
        const norm_case its = take_norm(c, n);
        float expected[4096];
        c->scalar_weights.rms_norm(expected, its.x, its.weight, n, its.epsilon);
        c->weights.rms_norm(its.out, its.x, its.weight, n, its.epsilon);
        verify(c);
        for (size_t i = 0; i < n; i++)
            expect_same(c, its.out[i], expected[i], "number", n, i);
    }
}

static void norm_may_be_in_place(check *c)
{
    const norm_case its = take_norm(c, 100);
    float row[100];
    memcpy(row, its.x, sizeof row);
    c->weights.rms_norm(row, row, its.weight, 100, its.epsilon);
    c->weights.rms_norm(its.out, its.x, its.weight, 100, its.epsilon);
    verify(c);
    for (size_t i = 0; i < 100; i++)
        expect_same(c, row[i], its.out[i], "number", 100, i);
}

#define MEMBER(name) .kernel = #name, .offset = offsetof(cl_matmul_table, name), .type = OF_WEIGHTS

const test vector_tests[] = {
    {MEMBER(add), .aspect = "adds number by number", .run = add_is_exact},
    {MEMBER(multiply), .aspect = "multiplies number by number", .run = multiply_is_exact},
    {MEMBER(rms_norm), .aspect = "is near its formula", .run = norm_is_near},
    {MEMBER(rms_norm), .aspect = "has the bits of the scalar version",
     .run = norm_has_the_bits_of_scalar},
    {MEMBER(rms_norm), .aspect = "may write where it reads", .run = norm_may_be_in_place},
};
const size_t n_vector_tests = sizeof vector_tests / sizeof *vector_tests;
