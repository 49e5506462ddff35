/*
 * unit_arch_latent_wrong.c: files of deepseek2 that contradict themselves.
 *
 * One thing of a model that is right is made wrong; the refusal names it and what was found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "support_latent.h"

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
        recipe *r = latent_make((latent_variant){.is_plain = cases[i].is_plain});
        if (cases[i].number < 0) {
            recipe_drop_key(r, cases[i].key);
        } else {
            recipe_set_u32(r, cases[i].key, (uint32_t)cases[i].number);
        }
        assert_recipe_refused(r, CELLAR_CORRUPT, cases[i].key, cases[i].says);
    }
}

static void heads_that_are_too_wide_together_are_refused(void **state)
{
    (void)state;
    recipe *r = latent_make((latent_variant){.is_plain = false});
    recipe_set_u32(r, "attention.head_count", 65536);
    recipe_set_u32(r, "attention.key_length_mla", 65536);
    assert_recipe_refused(r, CELLAR_CORRUPT, "attention.head_count", "fewer elements");
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
        const latent_name tensor = latent_part(1, cases[i].part);
        recipe *r = latent_make(
            (latent_variant){.is_plain = cases[i].is_plain, .is_lite = cases[i].is_lite});
        assert_non_null(recipe_data(r, tensor.text));
        if (dims[0] == 0) {
            recipe_drop(r, tensor.text);
        } else {
            recipe_add(r, tensor.text, dims[0], dims[1], dims[2]);
        }
        assert_recipe_refused(r, CELLAR_CORRUPT, tensor.text,
                              dims[0] ? "found [" : "no such tensor");
    }
}

static void wrong_experts_are_refused_by_name(void **state)
{
    (void)state;
    const latent_variant v = {.experts = BEST_PAIRS};
    static const struct {
        const char *key;
        uint32_t number;
        const char *says;
    } cases[] = {
        {"expert_count", 4097, "found 4097"},
        {"expert_used_count", N_EXPERTS + 1, "found 13"},
        {"expert_gating_func", 3, "found 3"},
        {"expert_group_count", 5, "a divisor of expert_count"},
        {"expert_group_count", N_EXPERTS + 1, "found 13"},
        {"expert_group_used_count", N_GROUPS + 1, "found 5"},
        {"expert_group_used_count", 0, "found 0"},
        {"expert_used_count", 7, ""}, /* of two groups of three */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = latent_make(v);
        recipe_set_u32(r, cases[i].key, cases[i].number);
        assert_recipe_refused(r, CELLAR_CORRUPT, i == 7 ? "expert_group_used_count" : cases[i].key,
                              cases[i].says);
    }
    static const char *const parts[] = {"ffn_gate_inp", "ffn_up_exps", "ffn_down_shexp"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        recipe *r = latent_make(v);
        recipe_drop(r, latent_part(1, parts[i]).text);
        assert_recipe_refused(r, CELLAR_CORRUPT, latent_part(1, parts[i]).text, "no such tensor");
    }
    recipe *r = latent_make(v);
    recipe_set_u32(r, "leading_dense_block_count", 2); /* the second layer is an ordinary one */
    assert_recipe_refused(r, CELLAR_CORRUPT, "blk.1.ffn_up.weight", "no such tensor");
}

/* Something would be left out of a model with both forms, or with a tensor that belongs to neither. */
static void tensors_that_nobody_asked_for_are_refused(void **state)
{
    (void)state;
    recipe *r = latent_make((latent_variant){.is_plain = true});
    recipe_add(r, latent_part(0, "attn_k_b").text, NOPE, LATENT, N_HEADS);
    assert_recipe_refused(r, CELLAR_UNSUPPORTED, "blk.0.attn_k_b.weight", "not part of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_keys_are_refused_by_name),
        cmocka_unit_test(heads_that_are_too_wide_together_are_refused),
        cmocka_unit_test(missing_and_misshapen_tensors_are_refused_by_name),
        cmocka_unit_test(wrong_experts_are_refused_by_name),
        cmocka_unit_test(tensors_that_nobody_asked_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
