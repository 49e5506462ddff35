/*
 * unit_model.c: what a model file must say, and what is refused.
 *
 * A tiny model that is right is written once for each test, with one key or tensor replaced. A
 * refusal must have the right status and name the key or tensor, what was expected and what was
 * found.
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

#include "engine/model.h"
#include "engine/transformer.h"
#include "kernels.h"
#include "support_model.h"

#define U32(name, value)                                                                           \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_U32, .number = (value)                                      \
    }
#define I32(name, value)                                                                           \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_I32, .number = (value)                                      \
    }
#define REAL(name, value)                                                                          \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_FLOAT, .number = (value)                                    \
    }
#define TEXT(name, value)                                                                          \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_TEXT, .text = (value)                                       \
    }
#define NO(name)                                                                                   \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_NOTHING                                                     \
    }
#define ARRAY(name, n, value, end)                                                                 \
    {                                                                                              \
        .key = (name), .kind = FIXTURE_U32_ARRAY, .count = (n), .number = (value), .last = (end)   \
    }

/* ---- helpers -------------------------------------------------------------------------------- */

/* Load a shape that must be right. */
static model *load(const fixture_shape *shape, fixture *made)
{
    *made = fixture_create(shape);
    model *m;
    cellar_error error;
    if (model_load(made->file, &m, &error) != CELLAR_OK) {
        fail_msg("refused: %s", error.message);
    }
    return m;
}

static void unload(model *m, fixture *made)
{
    model_free(m);
    fixture_destroy(made);
}

/* Load a shape that must be refused with `status`, in a message that has all of `parts`. */
static void assert_refused(const fixture_shape *shape, cellar_status status,
                           const char *const *parts, size_t n_parts)
{
    fixture made = fixture_create(shape);
    model *m = (model *)(void *)&made;
    cellar_error error = {.status = CELLAR_OK};
    cellar_status found = model_load(made.file, &m, &error);
    if (found == CELLAR_OK) {
        fail_msg("accepted, although %s is wrong", parts[0]);
    }
    if (found != status) {
        fail_msg("%s: status %s", error.message, cellar_status_text(found));
    }
    assert_int_equal(error.status, status);
    assert_null(m);
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i] != NULL && strstr(error.message, parts[i]) == NULL) {
            fail_msg("'%s' does not say '%s'", error.message, parts[i]);
        }
    }
    fixture_destroy(&made);
}

static bool is_at_value(const fixture *made, const char *key, int64_t at)
{
    const gguf_value *value = gguf_find_value(made->file, key);
    return value != NULL && at == (int64_t)value->offset;
}

static const transformer_layer *layer_of(const model *m, uint32_t layer)
{
    return (const transformer_layer *)m->layers + layer;
}

/* ---- models that are right ------------------------------------------------------------------ */

static void a_model_has_the_numbers_of_its_file(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    fixture made;
    model *m = load(&shape, &made);
    assert_int_equal(m->n_vocab, FIXTURE_VOCABULARY);
    assert_int_equal(m->n_embd, 32);
    assert_int_equal(m->n_layers, 2);
    assert_int_equal(m->n_context, 128);
    assert_ptr_equal(m->output.weight.data, m->embedding.data);
    assert_null(m->output.bias);
    assert_null(layer_of(m, 1)->attention.q.bias);
    assert_int_equal(layer_of(m, 1)->ffn.up.weight.n_out, 64);
    assert_int_equal(m->scratch, 2 * 64);
    const cellar_layer *layer = &m->memory_layers[1];
    assert_int_equal(layer->n_heads, 4);
    assert_int_equal(layer->n_kv_heads, 2);
    assert_int_equal(layer->k_size, 8);
    assert_int_equal(layer->rope.kind, CELLAR_ROPE_NORMAL);
    assert_int_equal(layer->rope.n_rot, 8);
    assert_true(layer->rope.base == 10000.0 && layer->rope.scale == 1.0);
    assert_null(layer->rope.factors);
    unload(m, &made);
}

static void output_biases_and_factors_are_used_where_the_file_has_them(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.has_output = shape.has_biases = shape.has_factors = true;
    fixture made;
    model *m = load(&shape, &made);
    assert_ptr_not_equal(m->output.weight.data, m->embedding.data);
    assert_non_null(m->output.bias);
    assert_non_null(layer_of(m, 0)->attention.q.bias);
    assert_non_null(layer_of(m, 0)->ffn.down.bias);
    assert_non_null(m->memory_layers[0].rope.factors);
    unload(m, &made);
}

