/*
 * quantize_pieces.h: what the encoders of packed weights share.
 *
 * An encoder gets finite numbers and chooses scales and quants such that the decoder of packed.h gives
 * numbers near to them: the sum of squared differences is what is made small. Stored rows have
 * encoders in kernels/ that must be fast; a model is written once, so these here may search.
 *
 * Errors are summed in double, which no squares of f32 can overflow. Nothing here fails.
 */
#ifndef APP_QUANTIZE_PIECES_H
#define APP_QUANTIZE_PIECES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"

#define QUANTIZE_K 256u /* numbers in a block of a K type */

/* One block of a type: 32 or QUANTIZE_K numbers become its bytes. */
void quantize_block_q2_k(unsigned char *to, const float *x);
void quantize_block_q3_k(unsigned char *to, const float *x);
void quantize_block_q4_k(unsigned char *to, const float *x);
void quantize_block_q5_k(unsigned char *to, const float *x);
void quantize_block_q6_k(unsigned char *to, const float *x);
void quantize_block_mxfp4(unsigned char *to, const float *x);

/* The half nearest to x, of all finite ones. */
static inline uint16_t quantize_half(double x)
{
    const float inside = x > 65504 ? 65504.0f : x < -65504 ? -65504.0f : (float)x;
    return half_from_float_bits(bits_from_float(inside));
}

static inline float quantize_float(uint16_t half)
{
    return float_from_bits(float_bits_from_half(half));
}

static inline void quantize_put_half(unsigned char *to, uint16_t half)
{
    to[0] = (unsigned char)half;
    to[1] = (unsigned char)(half >> 8);
}

/*
 * The whole number nearest to x within the limits, which are small; ties to even. The lowest for NaN,
 * which numbers near the largest f32 can lead to (infinity times 0).
 */
static inline int quantize_nearest(float x, int lowest, int highest)
{
    const float low = (float)lowest, high = (float)highest;
    const float inside = x > low ? (x < high ? x : high) : low;
    return (int)((inside + 0x1.8p23f) - 0x1.8p23f);
}

/*
 * What numbers are multiplied by instead of being divided by their scale; 0, so that all quants are,
 * for a scale that is 0 or far below anything that is stored.
 */
static inline float quantize_inverse(float scale)
{
    return scale > 1e-30f || scale < -1e-30f ? 1 / scale : 0;
}

/* The index of the number of largest magnitude, the first of them. */
static inline size_t quantize_largest(const float *x, size_t n)
{
    size_t best = 0;
    float size = 0;
    for (size_t i = 0; i < n; i++) {
        const float magnitude = x[i] < 0 ? -x[i] : x[i];
        if (magnitude > size) {
            size = magnitude;
            best = i;
        }
    }
    return best;
}

#endif /* APP_QUANTIZE_PIECES_H */
