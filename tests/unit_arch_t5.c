/*
 * unit_arch_t5.c: an encoder and a decoder against a computation in double.
 *
 * The computation is the paper's, without a cache: all of a text sees all of it, each token of the
 * decoder what is before it and the whole text. Sizes are all different, so that no two can be exchanged
 * unnoticed. One text is longer than cross attention takes at once. What encodings are as objects is
 * unit_encoder.c's.
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
#include "support_t5.h"

enum { N_EMBD = T5_EMBD, N_VOCAB = T5_VOCAB, N_HEADS = 3, K_SIZE = 5, V_SIZE = 7, N_FF = 20 };
enum { N_BUCKETS = 8, MAX_DISTANCE = 128, N_TEXT = 150, N_TOKENS = 19 };

#define EPSILON 1e-6
#define NEAR 1e-5 /* standard deviations of the logits */

static cellar_token text[N_TEXT], tokens[N_TOKENS];

static int make_tokens(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_TEXT; i++) {
        text[i] = (i * 7 + i * i % 11) % N_VOCAB;
    }
    for (int32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (i * 5 + i * i % 7) % N_VOCAB;
    }
    return 0;
}

/* ---- in double --------------------------------------------------------------------------------- */

/* The bucket of key - query (Raffel et al., and the authors' code). */
static uint32_t bucket_of(int32_t distance, bool is_both_ways)
{
    const uint32_t n = is_both_ways ? N_BUCKETS / 2 : N_BUCKETS, exact = n / 2;
    const uint32_t start = is_both_ways && distance > 0 ? n : 0;
    const uint32_t far = is_both_ways   ? (uint32_t)abs(distance)
                         : distance < 0 ? (uint32_t)-distance
                                        : 0;
    if (far < exact) {
        return start + far;
    }
    const double grown = log((double)far / exact) / log((double)MAX_DISTANCE / exact);
    const uint32_t bucket = exact + (uint32_t)(grown * (n - exact));
    return start + (bucket < n ? bucket : n - 1);
}

/* Attention of the layer `at`, named "<half>.blk.N.<kind>attn", to rows that are already normed. */
typedef struct plain_attention {
    const recipe *recipe;
    const char *at;
    const float *bias; /* [N_BUCKETS][N_HEADS]; NULL: none */
    bool is_causal;    /* else both ways */
} plain_attention;

static const float *matrix(const plain_attention *a, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s.weight", a->at, which);
    return recipe_data(a->recipe, name);
}

/* x [n] rows of N_EMBD += attention of h [n] to of [n_of]. */
static void attend(const plain_attention *a, const double *h, uint32_t n, const double *of,
                   uint32_t n_of, double *x)
{
    double *k = calloc((size_t)n_of * N_HEADS * (K_SIZE + V_SIZE) + n_of, sizeof *k);
    double *v = k + (size_t)n_of * N_HEADS * K_SIZE, *scores = v + (size_t)n_of * N_HEADS * V_SIZE;
    assert_non_null(k);
    for (uint32_t j = 0; j < n_of; j++) {
        plain_multiply(matrix(a, "k"), N_EMBD, N_HEADS * K_SIZE, of + j * N_EMBD,
                       k + j * N_HEADS * K_SIZE);
        plain_multiply(matrix(a, "v"), N_EMBD, N_HEADS * V_SIZE, of + j * N_EMBD,
                       v + j * N_HEADS * V_SIZE);
    }
    for (uint32_t t = 0; t < n; t++) {
        double q[N_HEADS * K_SIZE], heads[N_HEADS * V_SIZE] = {0}, out[N_EMBD];
        const uint32_t n_seen = a->is_causal ? t + 1 : n_of;
        plain_multiply(matrix(a, "q"), N_EMBD, N_HEADS * K_SIZE, h + t * N_EMBD, q);
        for (uint32_t head = 0; head < N_HEADS; head++) {
            for (uint32_t j = 0; j < n_seen; j++) {
                const uint32_t bucket = bucket_of((int32_t)j - (int32_t)t, !a->is_causal);
                scores[j] = a->bias == NULL ? 0 : (double)a->bias[bucket * N_HEADS + head];
                for (uint32_t i = 0; i < K_SIZE; i++) {
                    scores[j] += q[head * K_SIZE + i] * k[(j * N_HEADS + head) * K_SIZE + i];
                }
            }
            plain_softmax(scores, n_seen);
            for (uint32_t j = 0; j < n_seen; j++) {
                for (uint32_t i = 0; i < V_SIZE; i++) {
                    heads[head * V_SIZE + i] += scores[j] * v[(j * N_HEADS + head) * V_SIZE + i];
                }
            }
        }
        plain_multiply(matrix(a, "o"), N_HEADS * V_SIZE, N_EMBD, heads, out);
        for (uint32_t i = 0; i < N_EMBD; i++) {
            x[t * N_EMBD + i] += out[i];
        }
    }
    free(k);
}

