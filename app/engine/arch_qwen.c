/*
 * arch_qwen.c: "qwen2" (Yang et al., arXiv:2407.10671) and "qwen3" (arXiv:2505.09388).
 *
 *     x += attention(norm(x));   x += down(silu(gate h) * up h) with h = norm(x)
 *
 * with RMS norms, grouped K/V heads and rotation of halves. Qwen 2 has biases on queries, keys and
 * values; Qwen 3 has none, and norms each head of queries and keys before it is rotated (section 2
 * of its report), which keeps scores small.
 */
#include "engine/transformer.h"

static cellar_status load_qwen(model *m, bool has_head_norms, cellar_error *error)
{
    transformer_plan plan = {.norm = BLOCK_NORM_RMS,
                             .rope_kind = CELLAR_ROPE_NEOX,
                             .activation = BLOCK_SILU,
                             .is_gated = true,
                             .has_head_norms = has_head_norms};
    cellar_status status = transformer_read(m, &plan, error);
    return status == CELLAR_OK ? transformer_load(m, &plan, error) : status;
}

static cellar_status load_qwen2(model *m, cellar_error *error)
{
    return load_qwen(m, false, error);
}

static cellar_status load_qwen3(model *m, cellar_error *error)
{
    return load_qwen(m, true, error);
}

const model_architecture model_architecture_qwen2 = {
    .name = "qwen2", .load = load_qwen2, .run_layers = transformer_run_layers};
const model_architecture model_architecture_qwen3 = {
    .name = "qwen3", .load = load_qwen3, .run_layers = transformer_run_layers};
