/*
 * rope_scalar.c: rotation of pairs, written to be read.
 *
 * A pair (a, b) turned by an angle becomes (a cos - b sin, a sin + b cos). The two kernels differ
 * only in where a pair's second number lies: beside the first, or half a row behind it. A magnitude
 * (YaRN) is in the cosines and sines already where it applies. Nothing here fails.
 */
#include "kernels.h"

static void rotate(float *a, float *b, float c, float s)
{
    const float first = *a, second = *b;
    *a = first * c - second * s;
    *b = first * s + second * c;
}

static void rope_normal(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    for (size_t i = 0; i < n_pairs; i++)
        rotate(&x[2 * i], &x[2 * i + 1], c[i], s[i]);
}

static void rope_neox(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    for (size_t i = 0; i < n_pairs; i++)
        rotate(&x[i], &x[i + n_pairs], c[i], s[i]);
}

void cl_rope_fill_scalar(cl_kernels *table)
{
    table->rope_normal = rope_normal;
    table->rope_neox = rope_neox;
}
