/*
 * rounded_few_avx512.h: products of whole numbers for one token or a few, with VNNI.
 *
 * What counts is to read the rows fast. Weights become bytes without sign by adding `zero_of` their type, as
 * the instruction wants (vpdpbusd); what that adds is taken off again with the sum of the token's numbers. 64
 * weights of a row are multiplied with the upper bytes of the token's numbers, the sums shifted by 8, and the
 * products with the lower bytes added. Four parts of four rows are then brought together in one register:
 *
 *     lane 4 p + r: part p of row r
 *
 * which is where the four chains of rounded.h come from.
 */
#ifndef CL_ROUNDED_FEW_AVX512_H
#define CL_ROUNDED_FEW_AVX512_H

#include "packed_avx512.h"
#include "rounded.h"

enum { FEW_ROWS = 4, FEW_AT_ONCE = 4 /* tokens that share weights in registers */ };

/* A product of a few tokens that is under way. */
typedef struct few {
    const unsigned char *row[FEW_ROWS]; /* missing rows are the last once more */
    size_t to_next;                     /* bytes to the rows that come next */
    const char *x;                      /* of the first token */
    size_t n_in, x_bytes;
} few;

/* Parts `at` to `at` + 3 of the four rows. */
typedef struct four_parts {
    __m512i weight[8]; /* of parts of 32: rows 0-3 of parts 0 and 1, then of 2 and 3; of 16: four */
    __m512 scale, offset; /* lane 4 p + r */
} four_parts;

ALWAYS_INLINE int zero_of(int type)
{
    switch (type) {
    case CL_WEIGHT_Q8_0:
    case CL_WEIGHT_IQ4_NL:
    case CL_WEIGHT_IQ4_XS:
        return 128;
    case CL_WEIGHT_Q6_K:
        return 32;
    case CL_WEIGHT_Q5_0:
        return 16;
    case CL_WEIGHT_MXFP4:
        return 12;
    case CL_WEIGHT_Q4_0:
        return 8;
    case CL_WEIGHT_Q3_K:
        return 4;
    default:
        return 0;
    }
}

/* ---- weights: blocks of 32 ------------------------------------------------------------------- */

ALWAYS_INLINE int is_small(int type)
{
    return block_of(type) == QUANTS;
}

/* Sixteen bytes twice, and sixteen others twice: low halves of a quarter, then high ones. */
ALWAYS_INLINE __m512i halves_of_bytes(const unsigned char *a, const unsigned char *b)
{
    const __m512i first = _mm512_broadcast_i32x4(load_16_bytes(a));
    const __m512i both = _mm512_mask_broadcast_i32x4(first, 0xff00, load_16_bytes(b));
    const __m512i counts = halves_of(_mm256_setr_epi64x(0, 0, 0x4000400040004, 0x4000400040004),
                                     _mm256_setr_epi64x(0, 0, 0x4000400040004, 0x4000400040004));
    return _mm512_and_si512(_mm512_srlv_epi16(both, counts), _mm512_set1_epi8(15));
}

ALWAYS_INLINE __m512i add_fifth_bits(__m512i quants, const unsigned char *a, const unsigned char *b)
{
    uint32_t low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    const __mmask64 is_set = (__mmask64)low | (__mmask64)high << 32;
    return _mm512_mask_add_epi8(quants, is_set, quants, _mm512_set1_epi8(16));
}

ALWAYS_INLINE __m512i look_up(const int8_t *levels, int zero, __m512i quants)
{
    const __m128i bytes = _mm_add_epi8(load_16_bytes((const unsigned char *)levels),
                                       _mm_set1_epi8((char)zero));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), quants);
}

/* Two blocks of a row as bytes without sign. */
ALWAYS_INLINE __m512i two_blocks(int type, const unsigned char *a, const unsigned char *b)
{
    switch (type) {
    case CL_WEIGHT_Q8_0:
        return _mm512_xor_si512(halves_of(load_32_bytes(a + 2), load_32_bytes(b + 2)),
                                _mm512_set1_epi8((char)0x80));
    case CL_WEIGHT_Q4_0:
        return halves_of_bytes(a + 2, b + 2);
    case CL_WEIGHT_Q4_1:
        return halves_of_bytes(a + 4, b + 4);
    case CL_WEIGHT_Q5_0:
        return add_fifth_bits(halves_of_bytes(a + 6, b + 6), a + 2, b + 2);
    case CL_WEIGHT_Q5_1:
        return add_fifth_bits(halves_of_bytes(a + 8, b + 8), a + 4, b + 4);
    case CL_WEIGHT_IQ4_NL:
        return look_up(nonlinear_levels, zero_of(type), halves_of_bytes(a + 2, b + 2));
    default:
        return look_up(whole_levels, zero_of(type), halves_of_bytes(a + 1, b + 1));
    }
}

