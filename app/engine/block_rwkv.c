/*
 * block_rwkv.c: what RWKV's generations have in common: the look at the token before, channel mix, the
 * walk through the states of heads.
 *
 * Only the last is much work beside the products, so only that is split over threads. Cannot fail.
 */
#include "engine/block_rwkv.h"

#include <math.h>
#include <string.h>

#include "engine/block_state.h"

void block_rwkv_shift(const block_context *c, uint32_t memory_layer, uint32_t tensor,
                      uint32_t width, const float *x, float *previous)
{
    const size_t bytes = width * sizeof *x;
    for (uint32_t i = 0; i < c->place.n_segments; i++) {
        block_state_segment segment = block_state_segment_of(c, memory_layer, i);
        float *state = block_state_enter(&segment, tensor, 0, width);
        for (uint32_t t = 0; t < segment.n_tokens; t++) {
            const size_t row = (size_t)(segment.first + t) * width;
            memcpy(previous + row, state, bytes);
            memcpy(state, x + row, bytes);
            block_state_keep(&segment, tensor, t + 1, 0, width);
        }
    }
}

void block_rwkv_mix(const block_context *c, uint32_t width, const float *x, const float *previous,
                    const float *l, float *out)
{
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        const size_t row = (size_t)t * width;
        for (uint32_t i = 0; i < width; i++) {
            out[row + i] = x[row + i] + (previous[row + i] - x[row + i]) * l[i];
        }
    }
}

uint64_t block_rwkv_channels_scratch(const block_rwkv_channels *block)
{
    return 3 * block_room(block->n_embd) + block_room(block->key.weight.n_out);
}

void block_rwkv_channels_run(const block_rwkv_channels *block, const block_context *c,
                             const float *x, float *out, float *residual)
{
    const uint32_t n = block->n_embd;
    float *left = c->scratch;
    float *previous = block_cut(&left, c, n), *mixed = block_cut(&left, c, n);
    float *r = block_cut(&left, c, n), *hidden = block_cut(&left, c, block->key.weight.n_out);
    const bool has_r = block_has(&block->receptance);
    block_rwkv_shift(c, block->memory_layer, BLOCK_RWKV_CHANNEL, n, x, previous);
    block_rwkv_mix(c, n, x, previous, block->l_k, mixed);
    const block_product key = {.linear = &block->key, .x = mixed, .y = hidden};
    block_multiply_activated(c, &key, 1, BLOCK_RELU_SQUARED, c->n_tokens);
    const block_product value = {
        .linear = &block->value, .x = hidden, .y = out, .residual = has_r ? NULL : residual};
    block_multiply(c, &value, 1, c->n_tokens);
    if (!has_r) {
        return;
    }
    block_rwkv_mix(c, n, x, previous, block->l_r, mixed);
    const block_product receptance = {.linear = &block->receptance, .x = mixed, .y = r};
    block_multiply(c, &receptance, 1, c->n_tokens);
    for (size_t i = 0; i < (size_t)c->n_tokens * n; i++) {
        residual[i] += out[i] / (1.0f + expf(-r[i]));
    }
}

static void read_part(void *argument, uint32_t number, uint32_t n_parts)
{
    const block_rwkv_heads *its = argument;
    const block_part part = block_part_of(its->n_heads, number, n_parts);
    const uint32_t size = its->n_embd / its->n_heads;
    const size_t n = (size_t)size * size, first = part.first * n;
    const size_t count = (part.end - part.first) * n;
    for (uint32_t i = 0; part.first < part.end && i < its->c->place.n_segments; i++) {
        block_state_segment segment = block_state_segment_of(its->c, its->memory_layer, i);
        float *state = block_state_enter(&segment, BLOCK_RWKV_HEADS, first, count);
        for (uint32_t t = 0; t < segment.n_tokens; t++) {
            const size_t row = (size_t)(segment.first + t) * its->n_embd;
            for (uint32_t head = part.first; head < part.end; head++) {
                its->read(its->job, head, row + (size_t)head * size, size,
                          state + (head - part.first) * n);
            }
            block_state_keep(&segment, BLOCK_RWKV_HEADS, t + 1, first, count);
        }
    }
}

void block_rwkv_read_heads(const block_rwkv_heads *heads, uint64_t work)
{
    block_rwkv_heads job = *heads;
    job.c->workers->work = work;
    block_workers_run(job.c->workers, read_part, &job);
}
