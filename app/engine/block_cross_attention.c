/*
 * block_cross_attention.c: attention to an encoding (block_cross_attention.h).
 *
 * An encoding has its keys row by row and its values column by column, so that scores and sums are both
 * products with a matrix of weights, and use the kernels for those. Keys are taken KEYS at a time with a
 * running maximum and sum, so room does not grow with the text; tokens are taken TOKENS at a time, so that
 * a prefill reads the encoding less often. Heads are divided among threads. The order in which keys
 * are added is that of the text, whatever is computed together. Cannot fail.
 */
#include "engine/block_cross_attention.h"

#include <math.h>
#include <string.h>

#define KEYS 128u
#define TOKENS 8u

uint64_t block_cross_attention_numbers(const block_cross_attention *a)
{
    return (uint64_t)a->n_heads * a->k_size + (uint64_t)a->n_heads * a->v_size;
}

uint64_t block_cross_attention_scratch(const block_cross_attention *a)
{
    return block_room((uint64_t)a->n_heads * a->k_size) +
           2 * block_room((uint64_t)a->n_heads * a->v_size);
}

static float *keys_of(const block_cross_attention *a, const block_encoding *encoding, uint32_t head)
{
    return encoding->rows + encoding->n_tokens * (a->first + (uint64_t)head * a->k_size);
}

