/*
 * unit_arch_refusals.c: files that an architecture cannot run are refused by name.
 *
 * Each case is a file that is right (which is tried first) but for one key or tensor. The refusal must have
 * the right status and name the key or tensor, what was expected and what was found. Where a plain
 * model is wrong in a way that any architecture would see, unit_model has the case.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/model.h"
#include "support_lab.h"

#define U32(name, value)                                                                           \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_U32, .number = (value)                                      \
    }
#define REAL(name, value)                                                                          \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_FLOAT, .number = (value)                                    \
    }
#define ARRAY(name, n, value, end)                                                                 \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_U32_ARRAY, .count = (n), .number = (value), .last = (end)   \
    }
#define NO(name)                                                                                   \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_NOTHING                                                     \
    }
#define LEFT_OUT(tensor)                                                                           \
    {                                                                                              \
        .name = (tensor), .is_left_out = true                                                      \
    }
#define SHAPED(tensor, ...)                                                                        \
    {                                                                                              \
        .name = (tensor), .n_dims = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),          \
        .dims = {                                                                                  \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* ---- files that are right ---------------------------------------------------------------------- */

typedef struct right_file {
    lab_shape shape;
    fixture_key keys[8]; /* [shape.n_keys] */
} right_file;

static right_file plain(const char *architecture)
{
    return (right_file){.shape = lab_default(architecture)};
}

static right_file qwen3(void)
{
    right_file f = plain("qwen3");
    f.shape.head_norm = LAB_ONE_FOR_ALL_HEADS;
    return f;
}

static right_file phi3(void)
{
    right_file f = plain("phi3");
    f.shape.is_fused = true;
    return f;
}

static right_file long_phi3(void)
{
    right_file f = plain("phi3");
    f.shape.has_long_rope = true;
    f.keys[0] = (fixture_key)U32("phi3.rope.scaling.original_context_length", 40);
    f.shape.n_keys = 1;
    return f;
}

static right_file gemma2(void)
{
    right_file f = plain("gemma2");
    f.shape.has_norms_after = true;
    return f;
}

static right_file gemma3(void)
{
    right_file f = plain("gemma3");
    f.shape.has_norms_after = true;
    f.shape.head_norm = LAB_ONE_FOR_ALL_HEADS;
    f.shape.window = 8;
    return f;
}

static right_file gemma4(void)
{
    right_file f = gemma3();
    f.shape.architecture = "gemma4";
    f.shape.n_layers = 3;
    f.keys[0] = (fixture_key)ARRAY("gemma4.attention.sliding_window_pattern", 3, 1, 0);
    f.shape.n_keys = 1;
    return f;
}

static right_file cohere2(void)
{
    right_file f = plain("cohere2");
    f.shape.is_layer_norm = f.shape.is_parallel = true;
    f.shape.window = 8;
    f.keys[0] = (fixture_key)REAL("cohere2.logit_scale", 0.25);
    f.shape.n_keys = 1;
    return f;
}

static right_file command_r(void)
{
    right_file f = cohere2();
    f.shape.architecture = "command-r";
    f.shape.head_norm = LAB_ONE_EACH;
    f.shape.window = 0;
    f.keys[0] = (fixture_key)REAL("command-r.logit_scale", 0.25);
    return f;
}

static right_file granite_swa(void)
{
    right_file f = plain("granite_swa");
    f.shape.window = 8;
    f.keys[0] = (fixture_key)REAL("granite_swa.logit_scale", 4);
    f.shape.n_keys = 1;
    return f;
}

static right_file bloom(void)
{
    right_file f = plain("bloom");
    f.shape.is_layer_norm = f.shape.is_ungated = f.shape.is_fused = true;
    f.shape.has_norm_biases = f.shape.has_biases = f.shape.has_embedding_norm = true;
    return f;
}

static right_file mpt(void)
{
    right_file f = bloom();
    f.shape.architecture = "mpt";
    f.shape.has_embedding_norm = false;
    f.shape.head_norm = LAB_WHOLE_ROW;
    return f;
}

