/*
 * arch_qwen.c: "qwen2" (Yang et al., arXiv:2407.10671), "qwen3" (arXiv:2505.09388), and both with experts.
 *
 *     x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms, grouped K/V heads and rotation of halves. Qwen 2 has biases on queries, keys and
 * values; Qwen 3 has none, and norms each head of queries and keys before it is rotated (section 2
 * of its report), which keeps scores small. "qwen2moe" weighs the chosen experts by the softmax over
 * all of them, and adds one that all tokens read, behind a gate of its own; "qwen3moe" has the
 * weights of the chosen add up to 1.
 */
#include "engine/transformer.h"

static const transformer_plan plain = {.norm = BLOCK_NORM_RMS,
                                       .rope_kind = CELLAR_ROPE_NEOX,
                                       .activation = BLOCK_SILU,
                                       .is_gated = true};

static cellar_status load_plan(model *m, transformer_plan *plan, bool has_experts,
                               cellar_error *error)
{
    cellar_status status = transformer_read(m, plan, error);
    if (status == CELLAR_OK && has_experts) {
        status = model_read_experts(m, &plan->experts, error);
    }
    return status == CELLAR_OK ? transformer_load(m, plan, error) : status;
}

static cellar_status load_qwen2(model *m, cellar_error *error)
{
    transformer_plan plan = plain;
    return load_plan(m, &plan, false, error);
}

static cellar_status load_qwen2moe(model *m, cellar_error *error)
{
    transformer_plan plan = plain;
    plan.experts.has_shared_gate = true;
    return load_plan(m, &plan, true, error);
}

static cellar_status load_qwen3(model *m, cellar_error *error)
{
    transformer_plan plan = plain;
    plan.has_head_norms = true;
    return load_plan(m, &plan, false, error);
}

static cellar_status load_qwen3moe(model *m, cellar_error *error)
{
    transformer_plan plan = plain;
    plan.has_head_norms = plan.experts.is_renormalised = true;
    return load_plan(m, &plan, true, error);
}

const model_architecture model_architecture_qwen2 = {
    .name = "qwen2", .load = load_qwen2, .run_layer = transformer_run_layer};
const model_architecture model_architecture_qwen2moe = {
    .name = "qwen2moe", .load = load_qwen2moe, .run_layer = transformer_run_layer};
const model_architecture model_architecture_qwen3 = {
    .name = "qwen3", .load = load_qwen3, .run_layer = transformer_run_layer};
const model_architecture model_architecture_qwen3moe = {
    .name = "qwen3moe", .load = load_qwen3moe, .run_layer = transformer_run_layer};
