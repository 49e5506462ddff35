/*
 * arch_deepseek2.c: the "deepseek2" architecture: DeepSeek V2, V2-Lite, V3 and R1 (DeepSeek-AI,
 * arXiv:2405.04434, arXiv:2412.19437).
 *
 *     for each layer:   x += latent_attention(norm(x));   x += feed_forward(norm(x))
 *
 * with RMS norms and rotation of adjacent pairs. Which form of attention a file holds
 * (block_latent_attention.h) is said by its tensors: attn_k_b and attn_v_b are the absorbed one, and
 * attention.head_count_kv is 1, key_length_mla and value_length_mla are the sizes of a head;
 * attn_kv_b is the plain one, of older files, with key_length and value_length. With
 * attention.q_lora_rank queries pass through attn_q_a, its norm and attn_q_b; without it ("lite") there
 * is attn_q.
 *
 * The first leading_dense_block_count layers have an ordinary feed-forward, the others experts, some of
 * which all tokens read (block_experts.h). Weights are those of the chosen experts, divided by their
 * sum where the file says so.
 *
 * YaRN (rope.scaling.type yarn, factor s). The authors' code multiplies the rotating elements by
 * m(s, mscale) / m(s, mscale_all_dim) and scores by m(s, mscale_all_dim)^2, with m(s, a) = 1 + 0.1 a ln s.
 * A file states 0.1 * mscale_all_dim as rope.scaling.yarn_log_multiplier and nothing of mscale. So: with
 * that key the two are taken to be equal, as in all published models, and rotation has no magnitude;
 * without it mscale is 1 and mscale_all_dim 0, the defaults of the authors' code, which is YaRN as its
 * paper has it.
 */
#include "engine/model_arch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/block_latent_attention.h"
#include "engine/model_experts.h"
#include "report.h"

typedef struct deepseek_layer {
    block_norm attention_norm;
    block_latent_attention attention;
    block_norm ffn_norm;
    block_ffn ffn;
    block_experts experts; /* in the place of ffn, if there are any */
} deepseek_layer;

/* What the metadata says before the tensors are looked at. */
typedef struct deepseek_shape {
    uint32_t n_heads, key_size, v_size, latent_size;
    uint32_t q_rank; /* 0: queries are made in one step */
    uint32_t n_ff, n_dense;
    bool is_absorbed;
    double epsilon, scale;
    cellar_rope rope;
    model_experts experts;
} deepseek_shape;

/* ---- metadata ---------------------------------------------------------------------------------- */

static cellar_status read_heads(model *m, deepseek_shape *s, cellar_error *error)
{
    const char *key_size = s->is_absorbed ? "attention.key_length_mla" : "attention.key_length";
    const char *v_size = s->is_absorbed ? "attention.value_length_mla" : "attention.value_length";
    uint32_t n_kv_heads = 0;
    cellar_status status;
    if ((status = model_read_u32(m, "attention.head_count", 1, MODEL_MAX_HEADS, &s->n_heads,
                                 error)) ||
        (status = model_read_u32_or(m, "attention.head_count_kv", 1, MODEL_MAX_HEADS,
                                    s->is_absorbed ? 1 : s->n_heads, &n_kv_heads, error)) ||
        (status = model_read_u32(m, key_size, 3, MODEL_MAX_HEAD_SIZE, &s->key_size, error)) ||
        (status = model_read_u32(m, v_size, 1, MODEL_MAX_HEAD_SIZE, &s->v_size, error)) ||
        (status = model_read_u32(m, "attention.kv_lora_rank", 1, MODEL_MAX_HEAD_SIZE / 2,
                                 &s->latent_size, error)) ||
        (status = model_read_u32_or(m, "attention.q_lora_rank", 0, MODEL_MAX_EMBD, 0, &s->q_rank,
                                    error))) {
        return status;
    }
    if (s->is_absorbed && n_kv_heads != 1) {
        return model_refuse_key(m, "attention.head_count_kv",
                                "1, as attn_k_b takes all heads to one latent row", n_kv_heads,
                                error);
    }
    if (!s->is_absorbed && n_kv_heads != s->n_heads) {
        return model_refuse_key(m, "attention.head_count_kv",
                                "as many as attention.head_count, as there is attn_kv_b",
                                n_kv_heads, error);
    }
    return CELLAR_OK;
}

