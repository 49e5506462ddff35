/*
 * arch_llama.c: the "llama" architecture (Touvron et al., arXiv:2302.13971).
 *
 *     x = embedding of the token
 *     for each layer:   x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *     logits = output * norm(x)
 *
 * with RMS norms, grouped K/V heads, rotation of adjacent pairs, and optional biases. Head counts
 * and the feed-forward width may differ from layer to layer; K and V heads may have sizes of their
 * own. With experts (Mixtral: arXiv:2401.04088) a token uses some of many feed-forwards, weighed by
 * the softmax of a router over those that were chosen.
 */
#include "engine/transformer.h"

static cellar_status load(model *m, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_RMS,
                             .rope_kind = CELLAR_ROPE_NORMAL,
                             .activation = BLOCK_SILU,
                             .is_gated = true};
    plan.experts.is_renormalised = true;
    cellar_status status = transformer_read(m, &plan, error);
    if (status == CELLAR_OK) {
        status = model_read_experts(m, &plan.experts, error);
    }
    return status == CELLAR_OK ? transformer_load(m, &plan, error) : status;
}

const model_architecture model_architecture_llama = {
    .name = "llama", .load = load, .run_layer = transformer_run_layer};
