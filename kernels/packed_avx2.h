/*
 * packed_avx2.h: packed weights unpacked a stretch of up to 256 numbers at a time.
 *
 * Every type is brought into the form of packed.h first: a signed byte for each number, a scale and an offset
 * for each part of 16 or 32. Bytes are cheap: an instruction handles 32 of them. From that form eight numbers
 * at a time become floats: scale * quant, or scale * quant + offset, where the product is exact (11 + 7 + 5
 * bits and their signs at most), so that fusing changes no bit of what packed.h computes.
 *
 * packed.h says where the bits of each type lie. Nothing outside the blocks is read. packed_avx512.h uses
 * the form and some of the functions.
 */
#ifndef CL_PACKED_AVX2_H
#define CL_PACKED_AVX2_H

#include <string.h>

#include "kernels.h"
#include "lanes_avx2.h"
#include "packed.h"

/* ---- loading --------------------------------------------------------------------------------- */

ALWAYS_INLINE __m128i load_16_bytes(const unsigned char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

ALWAYS_INLINE __m256i load_32_bytes(const unsigned char *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

ALWAYS_INLINE float half_at(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

ALWAYS_INLINE void put_quants(unpacked *to, int at, __m256i quants)
{
    _mm256_store_si256((__m256i *)(void *)(to->quant + at), quants);
}

/* Each byte shifted right by `count`, of which the bits of `mask` are kept. */
ALWAYS_INLINE __m256i bits_from(__m256i bytes, int count, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(bytes, count), _mm256_set1_epi8((char)mask));
}

/* The same, to the left. */
ALWAYS_INLINE __m256i bits_up(__m256i bytes, int count, int mask)
{
    return _mm256_and_si256(_mm256_slli_epi16(bytes, count), _mm256_set1_epi8((char)mask));
}

/* Eight or sixteen small integers, times a factor, as scales or offsets. */
ALWAYS_INLINE void put_scaled(float *to, __m256i small, float factor)
{
    _mm256_store_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(small), _mm256_set1_ps(factor)));
}

ALWAYS_INLINE void put_scaled_16(float *to, __m128i small, float factor)
{
    put_scaled(to, _mm256_cvtepi8_epi32(small), factor);
    put_scaled(to + 8, _mm256_cvtepi8_epi32(_mm_srli_si128(small, 8)), factor);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Sixteen bytes of two quants each, low halves first. */
ALWAYS_INLINE __m256i four_bits(const unsigned char *from)
{
    const __m128i bytes = load_16_bytes(from);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes),
                            _mm256_set1_epi8(15));
}

/* 16 in each byte whose bit of the 32-bit word is set. */
ALWAYS_INLINE __m256i fifth_bits(const unsigned char *from)
{
    int32_t word;
    memcpy(&word, from, sizeof word);
    const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                              0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i eight = _mm256_shuffle_epi8(_mm256_set1_epi32(word), places);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(eight, bits), bits),
                            _mm256_set1_epi8(16));
}

ALWAYS_INLINE __m256i nonlinear(__m256i quants)
{
    const __m128i levels = load_16_bytes((const unsigned char *)nonlinear_levels);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), quants);
}

ALWAYS_INLINE __m256i quants_of_32(int type, const unsigned char *block)
{
    switch (type) {
    case CL_WEIGHT_Q8_0:
        return load_32_bytes(block + 2);
    case CL_WEIGHT_Q4_0:
        return _mm256_sub_epi8(four_bits(block + 2), _mm256_set1_epi8(8));
    case CL_WEIGHT_Q4_1:
        return four_bits(block + 4);
    case CL_WEIGHT_Q5_0:
        return _mm256_sub_epi8(_mm256_or_si256(four_bits(block + 6), fifth_bits(block + 2)),
                               _mm256_set1_epi8(16));
    case CL_WEIGHT_Q5_1:
        return _mm256_or_si256(four_bits(block + 8), fifth_bits(block + 4));
    case CL_WEIGHT_IQ4_NL:
        return nonlinear(four_bits(block + 2));
    default: /* MXFP4: indices */
        return four_bits(block + 1);
    }
}

