/*
 * hadamard_neon.c: the Walsh-Hadamard transform, four numbers at a time.
 *
 * The butterflies are those of hadamard_scalar.c, and so is every bit: distances 1 and 2 inside a register,
 * then two distances for each pass over memory, which changes nothing about what is added to what. A
 * difference is a sum with the sign of one side turned. Nothing here fails.
 */
#include "kernels.h"

#include "hadamard.h"
#include "lanes_neon.h"

/* `swapped` has the partner of each number; where `sign` is set, the number is the second. */
ALWAYS_INLINE float32x4_t butterfly(float32x4_t x, float32x4_t swapped, uint32x4_t sign)
{
    return vaddq_f32(swapped, vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), sign)));
}

/* Distances 1 and 2. */
ALWAYS_INLINE float32x4_t transform_four(float32x4_t x)
{
    static const uint32_t odd[4] = {0, 0x80000000u, 0, 0x80000000u};
    static const uint32_t upper[4] = {0, 0, 0x80000000u, 0x80000000u};
    x = butterfly(x, vrev64q_f32(x), vld1q_u32(odd));
    return butterfly(x, vextq_f32(x, x, 2), vld1q_u32(upper));
}

/* distance and 2 * distance, both multiples of 4. */
static void transform_twice(float *x, uint32_t n, uint32_t distance)
{
    for (uint32_t start = 0; start < n; start += 4 * distance)
        for (uint32_t i = start; i < start + distance; i += FOUR) {
            float *const at[4] = {x + i, x + i + distance, x + i + 2 * distance,
                                  x + i + 3 * distance};
            const float32x4_t a = vld1q_f32(at[0]), b = vld1q_f32(at[1]);
            const float32x4_t c = vld1q_f32(at[2]), d = vld1q_f32(at[3]);
            const float32x4_t ab = vaddq_f32(a, b), a_b = vsubq_f32(a, b);
            const float32x4_t cd = vaddq_f32(c, d), c_d = vsubq_f32(c, d);
            vst1q_f32(at[0], vaddq_f32(ab, cd));
            vst1q_f32(at[1], vaddq_f32(a_b, c_d));
            vst1q_f32(at[2], vsubq_f32(ab, cd));
            vst1q_f32(at[3], vsubq_f32(a_b, c_d));
        }
}

/* The last distance, n / 2, if it was left over; and the factor. */
static void finish(float *x, uint32_t n, int is_left_over, float factor)
{
    const uint32_t half = n / 2;
    if (!is_left_over) {
        for (uint32_t i = 0; i < n; i += FOUR)
            vst1q_f32(x + i, vmulq_n_f32(vld1q_f32(x + i), factor));
        return;
    }
    for (uint32_t i = 0; i < half; i += FOUR) {
        const float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + half + i);
        vst1q_f32(x + i, vmulq_n_f32(vaddq_f32(a, b), factor));
        vst1q_f32(x + half + i, vmulq_n_f32(vsubq_f32(a, b), factor));
    }
}

static void hadamard(float *x, uint32_t n)
{
    const float factor = hadamard_factor(n);
    if (n < FOUR) { /* 1 or 2 numbers */
        const float a = x[0], b = n == 2 ? x[1] : 0;
        x[0] = n == 2 ? (a + b) * factor : a * factor;
        if (n == 2) x[1] = (a - b) * factor;
        return;
    }
    for (uint32_t i = 0; i < n; i += FOUR)
        vst1q_f32(x + i, transform_four(vld1q_f32(x + i)));
    uint32_t distance = FOUR;
    for (; 2 * distance < n; distance *= 4)
        transform_twice(x, n, distance);
    finish(x, n, distance < n, factor);
}

void cl_hadamard_fill_neon(cl_kernels *table)
{
    table->hadamard = hadamard;
}
