/*
 * rows_neon.c: rows from one number format to another, four or eight numbers at a time.
 *
 * F16 with the conversions that every AArch64 processor has (FCVTL, FCVTN), and BF16; F32 is left to memcpy,
 * the types with blocks to quants_neon.c. The rest of a row goes one number at a time by half.h. Stored rows
 * are loaded and stored as bytes, whatever their address. Every bit is that of rows_scalar.c. Nothing fails.
 */
#include "kernels.h"

#include "half.h"
#include "lanes_neon.h"

static void encode_f16(void *to, const float *from, size_t n)
{
    unsigned char *bytes = to;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const float16x4_t low = vcvt_f16_f32(vld1q_f32(from + i));
        const float16x8_t halves = vcvt_high_f16_f32(low, vld1q_f32(from + i + FOUR));
        vst1q_u8(bytes + 2 * i, vreinterpretq_u8_f16(halves));
    }
    for (; i < n; i++) {
        const uint16_t half = half_from_float_bits(bits_from_float(from[i]));
        memcpy(bytes + 2 * i, &half, sizeof half);
    }
}

static void decode_f16(float *to, const void *from, size_t n)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(bytes + 2 * i));
        vst1q_f32(to + i, vcvt_f32_f16(vget_low_f16(halves)));
        vst1q_f32(to + i + FOUR, vcvt_high_f32_f16(halves));
    }
    for (; i < n; i++) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, sizeof half);
        const uint32_t bits = float_bits_from_half(half);
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* bfloat_from_float_bits() of four numbers, in the upper halves. */
ALWAYS_INLINE uint32x4_t bfloats_of(uint32x4_t bits)
{
    const uint32x4_t size = vandq_u32(bits, vdupq_n_u32(0x7fffffff));
    const uint32x4_t is_nan = vcgtq_u32(size, vdupq_n_u32(0x7f800000));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    return vbslq_u32(is_nan, vorrq_u32(bits, vdupq_n_u32(0x400000)), sum);
}

static void encode_bf16(void *to, const float *from, size_t n)
{
    unsigned char *bytes = to;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const uint32x4_t low = vreinterpretq_u32_f32(vld1q_f32(from + i));
        const uint32x4_t high = vreinterpretq_u32_f32(vld1q_f32(from + i + FOUR));
        const uint16x8_t upper = vshrn_high_n_u32(vshrn_n_u32(bfloats_of(low), 16),
                                                  bfloats_of(high), 16);
        vst1q_u8(bytes + 2 * i, vreinterpretq_u8_u16(upper));
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
        const uint16x8_t upper = vreinterpretq_u16_u8(vld1q_u8(bytes + 2 * i));
        const uint32x4_t low = vshll_n_u16(vget_low_u16(upper), 16);
        vst1q_f32(to + i, vreinterpretq_f32_u32(low));
        vst1q_f32(to + i + FOUR, vreinterpretq_f32_u32(vshll_high_n_u16(upper, 16)));
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

void cl_rows_fill_neon(cl_kernels *table)
{
    table->rows_f16_from_f32 = rows_f16_from_f32;
    table->rows_f32_from_f16 = rows_f32_from_f16;
    table->codec[CL_ROW_F16] = (cl_row_codec){1, 2, encode_f16, decode_f16};
    table->codec[CL_ROW_BF16] = (cl_row_codec){1, 2, encode_bf16, decode_bf16};
}
