/*
 * unit_arch_latent.c: deepseek2, whose attention can be computed in two ways.
 *
 * A computation in double, written from the paper (keys and values of every head, no cache), says what must
 * come out. The absorbed and the plain form are made of the same weights: k_b is K transposed head by
 * head, kv_b has K and V one after another. Sizes are all different, so that no two can be
 * exchanged unnoticed.
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
    N_HEADS = 3,
    NOPE = 6,
    ROPE = 4,
    K_SIZE = NOPE + ROPE,
    LATENT = 14,
    V_SIZE = 5,
    Q_RANK = 9,
    N_FF = 20,
    N_VOCAB = 32,
    N_TOKENS = 21,
    YARN_CONTEXT = 16
};

#define EPSILON 1e-5
#define YARN_FACTOR 4.0
#define LOG_MULTIPLIER 0.0707
#define NEAR 1e-5 /* standard deviations of the logits */

static const cellar_token tokens[N_TOKENS] = {1,  7, 30, 2, 2,  19, 11, 5, 28, 0, 31,
                                              14, 9, 3,  8, 22, 17, 6,  1, 13, 4};

/* What a model is made with. */
typedef struct variant {
    bool is_plain, is_lite, has_yarn, has_multiplier;
} variant;

typedef struct name {
    char text[64];
} name;

static name of(uint32_t layer, const char *part)
{
    name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s.weight", (unsigned)layer, part);
    return n;
}

/* ---- the model --------------------------------------------------------------------------------- */

static void add_attention(recipe *r, variant v, uint32_t i)
{
    if (v.is_lite) {
        recipe_add(r, of(i, "attn_q").text, N_EMBD, N_HEADS * K_SIZE, 0);
    } else {
        recipe_add(r, of(i, "attn_q_a").text, N_EMBD, Q_RANK, 0);
        recipe_add(r, of(i, "attn_q_a_norm").text, Q_RANK, 0, 0);
        recipe_add(r, of(i, "attn_q_b").text, Q_RANK, N_HEADS * K_SIZE, 0);
    }
    recipe_add(r, of(i, "attn_kv_a_mqa").text, N_EMBD, LATENT + ROPE, 0);
    recipe_add(r, of(i, "attn_kv_a_norm").text, LATENT, 0, 0);
    const float *both = recipe_add(r, of(i, "attn_kv_b").text, LATENT, N_HEADS * (NOPE + V_SIZE),
                                   0);
    if (!v.is_plain) {
        float *k = recipe_add(r, of(i, "attn_k_b").text, NOPE, LATENT, N_HEADS);
        float *values = recipe_add(r, of(i, "attn_v_b").text, LATENT, V_SIZE, N_HEADS);
        for (uint32_t h = 0; h < N_HEADS; h++) {
            const float *head = both + h * (NOPE + V_SIZE) * LATENT;
            for (uint32_t a = 0; a < LATENT; a++) {
                for (uint32_t b = 0; b < NOPE; b++) {
                    k[(h * LATENT + a) * NOPE + b] = head[b * LATENT + a];
                }
            }
            memcpy(values + h * V_SIZE * LATENT, head + NOPE * LATENT,
                   V_SIZE * LATENT * sizeof *values);
        }
        recipe_drop(r, of(i, "attn_kv_b").text);
    }
    recipe_add(r, of(i, "attn_output").text, N_HEADS * V_SIZE, N_EMBD, 0);
}

static void set_keys(recipe *r, variant v)
{
    recipe_set_u32(r, "block_count", N_LAYERS);
    recipe_set_u32(r, "embedding_length", N_EMBD);
    recipe_set_u32(r, "context_length", 128);
    recipe_set_u32(r, "feed_forward_length", N_FF);
    recipe_set_u32(r, "attention.head_count", N_HEADS);
    recipe_set_float(r, "attention.layer_norm_rms_epsilon", EPSILON);
    recipe_set_u32(r, "attention.kv_lora_rank", LATENT);
    recipe_set_u32(r, "rope.dimension_count", ROPE);
    recipe_set_u32(r, "leading_dense_block_count", N_LAYERS);
    if (!v.is_lite) {
        recipe_set_u32(r, "attention.q_lora_rank", Q_RANK);
    }
    recipe_set_u32(r, "attention.head_count_kv", v.is_plain ? N_HEADS : 1);
    recipe_set_u32(r, "attention.key_length", v.is_plain ? K_SIZE : LATENT + ROPE);
    recipe_set_u32(r, "attention.value_length", v.is_plain ? V_SIZE : LATENT);
    if (!v.is_plain) {
        recipe_set_u32(r, "attention.key_length_mla", K_SIZE);
        recipe_set_u32(r, "attention.value_length_mla", V_SIZE);
    }
    if (v.has_yarn) {
        recipe_set_text(r, "rope.scaling.type", "yarn");
        recipe_set_float(r, "rope.scaling.factor", YARN_FACTOR);
        recipe_set_u32(r, "rope.scaling.original_context_length", YARN_CONTEXT);
    }
    if (v.has_multiplier) {
        recipe_set_float(r, "rope.scaling.yarn_log_multiplier", LOG_MULTIPLIER);
    }
}

