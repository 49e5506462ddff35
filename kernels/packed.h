/*
 * packed.h: how numbers are packed in blocks of small integers, and unpacked one after the other.
 *
 * All types keep small integers (quants) with scales: in blocks of 32 numbers with one scale, as stored
 * rows and weights have them, or in blocks of 256 ("K" types and IQ4_XS) whose parts of 16 or 32 numbers
 * have scales of their own, which are small integers again. The layouts are those of GGUF files;
 * docs/kernels.md draws them.
 *
 * Unpacking is exact but for these roundings, the same in every version because the compiler may not
 * fuse or reorder: the product of a block's scale and a part's, its product with the quant, and the sum
 * with the offset. Functions are inline so that each instruction set compiles them for itself. All
 * bytes are allowed. n is a multiple of the type's block.
 */
#ifndef CL_PACKED_H
#define CL_PACKED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"
#include "quants.h"

enum { K_QUANTS = 256 }; /* numbers in a block of a K type */

static inline uint16_t packed_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline float packed_half(const unsigned char *at)
{
    return float_from_bits(float_bits_from_half(packed_u16(at)));
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

static inline void packed_decode_q8_0(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        const float scale = packed_half(block);
        for (size_t l = 0; l < QUANTS; l++)
            to[i + l] = scale * (float)(int8_t)block[2 + l];
    }
}

/* Sixteen bytes of two quants each: to = scale * (quant - zero), low halves first. */
static inline void packed_four_bits(float *to, const unsigned char *bytes, float scale, int zero)
{
    for (size_t i = 0; i < QUANT_HALF; i++) {
        to[i] = scale * (float)((bytes[i] & 15) - zero);
        to[i + QUANT_HALF] = scale * (float)((bytes[i] >> 4) - zero);
    }
}

static inline void packed_decode_q4_0(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 18)
        packed_four_bits(to + i, block + 2, packed_half(block), 8);
}

static inline void packed_decode_q4_1(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 20) {
        const float offset = packed_half(block + 2);
        packed_four_bits(to + i, block + 4, packed_half(block), 0);
        for (size_t l = 0; l < QUANTS; l++)
            to[i + l] += offset;
    }
}

/* The same with a fifth bit for each quant, in a word of its own. */
static inline void packed_five_bits(float *to, const unsigned char *fifth,
                                    const unsigned char *bytes, float scale, int zero)
{
    const uint32_t word = (uint32_t)packed_u16(fifth) | (uint32_t)packed_u16(fifth + 2) << 16;
    for (size_t i = 0; i < QUANT_HALF; i++) {
        const int low = (int)(word >> i & 1) << 4, high = (int)(word >> (i + QUANT_HALF) & 1) << 4;
        to[i] = scale * (float)(((bytes[i] & 15) | low) - zero);
        to[i + QUANT_HALF] = scale * (float)(((bytes[i] >> 4) | high) - zero);
    }
}

static inline void packed_decode_q5_0(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 22)
        packed_five_bits(to + i, block + 2, block + 6, packed_half(block), 16);
}

static inline void packed_decode_q5_1(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 24) {
        const float offset = packed_half(block + 2);
        packed_five_bits(to + i, block + 4, block + 8, packed_half(block), 0);
        for (size_t l = 0; l < QUANTS; l++)
            to[i + l] += offset;
    }
}

/* Sixteen bytes of two indices into the levels of IQ4_NL each. */
static inline void packed_levels(float *to, const unsigned char *bytes, float scale)
{
    for (size_t i = 0; i < QUANT_HALF; i++) {
        to[i] = scale * (float)nonlinear_levels[bytes[i] & 15];
        to[i + QUANT_HALF] = scale * (float)nonlinear_levels[bytes[i] >> 4];
    }
}

static inline void packed_decode_iq4_nl(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 18)
        packed_levels(to + i, block + 2, packed_half(block));
}

/* Twice the values of a 4-bit float of 2 exponent bits and 1 mantissa bit (E2M1); there is a -0. */
static const float mxfp4_levels[16] = {0.0f,  1.0f,  2.0f,  3.0f,  4.0f,  6.0f,  8.0f,  12.0f,
                                       -0.0f, -1.0f, -2.0f, -3.0f, -4.0f, -6.0f, -8.0f, -12.0f};