static right_file experts(const char *architecture)
{
    right_file f = plain(architecture);
    f.shape.n_experts = 6;
    f.shape.n_used = 2;
    f.shape.n_expert_ff = 20;
    return f;
}

static right_file mixtral(void)
{
    return experts("llama");
}

static right_file old_mixtral(void)
{
    right_file f = mixtral();
    f.shape.has_a_tensor_for_each_expert = true;
    return f;
}

static right_file qwen2moe(void)
{
    right_file f = experts("qwen2moe");
    f.shape.n_shared_ff = 28;
    f.shape.has_shared_gate = true;
    f.keys[0] = (fixture_key)U32("qwen2moe.expert_shared_feed_forward_length", 28);
    f.shape.n_keys = 1;
    return f;
}

/* ---- what is wrong with them ------------------------------------------------------------------- */

typedef struct wrong_key {
    right_file (*right)(void);
    fixture_key key;
    cellar_status status;
    const char *parts[3]; /* what the message must say */
} wrong_key;

static const wrong_key wrong_keys[] = {
    {qwen3,
     U32("qwen3.attention.head_count_kv", 3),
     CELLAR_CORRUPT,
     {"qwen3.attention.head_count_kv", "a divisor of the 4 heads", "found 3"}},
    {qwen3,
     NO("qwen3.attention.layer_norm_rms_epsilon"),
     CELLAR_CORRUPT,
     {"qwen3.attention.layer_norm_rms_epsilon", "expected this key", "found none"}},
    {long_phi3,
     NO("phi3.rope.scaling.original_context_length"),
     CELLAR_CORRUPT,
     {"phi3.rope.scaling.original_context_length", "expected this key", "found none"}},
    {gemma2,
     REAL("gemma2.attn_logit_softcapping", 0),
     CELLAR_CORRUPT,
     {"gemma2.attn_logit_softcapping", "above 0", "found 0"}},
    {gemma2,
     REAL("gemma2.final_logit_softcapping", NAN),
     CELLAR_CORRUPT,
     {"gemma2.final_logit_softcapping", "above 0", "nan"}},
    {gemma3,
     NO("gemma3.attention.sliding_window"),
     CELLAR_CORRUPT,
     {"gemma3.attention.sliding_window", "expected this key", "found none"}},
    {gemma3,
     U32("gemma3.attention.sliding_window", 0),
     CELLAR_CORRUPT,
     {"gemma3.attention.sliding_window", "expected 1 to", "found 0"}},
    {gemma3,
     U32("gemma3.attention.sliding_window", 2147483648.0),
     CELLAR_CORRUPT,
     {"gemma3.attention.sliding_window", "expected 1 to 1073741824", "found 2147483648"}},
    {gemma3,
     U32("gemma3.attention.sliding_window_pattern", 0),
     CELLAR_CORRUPT,
     {"gemma3.attention.sliding_window_pattern", "expected 1 to", "found 0"}},
    {gemma3,
     ARRAY("gemma3.attention.sliding_window_pattern", 3, 1, 0),
     CELLAR_CORRUPT,
     {"gemma3.attention.sliding_window_pattern", "2 truth values", "found 3"}},
    {gemma3,
     REAL("gemma3.rope.freq_base_swa", 0.5),
     CELLAR_CORRUPT,
     {"gemma3.rope.freq_base_swa", "expected a number in 1", "found 0.5"}},
    {gemma4,
     U32("gemma4.attention.shared_kv_layers", 3),
     CELLAR_CORRUPT,
     {"gemma4.attention.shared_kv_layers", "expected 0 to 2", "found 3"}},
    {gemma4,
     U32("gemma4.attention.shared_kv_layers", 1),
     CELLAR_CORRUPT,
     {"gemma4.attention.shared_kv_layers", "a layer without a window before layer 2",
      "found none"}},
    {gemma4,
     U32("gemma4.attention.key_length_swa", 7),
     CELLAR_CORRUPT,
     {"gemma4.attention.key_length_swa", "an even number", "found 7"}},
    {gemma4,
     U32("gemma4.attention.key_length_swa", 6),
     CELLAR_UNSUPPORTED,
     {"layer 0", "keys and values of one size", "found 6 and 8"}},
    {gemma4,
     U32("gemma4.rope.dimension_count_swa", 5),
     CELLAR_CORRUPT,
     {"gemma4.rope.dimension_count_swa", "an even number", "found 5"}},
    {gemma4,
     U32("gemma4.rope.dimension_count_swa", 10),
     CELLAR_CORRUPT,
     {"gemma4.rope.dimension_count_swa", "expected 2 to 8", "found 10"}},
    {gemma4,
     U32("gemma4.embedding_length_per_layer_input", 4),
     CELLAR_CORRUPT,
     {"per_layer_token_embd.weight", "expected shape [12, 40]", "no such tensor"}},
    {cohere2,
     NO("cohere2.logit_scale"),
     CELLAR_CORRUPT,
     {"cohere2.logit_scale", "expected this key", "found none"}},
    {cohere2,
     NO("cohere2.attention.sliding_window"),
     CELLAR_CORRUPT,
     {"cohere2.attention.sliding_window", "expected this key", "found none"}},
    {cohere2,
     NO("cohere2.attention.layer_norm_epsilon"),
     CELLAR_CORRUPT,
     {"cohere2.attention.layer_norm_epsilon", "expected this key", "found none"}},
    {granite_swa,
     REAL("granite_swa.logit_scale", -1),
     CELLAR_CORRUPT,
     {"granite_swa.logit_scale", "above 0", "found -1"}},
    {granite_swa,
     REAL("granite_swa.residual_scale", INFINITY),
     CELLAR_CORRUPT,
     {"granite_swa.residual_scale", "above 0", "inf"}},
    {granite_swa,
     REAL("granite_swa.attention.scale", 0),
     CELLAR_CORRUPT,
     {"granite_swa.attention.scale", "above 0", "found 0"}},
    {mpt,
     REAL("mpt.attention.clamp_kqv", -3),
     CELLAR_CORRUPT,
     {"mpt.attention.clamp_kqv", "expected a number in 0", "found -3"}},
    {mpt,
     REAL("mpt.attention.max_alibi_bias", NAN),
     CELLAR_CORRUPT,
     {"mpt.attention.max_alibi_bias", "expected a number in 0", "nan"}},
    {mixtral,
     U32("llama.expert_count", 4097),
     CELLAR_CORRUPT,
     {"llama.expert_count", "expected 0 to 4096", "found 4097"}},
    {mixtral,
     U32("llama.expert_count", 5),
     CELLAR_CORRUPT,
     {"blk.0.ffn_gate_inp.weight", "expected shape [32, 5]", "found [32, 6]"}},
    {mixtral,
     NO("llama.expert_used_count"),
     CELLAR_CORRUPT,
     {"llama.expert_used_count", "expected this key", "found none"}},
    {mixtral,
     U32("llama.expert_used_count", 7),
     CELLAR_CORRUPT,
     {"llama.expert_used_count", "expected 1 to 6", "found 7"}},
    {mixtral,
     U32("llama.expert_used_count", 0),
     CELLAR_CORRUPT,
     {"llama.expert_used_count", "expected 1 to 6", "found 0"}},
    {mixtral,
     U32("llama.expert_gating_func", 3),
     CELLAR_CORRUPT,
     {"llama.expert_gating_func", "expected 0 to 2", "found 3"}},
    {mixtral,
     U32("llama.expert_group_count", 2),
     CELLAR_CORRUPT,
     {"llama.expert_group_used_count", "expected this key", "found none"}},
    {mixtral,
     U32("llama.expert_group_count", 4),
     CELLAR_CORRUPT,
     {"llama.expert_group_count", "a divisor of expert_count", "found 4"}},
    {mixtral,
     REAL("llama.expert_weights_scale", 0),
     CELLAR_CORRUPT,
     {"llama.expert_weights_scale", "above 0", "found 0"}},
    {mixtral,
     U32("llama.expert_weights_norm", 1),
     CELLAR_CORRUPT,
     {"llama.expert_weights_norm", "a truth value", "found uint32"}},
    {mixtral,
     U32("llama.expert_shared_count", 4096),
     CELLAR_CORRUPT,
     {"blk.0.ffn_gate_shexp.weight", "expected shape [32, 81920]", "no such tensor"}},
    {qwen2moe,
     NO("qwen2moe.expert_shared_feed_forward_length"),
     CELLAR_UNSUPPORTED,
     {"ffn_gate_shexp.weight", "not part of the qwen2moe architecture", ""}},
};

