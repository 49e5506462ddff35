/*
 * attention_model.c: brute-force attention in double precision. See attention_model.h.
 *
 * The bound. Let u = 2^-24. An f32 implementation rounds the rotated query and key (a few u of
 * their lengths), the dot product of k_size terms (u sqrt(k_size) in the probabilistic bound of
 * Higham and Mary 2019, times a constant), and one f16 rounding may fall to the other side where
 * the exact value lies within those few u of the middle between two halves. That gives an error d
 * of a score. Weights then change by a factor within exp(+-2d), the sum over n rows adds u sqrt(n),
 * the exponential and the division a few u more: |error| <= sum w|v| (exp(2d) - 1 + c u). Angles
 * are taken as computed in double: 2^-50 of the position. Running out of memory ends the test
 * program.
 */
#include "attention_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-24
#define PI 3.14159265358979323846

static double *grab(size_t n)
{
    double *block = calloc(n ? n : 1, sizeof *block);
    if (!block) {
        fprintf(stderr, "attention_model: out of memory\n");
        exit(2);
    }
    return block;
}

/* ---- rotation -------------------------------------------------------------------------------- */

static uint32_t count_rotated(const cellar_layer *layer)
{
    if (layer->rope.kind == CELLAR_ROPE_NONE) return 0;
    return layer->rope.n_rot ? layer->rope.n_rot : layer->k_size;
}

/* The elements that rotate with each other. */
static void pair_of(const cellar_layer *layer, uint32_t pair, uint32_t *a, uint32_t *b)
{
    bool is_neox = layer->rope.kind == CELLAR_ROPE_NEOX;
    *a = is_neox ? pair : 2 * pair;
    *b = is_neox ? pair + count_rotated(layer) / 2 : 2 * pair + 1;
}

/* The pair number (a real one) that turns `turns` times while the trained context passes. */
static double pair_that_turns(const cellar_layer *layer, double turns)
{
    double wavelength = layer->rope.yarn_context / turns;
    return count_rotated(layer) * log(wavelength / (2 * PI)) / (2 * log(layer->rope.base));
}

/* 1: pair keeps its own frequency; 0: it is scaled; between: a mixture. */
static double yarn_mix(const cellar_layer *layer, uint32_t pair)
{
    double last = count_rotated(layer) - 1.0;
    double low = fmax(0, floor(pair_that_turns(layer, layer->rope.yarn_beta_fast)));
    double high = fmin(last, ceil(pair_that_turns(layer, layer->rope.yarn_beta_slow)));
    double ramp = (pair - low) / fmax(0.001, high - low);
    return (1 - fmin(1, fmax(0, ramp))) * layer->rope.yarn_ext;
}

double attention_model_frequency(const cellar_layer *layer, uint32_t pair)
{
    const cellar_rope *rope = &layer->rope;
    double own = pow(rope->base, -2.0 * pair / count_rotated(layer));
    if (rope->factors) own /= rope->factors[pair];
    double mix = rope->yarn_ext > 0 ? yarn_mix(layer, pair) : 0;
    return own * rope->scale * (1 - mix) + own * mix;
}

double attention_model_magnitude(const cellar_layer *layer)
{
    const cellar_rope *rope = &layer->rope;
    if (rope->kind == CELLAR_ROPE_NONE) return 1;
    if (rope->yarn_ext > 0) return rope->yarn_attn * (1 + 0.1 * log(1 / rope->scale));
    return rope->yarn_attn;
}

void attention_model_rotate(const cellar_layer *layer, double pos, double *x)
{
    for (uint32_t i = 0; i < count_rotated(layer) / 2; i++) {
        uint32_t a, b;
        pair_of(layer, i, &a, &b);
        double angle = pos * attention_model_frequency(layer, i);
        double c = cos(angle), s = sin(angle), x_a = x[a], x_b = x[b];
        x[a] = x_a * c - x_b * s;
        x[b] = x_a * s + x_b * c;
    }
}

/* One head as it is stored or asked with: stretched where it rotates, and turned. */
static void prepare_head(const cellar_layer *layer, const float *raw, cellar_pos pos, double *x)
{
    double magnitude = attention_model_magnitude(layer);
    for (uint32_t i = 0; i < layer->k_size; i++)
        x[i] = raw[i] * (i < count_rotated(layer) ? magnitude : 1);
    attention_model_rotate(layer, pos, x);
}

/* ---- rows ------------------------------------------------------------------------------------ */

double attention_model_f16(double x)
{
    if (x == 0 || !isfinite(x)) return x;
    int exponent;
    frexp(x,
          &exponent); /* |x| = m 2^exponent, 1/2 <= m < 1; the leading bit weighs 2^(exponent-1) */
    int last_bit = exponent - 11 < -24 ? -24 : exponent - 11;
    double rounded = ldexp(rint(ldexp(x, -last_bit)), last_bit);
    return fabs(rounded) >= 65536 ? copysign(INFINITY, x) : rounded;
}

/*
 * Round a stored key and note where an f32 computation may have rounded the other way. When the key
 * is turned afterwards, the doubt of each element of a pair is in both.
 */
static void store_key(const cellar_layer *layer, double *k, double *doubt)
{
    for (uint32_t i = 0; i < layer->k_size; i++)
        doubt[i] = 0;
    if (layer->k_type == CELLAR_F32) return;
    for (uint32_t i = 0; i < count_rotated(layer) / 2; i++) {
        uint32_t a, b;
        pair_of(layer, i, &a, &b);
        double slack = 4 * UNIT * hypot(k[a], k[b]);
        doubt[a] = attention_model_f16(k[a] + slack) - attention_model_f16(k[a] - slack) +
                   attention_model_f16(k[b] + slack) - attention_model_f16(k[b] - slack);
        doubt[b] = doubt[a];
    }
    for (uint32_t i = 0; i < layer->k_size; i++)
        k[i] = attention_model_f16(k[i]);
}