/* 2^(exponent - 128) of each byte: packed_exponent(). */
ALWAYS_INLINE __m512 exponents(__m512i bytes)
{
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(bytes, _mm512_set1_epi32(1)), 23);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(bytes, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, is_small, _mm512_set1_epi32(0x00200000), bytes));
}

ALWAYS_INLINE __m512 halves_to_floats(__m512i low_words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(low_words));
}

/* The first bytes of four blocks of four rows: lane 4 p + r. */
ALWAYS_INLINE __m512i first_bytes(const unsigned char *const block[FEW_ROWS][4])
{
    __m128i quarter[4];
    foreach(p, 4) {
        uint32_t word[FEW_ROWS];
        foreach(r, FEW_ROWS)
            memcpy(&word[r], block[r][p], sizeof *word);
        quarter[p] = _mm_setr_epi32((int)word[0], (int)word[1], (int)word[2], (int)word[3]);
    }
    return halves_of(_mm256_set_m128i(quarter[1], quarter[0]),
                     _mm256_set_m128i(quarter[3], quarter[2]));
}

/* Parts from byte `at` of the rows, of which `n` are there. Constants: type, and n if it is 4. */
ALWAYS_INLINE void load_small(int type, four_parts *to, const few *f, size_t at, size_t n)
{
    const unsigned char *block[FEW_ROWS][4];
    foreach(r, FEW_ROWS)
        foreach(p, 4)
            block[r][p] = f->row[r] + at +
                          bytes_of(type, QUANTS) * ((size_t)p < n ? (size_t)p : n - 1);
    foreach(r, FEW_ROWS) {
        to->weight[r] = two_blocks(type, block[r][0], block[r][1]);
        to->weight[FEW_ROWS + r] = two_blocks(type, block[r][2], block[r][3]);
    }
    const __m512i first = first_bytes((const unsigned char *const(*)[4])block);
    to->scale = type == CL_WEIGHT_MXFP4 ? exponents(_mm512_and_si512(first, _mm512_set1_epi32(255)))
                                        : halves_to_floats(first);
    if (has_offset(type)) to->offset = halves_to_floats(_mm512_srli_epi32(first, 16));
}

/* ---- weights: blocks of 256 ------------------------------------------------------------------ */

