/*
 * unit_arch_qwen2vl.c: rotation by three coordinates, from the file to the logits.
 *
 * A text with a picture in it, of two rows and three columns that share a position, is read by the
 * engine and computed in double from the paper's formula. A picture's tokens come in reading order, so what each
 * sees is what came before it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support_recipe.h"

enum {
    N_LAYERS = 2,
    N_EMBD = 24,
    N_HEADS = 4,
    N_KV_HEADS = 2,
    SIZE = 10, /* of a head, of which N_ROT rotate */
    N_ROT = 8,
    N_FF = 20,
    N_VOCAB = 32,
    N_TOKENS = 13
};

#define EPSILON 1e-6
#define BASE 500.0
#define NEAR 1e-5 /* standard deviations of the logits */

static const cellar_token tokens[N_TOKENS] = {3, 9, 30, 2, 2, 2, 11, 5, 28, 0, 31, 14, 9};

/* Where they stand: text, a picture of 2 x 3 at position 3, text behind its largest coordinate. */
static const cellar_pos positions[N_TOKENS] = {0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8, 9};
static const cellar_point points[N_TOKENS] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {3, 4},
                                              {3, 5}, {4, 3}, {4, 4}, {4, 5}, {6, 6},
                                              {7, 7}, {8, 8}, {9, 9}};

static const int32_t sections[3][4] = {{1, 2, 1, 0}, {1, 1, 1, 1}, {4, 0, 0, 0}};

/* ---- the model --------------------------------------------------------------------------------- */

typedef struct name {
    char text[64];
} name;

static name of(uint32_t layer, const char *part)
{
    name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s", (unsigned)layer, part);
    return n;
}

static void add_layer(recipe *r, uint32_t i)
{
    static const struct {
        const char *part;
        uint32_t n_in, n_out;
    } parts[] = {
        {"attn_norm.weight", N_EMBD, 0},       {"attn_q.weight", N_EMBD, N_HEADS * SIZE},
        {"attn_q.bias", N_HEADS * SIZE, 0},    {"attn_k.weight", N_EMBD, N_KV_HEADS * SIZE},
        {"attn_k.bias", N_KV_HEADS * SIZE, 0}, {"attn_v.weight", N_EMBD, N_KV_HEADS * SIZE},
        {"attn_v.bias", N_KV_HEADS * SIZE, 0}, {"attn_output.weight", N_HEADS * SIZE, N_EMBD},
        {"ffn_norm.weight", N_EMBD, 0},        {"ffn_gate.weight", N_EMBD, N_FF},
        {"ffn_up.weight", N_EMBD, N_FF},       {"ffn_down.weight", N_FF, N_EMBD},
    };
    for (size_t j = 0; j < sizeof parts / sizeof parts[0]; j++) {
        recipe_add(r, of(i, parts[j].part).text, parts[j].n_in, parts[j].n_out, 0);
    }
}

static recipe *make(const int32_t its_sections[4])
{
    recipe *r = recipe_create("qwen2vl");
    recipe_set_u32(r, "block_count", N_LAYERS);
    recipe_set_u32(r, "embedding_length", N_EMBD);
    recipe_set_u32(r, "context_length", 128);
    recipe_set_u32(r, "feed_forward_length", N_FF);
    recipe_set_u32(r, "attention.head_count", N_HEADS);
    recipe_set_u32(r, "attention.head_count_kv", N_KV_HEADS);
    recipe_set_u32(r, "attention.key_length", SIZE);
    recipe_set_u32(r, "attention.value_length", SIZE);
    recipe_set_float(r, "attention.layer_norm_rms_epsilon", EPSILON);
    recipe_set_float(r, "rope.freq_base", BASE);
    recipe_set_u32(r, "rope.dimension_count", N_ROT);
    recipe_set_i32s(r, "rope.dimension_sections", its_sections, 4);
    recipe_add(r, "token_embd.weight", N_EMBD, N_VOCAB, 0);
    recipe_add(r, "output_norm.weight", N_EMBD, 0, 0);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        add_layer(r, i);
    }
    return r;
}

/* ---- in double --------------------------------------------------------------------------------- */

static void rotate(const int32_t s[4], double *x, uint32_t token, bool is_text)
{
    const cellar_pos p = is_text ? (cellar_pos)token : positions[token];
    const cellar_pos y = is_text ? p : points[token].y, column = is_text ? p : points[token].x;
    for (int32_t i = 0; i < N_ROT / 2; i++) {
        const double by = i < s[0] ? p : i < s[0] + s[1] ? y : i < s[0] + s[1] + s[2] ? column : 0;
        const double angle = by * pow(BASE, -2.0 * i / N_ROT);
        const double a = x[i], b = x[i + N_ROT / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + N_ROT / 2] = a * sin(angle) + b * cos(angle);
    }
}

