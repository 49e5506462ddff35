/*
 * attention_model.c: brute-force attention in double precision. See attention_model.h.
 *
 * The bound. Let u = 2^-24. An f32 implementation rounds the rotated query and key (a few u of
 * their lengths, and u for each stage of a Hadamard transform), the dot product of k_size terms (u
 * sqrt(k_size) in the probabilistic bound of Higham and Mary 2019, times a constant), and storing
 * may fall to the other side where the exact value lies within those few u of the middle between
 * two levels: the doubt of a key. That gives the error e of a score; a soft cap (no slope of it is
 * above 1) and biases add a few u of their sizes. Subtracting the maximum adds u of the scores. With
 * the exact weights w, a wrong weight is w exp(d) / sum(w exp(d)) with |d| <= e, which is away from w
 * by at most w (exp(e) / (1 - D) - 1), D = sum(w (1 - exp(-e))). The sum over n rows adds u sqrt(n),
 * the exponential and the division a few u more. A Hadamard rotation of the result adds up the
 * bounds of what it adds up, and u for each of its stages. Angles are taken as computed in double:
 * 2^-50 of the position. Running out of memory ends the test program.
 */
#include "attention_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "row_model.h"

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
    bool is_normal = layer->rope.kind == CELLAR_ROPE_NORMAL;
    *a = layer->rope.first + (is_normal ? 2 * pair : pair);
    *b = is_normal ? *a + 1 : *a + count_rotated(layer) / 2;
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

/* The coordinate by which a pair turns. */
static double coordinate_of(const cellar_layer *layer, uint32_t pair, double pos,
                            cellar_point point)
{
    const uint32_t *sections = layer->rope.sections;
    if (layer->rope.kind != CELLAR_ROPE_MROPE) return pos;
    if (pair < sections[0]) return pos;
    if (pair < sections[0] + sections[1]) return pos + point.y;
    if (pair < sections[0] + sections[1] + sections[2]) return pos + point.x;
    return 0;
}

/* Turn n heads x[n][k_size] and, where given, their doubts. */
static void rotate_heads(const cellar_layer *layer, double pos, cellar_point point, double *x,
                         double *doubt, uint32_t n)
{
    for (uint32_t i = 0; i < count_rotated(layer) / 2; i++) {
        uint32_t a, b;
        pair_of(layer, i, &a, &b);
        double angle = coordinate_of(layer, i, pos, point) * attention_model_frequency(layer, i);
        double c = cos(angle), s = sin(angle);
        for (uint32_t h = 0; h < n; h++, a += layer->k_size, b += layer->k_size) {
            double x_a = x[a], x_b = x[b];
            x[a] = x_a * c - x_b * s;
            x[b] = x_a * s + x_b * c;
            if (!doubt) continue;
            double d_a = doubt[a], d_b = doubt[b];
            doubt[a] = d_a * fabs(c) + d_b * fabs(s);
            doubt[b] = d_a * fabs(s) + d_b * fabs(c);
        }
    }
}

void attention_model_rotate_at(const cellar_layer *layer, double pos, cellar_point point, double *x)
{
    rotate_heads(layer, pos, point, x, NULL, 1);
}

void attention_model_rotate(const cellar_layer *layer, double pos, double *x)
{
    attention_model_rotate_at(layer, pos, (cellar_point){0, 0}, x);
}

/* Heads as they are stored or asked with: stretched where they rotate, and turned. */
static void prepare_heads(const cellar_layer *layer, const float *raw, double pos,
                          cellar_point point, double *x, uint32_t n)
{
    double magnitude = attention_model_magnitude(layer);
    uint32_t first = layer->rope.first, end = first + count_rotated(layer);
    for (uint32_t i = 0; i < n * layer->k_size; i++) {
        uint32_t at = i % layer->k_size;
        x[i] = raw[i] * (at >= first && at < end ? magnitude : 1);
    }
    rotate_heads(layer, pos, point, x, NULL, n);
}

/* ---- Hadamard -------------------------------------------------------------------------------- */

static uint32_t power_in(uint32_t size)
{
    return size & (~size + 1);
}

/* Stages that a fast transform of `size` elements would have: what each costs is one rounding. */
static double stages_in(uint32_t size)
{
    return log2(power_in(size)) + 1;
}

/* x = matrix * x in stretches; with is_absolute every entry counts as positive: bounds add up. */
static void multiply(double *x, uint32_t size, bool is_absolute)
{
    uint32_t n = power_in(size);
    double *row = grab(n), factor = 1 / sqrt(n);
    for (uint32_t at = 0; at < size && n > 1; at += n) {
        for (uint32_t i = 0; i < n; i++) {
            row[i] = 0;
            for (uint32_t j = 0; j < n; j++) {
                bool is_odd = __builtin_popcount(i & j) & 1;
                row[i] += is_odd && !is_absolute ? -x[at + j] : x[at + j];
            }
        }
        for (uint32_t i = 0; i < n; i++)
            x[at + i] = row[i] * factor;
    }
    free(row);
}

