/*
 * packed.h: how numbers are packed in blocks of small integers, and unpacked one after the other.
 *
 * All types keep small integers (quants) with scales: in blocks of 32 numbers with one scale, as stored
 * rows and weights have them, or in blocks of 256 ("K" types and IQ4_XS) whose parts of 16 or 32 numbers
 * have scales of their own, which are small integers again. The layouts are those of GGUF files;
 * docs/kernels.md draws them.
 *
 * Every type is brought into one form: a signed byte for each number, a scale and an offset for each part.
 * A number is scale * quant, or scale * quant + offset. Unpacking is exact but for these roundings, the same
 * in every version because the compiler may not fuse or reorder: the product of a block's scale and a part's,
 * its product with the quant, and the sum with the offset. MXFP4 has a -0, which no byte is: its quants are
 * indices. Functions are inline so that each instruction set compiles them for itself. All bytes are
 * allowed. n is a multiple of the type's block.
 */
#ifndef CL_PACKED_H
#define CL_PACKED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"
#include "kernels.h"
#include "quants.h"
#include "unroll.h"

enum {
    K_QUANTS = 256, /* numbers in a block of a K type */
    STRETCH = 256,  /* numbers unpacked at a time: a multiple of every block */
    PARTS = 16      /* that have scales, at most */
};

typedef struct unpacked {
    _Alignas(64) int8_t quant[STRETCH];
    _Alignas(64) float scale[PARTS];  /* of each part */
    _Alignas(64) float offset[PARTS]; /* what is added; only where has_offset() */
} unpacked;

/* Every type of quants: X(name, CL_WEIGHT_*, numbers in a block, bytes). */
#define WEIGHTS_OF_QUANTS(X)                                                                       \
    X(q8_0, CL_WEIGHT_Q8_0, 32, 34)                                                                \
    WEIGHTS_BY_TILE(X)

/* All but Q8_0, which is simpler. */
#define WEIGHTS_BY_TILE(X)                                                                         \
    X(q4_0, CL_WEIGHT_Q4_0, 32, 18)                                                                \
    WEIGHTS_BY_TILE_ONLY(X)

/* Those without a simple layout. */
#define WEIGHTS_BY_TILE_ONLY(X)                                                                    \
    X(q4_k, CL_WEIGHT_Q4_K, 256, 144)                                                              \
    X(q6_k, CL_WEIGHT_Q6_K, 256, 210)                                                              \
    WEIGHTS_AS_PACKED(X)

/* Of these, those that NEON decodes by the functions above. */
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

/* ---- facts about the types, known when compiled ---------------------------------------------- */

ALWAYS_INLINE int has_offset(int type)
{
    return type == CL_WEIGHT_Q4_1 || type == CL_WEIGHT_Q5_1 || type == CL_WEIGHT_Q2_K ||
           type == CL_WEIGHT_Q4_K || type == CL_WEIGHT_Q5_K;
}

/* Numbers that share a scale. */
ALWAYS_INLINE size_t part_of(int type)
{
    return type == CL_WEIGHT_Q2_K || type == CL_WEIGHT_Q3_K || type == CL_WEIGHT_Q6_K ? 16 : 32;
}

ALWAYS_INLINE size_t block_of(int type)
{
#define BLOCK_OF(name, number, block, block_bytes)                                                 \
    if (type == (number)) return (block);
    WEIGHTS_OF_QUANTS(BLOCK_OF)
#undef BLOCK_OF
    return 1;
}

/* Of n numbers, whole blocks. */
ALWAYS_INLINE size_t bytes_of(int type, size_t n)
{
#define BYTES_OF(name, number, block, block_bytes)                                                 \
    if (type == (number)) return n / (block) * (block_bytes);
    WEIGHTS_OF_QUANTS(BYTES_OF)
#undef BYTES_OF
    return 0;
}

