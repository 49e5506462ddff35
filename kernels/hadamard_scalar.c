/*
 * hadamard_scalar.c: the orthonormal Walsh-Hadamard transform, in place.
 *
 * Row i, column j of the matrix is (-1)^popcount(i & j) / sqrt(n). It is made of log2(n) stages of
 * butterflies (a, b) -> (a + b, a - b), over distances 1, 2, 4, ..., and one product at the end.
 * Which two numbers are added in which stage is fixed by that, so every version has these bits.
 * Nothing here fails; n is a power of two.
 */
#include "kernels.h"

#include "hadamard.h"

static void hadamard(float *x, uint32_t n)
{
    for (uint32_t distance = 1; distance < n; distance *= 2)
        for (uint32_t start = 0; start < n; start += 2 * distance)
            for (uint32_t i = start; i < start + distance; i++) {
                const float a = x[i], b = x[i + distance];
                x[i] = a + b;
                x[i + distance] = a - b;
            }
    const float factor = hadamard_factor(n);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= factor;
}

void cl_hadamard_fill_scalar(cl_kernels *table)
{
    table->hadamard = hadamard;
}
