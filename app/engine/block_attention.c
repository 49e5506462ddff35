/*
 * block_attention.c: attention through the memory.
 *
 * The block computes queries, keys and values and hands them over as they are, not rotated: the
 * memory knows where each token stands, also after shifts, and rotates, stores and attends. What
 * comes back goes through the output matrix. Fails only where the memory does.
 */
#include "engine/block.h"

cellar_status block_attention_run(const block_attention *attention, const block_context *c,
                                  uint32_t layer, const float *x, float *out, float *residual,
                                  cellar_error *error)
{
    const block_product inputs[3] = {
        {.linear = &attention->q, .x = x, .y = c->q},
        {.linear = &attention->k, .x = x, .y = c->k},
        {.linear = &attention->v, .x = x, .y = c->v},
    };
    block_multiply(c, inputs, 3, c->n_tokens);

    uint64_t numbers = (uint64_t)attention->k.weight.n_out + attention->v.weight.n_out;
    c->workers->work = c->n_tokens * numbers;
    cellar_status status = cellar_store(c->memory, c->ubatch, layer, c->k, c->v, error);
    if (status != CELLAR_OK) {
        return status;
    }
    numbers = (uint64_t)attention->q.weight.n_out + attention->out.weight.n_in;
    c->workers->work = c->n_tokens * numbers * c->n_keys;
    status = cellar_attend(c->memory, c->ubatch, layer, c->q, c->attended, error);
    if (status != CELLAR_OK) {
        return status;
    }

    const block_product output = {
        .linear = &attention->out, .x = c->attended, .y = out, .residual = residual};
    block_multiply(c, &output, 1, c->n_tokens);
    return CELLAR_OK;
}
