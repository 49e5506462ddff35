/*
 * unit_arch_attention.c: what architectures compute, against a plain computation in double.
 *
 * The traces of another engine show the usual ways through most of them; here is what no trace shows:
 * experts, norms of heads of three kinds, the exact GELU, clamps, and what a shift does to layers
 * that do not rotate beside layers that do. Logits are compared in standard deviations, as the replayer
 * does: the engine's f32 is within 2e-5 of the truth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support_lab.h"

#define N_TOKENS 24u
#define BAR 2e-5

#define U32(name, value)                                                                           \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_U32, .number = (value)                                      \
    }
#define REAL(name, value)                                                                          \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_FLOAT, .number = (value)                                    \
    }

static int32_t token_at(uint32_t i)
{
    return (int32_t)((i * 17 + 5) % LAB_VOCABULARY);
}

/* ---- a lab and an engine on one file ----------------------------------------------------------- */

typedef struct rig {
    lab lab;
    model *model;
    engine *engine;
} rig;

static engine_options small_options(void)
{
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = 16;
    options.k_type = options.v_type = CELLAR_F32;
    return options;
}

static rig rig_create_with(const lab_shape *shape, const engine_options *options)
{
    rig r = {.lab = lab_create(shape)};
    cellar_error error;
    if (model_load(r.lab.made.file, &r.model, &error) != CELLAR_OK ||
        engine_create(r.model, options, &r.engine, &error) != CELLAR_OK) {
        fail_msg("%s: %s", shape->architecture, error.message);
    }
    return r;
}

static rig rig_create(const lab_shape *shape)
{
    const engine_options options = small_options();
    return rig_create_with(shape, &options);
}

static void rig_destroy(rig *r)
{
    engine_destroy(r->engine);
    model_free(r->model);
    lab_destroy(&r->lab);
}

