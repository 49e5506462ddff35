/*
 * block_rwkv6.c: time mix of RWKV-6.
 *
 * The heads' matrices are read and changed token by token, split over threads by heads; the rest is
 * products for the whole micro-batch. Fails as block_recurrent.h says.
 */
#include <math.h>
#include <string.h>

#include "engine/block_rwkv.h"
#include "engine/block_state.h"

enum { W, K, V, R, G, N_MIXED };

/* The buffers of a micro-batch: [n_tokens][n_embd], but for the low ones. */
typedef struct time_job {
    const block_rwkv6_time *its;
    const block_context *c;
    const float *x;
    float *previous, *y;
    float *low[N_MIXED];   /* [n_tokens][rank] */
    float *decay_low;      /* [n_tokens][decay rank] */
    float *mixed[N_MIXED]; /* what the products read */
    float *made[N_MIXED];  /* what they give */
} time_job;

static void apply_tanh(float *z, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        z[i] = tanhf(z[i]);
    }
}

/* previous, then the five mixed inputs. */
static void mix(const time_job *job)
{
    const block_rwkv6_time *its = job->its;
    const block_context *c = job->c;
    const uint32_t n = its->n_embd;
    block_product down[N_MIXED], up[N_MIXED];
    block_rwkv_shift(c, its->memory_layer, BLOCK_RWKV_TIME, n, job->x, job->previous);
    block_rwkv_mix(c, n, job->x, job->previous, its->l_x, job->y);
    for (uint32_t i = 0; i < N_MIXED; i++) {
        down[i] = (block_product){.linear = &its->down[i], .x = job->y, .y = job->low[i]};
        up[i] = (block_product){.linear = &its->up[i], .x = job->low[i], .y = job->mixed[i]};
    }
    block_multiply(c, down, N_MIXED, c->n_tokens);
    for (uint32_t i = 0; i < N_MIXED; i++) {
        apply_tanh(job->low[i], (size_t)c->n_tokens * its->down[i].weight.n_out);
    }
    block_multiply(c, up, N_MIXED, c->n_tokens);
    for (uint32_t i = 0; i < N_MIXED; i++) {
        const float *l = its->l + (size_t)i * n;
        for (size_t at = 0; at < (size_t)c->n_tokens * n; at++) {
            const float by = l[at % n] + job->mixed[i][at];
            job->mixed[i][at] = job->x[at] + (job->previous[at] - job->x[at]) * by;
        }
    }
}

/* decay (in made[W]), k, v, r, silu(gate). */
static void make(const time_job *job)
{
    const block_rwkv6_time *its = job->its;
    const block_context *c = job->c;
    const size_t n = (size_t)c->n_tokens * its->n_embd;
    const block_product products[N_MIXED] = {
        {.linear = &its->decay_down, .x = job->mixed[W], .y = job->decay_low},
        {.linear = &its->k, .x = job->mixed[K], .y = job->made[K]},
        {.linear = &its->v, .x = job->mixed[V], .y = job->made[V]},
        {.linear = &its->r, .x = job->mixed[R], .y = job->made[R]},
        {.linear = &its->gate, .x = job->mixed[G], .y = job->made[G]}};
    block_multiply(c, products, N_MIXED, c->n_tokens);
    apply_tanh(job->decay_low, (size_t)c->n_tokens * its->decay_down.weight.n_out);
    const block_product decay = {.linear = &its->decay_up, .x = job->decay_low, .y = job->made[W]};
    block_multiply(c, &decay, 1, c->n_tokens);
    for (size_t i = 0; i < n; i++) {
        job->made[W][i] = expf(-expf(job->made[W][i]));
    }
    c->activations[BLOCK_SILU](job->made[G], n);
}

/* One token of one head, whose numbers begin at `at`; S [k][v]. */
static void read_token(const void *its, uint32_t head, size_t at, uint32_t size, float *S)
{
    const time_job *job = its;
    const float *w = job->made[W] + at, *k = job->made[K] + at, *v = job->made[V] + at;
    const float *r = job->made[R] + at, *first = job->its->first + (size_t)head * size;
    float *y = job->y + at;
    memset(y, 0, size * sizeof *y);
    for (uint32_t i = 0; i < size; i++) {
        float *row = S + (size_t)i * size;
        for (uint32_t j = 0; j < size; j++) {
            const float kv = k[i] * v[j];
            y[j] += r[i] * (row[j] + first[i] * kv);
            row[j] = row[j] * w[i] + kv;
        }
    }
}

uint64_t block_rwkv6_time_scratch(const block_rwkv6_time *block)
{
    return (2 + 2 * N_MIXED) * block_room(block->n_embd) +
           N_MIXED * block_room(block->down[0].weight.n_out) +
           block_room(block->decay_down.weight.n_out);
}

cellar_status block_rwkv6_time_run(const block_rwkv6_time *block, const block_context *c,
                                   const float *x, float *out, float *residual, cellar_error *error)
{
    cellar_status status = block_state_check(c, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t n = block->n_embd;
    float *left = c->scratch;
    time_job job = {.its = block, .c = c, .x = x};
    job.previous = block_cut(&left, c, n);
    job.y = block_cut(&left, c, n);
    for (uint32_t i = 0; i < N_MIXED; i++) {
        job.mixed[i] = block_cut(&left, c, n);
        job.made[i] = block_cut(&left, c, n);
        job.low[i] = block_cut(&left, c, block->down[i].weight.n_out);
    }
    job.decay_low = block_cut(&left, c, block->decay_down.weight.n_out);
    mix(&job);
    make(&job);
    const block_rwkv_heads heads = {.c = c,
                                    .memory_layer = block->memory_layer,
                                    .n_embd = n,
                                    .n_heads = block->n_heads,
                                    .read = read_token,
                                    .job = &job};
    block_rwkv_read_heads(&heads, 4ull * c->n_tokens * n * (n / block->n_heads));
    block_norm_run(&block->norm, c, job.y, job.y, c->n_tokens * block->n_heads);
    for (size_t i = 0; i < (size_t)c->n_tokens * n; i++) {
        job.y[i] *= job.made[G][i];
    }
    const block_product last = {.linear = &block->out, .x = job.y, .y = out, .residual = residual};
    block_multiply(c, &last, 1, c->n_tokens);
    return CELLAR_OK;
}