static void key_and_value_heads_have_sizes_of_their_own(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.k_size = 12;
    shape.v_size = 6;
    shape.n_rot = 4;
    fixture made;
    model *m = load(&shape, &made);
    assert_int_equal(layer_of(m, 0)->attention.q.weight.n_out, 48);
    assert_int_equal(layer_of(m, 0)->attention.out.weight.n_in, 24);
    assert_int_equal(m->memory_layers[0].rope.n_rot, 4);
    unload(m, &made);
}

static void what_the_file_leaves_out_follows_from_the_rest(void **state)
{
    (void)state;
    const fixture_key keys[] = {
        NO("llama.attention.key_length"), NO("llama.attention.value_length"),
        NO("llama.attention.head_count_kv"), NO("tokenizer.ggml.bos_token_id")};
    fixture_shape shape = fixture_default();
    shape.n_kv_heads = 4;
    shape.n_rot = 0;
    shape.keys = keys;
    shape.n_keys = 4;
    fixture made;
    model *m = load(&shape, &made);
    assert_int_equal(m->memory_layers[0].n_kv_heads, 4);
    assert_int_equal(m->memory_layers[0].k_size, 8);
    assert_int_equal(m->memory_layers[0].v_size, 8);
    assert_int_equal(m->memory_layers[0].rope.n_rot, 8);
    unload(m, &made);
}

static void head_counts_and_widths_may_be_given_layer_by_layer(void **state)
{
    (void)state;
    const fixture_key keys[] = {ARRAY("llama.attention.head_count_kv", 2, 2, 4),
                                ARRAY("llama.feed_forward_length", 2, 64, 96)};
    const fixture_tensor tensors[] = {
        {"blk.1.attn_k.weight", .n_dims = 2, .dims = {32, 32}},
        {"blk.1.attn_v.weight", .n_dims = 2, .dims = {32, 32}},
        {"blk.1.ffn_gate.weight", .n_dims = 2, .dims = {32, 96}},
        {"blk.1.ffn_up.weight", .n_dims = 2, .dims = {32, 96}},
        {"blk.1.ffn_down.weight", .n_dims = 2, .dims = {96, 32}},
    };
    fixture_shape shape = fixture_default();
    shape.keys = keys;
    shape.n_keys = 2;
    shape.tensors = tensors;
    shape.n_tensors = 5;
    fixture made;
    model *m = load(&shape, &made);
    assert_int_equal(m->memory_layers[0].n_kv_heads, 2);
    assert_int_equal(m->memory_layers[1].n_kv_heads, 4);
    assert_int_equal(layer_of(m, 0)->ffn.up.weight.n_out, 64);
    assert_int_equal(layer_of(m, 1)->ffn.up.weight.n_out, 96);
    assert_int_equal(m->scratch, 2 * 96);
    assert_int_equal(layer_of(m, 1)->attention.n_kv_heads, 4);
    unload(m, &made);
}

/* Rope keys -> what the memory is told. */
static void check_rope(const fixture_key *keys, uint32_t n_keys, cellar_rope expected)
{
    fixture_shape shape = fixture_default();
    shape.keys = keys;
    shape.n_keys = n_keys;
    fixture made;
    model *m = load(&shape, &made);
    cellar_rope found = m->memory_layers[0].rope;
    assert_true(fabs(found.base - expected.base) < 1e-3);
    assert_true(fabs(found.scale - expected.scale) < 1e-6);
    assert_true(fabs(found.yarn_ext - expected.yarn_ext) < 1e-6);
    assert_true(fabs(found.yarn_attn - expected.yarn_attn) < 1e-6);
    assert_true(fabs(found.yarn_beta_fast - expected.yarn_beta_fast) < 1e-5);
    assert_true(fabs(found.yarn_beta_slow - expected.yarn_beta_slow) < 1e-5);
    assert_int_equal(found.yarn_context, expected.yarn_context);
    unload(m, &made);
}