/* Read tokens [first, first + n) of the text at positions from `position` on, in one batch. */
static void decode(engine *e, uint32_t first, uint32_t n, int32_t position, float *logits)
{
    cellar_token tokens[N_TOKENS];
    cellar_pos positions[N_TOKENS];
    uint32_t seq_begin[N_TOKENS + 1], wanted[N_TOKENS];
    cellar_seq seqs[N_TOKENS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = token_at(first + i);
        positions[i] = position + (int32_t)i;
        seq_begin[i] = wanted[i] = i;
    }
    seq_begin[n] = n;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.seq_begin = seq_begin;
    batch.seqs = seqs;
    cellar_error error;
    if (engine_decode(e, &batch, wanted, n, logits, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
}

/* In standard deviations of the truth. */
static double distance(const float *found, const double *truth)
{
    double mean = 0, variance = 0, worst = 0;
    for (uint32_t i = 0; i < LAB_VOCABULARY; i++) {
        mean += truth[i] / LAB_VOCABULARY;
    }
    for (uint32_t i = 0; i < LAB_VOCABULARY; i++) {
        variance += (truth[i] - mean) * (truth[i] - mean) / LAB_VOCABULARY;
        double difference = fabs((double)found[i] - truth[i]);
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    return worst / sqrt(variance);
}

/* Read on with both, and compare. */
static void read_and_compare(rig *r, uint32_t first, uint32_t n, int32_t position)
{
    float *found = calloc(N_TOKENS * LAB_VOCABULARY, sizeof *found);
    double truth[LAB_VOCABULARY];
    decode(r->engine, first, n, position, found);
    for (uint32_t i = 0; i < n; i++) {
        lab_read(&r->lab, token_at(first + i), position + (int32_t)i, truth);
        double apart = distance(found + (size_t)i * LAB_VOCABULARY, truth);
        if (!(apart <= BAR)) {
            fail_msg("%s: token %u is %g standard deviations from the truth",
                     r->lab.shape.architecture, (unsigned)(first + i), apart);
        }
    }
    free(found);
}

static void assert_agrees(const lab_shape *shape)
{
    rig r = rig_create(shape);
    read_and_compare(&r, 0, N_TOKENS - 4, 0);
    for (uint32_t i = N_TOKENS - 4; i < N_TOKENS; i++) {
        read_and_compare(&r, i, 1, (int32_t)i);
    }
    rig_destroy(&r);
}

/* ---- experts ----------------------------------------------------------------------------------- */

static lab_shape mixture(const char *architecture)
{
    lab_shape shape = lab_default(architecture);
    shape.n_experts = 6;
    shape.n_used = 2;
    shape.n_expert_ff = 20;
    return shape;
}

static lab_shape llama_mixture(void)
{
    lab_shape shape = mixture("llama");
    shape.rope = LAB_ADJACENT;
    shape.is_renormalised = true;
    return shape;
}

static void llama_experts_agree(void **state)
{
    (void)state;
    lab_shape shape = llama_mixture();
    assert_agrees(&shape);
    shape.n_used = 1;
    assert_agrees(&shape);
    shape.n_used = shape.n_experts;
    assert_agrees(&shape);
}

static void experts_in_a_tensor_each_agree(void **state)
{
    (void)state;
    lab_shape shape = llama_mixture();
    shape.has_a_tensor_for_each_expert = true;
    assert_agrees(&shape);
}

static void experts_without_a_width_of_their_own_have_the_layers(void **state)
{
    (void)state;
    static const fixture_key none = {.key = "llama.expert_feed_forward_length",
                                     .kind = FIXTURE_NOTHING};
    lab_shape shape = llama_mixture();
    shape.n_expert_ff = shape.n_ff;
    shape.keys = &none;
    shape.n_keys = 1;
    assert_agrees(&shape);
}

static void qwen2moe_agrees(void **state)
{
    (void)state;
    static const fixture_key keys[] = {U32("qwen2moe.expert_shared_feed_forward_length", 28)};
    lab_shape shape = mixture("qwen2moe");
    shape.n_shared_ff = 28;
    shape.has_shared_gate = true;
    shape.keys = keys;
    shape.n_keys = 1;
    assert_agrees(&shape);
}

static void qwen3moe_agrees(void **state)
{
    (void)state;
    lab_shape shape = mixture("qwen3moe");
    shape.head_norm = LAB_ONE_FOR_ALL_HEADS;
    shape.is_renormalised = true;
    assert_agrees(&shape);
}

static const fixture_key granite_scales[] = {
    REAL("granitemoe.logit_scale", 4), REAL("granitemoe.embedding_scale", 3),
    REAL("granitemoe.residual_scale", 0.5), REAL("granitemoe.attention.scale", 0.25)};

static void granitemoe_agrees(void **state)
{
    (void)state;
    lab_shape shape = mixture("granitemoe");
    shape.rope = LAB_ADJACENT;
    shape.is_renormalised = true;
    shape.logit_scale = 0.25;
    shape.embedding_scale = 3;
    shape.residual_scale = 0.5;
    shape.attention_scale = 0.25;
    shape.keys = granite_scales;
    shape.n_keys = 4;
    assert_agrees(&shape);
}

/* As DeepSeek-V3 has them, read here under another name. */
static void a_sigmoid_a_bias_of_the_choice_and_a_scale_agree(void **state)
{
    (void)state;
    static const fixture_key keys[] = {U32("llama.expert_gating_func", 2),
                                       U32("llama.expert_shared_count", 2),
                                       REAL("llama.expert_weights_scale", 2.5)};
    lab_shape shape = llama_mixture();
    shape.is_sigmoid = shape.has_choice_bias = true;
    shape.n_shared_ff = 2 * shape.n_expert_ff;
    shape.expert_scale = 2.5;
    shape.keys = keys;
    shape.n_keys = 3;
    assert_agrees(&shape);
}

/* Whatever is computed beside it, and on however many threads. */
static void a_tokens_experts_depend_on_the_token_alone(void **state)
{
    (void)state;
    lab_shape shape = llama_mixture();
    engine_options options = small_options();
    rig alone = rig_create_with(&shape, &options);
    options.n_threads = 3;
    options.n_ubatch = 7;
    rig together = rig_create_with(&shape, &options);
    float *one = calloc(N_TOKENS * LAB_VOCABULARY, sizeof *one);
    float *all = calloc(N_TOKENS * LAB_VOCABULARY, sizeof *all);
    decode(together.engine, 0, N_TOKENS, 0, all);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        decode(alone.engine, i, 1, (int32_t)i, one + (size_t)i * LAB_VOCABULARY);
    }
    assert_memory_equal(one, all, N_TOKENS * LAB_VOCABULARY * sizeof *one);
    free(one);
    free(all);
    rig_destroy(&alone);
    rig_destroy(&together);
}

/* ---- layers ------------------------------------------------------------------------------------ */

static lab_shape cohere(const char *architecture)
{
    lab_shape shape = lab_default(architecture);
    shape.is_layer_norm = shape.is_parallel = true;
    shape.rope = LAB_ADJACENT;
    shape.logit_scale = 0.25;
    return shape;
}

static void command_r_agrees(void **state)
{
    (void)state;
    static const fixture_key keys[] = {REAL("command-r.logit_scale", 0.25)};
    lab_shape shape = cohere("command-r");
    shape.keys = keys;
    shape.n_keys = 1;
    assert_agrees(&shape);
    shape.head_norm = LAB_ONE_EACH;
    assert_agrees(&shape);
}

static void starcoder2_agrees(void **state)
{
    (void)state;
    lab_shape shape = lab_default("starcoder2");
    shape.is_layer_norm = shape.has_norm_biases = shape.has_biases = shape.is_ungated = true;
    shape.activation = LAB_GELU_TANH;
    assert_agrees(&shape);
    shape.window = 9;
    shape.is_window[0] = shape.is_window[1] = true;
    assert_agrees(&shape);
}

static lab_shape without_rope(const char *architecture)
{
    lab_shape shape = lab_default(architecture);
    shape.n_heads = 6; /* not a power of two */
    shape.n_kv_heads = 3;
    shape.is_layer_norm = shape.is_ungated = shape.is_fused = true;
    shape.rope = LAB_NO_ROPE;
    shape.alibi = 8;
    return shape;
}

static void bloom_agrees(void **state)
{
    (void)state;
    lab_shape shape = without_rope("bloom");
    shape.has_norm_biases = shape.has_biases = shape.has_embedding_norm = true;
    shape.activation = LAB_GELU_TANH;
    assert_agrees(&shape);
}

static void mpt_clamps_norms_and_uses_the_error_function(void **state)
{
    (void)state;
    static const fixture_key keys[] = {REAL("mpt.attention.clamp_kqv", 0.7),
                                       REAL("mpt.attention.max_alibi_bias", 4)};
    lab_shape shape = without_rope("mpt");
    shape.activation = LAB_GELU_ERF;
    shape.alibi = 4;
    shape.clamp = (double)0.7f;
    shape.keys = keys;
    shape.n_keys = 2;
    assert_agrees(&shape);
    shape.head_norm = LAB_WHOLE_ROW;
    shape.has_norm_biases = true;
    assert_agrees(&shape);
}

static void gemma_agrees(void **state)
{
    (void)state;
    lab_shape shape = lab_default("gemma");
    shape.activation = LAB_GELU_TANH;
    shape.embedding_scale = sqrt(32);
    assert_agrees(&shape);
}

/*
 * The largest Gemma 2 and Gemma 3 are known by their layers; their scores are scaled by the share of a head
 * in the width of the model.
 */
static void the_largest_gemmas_scale_scores_by_the_models_width(void **state)
{
    (void)state;
    static const fixture_key keys[] = {U32("gemma3.attention.sliding_window", 512)};
    lab_shape shape = lab_default("gemma2");
    shape.activation = LAB_GELU_TANH;
    shape.has_norms_after = true;
    shape.k_size = 16;
    shape.embedding_scale = sqrt(32);
    shape.attention_scale = sqrt(4.0 / 32);
    shape.n_layers = 46;
    shape.softcap = 50;
    shape.logit_softcap = 30;
    assert_agrees(&shape);

    shape.architecture = "gemma3";
    shape.n_layers = 62;
    shape.softcap = shape.logit_softcap = 0;
    shape.head_norm = LAB_ONE_FOR_ALL_HEADS;
    shape.keys = keys;
    shape.n_keys = 1;
    assert_agrees(&shape);
}

static void phi3_looks_back_through_its_window(void **state)
{
    (void)state;
    lab_shape shape = lab_default("phi3");
    shape.is_fused = true;
    shape.n_rot = 6;
    assert_agrees(&shape);
    shape.window = 5;
    shape.is_window[0] = shape.is_window[1] = true;
    assert_agrees(&shape);
}

/* Memories that are longer than what the model was first trained with divide by other numbers. */
static void phi3_divides_frequencies_by_how_far_it_may_read(void **state)
{
    (void)state;
    static const fixture_key keys[] = {U32("phi3.rope.scaling.original_context_length", 40)};
    lab_shape shape = lab_default("phi3");
    shape.n_rot = 6;
    shape.has_long_rope = true;
    shape.rotated_magnitude = sqrt(1 + log(128.0 / 40) / log(40));
    shape.keys = keys;
    shape.n_keys = 1;
    shape.divisors = "rope_factors_long.weight";
    assert_agrees(&shape); /* 64 cells */

    shape.divisors = "rope_factors_short.weight";
    engine_options options = small_options();
    options.n_cells = 40;
    rig r = rig_create_with(&shape, &options);
    read_and_compare(&r, 0, N_TOKENS, 0);
    rig_destroy(&r);
    options.n_cells = 80;
    options.n_pools = 2;
    r = rig_create_with(&shape, &options);
    read_and_compare(&r, 0, N_TOKENS, 0);
    rig_destroy(&r);
}

/* As in its larger models: no inputs for layers, and keys that are values too. */
static void gemma4_takes_keys_for_values(void **state)
{
    (void)state;
    static const fixture_key keys[] = {U32("gemma4.attention.sliding_window_pattern", 2),
                                       REAL("gemma4.final_logit_softcapping", 30)};
    lab_shape shape = lab_default("gemma4");
    shape.activation = LAB_GELU_TANH;
    shape.embedding_scale = sqrt(32);
    shape.attention_scale = 1;
    shape.logit_softcap = 30;
    shape.has_no_v = shape.has_value_norm = shape.has_norms_after = true;
    shape.head_norm = LAB_ONE_FOR_ALL_HEADS;
    shape.window = 7;
    shape.is_window[0] = true;
    shape.keys = keys;
    shape.n_keys = 2;
    assert_agrees(&shape);
}

/* ---- shifts ------------------------------------------------------------------------------------ */

static void assert_agrees_after_shifts(const lab_shape *shape)
{
    rig r = rig_create(shape);
    cellar_memory *memory = engine_memory(r.engine);
    cellar_error error;
    read_and_compare(&r, 0, 14, 0);
    int32_t next = 14;
    for (uint32_t i = 14; i < N_TOKENS; i += 5) {
        assert_int_equal(cellar_remove(memory, 0, 2, 5, &error), CELLAR_OK);
        assert_int_equal(cellar_shift(memory, 0, 5, -1, -3, &error), CELLAR_OK);
        lab_remove(&r.lab, 2, 5);
        lab_shift(&r.lab, 5, INT32_MAX, -3);
        next -= 3;
        read_and_compare(&r, i, 4, next);
        next += 4;
    }
    rig_destroy(&r);
}

/* Cohere 2: the reference of the traces turns those keys too. */
static void a_shift_leaves_keys_alone_that_do_not_rotate(void **state)
{
    (void)state;
    static const fixture_key keys[] = {REAL("cohere2.logit_scale", 0.25),
                                       U32("cohere2.attention.sliding_window_pattern", 2)};
    lab_shape shape = cohere("cohere2");
    shape.window = 64;
    shape.is_window[0] = shape.do_only_windows_rotate = true;
    shape.keys = keys;
    shape.n_keys = 2;
    assert_agrees(&shape);
    assert_agrees_after_shifts(&shape);
}

static void a_shift_moves_what_experts_read_before(void **state)
{
    (void)state;
    lab_shape shape = llama_mixture();
    assert_agrees_after_shifts(&shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_experts_agree),
        cmocka_unit_test(experts_in_a_tensor_each_agree),
        cmocka_unit_test(experts_without_a_width_of_their_own_have_the_layers),
        cmocka_unit_test(qwen2moe_agrees),
        cmocka_unit_test(qwen3moe_agrees),
        cmocka_unit_test(granitemoe_agrees),
        cmocka_unit_test(a_sigmoid_a_bias_of_the_choice_and_a_scale_agree),
        cmocka_unit_test(a_tokens_experts_depend_on_the_token_alone),
        cmocka_unit_test(command_r_agrees),
        cmocka_unit_test(starcoder2_agrees),
        cmocka_unit_test(bloom_agrees),
        cmocka_unit_test(mpt_clamps_norms_and_uses_the_error_function),
        cmocka_unit_test(gemma_agrees),
        cmocka_unit_test(the_largest_gemmas_scale_scores_by_the_models_width),
        cmocka_unit_test(phi3_looks_back_through_its_window),
        cmocka_unit_test(phi3_divides_frequencies_by_how_far_it_may_read),
        cmocka_unit_test(gemma4_takes_keys_for_values),
        cmocka_unit_test(a_shift_leaves_keys_alone_that_do_not_rotate),
        cmocka_unit_test(a_shift_moves_what_experts_read_before),
    };
    return cmocka_run_group_tests_name("arch_attention", tests, NULL, NULL);
}
