/*
 * quants_neon.h: blocks of 32 small integers decoded with NEON; for stored rows and for weights.
 *
 * The layouts are those of quants.h. Quants become floats exactly, and are multiplied by the scale: what
 * packed.h computes, in the same steps, so every bit is its. All bytes are allowed at any address. A block
 * is taken eight numbers at a time (`eight`), which is a chunk of a sum (lanes_neon.h).
 */
#ifndef CL_QUANTS_NEON_H
#define CL_QUANTS_NEON_H

#include "lanes_neon.h"
#include "quants.h"

enum { EIGHTS = QUANTS / LANES }; /* chunks in a block */

/* An f16 in all lanes, as f32. */
ALWAYS_INLINE float32x4_t load_scale(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

/* scale * eight whole numbers; the product is exact (11 bits times 8). */
ALWAYS_INLINE void scaled_eight(float32x4_t to[HALVES], int8x8_t quants, float32x4_t scale)
{
    const int16x8_t words = vmovl_s8(quants);
    to[0] = vmulq_f32(scale, vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))));
    to[1] = vmulq_f32(scale, vcvtq_f32_s32(vmovl_high_s16(words)));
}

ALWAYS_INLINE void store_eight(float *to, const float32x4_t eight[HALVES])
{
    vst1q_f32(to, eight[0]);
    vst1q_f32(to + FOUR, eight[1]);
}

/* scale * sixteen whole numbers, stored. */
ALWAYS_INLINE void store_scaled(float *to, int8x16_t quants, float32x4_t scale)
{
    float32x4_t eight[HALVES];
    scaled_eight(eight, vget_low_s8(quants), scale);
    store_eight(to, eight);
    scaled_eight(eight, vget_high_s8(quants), scale);
    store_eight(to + LANES, eight);
}

/* ---- Q8_0: a scale, 32 signed bytes ---------------------------------------------------------- */

/* Numbers 8 c to 8 c + 7. */
ALWAYS_INLINE void eight_of_q8_0(float32x4_t to[HALVES], const unsigned char *block, int c,
                                 float32x4_t scale)
{
    scaled_eight(to, vreinterpret_s8_u8(vld1_u8(block + 2 + LANES * c)), scale);
}

static inline void decode_q8_0(float *to, const void *from, size_t n)
{
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        const float32x4_t scale = load_scale(block);
        foreach(c, EIGHTS) {
            float32x4_t eight[HALVES];
            eight_of_q8_0(eight, block, c, scale);
            store_eight(to + i + LANES * c, eight);
        }
    }
}

/* ---- Q4_0: a scale, 16 bytes of two quants each ---------------------------------------------- */

/* Numbers 8 c to 8 c + 7: low halves of the bytes, then high ones. */
ALWAYS_INLINE void eight_of_q4_0(float32x4_t to[HALVES], const unsigned char *block, int c,
                                 float32x4_t scale)
{
    const uint8x8_t bytes = vld1_u8(block + 2 + LANES * (c % 2));
    const uint8x8_t quants = c < 2 ? vand_u8(bytes, vdup_n_u8(15)) : vshr_n_u8(bytes, 4);
    scaled_eight(to, vsub_s8(vreinterpret_s8_u8(quants), vdup_n_s8(8)), scale);
}

static inline void decode_q4_0(float *to, const void *from, size_t n)
{
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 18) {
        const float32x4_t scale = load_scale(block);
        foreach(c, EIGHTS) {
            float32x4_t eight[HALVES];
            eight_of_q4_0(eight, block, c, scale);
            store_eight(to + i + LANES * c, eight);
        }
    }
}

#endif /* CL_QUANTS_NEON_H */