static void every_kind_of_rope_scaling_is_understood(void **state)
{
    (void)state;
    const cellar_rope plain = cellar_layer_init().rope;
    cellar_rope expected = plain;
    const fixture_key base[] = {REAL("llama.rope.freq_base", 500000)};
    expected.base = 500000;
    check_rope(base, 1, expected);

    expected = plain;
    expected.scale = 0.25;
    const fixture_key linear[] = {TEXT("llama.rope.scaling.type", "linear"),
                                  REAL("llama.rope.scaling.factor", 4)};
    check_rope(linear, 2, expected);
    check_rope(linear + 1, 1, expected); /* linear is what a factor alone means */
    const fixture_key old[] = {REAL("llama.rope.scale_linear", 4)};
    check_rope(old, 1, expected);

    const fixture_key none[] = {TEXT("llama.rope.scaling.type", "none"),
                                REAL("llama.rope.scaling.factor", 4)};
    check_rope(none, 2, plain);

    expected.yarn_ext = 1;
    expected.yarn_context = 128; /* context_length, unless it is said */
    const fixture_key yarn[] = {TEXT("llama.rope.scaling.type", "yarn"),
                                REAL("llama.rope.scaling.factor", 4)};
    check_rope(yarn, 2, expected);

    expected.yarn_context = 32;
    expected.yarn_ext = 0.5;
    expected.yarn_attn = 6;
    expected.yarn_beta_fast = 16;
    expected.yarn_beta_slow = 2;
    const fixture_key all[] = {TEXT("llama.rope.scaling.type", "yarn"),
                               REAL("llama.rope.scaling.factor", 4),
                               U32("llama.rope.scaling.original_context_length", 32),
                               REAL("llama.rope.scaling.attn_factor", 2),
                               REAL("llama.rope.scaling.yarn_attn_factor", 3),
                               REAL("llama.rope.scaling.yarn_ext_factor", 0.5),
                               REAL("llama.rope.scaling.yarn_beta_fast", 16),
                               REAL("llama.rope.scaling.yarn_beta_slow", 2)};
    check_rope(all, 8, expected);
}

static void every_weight_type_of_the_kernels_loads(void **state)
{
    (void)state;
    const uint32_t types[] = {CL_WEIGHT_F32, CL_WEIGHT_F16, CL_WEIGHT_BF16, CL_WEIGHT_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        fixture_shape shape = fixture_default();
        shape.weight_type = types[i];
        fixture made;
        model *m = load(&shape, &made);
        assert_int_equal(layer_of(m, 0)->ffn.up.weight.type, types[i]);
        unload(m, &made);
    }
}

static void inverse_frequencies_of_old_files_are_passed_over(void **state)
{
    (void)state;
    const fixture_tensor tensors[] = {{"blk.0.attn_rot_embd.weight", .n_dims = 1, .dims = {4}}};
    fixture_shape shape = fixture_default();
    shape.tensors = tensors;
    shape.n_tensors = 1;
    fixture made;
    unload(load(&shape, &made), &made);
}

/* ---- keys that are wrong -------------------------------------------------------------------- */

typedef struct bad_key {
    fixture_key key;
    const char *expected, *found; /* parts of the message beside the key */
} bad_key;

