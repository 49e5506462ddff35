/*
 * quants.h: the facts about quantised rows that all versions share.
 *
 * A block holds 32 numbers: an f16 scale d, in some types an f16 offset m, in some the fifth bits of
 * all numbers in one 32-bit word (number i in bit i), then the quants. Four-bit quants lie two to a
 * byte: numbers 0..15 in the low halves, 16..31 in the high halves. All is little-endian. The value
 * of a quant q is d * (q - zero) or d * q + m; for IQ4_NL it is d * table[q].
 *
 * docs/kernels.md says how encoders choose d, m and q. Here are constants only.
 */
#ifndef CL_QUANTS_H
#define CL_QUANTS_H

#include <stdint.h>

enum {
    QUANTS = 32, /* numbers in a block of any quantised type */
    QUANT_HALF = QUANTS / 2,
    INFINITE_BITS = 0x7f800000, /* f32 magnitudes from here on are infinite or NaN */
    HALF_NAN = 0x7e00,
    NONLINEAR_ONE = 8 /* the index of level 1 */
};
#define LARGEST_HALF 65504.0f
#define SMALLEST_NORMAL_HALF 0x1p-14f

/* The 16 levels of IQ4_NL, and twice the midpoints between neighbours (whole numbers). */
static const int8_t nonlinear_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};
static const int16_t nonlinear_borders[15] = {-231, -187, -148, -114, -84, -57, -32, -9,
                                              14,   38,   63,   91,   122, 158, 202};

/* What the largest number of an IQ4_NL block, made 1, is multiplied by on trial. */
enum { NONLINEAR_TRIALS = 8 };
static const float nonlinear_trials[NONLINEAR_TRIALS] = {-127, -141, -116, -107, 113, 124, 104, 96};

static inline int is_normal_half(float x)
{
    const float size = x < 0 ? -x : x;
    return size >= SMALLEST_NORMAL_HALF && size <= LARGEST_HALF;
}

#endif /* CL_QUANTS_H */
