/*
 * lanes_neon.h: eight lanes in two registers; what the NEON kernels share. The vector side of lanes.h.
 *
 * Registers have four numbers, sums eight lanes all the same: lanes 0 to 3 in one register, 4 to 7 in the
 * next. So NEON adds and fuses what AVX2 adds and fuses, in the same order and tree. Code goes through
 * halves: a chunk of eight numbers is two steps of four, and sum[...][h] has lanes 4 h to 4 h + 3.
 *
 * A row that is no multiple of eight long ends in a chunk filled up with zeros. Loads need the alignment of
 * their element at most; bytes of stored rows and weights are loaded as bytes.
 */
#ifndef CL_LANES_NEON_H
#define CL_LANES_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "unroll.h"

enum { LANES = 8, FOUR = 4, HALVES = LANES / FOUR };

/* Loads do not cross it: gcc would start them so early that sums have to leave their registers. */
#define loads_stay() __asm__ volatile("" ::: "memory")

/* count < 8 numbers, then zeros, as eight numbers in memory. */
ALWAYS_INLINE void rest_copy(float to[LANES], const float *from, size_t count)
{
    for (size_t l = 0; l < LANES; l++)
        to[l] = 0;
    for (size_t l = 0; l < count; l++)
        to[l] = from[l];
}

/* ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) of four sums at once. */
ALWAYS_INLINE float32x4_t lanes_sum4(const float32x4_t a[HALVES], const float32x4_t b[HALVES],
                                     const float32x4_t c[HALVES], const float32x4_t d[HALVES])
{
    const float32x4_t a_and_b = vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(b[0], b[1]));
    const float32x4_t c_and_d = vpaddq_f32(vpaddq_f32(c[0], c[1]), vpaddq_f32(d[0], d[1]));
    return vpaddq_f32(a_and_b, c_and_d);
}

ALWAYS_INLINE float lanes_sum(const float32x4_t a[HALVES])
{
    const float32x4_t pairs = vpaddq_f32(a[0], a[1]);
    return vpadds_f32(vget_low_f32(vpaddq_f32(pairs, pairs)));
}

#endif /* CL_LANES_NEON_H */
