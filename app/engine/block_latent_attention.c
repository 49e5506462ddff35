/*
 * block_latent_attention.c: latent attention, absorbed and plain (block_latent_attention.h).
 *
 * Both forms begin alike: queries, the latent vector and its norm, the shared key. The memory rotates
 * the elements at the end of each head (cellar_rope.first). A product with one small matrix for each head
 * is one job: its rows are numbered through all heads and cut among the threads, so that many small
 * heads and few large ones keep them equally busy. Each value is one kernel call's, so the cut cannot
 * be seen.
 */
#include "engine/block_latent_attention.h"

#include <string.h>

/* The buffers of one run, each [n_tokens][its width]. */
typedef struct buffers {
    float *q_down; /* q_down's rows; NULL: there is no such matrix */
    float *q;      /* n_heads * (nope_size + rope_size) */
    float *latent; /* latent_size */
    float *rope;   /* rope_size */

    float *made; /* absorbed: queries in the latent space; plain: keys and values as they come */
    float *k;    /* as the memory takes them */
    float *v;    /* plain: as the memory takes them; absorbed: what leaves V_h */
    float *attended; /* as the memory gives it */
} buffers;

/* Widths of the buffers, in their order. */
typedef struct widths {
    uint64_t q_down, q, latent, rope, made, k, v, attended;
} widths;

static widths widths_of(const block_latent_attention *a)
{
    uint64_t n = a->n_heads;
    widths w = {.q_down = block_has(&a->q_down) ? a->q_down.weight.n_out : 0,
                .q = n * (a->nope_size + a->rope_size),
                .latent = a->latent_size,
                .rope = a->rope_size,
                .v = n * a->v_size};
    if (a->is_absorbed) {
        w.made = n * (a->latent_size + a->rope_size);
        w.k = a->latent_size + a->rope_size;
        w.attended = n * a->latent_size;
    } else {
        w.made = n * (a->nope_size + a->v_size);
        w.k = w.q;
        w.attended = w.v;
    }
    return w;
}

uint64_t block_latent_attention_scratch(const block_latent_attention *a)
{
    widths w = widths_of(a);
    return block_room(w.q_down) + block_room(w.q) + block_room(w.latent) + block_room(w.rope) +
           block_room(w.made) + block_room(w.k) + block_room(w.v) + block_room(w.attended);
}

static buffers cut_buffers(const block_latent_attention *a, const block_context *c)
{
    widths w = widths_of(a);
    float *left = c->scratch;
    buffers its;
    its.q_down = block_cut(&left, c, w.q_down);
    its.q = block_cut(&left, c, w.q);
    its.latent = block_cut(&left, c, w.latent);
    its.rope = block_cut(&left, c, w.rope);
    its.made = block_cut(&left, c, w.made);
    its.k = block_cut(&left, c, w.k);
    its.v = block_cut(&left, c, w.v);
    its.attended = block_cut(&left, c, w.attended);
    return its;
}

/* Queries, latents and shared keys of all tokens. */
static void project(const block_latent_attention *a, const block_context *c, const float *x,
                    const buffers *to)
{
    block_product products[3] = {{.linear = &a->latent, .x = x, .y = to->latent},
                                 {.linear = &a->rope, .x = x, .y = to->rope},
                                 {.linear = &a->q, .x = x, .y = to->q}};
    if (block_has(&a->q_down)) {
        products[2] = (block_product){.linear = &a->q_down, .x = x, .y = to->q_down};
    }
    block_multiply(c, products, 3, c->n_tokens);
    block_norm_run(&a->latent_norm, c, to->latent, to->latent, c->n_tokens);
    if (block_has(&a->q_down)) {
        if (a->q_norm.width > 0) {
            block_norm_run(&a->q_norm, c, to->q_down, to->q_down, c->n_tokens);
        }
        const block_product q = {.linear = &a->q, .x = to->q_down, .y = to->q};
        block_multiply(c, &q, 1, c->n_tokens);
    }
}

/* ---- a matrix for each head -------------------------------------------------------------------- */

/* Head h of a token: y[h * y_size] = weight h * x[h * x_size]. */
typedef struct head_job {
    const block_context *c;
    const block_weight *weight; /* of head 0; the others follow */
    uint32_t n_heads;
    const float *x; /* [n_tokens][n_heads * x_size] */
    float *y;       /* [n_tokens][n_heads * y_size] */
    uint32_t x_size, y_size;
} head_job;

