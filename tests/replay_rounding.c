/*
 * replay_rounding.c: products and activations that round as the reference does.
 *
 * The reference multiplies F16 weights with activations rounded to binary16, and Q8_0 weights with
 * activations in Q8_0: blocks of 32 with the scale max|x| / 127, kept as binary16; so it does with Q4_0,
 * and for K types in blocks of 256, with the scale kept as binary32. We keep
 * activations in f32, which is nearer to the truth and therefore further from the reference. Here
 * the activations are rounded in the same way, and then the real kernel computes; what remains
 * of the difference is what the replayer wants to see.
 *
 * The kernels' signature has no context, so the table that is wrapped is kept in this file; one
 * replayer at a time.
 */
#include "replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 32u
#define K_BLOCK 256u

static cl_matmul_table real; /* what the wrappers call */
static cl_kernels rows;      /* conversions to binary16 and back */
static block_activation_function activations[BLOCK_ACTIVATIONS];

static float through_f16(float x)
{
    uint16_t half;
    rows.rows_f16_from_f32(&half, &x, 1);
    rows.rows_f32_from_f16(&x, &half, 1);
    return x;
}

static void round_f16(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        x[i] = through_f16(x[i]);
    }
}

static void round_q8_0(float *x, uint32_t n)
{
    for (uint32_t start = 0; start + BLOCK <= n; start += BLOCK) {
        float most = 0;
        for (uint32_t i = 0; i < BLOCK; i++) {
            most = fmaxf(most, fabsf(x[start + i]));
        }
        float inverse = most > 0 ? 127.0f / most : 0, scale = through_f16(most / 127.0f);
        for (uint32_t i = 0; i < BLOCK; i++) {
            x[start + i] = nearbyintf(x[start + i] * inverse) * scale;
        }
    }
}

/* As the reference: the number of the largest magnitude becomes -127. */
static void round_q8_k(float *x, uint32_t n)
{
    for (uint32_t start = 0; start + K_BLOCK <= n; start += K_BLOCK) {
        float most = 0;
        for (uint32_t i = 0; i < K_BLOCK; i++) {
            if (fabsf(x[start + i]) > fabsf(most)) most = x[start + i];
        }
        float inverse = most != 0 ? -127.0f / most : 0, scale = most != 0 ? 1 / inverse : 0;
        for (uint32_t i = 0; i < K_BLOCK; i++) {
            x[start + i] = fminf(127, nearbyintf(x[start + i] * inverse)) * scale;
        }
    }
}

/* ---- activations ---------------------------------------------------------------------------- */

/*
 * The reference looks GELU up in a table whose arguments and values are binary16, from -10 to 10; behind
 * that it is 0 or its argument. It has no other GELU for models whose own is that of the error
 * function, so those get it too.
 */
static void gelu_by_table(float *z, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fabsf(z[i]) < 10) {
            z[i] = through_f16(z[i]);
            block_activations[BLOCK_GELU](&z[i], 1);
            z[i] = through_f16(z[i]);
        } else {
            z[i] = z[i] < 0 ? 0 : z[i];
        }
    }
}

const block_activation_function *replay_rounding_activations(uint32_t cpu_mask)
{
    cl_kernels_fill(&rows, cpu_mask);
    for (uint32_t i = 0; i < BLOCK_ACTIVATIONS; i++) {
        activations[i] = block_activations[i];
    }
    activations[BLOCK_GELU] = activations[BLOCK_GELU_ERF] = gelu_by_table;
    return activations;
}

/* ---- products ------------------------------------------------------------------------------- */

/* The arguments of a product, as kernels.h has them. */
#define PRODUCT                                                                                    \
    const void *w, size_t row_bytes, uint32_t n_in, uint32_t first, uint32_t last, const float *x, \
        size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride

static void multiply(const cl_weight *kernel, void (*round_row)(float *x, uint32_t n), PRODUCT)
{
    float *rounded = malloc((size_t)n_in * sizeof *rounded);
    if (rounded == NULL) {
        abort(); /* a test program without memory */
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        memcpy(rounded, x + t * x_stride, n_in * sizeof *rounded);
        round_row(rounded, n_in);
        kernel->matmul(w, row_bytes, n_in, first, last, rounded, n_in, 1, y + t * y_stride,
                       y_stride);
    }
    free(rounded);
}

#define DEFINE_PRODUCT(name, type, round)                                                          \
    static void multiply_##name(PRODUCT)                                                           \
    {                                                                                              \
        multiply(&real.weight[type], round, w, row_bytes, n_in, first, last, x, x_stride,          \
                 n_tokens, y, y_stride);                                                           \
    }
DEFINE_PRODUCT(f16, CL_WEIGHT_F16, round_f16)
DEFINE_PRODUCT(q8_0, CL_WEIGHT_Q8_0, round_q8_0)
DEFINE_PRODUCT(q4_0, CL_WEIGHT_Q4_0, round_q8_0)
DEFINE_PRODUCT(q4_k, CL_WEIGHT_Q4_K, round_q8_k)
DEFINE_PRODUCT(q6_k, CL_WEIGHT_Q6_K, round_q8_k)

void replay_rounding_fill(cl_matmul_table *table, uint32_t cpu_mask)
{
    cl_matmul_fill(&real, cpu_mask);
    cl_kernels_fill(&rows, cpu_mask);
    *table = real;
    table->is_rounding_faster = 0; /* activations are rounded once, as the reference does */
    table->weight[CL_WEIGHT_F16].matmul = multiply_f16;
    table->weight[CL_WEIGHT_Q8_0].matmul = multiply_q8_0;
    table->weight[CL_WEIGHT_Q4_0].matmul = multiply_q4_0;
    table->weight[CL_WEIGHT_Q4_K].matmul = multiply_q4_k;
    table->weight[CL_WEIGHT_Q6_K].matmul = multiply_q6_k;
}
