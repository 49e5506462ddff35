/*
 * activate_neon.c: activations of feed-forward blocks, four numbers at a time.
 *
 * silu(z) = z / (1 + e^-z) is computed from e = e^-|z|, which cannot overflow: z / (1 + e) where z >= 0, and
 * z e / (1 + e) where z < 0. Below -87.33 e is 0, and so is the result, which would be above -2^-119. A number
 * depends on itself alone. NaN stays NaN. Nothing here fails.
 */
#include "kernels.h"

#include "exp_neon.h"

ALWAYS_INLINE float32x4_t silu_four(float32x4_t z)
{
    const uint32x4_t is_negative = vcltzq_s32(vreinterpretq_s32_f32(z)); /* by the sign */
    const float32x4_t e = exp_four(vnegq_f32(vabsq_f32(z)));
    const float32x4_t above = vbslq_f32(is_negative, vmulq_f32(z, e), z);
    return vdivq_f32(above, vaddq_f32(vdupq_n_f32(1.0f), e));
}

static void silu(float *z, size_t n)
{
    size_t i = 0;
    for (; i + FOUR <= n; i += FOUR)
        vst1q_f32(z + i, silu_four(vld1q_f32(z + i)));
    if (i < n) {
        float last[LANES];
        rest_copy(last, z + i, n - i);
        vst1q_f32(last, silu_four(vld1q_f32(last)));
        memcpy(z + i, last, (n - i) * sizeof *z);
    }
}

void cl_activate_fill_neon(cl_matmul_table *table)
{
    table->silu = silu;
}