/* Half of 2^(exponent - 127): an E8M0 scale; denormal where it has to be. */
static inline float packed_exponent(unsigned char exponent)
{
    return exponent < 2 ? float_from_bits(0x00200000u << exponent)
                        : float_from_bits((uint32_t)(exponent - 1) << 23);
}

static inline void packed_decode_mxfp4(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += QUANTS, block += 17) {
        const float scale = packed_exponent(block[0]);
        for (size_t l = 0; l < QUANT_HALF; l++) {
            to[i + l] = scale * mxfp4_levels[block[1 + l] & 15];
            to[i + l + QUANT_HALF] = scale * mxfp4_levels[block[1 + l] >> 4];
        }
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/*
 * Q2_K: for each part of 16 a byte (scale in the low half, offset in the high half), then 64 bytes of
 * four quants each, then the block's scale and offset. Parts go by 128 numbers; in these, byte l holds
 * numbers l, l + 32, l + 64, l + 96.
 */
static inline void packed_decode_q2_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 84) {
        const float d = packed_half(block + 80), m = packed_half(block + 82);
        for (size_t part = 0; part < 16; part++) {
            const unsigned char *bytes = block + 16 + part / 8 * 32 + part % 2 * 16;
            const int shift = (int)(part % 8 / 2) * 2;
            const float scale = d * (float)(block[part] & 15),
                        offset = m * (float)(block[part] >> 4);
            for (size_t l = 0; l < 16; l++)
                to[i + part * 16 + l] = scale * (float)(bytes[l] >> shift & 3) - offset;
        }
    }
}

/*
 * Q3_K: 32 bytes of third bits (bit g of byte l: number g * 32 + l), 64 bytes as in Q2_K, 16 scales of
 * 6 bits (low four bits as halves of 8 bytes, high two bits as quarters of 4), the block's scale.
 */
static inline void packed_decode_q3_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 110) {
        const unsigned char *packed = block + 96;
        const float d = packed_half(block + 108);
        for (size_t part = 0; part < 16; part++) {
            const unsigned char *bytes = block + 32 + part / 8 * 32 + part % 2 * 16;
            const unsigned char *third = block + part % 2 * 16;
            const int shift = (int)(part % 8 / 2) * 2, bit = (int)(part / 2);
            const int low = part < 8 ? packed[part] & 15 : packed[part - 8] >> 4;
            const int high = packed[8 + part % 4] >> 2 * (part / 4) & 3;
            const float scale = d * (float)((low | high << 4) - 32);
            for (size_t l = 0; l < 16; l++)
                to[i + part * 16 + l] =
                    scale * (float)((bytes[l] >> shift & 3) - (third[l] >> bit & 1 ? 0 : 4));
        }
    }
}

/* Part `part` of the eight 6-bit scales and eight 6-bit offsets in 12 bytes of Q4_K and Q5_K. */
static inline void packed_six_bits(const unsigned char *packed, size_t part, int *scale,
                                   int *offset)
{
    if (part < 4) {
        *scale = packed[part] & 63;
        *offset = packed[part + 4] & 63;
    } else {
        *scale = (packed[part + 4] & 15) | packed[part - 4] >> 6 << 4;
        *offset = packed[part + 4] >> 4 | packed[part] >> 6 << 4;
    }
}

/*
 * Q4_K and Q5_K: the block's scale and offset, 12 bytes as above, in Q5_K 32 bytes of fifth bits (bit p
 * of byte l: number p * 32 + l), 128 bytes of two quants each: byte l of each 32 holds number l of an
 * even part in its low half and of the odd part behind it in its high half.
 */
