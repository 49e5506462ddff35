/*
 * arch_llama.c: the "llama" architecture (Touvron et al., arXiv:2302.13971).
 *
 *     x = embedding of the token
 *     for each layer:   x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *     logits = output * norm(x)
 *
 * with RMS norms, grouped K/V heads, rotation of adjacent pairs, and optional biases. Head counts
 * and the feed-forward width may differ from layer to layer; K and V heads may have sizes of their
 * own. Mixtures of experts under this name are refused, not run wrongly.
 */
#include <inttypes.h>

#include "engine/transformer.h"
#include "report.h"

static cellar_status refuse_experts(const model *m, cellar_error *error)
{
    uint32_t n_experts;
    cellar_status status = model_read_u32_or(m, "expert_count", 0, UINT32_MAX, 0, &n_experts,
                                             error);
    if (status == CELLAR_OK && n_experts != 0) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "llama.expert_count: expected 0 (mixtures of experts are not supported), "
                      "found %" PRIu32,
                      n_experts);
    }
    return status;
}

static cellar_status load(model *m, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_RMS,
                             .rope_kind = CELLAR_ROPE_NORMAL,
                             .activation = BLOCK_SILU,
                             .is_gated = true};
    cellar_status status = refuse_experts(m, error);
    if (status == CELLAR_OK) {
        status = transformer_read(m, &plan, error);
    }
    return status == CELLAR_OK ? transformer_load(m, &plan, error) : status;
}

const model_architecture model_architecture_llama = {
    .name = "llama", .load = load, .run_layers = transformer_run_layers};
