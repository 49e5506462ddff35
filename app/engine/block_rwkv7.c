/*
 * block_rwkv7.c: time mix of RWKV-7.
 *
 * Numbers made by products are refined head by head, where the head's matrix is read and changed token by
 * token; split over threads by heads. Fails as block_recurrent.h says.
 */
#include <math.h>
#include <string.h>

#include "engine/block_rwkv.h"
#include "engine/block_state.h"

enum { R, W, K, V, A, G, N_MIXED };

/* The buffers of a micro-batch: [n_tokens][n_embd], but for the low ones. */
typedef struct time_job {
    const block_rwkv7_time *its;
    const block_context *c;
    const float *x;
    float *first_v;  /* v of the first layer */
    float *previous; /* then what v is mixed by */
    float *y, *told; /* result; -z S while a token is read */
    float *mixed[N_MIXED];
    float *made[N_MIXED];
    float *low[N_MIXED]; /* of w, v, a, g: [n_tokens][their rank] */
} time_job;

static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

/* Products of a job: those with a matrix. */
typedef struct product_list {
    block_product list[8];
    uint32_t n;
} product_list;

static void add(product_list *to, const block_linear *linear, const float *x, float *y)
{
    if (block_has(linear)) {
        to->list[to->n++] = (block_product){.linear = linear, .x = x, .y = y};
    }
}

static void make(const time_job *job)
{
    const block_rwkv7_time *its = job->its;
    const block_context *c = job->c;
    product_list in = {.n = 0}, up = {.n = 0};
    block_rwkv_shift(c, its->memory_layer, BLOCK_RWKV_TIME, its->n_embd, job->x, job->previous);
    for (uint32_t i = 0; i < N_MIXED; i++) {
        block_rwkv_mix(c, its->n_embd, job->x, job->previous, its->l + (size_t)i * its->n_embd,
                       job->mixed[i]);
    }
    add(&in, &its->r, job->mixed[R], job->made[R]);
    add(&in, &its->k, job->mixed[K], job->made[K]);
    add(&in, &its->v, job->mixed[V], job->made[V]);
    add(&in, &its->w_down, job->mixed[W], job->low[W]);
    add(&in, &its->a_down, job->mixed[A], job->low[A]);
    add(&in, &its->v_down, job->mixed[V], job->low[V]);
    add(&in, &its->g_down, job->mixed[G], job->low[G]);
    block_multiply(c, in.list, in.n, c->n_tokens);
    for (size_t i = 0; i < (size_t)c->n_tokens * its->w_down.weight.n_out; i++) {
        job->low[W][i] = tanhf(job->low[W][i]);
    }
    for (size_t i = 0; i < (size_t)c->n_tokens * its->g_down.weight.n_out; i++) {
        job->low[G][i] = sigmoid(job->low[G][i]);
    }
    add(&up, &its->w_up, job->low[W], job->made[W]);
    add(&up, &its->a_up, job->low[A], job->made[A]);
    add(&up, &its->v_up, job->low[V], job->previous);
    add(&up, &its->g_up, job->low[G], job->made[G]);
    block_multiply(c, up.list, up.n, c->n_tokens);
}

/* w becomes the decay, a its sigmoid; k and v get their final values; z is written to y. */
static void refine(const time_job *job, size_t at, size_t channel, uint32_t size)
{
    const block_rwkv7_time *its = job->its;
    float *w = job->made[W] + at, *k = job->made[K] + at, *v = job->made[V] + at;
    float *a = job->made[A] + at, *z = job->y + at, *first_v = job->first_v + at;
    double square = 0;
    for (uint32_t i = 0; i < size; i++) {
        w[i] = expf(-0.60653065971263342f * sigmoid(w[i])); /* e^-1/2 */
        a[i] = sigmoid(a[i]);
        z[i] = k[i] * its->k_k[channel + i];
        k[i] *= 1.0f + (a[i] - 1.0f) * its->k_a[channel + i];
        square += (double)z[i] * (double)z[i];
        if (its->is_first) {
            first_v[i] = v[i];
        } else {
            v[i] += (first_v[i] - v[i]) * sigmoid(job->previous[at + i]);
        }
    }
    const float by = (float)(1.0 / fmax(sqrt(square), 1e-12)); /* zeros stay zeros */
    for (uint32_t i = 0; i < size; i++) {
        z[i] *= by;
    }
}

