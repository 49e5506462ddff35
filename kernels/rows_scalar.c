/*
 * rows_scalar.c: rows from one number format to another, one number at a time.
 *
 * F32, F16 and BF16; the types with blocks are in quants_scalar.c. The bit patterns are those of
 * half.h, exactly those of the F16C instructions; every other version has to agree with this one in
 * every bit. Stored rows may lie at any address, so they are moved by memcpy. Nothing here fails.
 */
#include "kernels.h"

#include "half.h"

static void encode_f32(void *to, const float *from, size_t n)
{
    if (n > 0) memcpy(to, from, n * sizeof *from);
}

static void decode_f32(float *to, const void *from, size_t n)
{
    if (n > 0) memcpy(to, from, n * sizeof *to);
}

static void encode_f16(void *to, const float *from, size_t n)
{
    unsigned char *bytes = to;
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = half_from_float_bits(bits_from_float(from[i]));
        memcpy(bytes + 2 * i, &half, sizeof half);
    }
}

static void decode_f16(float *to, const void *from, size_t n)
{
    const unsigned char *bytes = from;
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, sizeof half);
        const uint32_t bits = float_bits_from_half(half);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static void encode_bf16(void *to, const float *from, size_t n)
{
    unsigned char *bytes = to;
    for (size_t i = 0; i < n; i++) {
        const uint16_t bfloat = bfloat_from_float_bits(bits_from_float(from[i]));
        memcpy(bytes + 2 * i, &bfloat, sizeof bfloat);
    }
}

static void decode_bf16(float *to, const void *from, size_t n)
{
    const unsigned char *bytes = from;
    for (size_t i = 0; i < n; i++) {
        uint16_t bfloat;
        memcpy(&bfloat, bytes + 2 * i, sizeof bfloat);
        const uint32_t bits = float_bits_from_bfloat(bfloat);
        memcpy(&to[i], &bits, sizeof bits);
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

static void rows_fill_past(void *to, uint32_t pattern, size_t n)
{
    unsigned char block[64], *bytes = to;
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (unsigned char)(pattern >> 8 * (i % 4));
    for (size_t done = 0; done < n; done += sizeof block)
        memcpy(bytes + done, block, n - done < sizeof block ? n - done : sizeof block);
}

void cl_rows_fill_scalar(cl_kernels *table)
{
    table->rows_fill_past = rows_fill_past;
    table->rows_f16_from_f32 = rows_f16_from_f32;
    table->rows_f32_from_f16 = rows_f32_from_f16;
    table->codec[CL_ROW_F32] = (cl_row_codec){1, 4, encode_f32, decode_f32};
    table->codec[CL_ROW_F16] = (cl_row_codec){1, 2, encode_f16, decode_f16};
    table->codec[CL_ROW_BF16] = (cl_row_codec){1, 2, encode_bf16, decode_bf16};
}