typedef struct wrong_tensor {
    right_file (*right)(void);
    fixture_tensor tensor;
    cellar_status status;
    const char *parts[2]; /* beside its name */
} wrong_tensor;

static const wrong_tensor wrong_tensors[] = {
    {qwen3,
     LEFT_OUT("blk.1.attn_k_norm.weight"),
     CELLAR_CORRUPT,
     {"expected shape [8]", "no such tensor"}},
    {qwen3,
     SHAPED("blk.0.attn_q_norm.weight", 32),
     CELLAR_CORRUPT,
     {"expected shape [8]", "found [32]"}},
    {phi3,
     SHAPED("blk.0.attn_qkv.weight", 32, 60),
     CELLAR_CORRUPT,
     {"expected shape [32, 64]", "found [32, 60]"}},
    {long_phi3,
     SHAPED("rope_factors_long.weight", 5),
     CELLAR_CORRUPT,
     {"expected shape [4]", "found [5]"}},
    {long_phi3,
     LEFT_OUT("rope_factors_short.weight"),
     CELLAR_CORRUPT,
     {"expected shape [4]", "no such tensor"}},
    {long_phi3,
     SHAPED("rope_factors_short.weight", 4),
     CELLAR_CORRUPT,
     {"expected numbers in", "found 0 at 0"}},
    {gemma2,
     LEFT_OUT("blk.0.post_attention_norm.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32]", "no such tensor"}},
    {gemma2,
     LEFT_OUT("blk.1.post_ffw_norm.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32]", "no such tensor"}},
    {gemma2,
     LEFT_OUT("blk.1.attn_v.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32, 16]", "no such tensor"}},
    {gemma4,
     LEFT_OUT("blk.1.attn_k.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32, 16]", "no such tensor"}},
    {command_r,
     SHAPED("blk.1.attn_k_norm.weight", 8),
     CELLAR_CORRUPT,
     {"expected shape [16]", "found [8]"}},
    {command_r,
     LEFT_OUT("blk.0.attn_k_norm.weight"),
     CELLAR_CORRUPT,
     {"expected shape [16]", "no such tensor"}},
    {command_r, LEFT_OUT("blk.0.attn_q_norm.weight"), CELLAR_UNSUPPORTED, {"", ""}},
    {granite_swa,
     LEFT_OUT("blk.0.ffn_norm.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32]", "no such tensor"}},
    {bloom,
     LEFT_OUT("token_embd_norm.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32]", "no such tensor"}},
    {bloom, SHAPED("blk.0.ffn_up.bias", 23), CELLAR_CORRUPT, {"expected shape [24]", "found [23]"}},
    {bloom,
     SHAPED("blk.0.attn_qkv.bias", 32),
     CELLAR_CORRUPT,
     {"expected shape [64]", "found [32]"}},
    {mpt,
     SHAPED("blk.0.attn_q_norm.weight", 8),
     CELLAR_CORRUPT,
     {"expected shape [32]", "found [8]"}},
    {mixtral,
     SHAPED("blk.1.ffn_up_exps.weight", 32, 20, 5),
     CELLAR_CORRUPT,
     {"expected shape [32, 20, 6]", "found [32, 20, 5]"}},
    {mixtral,
     SHAPED("blk.1.ffn_down_exps.weight", 32, 20, 6),
     CELLAR_CORRUPT,
     {"expected shape [20, 32, 6]", "found [32, 20, 6]"}},
    {mixtral,
     LEFT_OUT("blk.0.ffn_gate_exps.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32, 20, 6]", "no such tensor"}},
    {old_mixtral,
     LEFT_OUT("blk.0.ffn_gate.5.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32, 20]", "no such tensor"}},
    {old_mixtral,
     SHAPED("blk.1.ffn_down.2.weight", 20, 31),
     CELLAR_CORRUPT,
     {"expected shape [20, 32]", "found [20, 31]"}},
    {qwen2moe,
     LEFT_OUT("blk.0.ffn_gate_inp_shexp.weight"),
     CELLAR_CORRUPT,
     {"expected shape [32, 1]", "no such tensor"}},
    {qwen2moe,
     SHAPED("blk.0.ffn_up_shexp.weight", 32, 27),
     CELLAR_CORRUPT,
     {"expected shape [32, 28]", "found [32, 27]"}},
};

