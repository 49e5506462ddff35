/*
 * arch_jamba.c: the "jamba" architecture (Lieber et al., arXiv:2403.19887): Mamba's block in most layers,
 * attention in some, a feed-forward in all.
 *
 *     for each layer:   x += selective_scan(norm(x)) or attention(norm(x))
 *                       x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms. A layer with K/V heads attends, without rotations: order comes from the states.
 * Time step, B and C of the scans are normed. Layers with a router have experts, weighed by the softmax
 * over all of them.
 */
#include "engine/hybrid.h"

/* What the layers have in common. */
typedef struct jamba_plan {
    hybrid_sizes sizes;
    model_shape shape;
    model_experts experts;
    double epsilon;
} jamba_plan;

static cellar_status load_feed_forward(model *m, uint32_t i, const jamba_plan *plan,
                                       hybrid_layer *to, cellar_error *error)
{
    cellar_status status = model_load_norm(m, i, "ffn_norm", BLOCK_NORM_RMS, plan->epsilon,
                                           &to->ffn_norm, error);
    if (status != CELLAR_OK) {
        return status;
    }
    return plan->experts.n > 0 && model_layer_has_experts(m, i)
               ? model_load_experts(m, i, &plan->experts, plan->shape.ff[i], &to->experts, error)
               : model_load_ffn(m, i, plan->shape.ff[i], true, BLOCK_SILU, &to->ffn, error);
}

static cellar_status load_layer(model *m, uint32_t i, const jamba_plan *plan, cellar_error *error)
{
    hybrid_layer *to = (hybrid_layer *)m->layers + i;
    const cellar_rope none = cellar_layer_init().rope;
    cellar_status status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_RMS, plan->epsilon,
                                           &to->norm, error);
    if (status == CELLAR_OK) {
        status = plan->shape.kv_heads[i] > 0
                     ? hybrid_load_attention(m, i, &plan->shape, &none, to, error)
                     : hybrid_load_selective_scan(m, i, &plan->sizes, false, plan->epsilon, to,
                                                  error);
    }
    return status == CELLAR_OK ? load_feed_forward(m, i, plan, to, error) : status;
}

static cellar_status load(model *m, cellar_error *error)
{
    jamba_plan plan = {.experts = {.kind = BLOCK_ROUTER_SOFTMAX, .activation = BLOCK_SILU}};
    cellar_status status;
    if ((status = hybrid_read_mamba(m, &plan.sizes, error)) ||
        (status = model_read_shape(m, 0, &plan.shape, error)) ||
        (status = model_read_experts(m, &plan.experts, error)) ||
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

const model_architecture model_architecture_jamba = {
    .name = "jamba", .load = load, .run_layer = hybrid_run_layer};