static recipe *make(variant v)
{
    recipe *r = recipe_create("deepseek2");
    set_keys(r, v);
    recipe_add(r, "token_embd.weight", N_EMBD, N_VOCAB, 0);
    recipe_add(r, "output_norm.weight", N_EMBD, 0, 0);
    recipe_add(r, "output.weight", N_EMBD, N_VOCAB, 0);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        recipe_add(r, of(i, "attn_norm").text, N_EMBD, 0, 0);
        add_attention(r, v, i);
        recipe_add(r, of(i, "ffn_norm").text, N_EMBD, 0, 0);
        recipe_add(r, of(i, "ffn_gate").text, N_EMBD, N_FF, 0);
        recipe_add(r, of(i, "ffn_up").text, N_EMBD, N_FF, 0);
        recipe_add(r, of(i, "ffn_down").text, N_FF, N_EMBD, 0);
    }
    return r;
}

/* ---- in double --------------------------------------------------------------------------------- */

/* Radians that pair i turns for each position (Peng et al., arXiv:2309.00071, section 3.2). */
static double frequency(variant v, uint32_t i)
{
    const double pi = acos(-1.0), theta = pow(10000.0, -2.0 * i / ROPE);
    if (!v.has_yarn) {
        return theta;
    }
    double low = floor(ROPE * log(YARN_CONTEXT / (32 * 2 * pi)) / (2 * log(10000.0)));
    double high = ceil(ROPE * log(YARN_CONTEXT / (1 * 2 * pi)) / (2 * log(10000.0)));
    low = fmax(low, 0);
    high = fmin(high, ROPE - 1);
    const double ramp = fmin(1, fmax(0, (i - low) / fmax(high - low, 0.001)));
    return theta / YARN_FACTOR * ramp + theta * (1 - ramp);
}

static void rotate(variant v, double *x, uint32_t position)
{
    const double by = v.has_yarn && !v.has_multiplier ? 1 + 0.1 * log(YARN_FACTOR) : 1;
    for (uint32_t i = 0; i < ROPE / 2; i++) {
        const double c = cos(position * frequency(v, i)), s = sin(position * frequency(v, i));
        const double a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = by * (a * c - b * s);
        x[2 * i + 1] = by * (a * s + b * c);
    }
}

/* What attention of one layer remembers of a token. */
typedef struct remembered {
    double k[N_HEADS][K_SIZE], v[N_HEADS][V_SIZE];
} remembered;

/* Weights of a layer of the plain form, whichever form is tested. */
static const float *weights(const recipe *r, uint32_t layer, const char *part)
{
    return recipe_data(r, of(layer, part).text);
}

static void remember(const recipe *r, variant v, uint32_t layer, uint32_t position, const double *h,
                     remembered *to)
{
    double both[LATENT + ROPE], made[N_HEADS][NOPE + V_SIZE];
    plain_multiply(weights(r, layer, "attn_kv_a_mqa"), N_EMBD, LATENT + ROPE, h, both);
    plain_rms(weights(r, layer, "attn_kv_a_norm"), LATENT, EPSILON, both, both);
    rotate(v, both + LATENT, position);
    plain_multiply(weights(r, layer, "attn_kv_b"), LATENT, N_HEADS * (NOPE + V_SIZE), both,
                   made[0]);
    for (uint32_t head = 0; head < N_HEADS; head++) {
        memcpy(to->k[head], made[head], NOPE * sizeof(double));
        memcpy(to->k[head] + NOPE, both + LATENT, ROPE * sizeof(double));
        memcpy(to->v[head], made[head] + NOPE, V_SIZE * sizeof(double));
    }
}

