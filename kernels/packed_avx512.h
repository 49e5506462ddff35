/*
 * packed_avx512.h: packed weights unpacked a stretch of up to 256 numbers at a time.
 *
 * Every type is brought into the same form first: a signed byte for each number, a scale and an offset for
 * each part of 16 or 32. Bytes are cheap: an instruction handles 64 of them. From that form sixteen numbers
 * at a time become floats: scale * quant, or scale * quant + offset, where the product is exact (11 + 8 + 6
 * bits at most, of which one is a sign), so that fusing changes no bit of what packed.h computes. MXFP4 has
 * a -0, which no byte is: its quants become indices.
 *
 * packed.h says where the bits of each type lie. Nothing outside the blocks is read.
 */
#ifndef CL_PACKED_AVX512_H
#define CL_PACKED_AVX512_H

#include <string.h>

#include "kernels.h"
#include "lanes_avx512.h"
#include "packed.h"

enum {
    STRETCH = 256, /* numbers unpacked at a time: a multiple of every block */
    PARTS = 16     /* that have scales, at most */
};

typedef struct unpacked {
    _Alignas(64) int8_t quant[STRETCH];
    _Alignas(64) float scale[PARTS]; /* of each part */
    float offset[PARTS];             /* what is added; only where has_offset() */
} unpacked;

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

ALWAYS_INLINE size_t bytes_of_block(int type)
{
#define BYTES_OF(name, number, block, block_bytes)                                                 \
    if (type == (number)) return (block_bytes);
    WEIGHTS_BY_TILE(BYTES_OF)
#undef BYTES_OF
    return 0;
}

ALWAYS_INLINE size_t block_of(int type)
{
#define BLOCK_OF(name, number, block, block_bytes)                                                 \
    if (type == (number)) return (block);
    WEIGHTS_BY_TILE(BLOCK_OF)
#undef BLOCK_OF
    return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

ALWAYS_INLINE __m128i load_16_bytes(const unsigned char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

ALWAYS_INLINE __m256i load_32_bytes(const unsigned char *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

ALWAYS_INLINE __m512i load_64_bytes(const unsigned char *from)
{
    return _mm512_loadu_si512(from);
}

/* 32 bytes twice. */
ALWAYS_INLINE __m512i load_twice(const unsigned char *from)
{
    return _mm512_broadcast_i64x4(load_32_bytes(from));
}

/* The lower 32 bytes shifted right by one count, the upper by another. */
ALWAYS_INLINE __m512i shifted(__m512i bytes, int lower, int upper)
{
    const __m512i counts = _mm512_inserti64x4(_mm512_set1_epi16((short)lower),
                                              _mm256_set1_epi16((short)upper), 1);
    return _mm512_srlv_epi16(bytes, counts);
}

ALWAYS_INLINE float half_at(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

ALWAYS_INLINE void put_32(unpacked *to, size_t at, __m256i quants)
{
    _mm256_store_si256((__m256i *)(void *)(to->quant + at), quants);
}

ALWAYS_INLINE void put_64(unpacked *to, size_t at, __m512i quants)
{
    _mm512_store_si512(to->quant + at, quants);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Sixteen bytes of two quants each, low halves first. */
ALWAYS_INLINE __m256i four_bits(const unsigned char *from)
{
    const __m256i twice = _mm256_broadcastsi128_si256(load_16_bytes(from));
    const __m256i counts = _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(4), 1);
    return _mm256_and_si256(_mm256_srlv_epi16(twice, counts), _mm256_set1_epi8(15));
}

ALWAYS_INLINE __m256i with_fifth_bits(__m256i quants, const unsigned char *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return _mm256_mask_add_epi8(quants, word, quants, _mm256_set1_epi8(16));
}

ALWAYS_INLINE __m256i nonlinear(__m256i quants)
{
    const __m128i levels = load_16_bytes((const unsigned char *)nonlinear_levels);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), quants);
}

ALWAYS_INLINE __m256i quants_of_32(int type, const unsigned char *block)
{
    switch (type) {
    case CL_WEIGHT_Q4_1:
        return four_bits(block + 4);
    case CL_WEIGHT_Q5_0:
        return _mm256_sub_epi8(with_fifth_bits(four_bits(block + 6), block + 2),
                               _mm256_set1_epi8(16));
    case CL_WEIGHT_Q5_1:
        return with_fifth_bits(four_bits(block + 8), block + 4);
    case CL_WEIGHT_IQ4_NL:
        return nonlinear(four_bits(block + 2));
    default: /* MXFP4: indices */
        return four_bits(block + 1);
    }
}

ALWAYS_INLINE void unpack_small(int type, unpacked *to, const unsigned char *block, size_t n)
{
    for (size_t part = 0; part < n / QUANTS; part++, block += bytes_of_block(type)) {
        put_32(to, part * QUANTS, quants_of_32(type, block));
        to->scale[part] = type == CL_WEIGHT_MXFP4 ? packed_exponent(block[0]) : half_at(block);
        if (has_offset(type)) to->offset[part] = half_at(block + 2);
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* Twelve bytes of 6-bit scales and offsets: eight scales, then eight offsets. */
ALWAYS_INLINE __m512 six_bits(const unsigned char *from)
{
    const __m128i late = _mm_setr_epi32(0, -1, 0, -1);
    const __m128i bytes = _mm_srli_si128(load_16_bytes(from - 4),
                                         4); /* the block's start is there */
    const __m128i low =
        _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11));
    const __m128i high = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0,
                                                               4, 5, 6, 7)); /* where it is late */
    const __m128i mask = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m128i four = _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)), mask);
    const __m128i two = _mm_and_si128(_mm_srli_epi16(high, 2),
                                      _mm_and_si128(late, _mm_set1_epi8(0x30)));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_or_si128(four, two)));
}

