/*
 * lanes.h: how sums of products are split, for the scalar kernels.
 *
 * A sum over i is kept as eight partial sums: product i goes to lane i % 8, in rising order, and at
 * the end the lanes are added in one fixed tree. That is the structure of the vector versions too
 * (they fuse multiply and add, which these do not), so a value depends on its own two rows and on
 * nothing else, and eight short sums lose less to rounding than one long one.
 */
#ifndef CL_LANES_H
#define CL_LANES_H

#include <stddef.h>

enum { LANES = 8 };

/* lane[i % 8] += a[i] * b[i] for i < n; a sum may be continued by a further call if n % 8 was 0. */
static inline void lanes_add_products(float *lane, const float *a, const float *b, size_t n)
{
    float sum[LANES]; /* a copy, which compilers keep in registers */
    for (size_t l = 0; l < LANES; l++)
        sum[l] = lane[l];
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            sum[l] += a[i + l] * b[i + l];
    for (size_t l = 0; l < LANES; l++)
        lane[l] = sum[l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] += a[i + l] * b[i + l];
}

static inline float lanes_sum(const float *lane)
{
    const float low = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    const float high = (lane[4] + lane[5]) + (lane[6] + lane[7]);
    return low + high;
}

#endif /* CL_LANES_H */
