/*
 * transformer_load.c: the loader that most architectures share.
 *
 * A layer's parts are asked for by their usual names, in the order of the formula in transformer.h;
 * the plan says which of them there are. What the memory must know of a layer (rotations, window,
 * soft cap, ALiBi, sinks) is written into its description here and nowhere else. Fails as
 * model_read.h says.
 */
#include "engine/transformer.h"

/* The usual key of a norm's epsilon. */
static cellar_status read_epsilon(const model *m, transformer_plan *plan, cellar_error *error)
{
    const char *key = plan->norm == BLOCK_NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                                   : "attention.layer_norm_epsilon";
    return model_read_positive(m, key, true, &plan->epsilon, error);
}

cellar_status transformer_read(model *m, transformer_plan *plan, cellar_error *error)
{
    plan->rope = cellar_layer_init().rope;
    plan->rope.kind = plan->rope_kind;
    cellar_status status;
    if ((status = model_read_shape(m, 1, &plan->shape, error)) ||
        (status = read_epsilon(m, plan, error)) || plan->rope_kind == CELLAR_ROPE_NONE) {
        return status;
    }
    return model_read_rope(m, plan->shape.k_size, &plan->rope, error);
}

/* ---- one layer --------------------------------------------------------------------------------- */

static cellar_status load_head_norms(model *m, const transformer_plan *plan, uint32_t i,
                                     block_attention *to, cellar_error *error)
{
    cellar_status status = model_load_norm_of(m, i, "attn_q_norm", BLOCK_NORM_RMS, to->k_size, 1,
                                              plan->epsilon, &to->q_norm, error);
    if (status != CELLAR_OK || plan->is_reader) {
        return status;
    }
    return model_load_norm_of(m, i, "attn_k_norm", BLOCK_NORM_RMS, to->k_size, 1, plan->epsilon,
                              &to->k_norm, error);
}

/* What the memory must know beside the heads. */
static cellar_status describe(model *m, const transformer_plan *plan, uint32_t i,
                              cellar_layer *memory, cellar_error *error)
{
    bool has_window = plan->windows.is_window != NULL && plan->windows.is_window[i];
    memory->rope = has_window && plan->has_window_rope ? plan->window_rope : plan->rope;
    if (has_window) {
        memory->window = plan->windows.window;
    }
    memory->scale = (float)plan->attention_scale;
    memory->softcap = (float)plan->softcap;
    memory->alibi_max_bias = (float)plan->alibi;
    if (plan->has_sinks && model_has_part(m, i, "attn_sinks")) {
        return model_load_vector(m, i, "attn_sinks.weight", memory->n_heads, &memory->sinks, error);
    }
    return CELLAR_OK;
}

static cellar_status load_attention(model *m, const transformer_plan *plan, uint32_t i,
                                    transformer_layer *to, cellar_error *error)
{
    model_heads heads = model_heads_of(&plan->shape, i);
    heads.is_reader = plan->is_reader;
    heads.may_lack_v = plan->may_lack_v;
    cellar_status status;
    if ((status = model_load_norm(m, i, "attn_norm", plan->norm, plan->epsilon, &to->attention_norm,
                                  error)) ||
        (status = model_load_attention(m, i, &heads, &to->attention, error)) ||
        (plan->has_head_norms && (status = load_head_norms(m, plan, i, &to->attention, error))) ||
        (plan->has_norms_after &&
         (status = model_load_norm(m, i, "post_attention_norm", plan->norm, plan->epsilon,
                                   &to->attention_after, error)))) {
        return status;
    }
    to->attention.clamp = (float)plan->clamp;
    return describe(m, plan, i, &m->memory_layers[to->attention.memory_layer], error);
}

static cellar_status load_feed_forward(model *m, const transformer_plan *plan, uint32_t i,
                                       transformer_layer *to, cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    if (!plan->is_parallel) {
        status = model_load_norm(m, i, "ffn_norm", plan->norm, plan->epsilon, &to->ffn_norm, error);
    }
    if (status == CELLAR_OK && plan->experts.n > 0 && model_layer_has_experts(m, i)) {
        status = model_load_experts(m, i, &plan->experts, plan->shape.ff[i], &to->experts, error);
    } else if (status == CELLAR_OK) {
        status = model_load_ffn(m, i, plan->shape.ff[i], plan->is_gated, plan->activation, &to->ffn,
                                error);
    }
    if (status == CELLAR_OK && plan->has_norms_after) {
        status = model_load_norm(m, i, "post_ffw_norm", plan->norm, plan->epsilon, &to->ffn_after,
                                 error);
    }
    return status;
}

cellar_status transformer_load_layer(model *m, const transformer_plan *plan, uint32_t i,
                                     cellar_error *error)
{
    transformer_layer *to = (transformer_layer *)m->layers + i;
    to->is_parallel = plan->is_parallel;
    to->residual_scale = (float)plan->residual_scale;
    cellar_status status = load_attention(m, plan, i, to, error);
    return status == CELLAR_OK ? load_feed_forward(m, plan, i, to, error) : status;
}

cellar_status transformer_load(model *m, const transformer_plan *plan, cellar_error *error)
{
    cellar_status status = model_make_layers(m, sizeof(transformer_layer), error);
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = transformer_load_layer(m, plan, i, error);
    }
    return status == CELLAR_OK ? model_load_output(m, plan->norm, plan->epsilon, error) : status;
}
