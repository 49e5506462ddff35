/*
 * block_ffn.c: the feed-forward half of a layer, token by token.
 *
 * Two jobs: up, and gate if there is one (with the activation applied to each value where it was
 * made), then down. Cannot fail.
 */
#include "engine/block.h"

uint64_t block_ffn_scratch(const block_ffn *ffn)
{
    uint64_t hidden = block_room(ffn->up.weight.n_out);
    return block_has(&ffn->gate) ? 2 * hidden : hidden;
}

void block_ffn_run(const block_ffn *ffn, const block_context *c, const float *x, float *out,
                   float *residual)
{
    float *left = c->scratch;
    float *hidden = block_cut(&left, c, ffn->up.weight.n_out);
    if (block_has(&ffn->gate)) {
        float *up = block_cut(&left, c, ffn->up.weight.n_out);
        const block_product gate_and_up[2] = {
            {.linear = &ffn->gate, .x = x, .y = hidden},
            {.linear = &ffn->up, .x = x, .y = up},
        };
        block_multiply_activated(c, gate_and_up, 2, ffn->activation, c->n_tokens);
    } else {
        const block_product up = {.linear = &ffn->up, .x = x, .y = hidden};
        block_multiply_activated(c, &up, 1, ffn->activation, c->n_tokens);
    }
    const block_product down = {.linear = &ffn->down, .x = hidden, .y = out, .residual = residual};
    block_multiply(c, &down, 1, c->n_tokens);
}