static inline void packed_four_or_five_bits(float *to, const unsigned char *block,
                                            const unsigned char *fifth, const unsigned char *bytes)
{
    const float d = packed_half(block), m = packed_half(block + 2);
    for (size_t part = 0; part < 8; part++) {
        int scale, offset;
        packed_six_bits(block + 4, part, &scale, &offset);
        const float s = d * (float)scale, o = m * (float)offset;
        const unsigned char *from = bytes + part / 2 * 32;
        const int shift = part % 2 ? 4 : 0;
        for (size_t l = 0; l < 32; l++) {
            const int high = fifth ? (fifth[l] >> part & 1) << 4 : 0;
            to[part * 32 + l] = s * (float)((from[l] >> shift & 15) | high) - o;
        }
    }
}

static inline void packed_decode_q4_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 144)
        packed_four_or_five_bits(to + i, block, NULL, block + 16);
}

static inline void packed_decode_q5_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 176)
        packed_four_or_five_bits(to + i, block, block + 16, block + 48);
}

/*
 * Q6_K: 128 bytes of low halves, 64 bytes of four high pairs each, a signed scale for each part of 16,
 * the block's scale. In each 128 numbers: low halves of byte l and l + 32 are numbers l and l + 32, their
 * high halves l + 64 and l + 96; the pairs of byte l follow that order.
 */
static inline void packed_decode_q6_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 210) {
        const float d = packed_half(block + 208);
        for (size_t quarter = 0; quarter < 8; quarter++) { /* 32 numbers */
            const size_t half = quarter / 4, q = quarter % 4;
            const unsigned char *low = block + half * 64 + q % 2 * 32;
            const unsigned char *high = block + 128 + half * 32;
            const unsigned char *scales = block + 192 + quarter * 2;
            const float scale[2] = {d * (float)(int8_t)scales[0], d * (float)(int8_t)scales[1]};
            for (size_t l = 0; l < 32; l++) {
                const int four = low[l] >> (q / 2 * 4) & 15, two = high[l] >> 2 * q & 3;
                to[i + quarter * 32 + l] = scale[l / 16] * (float)((four | two << 4) - 32);
            }
        }
    }
}

/*
 * IQ4_XS: the block's scale, 16 bits of high pairs of the eight parts' scales, 4 bytes of their low
 * halves, then 128 bytes: 16 for each part, as in IQ4_NL.
 */
static inline void packed_decode_iq4_xs(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 136) {
        const float d = packed_half(block);
        const int high = packed_u16(block + 2);
        for (size_t part = 0; part < 8; part++) {
            const int four = block[4 + part / 2] >> (part % 2 * 4) & 15;
            const int scale = (four | (high >> 2 * part & 3) << 4) - 32;
            packed_levels(to + i + part * 32, block + 8 + part * 16, d * (float)scale);
        }
    }
}

/*
 * Every type that is only ever decoded by the tile: X(name, CL_WEIGHT_*, numbers in a block, bytes).
 */
#define WEIGHTS_BY_TILE(X)                                                                         \
    X(q4_0, CL_WEIGHT_Q4_0, 32, 18)                                                                \
    WEIGHTS_BY_TILE_ONLY(X)

/* Those that are decoded a tile at a time by every instruction set. */
#define WEIGHTS_BY_TILE_ONLY(X)                                                                    \
    X(q4_k, CL_WEIGHT_Q4_K, 256, 144)                                                              \
    X(q6_k, CL_WEIGHT_Q6_K, 256, 210)                                                              \
    WEIGHTS_AS_PACKED(X)

/* And by the functions above. */
#define WEIGHTS_AS_PACKED(X)                                                                       \
    X(q4_1, CL_WEIGHT_Q4_1, 32, 20)                                                                \
    X(q5_0, CL_WEIGHT_Q5_0, 32, 22)                                                                \
    X(q5_1, CL_WEIGHT_Q5_1, 32, 24)                                                                \
    X(q2_k, CL_WEIGHT_Q2_K, 256, 84)                                                               \
    X(q3_k, CL_WEIGHT_Q3_K, 256, 110)                                                              \
    X(q5_k, CL_WEIGHT_Q5_K, 256, 176)                                                              \
    X(iq4_nl, CL_WEIGHT_IQ4_NL, 32, 18)                                                            \
    X(iq4_xs, CL_WEIGHT_IQ4_XS, 256, 136)                                                          \
    X(mxfp4, CL_WEIGHT_MXFP4, 32, 17)

#endif /* CL_PACKED_H */
