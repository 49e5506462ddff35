/*
 * scenarios_types.c: S11 with quantised keys, and the faults D5, D6, D7, D30 and D33: a shift never
 * touches a stored row, whatever its type, head size and rotation.
 *
 * The truth here is what cellar_read_rows gave before the shift, turned in double precision: if rows
 * were rewritten, or more than the rotating elements turned, the difference would be of the size of
 * a quantisation step, a thousand times the tolerance.
 */
#include "scenarios.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A, B };
#define MOST 64

static const cellar_type every_type[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                         CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                         CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};
enum { TYPES = sizeof every_type / sizeof *every_type };

/* ---- S11: many small shifts are one big one -------------------------------------------------- */

enum { S11_SIZE = 64, S11_TOKENS = 128 };

/* Keys of unit variance: uniform in +-sqrt(3). */
static void s11_key(cellar_token token, float *k)
{
    drive_fill(k, S11_SIZE, random_mix(11, (uint64_t)token));
    for (uint32_t i = 0; i < S11_SIZE; i++)
        k[i] *= 1.7320508f;
}

static cellar_status s11_append(drive *d, cellar_token first, uint32_t n, float *out)
{
    cellar_batch batch = cellar_batch_init();
    float *k = drive_grab(n * S11_SIZE, sizeof *k), *v = drive_grab(n * S11_SIZE, sizeof *v);
    for (uint32_t i = 0; i < n; i++) {
        s11_key(first + (cellar_token)i, k + i * S11_SIZE);
        drive_fill(v + i * S11_SIZE, S11_SIZE, random_mix(12, (uint64_t)first + i));
    }
    batch.n_tokens = n;
    cellar_status status = cellar_begin(d->memory, &batch, NULL);
    if (status == CELLAR_OK) status = cellar_store(d->memory, 0, 0, k, v, NULL);
    if (status == CELLAR_OK && out) status = cellar_attend(d->memory, 0, 0, k, out, NULL);
    if (status == CELLAR_OK) status = cellar_commit(d->memory, NULL);
    free(k);
    free(v);
    return status;
}

static void s11_open(drive *d)
{
    memset(d, 0, sizeof *d);
    d->n_layers = 1;
    d->layers[0] = drive_layer(1, 1, S11_SIZE, S11_SIZE);
    d->layers[0].rope.kind = CELLAR_ROPE_NEOX;
    d->layers[0].k_type = CELLAR_Q8_0;
    scenario_open(d, 256, S11_TOKENS);
    CHECK(s11_append(d, 0, S11_TOKENS, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d->memory, A, 0, 64, NULL) == CELLAR_OK);
}

/* Root mean square difference to keys computed fresh for positions 0..63. */
static double s11_error(const drive *d, const float *k)
{
    double sum = 0;
    for (int32_t i = 0; i < 64; i++) {
        float raw[S11_SIZE];
        double fresh[S11_SIZE];
        s11_key(64 + i, raw);
        for (uint32_t j = 0; j < S11_SIZE; j++)
            fresh[j] = raw[j];
        attention_model_rotate(&d->layers[0], i, fresh);
        for (uint32_t j = 0; j < S11_SIZE; j++)
            sum += pow(k[i * S11_SIZE + (int32_t)j] - fresh[j], 2);
    }
    return sqrt(sum / (64 * S11_SIZE));
}

static void s11(void)
{
    drive d[2];
    float out[2][S11_SIZE];
    float *k[2];
    for (int many = 0; many < 2; many++) {
        s11_open(&d[many]);
        uint64_t written = scenario_rows_written(&d[many]);
        for (int i = 0; i < (many ? 64 : 1); i++)
            CHECK(cellar_shift(d[many].memory, A, 0, -1, many ? -1 : -64, NULL) == CELLAR_OK);
        CHECK(scenario_rows_written(&d[many]) == written);
        CHECK(s11_append(&d[many], 500, 1, out[many]) == CELLAR_OK);
        CHECK(scenario_rows_written(&d[many]) == written + 1);
        k[many] = drive_grab(65 * S11_SIZE, sizeof *k[many]);
        CHECK(cellar_read_rows(d[many].memory, A, 0, 0, 65, k[many], NULL, NULL) == CELLAR_OK);
    }
    CHECK(scenario_same_bits(out[0], out[1], S11_SIZE));
    CHECK(scenario_same_bits(k[0], k[1], 65 * S11_SIZE));
    CHECK(s11_error(&d[0], k[0]) < 0.02);
    CHECK(cellar_settle(d[0].memory, A, NULL) == CELLAR_OK); /* rounded once more, as one shift */
    CHECK(cellar_read_rows(d[0].memory, A, 0, 0, 65, k[0], NULL, NULL) == CELLAR_OK);
    CHECK(s11_error(&d[0], k[0]) < 0.02);
    for (int many = 0; many < 2; many++) {
        free(k[many]);
        drive_close(&d[many]);
    }
}

