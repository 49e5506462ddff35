/*
 * rows_avx2.c: rows from one number format to another with F16C, eight numbers at a time.
 *
 * The rest of a row goes one number at a time through the same instructions. The rounding mode is
 * named in the instruction, so the thread's own does not matter. Every bit is that of
 * rows_scalar.c. Nothing here fails.
 */
#include "kernels.h"

#include "lanes_avx2.h"

static void rows_f16_from_f32(uint16_t *to, const float *from, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i),
                                               _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + i), halves);
    }
    for (; i < n; i++)
        to[i] = (uint16_t)_mm_cvtsi128_si32(
            _mm_cvtps_ph(_mm_load_ss(from + i), _MM_FROUND_TO_NEAREST_INT));
}

static void rows_f32_from_f16(float *to, const uint16_t *from, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    for (; i < n; i++)
        _mm_store_ss(to + i, _mm_cvtph_ps(_mm_cvtsi32_si128(from[i])));
}

void cl_rows_fill_avx2(cl_kernels *table)
{
    table->rows_f16_from_f32 = rows_f16_from_f32;
    table->rows_f32_from_f16 = rows_f32_from_f16;
}
