/*
 * arch_starcoder2.c: "starcoder2" (Lozhkov et al., arXiv:2402.19173).
 *
 *     x += attention(norm(x));   x += down(gelu(up norm(x)))
 *
 * with layer norms, grouped K/V heads, rotation of halves, biases everywhere and no gate. Where the
 * file names a window all layers look back through it.
 */
#include "engine/transformer.h"

static cellar_status load(model *m, cellar_error *error)
{
    transformer_plan plan = {
        .norm = BLOCK_NORM_LAYER, .rope_kind = CELLAR_ROPE_NEOX, .activation = BLOCK_GELU};
    cellar_status status;
    if ((status = transformer_read(m, &plan, error)) ||
        (status = model_read_windows(m, 0, MODEL_EVERY_LAYER, &plan.windows, error))) {
        return status;
    }
    return transformer_load(m, &plan, error);
}

const model_architecture model_architecture_starcoder2 = {
    .name = "starcoder2", .load = load, .run_layer = transformer_run_layer};
