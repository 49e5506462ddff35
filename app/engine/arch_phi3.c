/*
 * arch_phi3.c: "phi3" (Abdin et al., arXiv:2404.14219), the Phi-3 and Phi-4 models.
 *
 *     x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms, grouped K/V heads and rotation of halves, of perhaps only the first part of a head.
 * Queries, keys and values come from one matrix (attn_qkv), gate and up from another (ffn_up). Where
 * the file names a window all layers look back through it.
 */
#include "engine/transformer.h"

static cellar_status load(model *m, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_RMS,
                             .rope_kind = CELLAR_ROPE_NEOX,
                             .activation = BLOCK_SILU,
                             .is_gated = true};
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = model_read_windows(m, 0, MODEL_EVERY_LAYER, &plan.windows, error))) {
        return status;
    }
    return transformer_load(m, &plan, error);
}

const model_architecture model_architecture_phi3 = {
    .name = "phi3", .load = load, .run_layers = transformer_run_layers};
