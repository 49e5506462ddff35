/*
 * support_lab.c: the computation of a lab, in double, one token at a time.
 *
 *     h = norm(x);   x += r * norm2(attention(h));   h = norm(x);   x += r * norm4(feed_forward(h))
 *
 * or, in parallel, both of the first h. Written to be read beside the formulas of the architectures, with
 * no regard for speed.
 */
#include "support_lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(size_t n)
{
    double *block = calloc(n + 1, sizeof *block);
    if (block == NULL) {
        fprintf(stderr, "support_lab: no memory\n");
        exit(1);
    }
    return block;
}

lab lab_create(const lab_shape *shape)
{
    return (lab){.shape = *shape, .made = lab_write(shape)};
}

static void forget(lab_cell *cell)
{
    for (uint32_t i = 0; i < LAB_MOST_LAYERS; i++) {
        free(cell->k[i]);
        free(cell->v[i]);
    }
}

void lab_destroy(lab *l)
{
    for (uint32_t i = 0; i < l->n_cells; i++) {
        forget(&l->cells[i]);
    }
    free(l->cells);
    fixture_destroy(&l->made);
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* The numbers of "blk.<layer>.<part>" (layer < 0: of "<part>"), NULL if there is no such tensor. */
static const float *numbers_of(const lab *l, int layer, const char *part)
{
    char name[80];
    if (layer < 0) {
        snprintf(name, sizeof name, "%s", part);
    } else {
        snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    }
    const gguf_tensor *tensor = gguf_find_tensor(l->made.file, name);
    return tensor == NULL ? NULL : tensor->data;
}

/* y [n_out] = rows [n_out][n_in] * x */
static void multiply(const float *rows, const double *x, uint32_t n_in, uint32_t n_out, double *y)
{
    for (uint32_t i = 0; i < n_out; i++) {
        y[i] = 0;
        for (uint32_t j = 0; j < n_in; j++) {
            y[i] += (double)rows[(size_t)i * n_in + j] * x[j];
        }
    }
}

/* y = <part>.weight * x + <part>.bias */
static void linear(const lab *l, int layer, const char *part, const double *x, uint32_t n_in,
                   uint32_t n_out, double *y)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", part);
    multiply(numbers_of(l, layer, name), x, n_in, n_out, y);
    snprintf(name, sizeof name, "%s.bias", part);
    const float *bias = numbers_of(l, layer, name);
    for (uint32_t i = 0; bias != NULL && i < n_out; i++) {
        y[i] += (double)bias[i];
    }
}

/* ---- norms ---------------------------------------------------------------------------------- */

static void normalise(bool is_layer_norm, const float *weight, const float *bias, const double *x,
                      uint32_t n, double *y)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; is_layer_norm && i < n; i++) {
        mean += x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        square += (x[i] - mean) * (x[i] - mean) / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(square + 1e-5);
        y[i] = y[i] * (weight ? (double)weight[i] : 1) + (bias ? (double)bias[i] : 0);
    }
}

static void norm(const lab *l, int layer, const char *part, const double *x, double *y)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", part);
    snprintf(bias, sizeof bias, "%s.bias", part);
    normalise(l->shape.is_layer_norm, numbers_of(l, layer, weight), numbers_of(l, layer, bias), x,
              l->shape.n_embd, y);
}

