/*
 * rounded.h: activations as whole numbers of 16 bits, for products with weights that are whole numbers too.
 *
 * Each 32 numbers of a token have a scale d: their largest magnitude, but at least 2^-100, over 32512. A
 * number x becomes the whole number nearest to x / d, which is off by d / 2, or 2^-16 of the largest of its
 * 32. So the sum of products with a part of a weight row that has one scale is a sum of whole numbers below
 * 2^31: exact, and the same in whatever order it is made. What is not exact comes after it, in an order that
 * every version keeps:
 *
 *     part p of a stretch of 256 numbers: a[p % 4] = fma(sum, weight's scale * d, a[p % 4])
 *     and, if the weights have offsets:   a[p % 4] = fma(offset, d * sum of the whole numbers, a[p % 4])
 *     a stretch:                          (a[0] + a[1]) + (a[2] + a[3])
 *     a row:                              stretches in their order
 *
 * Four chains are what a register has of 128-bit lanes. They end with a stretch so that many tokens need to
 * keep one number for each row, not four. Parts of 16 of the weights have half a d's numbers.
 *
 * 32512 is 127 * 256: a number is 256 h + l with h and l of a signed byte. A token's row:
 *
 *     2 n bytes   the whole numbers; for few tokens n bytes of h, then n of l, in order; for more words, each
 *                 four numbers in the order 0 2 1 3, as widening of every other byte yields weights
 *     n/32 f32    d of each 32; NaN if one of them is not finite, and the whole numbers are 0 then
 *     n/16 i32    the sum of each 16 whole numbers
 *     n/16 f32    that sum times d
 *     n/32 f32    the same of each 32
 */
#ifndef CL_ROUNDED_H
#define CL_ROUNDED_H

#include "kernels.h"
#include "packed.h"

#define LARGEST_ROUNDED 32512.0f
#define SMALLEST_LARGEST 0x1p-100f

/* The parts of a row. Never written through if it is an input. */
typedef struct rounded {
    int8_t *high, *low; /* few tokens */
    int16_t *words;     /* more; the same place */
    float *scale;
    int32_t *sum16;
    float *weighted16, *weighted32;
} rounded;

ALWAYS_INLINE rounded rounded_at(void *row, size_t n)
{
    char *const scales = (char *)row + 2 * n;
    const size_t parts = n / QUANTS;
    return (rounded){.high = row,
                     .low = (int8_t *)row + n,
                     .words = row,
                     .scale = (float *)(void *)scales,
                     .sum16 = (int32_t *)(void *)(scales + 4 * parts),
                     .weighted16 = (float *)(void *)(scales + 12 * parts),
                     .weighted32 = (float *)(void *)(scales + 20 * parts)};
}

/* The same to read from. */
ALWAYS_INLINE rounded rounded_in(const void *row, size_t n)
{
    void *pointer;
    memcpy(&pointer, &row, sizeof pointer);
    return rounded_at(pointer, n);
}

/* Twice the values of MXFP4; its -0 is 0 here. */
static const int8_t whole_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#endif /* CL_ROUNDED_H */