static cellar_status read_rope(model *m, deepseek_shape *s, cellar_error *error)
{
    double multiplier = 0;
    s->rope = cellar_layer_init().rope;
    s->rope.kind = CELLAR_ROPE_NORMAL;
    uint32_t n_rot;
    cellar_status status;
    if ((status = model_read_u32(m, "rope.dimension_count", 2, s->key_size - 1, &n_rot, error)) ||
        (status = model_read_rope(m, s->key_size - 1, &s->rope, error)) ||
        (status = model_read_number_or(m, "rope.scaling.yarn_log_multiplier", 0, 10, &multiplier,
                                       error))) {
        return status;
    }
    s->rope.first = s->is_absorbed ? s->latent_size : s->key_size - n_rot;
    s->scale = 1 / sqrt((double)s->key_size);
    if (s->rope.yarn_ext > 0 && multiplier > 0) {
        const double growth = log(1 / s->rope.scale);
        const double magnitude = 1 + multiplier * growth;
        s->scale *= magnitude * magnitude;
        s->rope.yarn_attn /= 1 + 0.1 * growth; /* which the memory would multiply by */
    }
    return CELLAR_OK;
}

static cellar_status read_shape(model *m, deepseek_shape *s, cellar_error *error)
{
    s->is_absorbed = !model_has_part(m, 0, "attn_kv_b");
    s->experts = (model_experts){.kind = BLOCK_ROUTER_SOFTMAX, .activation = BLOCK_SILU};
    cellar_status status;
    if ((status = read_heads(m, s, error)) || (status = read_rope(m, s, error)) ||
        (status = model_read_u32(m, "feed_forward_length", 1, MODEL_MAX_FF, &s->n_ff, error)) ||
        (status = model_read_u32_or(m, "leading_dense_block_count", 0, m->n_layers, 0, &s->n_dense,
                                    error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &s->epsilon,
                                      error))) {
        return status;
    }
    const uint64_t widest = (uint64_t)s->n_heads * (s->key_size + s->v_size + s->latent_size);
    if (widest > MODEL_MAX_FF) {
        return model_refuse_key(m, "attention.head_count", "heads of fewer elements together",
                                s->n_heads, error);
    }
    return model_read_experts(m, &s->experts, error);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

/* One small matrix for each head. */
static cellar_status load_by_head(model *m, uint32_t i, const char *part, uint32_t n_in,
                                  uint32_t n_out, uint32_t n_heads, block_weight *out,
                                  cellar_error *error)
{
    char name[MODEL_KEY_SIZE];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", i, part);
    return model_read_weights(m, name, n_in, n_out, n_heads, out, error);
}

static cellar_status load_queries(model *m, const deepseek_shape *s, uint32_t i,
                                  block_latent_attention *to, cellar_error *error)
{
    const uint32_t n_rows = s->n_heads * s->key_size;
    if (s->q_rank == 0) {
        return model_load_linear(m, i, "attn_q", m->n_embd, n_rows, &to->q, error);
    }
    cellar_status status;
    if ((status = model_load_linear(m, i, "attn_q_a", m->n_embd, s->q_rank, &to->q_down, error)) ||
        (status = model_load_norm_of(m, i, "attn_q_a_norm", BLOCK_NORM_RMS, s->q_rank, 1,
                                     s->epsilon, &to->q_norm, error))) {
        return status;
    }
    return model_load_linear(m, i, "attn_q_b", s->q_rank, n_rows, &to->q, error);
}

static cellar_status load_latents(model *m, const deepseek_shape *s, uint32_t i,
                                  block_latent_attention *to, cellar_error *error)
{
    const uint32_t rows[2] = {to->latent_size, to->rope_size};
    block_linear *const parts[2] = {&to->latent, &to->rope};
    cellar_status status;
    if ((status = model_load_fused(m, i, "attn_kv_a_mqa", m->n_embd, rows, parts, 2, error)) ||
        (status = model_load_norm_of(m, i, "attn_kv_a_norm", BLOCK_NORM_RMS, to->latent_size, 1,
                                     s->epsilon, &to->latent_norm, error))) {
        return status;
    }
    if (!s->is_absorbed) {
        return model_load_linear(m, i, "attn_kv_b", to->latent_size,
                                 to->n_heads * (to->nope_size + to->v_size), &to->kv, error);
    }
    status = load_by_head(m, i, "attn_k_b", to->nope_size, to->latent_size, to->n_heads, &to->k_up,
                          error);
    return status != CELLAR_OK ? status
                               : load_by_head(m, i, "attn_v_b", to->latent_size, to->v_size,
                                              to->n_heads, &to->v_up, error);
}

/* The layer that the memory needs. */
static cellar_status describe_layer(model *m, const deepseek_shape *s, block_latent_attention *to,
                                    cellar_error *error)
{
    cellar_status status = model_add_memory_layer(m, &to->memory_layer, error);
    if (status != CELLAR_OK) {
        return status;
    }
    cellar_layer *memory = &m->memory_layers[to->memory_layer];
    memory->n_heads = s->n_heads;
    memory->n_kv_heads = s->is_absorbed ? 1 : s->n_heads;
    memory->k_size = s->is_absorbed ? s->latent_size + to->rope_size : s->key_size;
    memory->v_size = s->is_absorbed ? s->latent_size : s->v_size;
    memory->v_in_k = s->is_absorbed;
    memory->scale = (float)s->scale;
    memory->rope = s->rope;
    return model_need_scratch(m, block_latent_attention_scratch(to), error);
}

static cellar_status load_attention(model *m, const deepseek_shape *s, uint32_t i,
                                    block_latent_attention *to, cellar_error *error)
{
    *to = (block_latent_attention){.n_heads = s->n_heads,
                                   .nope_size = s->key_size - s->rope.n_rot,
                                   .rope_size = s->rope.n_rot,
                                   .latent_size = s->latent_size,
                                   .v_size = s->v_size,
                                   .is_absorbed = s->is_absorbed};
    cellar_status status;
    if ((status = load_queries(m, s, i, to, error)) ||
        (status = load_latents(m, s, i, to, error)) ||
        (status = model_load_linear(m, i, "attn_output", s->n_heads * s->v_size, m->n_embd,
                                    &to->out, error))) {
        return status;
    }
    return describe_layer(m, s, to, error);
}

static cellar_status load_layer(model *m, const deepseek_shape *s, uint32_t i, cellar_error *error)
{
    deepseek_layer *to = (deepseek_layer *)m->layers + i;
    cellar_status status;
    if ((status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, s->epsilon,
                                  &to->attention_norm, error)) ||
        (status = load_attention(m, s, i, &to->attention, error)) ||
        (status = model_load_norm(m, i, "ffn_norm", BLOCK_NORM_RMS, s->epsilon, &to->ffn_norm,
                                  error))) {
        return status;
    }
    if (s->experts.n > 0 && i >= s->n_dense) {
        return model_load_experts(m, i, &s->experts, s->n_ff, &to->experts, error);
    }
    return model_load_ffn(m, i, s->n_ff, true, BLOCK_SILU, &to->ffn, error);
}

