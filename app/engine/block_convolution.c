/*
 * block_convolution.c: short causal convolutions with the inputs that they look back to.
 *
 * A channel's state is its last width - 1 inputs. Each token is one sum in a fixed order, then the
 * state moves on by one; so it makes no difference where a micro-batch ends. Split over threads by
 * channels. Cannot fail but for the memory.
 */
#include <math.h>

#include "engine/block_recurrent.h"
#include "engine/block_state.h"

typedef struct convolution_job {
    const block_convolution *its;
    const block_context *c;
    float *x;
    const float *before, *after;
} convolution_job;

/* One input; the state then holds it as the youngest. */
static float convolve(const block_convolution *its, uint32_t channel, float *state, float x)
{
    const float *weight = its->weight + (size_t)channel * its->width;
    const uint32_t n = its->width - 1;
    float sum = its->bias == NULL ? 0 : its->bias[channel];
    for (uint32_t i = 0; i < n; i++) {
        sum += weight[i] * state[i];
    }
    sum += weight[n] * x;
    for (uint32_t i = 0; i + 1 < n; i++) {
        state[i] = state[i + 1];
    }
    state[n - 1] = x;
    return its->has_silu ? sum / (1.0f + expf(-sum)) : sum;
}

static void convolve_token(const convolution_job *job, block_part part, uint32_t token,
                           float *state)
{
    const size_t n = job->its->width - 1, row = (size_t)token * job->its->n_channels;
    for (uint32_t i = part.first; i < part.end; i++) {
        float x = job->x[row + i];
        x = job->before == NULL ? x : x * job->before[row + i];
        float y = convolve(job->its, i, state + (i - part.first) * n, x);
        job->x[row + i] = job->after == NULL ? y : y * job->after[row + i];
    }
}

static void convolve_part(void *argument, uint32_t number, uint32_t n_parts)
{
    const convolution_job *job = argument;
    const block_convolution *its = job->its;
    const block_part part = block_part_of(its->n_channels, number, n_parts);
    const size_t n = its->width - 1, first = part.first * n, count = (part.end - part.first) * n;
    for (uint32_t i = 0; part.first < part.end && i < job->c->place.n_segments; i++) {
        block_state_segment segment = block_state_segment_of(job->c, its->memory_layer, i);
        float *state = block_state_enter(&segment, its->tensor, first, count);
        for (uint32_t t = 0; t < segment.n_tokens; t++) {
            convolve_token(job, part, segment.first + t, state);
            block_state_keep(&segment, its->tensor, t + 1, first, count);
        }
    }
}

void block_convolution_run(const block_convolution *convolution, const block_context *c, float *x,
                           const float *before, const float *after)
{
    convolution_job job = {.its = convolution, .c = c, .x = x, .before = before, .after = after};
    c->workers->work = (uint64_t)c->n_tokens * convolution->n_channels * (convolution->width + 8);
    block_workers_run(c->workers, convolve_part, &job);
}

/* ---- LFM2's block ------------------------------------------------------------------------------ */

uint64_t block_short_convolution_scratch(const block_short_convolution *block)
{
    return 3 * block_room(block->convolution.n_channels);
}

cellar_status block_short_convolution_run(const block_short_convolution *block,
                                          const block_context *c, const float *x, float *out,
                                          float *residual, cellar_error *error)
{
    cellar_status status = block_state_check(c, error);
    if (status != CELLAR_OK) {
        return status;
    }
    float *left = c->scratch;
    float *gate_in = block_cut(&left, c, block->convolution.n_channels);
    float *gate_out = block_cut(&left, c, block->convolution.n_channels);
    float *inner = block_cut(&left, c, block->convolution.n_channels);
    const block_product in[3] = {{.linear = &block->b, .x = x, .y = gate_in},
                                 {.linear = &block->c, .x = x, .y = gate_out},
                                 {.linear = &block->x, .x = x, .y = inner}};
    block_multiply(c, in, 3, c->n_tokens);
    block_convolution_run(&block->convolution, c, inner, gate_in, gate_out);
    const block_product last = {.linear = &block->out, .x = inner, .y = out, .residual = residual};
    block_multiply(c, &last, 1, c->n_tokens);
    return cellar_confirm(c->memory, c->ubatch, block->memory_layer, error);
}