void attention_model_rows(const cellar_layer *layer, const attention_model_row *row, double *k,
                          double *v, double *doubt)
{
    for (size_t h = 0; h < layer->n_kv_heads; h++) {
        double *head = k + h * layer->k_size;
        prepare_head(layer, row->k + h * layer->k_size, row->stored_pos, head);
        store_key(layer, head, doubt + h * layer->k_size);
        attention_model_rotate(layer, (double)row->pos - row->stored_pos, head);
    }
    for (size_t i = 0; i < (size_t)layer->n_kv_heads * layer->v_size; i++)
        v[i] = layer->v_type == CELLAR_F16 ? attention_model_f16(row->v[i]) : row->v[i];
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Room for one query: all rows, their doubts, one query head, the scores. */
typedef struct workspace {
    double *k, *v, *doubt, *q, *score;
    size_t k_row, v_row; /* elements of a row of all K/V heads */
    double scale;
    double reach; /* largest |pos| + |stored_pos|: how far angles go */
} workspace;

static double score_one(const workspace *w, const cellar_layer *layer, size_t at, double *error)
{
    double dot = 0, qq = 0, kk = 0, doubt = 0;
    for (uint32_t i = 0; i < layer->k_size; i++) {
        double q = w->q[i], k = w->k[at + i];
        dot += q * k;
        qq += q * q;
        kk += k * k;
        doubt += fabs(q) * w->doubt[at + i];
    }
    double unit = UNIT * (2 * sqrt(layer->k_size) + 8) + 0x1p-50 * w->reach;
    *error = fabs(w->scale) * (unit * sqrt(qq * kk) + doubt);
    return w->scale * dot;
}

/* Scores become exponentials; returns their sum and the error of the worst score. */
static double weigh(workspace *w, const cellar_layer *layer, uint32_t kv_head, uint32_t n,
                    double *error)
{
    double top = -INFINITY, largest = 0, sum = 0;
    *error = 0;
    for (uint32_t j = 0; j < n; j++) {
        double e;
        w->score[j] = score_one(w, layer, j * w->k_row + kv_head * layer->k_size, &e);
        *error = fmax(*error, e);
        top = fmax(top, w->score[j]);
        largest = fmax(largest, fabs(w->score[j]));
    }
    *error += 2 * UNIT * largest;
    for (uint32_t j = 0; j < n; j++)
        sum += w->score[j] = exp(w->score[j] - top);
    return sum;
}

static void attend_head(workspace *w, const cellar_layer *layer, uint32_t kv_head, uint32_t n,
                        double *out, double *bound)
{
    double error, sum = weigh(w, layer, kv_head, n, &error), mass = 0;
    for (uint32_t i = 0; i < layer->v_size; i++) {
        double total = 0, size = 0;
        for (uint32_t j = 0; j < n; j++) {
            double part = w->score[j] / sum * w->v[j * w->v_row + kv_head * layer->v_size + i];
            total += part;
            size += fabs(part);
        }
        out[i] = total;
        mass = fmax(mass, size);
    }
    *bound = mass * (expm1(2 * error) + UNIT * (2 * sqrt(n) + 12)) + 1e-30;
}

static void load_rows(workspace *w, const cellar_layer *layer, const attention_model_row *rows,
                      uint32_t n)
{
    for (uint32_t j = 0; j < n; j++) {
        attention_model_rows(layer, &rows[j], w->k + j * w->k_row, w->v + j * w->v_row,
                             w->doubt + j * w->k_row);
        w->reach = fmax(w->reach, fabs((double)rows[j].pos) + fabs((double)rows[j].stored_pos));
    }
}

void attention_model_attend(const cellar_layer *layer, const float *q, cellar_pos pos,
                            const attention_model_row *rows, uint32_t n_rows, double *out,
                            double *bound)
{
    workspace w = {.k_row = (size_t)layer->n_kv_heads * layer->k_size,
                   .v_row = (size_t)layer->n_kv_heads * layer->v_size,
                   .scale = layer->scale != 0 ? layer->scale : 1 / sqrt(layer->k_size),
                   .reach = pos};
    w.k = grab(w.k_row * n_rows);
    w.doubt = grab(w.k_row * n_rows);
    w.v = grab(w.v_row * n_rows);
    w.q = grab(layer->k_size);
    w.score = grab(n_rows);
    load_rows(&w, layer, rows, n_rows);
    for (uint32_t h = 0; h < layer->n_heads; h++) {
        prepare_head(layer, q + (size_t)h * layer->k_size, pos, w.q);
        attend_head(&w, layer, h / (layer->n_heads / layer->n_kv_heads), n_rows,
                    out + (size_t)h * layer->v_size, &bound[h]);
    }
    free(w.k);
    free(w.doubt);
    free(w.v);
    free(w.q);
    free(w.score);
}

double attention_model_worst(const cellar_layer *layer, const float *got, const double *out,
                             const double *bound)
{
    double worst = 0;
    for (uint32_t h = 0; h < layer->n_heads; h++)
        for (uint32_t i = 0; i < layer->v_size; i++) {
            size_t at = (size_t)h * layer->v_size + i;
            double ratio = fabs(got[at] - out[at]) / bound[h];
            worst = ratio <= worst ? worst : isnan(ratio) ? INFINITY : ratio;
        }
    return worst;
}
