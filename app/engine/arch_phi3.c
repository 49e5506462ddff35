/*
 * arch_phi3.c: "phi3" (Abdin et al., arXiv:2404.14219), the Phi-3 and Phi-4 models.
 *
 *     x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms, grouped K/V heads and rotation of halves, of perhaps only the first part of a head.
 * Queries, keys and values come from one matrix (attn_qkv), gate and up from another (ffn_up). Where
 * the file names a window all layers look back through it.
 *
 * The models for long contexts divide frequencies (LongRoPE: Ding et al., arXiv:2402.13753): by
 * rope_factors_long, or by rope_factors_short in memories that are no longer than what the model was first
 * trained with, L; and they make rotating elements longer by sqrt(1 + ln(context / L) / ln(L)), which
 * files have as rope.scaling.attn_factor.
 */
#include <math.h>

#include "engine/transformer.h"

static cellar_status read_long_rope(model *m, cellar_rope *rope, cellar_error *error)
{
    if (!model_has_tensor(m, "rope_factors_long.weight")) {
        return CELLAR_OK;
    }
    uint32_t n = rope->n_rot / 2;
    cellar_status status;
    if ((status = model_read_u32(m, "rope.scaling.original_context_length", 2, INT32_MAX,
                                 &m->near_context, error)) ||
        (status = model_read_divisors(m, "rope_factors_long.weight", n, &rope->factors, error)) ||
        (status = model_read_divisors(m, "rope_factors_short.weight", n, &m->near_divisors,
                                      error))) {
        return status;
    }
    double times = (double)m->n_context / m->near_context;
    if (times > 1 && !model_has_key(m, "rope.scaling.attn_factor")) {
        rope->yarn_attn = sqrt(1 + log(times) / log(m->near_context));
    }
    return CELLAR_OK;
}

static cellar_status load(model *m, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_RMS,
                             .rope_kind = CELLAR_ROPE_NEOX,
                             .activation = BLOCK_SILU,
                             .is_gated = true};
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = read_long_rope(m, &plan.rope, error)) ||
        (status = model_read_windows(m, 0, MODEL_EVERY_LAYER, &plan.windows, error))) {
        return status;
    }
    return transformer_load(m, &plan, error);
}

const model_architecture model_architecture_phi3 = {
    .name = "phi3", .load = load, .run_layer = transformer_run_layer};
