/*
 * block_norm.c: RMS norm of each token.
 *
 * The sum of squares is kept in double, in LANES partial sums added in a fixed order: nearly exact,
 * quick enough, and the same whatever else is computed beside it. Tokens are split over threads
 * when there are enough of them. Cannot fail; NaN and infinity in give NaN out.
 */
#include "engine/block.h"

#include <math.h>

#define LANES 4u

typedef struct norm_job {
    const block_norm *norm;
    const float *x;
    float *out;
    uint32_t n_tokens;
} norm_job;

static double sum_of_squares(const float *x, uint32_t n)
{
    double sum[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            sum[lane] += (double)x[i + lane] * x[i + lane];
        }
    }
    for (; i < n; i++) {
        sum[0] += (double)x[i] * x[i];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void norm_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const norm_job *job = argument;
    const block_norm *norm = job->norm;
    uint32_t first = (uint32_t)((uint64_t)job->n_tokens * part / n_parts);
    uint32_t last = (uint32_t)((uint64_t)job->n_tokens * (part + 1) / n_parts);
    for (uint32_t t = first; t < last; t++) {
        const float *x = job->x + (size_t)t * norm->width;
        float *out = job->out + (size_t)t * norm->width;
        double mean = sum_of_squares(x, norm->width) / norm->width;
        float factor = (float)(1.0 / sqrt(mean + norm->epsilon));
        for (uint32_t i = 0; i < norm->width; i++) {
            out[i] = x[i] * factor * norm->weight[i];
        }
    }
}

void block_norm_run(const block_norm *norm, const block_context *c, const float *x, float *out,
                    uint32_t n_tokens)
{
    norm_job job = {.norm = norm, .x = x, .out = out, .n_tokens = n_tokens};
    c->workers->work = (uint64_t)n_tokens * norm->width;
    block_workers_run(c->workers, norm_part, &job);
}
