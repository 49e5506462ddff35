/*
 * support_recurrent_plain.c: what models of states must give, in double, as plainly as can be.
 *
 * A layer is a function from x and what it remembers to the new x. What it remembers are arrays of the
 * largest size: the last inputs of convolutions, the last inputs of RWKV's halves, the matrices.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_recurrent.h"

#define EPSILON 1e-5
#define MOST RECURRENT_WIDEST

typedef struct remembered {
    double inputs[MOST][4];            /* of convolutions, youngest first */
    double time[MOST], channels[MOST]; /* the last inputs of RWKV's halves */
    double state[MOST][MOST];
} remembered;

/* A layer that is computed. */
typedef struct place {
    const recurrent_shape *s;
    const recipe *r;
    uint32_t layer;
    remembered *its;
    double *first_v; /* RWKV-7: v of the first layer for this token */
} place;

static const float *weights(const place *at, const char *part)
{
    char text[80];
    snprintf(text, sizeof text, "blk.%u.%s", (unsigned)at->layer, part);
    const float *found = recipe_data(at->r, text);
    if (found == NULL) {
        fprintf(stderr, "support_recurrent_plain: no tensor %s\n", text);
        exit(1);
    }
    return found;
}

static void multiply(const place *at, const char *part, size_t n_in, size_t n_out, const double *x,
                     double *y)
{
    plain_multiply(weights(at, part), n_in, n_out, x, y);
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static double softplus(double z)
{
    return log1p(exp(z));
}

static void layer_norm(const float *weight, const float *bias, size_t n, double epsilon,
                       const double *x, double *y)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(square + epsilon) * (double)weight[i] + (double)bias[i];
    }
}

/* x [n] becomes its convolution; bias may be NULL. */
static void convolve(const place *at, const char *part, const float *bias, uint32_t n, double *x)
{
    const float *weight = weights(at, part);
    const uint32_t width = at->s->kernel;
    for (uint32_t i = 0; i < n; i++) {
        double *inputs = at->its->inputs[i], sum = bias == NULL ? 0 : (double)bias[i];
        memmove(inputs + 1, inputs, 3 * sizeof *inputs);
        inputs[0] = x[i];
        for (uint32_t j = 0; j < width; j++) {
            sum += (double)weight[i * width + width - 1 - j] * inputs[j];
        }
        x[i] = sum;
    }
}

static void silu(double *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        x[i] = plain_silu(x[i]);
    }
}

/* ---- Mamba, Mamba-2, LFM2 ---------------------------------------------------------------------- */

static void scan(const place *at, const double *h, double *out)
{
    const recurrent_shape *s = at->s;
    const uint32_t n = s->n_inner;
    double both[2 * MOST], made[MOST], d[MOST], *u = both, *z = both + n;
    multiply(at, "ssm_in.weight", s->n_embd, 2 * n, h, both);
    convolve(at, "ssm_conv1d.weight", weights(at, "ssm_conv1d.bias"), n, u);
    silu(u, n);
    multiply(at, "ssm_x.weight", n, s->rank + 2 * s->n_state, u, made);
    multiply(at, "ssm_dt.weight", s->rank, n, made, d);
    const double *b = made + s->rank, *c = b + s->n_state;
    for (uint32_t i = 0; i < n; i++) {
        const double step = softplus(d[i] + (double)weights(at, "ssm_dt.bias")[i]);
        double y = (double)weights(at, "ssm_d")[i] * u[i];
        for (uint32_t j = 0; j < s->n_state; j++) {
            double *state = &at->its->state[i][j];
            *state = *state * exp(step * (double)weights(at, "ssm_a")[i * s->n_state + j]) +
                     step * b[j] * u[i];
            y += *state * c[j];
        }
        d[i] = y * plain_silu(z[i]);
    }
    multiply(at, "ssm_out.weight", n, s->n_embd, d, out);
}