static void ask(const recipe *r, variant v, uint32_t layer, uint32_t position, const double *h,
                double q[N_HEADS][K_SIZE])
{
    double down[Q_RANK];
    if (v.is_lite) {
        plain_multiply(weights(r, layer, "attn_q"), N_EMBD, N_HEADS * K_SIZE, h, q[0]);
    } else {
        plain_multiply(weights(r, layer, "attn_q_a"), N_EMBD, Q_RANK, h, down);
        plain_rms(weights(r, layer, "attn_q_a_norm"), Q_RANK, EPSILON, down, down);
        plain_multiply(weights(r, layer, "attn_q_b"), Q_RANK, N_HEADS * K_SIZE, down, q[0]);
    }
    for (uint32_t head = 0; head < N_HEADS; head++) {
        rotate(v, q[head] + NOPE, position);
    }
}

static void attend(variant v, double q[N_HEADS][K_SIZE], const remembered *of_tokens, uint32_t n,
                   double *out)
{
    const double magnitude = v.has_multiplier ? 1 + LOG_MULTIPLIER * log(YARN_FACTOR) : 1;
    for (uint32_t head = 0; head < N_HEADS; head++) {
        double scores[N_TOKENS];
        for (uint32_t j = 0; j < n; j++) {
            scores[j] = 0;
            for (uint32_t i = 0; i < K_SIZE; i++) {
                scores[j] += q[head][i] * of_tokens[j].k[head][i];
            }
            scores[j] *= magnitude * magnitude / sqrt(K_SIZE);
        }
        plain_softmax(scores, n);
        for (uint32_t i = 0; i < V_SIZE; i++) {
            out[head * V_SIZE + i] = 0;
            for (uint32_t j = 0; j < n; j++) {
                out[head * V_SIZE + i] += scores[j] * of_tokens[j].v[head][i];
            }
        }
    }
}

static void feed_forward(const recipe *r, uint32_t layer, double *x)
{
    double h[N_EMBD], gate[N_FF], up[N_FF], down[N_EMBD];
    plain_rms(weights(r, layer, "ffn_norm"), N_EMBD, EPSILON, x, h);
    plain_multiply(weights(r, layer, "ffn_gate"), N_EMBD, N_FF, h, gate);
    plain_multiply(weights(r, layer, "ffn_up"), N_EMBD, N_FF, h, up);
    for (uint32_t i = 0; i < N_FF; i++) {
        gate[i] = plain_silu(gate[i]) * up[i];
    }
    plain_multiply(weights(r, layer, "ffn_down"), N_FF, N_EMBD, gate, down);
    for (uint32_t i = 0; i < N_EMBD; i++) {
        x[i] += down[i];
    }
}

/* Logits after each token. v.is_plain: the recipe must be the plain form's. */
static void compute(variant v, double logits[N_TOKENS][N_VOCAB])
{
    v.is_plain = true;
    recipe *r = make(v);
    static remembered all[N_LAYERS][N_TOKENS];
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double x[N_EMBD], h[N_EMBD], q[N_HEADS][K_SIZE], heads[N_HEADS * V_SIZE], out[N_EMBD];
        for (uint32_t i = 0; i < N_EMBD; i++) {
            x[i] = (double)recipe_data(r, "token_embd.weight")[(uint32_t)tokens[t] * N_EMBD + i];
        }
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            plain_rms(weights(r, layer, "attn_norm"), N_EMBD, EPSILON, x, h);
            remember(r, v, layer, t, h, &all[layer][t]);
            ask(r, v, layer, t, h, q);
            attend(v, q, all[layer], t + 1, heads);
            plain_multiply(weights(r, layer, "attn_output"), N_HEADS * V_SIZE, N_EMBD, heads, out);
            for (uint32_t i = 0; i < N_EMBD; i++) {
                x[i] += out[i];
            }
            feed_forward(r, layer, x);
        }
        plain_rms(recipe_data(r, "output_norm.weight"), N_EMBD, EPSILON, x, h);
        plain_multiply(recipe_data(r, "output.weight"), N_EMBD, N_VOCAB, h, logits[t]);
    }
    recipe_destroy(r);
}

/* ---- by the engine ----------------------------------------------------------------------------- */

/* How tokens are read. */
typedef struct manner {
    uint32_t n_ubatch, n_threads, n_first; /* n_first: tokens of the first of two batches */
} manner;

