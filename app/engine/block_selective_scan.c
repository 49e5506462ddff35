/*
 * block_selective_scan.c: Mamba's block, whose recurrence chooses what to keep by what it reads.
 *
 * Products are made for the whole micro-batch; the recurrence itself goes token by token, each
 * channel by itself, split over threads by channels. Fails as block_recurrent.h says.
 */
#include <math.h>

#include "engine/block_recurrent.h"
#include "engine/block_state.h"

#define TENSOR_SCAN 1u

/* The buffers of a micro-batch: [n_tokens][width]. */
typedef struct scan_job {
    const block_selective_scan *its;
    const block_context *context;
    float *u, *z, *d; /* n_inner; u becomes what goes into the last product */
    float *r, *b, *c; /* rank, n_state, n_state */
} scan_job;

/* ln(1 + e^z); the same as z in f32 from 20 on. */
static float softplus(float z)
{
    return z > 20.0f ? z : log1pf(expf(z));
}

static void scan_token(const scan_job *job, block_part part, uint32_t token, float *state)
{
    const block_selective_scan *its = job->its;
    const size_t row = (size_t)token * its->n_inner, n = its->n_state;
    const float *b = job->b + token * n, *c = job->c + token * n;
    for (uint32_t i = part.first; i < part.end; i++) {
        const float *a = its->a + i * n;
        const float u = job->u[row + i], z = job->z[row + i], d = softplus(job->d[row + i]);
        float *h = state + (i - part.first) * n, y = 0;
        for (size_t j = 0; j < n; j++) {
            h[j] = h[j] * expf(d * a[j]) + d * u * b[j];
            y += h[j] * c[j];
        }
        y += its->skip[i] * u;
        job->u[row + i] = y * (z / (1.0f + expf(-z)));
    }
}

static void scan_part(void *argument, uint32_t number, uint32_t n_parts)
{
    const scan_job *job = argument;
    const block_selective_scan *its = job->its;
    const block_part part = block_part_of(its->n_inner, number, n_parts);
    const size_t n = its->n_state, first = part.first * n, count = (part.end - part.first) * n;
    for (uint32_t i = 0; part.first < part.end && i < job->context->place.n_segments; i++) {
        block_state_segment segment = block_state_segment_of(job->context, its->memory_layer, i);
        float *state = block_state_enter(&segment, TENSOR_SCAN, first, count);
        for (uint32_t t = 0; t < segment.n_tokens; t++) {
            scan_token(job, part, segment.first + t, state);
            block_state_keep(&segment, TENSOR_SCAN, t + 1, first, count);
        }
    }
}

static void normalise(const block_norm *norm, const block_context *c, float *x)
{
    if (norm->width > 0) {
        block_norm_run(norm, c, x, x, c->n_tokens);
    }
}

/* r, b, c of u; d of r. */
static void make_parameters(const scan_job *job)
{
    const block_selective_scan *its = job->its;
    const block_context *context = job->context;
    const block_product of_u[3] = {{.linear = &its->r, .x = job->u, .y = job->r},
                                   {.linear = &its->b, .x = job->u, .y = job->b},
                                   {.linear = &its->c, .x = job->u, .y = job->c}};
    block_multiply(context, of_u, 3, context->n_tokens);
    normalise(&its->r_norm, context, job->r);
    normalise(&its->b_norm, context, job->b);
    normalise(&its->c_norm, context, job->c);
    const block_product of_r = {.linear = &its->dt, .x = job->r, .y = job->d};
    block_multiply(context, &of_r, 1, context->n_tokens);
}

uint64_t block_selective_scan_scratch(const block_selective_scan *block)
{
    return 3 * block_room(block->n_inner) + 2 * block_room(block->n_state) +
           block_room(block->r.weight.n_out);
}

cellar_status block_selective_scan_run(const block_selective_scan *block, const block_context *c,
                                       const float *x, float *out, float *residual,
                                       cellar_error *error)
{
    cellar_status status = block_state_check(c, error);
    if (status != CELLAR_OK) {
        return status;
    }
    float *left = c->scratch;
    scan_job job = {.its = block, .context = c};
    job.u = block_cut(&left, c, block->n_inner);
    job.z = block_cut(&left, c, block->n_inner);
    job.d = block_cut(&left, c, block->n_inner);
    job.r = block_cut(&left, c, block->r.weight.n_out);
    job.b = block_cut(&left, c, block->n_state);
    job.c = block_cut(&left, c, block->n_state);
    const block_product in[2] = {{.linear = &block->u, .x = x, .y = job.u},
                                 {.linear = &block->z, .x = x, .y = job.z}};
    block_multiply(c, in, 2, c->n_tokens);
    block_convolution_run(&block->convolution, c, job.u, NULL, NULL);
    make_parameters(&job);
    c->workers->work = 16ull * c->n_tokens * block->n_inner * block->n_state;
    block_workers_run(c->workers, scan_part, &job);
    const block_product last = {.linear = &block->out, .x = job.u, .y = out, .residual = residual};
    block_multiply(c, &last, 1, c->n_tokens);
    return cellar_confirm(c->memory, c->ubatch, block->memory_layer, error);
}
