/*
 * kernel_check_hadamard.c: tests of the Walsh-Hadamard transform.
 *
 * Against the matrix itself in double, entry by entry from the parity of i & j; the bound follows
 * from the roundings: log2(n) additions on the way of each number, the factor, and the product with
 * it. Twice the transform is the identity within what two such errors can do. All versions have the
 * bits of the scalar one, which fixes the order of the additions.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

enum { LARGEST = 65536, MOST_ROWS = 256 /* of one product that are compared */ };

typedef struct transform {
    float *before, *x;
    uint32_t n;
    double stages, root, sum; /* log2(n), sqrt(n), the sum of all magnitudes before */
} transform;

static transform take_transform(check *c, uint32_t n)
{
    transform t = {.n = n, .stages = log2(n), .root = sqrt(n)};
    begin(c);
    t.before = take_floats(c, n, INPUT);
    t.x = take_floats(c, n, OUTPUT);
    fill_floats(c, random_pattern(c), t.before, n);
    memcpy(t.x, t.before, n * sizeof *t.x);
    for (uint32_t i = 0; i < n; i++)
        t.sum += fabs((double)t.before[i]);
    seal(c);
    return t;
}

/* 1 if an odd number of bits is set: that entry of the matrix is negative. */
static int is_odd(uint32_t bits)
{
    int parity = 0;
    for (; bits; bits &= bits - 1)
        parity ^= 1;
    return parity;
}

/* The next size after n; each several times over, the large ones once. */
static uint32_t size_after(const check *c, uint32_t n, int *round)
{
    if (n == 0) return 1;
    if (++*round < (n <= 256 && !c->is_quick ? 20 : n <= 4096 ? 3 : 1)) return n;
    *round = 0;
    return n < LARGEST ? 2 * n : 0;
}

static void transform_is_near(check *c)
{
    int round = 0;
    for (uint32_t n = 0; (n = size_after(c, n, &round)) > 0;) {
        const transform t = take_transform(c, n);
        c->kernels.hadamard(t.x, n);
        verify(c);
        const double bound = gamma_of(t.stages + 2) * t.sum / t.root + SMALLEST_STEP;
        for (uint32_t r = 0; r < n && r < MOST_ROWS; r++) {
            const uint32_t i = n <= MOST_ROWS ? r : (uint32_t)random_below(c, n);
            double expected = 0;
            for (uint32_t j = 0; j < n; j++)
                expected += is_odd(i & j) ? -(double)t.before[j] : (double)t.before[j];
            expect_near(c, t.x[i], expected / t.root, bound, "number", n, i);
        }
    }
}

/* An error e of the first transform reaches a number as at most sum abs(e) / sqrt(n). */
static void twice_is_the_identity(check *c)
{
    int round = 0;
    for (uint32_t n = 0; (n = size_after(c, n, &round)) > 0;) {
        const transform t = take_transform(c, n);
        double between = 0;
        c->kernels.hadamard(t.x, n);
        for (uint32_t i = 0; i < n; i++)
            between += fabs((double)t.x[i]);
        c->kernels.hadamard(t.x, n);
        verify(c);
        const double bound = gamma_of(t.stages + 2) * (t.sum + between / t.root) +
                             (t.root + 1) * SMALLEST_STEP;
        for (uint32_t i = 0; i < n; i++)
            expect_near(c, t.x[i], (double)t.before[i], bound, "number", n, i);
    }
}

static void bits_are_those_of_the_scalar_version(check *c)
{
    int round = 0;
    for (uint32_t n = 0; (n = size_after(c, n, &round)) > 0;) {
        const transform t = take_transform(c, n);
        float *scalar = take_floats(c, n, OUTPUT);
        memcpy(scalar, t.before, n * sizeof *scalar);
        for (uint32_t i = 0; i < n; i += 1 + (uint32_t)random_below(c, 4 * n)) /* few */
            scalar[i] = t.x[i] = i % 3 ? INFINITY : i % 2 ? -0.0f : (float)NAN;
        c->kernels.hadamard(t.x, n);
        c->scalar_kernels.hadamard(scalar, n);
        verify(c);
        for (uint32_t i = 0; i < n; i++)
            expect_same(c, t.x[i], scalar[i], "number", n, i);
    }
}

#define HADAMARD .kernel = "hadamard", .offset = offsetof(cl_kernels, hadamard), .type = -1

const test hadamard_tests[] = {
    {HADAMARD, .aspect = "is near the product with the matrix", .run = transform_is_near},
    {HADAMARD, .aspect = "is its own inverse", .run = twice_is_the_identity},
    {HADAMARD, .aspect = "has the bits of the scalar version",
     .run = bits_are_those_of_the_scalar_version},
};
const size_t n_hadamard_tests = sizeof hadamard_tests / sizeof *hadamard_tests;