/* ---- D5, D6, D7: the rows before the shift, turned ------------------------------------------- */

/* Turn the rotating elements of a head; rope->first says where they begin. */
static void turn(const cellar_layer *layer, cellar_pos delta, double *head)
{
    cellar_layer inner = *layer;
    inner.k_size = layer->rope.n_rot ? layer->rope.n_rot : layer->k_size;
    inner.rope.first = 0;
    attention_model_rotate(&inner, delta, head + layer->rope.first);
}

static bool rotates(const cellar_layer *layer, uint32_t i)
{
    uint32_t n = layer->rope.n_rot ? layer->rope.n_rot : layer->k_size;
    return i >= layer->rope.first && i < layer->rope.first + n;
}

/* k[1] is k[0], turned by delta: elements that do not rotate are the same bits. */
static void check_turned(const cellar_layer *layer, const float *before, const float *after,
                         cellar_pos delta)
{
    bool is_turned = true, is_kept = true;
    double *head = drive_grab(layer->k_size, sizeof *head);
    for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
        const float *old = before + h * layer->k_size, *now = after + h * layer->k_size;
        double length = 0;
        for (uint32_t i = 0; i < layer->k_size; i++) {
            head[i] = old[i];
            length += head[i] * head[i];
        }
        turn(layer, delta, head);
        for (uint32_t i = 0; i < layer->k_size; i++) {
            is_turned &= fabs(now[i] - head[i]) <= 2e-6 * sqrt(length);
            is_kept &= rotates(layer, i) || layer->rotate_k || now[i] == old[i];
        }
    }
    CHECK(is_turned);
    CHECK(is_kept);
    free(head);
}

/* Read, shift, compare; shift back, and nothing is left of it. */
static void check_shift(const cellar_layer *layer)
{
    static const cellar_pos deltas[] = {-20, 7, 1000, -1007};
    static const uint32_t n_probes = sizeof deltas / sizeof *deltas + 1;
    drive d;
    float *out[2];
    memset(&d, 0, sizeof d);
    d.seed = 81;
    d.n_layers = 1;
    d.layers[0] = *layer;
    scenario_open(&d, MOST, 16);
    size_t k_row = (size_t)layer->n_kv_heads * layer->k_size;
    size_t v_row = (size_t)layer->n_kv_heads * layer->v_size;
    float *k = drive_grab(2 * k_row, sizeof *k), *v = drive_grab(2 * v_row, sizeof *v);
    for (int i = 0; i < 2; i++)
        out[i] = drive_grab(play_row_size(&d), sizeof *out[i]);
    CHECK(play_append(&d, A, 0, 40, NULL, NULL) == CELLAR_OK);
    CHECK(play_probe(&d, A, 99, out[0]) == CELLAR_OK);
    CHECK(scenario_all_finite(out[0], play_row_size(&d)));
    CHECK(cellar_copy(d.memory, A, B, 20, -1, NULL) == CELLAR_OK);
    uint64_t written = scenario_rows_written(&d);
    cellar_pos pos = 33, all = 0;
    CHECK(cellar_read_rows(d.memory, B, 0, pos, 1, k, v, NULL) == CELLAR_OK);
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++) {
        CHECK(cellar_shift(d.memory, B, 0, -1, deltas[i], NULL) == CELLAR_OK);
        all += deltas[i];
        CHECK(cellar_read_rows(d.memory, B, 0, pos + all, 1, k + k_row, v + v_row, NULL) ==
              CELLAR_OK);
        check_turned(layer, k, k + k_row, all);
        CHECK(scenario_same_bits(v, v + v_row, v_row));
        CHECK(play_probe(&d, B, 99, out[1]) == CELLAR_OK);
        CHECK(scenario_all_finite(out[1], play_row_size(&d)));
    }
    CHECK(cellar_shift(d.memory, B, 0, -1, -all, NULL) == CELLAR_OK);
    CHECK(cellar_copy(d.memory, A, B, 0, 20, NULL) == CELLAR_OK);
    CHECK(play_probe(&d, B, 99, out[1]) == CELLAR_OK); /* B is A again */
    CHECK(scenario_same_bits(out[0], out[1], play_row_size(&d)));
    CHECK(scenario_rows_written(&d) == written + n_probes); /* a probe stores its own row */
    for (int i = 0; i < 2; i++)
        free(out[i]);
    free(k);
    free(v);
    drive_close(&d);
}

static cellar_layer typed_layer(cellar_type type, uint32_t size)
{
    cellar_layer layer = scenario_layer(type, size);
    layer.v_size = 32;
    return layer;
}

