/*
 * block_activation.c: the functions between the matrices of a feed-forward block.
 *
 * Each is computed as its paper writes it, in f32 with libm. NaN stays NaN. An engine may be given
 * other versions (engine_options.activations), which is how a comparison with an engine that
 * rounds more is made.
 */
#include "engine/block.h"

#include <math.h>

static void silu(float *z, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        z[i] = z[i] / (1.0f + expf(-z[i]));
    }
}

/* z/2 * (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))) */
static void gelu(float *z, size_t n)
{
    const float root = 0.79788456080286535588f; /* sqrt(2/pi) */
    for (size_t i = 0; i < n; i++) {
        z[i] = 0.5f * z[i] * (1.0f + tanhf(root * (z[i] + 0.044715f * z[i] * z[i] * z[i])));
    }
}

/* z * the normal distribution up to z */
static void gelu_erf(float *z, size_t n)
{
    const float root = 0.70710678118654752440f; /* sqrt(1/2) */
    for (size_t i = 0; i < n; i++) {
        z[i] = 0.5f * z[i] * (1.0f + erff(z[i] * root));
    }
}

static void relu(float *z, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        z[i] = z[i] < 0 ? 0 : z[i];
    }
}

static void relu_squared(float *z, size_t n)
{
    relu(z, n);
    for (size_t i = 0; i < n; i++) {
        z[i] *= z[i];
    }
}

const block_activation_function block_activations[BLOCK_ACTIVATIONS] = {
    [BLOCK_SILU] = silu,
    [BLOCK_GELU] = gelu,
    [BLOCK_GELU_ERF] = gelu_erf,
    [BLOCK_RELU] = relu,
    [BLOCK_RELU_SQUARED] = relu_squared,
};