static const bad_key bad_keys[] = {
    {U32("llama.block_count", 0), "expected 1 to 512", "found 0"},
    {U32("llama.block_count", 513), "expected 1 to 512", "found 513"},
    {U32("llama.block_count", 2147483648.0), "expected 1 to 512", "found 2147483648"},
    {TEXT("llama.block_count", "2"), "expected", "string"},
    {NO("llama.block_count"), "expected this key", "found none"},
    {U32("llama.embedding_length", 0), "expected 1 to 1048576", "found 0"},
    {U32("llama.embedding_length", 4294967295.0), "expected 1 to 1048576", "found 4294967295"},
    {U32("llama.context_length", 0), "expected 1 to", "found 0"},
    {NO("llama.context_length"), "expected this key", "found none"},
    {U32("llama.attention.head_count", 0), "expected 1 to 65536", "found 0"},
    {U32("llama.attention.head_count", 65537), "expected 1 to 65536", "found 65537"},
    {NO("llama.attention.head_count"), "expected this key", "found none"},
    {ARRAY("llama.attention.head_count", 3, 4, 4), "expected 2 elements", "found 3"},
    {U32("llama.attention.head_count_kv", 0), "expected 1 to", "found 0"},
    {U32("llama.attention.head_count_kv", 3), "a divisor of the 4 heads", "found 3"},
    {U32("llama.attention.head_count_kv", 8), "a divisor of the 4 heads", "found 8"},
    {ARRAY("llama.attention.head_count_kv", 2, 2, 3), "a divisor of the 4 heads of layer 1",
     "found 3"},
    {ARRAY("llama.attention.head_count_kv", 2, 2, 0), "expected 1 to", "found 0"},
    {ARRAY("llama.attention.head_count_kv", 1, 2, 2), "expected 2 elements", "found 1"},
    {ARRAY("llama.attention.head_count_kv", 3, 2, 2), "expected 2 elements", "found 3"},
    {{.key = "llama.attention.head_count_kv",
      .kind = FIXTURE_FLOAT_ARRAY,
      .count = 2,
      .number = 2,
      .last = 2},
     "an array of integers",
     "array of float32"},
    {U32("llama.attention.key_length", 0), "expected 2 to 65536", "found 0"},
    {U32("llama.attention.key_length", 7), "an even number", "found 7"},
    {U32("llama.attention.key_length", 1048576), "expected 2 to 65536", "found 1048576"},
    {U32("llama.attention.value_length", 0), "expected 2 to 65536", "found 0"},
    {U32("llama.attention.value_length", 9), "an even number", "found 9"},
    {U32("llama.attention.value_length", 1048576), "expected 2 to 65536", "found 1048576"},
    {U32("llama.feed_forward_length", 0), "expected 1 to", "found 0"},
    {U32("llama.feed_forward_length", 4294967295.0), "expected 1 to 16777216", "found 4294967295"},
    {ARRAY("llama.feed_forward_length", 1, 64, 64), "expected 2 elements", "found 1"},
    {NO("llama.feed_forward_length"), "expected this key", "found none"},
    {REAL("llama.attention.layer_norm_rms_epsilon", 0), "above 0", "found 0"},
    {REAL("llama.attention.layer_norm_rms_epsilon", -1), "above 0", "found -1"},
    {REAL("llama.attention.layer_norm_rms_epsilon", NAN), "finite", "found "},
    {REAL("llama.attention.layer_norm_rms_epsilon", INFINITY), "finite", "found inf"},
    {NO("llama.attention.layer_norm_rms_epsilon"), "expected this key", "found none"},
    {U32("llama.rope.dimension_count", 0), "expected 2 to 8", "found 0"},
    {U32("llama.rope.dimension_count", 3), "an even number", "found 3"},
    {U32("llama.rope.dimension_count", 10), "expected 2 to 8", "found 10"},
    {U32("llama.rope.dimension_count", 2147483648.0), "expected 2 to 8", "found 2147483648"},
    {REAL("llama.rope.freq_base", 0), "expected a number in 1 to", "found 0"},
    {REAL("llama.rope.freq_base", -10000), "expected a number in 1 to", "found -10000"},
    {REAL("llama.rope.freq_base", NAN), "expected a number", "nan"},
    {REAL("llama.rope.freq_base", INFINITY), "expected a number", "found inf"},
    {U32("llama.rope.freq_base", 10000), "expected", "uint32"},
    {TEXT("llama.rope.scaling.type", "longrope"), "none, linear or yarn", "found longrope"},
    {REAL("llama.rope.scaling.factor", 0), "expected a number", "found 0"},
    {REAL("llama.rope.scaling.factor", NAN), "expected a number", "nan"},
    {REAL("llama.rope.scale_linear", -4), "expected a number", "found -4"},
    {REAL("llama.rope.scaling.attn_factor", 0), "expected a number", "found 0"},
    {U32("llama.vocab_size", 0), "expected 2 to", "found 0"},
    {U32("llama.vocab_size", 1), "expected 2 to", "found 1"},
    {U32("llama.vocab_size", 263), "rows of token_embd.weight", "found 263"},
    {U32("tokenizer.ggml.bos_token_id", FIXTURE_VOCABULARY), "a token id below 264", "found 264"},
    {I32("tokenizer.ggml.eos_token_id", -1), "", ""},
    {U32("tokenizer.ggml.eos_token_id", 4294967295.0), "a token id below 264", "found 4294967295"},
    {U32("llama.expert_count", 4097), "expected 0 to 4096", "found 4097"},
    {TEXT("general.architecture", "abacus"), "expected one that 'cellar version' lists",
     "found abacus"},
    {TEXT("general.architecture", ""), "expected one that 'cellar version' lists", "found "},
    {U32("general.architecture", 1), "expected", "uint32"},
    {NO("general.architecture"), "expected this key", "found none"},
};

