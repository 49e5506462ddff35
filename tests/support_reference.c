/*
 * support_reference.c: a llama model in double, written to be read beside the formulas.
 *
 *     norm(x) = x / sqrt(mean(x^2) + 1e-5) * w         silu(z) = z / (1 + e^-z)
 *     x += Wo attend(R(p) Wq h, R(p) Wk h, Wv h)        h = norm(x)
 *     x += Wd (silu(Wg h) * Wu h)                       h = norm(x)
 *     logits = W norm(x)
 *
 * Nothing is shared with the engine but the file and the decoding of weight types. It holds whole
 * matrices of doubles and computes every token again for every layer: only for models as small as
 * support_model.h's.
 */
#include "support_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

typedef struct reference {
    const fixture_shape *shape;
    const fixture_rope *rope;
    const gguf_file *file;
    uint32_t n; /* tokens */
} reference;

static double *doubles(size_t n)
{
    double *block = calloc(n, sizeof *block);
    if (block == NULL) {
        fprintf(stderr, "support_reference: no memory\n");
        exit(1);
    }
    return block;
}

/* All numbers of a tensor; NULL if there is none. */
static double *numbers_of(const gguf_file *file, const char *name)
{
    const gguf_tensor *tensor = gguf_find_tensor(file, name);
    if (tensor == NULL) {
        return NULL;
    }
    cl_matmul_table table;
    memset(&table, 0, sizeof table);
    cl_matmul_fill(&table, 0);
    size_t n = tensor->n_elements;
    float *decoded = malloc(n * sizeof *decoded);
    double *numbers = doubles(n);
    table.weight[tensor->type].decode(decoded, tensor->data, n);
    for (size_t i = 0; i < n; i++) {
        numbers[i] = (double)decoded[i];
    }
    free(decoded);
    return numbers;
}

static double *layer_numbers(const reference *r, uint32_t layer, const char *part)
{
    char name[80];
    snprintf(name, sizeof name, "blk.%u.%s", (unsigned)layer, part);
    return numbers_of(r->file, name);
}

/* y [n][n_out] = x [n][n_in] times the matrix `prefix`.weight, plus its bias. From calloc. */
static double *linear(const reference *r, const char *prefix, const double *x, uint32_t n_in,
                      uint32_t n_out)
{
    char name[80];
    snprintf(name, sizeof name, "%s.weight", prefix);
    double *w = numbers_of(r->file, name);
    snprintf(name, sizeof name, "%s.bias", prefix);
    double *bias = numbers_of(r->file, name);
    double *y = doubles((size_t)r->n * n_out);
    for (uint32_t t = 0; t < r->n; t++) {
        for (uint32_t i = 0; i < n_out; i++) {
            double sum = bias == NULL ? 0 : bias[i];
            for (uint32_t j = 0; j < n_in; j++) {
                sum += w[(size_t)i * n_in + j] * x[(size_t)t * n_in + j];
            }
            y[(size_t)t * n_out + i] = sum;
        }
    }
    free(w);
    free(bias);
    return y;
}

static double *layer_linear(const reference *r, uint32_t layer, const char *part, const double *x,
                            uint32_t n_in, uint32_t n_out)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "blk.%u.%s", (unsigned)layer, part);
    return linear(r, prefix, x, n_in, n_out);
}

/* norm(x), from calloc; takes over the weights. */
static double *normed(const reference *r, const double *x, double *weights)
{
    uint32_t width = r->shape->n_embd;
    double *y = doubles((size_t)r->n * width);
    for (uint32_t t = 0; t < r->n; t++) {
        const double *row = x + (size_t)t * width;
        double squares = 0;
        for (uint32_t i = 0; i < width; i++) {
            squares += row[i] * row[i];
        }
        for (uint32_t i = 0; i < width; i++) {
            y[(size_t)t * width + i] = row[i] / sqrt(squares / width + 1e-5) * weights[i];
        }
    }
    free(weights);
    return y;
}

/* The angle by which pair i of a head turns from one position to the next. */
static double frequency(const reference *r, const double *factors, uint32_t i)
{
    const fixture_rope *rope = r->rope;
    double plain = pow(rope->base, -2.0 * i / rope->n_rot) / (factors == NULL ? 1 : factors[i]);
    if (rope->yarn_context <= 0) {
        return plain * rope->scale;
    }
    /* YaRN with beta 32 and 1: which pairs turn 32 times and once within the trained context. */
    double pi = acos(-1), unit = rope->n_rot / (2 * log(rope->base));
    double low = fmax(0, floor(unit * log(rope->yarn_context / (2 * pi * 32))));
    double high = fmin(rope->n_rot - 1, ceil(unit * log(rope->yarn_context / (2 * pi * 1))));
    double slow = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
    return plain * rope->scale * slow + plain * (1 - slow);
}

