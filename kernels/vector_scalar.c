/*
 * vector_scalar.c: rows added, multiplied and normed, number by number.
 *
 * Sums and products are rounded once. The norm's sum of squares is kept in double, where the square of an f32
 * is exact, in SQUARE_LANES partial sums (square i goes to sum i % SQUARE_LANES) that are added in a tree: so
 * every version gives the same bits, fused or not. NaN and infinity in give NaN out. Nothing here fails.
 */
#include "kernels.h"

#include <math.h>

#include "vector.h"

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void multiply(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] *= x[i];
}

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float epsilon)
{
    double sum[SQUARE_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        sum[i % SQUARE_LANES] += (double)x[i] * (double)x[i];
    const float factor = vector_norm_factor(sum, n, epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

void cl_vector_fill_scalar(cl_matmul_table *table)
{
    table->add = add;
    table->multiply = multiply;
    table->rms_norm = rms_norm;
}