/* Of the heads of a query or a key. */
static void norm_heads(const lab *l, int layer, const char *part, uint32_t n_heads, double *x)
{
    const lab_shape *s = &l->shape;
    const float *weight = numbers_of(l, layer, part);
    if (s->head_norm == LAB_NO_HEAD_NORM) {
        return;
    }
    if (s->head_norm == LAB_WHOLE_ROW) {
        char bias[64];
        snprintf(bias, sizeof bias, "%.*s.bias", (int)(strlen(part) - strlen(".weight")), part);
        normalise(true, weight, numbers_of(l, layer, bias), x, n_heads * s->k_size, x);
        return;
    }
    for (uint32_t i = 0; i < n_heads; i++) {
        bool is_own = s->head_norm == LAB_ONE_EACH;
        normalise(is_own, weight + (is_own ? i * s->k_size : 0), NULL, x + i * s->k_size, s->k_size,
                  x + i * s->k_size);
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

static double or_one(double scale)
{
    return scale > 0 ? scale : 1;
}

static void rotate(const lab *l, double *head, int32_t position)
{
    const lab_shape *s = &l->shape;
    const float *divisors = s->divisors == NULL ? NULL : numbers_of(l, -1, s->divisors);
    double m = or_one(s->rotated_magnitude);
    uint32_t n_rot = s->n_rot ? s->n_rot : s->k_size;
    for (uint32_t i = 0; s->rope != LAB_NO_ROPE && i < n_rot / 2; i++) {
        uint32_t a = s->rope == LAB_HALVES ? i : 2 * i;
        uint32_t b = s->rope == LAB_HALVES ? i + n_rot / 2 : 2 * i + 1;
        double angle = position * pow(s->base, -2.0 * i / n_rot), x = head[a], y = head[b];
        angle /= divisors == NULL ? 1 : (double)divisors[i];
        head[a] = m * (x * cos(angle) - y * sin(angle));
        head[b] = m * (x * sin(angle) + y * cos(angle));
    }
}

/* Of head h (Press et al.): a geometric series over the next power of two below, and between. */
static double slope(const lab_shape *s, uint32_t h)
{
    uint32_t power = 1;
    while (power * 2 <= s->n_heads)
        power *= 2;
    return h < power ? pow(2, -s->alibi * (h + 1) / power)
                     : pow(2, -s->alibi / 2 * (2 * (h - power) + 1) / power);
}

static void clamp(const lab_shape *s, double *x, uint32_t n)
{
    for (uint32_t i = 0; s->clamp > 0 && i < n; i++) {
        x[i] = fmin(fmax(x[i], -s->clamp), s->clamp);
    }
}

static void make_heads(const lab *l, int layer, const double *h, double *q, double *k, double *v)
{
    const lab_shape *s = &l->shape;
    uint32_t n_q = s->n_heads * s->k_size, n_kv = s->n_kv_heads * s->k_size;
    if (s->is_fused) {
        double *all = doubles(n_q + 2 * n_kv);
        linear(l, layer, "attn_qkv", h, s->n_embd, n_q + 2 * n_kv, all);
        memcpy(q, all, n_q * sizeof *q);
        memcpy(k, all + n_q, n_kv * sizeof *k);
        memcpy(v, all + n_q + n_kv, n_kv * sizeof *v);
        free(all);
    } else {
        linear(l, layer, "attn_q", h, s->n_embd, n_q, q);
        linear(l, layer, "attn_k", h, s->n_embd, n_kv, k);
        linear(l, layer, s->has_no_v ? "attn_k" : "attn_v", h, s->n_embd, n_kv, v);
    }
    clamp(s, q, n_q);
    clamp(s, k, n_kv);
    clamp(s, v, n_kv);
    norm_heads(l, layer, "attn_q_norm.weight", s->n_heads, q);
    norm_heads(l, layer, "attn_k_norm.weight", s->n_kv_heads, k);
    for (uint32_t i = 0; s->has_value_norm && i < s->n_kv_heads; i++) {
        normalise(false, NULL, NULL, v + i * s->k_size, s->k_size, v + i * s->k_size);
    }
}

/* The score of a query head, rotated, with a cell; -INFINITY: it is not seen. */
static double score(const lab *l, int layer, uint32_t head, const double *q, int32_t position,
                    const lab_cell *cell)
{
    const lab_shape *s = &l->shape;
    bool has_window = s->window > 0 && s->is_window[layer];
    int32_t distance = position - cell->position;
    if (distance < 0 || (has_window && distance >= (int32_t)s->window)) {
        return -INFINITY;
    }
    double k[64], sum = 0;
    memcpy(k, cell->k[layer] + head / (s->n_heads / s->n_kv_heads) * s->k_size,
           s->k_size * sizeof *k);
    if (has_window || !s->do_only_windows_rotate) {
        rotate(l, k, cell->position);
    }
    for (uint32_t i = 0; i < s->k_size; i++) {
        sum += q[i] * k[i];
    }
    sum *= s->attention_scale > 0 ? s->attention_scale : 1 / sqrt(s->k_size);
    if (s->softcap > 0) {
        sum = s->softcap * tanh(sum / s->softcap);
    }
    return s->alibi > 0 ? sum - slope(s, head) * distance : sum;
}

/* out [n_heads * k_size] of the cell that was added last. */
static void attend(const lab *l, int layer, double *q, double *out)
{
    const lab_shape *s = &l->shape;
    int32_t position = l->cells[l->n_cells - 1].position;
    bool has_window = s->window > 0 && s->is_window[layer];
    for (uint32_t h = 0; h < s->n_heads; h++) {
        double *query = q + h * s->k_size, *to = out + h * s->k_size, sum = 0, most = -INFINITY;
        double *scores = doubles(l->n_cells);
        if (has_window || !s->do_only_windows_rotate) {
            rotate(l, query, position);
        }
        for (uint32_t i = 0; i < l->n_cells; i++) {
            scores[i] = score(l, layer, h, query, position, &l->cells[i]);
            most = fmax(most, scores[i]);
        }
        memset(to, 0, s->k_size * sizeof *to);
        for (uint32_t i = 0; i < l->n_cells; i++) {
            const double *v = l->cells[i].v[layer] + h / (s->n_heads / s->n_kv_heads) * s->k_size;
            double weight = exp(scores[i] - most);
            sum += weight;
            for (uint32_t j = 0; j < s->k_size; j++)
                to[j] += weight * v[j];
        }
        for (uint32_t j = 0; j < s->k_size; j++)
            to[j] /= sum;
        free(scores);
    }
}

/* out [n_embd] */
static void attention(const lab *l, int layer, const double *h, double *out)
{
    const lab_shape *s = &l->shape;
    lab_cell *cell = &l->cells[l->n_cells - 1];
    uint32_t n_q = s->n_heads * s->k_size;
    double *q = doubles(n_q), *attended = doubles(n_q);
    cell->k[layer] = doubles(s->n_kv_heads * s->k_size);
    cell->v[layer] = doubles(s->n_kv_heads * s->k_size);
    make_heads(l, layer, h, q, cell->k[layer], cell->v[layer]);
    attend(l, layer, q, attended);
    linear(l, layer, "attn_output", attended, n_q, s->n_embd, out);
    free(q);
    free(attended);
}

/* ---- feed-forward --------------------------------------------------------------------------- */

static double activate(lab_activation kind, double z)
{
    switch (kind) {
    case LAB_SILU:
        return z / (1 + exp(-z));
    case LAB_GELU_TANH:
        return z / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
    default:
        return z / 2 * (1 + erf(z / sqrt(2)));
    }
}

/* out += by * down(activation(gate h) * up h) of the tensors named. */
static void add_gated(const lab *l, int layer, const char *gate, const char *up, const char *down,
                      uint32_t expert, uint32_t n_ff, double by, const double *h, double *out)
{
    const lab_shape *s = &l->shape;
    size_t skip = (size_t)expert * s->n_embd * n_ff;
    double *g = doubles(n_ff), *u = doubles(n_ff), *y = doubles(s->n_embd);
    multiply(numbers_of(l, layer, gate) + skip, h, s->n_embd, n_ff, g);
    multiply(numbers_of(l, layer, up) + skip, h, s->n_embd, n_ff, u);
    for (uint32_t i = 0; i < n_ff; i++) {
        g[i] = activate(s->activation, g[i]) * u[i];
    }
    multiply(numbers_of(l, layer, down) + skip, g, n_ff, s->n_embd, y);
    for (uint32_t i = 0; i < s->n_embd; i++) {
        out[i] += by * y[i];
    }
    free(g);
    free(u);
    free(y);
}

static void add_expert(const lab *l, int layer, uint32_t expert, double by, const double *h,
                       double *out)
{
    const lab_shape *s = &l->shape;
    if (!s->has_a_tensor_for_each_expert) {
        add_gated(l, layer, "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
                  expert, s->n_expert_ff, by, h, out);
        return;
    }
    char gate[32], up[32], down[32];
    snprintf(gate, sizeof gate, "ffn_gate.%u.weight", (unsigned)expert);
    snprintf(up, sizeof up, "ffn_up.%u.weight", (unsigned)expert);
    snprintf(down, sizeof down, "ffn_down.%u.weight", (unsigned)expert);
    add_gated(l, layer, gate, up, down, 0, s->n_expert_ff, by, h, out);
}

static void experts(const lab *l, int layer, const double *h, double *out)
{
    const lab_shape *s = &l->shape;
    double *p = doubles(s->n_experts), sum = 0, weights = 0;
    bool is_chosen[64] = {false};
    const float *bias = numbers_of(l, layer, "exp_probs_b.bias");
    linear(l, layer, "ffn_gate_inp", h, s->n_embd, s->n_experts, p);
    for (uint32_t i = 0; i < s->n_experts; i++)
        sum += exp(p[i]);
    for (uint32_t i = 0; i < s->n_experts; i++) {
        p[i] = s->is_sigmoid ? 1 / (1 + exp(-p[i])) : exp(p[i]) / sum;
    }
    for (uint32_t n = 0; n < s->n_used; n++) {
        uint32_t best = s->n_experts;
        double most = -INFINITY;
        for (uint32_t i = 0; i < s->n_experts; i++) {
            double rank = p[i] + (bias ? (double)bias[i] : 0);
            if (!is_chosen[i] && rank > most) most = rank, best = i;
        }
        is_chosen[best] = true;
        weights += p[best];
    }
    double by = (s->expert_scale > 0 ? s->expert_scale : 1) / (s->is_renormalised ? weights : 1);
    for (uint32_t i = 0; i < s->n_experts; i++) {
        if (is_chosen[i]) add_expert(l, layer, i, by * p[i], h, out);
    }
    if (s->n_shared_ff > 0) {
        double gate = 1;
        if (s->has_shared_gate) {
            multiply(numbers_of(l, layer, "ffn_gate_inp_shexp.weight"), h, s->n_embd, 1, &gate);
            gate = 1 / (1 + exp(-gate));
        }
        add_gated(l, layer, "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight",
                  0, s->n_shared_ff, gate, h, out);
    }
    free(p);
}

/* out [n_embd], zeros before */
static void feed_forward(const lab *l, int layer, const double *h, double *out)
{
    const lab_shape *s = &l->shape;
    if (s->n_experts > 0) {
        experts(l, layer, h, out);
        return;
    }
    double *up = doubles(s->n_ff), *gate = doubles(s->n_ff);
    linear(l, layer, "ffn_up", h, s->n_embd, s->n_ff, up);
    if (!s->is_ungated) {
        linear(l, layer, "ffn_gate", h, s->n_embd, s->n_ff, gate);
    }
    for (uint32_t i = 0; i < s->n_ff; i++) {
        up[i] = s->is_ungated ? activate(s->activation, up[i])
                              : activate(s->activation, gate[i]) * up[i];
    }
    linear(l, layer, "ffn_down", up, s->n_ff, s->n_embd, out);
    free(up);
    free(gate);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void add(const lab *l, int layer, const char *after, double *y, double *x)
{
    if (l->shape.has_norms_after) {
        norm(l, layer, after, y, y);
    }
    for (uint32_t i = 0; i < l->shape.n_embd; i++) {
        x[i] += or_one(l->shape.residual_scale) * y[i];
    }
}

static void run_layer(const lab *l, int layer, double *x)
{
    uint32_t n = l->shape.n_embd;
    double *h = doubles(n), *attended = doubles(n), *fed = doubles(n);
    norm(l, layer, "attn_norm", x, h);
    attention(l, layer, h, attended);
    add(l, layer, "post_attention_norm", attended, x);
    if (!l->shape.is_parallel) {
        norm(l, layer, "ffn_norm", x, h);
    }
    feed_forward(l, layer, h, fed);
    add(l, layer, "post_ffw_norm", fed, x);
    free(h);
    free(attended);
    free(fed);
}

void lab_read(lab *l, int32_t token, int32_t position, double *logits)
{
    const lab_shape *s = &l->shape;
    double *x = doubles(s->n_embd);
    const float *embedding = numbers_of(l, -1, "token_embd.weight");
    l->cells = realloc(l->cells, (l->n_cells + 1) * sizeof *l->cells);
    if (l->cells == NULL) {
        exit(1);
    }
    l->cells[l->n_cells++] = (lab_cell){.position = position};
    for (uint32_t i = 0; i < s->n_embd; i++) {
        x[i] = or_one(s->embedding_scale) * (double)embedding[(size_t)token * s->n_embd + i];
    }
    if (s->has_embedding_norm) {
        norm(l, -1, "token_embd_norm", x, x);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        run_layer(l, (int)i, x);
    }
    norm(l, -1, "output_norm", x, x);
    multiply(embedding, x, s->n_embd, LAB_VOCABULARY, logits);
    for (uint32_t i = 0; i < LAB_VOCABULARY; i++) {
        logits[i] *= or_one(s->logit_scale);
        if (s->logit_softcap > 0) {
            logits[i] = s->logit_softcap * tanh(logits[i] / s->logit_softcap);
        }
    }
    free(x);
}

void lab_remove(lab *l, int32_t first, int32_t last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_cells; i++) {
        if (l->cells[i].position >= first && l->cells[i].position < last) {
            forget(&l->cells[i]);
        } else {
            l->cells[n++] = l->cells[i];
        }
    }
    l->n_cells = n;
}

void lab_shift(lab *l, int32_t first, int32_t last, int32_t delta)
{
    for (uint32_t i = 0; i < l->n_cells; i++) {
        if (l->cells[i].position >= first && l->cells[i].position < last) {
            l->cells[i].position += delta;
        }
    }
}