void attention_model_hadamard(double *x, uint32_t size)
{
    multiply(x, size, false);
}

/* Turn a head before it is stored; slack grows by what an f32 transform rounds. */
static void turn_for_store(double *x, double *slack, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        slack[i] += UNIT * stages_in(size) * fabs(x[i]);
    multiply(slack, size, true);
    multiply(x, size, false);
}

/* ---- rows ------------------------------------------------------------------------------------ */

double attention_model_f16(double x)
{
    return row_model_f16(x);
}

/* How far the f32 rotation of a key may be away. */
static void find_slack(const cellar_layer *layer, double pos, const double *head, double *slack)
{
    for (uint32_t i = 0; i < count_rotated(layer) / 2; i++) {
        uint32_t a, b;
        pair_of(layer, i, &a, &b);
        slack[a] = slack[b] = (4 * UNIT + 0x1p-50 * fabs(pos)) * hypot(head[a], head[b]);
    }
}

static void store_keys(const cellar_layer *layer, double pos, attention_model_stored *out)
{
    uint32_t size = layer->k_size;
    double *slack = grab(size);
    for (size_t h = 0; h < layer->n_kv_heads; h++) {
        double *k = out->k + h * size, *doubt = out->k_doubt + h * size;
        memset(slack, 0, size * sizeof *slack);
        find_slack(layer, pos, k, slack);
        if (layer->rotate_k) turn_for_store(k, slack, size);
        row_model_store(layer->k_type, k, slack, doubt, size);
        /* Without rounding, what is left is in the bound of the score. */
        if (layer->k_type == CELLAR_F32) memset(doubt, 0, size * sizeof *doubt);
        if (!layer->rotate_k) continue;
        multiply(k, size, false);
        multiply(doubt, size, true);
    }
    free(slack);
}

static void store_values(const cellar_layer *layer, attention_model_stored *out)
{
    uint32_t size = layer->v_size;
    double *slack = grab(size);
    for (size_t h = 0; h < layer->n_kv_heads; h++) {
        double *v = out->v + h * size;
        memset(slack, 0, size * sizeof *slack);
        if (layer->rotate_v) turn_for_store(v, slack, size);
        row_model_store(layer->v_type, v, slack, out->v_doubt + h * size, size);
    }
    free(slack);
}

void attention_model_store(const cellar_layer *layer, const float *k, const float *v,
                           cellar_pos pos, cellar_point point, attention_model_stored *out)
{
    size_t n_k = (size_t)layer->n_kv_heads * layer->k_size;
    size_t n_v = (size_t)layer->n_kv_heads * layer->v_size;
    out->k = grab(2 * (n_k + n_v));
    out->k_doubt = out->k + n_k;
    out->v = out->k_doubt + n_k;
    out->v_doubt = out->v + n_v;
    prepare_heads(layer, k, pos, point, out->k, layer->n_kv_heads);
    store_keys(layer, pos, out);
    for (size_t i = 0; i < n_v; i++) {
        size_t in_k = i / layer->v_size * layer->k_size + i % layer->v_size;
        out->v[i] = layer->v_in_k ? out->k[in_k] : v[i];
        out->v_doubt[i] = layer->v_in_k ? out->k_doubt[in_k] : 0;
    }
    if (!layer->v_in_k) store_values(layer, out);
}

void attention_model_stored_free(attention_model_stored *stored)
{
    free(stored->k);
    memset(stored, 0, sizeof *stored);
}

void attention_model_read(const cellar_layer *layer, const attention_model_row *row, double *k,
                          double *v, double *k_doubt, double *v_doubt)
{
    size_t n_k = (size_t)layer->n_kv_heads * layer->k_size;
    size_t n_v = (size_t)layer->n_kv_heads * layer->v_size;
    attention_model_stored stored;
    attention_model_store(layer, row->k, row->v, row->stored_pos, (cellar_point){0, 0}, &stored);
    rotate_heads(layer, (double)row->pos - row->stored_pos, (cellar_point){0, 0}, stored.k,
                 stored.k_doubt, layer->n_kv_heads);
    for (size_t h = 0; h < layer->n_kv_heads && layer->rotate_v; h++) {
        multiply(stored.v + h * layer->v_size, layer->v_size, false);
        multiply(stored.v_doubt + h * layer->v_size, layer->v_size, true);
    }
    memcpy(k, stored.k, n_k * sizeof *k);
    memcpy(k_doubt, stored.k_doubt, n_k * sizeof *k_doubt);
    memcpy(v, stored.v, n_v * sizeof *v);
    if (v_doubt) memcpy(v_doubt, stored.v_doubt, n_v * sizeof *v_doubt);
    attention_model_stored_free(&stored);
}