static void space(const place *at, const double *h, double *out)
{
    const recurrent_shape *s = at->s;
    const uint32_t n = s->n_inner, n_bc = s->n_groups * s->n_state, n_channels = n + 2 * n_bc;
    double all[3 * MOST], y[MOST], *z = all, *u = all + n, *d = u + n_channels;
    multiply(at, "ssm_in.weight", s->n_embd, n + n_channels + s->n_heads, h, all);
    convolve(at, "ssm_conv1d.weight", weights(at, "ssm_conv1d.bias"), n_channels, u);
    silu(u, n_channels);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t head = i / s->head_size, group = head * s->n_groups / s->n_heads;
        const double step = softplus(d[head] + (double)weights(at, "ssm_dt.bias")[head]);
        const double stays = exp(step * (double)weights(at, "ssm_a")[head]);
        y[i] = (double)weights(at, "ssm_d")[head] * u[i];
        for (uint32_t j = 0; j < s->n_state; j++) {
            double *state = &at->its->state[i][j];
            const double *b = u + n + group * s->n_state, *c = b + n_bc;
            *state = *state * stays + step * u[i] * b[j];
            y[i] += *state * c[j];
        }
        y[i] *= plain_silu(z[i]);
    }
    const uint32_t width = n / s->n_groups;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        plain_rms(weights(at, "ssm_norm.weight") + g * width, width, EPSILON, y + g * width,
                  y + g * width);
    }
    multiply(at, "ssm_out.weight", n, s->n_embd, y, out);
}

static void short_convolution(const place *at, const double *h, double *out)
{
    const uint32_t n = at->s->n_embd;
    double all[3 * MOST], *b = all, *c = all + n, *x = all + 2 * n;
    multiply(at, "shortconv.in_proj.weight", n, 3 * n, h, all);
    for (uint32_t i = 0; i < n; i++) {
        x[i] *= b[i];
    }
    convolve(at, "shortconv.conv.weight", NULL, n, x);
    for (uint32_t i = 0; i < n; i++) {
        x[i] *= c[i];
    }
    multiply(at, "shortconv.out_proj.weight", n, n, x, out);
}

static void feed_forward(const place *at, double *x)
{
    const uint32_t n = at->s->n_embd, n_ff = at->s->n_ff;
    double h[MOST], gate[MOST], up[MOST], down[MOST];
    plain_rms(weights(at, "ffn_norm.weight"), n, EPSILON, x, h);
    multiply(at, "ffn_gate.weight", n, n_ff, h, gate);
    multiply(at, "ffn_up.weight", n, n_ff, h, up);
    for (uint32_t i = 0; i < n_ff; i++) {
        gate[i] = plain_silu(gate[i]) * up[i];
    }
    multiply(at, "ffn_down.weight", n_ff, n, gate, down);
    for (uint32_t i = 0; i < n; i++) {
        x[i] += down[i];
    }
}

static void mixing_layer(const place *at, double *x)
{
    const uint32_t n = at->s->n_embd;
    double h[MOST], out[MOST];
    plain_rms(weights(at, "attn_norm.weight"), n, EPSILON, x, h);
    if (at->s->kind == RECURRENT_MAMBA) {
        scan(at, h, out);
    } else if (at->s->kind == RECURRENT_MAMBA2) {
        space(at, h, out);
    } else {
        short_convolution(at, h, out);
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] += out[i];
    }
    if (at->s->kind == RECURRENT_LFM2) {
        feed_forward(at, x);
    }
}

/* ---- RWKV -------------------------------------------------------------------------------------- */

/* y = h + (previous - h) * l */
static void mix(const place *at, const float *l, const double *h, const double *previous, double *y)
{
    for (uint32_t i = 0; i < at->s->n_embd; i++) {
        y[i] = h[i] + (previous[i] - h[i]) * (double)l[i];
    }
}

