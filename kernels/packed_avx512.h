/*
 * packed_avx512.h: packed weights unpacked to bytes and scales as in packed_avx2.h, 64 bytes at a time.
 *
 * The types with blocks of 256 gain by registers twice as wide and by masks; blocks of 32 fill no more than
 * 256 bits and gain by a shift with two counts. Sixteen numbers at a time become floats, with the bits of
 * packed.h. Nothing outside the blocks is read.
 */
#ifndef CL_PACKED_AVX512_H
#define CL_PACKED_AVX512_H

#include "lanes_avx512.h"
#include "packed_avx2.h"

/* Bytes or words: one value in the lower half, another in the upper. */
ALWAYS_INLINE __m512i halves_of(__m256i lower, __m256i upper)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
}

ALWAYS_INLINE __m512i words_of(int lower, int upper)
{
    return halves_of(_mm256_set1_epi16((short)lower), _mm256_set1_epi16((short)upper));
}

/* 32 bytes twice. */
ALWAYS_INLINE __m512i load_twice(const unsigned char *from)
{
    return _mm512_broadcast_i64x4(load_32_bytes(from));
}

ALWAYS_INLINE void wide_put_quants(unpacked *to, int at, __m512i quants)
{
    _mm512_store_si512(to->quant + at, quants);
}

ALWAYS_INLINE void wide_put_scaled(float *to, __m128i small, float factor)
{
    const __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(small));
    _mm512_store_ps(to, _mm512_mul_ps(whole, _mm512_set1_ps(factor)));
}

/* ---- each type ------------------------------------------------------------------------------- */

ALWAYS_INLINE void wide_unpack_q5_k(unpacked *to, const unsigned char *block)
{
    const __m256i fifth = load_32_bytes(block + 16), sixteen = _mm256_set1_epi8(16);
    foreach(part, 8) {
        const __m256i bytes = load_32_bytes(block + 48 + part / 2 * 32);
        const __m256i quants = bits_from(bytes, part % 2 * 4, 15);
        const __mmask32 is_set = _mm256_test_epi8_mask(fifth, _mm256_set1_epi8((char)(1 << part)));
        put_quants(to, 32 * part, _mm256_mask_add_epi8(quants, is_set, quants, sixteen));
    }
    unpack_scales_q45_k(to, block);
}

ALWAYS_INLINE void wide_unpack_q6_k(unpacked *to, const unsigned char *block)
{
    const __m512i four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30),
                  zero = _mm512_set1_epi8(32);
    foreach(half, 2) {
        const __m512i low = _mm512_loadu_si512(block + 64 * half);
        const __m512i pairs = load_twice(block + 128 + 32 * half);
        const __m512i first =
            _mm512_or_si512(_mm512_and_si512(low, four),
                            _mm512_and_si512(_mm512_sllv_epi16(pairs, words_of(4, 2)), two));
        const __m512i second =
            _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), four),
                            _mm512_and_si512(_mm512_srlv_epi16(pairs, words_of(0, 2)), two));
        wide_put_quants(to, 128 * half, _mm512_sub_epi8(first, zero));
        wide_put_quants(to, 128 * half + 64, _mm512_sub_epi8(second, zero));
    }
    wide_put_scaled(to->scale, load_16_bytes(block + 192), half_at(block + 208));
}

/* 64 numbers of two bits: quarter `quarter` of a block whose 64 bytes are at `from`. */
ALWAYS_INLINE __m512i two_bits(const unsigned char *from, int quarter)
{
    const int pair = quarter % 2 * 2;
    const __m512i counts = words_of(2 * pair, 2 * pair + 2);
    const __m512i bytes = load_twice(from + quarter / 2 * 32);
    return _mm512_and_si512(_mm512_srlv_epi16(bytes, counts), _mm512_set1_epi8(3));
}

ALWAYS_INLINE void wide_unpack_q2_k(unpacked *to, const unsigned char *block)
{
    foreach(quarter, 4)
        wide_put_quants(to, 64 * quarter, two_bits(block + 16, quarter));
    const __m128i both = load_16_bytes(block), four = _mm_set1_epi8(15);
    wide_put_scaled(to->scale, _mm_and_si128(both, four), half_at(block + 80));
    wide_put_scaled(to->offset, _mm_and_si128(_mm_srli_epi16(both, 4), four), -half_at(block + 82));
}

ALWAYS_INLINE void wide_unpack_q3_k(unpacked *to, const unsigned char *block)
{
    const __m512i third = load_twice(block);
    foreach(quarter, 4) {
        const __m512i bit = halves_of(_mm256_set1_epi8((char)(1 << (2 * quarter))),
                                      _mm256_set1_epi8((char)(2 << (2 * quarter))));
        const __m512i two = two_bits(block + 32, quarter);
        const __mmask64 is_clear = _mm512_testn_epi8_mask(third, bit);
        wide_put_quants(to, 64 * quarter,
                        _mm512_mask_sub_epi8(two, is_clear, two, _mm512_set1_epi8(4)));
    }
    wide_put_scaled(to->scale, scales_of_q3_k(block), half_at(block + 108));
}

/* ---- for the products ------------------------------------------------------------------------ */

/* n <= STRETCH numbers, whole blocks. Constant: type. */
ALWAYS_INLINE void wide_unpack(int type, unpacked *to, const unsigned char *from, size_t n)
{
    switch (type) {
    case CL_WEIGHT_Q2_K:
        wide_unpack_q2_k(to, from);
        break;
    case CL_WEIGHT_Q3_K:
        wide_unpack_q3_k(to, from);
        break;
    case CL_WEIGHT_Q5_K:
        wide_unpack_q5_k(to, from);
        break;
    case CL_WEIGHT_Q6_K:
        wide_unpack_q6_k(to, from);
        break;
    default:
        unpack(type, to, from, n);
    }
}

/* Numbers `at` to `at` + 15. */
ALWAYS_INLINE __m512 wide_unpacked_at(int type, const unpacked *from, size_t at)
{
    const size_t part = at / part_of(type);
    const __m512i quants =
        _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)(from->quant + at)));
    const __m512 scale = _mm512_set1_ps(from->scale[part]);
    if (type == CL_WEIGHT_MXFP4)
        return _mm512_mul_ps(scale, _mm512_permutexvar_ps(quants, _mm512_loadu_ps(mxfp4_levels)));
    const __m512 whole = _mm512_cvtepi32_ps(quants);
    return has_offset(type) ? _mm512_fmadd_ps(scale, whole, _mm512_set1_ps(from->offset[part]))
                            : _mm512_mul_ps(scale, whole);
}

ALWAYS_INLINE void wide_unpack_to_floats(int type, float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i += STRETCH, from += bytes_of(type, STRETCH)) {
        const size_t some = n - i < STRETCH ? n - i : STRETCH;
        unpacked u;
        wide_unpack(type, &u, from, some);
        for (size_t at = 0; at < some; at += WIDE)
            _mm512_storeu_ps(to + i + at, wide_unpacked_at(type, &u, at));
    }
}

#endif /* CL_PACKED_AVX512_H */
