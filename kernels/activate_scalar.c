/*
 * activate_scalar.c: activations of feed-forward blocks, number by number.
 *
 * silu(z) = z / (1 + e^-z) (Hendrycks and Gimpel, arXiv:1606.08415; Elfwing et al., arXiv:1702.03118), as it is
 * written, in f32 with the C library's expf. NaN stays NaN. Nothing here fails.
 */
#include "kernels.h"

#include <math.h>

static void silu(float *z, size_t n)
{
    for (size_t i = 0; i < n; i++)
        z[i] = z[i] / (1.0f + expf(-z[i]));
}

void cl_activate_fill_scalar(cl_matmul_table *table)
{
    table->silu = silu;
}