/* The five inputs of RWKV-6, each l changed by what is read. */
static void mix_six(const place *at, const double *h, double mixed[5][MOST])
{
    const uint32_t n = at->s->n_embd, rank = at->s->rank;
    double low[5 * MOST], change[MOST];
    mix(at, weights(at, "time_mix_lerp_x.weight"), h, at->its->time, mixed[0]);
    multiply(at, "time_mix_w1.weight", n, 5 * rank, mixed[0], low);
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t j = 0; j < rank; j++) {
            low[i * rank + j] = tanh(low[i * rank + j]);
        }
        plain_multiply(weights(at, "time_mix_w2.weight") + i * n * rank, rank, n, low + i * rank,
                       change);
        for (uint32_t j = 0; j < n; j++) {
            const double l = (double)weights(at, "time_mix_lerp_fused.weight")[i * n + j];
            mixed[i][j] = h[j] + (at->its->time[j] - h[j]) * (l + change[j]);
        }
    }
}

/* Read the heads; state[i][j]: channel i of k, channel j of v within their head. */
static void read_six(const place *at, const double *w, const double *k, const double *v,
                     const double *r, double *y)
{
    const uint32_t size = at->s->head_size;
    memset(y, 0, MOST * sizeof *y);
    for (uint32_t i = 0; i < at->s->n_embd; i++) {
        const uint32_t start = i / size * size;
        for (uint32_t j = 0; j < size; j++) {
            double *state = &at->its->state[i][j], kv = k[i] * v[start + j];
            const double first = (double)weights(at, "time_mix_first.weight")[i];
            y[start + j] += r[i] * (*state + first * kv);
            *state = *state * w[i] + kv;
        }
    }
}

static void norm_heads(const place *at, double *y)
{
    const uint32_t size = at->s->head_size;
    for (uint32_t i = 0; i < at->s->n_embd; i += size) {
        layer_norm(weights(at, "time_mix_ln.weight") + i, weights(at, "time_mix_ln.bias") + i, size,
                   64e-5, y + i, y + i);
    }
}

static void time_six(const place *at, const double *h, double *out)
{
    const uint32_t n = at->s->n_embd, rank = at->s->rank + 1;
    double mixed[5][MOST], w[MOST], k[MOST], v[MOST], r[MOST], g[MOST], y[MOST], low[MOST];
    mix_six(at, h, mixed);
    multiply(at, "time_mix_decay_w1.weight", n, rank, mixed[0], low);
    for (uint32_t i = 0; i < rank; i++) {
        low[i] = tanh(low[i]);
    }
    multiply(at, "time_mix_decay_w2.weight", rank, n, low, w);
    for (uint32_t i = 0; i < n; i++) {
        w[i] = exp(-exp(w[i] + (double)weights(at, "time_mix_decay.weight")[i]));
    }
    multiply(at, "time_mix_key.weight", n, n, mixed[1], k);
    multiply(at, "time_mix_value.weight", n, n, mixed[2], v);
    multiply(at, "time_mix_receptance.weight", n, n, mixed[3], r);
    multiply(at, "time_mix_gate.weight", n, n, mixed[4], g);
    read_six(at, w, k, v, r, y);
    norm_heads(at, y);
    for (uint32_t i = 0; i < n; i++) {
        y[i] *= plain_silu(g[i]);
    }
    multiply(at, "time_mix_output.weight", n, n, y, out);
}

/* y = bias + up(f(down(x))): f is 0 none, 1 tanh, 2 sigmoid. */
static void low_rank(const place *at, char letter, uint32_t rank, int f, const double *x, double *y)
{
    char first[32], second[32], bias[32];
    double low[MOST];
    snprintf(first, sizeof first, "time_mix_%c1.weight", letter);
    snprintf(second, sizeof second, "time_mix_%c2.weight", letter);
    snprintf(bias, sizeof bias, "time_mix_%c0.weight", letter);
    multiply(at, first, at->s->n_embd, rank, x, low);
    for (uint32_t i = 0; f != 0 && i < rank; i++) {
        low[i] = f == 1 ? tanh(low[i]) : sigmoid(low[i]);
    }
    multiply(at, second, rank, at->s->n_embd, low, y);
    for (uint32_t i = 0; letter != 'g' && i < at->s->n_embd; i++) {
        y[i] += (double)weights(at, bias)[i];
    }
}

