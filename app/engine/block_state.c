/*
 * block_state.c: walk through the states of a micro-batch's segments.
 *
 * Of the states to be written the last stands for all tokens of its segment; the block works in it. What
 * it starts from is copied there first, unless it is the same state. A target before the last may
 * be the source too: it is written after its numbers were read, by the same thread.
 */
#include "engine/block_state.h"

#include <string.h>

cellar_status block_state_check(const block_context *c, cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; status == CELLAR_OK && i < c->place.n_segments; i++) {
        cellar_states states;
        status = cellar_get_states(c->memory, c->ubatch, i, &states, error);
    }
    return status;
}

block_state_segment block_state_segment_of(const block_context *c, uint32_t layer, uint32_t i)
{
    const cellar_segment *its = &c->place.segments[i];
    block_state_segment segment = {
        .memory = c->memory, .layer = layer, .first = its->first, .n_tokens = its->n_tokens};
    if (cellar_get_states(c->memory, c->ubatch, i, &segment.states, NULL) != CELLAR_OK) {
        segment.n_tokens = 0; /* cannot be: block_state_check has asked the same */
    }
    return segment;
}

float *block_state_enter(const block_state_segment *segment, uint32_t tensor, size_t first,
                         size_t n)
{
    const cellar_states *states = &segment->states;
    const uint32_t last = states->targets[states->n_targets - 1];
    float *now = cellar_state_data(segment->memory, last, segment->layer, tensor) + first;
    if (states->source == CELLAR_NO_STATE) {
        memset(now, 0, n * sizeof *now);
    } else if (states->source != last) {
        const float *source = cellar_state_data(segment->memory, states->source, segment->layer,
                                                tensor);
        memcpy(now, source + first, n * sizeof *now);
    }
    return now;
}

void block_state_keep(const block_state_segment *segment, uint32_t tensor, uint32_t n_done,
                      size_t first, size_t n)
{
    const cellar_states *states = &segment->states;
    if (states->n_targets == 1 || n_done == segment->n_tokens) {
        return; /* the last target is where they are */
    }
    const uint32_t last = states->targets[states->n_targets - 1];
    const float *now = cellar_state_data(segment->memory, last, segment->layer, tensor) + first;
    for (uint32_t i = 0; i + 1 < states->n_targets; i++) {
        if (states->after[i] == n_done) {
            float *target = cellar_state_data(segment->memory, states->targets[i], segment->layer,
                                              tensor);
            memcpy(target + first, now, n * sizeof *now);
        }
    }
}