/* Turn the heads of x [n][n_heads][k_size], each token by its position. */
static void rotate(const reference *r, double *x, uint32_t n_heads)
{
    double *factors = numbers_of(r->file, "rope_freqs.weight");
    for (uint32_t t = 0; t < r->n; t++) {
        for (uint32_t head = 0; head < n_heads; head++) {
            double *row = x + ((size_t)t * n_heads + head) * r->shape->k_size;
            for (uint32_t i = 0; i < r->rope->n_rot / 2; i++) {
                double angle = t * frequency(r, factors, i), a = row[2 * i], b = row[2 * i + 1];
                row[2 * i] = (a * cos(angle) - b * sin(angle)) * r->rope->magnitude;
                row[2 * i + 1] = (a * sin(angle) + b * cos(angle)) * r->rope->magnitude;
            }
        }
    }
    free(factors);
}

/* out = the mean of v, weighted by how well query head `head` of token t fits each key up to t. */
static void attend_one(const reference *r, const double *q, const double *k, const double *v,
                       uint32_t t, uint32_t head, double *out)
{
    const fixture_shape *s = r->shape;
    uint32_t kv = head / (s->n_heads / s->n_kv_heads);
    double total = 0;
    for (uint32_t u = 0; u <= t; u++) {
        double score = 0;
        for (uint32_t i = 0; i < s->k_size; i++) {
            score += q[((size_t)t * s->n_heads + head) * s->k_size + i] *
                     k[((size_t)u * s->n_kv_heads + kv) * s->k_size + i];
        }
        double weight = exp(score / sqrt(s->k_size));
        total += weight;
        for (uint32_t i = 0; i < s->v_size; i++) {
            out[i] += weight * v[((size_t)u * s->n_kv_heads + kv) * s->v_size + i];
        }
    }
    for (uint32_t i = 0; i < s->v_size; i++) {
        out[i] /= total;
    }
}

static void add(double *to, double *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
    free(from);
}

static void attention(const reference *r, uint32_t layer, double *x)
{
    const fixture_shape *s = r->shape;
    double *h = normed(r, x, layer_numbers(r, layer, "attn_norm.weight"));
    double *q = layer_linear(r, layer, "attn_q", h, s->n_embd, s->n_heads * s->k_size);
    double *k = layer_linear(r, layer, "attn_k", h, s->n_embd, s->n_kv_heads * s->k_size);
    double *v = layer_linear(r, layer, "attn_v", h, s->n_embd, s->n_kv_heads * s->v_size);
    rotate(r, q, s->n_heads);
    rotate(r, k, s->n_kv_heads);
    double *seen = doubles((size_t)r->n * s->n_heads * s->v_size);
    for (uint32_t t = 0; t < r->n; t++) {
        for (uint32_t head = 0; head < s->n_heads; head++) {
            attend_one(r, q, k, v, t, head, seen + ((size_t)t * s->n_heads + head) * s->v_size);
        }
    }
    add(x, layer_linear(r, layer, "attn_output", seen, s->n_heads * s->v_size, s->n_embd),
        (size_t)r->n * s->n_embd);
    free(h);
    free(q);
    free(k);
    free(v);
    free(seen);
}

static void feed_forward(const reference *r, uint32_t layer, double *x)
{
    const fixture_shape *s = r->shape;
    double *h = normed(r, x, layer_numbers(r, layer, "ffn_norm.weight"));
    double *gate = layer_linear(r, layer, "ffn_gate", h, s->n_embd, s->n_ff);
    double *up = layer_linear(r, layer, "ffn_up", h, s->n_embd, s->n_ff);
    for (size_t i = 0; i < (size_t)r->n * s->n_ff; i++) {
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    }
    add(x, layer_linear(r, layer, "ffn_down", gate, s->n_ff, s->n_embd), (size_t)r->n * s->n_embd);
    free(h);
    free(gate);
    free(up);
}

fixture_rope fixture_default_rope(const fixture_shape *shape)
{
    return (fixture_rope){.n_rot = shape->n_rot ? shape->n_rot : shape->k_size,
                          .base = 10000,
                          .scale = 1,
                          .magnitude = 1};
}

void fixture_logits(const fixture_shape *shape, const fixture_rope *rope, const gguf_file *file,
                    const int32_t *tokens, uint32_t n, double *logits)
{
    reference r = {.shape = shape, .rope = rope, .file = file, .n = n};
    double *embedding = numbers_of(file, "token_embd.weight");
    double *x = doubles((size_t)n * shape->n_embd);
    for (uint32_t t = 0; t < n; t++) {
        memcpy(x + (size_t)t * shape->n_embd, embedding + (size_t)tokens[t] * shape->n_embd,
               shape->n_embd * sizeof *x);
    }
    for (uint32_t layer = 0; layer < shape->n_layers; layer++) {
        attention(&r, layer, x);
        feed_forward(&r, layer, x);
    }
    double *h = normed(&r, x, numbers_of(file, "output_norm.weight"));
    double *y = linear(&r, shape->has_output ? "output" : "token_embd", h, shape->n_embd,
                       FIXTURE_VOCABULARY);
    memcpy(logits, y, (size_t)n * FIXTURE_VOCABULARY * sizeof *logits);
    free(embedding);
    free(x);
    free(h);
    free(y);
}
