/*
 * packed_neon.h: blocks of 256 small integers unpacked with NEON, for the types that are met most.
 *
 * Q4_K and Q6_K; the layouts are told in packed.h, whose functions compute the same in the same steps and
 * roundings, so every bit is theirs. Sixteen numbers at a time. All bytes are allowed at any address.
 */
#ifndef CL_PACKED_NEON_H
#define CL_PACKED_NEON_H

#include "lanes_neon.h"
#include "packed.h"
#include "quants_neon.h"

/* scale * quant - offset of sixteen numbers; the product is exact, the difference rounded. */
ALWAYS_INLINE void store_with_offset(float *to, uint8x16_t quants, float scale, float offset)
{
    const uint16x8_t low = vmovl_u8(vget_low_u8(quants)), high = vmovl_high_u8(quants);
    const uint32x4_t whole[4] = {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low),
                                 vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)};
    const float32x4_t offsets = vdupq_n_f32(offset);
    foreach(v, 4) {
        const float32x4_t product = vmulq_n_f32(vcvtq_f32_u32(whole[v]), scale);
        vst1q_f32(to + FOUR * v, vsubq_f32(product, offsets));
    }
}

static inline void unpack_q4_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 144) {
        const float d = packed_half(block), m = packed_half(block + 2);
        for (size_t part = 0; part < 8; part += 2) {
            int scale[2], offset[2];
            packed_six_bits(block + 4, part, &scale[0], &offset[0]);
            packed_six_bits(block + 4, part + 1, &scale[1], &offset[1]);
            const float s[2] = {d * (float)scale[0], d * (float)scale[1]};
            const float o[2] = {m * (float)offset[0], m * (float)offset[1]};
            float *const numbers = to + i + part * 32;
            foreach(half, 2) {
                const uint8x16_t pairs = vld1q_u8(block + 16 + part * 16 + 16 * half);
                const uint8x16_t low = vandq_u8(pairs, vdupq_n_u8(15));
                store_with_offset(numbers + 16 * half, low, s[0], o[0]);
                store_with_offset(numbers + 32 + 16 * half, vshrq_n_u8(pairs, 4), s[1], o[1]);
            }
        }
    }
}

static inline void unpack_q6_k(float *to, const void *row, size_t n)
{
    const unsigned char *block = row;
    for (size_t i = 0; i < n; i += K_QUANTS, block += 210) {
        const float d = packed_half(block + 208);
        for (size_t part = 0; part < 16; part++) { /* sixteen numbers */
            const size_t half = part / 8, q = part / 2 % 4, l = part % 2 * 16;
            const uint8x16_t low = vld1q_u8(block + half * 64 + q % 2 * 32 + l);
            const uint8x16_t high = vld1q_u8(block + 128 + half * 32 + l);
            const uint8x16_t four = q < 2 ? vandq_u8(low, vdupq_n_u8(15)) : vshrq_n_u8(low, 4);
            const int8x16_t to_the_right = vdupq_n_s8((int8_t)(-2 * (int)q));
            const uint8x16_t two = vandq_u8(vshlq_u8(high, to_the_right), vdupq_n_u8(3));
            const uint8x16_t quants = vorrq_u8(four, vshlq_n_u8(two, 4));
            const float scale = d * (float)(int8_t)block[192 + part];
            store_scaled(to + i + part * 16, vsubq_s8(vreinterpretq_s8_u8(quants), vdupq_n_s8(32)),
                         vdupq_n_f32(scale));
        }
    }
}

#endif /* CL_PACKED_NEON_H */
