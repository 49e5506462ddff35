/*
 * block_state_space.c: Mamba-2's block: heads that share what they forget, write and read.
 *
 * A head's state is a matrix [channels of the head][n_state]; one number says how much of it stays. Token
 * by token, each head by itself, split over threads by heads. Fails as block_recurrent.h says.
 */
#include <math.h>

#include "engine/block_recurrent.h"
#include "engine/block_state.h"

#define TENSOR_SCAN 1u

/* The buffers of a micro-batch: [n_tokens][width]. */
typedef struct space_job {
    const block_state_space *its;
    const block_context *c;
    float *z, *ubc, *d; /* n_inner; convolution.n_channels; n_heads */
    float *y;           /* n_inner: what is normed and goes into the last product */
} space_job;

/* ln(1 + e^z); the same as z in f32 from 20 on. */
static float softplus(float z)
{
    return z > 20.0f ? z : log1pf(expf(z));
}

static void read_token(const space_job *job, uint32_t head, uint32_t token, float *state)
{
    const block_state_space *its = job->its;
    const uint32_t size = its->n_inner / its->n_heads, n = its->n_state;
    const uint32_t group = head / (its->n_heads / its->n_groups);
    const float *u = job->ubc + (size_t)token * its->convolution.n_channels;
    const float *b = u + its->n_inner + (size_t)group * n, *c = b + (size_t)its->n_groups * n;
    const size_t at = (size_t)token * its->n_inner + (size_t)head * size;
    const float d = softplus(job->d[(size_t)token * its->n_heads + head] + its->dt_bias[head]);
    const float stays = expf(d * its->a[head]);
    u += (size_t)head * size;
    for (uint32_t i = 0; i < size; i++) {
        float *h = state + (size_t)i * n, y = 0;
        const float z = job->z[at + i];
        for (uint32_t j = 0; j < n; j++) {
            h[j] = h[j] * stays + d * u[i] * b[j];
            y += h[j] * c[j];
        }
        y += its->skip[head] * u[i];
        job->y[at + i] = y * (z / (1.0f + expf(-z)));
    }
}

static void read_part(void *argument, uint32_t number, uint32_t n_parts)
{
    const space_job *job = argument;
    const block_state_space *its = job->its;
    const block_part part = block_part_of(its->n_heads, number, n_parts);
    const size_t n = (size_t)(its->n_inner / its->n_heads) * its->n_state;
    const size_t first = part.first * n, count = (part.end - part.first) * n;
    for (uint32_t i = 0; part.first < part.end && i < job->c->place.n_segments; i++) {
        block_state_segment segment = block_state_segment_of(job->c, its->memory_layer, i);
        float *state = block_state_enter(&segment, TENSOR_SCAN, first, count);
        for (uint32_t t = 0; t < segment.n_tokens; t++) {
            for (uint32_t head = part.first; head < part.end; head++) {
                read_token(job, head, segment.first + t, state + (head - part.first) * n);
            }
            block_state_keep(&segment, TENSOR_SCAN, t + 1, first, count);
        }
    }
}

uint64_t block_state_space_scratch(const block_state_space *block)
{
    return 2 * block_room(block->n_inner) + block_room(block->convolution.n_channels) +
           block_room(block->n_heads);
}

cellar_status block_state_space_run(const block_state_space *block, const block_context *c,
                                    const float *x, float *out, float *residual,
                                    cellar_error *error)
{
    cellar_status status = block_state_check(c, error);
    if (status != CELLAR_OK) {
        return status;
    }
    float *left = c->scratch;
    space_job job = {.its = block, .c = c};
    job.z = block_cut(&left, c, block->n_inner);
    job.y = block_cut(&left, c, block->n_inner);
    job.ubc = block_cut(&left, c, block->convolution.n_channels);
    job.d = block_cut(&left, c, block->n_heads);
    const block_product in[3] = {{.linear = &block->z, .x = x, .y = job.z},
                                 {.linear = &block->ubc, .x = x, .y = job.ubc},
                                 {.linear = &block->dt, .x = x, .y = job.d}};
    block_multiply(c, in, 3, c->n_tokens);
    block_convolution_run(&block->convolution, c, job.ubc, NULL, NULL);
    c->workers->work = 3ull * c->n_tokens * block->n_inner * block->n_state;
    block_workers_run(c->workers, read_part, &job);
    if (block->norm.width > 0) {
        block_norm_run(&block->norm, c, job.y, job.y, c->n_tokens * block->norm.n_groups);
    }
    const block_product last = {.linear = &block->out, .x = job.y, .y = out, .residual = residual};
    block_multiply(c, &last, 1, c->n_tokens);
    return cellar_confirm(c->memory, c->ubatch, block->memory_layer, error);
}