static void norm(const recipe *r, const char *at, const char *part, const double *x, uint32_t n,
                 double *to)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s.weight", at, part);
    for (uint32_t t = 0; t < n; t++) {
        plain_rms(recipe_data(r, name), N_EMBD, EPSILON, x + t * N_EMBD, to + t * N_EMBD);
    }
}

static const float *part_of(const recipe *r, const char *at, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s.weight", at, part);
    return recipe_data(r, name);
}

static void feed_forward(const recipe *r, const char *at, const double *h, uint32_t n, double *x)
{
    const float *with_gate = part_of(r, at, "ffn_gate");
    for (uint32_t t = 0; t < n; t++) {
        double up[N_FF], gate[N_FF], down[N_EMBD];
        plain_multiply(part_of(r, at, "ffn_up"), N_EMBD, N_FF, h + t * N_EMBD, up);
        if (with_gate != NULL) {
            plain_multiply(with_gate, N_EMBD, N_FF, h + t * N_EMBD, gate);
        }
        for (uint32_t i = 0; i < N_FF; i++) {
            up[i] = with_gate != NULL ? plain_gelu(gate[i]) * up[i] : fmax(up[i], 0);
        }
        plain_multiply(part_of(r, at, "ffn_down"), N_FF, N_EMBD, up, down);
        for (uint32_t i = 0; i < N_EMBD; i++) {
            x[t * N_EMBD + i] += down[i];
        }
    }
}

/* The biases of a layer: its own, or those of the first. */
static const float *biases(const recipe *r, const char *half, uint32_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "%s.blk.%u.attn_rel_b.weight", half, (unsigned)layer);
    return recipe_data(r, name) != NULL || layer == 0 ? recipe_data(r, name) : biases(r, half, 0);
}

/* x [n] through a layer of either half; a decoder's reads `of` [n_of]. */
static void run_layer(const recipe *r, const char *half, uint32_t layer, double *x, uint32_t n,
                      const double *of, uint32_t n_of)
{
    char at[32], self[64], cross[64];
    snprintf(at, sizeof at, "%s.blk.%u.", half, (unsigned)layer);
    snprintf(self, sizeof self, "%sattn", at);
    snprintf(cross, sizeof cross, "%scross_attn", at);
    double *h = calloc((size_t)n * N_EMBD, sizeof *h);
    assert_non_null(h);
    const plain_attention own = {r, self, biases(r, half, layer), of != NULL};
    norm(r, at, "attn_norm", x, n, h);
    attend(&own, h, n, h, n, x);
    if (of != NULL) {
        const plain_attention other = {r, cross, NULL, false};
        norm(r, at, "cross_attn_norm", x, n, h);
        attend(&other, h, n, of, n_of, x);
    }
    norm(r, at, "ffn_norm", x, n, h);
    feed_forward(r, at, h, n, x);
    free(h);
}

