/*
 * arch_granite.c: "granite" (IBM's Granite 3 model cards; the scales: Yang et al., arXiv:2203.03466)
 * "granitemoe", the same with experts, and "granite_swa", with windows and sinks.
 *
 *     x = embedding_scale * embedding
 *     x += residual_scale * attention(norm(x))
 *     x += residual_scale * down(silu(gate h) * up h) with h = norm(x)
 *     logits = output * norm(x) / logit_scale
 *
 * with RMS norms, grouped K/V heads and rotation of adjacent pairs. Scores are multiplied by
 * attention.scale. With windows, the file says which layers have one; attn_sinks are logits that
 * only enlarge the denominator of the softmax (Xiao et al., arXiv:2309.17453).
 */
#include "engine/transformer.h"

static cellar_status read_plan(model *m, transformer_plan *plan, cellar_error *error)
{
    *plan = (transformer_plan){.norm = BLOCK_NORM_RMS,
                               .rope_kind = CELLAR_ROPE_NORMAL,
                               .activation = BLOCK_SILU,
                               .is_gated = true};
    double logit_scale = 1, embedding_scale = 1;
    cellar_status status;
    if ((status = transformer_read(m, plan, error)) ||
        (status = model_read_positive(m, "logit_scale", true, &logit_scale, error)) ||
        (status = model_read_positive(m, "embedding_scale", false, &embedding_scale, error)) ||
        (status = model_read_positive(m, "residual_scale", false, &plan->residual_scale, error)) ||
        (status = model_read_positive(m, "attention.scale", false, &plan->attention_scale,
                                      error))) {
        return status;
    }
    m->logit_scale = (float)(1 / logit_scale);
    m->embedding_scale = (float)embedding_scale;
    return CELLAR_OK;
}

static cellar_status load_granite(model *m, cellar_error *error)
{
    transformer_plan plan;
    cellar_status status = read_plan(m, &plan, error);
    return status == CELLAR_OK ? transformer_load(m, &plan, error) : status;
}

/* The weights of the chosen experts are a softmax over them alone. */
static cellar_status load_granitemoe(model *m, cellar_error *error)
{
    transformer_plan plan;
    cellar_status status = read_plan(m, &plan, error);
    plan.experts.is_renormalised = true;
    if (status == CELLAR_OK) {
        status = model_read_experts(m, &plan.experts, error);
    }
    return status == CELLAR_OK ? transformer_load(m, &plan, error) : status;
}

static cellar_status load_granite_swa(model *m, cellar_error *error)
{
    transformer_plan plan;
    cellar_status status;
    if ((status = read_plan(m, &plan, error)) ||
        (status = model_read_windows(m, MODEL_WINDOW_REQUIRED, MODEL_EVERY_LAYER, &plan.windows,
                                     error))) {
        return status;
    }
    plan.has_sinks = true;
    return transformer_load(m, &plan, error);
}

const model_architecture model_architecture_granite = {
    .name = "granite", .load = load_granite, .run_layer = transformer_run_layer};
const model_architecture model_architecture_granitemoe = {
    .name = "granitemoe", .load = load_granitemoe, .run_layer = transformer_run_layer};
const model_architecture model_architecture_granite_swa = {
    .name = "granite_swa", .load = load_granite_swa, .run_layer = transformer_run_layer};
