/*
 * arch_gemma.c: "gemma" (arXiv:2403.08295), "gemma2" (arXiv:2408.00118), "gemma3" (arXiv:2503.19786).
 *
 *     x = sqrt(width) * embedding
 *     x += norm(attention(norm(x)));   x += norm(down(gelu(gate h) * up h)) with h = norm(x)
 *     logits = softcap(embedding^T * norm(x))
 *
 * with RMS norms (whose weights the file has with their 1 added), grouped K/V heads and rotation of
 * halves. The norms after each half came with Gemma 2, and with it soft caps of scores and logits and a
 * window in every second layer. Gemma 3 has norms of query and key heads instead of the caps of
 * scores, five layers with a window to one without, and another base of rotations in those.
 */
#include <math.h>

#include "engine/transformer.h"

static transformer_plan begin_plan(model *m)
{
    m->embedding_scale = sqrtf((float)m->n_embd);
    return (transformer_plan){.norm = BLOCK_NORM_RMS,
                              .rope_kind = CELLAR_ROPE_NEOX,
                              .activation = BLOCK_GELU,
                              .is_gated = true};
}

/* absent: as it is. */
static cellar_status read_logit_softcap(model *m, cellar_error *error)
{
    double softcap = (double)m->logit_softcap;
    cellar_status status = model_read_positive(m, "final_logit_softcapping", false, &softcap,
                                               error);
    m->logit_softcap = (float)softcap;
    return status;
}

/*
 * Scores are divided by the root of a number that files do not have: in the largest model, which is
 * known by its layers, the width shared by the heads, in all others the size of a head, which is
 * our usual (the papers' tables of models).
 */
static void scale_attention(const model *m, uint32_t largest, transformer_plan *plan)
{
    if (m->n_layers == largest) {
        plan->attention_scale = 1 / sqrt((double)m->n_embd / plan->shape.heads[0]);
    }
}

static cellar_status load_gemma(model *m, cellar_error *error)
{
    transformer_plan plan = begin_plan(m);
    cellar_status status = transformer_read(m, &plan, error);
    return status == CELLAR_OK ? transformer_load(m, &plan, error) : status;
}

static cellar_status load_gemma2(model *m, cellar_error *error)
{
    transformer_plan plan = begin_plan(m);
    plan.has_norms_after = true;
    plan.softcap = 50;
    m->logit_softcap = 30;
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = model_read_windows(m, 4096, 2, &plan.windows, error)) ||
        (status = model_read_positive(m, "attn_logit_softcapping", false, &plan.softcap, error)) ||
        (status = read_logit_softcap(m, error))) {
        return status;
    }
    scale_attention(m, 46, &plan);
    return transformer_load(m, &plan, error);
}

static cellar_status load_gemma3(model *m, cellar_error *error)
{
    transformer_plan plan = begin_plan(m);
    plan.has_norms_after = plan.has_head_norms = plan.has_window_rope = true;
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = model_read_windows(m, MODEL_WINDOW_REQUIRED, 6, &plan.windows, error)) ||
        (status = model_read_window_rope(m, plan.shape.k_size, &plan.rope, 10000, &plan.window_rope,
                                         error)) ||
        (status = read_logit_softcap(m, error))) {
        return status;
    }
    scale_attention(m, 62, &plan);
    return transformer_load(m, &plan, error);
}

const model_architecture model_architecture_gemma = {
    .name = "gemma", .load = load_gemma, .run_layer = transformer_run_layer};
const model_architecture model_architecture_gemma2 = {
    .name = "gemma2", .load = load_gemma2, .run_layer = transformer_run_layer};
const model_architecture model_architecture_gemma3 = {
    .name = "gemma3", .load = load_gemma3, .run_layer = transformer_run_layer};