/* What RWKV-7 makes of a token before its heads are read. */
typedef struct seven {
    double r[MOST], w[MOST], k[MOST], v[MOST], a[MOST], g[MOST], z[MOST];
} seven;

static void make_seven(const place *at, const double *h, seven *m)
{
    const uint32_t n = at->s->n_embd, rank = at->s->rank;
    double mixed[6][MOST], share[MOST];
    for (uint32_t i = 0; i < 6; i++) {
        mix(at, weights(at, "time_mix_lerp_fused.weight") + i * n, h, at->its->time, mixed[i]);
    }
    multiply(at, "time_mix_receptance.weight", n, n, mixed[0], m->r);
    low_rank(at, 'w', rank, 1, mixed[1], m->w);
    multiply(at, "time_mix_key.weight", n, n, mixed[2], m->k);
    multiply(at, "time_mix_value.weight", n, n, mixed[3], m->v);
    low_rank(at, 'a', rank + 1, 0, mixed[4], m->a);
    low_rank(at, 'g', rank + 3, 2, mixed[5], m->g);
    if (at->layer == 0) {
        memcpy(at->first_v, m->v, sizeof m->v);
    } else {
        low_rank(at, 'v', rank + 2, 0, mixed[3], share);
    }
    for (uint32_t i = 0; i < n; i++) {
        m->w[i] = exp(-exp(-0.5) * sigmoid(m->w[i]));
        m->a[i] = sigmoid(m->a[i]);
        m->z[i] = m->k[i] * (double)weights(at, "time_mix_k_k.weight")[i];
        m->k[i] *= 1 + (m->a[i] - 1) * (double)weights(at, "time_mix_k_a.weight")[i];
        m->v[i] += at->layer == 0 ? 0 : (at->first_v[i] - m->v[i]) * sigmoid(share[i]);
    }
}

/* One head from channel `start` on; state[i][j]: v by k, as the paper has it. */
static void read_seven(const place *at, seven *m, uint32_t start, double *y)
{
    const uint32_t size = at->s->head_size, end = start + size;
    double length = 0, bonus = 0;
    for (uint32_t i = start; i < end; i++) {
        length += m->z[i] * m->z[i];
        bonus += m->r[i] * m->k[i] * (double)weights(at, "time_mix_r_k.weight")[i];
    }
    for (uint32_t i = start; i < end; i++) {
        double *row = at->its->state[i], removed = 0;
        for (uint32_t j = 0; j < size; j++) {
            removed -= row[j] * m->z[start + j] / sqrt(length);
        }
        y[i] = 0;
        for (uint32_t j = 0; j < size; j++) {
            const uint32_t c = start + j;
            row[j] = row[j] * m->w[c] + removed * m->z[c] / sqrt(length) * m->a[c] +
                     m->v[i] * m->k[c];
            y[i] += row[j] * m->r[c];
        }
    }
    layer_norm(weights(at, "time_mix_ln.weight") + start, weights(at, "time_mix_ln.bias") + start,
               size, 64e-5, y + start, y + start);
    for (uint32_t i = start; i < end; i++) {
        y[i] = (y[i] + bonus * m->v[i]) * m->g[i];
    }
}

static void time_seven(const place *at, const double *h, double *out)
{
    const uint32_t n = at->s->n_embd;
    seven made;
    double y[MOST];
    make_seven(at, h, &made);
    for (uint32_t start = 0; start < n; start += at->s->head_size) {
        read_seven(at, &made, start, y);
    }
    multiply(at, "time_mix_output.weight", n, n, y, out);
}