static float *values_of(const block_cross_attention *a, const block_encoding *encoding,
                        uint32_t head)
{
    uint64_t keys = (uint64_t)a->n_heads * a->k_size;
    return encoding->rows + encoding->n_tokens * (a->first + keys + (uint64_t)head * a->v_size);
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* k [n_tokens][n_heads * k_size] and v likewise, from the text's first token on. */
static void write_text(const block_cross_attention *a, const block_encoding *to, const float *k,
                       const float *v)
{
    const uint32_t n = to->n_tokens;
    for (uint32_t h = 0; h < a->n_heads; h++) {
        float *keys = keys_of(a, to, h), *values = values_of(a, to, h);
        for (uint32_t t = 0; t < n; t++) {
            const size_t at = (size_t)t * a->n_heads + h;
            const float *value = v + at * a->v_size;
            memcpy(keys + (size_t)t * a->k_size, k + at * a->k_size, a->k_size * sizeof *keys);
            for (uint32_t i = 0; i < a->v_size; i++) {
                values[(size_t)i * n + t] = value[i];
            }
        }
    }
}

void block_cross_attention_encode(const block_cross_attention *a, const block_context *c,
                                  const float *x, const block_text *texts, uint32_t n)
{
    const size_t k_width = (size_t)a->n_heads * a->k_size;
    const size_t v_width = (size_t)a->n_heads * a->v_size;
    float *left = c->scratch;
    float *k = block_cut(&left, c, k_width), *v = block_cut(&left, c, v_width);
    const block_product products[2] = {{.linear = &a->k, .x = x, .y = k},
                                       {.linear = &a->v, .x = x, .y = v}};
    block_multiply(c, products, 2, c->n_tokens);
    for (uint32_t i = 0; i < n; i++) {
        write_text(a, &texts[i].encoding, k + texts[i].first * k_width,
                   v + texts[i].first * v_width);
    }
}

/* ---- attending --------------------------------------------------------------------------------- */

typedef struct attend_job {
    const block_cross_attention *a;
    const block_context *c;
    const float *q;  /* [n_tokens][n_heads * k_size] */
    float *attended; /* [n_tokens][n_heads * v_size] */
    float *part;     /* the same: what one block of keys adds */
} attend_job;

/* The running softmax of some tokens. */
typedef struct softmax {
    float scores[TOKENS][KEYS];
    float most[TOKENS], sum[TOKENS];
} softmax;

/*
 * Scores of n keys become weights relative to the largest score so far. Returns by how much what
 * was added before has to be multiplied.
 */
static float weigh(softmax *s, uint32_t t, uint32_t n, float scale)
{
    float *scores = s->scores[t], most = s->most[t], sum = 0;
    for (uint32_t j = 0; j < n; j++) {
        scores[j] *= scale;
        most = scores[j] > most ? scores[j] : most;
    }
    for (uint32_t j = 0; j < n; j++) {
        scores[j] = expf(scores[j] - most);
        sum += scores[j];
    }
    const float before = expf(s->most[t] - most);
    s->sum[t] = s->sum[t] * before + sum;
    s->most[t] = most;
    return before;
}

/* Tokens first..first+n-1 of the micro-batch, n <= TOKENS, of one head. */
static void attend_tokens(const attend_job *job, const block_encoding *encoding, uint32_t head,
                          uint32_t first, uint32_t n)
{
    const block_cross_attention *a = job->a;
    const cl_weight *f32 = &job->c->table->weight[CL_WEIGHT_F32];
    const size_t k_width = (size_t)a->n_heads * a->k_size;
    const size_t v_width = (size_t)a->n_heads * a->v_size;
    const size_t at = first * v_width + (size_t)head * a->v_size;
    const float *q = job->q + first * k_width + (size_t)head * a->k_size;
    const float *keys = keys_of(a, encoding, head), *values = values_of(a, encoding, head);
    const uint32_t n_keys = encoding->n_tokens;
    softmax s;
    for (uint32_t t = 0; t < n; t++) {
        s.most[t] = -INFINITY;
        s.sum[t] = 0;
        memset(job->attended + at + t * v_width, 0, a->v_size * sizeof *job->attended);
    }
    for (uint32_t key = 0; key < n_keys; key += KEYS) {
        const uint32_t n_now = n_keys - key < KEYS ? n_keys - key : KEYS;
        f32->matmul(keys + (size_t)key * a->k_size, a->k_size * sizeof *keys, a->k_size, 0, n_now,
                    q, k_width, n, s.scores[0], KEYS);
        float before[TOKENS];
        for (uint32_t t = 0; t < n; t++) {
            before[t] = weigh(&s, t, n_now, a->scale);
        }
        f32->matmul(values + key, n_keys * sizeof *values, n_now, 0, a->v_size, s.scores[0], KEYS,
                    n, job->part + at, v_width);
        for (uint32_t t = 0; t < n; t++) {
            float *to = job->attended + at + t * v_width;
            const float *part = job->part + at + t * v_width;
            for (uint32_t i = 0; i < a->v_size; i++) {
                to[i] = to[i] * before[t] + part[i];
            }
        }
    }
    for (uint32_t t = 0; t < n; t++) {
        float *to = job->attended + at + t * v_width;
        for (uint32_t i = 0; i < a->v_size; i++) {
            to[i] /= s.sum[t];
        }
    }
}

static void attend_part(void *argument, uint32_t part, uint32_t n_parts)
{
    const attend_job *job = argument;
    const block_context *c = job->c;
    const uint64_t n_heads = job->a->n_heads;
    const uint32_t end = (uint32_t)(n_heads * (part + 1) / n_parts);
    for (uint32_t head = (uint32_t)(n_heads * part / n_parts); head < end; head++) {
        for (uint32_t i = 0; i < c->place.n_segments; i++) {
            const cellar_segment *segment = &c->place.segments[i];
            for (uint32_t t = 0; t < segment->n_tokens; t += TOKENS) {
                const uint32_t left = segment->n_tokens - t;
                attend_tokens(job, c->encodings[i], head, segment->first + t,
                              left < TOKENS ? left : TOKENS);
            }
        }
    }
}

static uint64_t count_pairs(const block_context *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->place.n_segments; i++) {
        n += (uint64_t)c->place.segments[i].n_tokens * c->encodings[i]->n_tokens;
    }
    return n;
}

void block_cross_attention_run(const block_cross_attention *a, const block_context *c,
                               const float *x, float *out, float *residual)
{
    float *left = c->scratch;
    float *q = block_cut(&left, c, (uint64_t)a->n_heads * a->k_size);
    float *attended = block_cut(&left, c, (uint64_t)a->n_heads * a->v_size);
    float *part = block_cut(&left, c, (uint64_t)a->n_heads * a->v_size);
    const block_product query = {.linear = &a->q, .x = x, .y = q};
    block_multiply(c, &query, 1, c->n_tokens);
    attend_job job = {.a = a, .c = c, .q = q, .attended = attended, .part = part};
    c->workers->work = count_pairs(c) * block_cross_attention_numbers(a);
    block_workers_run(c->workers, attend_part, &job);
    const block_product output = {.linear = &a->out, .x = attended, .y = out, .residual = residual};
    block_multiply(c, &output, 1, c->n_tokens);
}