/* Which refusals mean "good, but not for us". */
static cellar_status expected_status(const fixture_key *key)
{
    bool is_foreign = strcmp(key->key, "llama.rope.scaling.type") == 0 ||
                      (strcmp(key->key, "general.architecture") == 0 && key->kind == FIXTURE_TEXT);
    return is_foreign ? CELLAR_UNSUPPORTED : CELLAR_CORRUPT;
}

static void every_bad_key_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_keys / sizeof bad_keys[0]; i++) {
        const bad_key *bad = &bad_keys[i];
        fixture_shape shape = fixture_default();
        shape.keys = &bad->key;
        shape.n_keys = 1;
        const char *const parts[] = {bad->key.key, bad->expected, bad->found};
        assert_refused(&shape, expected_status(&bad->key), parts, 3);
    }
}

static void a_refusal_says_where_the_value_stands(void **state)
{
    (void)state;
    const fixture_key keys[] = {U32("llama.block_count", 513)};
    fixture_shape shape = fixture_default();
    shape.keys = keys;
    shape.n_keys = 1;
    fixture made = fixture_create(&shape);
    model *m;
    cellar_error error;
    assert_int_equal(model_load(made.file, &m, &error), CELLAR_CORRUPT);
    assert_true(is_at_value(&made, "llama.block_count", error.at));
    fixture_destroy(&made);
}

static void heads_without_a_size_must_divide_the_width(void **state)
{
    (void)state;
    const fixture_key keys[] = {
        NO("llama.attention.key_length"), NO("llama.attention.value_length"),
        U32("llama.attention.head_count", 6), U32("llama.attention.head_count_kv", 6)};
    fixture_shape shape = fixture_default();
    shape.keys = keys;
    shape.n_keys = 4;
    const char *const parts[] = {"llama.attention.head_count", "a divisor of the embedding length",
                                 "found 6"};
    assert_refused(&shape, CELLAR_CORRUPT, parts, 3);
}

static void yarn_that_shrinks_is_refused(void **state)
{
    (void)state;
    const fixture_key keys[] = {TEXT("llama.rope.scaling.type", "yarn"),
                                REAL("llama.rope.scaling.factor", 0.5)};
    fixture_shape shape = fixture_default();
    shape.keys = keys;
    shape.n_keys = 2;
    const char *const parts[] = {"llama.rope.scaling.factor", "at least 1", "found 0.5"};
    assert_refused(&shape, CELLAR_CORRUPT, parts, 3);
}

/* ---- tensors that are wrong ----------------------------------------------------------------- */

typedef struct bad_tensor {
    fixture_tensor tensor;
    cellar_status status;
    const char *expected, *found;
} bad_tensor;

