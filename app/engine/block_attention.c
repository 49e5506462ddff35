/*
 * block_attention.c: attention through the memory.
 *
 * The block computes queries, keys and values and hands them over as they are, not rotated: the
 * memory knows where each token stands, also after shifts, and rotates, stores and attends. What
 * comes back goes through the output matrix. A layer that reads another layer's rows has queries
 * alone. Fails only where the memory does.
 */
#include "engine/block.h"

#include <string.h>

/* The buffers of one run. */
typedef struct heads {
    float *q;        /* [n_tokens][n_heads * k_size] */
    float *k;        /* [n_tokens][n_kv_heads * k_size] */
    float *v;        /* [n_tokens][n_kv_heads * v_size] */
    float *attended; /* [n_tokens][n_heads * v_size] */
} heads;

uint64_t block_attention_scratch(const block_attention *a)
{
    return block_room((uint64_t)a->n_heads * a->k_size) +
           block_room((uint64_t)a->n_kv_heads * a->k_size) +
           block_room((uint64_t)a->n_kv_heads * a->v_size) +
           block_room((uint64_t)a->n_heads * a->v_size);
}

static void multiply(const block_attention *a, const block_context *c, const float *x,
                     const heads *to)
{
    block_product inputs[3] = {{.linear = &a->q, .x = x, .y = to->q}};
    uint32_t n = 1;
    if (block_has(&a->k)) {
        inputs[n++] = (block_product){.linear = &a->k, .x = x, .y = to->k};
    }
    if (block_has(&a->v)) {
        inputs[n++] = (block_product){.linear = &a->v, .x = x, .y = to->v};
    }
    block_multiply(c, inputs, n, c->n_tokens);
    if (block_has(&a->k) && !block_has(&a->v)) {
        size_t n_numbers = (size_t)c->n_tokens * a->n_kv_heads * a->v_size;
        memcpy(to->v, to->k, n_numbers * sizeof *to->v);
    }
}

static void clamp(float *x, size_t n, float most)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i]; /* NaN stays */
    }
}

/* Norm the heads of all tokens: each head by itself, or all heads of a token as one row. */
static void norm(const block_norm *by, const block_context *c, float *x, size_t n)
{
    if (by->width > 0) {
        block_norm_run(by, c, x, x, (uint32_t)(n / by->width));
    }
}

static void prepare(const block_attention *a, const block_context *c, const heads *to)
{
    size_t n_q = (size_t)c->n_tokens * a->n_heads * a->k_size;
    size_t n_k = (size_t)c->n_tokens * a->n_kv_heads * a->k_size;
    size_t n_v = (size_t)c->n_tokens * a->n_kv_heads * a->v_size;
    bool has_rows = block_has(&a->k);
    if (a->clamp > 0) {
        clamp(to->q, n_q, a->clamp);
        if (has_rows) {
            clamp(to->k, n_k, a->clamp);
            clamp(to->v, n_v, a->clamp);
        }
    }
    norm(&a->q_norm, c, to->q, n_q);
    if (has_rows) {
        norm(&a->k_norm, c, to->k, n_k);
        norm(&a->v_norm, c, to->v, n_v);
    }
}

static cellar_status attend(const block_attention *a, const block_context *c, const heads *with,
                            cellar_error *error)
{
    if (block_has(&a->k)) {
        uint64_t numbers = (uint64_t)a->n_kv_heads * (a->k_size + a->v_size);
        c->workers->work = c->n_tokens * numbers;
        cellar_status status = cellar_store(c->memory, c->ubatch, a->memory_layer, with->k, with->v,
                                            error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    uint64_t numbers = (uint64_t)a->n_heads * (a->k_size + a->v_size);
    c->workers->work = c->n_tokens * numbers * c->n_keys;
    return cellar_attend(c->memory, c->ubatch, a->memory_layer, with->q, with->attended, error);
}

cellar_status block_attention_run(const block_attention *a, const block_context *c, const float *x,
                                  float *out, float *residual, cellar_error *error)
{
    float *left = c->scratch;
    heads its;
    its.q = block_cut(&left, c, (uint64_t)a->n_heads * a->k_size);
    its.k = block_cut(&left, c, (uint64_t)a->n_kv_heads * a->k_size);
    its.v = block_cut(&left, c, (uint64_t)a->n_kv_heads * a->v_size);
    its.attended = block_cut(&left, c, (uint64_t)a->n_heads * a->v_size);

    multiply(a, c, x, &its);
    prepare(a, c, &its);
    cellar_status status = attend(a, c, &its, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const block_product output = {
        .linear = &a->out, .x = its.attended, .y = out, .residual = residual};
    block_multiply(c, &output, 1, c->n_tokens);
    return CELLAR_OK;
}
