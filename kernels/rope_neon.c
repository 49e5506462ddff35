/*
 * rope_neon.c: rotation of pairs with NEON.
 *
 * Both layouts compute a' = fma(a, c, -(b s)) and b' = fma(b, c, a s) with the inner product rounded, in the
 * body and in the rest alike, so a pair's result depends neither on its place in the row nor on the layout.
 * Nothing here fails.
 */
#include "kernels.h"

#include "lanes_neon.h"

/* Four pairs: val[0] has the first numbers, val[1] the second ones. */
ALWAYS_INLINE float32x4x2_t turned(float32x4x2_t pairs, float32x4_t c, float32x4_t s)
{
    const float32x4_t a = pairs.val[0], b = pairs.val[1];
    float32x4x2_t result;
    result.val[0] = vfmaq_f32(vnegq_f32(vmulq_f32(b, s)), a, c);
    result.val[1] = vfmaq_f32(vmulq_f32(a, s), b, c);
    return result;
}

static void rope_normal(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    size_t i = 0;
    for (; i + FOUR <= n_pairs; i += FOUR)
        vst2q_f32(x + 2 * i, turned(vld2q_f32(x + 2 * i), vld1q_f32(c + i), vld1q_f32(s + i)));
    if (i < n_pairs) {
        const size_t rest = n_pairs - i; /* 1 to 3 pairs */
        float last[LANES], cosines[LANES], sines[LANES];
        rest_copy(last, x + 2 * i, 2 * rest);
        rest_copy(cosines, c + i, rest);
        rest_copy(sines, s + i, rest);
        vst2q_f32(last, turned(vld2q_f32(last), vld1q_f32(cosines), vld1q_f32(sines)));
        memcpy(x + 2 * i, last, 2 * rest * sizeof *x);
    }
}

ALWAYS_INLINE void turn_apart(float *a, float *b, const float *c, const float *s)
{
    const float32x4x2_t pairs = {{vld1q_f32(a), vld1q_f32(b)}};
    const float32x4x2_t result = turned(pairs, vld1q_f32(c), vld1q_f32(s));
    vst1q_f32(a, result.val[0]);
    vst1q_f32(b, result.val[1]);
}

static void rope_neox(float *x, uint32_t n_pairs, const float *c, const float *s)
{
    float *const y = x + n_pairs; /* the second halves */
    size_t i = 0;
    for (; i + FOUR <= n_pairs; i += FOUR)
        turn_apart(x + i, y + i, c + i, s + i);
    if (i < n_pairs) {
        const size_t rest = n_pairs - i;
        float firsts[LANES], seconds[LANES], cosines[LANES], sines[LANES];
        rest_copy(firsts, x + i, rest);
        rest_copy(seconds, y + i, rest);
        rest_copy(cosines, c + i, rest);
        rest_copy(sines, s + i, rest);
        turn_apart(firsts, seconds, cosines, sines);
        memcpy(x + i, firsts, rest * sizeof *x);
        memcpy(y + i, seconds, rest * sizeof *y);
    }
}

void cl_rope_fill_neon(cl_kernels *table)
{
    table->rope_normal = rope_normal;
    table->rope_neox = rope_neox;
}