static const bad_tensor bad_tensors[] = {
    {{"token_embd.weight", .is_left_out = true}, CELLAR_CORRUPT, "expected", "no such tensor"},
    {{"token_embd.weight", .n_dims = 2, .dims = {32, 1}}, CELLAR_CORRUPT, "2 to", "found 1"},
    {{"token_embd.weight", .n_dims = 2, .dims = {32, 263}}, CELLAR_CORRUPT, "", ""},
    {{"token_embd.weight", .n_dims = 2, .dims = {16, 264}},
     CELLAR_CORRUPT,
     "[32, 264]",
     "[16, 264]"},
    {{"output_norm.weight", .is_left_out = true}, CELLAR_CORRUPT, "[32]", "no such tensor"},
    {{"output_norm.weight", .n_dims = 1, .dims = {31}}, CELLAR_CORRUPT, "[32]", "[31]"},
    {{"output_norm.weight", .n_dims = 2, .dims = {32, 2}}, CELLAR_CORRUPT, "[32]", "[32, 2]"},
    {{"blk.1.attn_norm.weight", .is_left_out = true}, CELLAR_CORRUPT, "[32]", "no such tensor"},
    {{"blk.1.ffn_down.weight", .is_left_out = true}, CELLAR_CORRUPT, "[64, 32]", "no such tensor"},
    {{"blk.0.attn_q.weight", .n_dims = 2, .dims = {32, 16}},
     CELLAR_CORRUPT,
     "[32, 32]",
     "[32, 16]"},
    {{"blk.0.attn_k.weight", .n_dims = 2, .dims = {32, 32}},
     CELLAR_CORRUPT,
     "[32, 16]",
     "[32, 32]"},
    {{"blk.0.ffn_up.weight", .n_dims = 3, .dims = {32, 64, 2}},
     CELLAR_CORRUPT,
     "[32, 64]",
     "[32, 64, 2]"},
    {{"blk.0.ffn_gate.weight", .type = 9, .n_dims = 2, .dims = {32, 64}},
     CELLAR_UNSUPPORTED,
     "F32, F16, BF16, Q8_0, Q4_0 to Q6_K, IQ4 or MXFP4",
     "found Q8_1"},
    {{"blk.0.ffn_norm.weight", .type = 8, .n_dims = 1, .dims = {32}},
     CELLAR_UNSUPPORTED,
     "F32, F16 or BF16",
     "found Q8_0"},
    {{"extra_norm.weight", .n_dims = 1, .dims = {32}}, CELLAR_UNSUPPORTED, "not part of", "llama"},
};

static void every_bad_tensor_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_tensors / sizeof bad_tensors[0]; i++) {
        const bad_tensor *bad = &bad_tensors[i];
        fixture_shape shape = fixture_default();
        shape.tensors = &bad->tensor;
        shape.n_tensors = 1;
        const char *const parts[] = {bad->tensor.name, bad->expected, bad->found};
        assert_refused(&shape, bad->status, parts, 3);
    }
}

static void rope_factors_must_be_numbers_to_divide_by(void **state)
{
    (void)state;
    const fixture_tensor zeros[] = {{"rope_freqs.weight", .n_dims = 1, .dims = {4}}};
    const fixture_tensor shorter[] = {{"rope_freqs.weight", .n_dims = 1, .dims = {3}}};
    fixture_shape shape = fixture_default();
    shape.has_factors = true;
    shape.n_tensors = 1;
    shape.tensors = zeros;
    const char *const zero[] = {"rope_freqs.weight", "expected numbers", "found 0 at 0"};
    assert_refused(&shape, CELLAR_CORRUPT, zero, 3);
    shape.tensors = shorter;
    const char *const shape_parts[] = {"rope_freqs.weight", "[4]", "[3]"};
    assert_refused(&shape, CELLAR_CORRUPT, shape_parts, 3);
}

static void heads_that_multiply_beyond_bounds_are_refused(void **state)
{
    (void)state;
    const fixture_key keys[] = {U32("llama.attention.head_count", 65536),
                                U32("llama.attention.head_count_kv", 65536),
                                U32("llama.attention.key_length", 65536)};
    fixture_shape shape = fixture_default();
    shape.keys = keys;
    shape.n_keys = 3;
    const char *const parts[] = {"layer 0", "at most 16777216", "found 4294967296"};
    assert_refused(&shape, CELLAR_CORRUPT, parts, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_has_the_numbers_of_its_file),
        cmocka_unit_test(output_biases_and_factors_are_used_where_the_file_has_them),
        cmocka_unit_test(key_and_value_heads_have_sizes_of_their_own),
        cmocka_unit_test(what_the_file_leaves_out_follows_from_the_rest),
        cmocka_unit_test(head_counts_and_widths_may_be_given_layer_by_layer),
        cmocka_unit_test(every_kind_of_rope_scaling_is_understood),
        cmocka_unit_test(every_weight_type_of_the_kernels_loads),
        cmocka_unit_test(inverse_frequencies_of_old_files_are_passed_over),
        cmocka_unit_test(every_bad_key_is_refused_by_name),
        cmocka_unit_test(a_refusal_says_where_the_value_stands),
        cmocka_unit_test(heads_without_a_size_must_divide_the_width),
        cmocka_unit_test(yarn_that_shrinks_is_refused),
        cmocka_unit_test(every_bad_tensor_is_refused_by_name),
        cmocka_unit_test(rope_factors_must_be_numbers_to_divide_by),
        cmocka_unit_test(heads_that_multiply_beyond_bounds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
