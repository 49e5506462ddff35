/*
 * arch_falcon_h1.c: the "falcon-h1" architecture (Zuo et al., arXiv:2507.22448): attention and Mamba-2's
 * block side by side in every layer.
 *
 *     for each layer:   x += attention(h) + state_space(h) with h = norm(x)
 *                       x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms and rotation of pairs half a head apart. The model's many multipliers are in the
 * weights of its files. Each layer has two in the memory. The norm before the feed-forward is a
 * tensor "ffn_norm" without ".weight".
 */
#include "engine/hybrid.h"

/* What the layers have in common. */
typedef struct falcon_plan {
    hybrid_sizes sizes;
    model_shape shape;
    cellar_rope rope;
    double epsilon;
} falcon_plan;

static cellar_status load_ffn_norm(model *m, uint32_t i, double epsilon, block_norm *out,
                                   cellar_error *error)
{
    if (model_has_part(m, i, "ffn_norm")) {
        return model_load_norm(m, i, "ffn_norm", BLOCK_NORM_RMS, epsilon, out, error);
    }
    *out = (block_norm){
        .kind = BLOCK_NORM_RMS, .width = m->n_embd, .n_groups = 1, .epsilon = (float)epsilon};
    return model_load_vector(m, i, "ffn_norm", m->n_embd, &out->weight, error);
}

static cellar_status load_layer(model *m, uint32_t i, const falcon_plan *plan, cellar_error *error)
{
    hybrid_layer *to = (hybrid_layer *)m->layers + i;
    cellar_status status;
    if ((status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, plan->epsilon, &to->norm,
                                  error)) ||
        (status = hybrid_load_attention(m, i, &plan->shape, &plan->rope, to, error)) ||
        (status = hybrid_load_state_space(m, i, &plan->sizes, plan->epsilon, to, error)) ||
        (status = load_ffn_norm(m, i, plan->epsilon, &to->ffn_norm, error))) {
        return status;
    }
    return model_load_ffn(m, i, plan->shape.ff[i], true, BLOCK_SILU, &to->ffn, error);
}

static cellar_status load(model *m, cellar_error *error)
{
    falcon_plan plan = {.rope = cellar_layer_init().rope};
    plan.rope.kind = CELLAR_ROPE_NEOX;
    cellar_status status;
    if ((status = hybrid_read_mamba2(m, &plan.sizes, error)) ||
        (status = model_read_shape(m, 1, &plan.shape, error)) ||
        (status = model_read_rope(m, plan.shape.k_size, &plan.rope, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &plan.epsilon,
                                      error)) ||
        (status = model_make_layers(m, sizeof(hybrid_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_layer(m, i, &plan, error);
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, plan.epsilon, error) : status;
}

const model_architecture model_architecture_falcon_h1 = {
    .name = "falcon-h1", .load = load, .run_layer = hybrid_run_layer};