/* ---- tests ------------------------------------------------------------------------------------- */

static void assert_is_right(const lab_shape *shape)
{
    fixture made = lab_write(shape);
    model *m = NULL;
    cellar_error error;
    if (model_load(made.file, &m, &error) != CELLAR_OK) {
        fail_msg("%s: refused although it is right: %s", shape->architecture, error.message);
    }
    model_free(m);
    fixture_destroy(&made);
}

static void assert_refused(const lab_shape *shape, const char *name, cellar_status status,
                           const char *const *parts, size_t n)
{
    fixture made = lab_write(shape);
    model *m = (model *)(void *)&made;
    cellar_error error = {.status = CELLAR_OK};
    cellar_status found = model_load(made.file, &m, &error);
    if (found == CELLAR_OK) {
        fail_msg("%s: accepted, although %s is wrong", shape->architecture, name);
    }
    if (found != status || error.status != status) {
        fail_msg("%s: status %s", error.message, cellar_status_text(found));
    }
    assert_null(m);
    for (size_t i = 0; i < n; i++) {
        if (strstr(error.message, parts[i]) == NULL) {
            fail_msg("'%s' does not say '%s'", error.message, parts[i]);
        }
    }
    fixture_destroy(&made);
}

static void every_wrong_key_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong_keys / sizeof wrong_keys[0]; i++) {
        const wrong_key *wrong = &wrong_keys[i];
        right_file f = wrong->right();
        f.shape.keys = f.keys;
        assert_is_right(&f.shape);
        uint32_t at = 0;
        while (at < f.shape.n_keys && strcmp(f.keys[at].key, wrong->key.key) != 0)
            at++;
        f.keys[at] = wrong->key;
        f.shape.n_keys += at == f.shape.n_keys;
        assert_refused(&f.shape, wrong->key.key, wrong->status, wrong->parts, 3);
    }
}

