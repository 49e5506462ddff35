/*
 * kernel_check_activate.c: tests of the activations of feed-forward blocks.
 *
 * silu against its formula in double: the exponential is within 2 units in the last place, and a product, a
 * sum and a quotient are rounded. Where e^-|z| is no normal number it may be taken for 0, which moves a result
 * by less than 2^-119. A number depends on itself alone, wherever it stands.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

static double true_silu(double z)
{
    return z / (1 + exp(-z));
}

/* Numbers in which the function bends, besides the usual patterns. */
static void fill_inputs(check *c, float *z, size_t n)
{
    fill_floats(c, random_pattern(c), z, n);
    for (size_t i = 0; i < n; i += 1 + random_below(c, 3))
        z[i] = (float)((random_unit(c) - 0.5) * 220);
}

static void silu_is_near(check *c)
{
    size_t n;
    for (size_t trial = 0; (n = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        float *before = take_floats(c, n, INPUT), *z = take_floats(c, n, OUTPUT);
        fill_inputs(c, before, n);
        memcpy(z, before, n * sizeof *z);
        seal(c);
        c->weights.silu(z, n);
        verify(c);
        for (size_t i = 0; i < n; i++) {
            const double expected = true_silu((double)before[i]);
            expect_near(c, z[i], expected, gamma_of(7) * fabs(expected) + 0x1p-119, "number", n, i);
        }
    }
}

static void silu_depends_on_one_number(check *c)
{
    size_t n;
    for (size_t trial = 0; (n = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        float *before = take_floats(c, n, INPUT), *z = take_floats(c, n, OUTPUT);
        fill_inputs(c, before, n);
        before[random_below(c, n)] = (float[]){(float)NAN, INFINITY, -0.0f, 0}[random_below(c, 4)];
        memcpy(z, before, n * sizeof *z);
        seal(c);
        c->weights.silu(z, n);
        verify(c);
        for (size_t i = 0; i < n; i++) {
            float alone = before[i];
            c->weights.silu(&alone, 1);
            expect_same(c, z[i], alone, "number", n, i);
            if (isnan(before[i]) && !isnan(alone)) check_fail(c, "a NaN became %g", (double)alone);
            if (before[i] == INFINITY && alone != INFINITY)
                check_fail(c, "infinity became %g", (double)alone);
        }
    }
}

#define SILU .kernel = "silu", .offset = offsetof(cl_matmul_table, silu), .type = OF_WEIGHTS

const test activate_tests[] = {
    {SILU, .aspect = "is near its formula", .run = silu_is_near},
    {SILU, .aspect = "changes a number by itself alone", .run = silu_depends_on_one_number},
};
const size_t n_activate_tests = sizeof activate_tests / sizeof *activate_tests;