ALWAYS_INLINE void unpack_small(int type, unpacked *to, const unsigned char *block, size_t n)
{
    for (size_t part = 0; part < n / QUANTS; part++, block += bytes_of(type, QUANTS)) {
        put_quants(to, (int)part * QUANTS, quants_of_32(type, block));
        to->scale[part] = type == CL_WEIGHT_MXFP4 ? packed_exponent(block[0]) : half_at(block);
        if (has_offset(type)) to->offset[part] = half_at(block + 2);
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* The twelve bytes behind the block's scale and offset: eight scales, then eight offsets. */
ALWAYS_INLINE __m128i six_bits(const unsigned char *block)
{
    const __m128i bytes = load_16_bytes(block);
    const __m128i low = _mm_shuffle_epi8(
        bytes, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m128i high = _mm_shuffle_epi8(
        bytes, _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    const __m128i mask = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m128i four = _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)), mask);
    const __m128i two = _mm_and_si128(_mm_srli_epi16(high, 2), _mm_set1_epi8(0x30));
    return _mm_or_si128(four, two);
}

ALWAYS_INLINE void unpack_scales_q45_k(unpacked *to, const unsigned char *block)
{
    const __m128i six = six_bits(block);
    put_scaled(to->scale, _mm256_cvtepi8_epi32(six), half_at(block));
    put_scaled(to->offset, _mm256_cvtepi8_epi32(_mm_srli_si128(six, 8)), -half_at(block + 2));
}

ALWAYS_INLINE void unpack_q4_k(unpacked *to, const unsigned char *block)
{
    foreach(pair, 4) {
        const __m256i bytes = load_32_bytes(block + 16 + 32 * pair);
        put_quants(to, 64 * pair, bits_from(bytes, 0, 15));
        put_quants(to, 64 * pair + 32, bits_from(bytes, 4, 15));
    }
    unpack_scales_q45_k(to, block);
}

ALWAYS_INLINE void unpack_q5_k(unpacked *to, const unsigned char *block)
{
    const __m256i fifth = load_32_bytes(block + 16);
    foreach(part, 8) {
        const __m256i bytes = load_32_bytes(block + 48 + part / 2 * 32);
        const __m256i high = part < 4 ? bits_up(fifth, 4 - part, 16)
                                      : bits_from(fifth, part - 4, 16);
        put_quants(to, 32 * part, _mm256_or_si256(bits_from(bytes, part % 2 * 4, 15), high));
    }
    unpack_scales_q45_k(to, block);
}

ALWAYS_INLINE void unpack_q6_k(unpacked *to, const unsigned char *block)
{
    foreach(quarter, 8) {
        const int half = quarter / 4, q = quarter % 4;
        const __m256i low = load_32_bytes(block + half * 64 + q % 2 * 32);
        const __m256i pairs = load_32_bytes(block + 128 + half * 32);
        const __m256i high = q < 2 ? bits_up(pairs, 4 - 2 * q, 0x30)
                                   : bits_from(pairs, 2 * q - 4, 0x30);
        const __m256i six = _mm256_or_si256(bits_from(low, q / 2 * 4, 15), high);
        put_quants(to, 32 * quarter, _mm256_sub_epi8(six, _mm256_set1_epi8(32)));
    }
    put_scaled_16(to->scale, load_16_bytes(block + 192), half_at(block + 208));
}

ALWAYS_INLINE void unpack_q2_k(unpacked *to, const unsigned char *block)
{
    foreach(part, 8)
        put_quants(to, 32 * part,
                   bits_from(load_32_bytes(block + 16 + part / 4 * 32), part % 4 * 2, 3));
    const __m128i both = load_16_bytes(block), four = _mm_set1_epi8(15);
    put_scaled_16(to->scale, _mm_and_si128(both, four), half_at(block + 80));
    put_scaled_16(to->offset, _mm_and_si128(_mm_srli_epi16(both, 4), four), -half_at(block + 82));
}

/* The sixteen scales of Q3_K, less 32; its last 16 bytes have them. */
ALWAYS_INLINE __m128i scales_of_q3_k(const unsigned char *block)
{
    const __m128i bytes = _mm_srli_si128(load_16_bytes(block + 94), 2);
    const __m128i low = _mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4));
    const __m128i pairs = _mm_shuffle_epi32(bytes, 0xaa); /* bytes 8 to 11, four times */
    const __m128i high = _mm_srlv_epi32(pairs, _mm_setr_epi32(0, 2, 4, 6));
    const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
                                     _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4));
    return _mm_sub_epi8(six, _mm_set1_epi8(32));
}