/* One token of one head, whose numbers begin at `at`; S [k][v]. */
static void read_token(const void *its, uint32_t head, size_t at, uint32_t size, float *S)
{
    const time_job *job = its;
    refine(job, at, (size_t)head * size, size);
    const float *w = job->made[W] + at, *k = job->made[K] + at, *v = job->made[V] + at;
    const float *a = job->made[A] + at, *r = job->made[R] + at;
    float *z = job->mixed[K] + at, *y = job->y + at, *told = job->told + at;
    memcpy(z, y, size * sizeof *z);
    memset(y, 0, size * sizeof *y);
    memset(told, 0, size * sizeof *told);
    for (uint32_t i = 0; i < size; i++) {
        const float *row = S + (size_t)i * size;
        for (uint32_t j = 0; j < size; j++) {
            told[j] -= z[i] * row[j];
        }
    }
    for (uint32_t i = 0; i < size; i++) {
        float *row = S + (size_t)i * size;
        for (uint32_t j = 0; j < size; j++) {
            row[j] = row[j] * w[i] + a[i] * z[i] * told[j] + k[i] * v[j];
            y[j] += r[i] * row[j];
        }
    }
}

/* y = (norm(y) + (r * k * r_k summed over the head) v) * g */
static void finish(const time_job *job)
{
    const block_rwkv7_time *its = job->its;
    const uint32_t size = its->n_embd / its->n_heads, n_rows = job->c->n_tokens * its->n_heads;
    block_norm_run(&its->norm, job->c, job->y, job->y, n_rows);
    for (uint32_t row = 0; row < n_rows; row++) {
        const size_t at = (size_t)row * size, channel = (size_t)(row % its->n_heads) * size;
        const float *r = job->made[R] + at, *k = job->made[K] + at;
        float sum = 0;
        for (uint32_t i = 0; i < size; i++) {
            sum += r[i] * k[i] * its->r_k[channel + i];
        }
        for (uint32_t i = 0; i < size; i++) {
            job->y[at + i] = (job->y[at + i] + sum * job->made[V][at + i]) * job->made[G][at + i];
        }
    }
}

uint64_t block_rwkv7_time_scratch(const block_rwkv7_time *block)
{
    return (3 + 2 * N_MIXED) * block_room(block->n_embd) + block_room(block->w_down.weight.n_out) +
           block_room(block->a_down.weight.n_out) + block_room(block->v_down.weight.n_out) +
           block_room(block->g_down.weight.n_out);
}

cellar_status block_rwkv7_time_run(const block_rwkv7_time *block, const block_context *c,
                                   const float *x, float *out, float *residual, cellar_error *error)
{
    cellar_status status = block_state_check(c, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t n = block->n_embd;
    float *left = c->scratch;
    time_job job = {.its = block, .c = c, .x = x};
    job.first_v = c->kept;
    job.previous = block_cut(&left, c, n);
    job.y = block_cut(&left, c, n);
    job.told = block_cut(&left, c, n);
    for (uint32_t i = 0; i < N_MIXED; i++) {
        job.mixed[i] = block_cut(&left, c, n);
        job.made[i] = block_cut(&left, c, n);
    }
    job.low[W] = block_cut(&left, c, block->w_down.weight.n_out);
    job.low[A] = block_cut(&left, c, block->a_down.weight.n_out);
    job.low[V] = block_cut(&left, c, block->v_down.weight.n_out);
    job.low[G] = block_cut(&left, c, block->g_down.weight.n_out);
    make(&job);
    const block_rwkv_heads heads = {.c = c,
                                    .memory_layer = block->memory_layer,
                                    .n_embd = n,
                                    .n_heads = block->n_heads,
                                    .read = read_token,
                                    .job = &job};
    block_rwkv_read_heads(&heads, 6ull * c->n_tokens * n * (n / block->n_heads));
    finish(&job);
    const block_product last = {.linear = &block->out, .x = job.y, .y = out, .residual = residual};
    block_multiply(c, &last, 1, c->n_tokens);
    return CELLAR_OK;
}