static double *embed(const recipe *r, const cellar_token *of, uint32_t n)
{
    double *x = calloc((size_t)n * N_EMBD, sizeof *x);
    assert_non_null(x);
    for (uint32_t i = 0; i < n * N_EMBD; i++) {
        x[i] = (double)recipe_data(
            r, "token_embd.weight")[(uint32_t)of[i / N_EMBD] * N_EMBD + i % N_EMBD];
    }
    return x;
}

/* Logits after each of N_TOKENS tokens, for a text of n tokens. */
static void compute(const recipe *r, uint32_t n, double logits[N_TOKENS][N_VOCAB])
{
    double *of = embed(r, text, n), *x = embed(r, tokens, N_TOKENS), h[N_TOKENS * N_EMBD];
    for (uint32_t i = 0; i < T5_ENCODER_LAYERS; i++) {
        run_layer(r, "enc", i, of, n, NULL, 0);
    }
    norm(r, "enc.", "output_norm", of, n, of);
    for (uint32_t i = 0; i < T5_DECODER_LAYERS; i++) {
        run_layer(r, "dec", i, x, N_TOKENS, of, n);
    }
    norm(r, "dec.", "output_norm", x, N_TOKENS, h);
    const float *output = recipe_data(r, "output.weight");
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        plain_multiply(output != NULL ? output : recipe_data(r, "token_embd.weight"), N_EMBD,
                       N_VOCAB, h + t * N_EMBD, logits[t]);
        for (uint32_t i = 0; i < N_VOCAB && output == NULL; i++) {
            logits[t][i] /= sqrt(N_EMBD);
        }
    }
    free(of);
    free(x);
}

/* ---- by the engine ----------------------------------------------------------------------------- */

static void decode(engine *e, cellar_seq seq, float logits[N_TOKENS][N_VOCAB])
{
    support_t5_decode(e, seq, tokens, N_TOKENS, logits[0]);
}

static void assert_near(const recipe *r)
{
    static const uint32_t lengths[] = {1, 22, N_TEXT};
    support_t5 made;
    support_t5_open(r, NULL, &made);
    for (uint32_t i = 0; i < 3; i++) {
        double wanted[N_TOKENS][N_VOCAB];
        float found[N_TOKENS][N_VOCAB];
        compute(r, lengths[i], wanted);
        support_t5_encode(made.engine, (cellar_seq)i, text, lengths[i]);
        decode(made.engine, (cellar_seq)i, found);
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            const double distance = plain_distance(found[t], wanted[t], N_VOCAB);
            if (!(distance <= NEAR)) {
                fail_msg("text of %u, token %u: %g standard deviations away", (unsigned)lengths[i],
                         (unsigned)t, distance);
            }
        }
    }
    support_t5_close(&made);
}

static void every_variant_is_what_the_paper_says(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        recipe *r = support_t5_recipe(i & 1);
        if (i & 2) {
            recipe_drop(r, "output.weight");
        }
        if (i & 4) { /* layers with biases of their own */
            recipe_add(r, "enc.blk.1.attn_rel_b.weight", N_HEADS, N_BUCKETS, 0);
            recipe_add(r, "dec.blk.1.attn_rel_b.weight", N_HEADS, N_BUCKETS, 0);
        }
        assert_near(r);
        recipe_destroy(r);
    }
}