static inline uint16_t packed_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline float packed_half(const unsigned char *at)
{
    return float_from_bits(float_bits_from_half(packed_u16(at)));
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Twice the values of a 4-bit float of 2 exponent bits and 1 mantissa bit (E2M1); there is a -0. */
static const float mxfp4_levels[16] = {0.0f,  1.0f,  2.0f,  3.0f,  4.0f,  6.0f,  8.0f,  12.0f,
                                       -0.0f, -1.0f, -2.0f, -3.0f, -4.0f, -6.0f, -8.0f, -12.0f};

/* Half of 2^(exponent - 127): an E8M0 scale; denormal where it has to be. */
static inline float packed_exponent(unsigned char exponent)
{
    return exponent < 2 ? float_from_bits(0x00200000u << exponent)
                        : float_from_bits((uint32_t)(exponent - 1) << 23);
}

/* Sixteen bytes of two quants each, low halves first: to = quant - zero. */
static inline void packed_four_bits(int8_t *to, const unsigned char *bytes, int zero)
{
    for (size_t i = 0; i < QUANT_HALF; i++) {
        to[i] = (int8_t)((bytes[i] & 15) - zero);
        to[i + QUANT_HALF] = (int8_t)((bytes[i] >> 4) - zero);
    }
}

/* The same with a fifth bit for each quant, in a word of its own. */
static inline void packed_five_bits(int8_t *to, const unsigned char *fifth,
                                    const unsigned char *bytes, int zero)
{
    const uint32_t word = (uint32_t)packed_u16(fifth) | (uint32_t)packed_u16(fifth + 2) << 16;
    for (size_t i = 0; i < QUANT_HALF; i++) {
        const int low = (int)(word >> i & 1) << 4, high = (int)(word >> (i + QUANT_HALF) & 1) << 4;
        to[i] = (int8_t)(((bytes[i] & 15) | low) - zero);
        to[i + QUANT_HALF] = (int8_t)(((bytes[i] >> 4) | high) - zero);
    }
}

/* Sixteen bytes of two indices into the levels of IQ4_NL each. */
static inline void packed_levels(int8_t *to, const unsigned char *bytes)
{
    packed_four_bits(to, bytes, 0);
    for (size_t i = 0; i < QUANTS; i++)
        to[i] = nonlinear_levels[to[i]];
}

/* The numbers of a block of 32, and its scale and offset. Constant: type. */
ALWAYS_INLINE void packed_unpack_32(int type, int8_t *to, float *scale, float *offset,
                                    const unsigned char *block)
{
    *scale = type == CL_WEIGHT_MXFP4 ? packed_exponent(block[0]) : packed_half(block);
    if (has_offset(type)) *offset = packed_half(block + 2);
    switch (type) {
    case CL_WEIGHT_Q8_0:
        memcpy(to, block + 2, QUANTS);
        break;
    case CL_WEIGHT_Q4_0:
        packed_four_bits(to, block + 2, 8);
        break;
    case CL_WEIGHT_Q4_1:
        packed_four_bits(to, block + 4, 0);
        break;
    case CL_WEIGHT_Q5_0:
        packed_five_bits(to, block + 2, block + 6, 16);
        break;
    case CL_WEIGHT_Q5_1:
        packed_five_bits(to, block + 4, block + 8, 0);
        break;
    case CL_WEIGHT_IQ4_NL:
        packed_levels(to, block + 2);
        break;
    default: /* MXFP4: indices */
        packed_four_bits(to, block + 1, 0);
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/*
 * Q2_K: for each part of 16 a byte (scale in the low half, offset in the high half), then 64 bytes of
 * four quants each, then the block's scale and offset. Parts go by 128 numbers; in these, byte l holds
 * numbers l, l + 32, l + 64, l + 96.
 */
static inline void packed_unpack_q2_k(unpacked *to, const unsigned char *block)
{
    const float d = packed_half(block + 80), m = packed_half(block + 82);
    for (size_t part = 0; part < 16; part++) {
        const unsigned char *bytes = block + 16 + part / 8 * 32 + part % 2 * 16;
        const int shift = (int)(part % 8 / 2) * 2;
        to->scale[part] = d * (float)(block[part] & 15);
        to->offset[part] = -m * (float)(block[part] >> 4);
        for (size_t l = 0; l < 16; l++)
            to->quant[part * 16 + l] = (int8_t)(bytes[l] >> shift & 3);
    }
}

/*
 * Q3_K: 32 bytes of third bits (bit g of byte l: number g * 32 + l), 64 bytes as in Q2_K, 16 scales of
 * 6 bits (low four bits as halves of 8 bytes, high two bits as quarters of 4), the block's scale.
 */
static inline void packed_unpack_q3_k(unpacked *to, const unsigned char *block)
{
    const unsigned char *packed = block + 96;
    const float d = packed_half(block + 108);
    for (size_t part = 0; part < 16; part++) {
        const unsigned char *bytes = block + 32 + part / 8 * 32 + part % 2 * 16;
        const unsigned char *third = block + part % 2 * 16;
        const int shift = (int)(part % 8 / 2) * 2, bit = (int)(part / 2);
        const int low = part < 8 ? packed[part] & 15 : packed[part - 8] >> 4;
        const int high = packed[8 + part % 4] >> 2 * (part / 4) & 3;
        to->scale[part] = d * (float)((low | high << 4) - 32);
        for (size_t l = 0; l < 16; l++)
            to->quant[part * 16 + l] =
                (int8_t)((bytes[l] >> shift & 3) - (third[l] >> bit & 1 ? 0 : 4));
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
static inline void packed_four_or_five_bits(unpacked *to, const unsigned char *block,
                                            const unsigned char *fifth, const unsigned char *bytes)
{
    const float d = packed_half(block), m = packed_half(block + 2);
    for (size_t part = 0; part < 8; part++) {
        int scale, offset;
        packed_six_bits(block + 4, part, &scale, &offset);
        to->scale[part] = d * (float)scale;
        to->offset[part] = -m * (float)offset;
        const unsigned char *from = bytes + part / 2 * 32;
        const int shift = part % 2 ? 4 : 0;
        for (size_t l = 0; l < 32; l++) {
            const int high = fifth ? (fifth[l] >> part & 1) << 4 : 0;
            to->quant[part * 32 + l] = (int8_t)((from[l] >> shift & 15) | high);
        }
    }
}

/*
 * Q6_K: 128 bytes of low halves, 64 bytes of four high pairs each, a signed scale for each part of 16,
 * the block's scale. In each 128 numbers: low halves of byte l and l + 32 are numbers l and l + 32, their
 * high halves l + 64 and l + 96; the pairs of byte l follow that order.
 */
static inline void packed_unpack_q6_k(unpacked *to, const unsigned char *block)
{
    const float d = packed_half(block + 208);
    for (size_t part = 0; part < 16; part++)
        to->scale[part] = d * (float)(int8_t)block[192 + part];
    for (size_t quarter = 0; quarter < 8; quarter++) { /* 32 numbers */
        const size_t half = quarter / 4, q = quarter % 4;
        const unsigned char *low = block + half * 64 + q % 2 * 32;
        const unsigned char *high = block + 128 + half * 32;
        for (size_t l = 0; l < 32; l++) {
            const int four = low[l] >> (q / 2 * 4) & 15, two = high[l] >> 2 * q & 3;
            to->quant[quarter * 32 + l] = (int8_t)((four | two << 4) - 32);
        }
    }
}

/*
 * IQ4_XS: the block's scale, 16 bits of high pairs of the eight parts' scales, 4 bytes of their low
 * halves, then 128 bytes: 16 for each part, as in IQ4_NL.
 */
static inline void packed_unpack_iq4_xs(unpacked *to, const unsigned char *block)
{
    const float d = packed_half(block);
    const int high = packed_u16(block + 2);
    for (size_t part = 0; part < 8; part++) {
        const int four = block[4 + part / 2] >> (part % 2 * 4) & 15;
        to->scale[part] = d * (float)((four | (high >> 2 * part & 3) << 4) - 32);
        packed_levels(to->quant + part * 32, block + 8 + part * 16);
    }
}

/* ---- all types ------------------------------------------------------------------------------- */

/* n <= STRETCH numbers, whole blocks. Constant: type. */
ALWAYS_INLINE void packed_unpack(int type, unpacked *to, const unsigned char *from, size_t n)
{
    switch (type) {
    case CL_WEIGHT_Q2_K:
        packed_unpack_q2_k(to, from);
        break;
    case CL_WEIGHT_Q3_K:
        packed_unpack_q3_k(to, from);
        break;
    case CL_WEIGHT_Q4_K:
        packed_four_or_five_bits(to, from, NULL, from + 16);
        break;
    case CL_WEIGHT_Q5_K:
        packed_four_or_five_bits(to, from, from + 16, from + 48);
        break;
    case CL_WEIGHT_Q6_K:
        packed_unpack_q6_k(to, from);
        break;
    case CL_WEIGHT_IQ4_XS:
        packed_unpack_iq4_xs(to, from);
        break;
    default:
        for (size_t part = 0; part < n / QUANTS; part++)
            packed_unpack_32(type, to->quant + part * QUANTS, &to->scale[part], &to->offset[part],
                             from + bytes_of(type, part * QUANTS));
    }
}

/* The row's numbers as f32. Constant: type. */
ALWAYS_INLINE void packed_decode(int type, float *to, const unsigned char *from, size_t n)
{
    const size_t part = part_of(type), step = block_of(type);
    unpacked u;
    for (size_t i = 0; i < n; i += step, from += bytes_of(type, step)) {
        packed_unpack(type, &u, from, step);
        for (size_t l = 0; l < step; l++) {
            const float whole = type == CL_WEIGHT_MXFP4 ? mxfp4_levels[u.quant[l]]
                                                        : (float)u.quant[l];
            const float number = u.scale[l / part] * whole;
            to[i + l] = has_offset(type) ? number + u.offset[l / part] : number;
        }
    }
}

#define DEFINE_DECODE(name, number, block, block_bytes)                                            \
    static inline void packed_decode_##name(float *to, const void *row, size_t n)                  \
    {                                                                                              \
        packed_decode(number, to, row, n);                                                         \
    }
WEIGHTS_OF_QUANTS(DEFINE_DECODE)
#undef DEFINE_DECODE

#endif /* CL_PACKED_H */
