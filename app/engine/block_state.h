/*
 * block_state.h: how a recurrent block walks through a micro-batch and its states.
 *
 * A micro-batch is a list of segments, each some tokens that follow each other in one sequence. For each
 * segment the memory names the state to start from and the states to write: the last one after all
 * tokens, others (places to return to) after fewer. A block does
 *
 *     for each segment i:   segment = block_state_segment_of(c, layer, i)
 *         state = block_state_enter(&segment, tensor, first, n)      the last target, as it begins
 *         for each token t:   change state[0..n);   block_state_keep(&segment, tensor, t + 1, first, n)
 *
 * so the state is computed where it will stay and copied only where somebody may return to. The
 * numbers [first, first + n) of a tensor are one thread's: it enters, changes and keeps those and no
 * others, and so threads need not wait for each other. A fork costs nothing here: it starts from the same
 * source.
 *
 * Fails only in block_state_check, which a block calls before it splits its work.
 */
#ifndef APP_BLOCK_STATE_H
#define APP_BLOCK_STATE_H

#include "engine/block.h"

typedef struct block_state_segment {
    const cellar_memory *memory;
    uint32_t layer;           /* of the memory */
    uint32_t first, n_tokens; /* of the micro-batch */
    cellar_states states;
} block_state_segment;

/* May the segments of c->place be walked? cellar_get_states' statuses. */
cellar_status block_state_check(const block_context *c, cellar_error *error);

/* Segment i of a micro-batch that was checked. */
block_state_segment block_state_segment_of(const block_context *c, uint32_t layer, uint32_t i);

/*
 * Numbers [first, first + n) of a tensor at the start of the segment, to be changed in place. Once for
 * each number.
 */
float *block_state_enter(const block_state_segment *segment, uint32_t tensor, size_t first,
                         size_t n);

/* n_done tokens are read into these numbers: copy them where that is asked for. */
void block_state_keep(const block_state_segment *segment, uint32_t tensor, uint32_t n_done,
                      size_t first, size_t n);

/* Part of n_parts of n channels. */
typedef struct block_part {
    uint32_t first, end;
} block_part;

static inline block_part block_part_of(uint32_t n, uint32_t part, uint32_t n_parts)
{
    return (block_part){(uint32_t)((uint64_t)n * part / n_parts),
                        (uint32_t)((uint64_t)n * (part + 1) / n_parts)};
}

#endif /* APP_BLOCK_STATE_H */
