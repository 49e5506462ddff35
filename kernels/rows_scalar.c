/*
 * rows_scalar.c: rows from one number format to another, one number at a time.
 *
 * The bit patterns are those of half.h, exactly those of the F16C instructions; every other version
 * has to agree with this one in every bit. Nothing here fails.
 */
#include "kernels.h"

#include "half.h"

static void rows_f16_from_f32(uint16_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        to[i] = half_from_float_bits(bits);
    }
}

static void rows_f32_from_f16(float *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits_from_half(from[i]);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

void cl_rows_fill_scalar(cl_kernels *table)
{
    table->rows_f16_from_f32 = rows_f16_from_f32;
    table->rows_f32_from_f16 = rows_f32_from_f16;
}
