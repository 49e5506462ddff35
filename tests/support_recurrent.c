/*
 * support_recurrent.c: recipes of models with states.
 *
 * Tensors have their usual names. Where a random number would make no sense (a decay above 0), it is
 * written over. Attention, where there is any, has 2 heads of 8 over 1.
 */
#include "support_recurrent.h"

#include <math.h>
#include <stdio.h>

#include "engine/random_source.h"

#define EPSILON 1e-5

typedef struct name {
    char text[64];
} name;

static name of(uint32_t layer, const char *part)
{
    name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s", (unsigned)layer, part);
    return n;
}

static float *add(recipe *r, uint32_t layer, const char *part, uint32_t d0, uint32_t d1)
{
    return recipe_add(r, of(layer, part).text, d0, d1, 0);
}

static uint32_t between(random_source *random, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(random_source_unit(random) * (high - low + 1));
}

recurrent_shape recurrent_random(recurrent_kind kind, uint64_t seed)
{
    random_source random;
    random_source_seed(&random, seed);
    recurrent_shape s = {.kind = kind};
    s.n_groups = between(&random, 1, 3);
    s.n_heads = s.n_groups * between(&random, 1, 2);
    s.head_size = between(&random, 3, 9);
    s.n_inner = s.n_heads * s.head_size;
    s.n_state = between(&random, 2, 9);
    s.kernel = between(&random, 2, 4);
    s.rank = between(&random, 2, 7);
    s.n_ff = between(&random, 5, 24);
    bool is_rwkv = kind == RECURRENT_RWKV6 || kind == RECURRENT_RWKV7;
    s.n_embd = is_rwkv ? s.n_inner : 16;
    return s;
}

/* ---- keys -------------------------------------------------------------------------------------- */

static const char *architecture(recurrent_kind kind)
{
    static const char *const names[RECURRENT_KINDS] = {"mamba", "mamba2", "lfm2",      "rwkv6",
                                                       "rwkv7", "jamba",  "falcon-h1", "lfm2"};
    return names[kind];
}

static bool attends(const recurrent_shape *s, uint32_t layer)
{
    return s->kind == RECURRENT_FALCON_H1 || (s->kind >= RECURRENT_PLAIN_KINDS && layer == 1);
}

static void set_heads(recipe *r, const recurrent_shape *s)
{
    int32_t kv_heads[RECURRENT_LAYERS];
    for (uint32_t i = 0; i < RECURRENT_LAYERS; i++) {
        kv_heads[i] = attends(s, i);
    }
    recipe_set_u32(r, "attention.head_count", 2);
    recipe_set_i32s(r, "attention.head_count_kv", kv_heads, RECURRENT_LAYERS);
    recipe_set_u32(r, "attention.key_length", 8);
    recipe_set_u32(r, "attention.value_length", 8);
}

static void set_rwkv(recipe *r, const recurrent_shape *s)
{
    recipe_set_u32(r, "wkv.head_size", s->head_size);
    if (s->kind == RECURRENT_RWKV6) {
        recipe_set_u32(r, "time_mix_extra_dim", s->rank);
        recipe_set_u32(r, "time_decay_extra_dim", s->rank + 1);
        recipe_set_u32(r, "rescale_every_n_layers", 1);
        return;
    }
    recipe_set_u32(r, "attention.decay_lora_rank", s->rank);
    recipe_set_u32(r, "attention.iclr_lora_rank", s->rank + 1);
    recipe_set_u32(r, "attention.value_residual_mix_lora_rank", s->rank + 2);
    recipe_set_u32(r, "attention.gate_lora_rank", s->rank + 3);
}

static void set_keys(recipe *r, const recurrent_shape *s)
{
    recipe_set_u32(r, "block_count", RECURRENT_LAYERS);
    recipe_set_u32(r, "embedding_length", s->n_embd);
    recipe_set_u32(r, "context_length", 256);
    recipe_set_u32(r, "feed_forward_length", s->n_ff);
    if (s->kind == RECURRENT_RWKV6 || s->kind == RECURRENT_RWKV7) {
        recipe_set_float(r, "attention.layer_norm_epsilon", EPSILON);
        set_rwkv(r, s);
        return;
    }
    recipe_set_float(r, "attention.layer_norm_rms_epsilon", EPSILON);
    if (s->kind != RECURRENT_MAMBA && s->kind != RECURRENT_MAMBA2) {
        set_heads(r, s);
    }
    if (s->kind == RECURRENT_LFM2 || s->kind == RECURRENT_LFM2_HYBRID) {
        recipe_set_u32(r, "shortconv.l_cache", s->kernel);
        return;
    }
    recipe_set_u32(r, "ssm.conv_kernel", s->kernel);
    recipe_set_u32(r, "ssm.inner_size", s->n_inner);
    recipe_set_u32(r, "ssm.state_size", s->n_state);
    if (s->kind == RECURRENT_MAMBA || s->kind == RECURRENT_JAMBA) {
        recipe_set_u32(r, "ssm.time_step_rank", s->rank);
    } else {
        recipe_set_u32(r, "ssm.time_step_rank", s->n_heads);
        recipe_set_u32(r, "ssm.group_count", s->n_groups);
    }
}

