/*
 * exp_neon.h: the exponential of four numbers, none above 0; for softmax and activations.
 *
 * The steps and constants of exp_avx2.h, which says where they come from, and so its bits. Within 2 units in
 * the last place. A lane depends on its own number alone. docs/kernels.md has the bound.
 */
#ifndef CL_EXP_NEON_H
#define CL_EXP_NEON_H

#include "lanes_neon.h"

/* e^x for x <= 0: exactly 1 for 0, exactly 0 below -87.33654; NaN stays NaN. */
ALWAYS_INLINE float32x4_t exp_four(float32x4_t x)
{
    const float32x4_t lowest = vdupq_n_f32(-87.33654f);
    const uint32x4_t is_below = vcltq_f32(x, lowest); /* false for NaN */
    x = vmaxq_f32(lowest, x);                         /* of a number and NaN: NaN */
    const float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0f)));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));

    float32x4_t p = vdupq_n_f32(0x1.6a2434p-10f);
    p = vfmaq_f32(vdupq_n_f32(0x1.1239e2p-7f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.5558f2p-5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.555492p-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), p, r);
    p = vfmaq_f32(r, vmulq_f32(r, r), p);
    p = vaddq_f32(p, vdupq_n_f32(1.0f));

    const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    const float32x4_t power = vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
    const uint32x4_t result = vreinterpretq_u32_f32(vmulq_f32(p, power));
    return vreinterpretq_f32_u32(vbicq_u32(result, is_below));
}

#endif /* CL_EXP_NEON_H */
