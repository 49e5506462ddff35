/*
 * hadamard.h: the factor of the Walsh-Hadamard transform; what its versions share.
 *
 * 1 / sqrt(n) as the nearest f32: a power of two, times sqrt(1/2) for every odd power. It is put
 * together by halving, which is exact, so that no library function decides about its bits.
 */
#ifndef CL_HADAMARD_H
#define CL_HADAMARD_H

#include <stdint.h>

/* n is a power of two from 1 to 65536. */
static inline float hadamard_factor(uint32_t n)
{
    float factor = 1;
    for (; n >= 4; n /= 4)
        factor *= 0.5f;
    return n == 2 ? factor * 0x1.6a09e6p-1f : factor;
}

#endif /* CL_HADAMARD_H */