/* ---- tensors ----------------------------------------------------------------------------------- */

/* Decays: from -0.05 down, all different. */
static void make_decays(float *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        a[i] = -0.05f - 0.13f * (float)(i % 11) - 0.01f * (float)i;
    }
}

static void add_scan(recipe *r, const recurrent_shape *s, uint32_t i)
{
    add(r, i, "ssm_in.weight", s->n_embd, 2 * s->n_inner);
    add(r, i, "ssm_conv1d.weight", s->kernel, s->n_inner);
    add(r, i, "ssm_conv1d.bias", s->n_inner, 0);
    add(r, i, "ssm_x.weight", s->n_inner, s->rank + 2 * s->n_state);
    if (s->kind == RECURRENT_JAMBA) {
        add(r, i, "ssm_dt_norm.weight", s->rank, 0);
        add(r, i, "ssm_b_norm.weight", s->n_state, 0);
        add(r, i, "ssm_c_norm.weight", s->n_state, 0);
    }
    add(r, i, "ssm_dt.weight", s->rank, s->n_inner);
    add(r, i, "ssm_dt.bias", s->n_inner, 0);
    make_decays(add(r, i, "ssm_a", s->n_state, s->n_inner), s->n_state * s->n_inner);
    add(r, i, "ssm_d", s->n_inner, 0);
    add(r, i, "ssm_out.weight", s->n_inner, s->n_embd);
}

static void add_space(recipe *r, const recurrent_shape *s, uint32_t i)
{
    const uint32_t n_channels = s->n_inner + 2 * s->n_groups * s->n_state;
    add(r, i, "ssm_in.weight", s->n_embd, s->n_inner + n_channels + s->n_heads);
    add(r, i, "ssm_conv1d.weight", s->kernel, n_channels);
    add(r, i, "ssm_conv1d.bias", n_channels, 0);
    add(r, i, "ssm_dt.bias", s->n_heads, 0);
    make_decays(add(r, i, "ssm_a", 1, s->n_heads), s->n_heads);
    add(r, i, "ssm_d", 1, s->n_heads);
    add(r, i, "ssm_norm.weight", s->n_inner / s->n_groups, s->n_groups);
    add(r, i, "ssm_out.weight", s->n_inner, s->n_embd);
}

static void add_attention(recipe *r, const recurrent_shape *s, uint32_t i)
{
    add(r, i, "attn_q.weight", s->n_embd, 16);
    add(r, i, "attn_k.weight", s->n_embd, 8);
    add(r, i, "attn_v.weight", s->n_embd, 8);
    add(r, i, "attn_output.weight", 16, s->n_embd);
    if (s->kind == RECURRENT_LFM2_HYBRID) {
        add(r, i, "attn_q_norm.weight", 8, 0);
        add(r, i, "attn_k_norm.weight", 8, 0);
    }
}

static void add_hybrid_layer(recipe *r, const recurrent_shape *s, uint32_t i)
{
    const bool is_mamba = s->kind == RECURRENT_MAMBA || s->kind == RECURRENT_MAMBA2;
    add(r, i, "attn_norm.weight", s->n_embd, 0);
    if (attends(s, i)) {
        add_attention(r, s, i);
    }
    if (s->kind == RECURRENT_MAMBA || (s->kind == RECURRENT_JAMBA && !attends(s, i))) {
        add_scan(r, s, i);
    } else if (s->kind == RECURRENT_MAMBA2 || s->kind == RECURRENT_FALCON_H1) {
        add_space(r, s, i);
    } else if (!attends(s, i)) {
        add(r, i, "shortconv.in_proj.weight", s->n_embd, 3 * s->n_embd);
        add(r, i, "shortconv.conv.weight", s->kernel, s->n_embd);
        add(r, i, "shortconv.out_proj.weight", s->n_embd, s->n_embd);
    }
    if (!is_mamba) {
        add(r, i, s->kind == RECURRENT_FALCON_H1 ? "ffn_norm" : "ffn_norm.weight", s->n_embd, 0);
        add(r, i, "ffn_gate.weight", s->n_embd, s->n_ff);
        add(r, i, "ffn_up.weight", s->n_embd, s->n_ff);
        add(r, i, "ffn_down.weight", s->n_ff, s->n_embd);
    }
}