static void d5_sizes(void)
{
    static const uint32_t sizes[] = {32, 64, 96, 160};
    for (uint32_t t = 0; t < TYPES; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            cellar_layer layer = typed_layer(every_type[t], sizes[s]);
            if (s % 2) layer.rope.kind = CELLAR_ROPE_NORMAL;
            check_shift(&layer);
        }
}

/* V is the beginning of the K row; only what lies behind it rotates. */
static void d5_latent(void)
{
    for (uint32_t t = 0; t < TYPES; t++) {
        cellar_layer layer = drive_layer(4, 1, 96, 64);
        layer.rope.kind = CELLAR_ROPE_NORMAL;
        layer.rope.first = 64;
        layer.rope.n_rot = 32;
        layer.v_in_k = true;
        layer.k_type = layer.v_type = every_type[t];
        check_shift(&layer);
    }
}

static void d6(void)
{
    for (uint32_t t = 0; t < TYPES; t++) {
        cellar_layer layer = typed_layer(every_type[t], 128);
        layer.rope.n_rot = 64;
        check_shift(&layer);
        layer.rope.n_rot = 32;
        layer.rope.first = 64;
        check_shift(&layer);
    }
}

static void d7(void)
{
    for (uint32_t t = 0; t < TYPES; t++) {
        cellar_layer layer = typed_layer(every_type[t], 64);
        layer.rope.scale = 0.25;
        layer.rope.yarn_ext = 1;
        layer.rope.yarn_attn = 1.3;
        layer.rope.yarn_context = 64;
        check_shift(&layer);
    }
}

/* Turned by a Hadamard matrix before they are stored: shifts are rotations all the same. */
static void d5_hadamard(void)
{
    static const cellar_type types[] = {CELLAR_F32, CELLAR_Q8_0, CELLAR_Q4_0, CELLAR_IQ4_NL};
    static const uint32_t sizes[] = {32, 64, 96};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            cellar_layer layer = typed_layer(types[t], sizes[s]);
            layer.rotate_k = true;
            layer.rotate_v = s % 2;
            check_shift(&layer);
            layer.rope.n_rot = 32;
            check_shift(&layer);
        }
}

/* ---- D33: any type for V, whatever K is ------------------------------------------------------ */

/* Uniform softmax: attention is the mean of the values as they are stored. */
static void d33(void)
{
    enum { N = 12, SIZE = 32 };
    for (uint32_t i = 0; i < TYPES * TYPES; i++) {
        drive d;
        float *k = drive_grab(N * SIZE, sizeof *k), *v = drive_grab(N * SIZE, sizeof *v);
        float *q = drive_grab(N * SIZE, sizeof *q), *out = drive_grab(N * SIZE, sizeof *out);
        float stored[N * SIZE];
        memset(&d, 0, sizeof d);
        d.n_layers = 1;
        d.layers[0] = drive_layer(1, 1, SIZE, SIZE);
        d.layers[0].k_type = every_type[i % TYPES];
        d.layers[0].v_type = every_type[i / TYPES];
        scenario_open(&d, 32, N);
        drive_fill(k, N * SIZE, i);
        drive_fill(v, N * SIZE, i + 1000);
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = N;
        CHECK(cellar_begin(d.memory, &batch, NULL) == CELLAR_OK);
        CHECK(cellar_store(d.memory, 0, 0, k, v, NULL) == CELLAR_OK);
        CHECK(cellar_attend(d.memory, 0, 0, q, out, NULL) == CELLAR_OK);
        CHECK(cellar_commit(d.memory, NULL) == CELLAR_OK);
        CHECK(cellar_read_rows(d.memory, A, 0, 0, N, NULL, stored, NULL) == CELLAR_OK);
        bool is_mean = true, is_close = true;
        for (uint32_t j = 0; j < SIZE; j++) {
            double sum = 0;
            for (uint32_t n = 0; n < N; n++) {
                sum += stored[n * SIZE + j];
                is_close &= fabsf(stored[n * SIZE + j] - v[n * SIZE + j]) < 0.2f;
            }
            is_mean &= fabs(out[(N - 1) * SIZE + j] - sum / N) < 1e-5;
        }
        CHECK(is_mean);
        CHECK(is_close);
        free(k);
        free(v);
        free(q);
        free(out);
        drive_close(&d);
    }
}

const scenario scenarios_types[] = {
    {"S11 64 small shifts of q8_0 keys are one large one, to the byte", s11},
    {"D5 keys of every type and head size can be shifted, and back", d5_sizes},
    {"D5 shifting a latent row turns what lies behind its value", d5_latent},
    {"D5 shifting keys behind a Hadamard rotation", d5_hadamard},
    {"D6 partial rotation of every type turns its own elements only", d6},
    {"D7 a shift of YaRN keys of every type does not stretch them", d7},
    {"D33 values of every type with keys of every type", d33},
    {NULL, NULL},
};