/* Four numbers of each row: lane 4 p + r. */
ALWAYS_INLINE __m512 by_part(const float *a, const float *b, const float *c, const float *d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256 low = _mm256_set_m128(_mm_load_ps(b), _mm_load_ps(a));
    const __m256 high = _mm256_set_m128(_mm_load_ps(d), _mm_load_ps(c));
    return _mm512_permutexvar_ps(order, _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
}

ALWAYS_INLINE __m512i quants_of_64(int type, const unpacked *u, const unsigned char *block,
                                   size_t at)
{
    if (type == CL_WEIGHT_Q4_K) { /* two parts lie in the same bytes */
        const __m512i bytes = load_twice(block + 16 + at / 2);
        return _mm512_and_si512(_mm512_srlv_epi16(bytes, words_of(0, 4)), _mm512_set1_epi8(15));
    }
    const __m512i quants = _mm512_load_si512(u->quant + at);
    return zero_of(type) == 0 ? quants
                              : _mm512_add_epi8(quants, _mm512_set1_epi8((char)zero_of(type)));
}

/* Four parts from number `at` of the block on. */
ALWAYS_INLINE void load_large(int type, four_parts *to, const unpacked *u,
                              const unsigned char *const *block, size_t at)
{
    const size_t part = at / part_of(type);
    foreach(r, FEW_ROWS) {
        to->weight[r] = quants_of_64(type, &u[r], block[r], at);
        if (part_of(type) == 32)
            to->weight[FEW_ROWS + r] = quants_of_64(type, &u[r], block[r], at + 64);
    }
    to->scale = by_part(u[0].scale + part, u[1].scale + part, u[2].scale + part, u[3].scale + part);
    if (has_offset(type))
        to->offset = by_part(u[0].offset + part, u[1].offset + part, u[2].offset + part,
                             u[3].offset + part);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Lanes l and l + 2 of each quarter added, those of a and b side by side. */
ALWAYS_INLINE __m512i fold_words(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

ALWAYS_INLINE __m512i fold_pairs(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* The quarters of four registers: sums of four rows, lane r of each quarter. */
ALWAYS_INLINE __m512i fold_rows(const __m512i *weight, __m512i high, __m512i low)
{
    __m512i sum[FEW_ROWS];
    foreach(r, FEW_ROWS) {
        sum[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), weight[r], high);
        sum[r] = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum[r], 8), weight[r], low);
    }
    return fold_pairs(fold_words(sum[0], sum[1]), fold_words(sum[2], sum[3]));
}

/* Number p of four in lanes 4 p to 4 p + 3; every `step`th. */
ALWAYS_INLINE __m512i places(int step, int first)
{
    const __m512i part = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_add_epi32(step == 2 ? _mm512_add_epi32(part, part) : part,
                            _mm512_set1_epi32(first));
}

/* What was added to the weights, times the token's numbers. `n`: parts that are there. */
ALWAYS_INLINE __m512i sum_of_zeros(int type, const int32_t *sum16, size_t n)
{
    __m512i sum;
    if (part_of(type) == 16) {
        sum = _mm512_permutexvar_epi32(places(1, 0),
                                       _mm512_castsi128_si512(load_16_bytes((const void *)sum16)));
    } else {
        const __mmask8 mask = (__mmask8)((1u << 2 * n) - 1);
        const __m512i all = _mm512_castsi256_si512(_mm256_maskz_loadu_epi32(mask, sum16));
        sum = _mm512_add_epi32(_mm512_permutexvar_epi32(places(2, 0), all),
                               _mm512_permutexvar_epi32(places(2, 1), all));
    }
    if (zero_of(type) == 12)
        return _mm512_add_epi32(_mm512_slli_epi32(sum, 3), _mm512_slli_epi32(sum, 2));
    return _mm512_slli_epi32(sum, __builtin_ctz((unsigned)zero_of(type)));
}

/* Four numbers, or as many as there are, each in the four lanes of its part. */
ALWAYS_INLINE __m512 in_places(const float *from, size_t n, __m512i place)
{
    const __mmask8 mask = (__mmask8)((1u << n) - 1);
    return _mm512_permutexvar_ps(place, _mm512_castps128_ps512(_mm_maskz_loadu_ps(mask, from)));
}

/* Continue the chains of one token by four parts from number `at` on, of which n are there. */
ALWAYS_INLINE __m512 multiply_parts(int type, __m512 lanes, const four_parts *w, const few *f,
                                    size_t token, size_t at, size_t n)
{
    const rounded x = rounded_in(f->x + token * f->x_bytes, f->n_in);
    __m512i sum;
    if (part_of(type) == 16) {
        sum = fold_rows(w->weight, _mm512_loadu_si512(x.high + at), _mm512_loadu_si512(x.low + at));
    } else {
        const __mmask64 one = n < 2 ? 0xffffffff : ~(__mmask64)0;
        const __mmask64 two = n < 3 ? 0 : n < 4 ? 0xffffffff : ~(__mmask64)0;
        const __m512i first = fold_rows(w->weight, _mm512_maskz_loadu_epi8(one, x.high + at),
                                        _mm512_maskz_loadu_epi8(one, x.low + at));
        const __m512i second = fold_rows(w->weight + FEW_ROWS,
                                         _mm512_maskz_loadu_epi8(two, x.high + at + 64),
                                         _mm512_maskz_loadu_epi8(two, x.low + at + 64));
        sum = _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88),
                               _mm512_shuffle_i32x4(first, second, 0xdd));
    }
    if (zero_of(type) != 0) sum = _mm512_sub_epi32(sum, sum_of_zeros(type, x.sum16 + at / 16, n));
    const __m512 scale = part_of(type) == 16 ? in_places(x.scale + at / QUANTS, 2,
                                                         _mm512_srli_epi32(places(1, 0), 1))
                                             : in_places(x.scale + at / QUANTS, n, places(1, 0));
    const __mmask16 mask = (__mmask16)((1u << 4 * n) - 1);
    lanes = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(w->scale, scale), lanes,
                                  mask);
    if (has_offset(type)) {
        const float *const sums = part_of(type) == 16 ? x.weighted16 + at / 16
                                                      : x.weighted32 + at / QUANTS;
        lanes = _mm512_mask3_fmadd_ps(w->offset, in_places(sums, n, places(1, 0)), lanes, mask);
    }
    return lanes;
}

ALWAYS_INLINE void prefetch_rows(const few *f, size_t at, size_t bytes)
{
    foreach(r, FEW_ROWS)
        for (size_t line = 0; line < bytes; line += 64)
            _mm_prefetch((const char *)((uintptr_t)f->row[r] + f->to_next + at + line),
                         _MM_HINT_T0);
}