static const float *weights(const recipe *r, uint32_t layer, const char *part)
{
    return recipe_data(r, of(layer, part).text);
}

static void multiply_and_add(const recipe *r, uint32_t layer, const char *part, uint32_t n_out,
                             const double *x, double *y)
{
    char both[2][32];
    snprintf(both[0], sizeof both[0], "%s.weight", part);
    snprintf(both[1], sizeof both[1], "%s.bias", part);
    plain_multiply(weights(r, layer, both[0]), N_EMBD, n_out, x, y);
    for (uint32_t i = 0; i < n_out; i++) {
        y[i] += (double)weights(r, layer, both[1])[i];
    }
}

static double keys[N_LAYERS][N_TOKENS][N_KV_HEADS * SIZE];
static double values[N_LAYERS][N_TOKENS][N_KV_HEADS * SIZE];

static void attend(uint32_t layer, uint32_t token, const double *q, double *out)
{
    for (uint32_t head = 0; head < N_HEADS; head++) {
        const uint32_t at = head / (N_HEADS / N_KV_HEADS) * SIZE;
        double scores[N_TOKENS];
        for (uint32_t j = 0; j <= token; j++) {
            scores[j] = 0;
            for (uint32_t i = 0; i < SIZE; i++) {
                scores[j] += q[head * SIZE + i] * keys[layer][j][at + i] / sqrt(SIZE);
            }
        }
        plain_softmax(scores, token + 1);
        for (uint32_t i = 0; i < SIZE; i++) {
            out[head * SIZE + i] = 0;
            for (uint32_t j = 0; j <= token; j++) {
                out[head * SIZE + i] += scores[j] * values[layer][j][at + i];
            }
        }
    }
}

static void run_layer(const recipe *r, const int32_t s[4], uint32_t layer, uint32_t t, bool is_text,
                      double *x)
{
    double h[N_EMBD], q[N_HEADS * SIZE], heads[N_HEADS * SIZE], out[N_EMBD], gate[N_FF], up[N_FF];
    plain_rms(weights(r, layer, "attn_norm.weight"), N_EMBD, EPSILON, x, h);
    multiply_and_add(r, layer, "attn_q", N_HEADS * SIZE, h, q);
    multiply_and_add(r, layer, "attn_k", N_KV_HEADS * SIZE, h, keys[layer][t]);
    multiply_and_add(r, layer, "attn_v", N_KV_HEADS * SIZE, h, values[layer][t]);
    for (uint32_t i = 0; i < N_HEADS; i++) {
        rotate(s, q + i * SIZE, t, is_text);
    }
    for (uint32_t i = 0; i < N_KV_HEADS; i++) {
        rotate(s, keys[layer][t] + i * SIZE, t, is_text);
    }
    attend(layer, t, q, heads);
    plain_multiply(weights(r, layer, "attn_output.weight"), N_HEADS * SIZE, N_EMBD, heads, out);
    for (uint32_t i = 0; i < N_EMBD; i++) {
        x[i] += out[i];
    }
    plain_rms(weights(r, layer, "ffn_norm.weight"), N_EMBD, EPSILON, x, h);
    plain_multiply(weights(r, layer, "ffn_gate.weight"), N_EMBD, N_FF, h, gate);
    plain_multiply(weights(r, layer, "ffn_up.weight"), N_EMBD, N_FF, h, up);
    for (uint32_t i = 0; i < N_FF; i++) {
        gate[i] = plain_silu(gate[i]) * up[i];
    }
    plain_multiply(weights(r, layer, "ffn_down.weight"), N_FF, N_EMBD, gate, out);
    for (uint32_t i = 0; i < N_EMBD; i++) {
        x[i] += out[i];
    }
}

static void compute(const recipe *r, const int32_t s[4], bool is_text,
                    double logits[N_TOKENS][N_VOCAB])
{
    const float *embedding = recipe_data(r, "token_embd.weight");
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double x[N_EMBD];
        for (uint32_t i = 0; i < N_EMBD; i++) {
            x[i] = (double)embedding[(uint32_t)tokens[t] * N_EMBD + i];
        }
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            run_layer(r, s, layer, t, is_text, x);
        }
        plain_rms(recipe_data(r, "output_norm.weight"), N_EMBD, EPSILON, x, x);
        plain_multiply(embedding, N_EMBD, N_VOCAB, x, logits[t]);
    }
}

/* ---- by the engine ----------------------------------------------------------------------------- */

typedef float rows[N_TOKENS][N_VOCAB];

static cellar_batch batch_of(bool is_text)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N_TOKENS;
    batch.tokens = tokens;
    batch.positions = is_text ? NULL : positions;
    batch.points = is_text ? NULL : points;
    return batch;
}

