/*
 * kernel_check_packed.c: what the numbers of packed weights are, number by number.
 *
 * The truth for kernel_check_matmul.c. Written from the layouts in docs/kernels.md, and the other way
 * round than the kernels: not "go through a block and write numbers", but "where are the bits of number i?".
 * Computed in double, where scales times quants are exact, so that what is left is one rounding to f32.
 */
#include "kernel_check.h"

#include <math.h>
#include <string.h>

static const signed char nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
static const double e2m1[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

static double half_at(const unsigned char *at)
{
    return true_half_value((uint16_t)(at[0] | at[1] << 8));
}

static int bits_at(const unsigned char *bytes, size_t bit, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++)
        value |= (bytes[(bit + (size_t)i) / 8] >> (bit + (size_t)i) % 8 & 1) << i;
    return value;
}

/* Number i of 32 in 16 bytes: the low halves of all bytes first. */
static int nibble(const unsigned char *bytes, size_t i)
{
    return bits_at(bytes, i % 16 * 8 + i / 16 * 4, 4);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

static double small_block(int type, const unsigned char *block, size_t i)
{
    switch (type) {
    case CL_WEIGHT_Q4_0:
        return half_at(block) * (nibble(block + 2, i) - 8);
    case CL_WEIGHT_Q4_1: /* two roundings: the product is exact, the sum is not */
        return half_at(block) * nibble(block + 4, i) + half_at(block + 2);
    case CL_WEIGHT_Q5_0:
        return half_at(block) * (nibble(block + 6, i) + 16 * bits_at(block + 2, i, 1) - 16);
    case CL_WEIGHT_Q5_1:
        return half_at(block) * (nibble(block + 8, i) + 16 * bits_at(block + 4, i, 1)) +
               half_at(block + 2);
    case CL_WEIGHT_IQ4_NL:
        return half_at(block) * nonlinear[nibble(block + 2, i)];
    default: /* MXFP4 */
        return ldexp(e2m1[nibble(block + 1, i)], block[0] - 127);
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

static double q2_k(const unsigned char *block, size_t i)
{
    const int two = bits_at(block + 16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2);
    const int scale = bits_at(block + i / 16, 0, 4), offset = bits_at(block + i / 16, 4, 4);
    return half_at(block + 80) * scale * two - half_at(block + 82) * offset;
}

static double q3_k(const unsigned char *block, size_t i)
{
    const size_t part = i / 16;
    const int two = bits_at(block + 32 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2);
    const int third = bits_at(block + i % 32, i / 32, 1);
    const int low = bits_at(block + 96 + part % 8, part / 8 * 4, 4);
    const int high = bits_at(block + 104 + part % 4, part / 4 * 2, 2);
    return half_at(block + 108) * (low + 16 * high - 32) * (two + 4 * third - 4);
}

/* Q4_K, and Q5_K with its fifth bits. */
static double q45_k(const unsigned char *block, size_t i, int has_fifth)
{
    const size_t part = i / 32;
    const unsigned char *packed = block + 4, *quants = block + (has_fifth ? 48 : 16);
    const int is_late = part >= 4;
    const int scale = is_late
                          ? bits_at(packed + part + 4, 0, 4) + 16 * bits_at(packed + part - 4, 6, 2)
                          : bits_at(packed + part, 0, 6);
    const int offset = is_late
                           ? bits_at(packed + part + 4, 4, 4) + 16 * bits_at(packed + part, 6, 2)
                           : bits_at(packed + part + 4, 0, 6);
    const int fifth = has_fifth ? bits_at(block + 16 + i % 32, part, 1) : 0;
    const int quant = bits_at(quants + i / 64 * 32 + i % 32, part % 2 * 4, 4) + 16 * fifth;
    return half_at(block) * scale * quant - half_at(block + 2) * offset;
}

static double q6_k(const unsigned char *block, size_t i)
{
    const int four = bits_at(block + i / 128 * 64 + i % 64, i % 128 / 64 * 4, 4);
    const int two = bits_at(block + 128 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2);
    const int scale = (signed char)block[192 + i / 16];
    return half_at(block + 208) * scale * (four + 16 * two - 32);
}

static double iq4_xs(const unsigned char *block, size_t i)
{
    const size_t part = i / 32;
    const int scale = bits_at(block + 4, part * 4, 4) + 16 * bits_at(block + 2, part * 2, 2) - 32;
    return half_at(block) * scale * nonlinear[nibble(block + 8 + 16 * part, i % 32)];
}

/* ---- for kernel_check_matmul.c ---------------------------------------------------------------- */

double true_packed_weight(int type, const unsigned char *row, size_t i)
{
    switch (type) {
    case CL_WEIGHT_Q2_K:
        return q2_k(row + i / 256 * 84, i % 256);
    case CL_WEIGHT_Q3_K:
        return q3_k(row + i / 256 * 110, i % 256);
    case CL_WEIGHT_Q4_K:
        return q45_k(row + i / 256 * 144, i % 256, 0);
    case CL_WEIGHT_Q5_K:
        return q45_k(row + i / 256 * 176, i % 256, 1);
    case CL_WEIGHT_Q6_K:
        return q6_k(row + i / 256 * 210, i % 256);
    case CL_WEIGHT_IQ4_XS:
        return iq4_xs(row + i / 256 * 136, i % 256);
    case CL_WEIGHT_Q4_1:
        return small_block(type, row + i / 32 * 20, i % 32);
    case CL_WEIGHT_Q5_0:
        return small_block(type, row + i / 32 * 22, i % 32);
    case CL_WEIGHT_Q5_1:
        return small_block(type, row + i / 32 * 24, i % 32);
    case CL_WEIGHT_MXFP4:
        return small_block(type, row + i / 32 * 17, i % 32);
    default: /* Q4_0, IQ4_NL */
        return small_block(type, row + i / 32 * 18, i % 32);
    }
}

size_t scale_of_packed_block(int type)
{
    switch (type) {
    case CL_WEIGHT_Q2_K:
        return 80;
    case CL_WEIGHT_Q3_K:
        return 108;
    case CL_WEIGHT_Q6_K:
        return 208;
    default:
        return 0;
    }
}

size_t offset_of_packed_block(int type)
{
    switch (type) {
    case CL_WEIGHT_Q2_K:
        return 82;
    case CL_WEIGHT_Q4_1:
    case CL_WEIGHT_Q5_1:
    case CL_WEIGHT_Q4_K:
    case CL_WEIGHT_Q5_K:
        return 2;
    default:
        return SIZE_MAX;
    }
}