ALWAYS_INLINE void unpack_q45_k(int has_fifth, unpacked *to, const unsigned char *block)
{
    const __m256i four = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
    const unsigned char *const from = block + (has_fifth ? 48 : 16);
    const __m256i fifth = has_fifth ? load_32_bytes(block + 16) : four;
    foreach(pair, 4) {
        const __m256i bytes = load_32_bytes(from + 32 * pair);
        __m256i even = _mm256_and_si256(bytes, four);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), four);
        if (has_fifth) {
            const __mmask32 is_even =
                _mm256_test_epi8_mask(fifth, _mm256_set1_epi8((char)(1 << (2 * pair))));
            const __mmask32 is_odd =
                _mm256_test_epi8_mask(fifth, _mm256_set1_epi8((char)(2 << (2 * pair))));
            even = _mm256_mask_add_epi8(even, is_even, even, sixteen);
            odd = _mm256_mask_add_epi8(odd, is_odd, odd, sixteen);
        }
        put_32(to, 64 * (size_t)pair, even);
        put_32(to, 64 * (size_t)pair + 32, odd);
    }
    const __m512 small = six_bits(block + 4);
    const __m256 d = _mm256_set1_ps(half_at(block)), m = _mm256_set1_ps(-half_at(block + 2));
    _mm256_store_ps(to->scale, _mm256_mul_ps(_mm512_castps512_ps256(small), d));
    _mm256_store_ps(to->offset, _mm256_mul_ps(_mm512_extractf32x8_ps(small, 1), m));
}

ALWAYS_INLINE void unpack_q6_k(unpacked *to, const unsigned char *block)
{
    const __m512i four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30),
                  zero = _mm512_set1_epi8(32);
    foreach(half, 2) {
        const __m512i low = load_64_bytes(block + 64 * half);
        const __m512i pairs = load_twice(block + 128 + 32 * half);
        const __m512i up = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
        const __m512i first = _mm512_or_si512(_mm512_and_si512(low, four),
                                              _mm512_and_si512(_mm512_sllv_epi16(pairs, up), two));
        const __m512i second = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), four),
                                               _mm512_and_si512(shifted(pairs, 0, 2), two));
        put_64(to, 128 * (size_t)half, _mm512_sub_epi8(first, zero));
        put_64(to, 128 * (size_t)half + 64, _mm512_sub_epi8(second, zero));
    }
    const __m512i scales = _mm512_cvtepi8_epi32(load_16_bytes(block + 192));
    _mm512_store_ps(
        to->scale, _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_set1_ps(half_at(block + 208))));
}

/* 64 numbers of two bits: pairs `pair` and `pair` + 1 of 32 bytes. */
ALWAYS_INLINE __m512i two_bits(const unsigned char *from, int pair)
{
    return _mm512_and_si512(shifted(load_twice(from), 2 * pair, 2 * pair + 2), _mm512_set1_epi8(3));
}

