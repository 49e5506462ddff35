/*
 * arch_cohere.c: "command-r" (Cohere's Command R model cards) and "cohere2" (Command A, arXiv:2504.00698).
 *
 *     x += attention(h) + down(silu(gate h) * up h) with h = norm(x)
 *     logits = logit_scale * embedding^T * norm(x)
 *
 * Both halves of a layer read the same norm, so there is one of them; it is a layer norm without a
 * bias. Rotation of adjacent pairs. Command R+ norms the heads of queries and keys, each head with
 * weights of its own. Cohere 2 has a window in three layers of four, and rotates in those alone: the
 * layers that see everything know no positions (section 2 of its report).
 */
#include "engine/transformer.h"

static cellar_status read_plan(model *m, transformer_plan *plan, cellar_error *error)
{
    *plan = (transformer_plan){.norm = BLOCK_NORM_LAYER,
                               .rope_kind = CELLAR_ROPE_NORMAL,
                               .activation = BLOCK_SILU,
                               .is_gated = true,
                               .is_parallel = true};
    double logit_scale = 0;
    cellar_status status;
    if ((status = transformer_read(m, plan, error)) ||
        (status = model_read_positive(m, "logit_scale", true, &logit_scale, error))) {
        return status;
    }
    m->logit_scale = (float)logit_scale;
    return CELLAR_OK;
}

/* Norms of heads [n_heads][k_size], where the file has them. */
static cellar_status load_head_norms(model *m, uint32_t i, double epsilon, cellar_error *error)
{
    block_attention *to = &((transformer_layer *)m->layers + i)->attention;
    if (!model_has_part(m, i, "attn_q_norm")) {
        return CELLAR_OK;
    }
    cellar_status status = model_load_norm_of(m, i, "attn_q_norm", BLOCK_NORM_LAYER, to->k_size,
                                              to->n_heads, epsilon, &to->q_norm, error);
    if (status != CELLAR_OK) {
        return status;
    }
    return model_load_norm_of(m, i, "attn_k_norm", BLOCK_NORM_LAYER, to->k_size, to->n_kv_heads,
                              epsilon, &to->k_norm, error);
}

static cellar_status load_command_r(model *m, cellar_error *error)
{
    transformer_plan plan;
    cellar_status status = read_plan(m, &plan, error);
    if (status == CELLAR_OK) {
        status = transformer_load(m, &plan, error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_head_norms(m, i, plan.epsilon, error);
    }
    return status;
}

static cellar_status load_cohere2(model *m, cellar_error *error)
{
    transformer_plan plan;
    cellar_status status;
    if ((status = read_plan(m, &plan, error)) ||
        (status = model_read_windows(m, MODEL_WINDOW_REQUIRED, 4, &plan.windows, error))) {
        return status;
    }
    plan.has_window_rope = true;
    plan.window_rope = plan.rope;
    plan.rope = cellar_layer_init().rope;
    plan.rope.kind = CELLAR_ROPE_NONE;
    return transformer_load(m, &plan, error);
}

const model_architecture model_architecture_command_r = {
    .name = "command-r", .load = load_command_r, .run_layer = transformer_run_layer};
const model_architecture model_architecture_cohere2 = {
    .name = "cohere2", .load = load_cohere2, .run_layer = transformer_run_layer};