static void what_the_file_says_is_in_the_model(void **state)
{
    (void)state;
    recipe *r = support_t5_recipe(true);
    recipe_model made;
    cellar_error error;
    for (unsigned i = 0; i < 2; i++) {
        if (recipe_load(r, &made, &error) != CELLAR_OK) {
            fail_msg("%s", error.message);
        }
        assert_int_equal(made.model->n_layers, T5_DECODER_LAYERS);
        assert_int_equal(made.model->encoder->n_layers, T5_ENCODER_LAYERS);
        assert_int_equal(made.model->encoder->n_memory_layers, 1);
        assert_int_equal(made.model->encoder->start, i == 0 ? 3 : -1);
        recipe_unload(&made);
        recipe_drop_key(r, "decoder_start_token_id");
    }
    recipe_destroy(r);
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void wrong_keys_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t number; /* -1: none */
        const char *says;
    } cases[] = {
        {"attention.head_count", -1, "found none"},
        {"attention.head_count", 0, "found 0"},
        {"attention.head_count_kv", 1, "as many as"},
        {"attention.key_length", -1, "found none"},
        {"attention.key_length", 1 << 20, "found 1048576"},
        {"attention.value_length", 0, "found 0"},
        {"attention.relative_buckets_count", -1, "found none"},
        {"attention.relative_buckets_count", 6, "a multiple of 4"},
        {"attention.relative_buckets_count", 132, "found 132"},
        {"attention.layer_norm_rms_epsilon", -1, "found none"},
        {"feed_forward_length", 0, "found 0"},
        {"decoder_block_count", 0, "found 0"},
        {"decoder_block_count", 513, "found 513"},
        {"decoder_start_token_id", N_VOCAB, "found 40"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = support_t5_recipe(true);
        if (cases[i].number < 0) {
            recipe_drop_key(r, cases[i].key);
        } else {
            recipe_set_u32(r, cases[i].key, (uint32_t)cases[i].number);
        }
        assert_recipe_refused(r, CELLAR_CORRUPT, cases[i].key, cases[i].says);
    }
}

static void missing_and_misshapen_tensors_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t d0, d1; /* 0: none */
    } cases[] = {
        {"enc.blk.0.attn_rel_b.weight", 0, 0},
        {"enc.blk.0.attn_rel_b.weight", N_BUCKETS, N_HEADS},
        {"dec.blk.0.attn_rel_b.weight", N_HEADS, N_BUCKETS - 1},
        {"enc.blk.1.attn_q.weight", 0, 0},
        {"enc.blk.1.attn_o.weight", N_HEADS * K_SIZE, N_EMBD},
        {"enc.blk.0.ffn_norm.weight", N_FF, 0},
        {"enc.output_norm.weight", 0, 0},
        {"dec.blk.2.cross_attn_k.weight", 0, 0},
        {"dec.blk.2.cross_attn_v.weight", N_EMBD, N_HEADS * K_SIZE},
        {"dec.blk.1.cross_attn_norm.weight", 0, 0},
        {"dec.blk.1.ffn_gate.weight", N_EMBD, N_FF + 1},
        {"dec.blk.0.ffn_up.weight", 0, 0},
        {"dec.output_norm.weight", 0, 0},
        {"output.weight", N_EMBD, N_VOCAB + 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = support_t5_recipe(true);
        assert_non_null(recipe_data(r, cases[i].name));
        if (cases[i].d0 == 0) {
            recipe_drop(r, cases[i].name);
        } else {
            recipe_add(r, cases[i].name, cases[i].d0, cases[i].d1, 0);
        }
        assert_recipe_refused(r, CELLAR_CORRUPT, cases[i].name,
                              cases[i].d0 == 0 ? "no such tensor" : "found [");
    }
}

static void tensors_that_nobody_asked_for_are_refused(void **state)
{
    (void)state;
    recipe *r = support_t5_recipe(true);
    recipe_add(r, "dec.blk.0.cross_attn_rel_b.weight", N_HEADS, N_BUCKETS, 0);
    assert_recipe_refused(r, CELLAR_UNSUPPORTED, "cross_attn_rel_b", "not part of");
    r = support_t5_recipe(true);
    recipe_set_u32(r, "decoder_block_count", T5_DECODER_LAYERS - 1);
    assert_recipe_refused(r, CELLAR_UNSUPPORTED, "dec.blk.2.", "not part of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_is_what_the_paper_says),
        cmocka_unit_test(what_the_file_says_is_in_the_model),
        cmocka_unit_test(wrong_keys_are_refused_by_name),
        cmocka_unit_test(missing_and_misshapen_tensors_are_refused_by_name),
        cmocka_unit_test(tensors_that_nobody_asked_for_are_refused),
    };
    return cmocka_run_group_tests(tests, make_tokens, NULL);
}