static void read_part(engine *e, uint32_t first, uint32_t n, float *logits)
{
    uint32_t wanted[N_TOKENS];
    for (uint32_t i = 0; i < n; i++) {
        wanted[i] = i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens + first;
    cellar_error error;
    if (n > 0 && engine_decode(e, &batch, wanted, n, logits + first * N_VOCAB, &error)) {
        fail_msg("%s", error.message);
    }
}

/* logits [N_TOKENS][N_VOCAB]; returns the bytes that a token takes. */
static uint64_t read_all(variant v, manner how, float *logits)
{
    recipe *r = make(v);
    recipe_model made;
    engine *e = NULL;
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = how.n_ubatch;
    options.n_threads = how.n_threads;
    options.k_type = options.v_type = CELLAR_F32;
    cellar_error error;
    if (recipe_load(r, &made, &error) || engine_create(made.model, &options, &e, &error)) {
        fail_msg("%s", error.message);
    }
    read_part(e, 0, how.n_first, logits);
    read_part(e, how.n_first, N_TOKENS - how.n_first, logits);
    cellar_group_info group;
    assert_int_equal(cellar_get_group(engine_memory(e), 0, &group, NULL), CELLAR_OK);
    engine_destroy(e);
    recipe_unload(&made);
    recipe_destroy(r);
    return group.row_bytes;
}

static const manner at_once = {.n_ubatch = 64, .n_threads = 1, .n_first = N_TOKENS};

static void assert_near(variant v)
{
    double wanted[N_TOKENS][N_VOCAB];
    float found[N_TOKENS][N_VOCAB];
    compute(v, wanted);
    read_all(v, at_once, found[0]);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double distance = plain_distance(found[t], wanted[t], N_VOCAB);
        if (!(distance <= NEAR)) {
            fail_msg("token %u: %g standard deviations away", (unsigned)t, distance);
        }
    }
}

static void both_forms_are_what_the_paper_says(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        assert_near((variant){.is_plain = i & 1,
                              .is_lite = i & 2,
                              .has_yarn = i & 4,
                              .has_multiplier = (i & 12) == 12});
    }
}

static void the_absorbed_form_gives_the_same_from_less(void **state)
{
    (void)state;
    float absorbed[N_TOKENS][N_VOCAB], plain[N_TOKENS][N_VOCAB];
    const uint64_t few = read_all((variant){.is_plain = false}, at_once, absorbed[0]);
    const uint64_t many = read_all((variant){.is_plain = true}, at_once, plain[0]);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        double wanted[N_VOCAB];
        for (uint32_t i = 0; i < N_VOCAB; i++) {
            wanted[i] = (double)plain[t][i];
        }
        assert_true(plain_distance(absorbed[t], wanted, N_VOCAB) <= NEAR);
    }
    assert_int_equal(few, N_LAYERS * (LATENT + ROPE) * sizeof(float));
    assert_int_equal(many, N_LAYERS * N_HEADS * (K_SIZE + V_SIZE) * sizeof(float));
}

static void results_do_not_depend_on_how_tokens_are_read(void **state)
{
    (void)state;
    const manner manners[] = {{.n_ubatch = 4, .n_threads = 1, .n_first = N_TOKENS},
                              {.n_ubatch = 64, .n_threads = 3, .n_first = N_TOKENS},
                              {.n_ubatch = 5, .n_threads = 2, .n_first = 13}};
    for (unsigned i = 0; i < 2; i++) {
        const variant v = {.is_plain = i == 1};
        float first[N_TOKENS][N_VOCAB], second[N_TOKENS][N_VOCAB];
        read_all(v, at_once, first[0]);
        for (size_t j = 0; j < sizeof manners / sizeof manners[0]; j++) {
            read_all(v, manners[j], second[0]);
            assert_memory_equal(first, second, sizeof first);
        }
    }
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void assert_refused(recipe *r, cellar_status status, const char *word, const char *other)
{
    recipe_model made;
    cellar_error error = {.message = ""};
    const cellar_status found = recipe_load(r, &made, &error);
    if (found != status || strstr(error.message, word) == NULL ||
        strstr(error.message, other) == NULL) {
        fail_msg("expected '%s' and '%s', found %s: %s", word, other, cellar_status_text(found),
                 error.message);
    }
    assert_null(made.model);
    recipe_unload(&made);
    recipe_destroy(r);
}

static void wrong_keys_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool is_plain;
        int64_t number; /* -1: none */
        const char *says;
    } cases[] = {
        {"attention.key_length_mla", false, -1, "found none"},
        {"attention.value_length_mla", false, 0, "found 0"},
        {"attention.key_length", true, -1, "found none"},
        {"attention.kv_lora_rank", false, -1, "found none"},
        {"attention.kv_lora_rank", false, 1 << 20, "found 1048576"},
        {"attention.head_count", false, 0, "found 0"},
        {"attention.head_count_kv", false, 2, "expected 1"},
        {"attention.head_count_kv", true, 1, "expected as many"},
        {"attention.q_lora_rank", false, 1 << 21, "found 2097152"},
        {"rope.dimension_count", false, K_SIZE, "found 10"},
        {"rope.dimension_count", false, 3, "an even number"},
        {"rope.dimension_count", false, -1, "found none"},
        {"leading_dense_block_count", false, 3, "found 3"},
        {"feed_forward_length", false, -1, "found none"},
        {"attention.layer_norm_rms_epsilon", false, -1, "found none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = make((variant){.is_plain = cases[i].is_plain});
        if (cases[i].number < 0) {
            recipe_drop_key(r, cases[i].key);
        } else {
            recipe_set_u32(r, cases[i].key, (uint32_t)cases[i].number);
        }
        assert_refused(r, CELLAR_CORRUPT, cases[i].key, cases[i].says);
    }
}