static void add_layer_norm(recipe *r, const char *prefix, uint32_t n)
{
    char text[96];
    snprintf(text, sizeof text, "%s.weight", prefix);
    recipe_add(r, text, n, 0, 0);
    snprintf(text, sizeof text, "%s.bias", prefix);
    recipe_add(r, text, n, 0, 0);
}

static void add_six(recipe *r, const recurrent_shape *s, uint32_t i)
{
    const uint32_t n = s->n_embd;
    add(r, i, "time_mix_lerp_x.weight", n, 0);
    add(r, i, "time_mix_lerp_fused.weight", n, 5);
    add(r, i, "time_mix_w1.weight", n, 5 * s->rank);
    recipe_add(r, of(i, "time_mix_w2.weight").text, s->rank, n, 5);
    add(r, i, "time_mix_first.weight", s->head_size, s->n_heads);
    add(r, i, "time_mix_decay.weight", n, 0);
    add(r, i, "time_mix_decay_w1.weight", n, s->rank + 1);
    add(r, i, "time_mix_decay_w2.weight", s->rank + 1, n);
    add(r, i, "time_mix_gate.weight", n, n);
    add(r, i, "channel_mix_lerp_r.weight", n, 0);
    add(r, i, "channel_mix_receptance.weight", n, n);
}

static void add_seven(recipe *r, const recurrent_shape *s, uint32_t i)
{
    static const char letters[4] = {'w', 'a', 'v', 'g'};
    const uint32_t n = s->n_embd;
    for (uint32_t j = 0; j < 4; j++) {
        char part[32];
        if (letters[j] == 'v' && i == 0) continue;
        snprintf(part, sizeof part, "time_mix_%c1.weight", letters[j]);
        add(r, i, part, n, s->rank + j);
        snprintf(part, sizeof part, "time_mix_%c2.weight", letters[j]);
        add(r, i, part, s->rank + j, n);
        snprintf(part, sizeof part, "time_mix_%c0.weight", letters[j]);
        if (letters[j] != 'g') add(r, i, part, n, 0);
    }
    add(r, i, "time_mix_lerp_fused.weight", n, 6);
    add(r, i, "time_mix_k_k.weight", n, 0);
    add(r, i, "time_mix_k_a.weight", n, 0);
    add(r, i, "time_mix_r_k.weight", n, 0);
}

static void add_rwkv_layer(recipe *r, const recurrent_shape *s, uint32_t i)
{
    const uint32_t n = s->n_embd;
    add_layer_norm(r, of(i, "attn_norm").text, n);
    add_layer_norm(r, of(i, "attn_norm_2").text, n);
    add_layer_norm(r, of(i, "time_mix_ln").text, n);
    if (s->kind == RECURRENT_RWKV6) {
        add_six(r, s, i);
    } else {
        add_seven(r, s, i);
    }
    add(r, i, "time_mix_key.weight", n, n);
    add(r, i, "time_mix_value.weight", n, n);
    add(r, i, "time_mix_receptance.weight", n, n);
    add(r, i, "time_mix_output.weight", n, n);
    add(r, i, "channel_mix_lerp_k.weight", n, 0);
    add(r, i, "channel_mix_key.weight", n, s->n_ff);
    add(r, i, "channel_mix_value.weight", s->n_ff, n);
}

recipe *recurrent_recipe(const recurrent_shape *s)
{
    recipe *r = recipe_create(architecture(s->kind));
    const bool is_rwkv = s->kind == RECURRENT_RWKV6 || s->kind == RECURRENT_RWKV7;
    const bool is_lfm2 = s->kind == RECURRENT_LFM2 || s->kind == RECURRENT_LFM2_HYBRID;
    set_keys(r, s);
    recipe_add(r, "token_embd.weight", s->n_embd, RECURRENT_VOCABULARY, 0);
    recipe_add(r, "output.weight", s->n_embd, RECURRENT_VOCABULARY, 0);
    if (is_rwkv) {
        add_layer_norm(r, "token_embd_norm", s->n_embd);
        add_layer_norm(r, "output_norm", s->n_embd);
    } else {
        recipe_add(r, is_lfm2 ? "token_embd_norm.weight" : "output_norm.weight", s->n_embd, 0, 0);
    }
    for (uint32_t i = 0; i < RECURRENT_LAYERS; i++) {
        if (is_rwkv) {
            add_rwkv_layer(r, s, i);
        } else {
            add_hybrid_layer(r, s, i);
        }
    }
    return r;
}
