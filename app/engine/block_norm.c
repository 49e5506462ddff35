/*
 * block_norm.c: norms of rows: RMS and layer norm.
 *
 * Sums are kept in double, in LANES partial sums added in a fixed order: nearly exact, quick enough,
 * and the same whatever else is computed beside it. Rows are split over threads when there are
 * enough of them. Cannot fail; NaN and infinity in give NaN out.
 */
#include "engine/block.h"

#include <math.h>

#define LANES 4u

typedef struct norm_job {
    const cl_matmul_table *table;
    const block_norm *norm;
    const float *x;
    float *out;
    uint32_t n_rows;
} norm_job;

static double sum(const float *x, uint32_t n)
{
    double lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += (double)x[i + lane];
        }
    }
    for (; i < n; i++) {
        lanes[0] += (double)x[i];
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* Of (x - from)^2. */
static double sum_of_squares(const float *x, uint32_t n, double from)
{
    double lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            double distance = (double)x[i + lane] - from;
            lanes[lane] += distance * distance;
        }
    }
    for (; i < n; i++) {
        lanes[0] += ((double)x[i] - from) * ((double)x[i] - from);
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

static void norm_row(const cl_matmul_table *table, const block_norm *norm, uint32_t group,
                     const float *x, float *out)
{
    uint32_t width = norm->width;
    if (norm->kind != BLOCK_NORM_LAYER && norm->bias == NULL) {
        const float *weight = norm->weight;
        table->rms_norm(out, x, weight != NULL ? weight + (size_t)group * width : NULL, width,
                        norm->epsilon);
        return;
    }
    double mean = norm->kind == BLOCK_NORM_LAYER ? sum(x, width) / width : 0;
    double square = sum_of_squares(x, width, mean) / width;
    float factor = (float)(1.0 / sqrt(square + (double)norm->epsilon)), offset = (float)mean;
    for (uint32_t i = 0; i < width; i++) {
        out[i] = (x[i] - offset) * factor;
    }
    if (norm->weight != NULL) {
        const float *weight = norm->weight + (size_t)group * width;
        for (uint32_t i = 0; i < width; i++) {
            out[i] *= weight[i];
        }
    }
    if (norm->bias != NULL) {
        const float *bias = norm->bias + (size_t)group * width;
        for (uint32_t i = 0; i < width; i++) {
            out[i] += bias[i];
        }
    }
}

static void norm_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const norm_job *job = argument;
    uint32_t first = (uint32_t)((uint64_t)job->n_rows * part / n_parts);
    uint32_t last = (uint32_t)((uint64_t)job->n_rows * (part + 1) / n_parts);
    for (uint32_t row = first; row < last; row++) {
        size_t at = (size_t)row * job->norm->width;
        norm_row(job->table, job->norm, row % job->norm->n_groups, job->x + at, job->out + at);
    }
}

void block_norm_run(const block_norm *norm, const block_context *c, const float *x, float *out,
                    uint32_t n_rows)
{
    norm_job job = {.table = c->table, .norm = norm, .x = x, .out = out, .n_rows = n_rows};
    c->workers->work = (uint64_t)n_rows * norm->width;
    block_workers_run(c->workers, norm_part, &job);
}