/* A stretch of n numbers from number `at` on: continue the tokens' four chains each. */
ALWAYS_INLINE void multiply_few_stretch(int type, __m512 *lanes, int tokens, const few *f,
                                        size_t at, size_t n)
{
    const size_t bytes = bytes_of(type, at), size = part_of(type);
    prefetch_rows(f, bytes, bytes_of(type, n));
    if (is_small(type)) {
        size_t i = 0;
        for (; i + 4 * QUANTS <= n; i += 4 * QUANTS) {
            four_parts w;
            load_small(type, &w, f, bytes + bytes_of(type, i), 4);
            foreach(t, tokens)
                lanes[t] = multiply_parts(type, lanes[t], &w, f, (size_t)t, at + i, 4);
        }
        if (i < n) {
            four_parts w;
            load_small(type, &w, f, bytes + bytes_of(type, i), (n - i) / QUANTS);
            foreach(t, tokens)
                lanes[t] = multiply_parts(type, lanes[t], &w, f, (size_t)t, at + i,
                                          (n - i) / QUANTS);
        }
        return;
    }
    unpacked u[FEW_ROWS];
    const unsigned char *block[FEW_ROWS];
    foreach(r, FEW_ROWS) {
        block[r] = f->row[r] + bytes;
        if (type == CL_WEIGHT_Q4_K)
            unpack_scales_q45_k(&u[r], block[r]);
        else
            wide_unpack(type, &u[r], block[r], n);
    }
    for (size_t i = 0; i < STRETCH; i += 4 * size) {
        four_parts w;
        load_large(type, &w, u, block, i);
        foreach(t, tokens)
            lanes[t] = multiply_parts(type, lanes[t], &w, f, (size_t)t, at + i, 4);
    }
}

/* (part 0 + part 1) + (part 2 + part 3) of four rows. */
ALWAYS_INLINE __m128 end_of_stretch(__m512 lanes)
{
    const __m256 low = _mm512_castps512_ps256(lanes), high = _mm512_extractf32x8_ps(lanes, 1);
    return _mm_add_ps(_mm_add_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1)),
                      _mm_add_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1)));
}

/* `mask` says which of the rows there are; y is row 0 of token 0. Constants: type, tokens. */
ALWAYS_INLINE void multiply_few_rows(int type, int tokens, const few *f, float *y, size_t y_stride,
                                     __mmask8 mask)
{
    __m128 sum[FEW_AT_ONCE];
    foreach(t, tokens)
        sum[t] = _mm_setzero_ps();
    for (size_t at = 0; at < f->n_in; at += STRETCH) {
        __m512 lanes[FEW_AT_ONCE];
        foreach(t, tokens)
            lanes[t] = _mm512_setzero_ps();
        multiply_few_stretch(type, lanes, tokens, f, at,
                             f->n_in - at < STRETCH ? f->n_in - at : STRETCH);
        foreach(t, tokens) {
            const __m128 some = end_of_stretch(lanes[t]);
            sum[t] = at == 0 ? some : _mm_add_ps(sum[t], some);
        }
    }
    foreach(t, tokens)
        _mm_mask_storeu_ps(y + (size_t)t * y_stride, mask, sum[t]);
}

/* Rows are read from memory once: those read for the first tokens are in the cache for the others. */
ALWAYS_INLINE void multiply_few(int type, const unsigned char *w, size_t row_bytes, size_t n_in,
                                size_t first, size_t last, const char *x, size_t n_tokens, float *y,
                                size_t y_stride)
{
    few f = {.n_in = n_in, .x_bytes = cl_rounded_bytes(n_in), .to_next = FEW_ROWS * row_bytes};
    for (size_t i = first; i < last; i += FEW_ROWS) {
        const size_t n = last - i < FEW_ROWS ? last - i : FEW_ROWS;
        const __mmask8 mask = (__mmask8)((1u << n) - 1);
        foreach(r, FEW_ROWS)
            f.row[r] = w + (i + ((size_t)r < n ? (size_t)r : n - 1)) * row_bytes;
        size_t t = 0;
        for (; t + FEW_AT_ONCE <= n_tokens; t += FEW_AT_ONCE) {
            f.x = x + t * f.x_bytes;
            multiply_few_rows(type, FEW_AT_ONCE, &f, y + t * y_stride + i, y_stride, mask);
        }
        for (; t < n_tokens; t++) {
            f.x = x + t * f.x_bytes;
            multiply_few_rows(type, 1, &f, y + t * y_stride + i, y_stride, mask);
        }
    }
}

#endif /* CL_ROUNDED_FEW_AVX512_H */
