/*
 * vector.h: what the versions of the norm share: how its partial sums are added.
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
