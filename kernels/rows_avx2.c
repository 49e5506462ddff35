/*
 * rows_avx2.c: rows from one number format to another, eight numbers at a time.
 *
 * F16 with F16C and BF16; F32 is left to memcpy, the types with blocks to quants_avx2.c. The rest
 * of a row goes one number at a time. The rounding mode is named in the instruction, so the
 * thread's own does not matter. Every bit is that of rows_scalar.c. Nothing here fails.
 */
#include "kernels.h"

#include "fill_past.h"
#include "half.h"
#include "lanes_avx2.h"

static void encode_f16(void *to, const float *from, size_t n)
{
    unsigned char *bytes = to;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i),
                                               _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(bytes + 2 * i), halves);
    }
    for (; i < n; i++) {
        const uint16_t half = (uint16_t)_mm_cvtsi128_si32(
            _mm_cvtps_ph(_mm_load_ss(from + i), _MM_FROUND_TO_NEAREST_INT));
        memcpy(bytes + 2 * i, &half, sizeof half);
    }
}

static void decode_f16(float *to, const void *from, size_t n)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(bytes + 2 * i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    for (; i < n; i++) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, sizeof half);
        _mm_store_ss(to + i, _mm_cvtph_ps(_mm_cvtsi32_si128(half)));
    }
}

/* bfloat_from_float_bits() of eight numbers. */
ALWAYS_INLINE __m128i bfloats_of(__m256i bits)
{
    const __m256i largest_number = _mm256_set1_epi32(0x7f800000);
    const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i is_nan = _mm256_cmpgt_epi32(size, largest_number);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i result = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}

static void encode_bf16(void *to, const float *from, size_t n)
{
    unsigned char *bytes = to;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(from + i));
        _mm_storeu_si128((__m128i *)(void *)(bytes + 2 * i), bfloats_of(bits));
    }
    for (; i < n; i++) {
        const uint16_t bfloat = bfloat_from_float_bits(bits_from_float(from[i]));
        memcpy(bytes + 2 * i, &bfloat, sizeof bfloat);
    }
}

static void decode_bf16(float *to, const void *from, size_t n)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i upper = _mm_loadu_si128((const __m128i *)(const void *)(bytes + 2 * i));
        const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16);
        _mm256_storeu_si256((__m256i *)(void *)(to + i), bits);
    }
    for (; i < n; i++) {
        uint16_t bfloat;
        memcpy(&bfloat, bytes + 2 * i, sizeof bfloat);
        const uint32_t bits = float_bits_from_bfloat(bfloat);
        memcpy(to + i, &bits, sizeof bits);
    }
}

static void rows_f16_from_f32(uint16_t *to, const float *from, size_t n)
{
    encode_f16(to, from, n);
}

static void rows_f32_from_f16(float *to, const uint16_t *from, size_t n)
{
    decode_f16(to, from, n);
}

ALWAYS_INLINE void write_line(void *line, uint32_t word)
{
    const __m256i words = _mm256_set1_epi32((int)word);
    _mm256_stream_si256((__m256i *)line, words);
    _mm256_stream_si256((__m256i *)line + 1, words);
}

static void rows_fill_past(void *to, uint32_t pattern, size_t n)
{
    fill_past(to, pattern, n, write_line);
}

void cl_rows_fill_avx2(cl_kernels *table)
{
    table->rows_fill_past = rows_fill_past;
    table->rows_f16_from_f32 = rows_f16_from_f32;
    table->rows_f32_from_f16 = rows_f32_from_f16;
    table->codec[CL_ROW_F16] = (cl_row_codec){1, 2, encode_f16, decode_f16};
    table->codec[CL_ROW_BF16] = (cl_row_codec){1, 2, encode_bf16, decode_bf16};
}