static void every_wrong_tensor_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong_tensors / sizeof wrong_tensors[0]; i++) {
        const wrong_tensor *wrong = &wrong_tensors[i];
        right_file f = wrong->right();
        f.shape.keys = f.keys;
        assert_is_right(&f.shape);
        f.shape.tensors = &wrong->tensor;
        f.shape.n_tensors = 1;
        bool is_other = wrong->status == CELLAR_UNSUPPORTED; /* what depends on it is named */
        const char *const parts[] = {is_other ? "tensor" : wrong->tensor.name, wrong->parts[0],
                                     wrong->parts[1]};
        assert_refused(&f.shape, wrong->tensor.name, wrong->status, parts, 3);
    }
}

/* Whoever knows the part of a layer, and whoever does not, the file says what it is. */
static void a_part_of_another_architecture_is_refused(void **state)
{
    (void)state;
    right_file with_head_norms = qwen3();
    with_head_norms.shape.architecture = "qwen2";
    const char *const names[] = {"attn_q_norm.weight", "not part of the qwen2 architecture"};
    assert_refused(&with_head_norms.shape, "attn_q_norm", CELLAR_UNSUPPORTED, names, 2);

    right_file with_experts = mixtral();
    with_experts.shape.architecture = "phi3";
    const char *const parts[] = {"blk.0.ffn_up.weight", "expected shape [32, 48]"};
    assert_refused(&with_experts.shape, "experts", CELLAR_CORRUPT, parts, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wrong_key_is_refused_by_name),
        cmocka_unit_test(every_wrong_tensor_is_refused_by_name),
        cmocka_unit_test(a_part_of_another_architecture_is_refused),
    };
    return cmocka_run_group_tests_name("arch_refusals", tests, NULL, NULL);
}
