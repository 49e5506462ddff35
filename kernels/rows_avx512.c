/*
 * rows_avx512.c: stored rows decoded sixteen numbers at a time.
 *
 * Decoding alone: attention does it for every key it meets; rows are encoded once, by AVX2's versions,
 * which stay. A four-bit quant has sixteen possible values. They are computed once a block, and each
 * number is looked up in that register, so what an encoded number becomes is computed as in
 * quants_scalar.c: every bit is that of the scalar versions. Nothing here fails.
 */
#include "kernels.h"

#include <string.h>

#include "fill_past.h"
#include "lanes_avx512.h"
#include "quants.h"

static void decode_f16(float *to, const void *from, size_t n)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + 2 * i));
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(halves));
    }
    if (i < n) {
        const __mmask16 mask = wide_first(n - i);
        const __m256i halves = _mm256_maskz_loadu_epi16(mask, bytes + 2 * i);
        _mm512_mask_storeu_ps(to + i, mask, _mm512_cvtph_ps(halves));
    }
}

static void rows_f32_from_f16(float *to, const uint16_t *from, size_t n)
{
    decode_f16(to, from, n);
}

ALWAYS_INLINE __m512 load_scale(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

ALWAYS_INLINE __m128i load_bytes(const unsigned char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

static void decode_q8_0(float *to, const void *from, size_t n)
{
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        const __m512 d = load_scale(block);
        foreach(v, QUANTS / WIDE) {
            const __m512i whole = _mm512_cvtepi8_epi32(load_bytes(block + 2 + WIDE * v));
            _mm512_storeu_ps(to + i + WIDE * v, _mm512_mul_ps(d, _mm512_cvtepi32_ps(whole)));
        }
    }
}

/* ---- four bits ------------------------------------------------------------------------------- */

/* 32 numbers from 16 bytes; value[q] is what quant q stands for. */
ALWAYS_INLINE void look_up(float *to, const unsigned char *quants, __m512 value)
{
    const __m512i pairs = _mm512_cvtepu8_epi32(load_bytes(quants)); /* only four bits count */
    _mm512_storeu_ps(to, _mm512_permutexvar_ps(pairs, value));
    _mm512_storeu_ps(to + WIDE, _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), value));
}

ALWAYS_INLINE __m512 whole_from(int first)
{
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(steps, _mm512_set1_epi32(first)));
}

static void decode_q4_0(float *to, const void *from, size_t n)
{
    const __m512 levels = whole_from(-8);
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 18)
        look_up(to + i, block + 2, _mm512_mul_ps(load_scale(block), levels));
}

static void decode_q4_1(float *to, const void *from, size_t n)
{
    const __m512 levels = whole_from(0);
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 20) {
        const __m512 products = _mm512_mul_ps(load_scale(block), levels);
        look_up(to + i, block + 4, _mm512_add_ps(products, load_scale(block + 2)));
    }
}

static void decode_iq4_nl(float *to, const void *from, size_t n)
{
    const __m128i bytes = load_bytes((const unsigned char *)nonlinear_levels);
    const __m512 levels = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 18)
        look_up(to + i, block + 2, _mm512_mul_ps(load_scale(block), levels));
}

ALWAYS_INLINE void write_line(void *line, uint32_t word)
{
    _mm512_stream_si512(line, _mm512_set1_epi32((int)word));
}

static void rows_fill_past(void *to, uint32_t pattern, size_t n)
{
    fill_past(to, pattern, n, write_line);
}

void cl_rows_fill_avx512(cl_kernels *table)
{
    table->rows_fill_past = rows_fill_past;
    table->rows_f32_from_f16 = rows_f32_from_f16;
    table->codec[CL_ROW_F16].decode = decode_f16;
    table->codec[CL_ROW_Q8_0].decode = decode_q8_0;
    table->codec[CL_ROW_Q4_0].decode = decode_q4_0;
    table->codec[CL_ROW_Q4_1].decode = decode_q4_1;
    table->codec[CL_ROW_IQ4_NL].decode = decode_iq4_nl;
}