static void multiply_heads_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const head_job *job = argument;
    const block_weight *w = job->weight;
    const uint64_t n_rows = (uint64_t)job->n_heads * w->n_out;
    const uint64_t end = n_rows * (part + 1) / n_parts;
    for (uint64_t row = n_rows * part / n_parts; row < end;) {
        const size_t head = (size_t)(row / w->n_out);
        const uint32_t first = (uint32_t)(row % w->n_out);
        const uint64_t left = end - row;
        const uint32_t last = left < w->n_out - first ? first + (uint32_t)left : w->n_out;
        const char *data = (const char *)w->data + head * w->n_out * w->row_bytes;
        job->c->table->weight[w->type].matmul(
            data, w->row_bytes, w->n_in, first, last, job->x + head * job->x_size,
            (size_t)job->n_heads * job->x_size, job->c->n_tokens, job->y + head * job->y_size,
            (size_t)job->n_heads * job->y_size);
        row += last - first;
    }
}

static void multiply_heads(head_job *job)
{
    const block_weight *w = job->weight;
    job->c->workers->work = (uint64_t)job->n_heads * w->n_out * w->n_in * job->c->n_tokens;
    block_workers_run(job->c->workers, multiply_heads_part, job);
}

/* Rows of `size` numbers from one place to another, where they lie further apart. */
static void copy_rows(float *to, size_t to_step, const float *from, size_t from_step, size_t n,
                      uint32_t size)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(to + i * to_step, from + i * from_step, size * sizeof *to);
    }
}

/* ---- the two forms ----------------------------------------------------------------------------- */

/* The memory's row of a token is [latent | rope], and each query is taken to where that lives. */
static void prepare_absorbed(const block_latent_attention *a, const block_context *c,
                             const buffers *its)
{
    const uint32_t k_size = a->latent_size + a->rope_size, q_size = a->nope_size + a->rope_size;
    copy_rows(its->k, k_size, its->latent, a->latent_size, c->n_tokens, a->latent_size);
    copy_rows(its->k + a->latent_size, k_size, its->rope, a->rope_size, c->n_tokens, a->rope_size);
    copy_rows(its->made + a->latent_size, k_size, its->q + a->nope_size, q_size,
              (size_t)c->n_tokens * a->n_heads, a->rope_size);
    head_job job = {.c = c,
                    .weight = &a->k_up,
                    .n_heads = a->n_heads,
                    .x = its->q,
                    .y = its->made,
                    .x_size = q_size,
                    .y_size = k_size};
    multiply_heads(&job);
}

/* A key for each head, all with the same end, and its value. */
static void prepare_plain(const block_latent_attention *a, const block_context *c,
                          const buffers *its)
{
    const uint32_t k_size = a->nope_size + a->rope_size, made = a->nope_size + a->v_size;
    const size_t n = (size_t)c->n_tokens * a->n_heads;
    const block_product kv = {.linear = &a->kv, .x = its->latent, .y = its->made};
    block_multiply(c, &kv, 1, c->n_tokens);
    copy_rows(its->k, k_size, its->made, made, n, a->nope_size);
    copy_rows(its->v, a->v_size, its->made + a->nope_size, made, n, a->v_size);
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        copy_rows(its->k + (size_t)t * a->n_heads * k_size + a->nope_size, k_size,
                  its->rope + (size_t)t * a->rope_size, 0, a->n_heads, a->rope_size);
    }
}

static cellar_status attend(const block_latent_attention *a, const block_context *c,
                            const buffers *its, cellar_error *error)
{
    const widths w = widths_of(a);
    const float *q = a->is_absorbed ? its->made : its->q;
    c->workers->work = c->n_tokens * (w.k + (a->is_absorbed ? 0 : w.v));
    cellar_status status = cellar_store(c->memory, c->ubatch, a->memory_layer, its->k,
                                        a->is_absorbed ? NULL : its->v, error);
    if (status != CELLAR_OK) {
        return status;
    }
    c->workers->work = c->n_tokens * ((a->is_absorbed ? w.made : w.q) + w.attended) * c->n_keys;
    return cellar_attend(c->memory, c->ubatch, a->memory_layer, q, its->attended, error);
}

cellar_status block_latent_attention_run(const block_latent_attention *a, const block_context *c,
                                         const float *x, float *out, float *residual,
                                         cellar_error *error)
{
    const buffers its = cut_buffers(a, c);
    project(a, c, x, &its);
    if (a->is_absorbed) {
        prepare_absorbed(a, c, &its);
    } else {
        prepare_plain(a, c, &its);
    }
    cellar_status status = attend(a, c, &its, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const float *values = its.attended;
    if (a->is_absorbed) {
        head_job job = {.c = c,
                        .weight = &a->v_up,
                        .n_heads = a->n_heads,
                        .x = its.attended,
                        .y = its.v,
                        .x_size = a->latent_size,
                        .y_size = a->v_size};
        multiply_heads(&job);
        values = its.v;
    }
    const block_product output = {.linear = &a->out, .x = values, .y = out, .residual = residual};
    block_multiply(c, &output, 1, c->n_tokens);
    return CELLAR_OK;
}