static void channel_mix(const place *at, const double *h, double *out)
{
    const uint32_t n = at->s->n_embd, n_ff = at->s->n_ff;
    double mixed[MOST], hidden[MOST], r[MOST];
    mix(at, weights(at, "channel_mix_lerp_k.weight"), h, at->its->channels, mixed);
    multiply(at, "channel_mix_key.weight", n, n_ff, mixed, hidden);
    for (uint32_t i = 0; i < n_ff; i++) {
        hidden[i] = hidden[i] > 0 ? hidden[i] * hidden[i] : 0;
    }
    multiply(at, "channel_mix_value.weight", n_ff, n, hidden, out);
    if (at->s->kind == RECURRENT_RWKV6) {
        mix(at, weights(at, "channel_mix_lerp_r.weight"), h, at->its->channels, mixed);
        multiply(at, "channel_mix_receptance.weight", n, n, mixed, r);
        for (uint32_t i = 0; i < n; i++) {
            out[i] *= sigmoid(r[i]);
        }
    }
}

static void rwkv_layer(const place *at, double *x)
{
    const uint32_t n = at->s->n_embd;
    const bool is_six = at->s->kind == RECURRENT_RWKV6;
    double h[MOST], out[MOST];
    layer_norm(weights(at, "attn_norm.weight"), weights(at, "attn_norm.bias"), n, EPSILON, x, h);
    if (is_six) {
        time_six(at, h, out);
    } else {
        time_seven(at, h, out);
    }
    memcpy(at->its->time, h, n * sizeof *h);
    for (uint32_t i = 0; i < n; i++) {
        x[i] += out[i];
    }
    layer_norm(weights(at, "attn_norm_2.weight"), weights(at, "attn_norm_2.bias"), n, EPSILON, x,
               h);
    channel_mix(at, h, out);
    memcpy(at->its->channels, h, n * sizeof *h);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = (x[i] + out[i]) * (is_six ? 0.5 : 1); /* rescale_every_n_layers is 1 */
    }
}

/* ---- the whole --------------------------------------------------------------------------------- */

static void norm_of(const recurrent_shape *s, const recipe *r, const char *prefix, double *x)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", prefix);
    snprintf(bias, sizeof bias, "%s.bias", prefix);
    if (recipe_data(r, bias) == NULL) {
        plain_rms(recipe_data(r, weight), s->n_embd, EPSILON, x, x);
    } else {
        layer_norm(recipe_data(r, weight), recipe_data(r, bias), s->n_embd, EPSILON, x, x);
    }
}

void recurrent_logits(const recurrent_shape *s, const recipe *r, const cellar_token *tokens,
                      uint32_t n, double *logits)
{
    remembered *all = calloc(RECURRENT_LAYERS, sizeof *all);
    if (all == NULL) {
        exit(1);
    }
    const bool is_rwkv = s->kind == RECURRENT_RWKV6 || s->kind == RECURRENT_RWKV7;
    for (uint32_t t = 0; t < n; t++) {
        double x[MOST], first_v[MOST];
        for (uint32_t i = 0; i < s->n_embd; i++) {
            x[i] = (double)recipe_data(r, "token_embd.weight")[(uint32_t)tokens[t] * s->n_embd + i];
        }
        if (is_rwkv) {
            norm_of(s, r, "token_embd_norm", x);
        }
        for (uint32_t layer = 0; layer < RECURRENT_LAYERS; layer++) {
            const place at = {s, r, layer, &all[layer], first_v};
            if (is_rwkv) {
                rwkv_layer(&at, x);
            } else {
                mixing_layer(&at, x);
            }
        }
        norm_of(s, r, s->kind == RECURRENT_LFM2 ? "token_embd_norm" : "output_norm", x);
        plain_multiply(recipe_data(r, "output.weight"), s->n_embd, RECURRENT_VOCABULARY, x,
                       logits + (size_t)t * RECURRENT_VOCABULARY);
    }
    free(all);
}