void attention_model_rows(const cellar_layer *layer, const attention_model_row *row, double *k,
                          double *v, double *doubt)
{
    attention_model_read(layer, row, k, v, doubt, NULL);
}

/* ---- biases ---------------------------------------------------------------------------------- */

double attention_model_slope(const cellar_layer *layer, uint32_t head)
{
    if (!(layer->alibi_max_bias > 0)) return 0;
    uint32_t power = 1;
    while (2 * power <= layer->n_heads)
        power *= 2;
    double exponent = head < power ? head + 1.0 : head - power + 0.5;
    return exp2(-(double)layer->alibi_max_bias / power * exponent);
}

uint32_t attention_model_bucket(const cellar_buckets *buckets, int64_t distance)
{
    uint32_t n = buckets->n, base = 0;
    int64_t far = distance < 0 ? -distance : 0;
    if (buckets->is_bidirectional) {
        n /= 2;
        base = distance > 0 ? n : 0;
        far = distance < 0 ? -distance : distance;
    }
    uint32_t n_exact = n / 2;
    if (far < n_exact) return base + (uint32_t)far;
    /* Where the quotient is a whole number, its rounding must not decide: far below 2^31 the next
     * distance is more than 1e-10 away. */
    long double grown = logl((long double)far / n_exact) /
                        logl((long double)buckets->max_distance / n_exact) * (n - n_exact);
    long double bucket = n_exact + floorl(grown + 1e-12L);
    return base + (bucket < n - 1 ? (uint32_t)bucket : n - 1);
}