static void heads_that_are_too_wide_together_are_refused(void **state)
{
    (void)state;
    recipe *r = make((variant){.is_plain = false});
    recipe_set_u32(r, "attention.head_count", 65536);
    recipe_set_u32(r, "attention.key_length_mla", 65536);
    assert_refused(r, CELLAR_CORRUPT, "attention.head_count", "fewer elements");
}

static void missing_and_misshapen_tensors_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        bool is_plain, is_lite;
        uint64_t dims[3]; /* 0: none */
    } cases[] = {
        {"attn_q_a", false, false, {0}},
        {"attn_q_a_norm", false, false, {0}},
        {"attn_q_b", false, false, {N_EMBD, N_HEADS * K_SIZE}},
        {"attn_q", true, true, {N_EMBD, N_HEADS * NOPE}},
        {"attn_kv_a_mqa", false, false, {N_EMBD, LATENT}},
        {"attn_kv_a_norm", false, false, {LATENT + ROPE}},
        {"attn_k_b", false, false, {LATENT, NOPE, N_HEADS}},
        {"attn_k_b", false, false, {NOPE, LATENT * N_HEADS, 1}},
        {"attn_v_b", false, false, {0}},
        {"attn_v_b", false, false, {LATENT, V_SIZE, N_HEADS + 1}},
        {"attn_kv_b", true, false, {LATENT, N_HEADS * NOPE}},
        {"attn_output", true, false, {N_HEADS * K_SIZE, N_EMBD}},
        {"ffn_down", true, false, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint64_t *dims = cases[i].dims;
        const name tensor = of(1, cases[i].part);
        recipe *r = make((variant){.is_plain = cases[i].is_plain, .is_lite = cases[i].is_lite});
        assert_non_null(recipe_data(r, tensor.text));
        if (dims[0] == 0) {
            recipe_drop(r, tensor.text);
        } else {
            recipe_add(r, tensor.text, dims[0], dims[1], dims[2]);
        }
        assert_refused(r, CELLAR_CORRUPT, tensor.text, dims[0] ? "found [" : "no such tensor");
    }
}

/* Something would be left out of a model with both forms, or with a tensor that belongs to neither. */
static void tensors_that_nobody_asked_for_are_refused(void **state)
{
    (void)state;
    recipe *r = make((variant){.is_plain = true});
    recipe_add(r, of(0, "attn_k_b").text, NOPE, LATENT, N_HEADS);
    assert_refused(r, CELLAR_UNSUPPORTED, "blk.0.attn_k_b.weight", "not part of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_are_what_the_paper_says),
        cmocka_unit_test(the_absorbed_form_gives_the_same_from_less),
        cmocka_unit_test(results_do_not_depend_on_how_tokens_are_read),
        cmocka_unit_test(wrong_keys_are_refused_by_name),
        cmocka_unit_test(heads_that_are_too_wide_together_are_refused),
        cmocka_unit_test(missing_and_misshapen_tensors_are_refused_by_name),
        cmocka_unit_test(tensors_that_nobody_asked_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