ALWAYS_INLINE void unpack_q2_k(unpacked *to, const unsigned char *block)
{
    foreach(quarter, 4)
        put_64(to, 64 * (size_t)quarter, two_bits(block + 16 + quarter / 2 * 32, quarter % 2 * 2));
    const __m512i both = _mm512_cvtepu8_epi32(load_16_bytes(block));
    const __m512i scale = _mm512_and_si512(both, _mm512_set1_epi32(15));
    const __m512i offset = _mm512_srli_epi32(both, 4);
    _mm512_store_ps(to->scale,
                    _mm512_mul_ps(_mm512_cvtepi32_ps(scale), _mm512_set1_ps(half_at(block + 80))));
    _mm512_storeu_ps(to->offset, _mm512_mul_ps(_mm512_cvtepi32_ps(offset),
                                               _mm512_set1_ps(-half_at(block + 82))));
}

/* The sixteen 6-bit scales of Q3_K, less 32, in twelve bytes. */
ALWAYS_INLINE __m512i scales_of_q3_k(const unsigned char *from)
{
    const __m128i bytes = _mm_srli_si128(load_16_bytes(from - 4), 4); /* quants lie before them */
    const __m128i low = _mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4));
    const __m128i pairs = _mm_shuffle_epi32(bytes, 0xaa); /* bytes 8 to 11, four times */
    const __m128i high = _mm_srlv_epi32(pairs, _mm_setr_epi32(0, 2, 4, 6));
    const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
                                     _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4));
    return _mm512_cvtepi8_epi32(_mm_sub_epi8(six, _mm_set1_epi8(32)));
}

ALWAYS_INLINE void unpack_q3_k(unpacked *to, const unsigned char *block)
{
    const __m512i third = load_twice(block);
    foreach(quarter, 4) {
        const __m512i bit = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << (2 * quarter))),
                                               _mm256_set1_epi8((char)(2 << (2 * quarter))), 1);
        const __m512i two = two_bits(block + 32 + quarter / 2 * 32, quarter % 2 * 2);
        put_64(to, 64 * (size_t)quarter,
               _mm512_mask_sub_epi8(two, _mm512_testn_epi8_mask(third, bit), two,
                                    _mm512_set1_epi8(4)));
    }
    _mm512_store_ps(to->scale, _mm512_mul_ps(_mm512_cvtepi32_ps(scales_of_q3_k(block + 96)),
                                             _mm512_set1_ps(half_at(block + 108))));
}

ALWAYS_INLINE void unpack_iq4_xs(unpacked *to, const unsigned char *block)
{
    foreach(part, 8)
        put_32(to, 32 * (size_t)part, nonlinear(four_bits(block + 8 + 16 * part)));
    uint32_t low;
    memcpy(&low, block + 4, sizeof low);
    const __m256i steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i four = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32((int)low), _mm256_slli_epi32(steps, 2)),
        _mm256_set1_epi32(15));
    const __m256i two = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(packed_u16(block + 2)), _mm256_slli_epi32(steps, 1)),
        _mm256_set1_epi32(3));
    const __m256i six = _mm256_sub_epi32(_mm256_or_si256(four, _mm256_slli_epi32(two, 4)),
                                         _mm256_set1_epi32(32));
    _mm256_store_ps(to->scale,
                    _mm256_mul_ps(_mm256_cvtepi32_ps(six), _mm256_set1_ps(half_at(block))));
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
        unpack_q45_k(0, to, from);
        break;
    case CL_WEIGHT_Q5_K:
        unpack_q45_k(1, to, from);
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

/* Numbers `at` to `at` + 15. */
ALWAYS_INLINE __m512 unpacked_at(int type, const unpacked *from, size_t at)
{
    const size_t part = at / part_of(type);
    const __m512i bytes =
        _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)(from->quant + at)));
    const __m512 scale = _mm512_set1_ps(from->scale[part]);
    if (type == CL_WEIGHT_MXFP4)
        return _mm512_mul_ps(scale, _mm512_permutexvar_ps(bytes, _mm512_loadu_ps(mxfp4_levels)));
    const __m512 quants = _mm512_cvtepi32_ps(bytes);
    return has_offset(type) ? _mm512_fmadd_ps(scale, quants, _mm512_set1_ps(from->offset[part]))
                            : _mm512_mul_ps(scale, quants);
}

ALWAYS_INLINE void unpack_to_floats(int type, float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n;
         i += STRETCH, from += STRETCH / block_of(type) * bytes_of_block(type)) {
        const size_t some = n - i < STRETCH ? n - i : STRETCH;
        unpacked u;
        unpack(type, &u, from, some);
        for (size_t at = 0; at < some; at += WIDE)
            _mm512_storeu_ps(to + i + at, unpacked_at(type, &u, at));
    }
}

#endif /* CL_PACKED_AVX512_H */