static double bias_of(const cellar_layer *layer, uint32_t head, double slope, int64_t distance)
{
    double bias = -slope * fabs((double)distance);
    if (layer->buckets.n > 0) {
        uint32_t bucket = attention_model_bucket(&layer->buckets, distance);
        bias += layer->buckets.bias[(size_t)bucket * layer->n_heads + head];
    }
    return bias;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Room for one query: keys as they stand, their doubts, scores and their errors. */
typedef struct workspace {
    const attention_model_key *keys;
    uint32_t n;
    double *k, *doubt, *score, *error;
    const double *q;     /* a query head */
    size_t k_row, v_row; /* elements of a row of all K/V heads */
    double scale;
    double reach;  /* largest |pos| + |stored_pos|: how far angles go */
    double stages; /* of Hadamard transforms, of query and key */
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
    double unit = UNIT * (2 * sqrt(layer->k_size) + 8 + w->stages) + 0x1p-50 * w->reach;
    double score = w->scale * dot;
    *error = fabs(w->scale) * (unit * sqrt(qq * kk) + doubt);
    if (layer->softcap > 0) {
        score = layer->softcap * tanh(score / layer->softcap);
        *error += 8 * UNIT * layer->softcap; /* tanh within 4 u of 1, quotient, product */
    }
    return score;
}

/* Scores become weights; their errors become relative ones of the weights. */
static void weigh(workspace *w, const cellar_layer *layer, uint32_t head, uint32_t kv_head,
                  cellar_pos pos)
{
    double sink = layer->sinks ? layer->sinks[head] : -INFINITY, slope;
    double top = sink, largest = layer->sinks ? fabs(sink) : 0, sum = 0, drop = 0;
    slope = attention_model_slope(layer, head);
    for (uint32_t j = 0; j < w->n; j++) {
        double bias = bias_of(layer, head, slope, (int64_t)w->keys[j].pos - pos);
        w->score[j] = bias + score_one(w, layer, j * w->k_row + (size_t)kv_head * layer->k_size,
                                       &w->error[j]);
        w->error[j] += 4 * UNIT * fabs(bias);
        top = fmax(top, w->score[j]);
        largest = fmax(largest, fmax(fabs(w->score[j]), fabs(w->score[j] - bias)));
    }
    for (uint32_t j = 0; j < w->n; j++) {
        w->error[j] += 2 * UNIT * largest;
        sum += w->score[j] = exp(w->score[j] - top);
    }
    sum += exp(sink - top);
    for (uint32_t j = 0; j < w->n; j++) {
        w->score[j] /= sum;
        drop -= w->score[j] * expm1(-w->error[j]);
    }
    drop -= exp(sink - top) / sum * expm1(-2 * UNIT * largest);
    for (uint32_t j = 0; j < w->n; j++)
        w->error[j] = exp(w->error[j]) / (1 - drop) - 1 + UNIT * (2 * sqrt(w->n) + 12);
}

/* The weighted mean and, for each element, its own bound. */
static void add_values(const workspace *w, const cellar_layer *layer, uint32_t kv_head, double *out,
                       double *bounds)
{
    for (uint32_t i = 0; i < layer->v_size; i++) {
        size_t at = (size_t)kv_head * layer->v_size + i;
        double total = 0, size = 0, bound = 0;
        for (uint32_t j = 0; j < w->n; j++) {
            const attention_model_stored *stored = w->keys[j].stored;
            double part = w->score[j] * stored->v[at];
            total += part;
            size += fabs(part);
            bound += fabs(part) * w->error[j] +
                     w->score[j] * (1 + w->error[j]) * stored->v_doubt[at];
        }
        out[i] = total;
        bounds[i] = bound + (layer->rotate_v ? UNIT * stages_in(layer->v_size) * size : 0);
    }
    if (!layer->rotate_v) return;
    multiply(out, layer->v_size, false);
    multiply(bounds, layer->v_size, true);
}

/* The keys as they stand at their positions now. */
static void place_keys(workspace *w, const cellar_layer *layer)
{
    for (uint32_t j = 0; j < w->n; j++) {
        const attention_model_key *key = &w->keys[j];
        double *k = w->k + j * w->k_row, *doubt = w->doubt + j * w->k_row;
        memcpy(k, key->stored->k, w->k_row * sizeof *k);
        memcpy(doubt, key->stored->k_doubt, w->k_row * sizeof *doubt);
        if (key->pos != key->stored_pos)
            rotate_heads(layer, (double)key->pos - key->stored_pos, (cellar_point){0, 0}, k, doubt,
                         layer->n_kv_heads);
        w->reach = fmax(w->reach, fabs((double)key->pos) + fabs((double)key->stored_pos));
    }
}

void attention_model_attend_keys(const cellar_layer *layer, const float *q, cellar_pos pos,
                                 cellar_point point, const attention_model_key *keys, uint32_t n,
                                 double *out, double *bound)
{
    workspace w = {.keys = keys,
                   .n = n,
                   .k_row = (size_t)layer->n_kv_heads * layer->k_size,
                   .v_row = (size_t)layer->n_kv_heads * layer->v_size,
                   .scale = layer->scale != 0 ? layer->scale : 1 / sqrt(layer->k_size),
                   .reach = pos,
                   .stages = layer->rotate_k ? 2 * stages_in(layer->k_size) : 0};
    w.k = grab(2 * w.k_row * n + 2 * (size_t)n);
    w.doubt = w.k + w.k_row * n;
    w.score = w.doubt + w.k_row * n;
    w.error = w.score + n;
    double *queries = grab((size_t)layer->n_heads * layer->k_size), *bounds = grab(layer->v_size);
    place_keys(&w, layer);
    prepare_heads(layer, q, pos, point, queries, layer->n_heads);
    for (uint32_t h = 0; h < layer->n_heads; h++) {
        uint32_t kv_head = h / (layer->n_heads / layer->n_kv_heads);
        w.q = queries + (size_t)h * layer->k_size;
        if (n > 0) weigh(&w, layer, h, kv_head, pos);
        add_values(&w, layer, kv_head, out + (size_t)h * layer->v_size, bounds);
        bound[h] = 1e-30;
        for (uint32_t i = 0; i < layer->v_size; i++)
            bound[h] = fmax(bound[h], bounds[i]);
    }
    free(w.k);
    free(queries);
    free(bounds);
}

void attention_model_attend(const cellar_layer *layer, const float *q, cellar_pos pos,
                            const attention_model_row *rows, uint32_t n_rows, double *out,
                            double *bound)
{
    attention_model_stored *stored = calloc(n_rows ? n_rows : 1, sizeof *stored);
    attention_model_key *keys = calloc(n_rows ? n_rows : 1, sizeof *keys);
    if (!stored || !keys) {
        fprintf(stderr, "attention_model: out of memory\n");
        exit(2);
    }
    for (uint32_t j = 0; j < n_rows; j++) {
        attention_model_store(layer, rows[j].k, rows[j].v, rows[j].stored_pos, (cellar_point){0, 0},
                              &stored[j]);
        keys[j] = (attention_model_key){&stored[j], rows[j].pos, rows[j].stored_pos};
    }
    attention_model_attend_keys(layer, q, pos, (cellar_point){0, 0}, keys, n_rows, out, bound);
    for (uint32_t j = 0; j < n_rows; j++)
        attention_model_stored_free(&stored[j]);
    free(stored);
    free(keys);
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
