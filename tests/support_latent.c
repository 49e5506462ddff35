/*
 * support_latent.c: the models of support_latent.h.
 *
 * Names and shapes are those of published files: V2-Lite has attn_q, the others pass queries through a
 * vector of a few numbers; experts are the second layer's, where there are any.
 */
#include "support_latent.h"

#include <stdio.h>
#include <string.h>

latent_name latent_part(uint32_t layer, const char *part)
{
    latent_name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s.weight", (unsigned)layer, part);
    return n;
}

/* ---- the model --------------------------------------------------------------------------------- */

static void add_attention(recipe *r, latent_variant v, uint32_t i)
{
    if (v.is_lite) {
        recipe_add(r, latent_part(i, "attn_q").text, N_EMBD, N_HEADS * K_SIZE, 0);
    } else {
        recipe_add(r, latent_part(i, "attn_q_a").text, N_EMBD, Q_RANK, 0);
        recipe_add(r, latent_part(i, "attn_q_a_norm").text, Q_RANK, 0, 0);
        recipe_add(r, latent_part(i, "attn_q_b").text, Q_RANK, N_HEADS * K_SIZE, 0);
    }
    recipe_add(r, latent_part(i, "attn_kv_a_mqa").text, N_EMBD, LATENT + ROPE, 0);
    recipe_add(r, latent_part(i, "attn_kv_a_norm").text, LATENT, 0, 0);
    const float *both = recipe_add(r, latent_part(i, "attn_kv_b").text, LATENT,
                                   N_HEADS * (NOPE + V_SIZE), 0);
    if (!v.is_plain) {
        float *k = recipe_add(r, latent_part(i, "attn_k_b").text, NOPE, LATENT, N_HEADS);
        float *values = recipe_add(r, latent_part(i, "attn_v_b").text, LATENT, V_SIZE, N_HEADS);
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
        recipe_drop(r, latent_part(i, "attn_kv_b").text);
    }
    recipe_add(r, latent_part(i, "attn_output").text, N_HEADS * V_SIZE, N_EMBD, 0);
}

static void set_keys(recipe *r, latent_variant v)
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

static void set_expert_keys(recipe *r, latent_variant v)
{
    recipe_set_u32(r, "leading_dense_block_count", 1);
    recipe_set_u32(r, "expert_count", N_EXPERTS);
    recipe_set_u32(r, "expert_used_count", N_USED);
    recipe_set_u32(r, "expert_shared_count", N_SHARED);
    recipe_set_u32(r, "expert_feed_forward_length", N_EXPERT_FF);
    if (v.experts != EXPERTS) {
        recipe_set_u32(r, "expert_group_count", N_GROUPS);
        recipe_set_u32(r, "expert_group_used_count", N_GROUPS_USED);
        recipe_set_float(r, "expert_weights_scale", EXPERT_SCALE);
    }
    if (v.experts == BEST_PAIRS) {
        recipe_set_u32(r, "expert_gating_func", 2);
        recipe_set_bool(r, "expert_weights_norm", true);
    }
}

static void add_experts(recipe *r, latent_variant v)
{
    const uint32_t shared = N_SHARED * N_EXPERT_FF;
    recipe_add(r, latent_part(1, "ffn_gate_inp").text, N_EMBD, N_EXPERTS, 0);
    recipe_add(r, latent_part(1, "ffn_gate_exps").text, N_EMBD, N_EXPERT_FF, N_EXPERTS);
    recipe_add(r, latent_part(1, "ffn_up_exps").text, N_EMBD, N_EXPERT_FF, N_EXPERTS);
    recipe_add(r, latent_part(1, "ffn_down_exps").text, N_EXPERT_FF, N_EMBD, N_EXPERTS);
    recipe_add(r, latent_part(1, "ffn_gate_shexp").text, N_EMBD, shared, 0);
    recipe_add(r, latent_part(1, "ffn_up_shexp").text, N_EMBD, shared, 0);
    recipe_add(r, latent_part(1, "ffn_down_shexp").text, shared, N_EMBD, 0);
    if (v.experts == BEST_PAIRS) {
        recipe_add(r, "blk.1.exp_probs_b.bias", N_EXPERTS, 0, 0);
    }
}

recipe *latent_make(latent_variant v)
{
    recipe *r = recipe_create("deepseek2");
    set_keys(r, v);
    recipe_add(r, "token_embd.weight", N_EMBD, N_VOCAB, 0);
    recipe_add(r, "output_norm.weight", N_EMBD, 0, 0);
    recipe_add(r, "output.weight", N_EMBD, N_VOCAB, 0);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        recipe_add(r, latent_part(i, "attn_norm").text, N_EMBD, 0, 0);
        add_attention(r, v, i);
        recipe_add(r, latent_part(i, "ffn_norm").text, N_EMBD, 0, 0);
        if (i == 1 && v.experts != DENSE) {
            set_expert_keys(r, v);
            add_experts(r, v);
            continue;
        }
        recipe_add(r, latent_part(i, "ffn_gate").text, N_EMBD, N_FF, 0);
        recipe_add(r, latent_part(i, "ffn_up").text, N_EMBD, N_FF, 0);
        recipe_add(r, latent_part(i, "ffn_down").text, N_FF, N_EMBD, 0);
    }
    return r;
}