static cellar_status load(model *m, cellar_error *error)
{
    deepseek_shape shape = {0};
    cellar_status status = read_shape(m, &shape, error);
    if (status == CELLAR_OK) {
        status = model_make_layers(m, sizeof(deepseek_layer), error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_layer(m, &shape, i, error);
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, shape.epsilon, error)
                               : status;
}

/* ---- running ----------------------------------------------------------------------------------- */

static cellar_status run_layer(const model *m, uint32_t i, const block_context *c,
                               cellar_error *error)
{
    const deepseek_layer *layer = (const deepseek_layer *)m->layers + i;
    block_norm_run(&layer->attention_norm, c, c->x, c->h, c->n_tokens);
    cellar_status status = block_latent_attention_run(&layer->attention, c, c->h, c->added, c->x,
                                                      error);
    if (status != CELLAR_OK) {
        return status;
    }
    block_norm_run(&layer->ffn_norm, c, c->x, c->h, c->n_tokens);
    if (layer->experts.n > 0) {
        block_experts_run(&layer->experts, c, c->h, c->added, c->x);
    } else {
        block_ffn_run(&layer->ffn, c, c->h, c->added, c->x);
    }
    return CELLAR_OK;
}

const model_architecture model_architecture_deepseek2 = {
    .name = "deepseek2", .load = load, .run_layer = run_layer};