static void read_all(const recipe *r, const cellar_batch *batch, uint32_t n_ubatch, rows logits)
{
    recipe_model made;
    engine *e = NULL;
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = n_ubatch;
    options.k_type = options.v_type = CELLAR_F32;
    uint32_t wanted[N_TOKENS];
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        wanted[i] = i;
    }
    cellar_error error;
    if (recipe_load(r, &made, &error) || engine_create(made.model, &options, &e, &error) ||
        engine_decode(e, batch, wanted, N_TOKENS, logits[0], &error)) {
        fail_msg("%s", error.message);
    }
    engine_destroy(e);
    recipe_unload(&made);
}

static void pairs_turn_by_the_coordinates_of_their_sections(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        const bool is_text = i >= 3;
        recipe *r = make(sections[i % 3]);
        double wanted[N_TOKENS][N_VOCAB];
        rows found;
        const cellar_batch batch = batch_of(is_text);
        compute(r, sections[i % 3], is_text, wanted);
        read_all(r, &batch, 64, found);
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            const double distance = plain_distance(found[t], wanted[t], N_VOCAB);
            if (!(distance <= NEAR)) {
                fail_msg("sections %u, token %u: %g standard deviations away", (unsigned)i,
                         (unsigned)t, distance);
            }
        }
        recipe_destroy(r);
    }
}

static void a_picture_may_be_read_in_pieces(void **state)
{
    (void)state;
    recipe *r = make(sections[0]);
    const cellar_batch batch = batch_of(false);
    rows whole, pieces;
    read_all(r, &batch, 64, whole);
    read_all(r, &batch, 4, pieces);
    assert_memory_equal(whole, pieces, sizeof whole);
    recipe_destroy(r);
}

static void text_has_its_position_for_coordinates(void **state)
{
    (void)state;
    recipe *r = make(sections[0]);
    cellar_point own[N_TOKENS];
    cellar_pos rising[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++) {
        own[i] = (cellar_point){i, i};
        rising[i] = i;
    }
    const cellar_batch without = batch_of(true);
    cellar_batch with = without;
    with.positions = rising;
    with.points = own;
    rows first, second;
    read_all(r, &without, 64, first);
    read_all(r, &with, 64, second);
    assert_memory_equal(first, second, sizeof first);
    recipe_destroy(r);
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void wrong_sections_are_refused(void **state)
{
    (void)state;
    static const char key[] = "rope.dimension_sections";
    static const struct {
        int32_t its[5];
        size_t n;
        const char *says;
    } cases[] = {
        {{1, 2, 1, 1}, 4, "expected a sum of 4"},
        {{1, 1, 1, 0}, 4, "found 3"},
        {{-1, 3, 2, 0}, 4, "found -1"},
        {{5, 0, 0, 0}, 4, "found 5"},
        {{2147483647, 1, 1, 2}, 4, "found 214748"},
        {{1, 2, 1}, 3, "4"},
        {{1, 2, 1, 0, 0}, 5, "4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = make(sections[0]);
        recipe_set_i32s(r, key, cases[i].its, cases[i].n);
        assert_recipe_refused(r, CELLAR_CORRUPT, key, cases[i].says);
    }
    recipe *r = make(sections[0]);
    recipe_drop_key(r, key);
    assert_recipe_refused(r, CELLAR_CORRUPT, key, "found none");
    r = make(sections[0]);
    recipe_set_float(r, key, 1);
    assert_recipe_refused(r, CELLAR_CORRUPT, key, "array");
}

static void missing_and_misshapen_tensors_are_refused_by_name(void **state)
{
    (void)state;
    recipe *r = make(sections[0]);
    recipe_drop(r, "blk.1.attn_v.weight");
    assert_recipe_refused(r, CELLAR_CORRUPT, "blk.1.attn_v.weight", "no such tensor");
    r = make(sections[0]);
    recipe_add(r, "blk.0.attn_k.bias", N_HEADS * SIZE, 0, 0);
    assert_recipe_refused(r, CELLAR_CORRUPT, "blk.0.attn_k.bias", "found [40]");
    r = make(sections[0]);
    recipe_add(r, "v.patch_embd.weight", 4, 4, 0);
    assert_recipe_refused(r, CELLAR_UNSUPPORTED, "v.patch_embd.weight", "not part of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_turn_by_the_coordinates_of_their_sections),
        cmocka_unit_test(a_picture_may_be_read_in_pieces),
        cmocka_unit_test(text_has_its_position_for_coordinates),
        cmocka_unit_test(wrong_sections_are_refused),
        cmocka_unit_test(missing_and_misshapen_tensors_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
