/*
 * block_ffn.c: the gated feed-forward half of a layer, token by token.
 *
 * Two jobs: gate and up (with the activation applied to each value where it was made), then down.
 * Cannot fail.
 */
#include "engine/block.h"

void block_ffn_run(const block_ffn *ffn, const block_context *c, const float *x, float *out,
                   float *residual)
{
    const block_product gate_and_up[2] = {
        {.linear = &ffn->gate, .x = x, .y = c->gate},
        {.linear = &ffn->up, .x = x, .y = c->up},
    };
    block_multiply_gated(c, gate_and_up, c->n_tokens);

    const block_product down = {.linear = &ffn->down, .x = c->gate, .y = out, .residual = residual};
    block_multiply(c, &down, 1, c->n_tokens);
}