ALWAYS_INLINE void unpack_q3_k(unpacked *to, const unsigned char *block)
{
    const __m256i third = load_32_bytes(block), four = _mm256_set1_epi8(4);
    foreach(part, 8) {
        const __m256i bytes = load_32_bytes(block + 32 + part / 4 * 32);
        const __m256i high = part < 3 ? bits_up(third, 2 - part, 4) : bits_from(third, part - 2, 4);
        const __m256i three = _mm256_or_si256(bits_from(bytes, part % 4 * 2, 3), high);
        put_quants(to, 32 * part, _mm256_sub_epi8(three, four));
    }
    put_scaled_16(to->scale, scales_of_q3_k(block), half_at(block + 108));
}

ALWAYS_INLINE void unpack_iq4_xs(unpacked *to, const unsigned char *block)
{
    foreach(part, 8)
        put_quants(to, 32 * part, nonlinear(four_bits(block + 8 + 16 * part)));
    int32_t low;
    memcpy(&low, block + 4, sizeof low);
    const __m256i steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i four =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(low), _mm256_slli_epi32(steps, 2)),
                         _mm256_set1_epi32(15));
    const __m256i two = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(packed_u16(block + 2)), _mm256_slli_epi32(steps, 1)),
        _mm256_set1_epi32(3));
    const __m256i six = _mm256_or_si256(four, _mm256_slli_epi32(two, 4));
    put_scaled(to->scale, _mm256_sub_epi32(six, _mm256_set1_epi32(32)), half_at(block));
}

/* ---- for the products ------------------------------------------------------------------------ */

/* n <= STRETCH numbers, whole blocks. Constant: type. */
ALWAYS_INLINE void unpack(int type, unpacked *to, const unsigned char *from, size_t n)
{
    switch (type) {
    case CL_WEIGHT_Q2_K:
        unpack_q2_k(to, from);
        break;
    case CL_WEIGHT_Q3_K:
        unpack_q3_k(to, from);
        break;
    case CL_WEIGHT_Q4_K:
        unpack_q4_k(to, from);
        break;
    case CL_WEIGHT_Q5_K:
        unpack_q5_k(to, from);
        break;
    case CL_WEIGHT_Q6_K:
        unpack_q6_k(to, from);
        break;
    case CL_WEIGHT_IQ4_XS:
        unpack_iq4_xs(to, from);
        break;
    default:
        unpack_small(type, to, from, n);
    }
}

/* Numbers `at` to `at` + 7. */
ALWAYS_INLINE __m256 unpacked_at(int type, const unpacked *from, size_t at)
{
    const size_t part = at / part_of(type);
    const __m256i quants =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(from->quant + at)));
    const __m256 scale = _mm256_broadcast_ss(&from->scale[part]);
    if (type == CL_WEIGHT_MXFP4) { /* the first eight levels, and bit 3 is the sign */
        const __m256 size = _mm256_permutevar8x32_ps(_mm256_loadu_ps(mxfp4_levels), quants);
        const __m256 sign =
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(quants, 3), 31));
        return _mm256_mul_ps(scale, _mm256_or_ps(size, sign));
    }
    const __m256 whole = _mm256_cvtepi32_ps(quants);
    return has_offset(type)
               ? _mm256_fmadd_ps(scale, whole, _mm256_broadcast_ss(&from->offset[part]))
               : _mm256_mul_ps(scale, whole);
}

ALWAYS_INLINE void unpack_to_floats(int type, float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i += STRETCH, from += bytes_of(type, STRETCH)) {
        const size_t some = n - i < STRETCH ? n - i : STRETCH;
        unpacked u;
        unpack(type, &u, from, some);
        for (size_t at = 0; at < some; at += LANES)
            _mm256_storeu_ps(to + i + at, unpacked_at(type, &u, at));
    }
}

#endif /* CL_PACKED_AVX2_H */
