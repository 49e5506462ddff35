/*
 * vector.h: what the versions of the norm share: how its partial sums are added.
 *
 * The squares of a row go to SQUARE_LANES sums, square i to sum i % SQUARE_LANES, and these are added in a
 * tree. That order is part of the result, so it stands here once for all instruction sets. Nothing fails.
 */
#ifndef CL_VECTOR_H
#define CL_VECTOR_H

#include <math.h>
#include <stddef.h>

enum { SQUARE_LANES = 16 };

/* 1 / sqrt(mean + epsilon), of n squares in partial sums. Changes `sum`. */
static inline float vector_norm_factor(double *sum, size_t n, float epsilon)
{
    for (size_t half = SQUARE_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return (float)(1.0 / sqrt(sum[0] / (double)n + (double)epsilon));
}

#endif /* CL_VECTOR_H */
