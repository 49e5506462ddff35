/*
 * play.h: the part of an engine, for memories of several groups: attention layers of every shape
 * and recurrent layers with a toy recurrence, run together batch by batch.
 *
 * The toy recurrence. Each number of a state becomes half of itself plus a quarter of its left
 * neighbour plus an input that depends on the layer, the tensor and the token id. It is computed
 * token by token in the same order whatever the micro-batches, so equal pasts give equal bits, and
 * no token's trace is ever quite lost. What a recurrent layer gives for a token is its whole state
 * after it.
 *
 * A row of output is what all layers give for one token, in the order of the layers: attention
 * layers n_heads * v_size floats, recurrent ones all tensors of their state, others nothing. Rows
 * that are not given stay NaN, so they cannot pass for results. Steps that fail are aborted.
 */
#ifndef MODEL_PLAY_H
#define MODEL_PLAY_H

#include "drive.h"

/* A recurrent layer; sizes [n] must stay valid until the memory is made. */
cellar_layer play_recurrent_layer(const uint32_t *sizes, uint32_t n);

/* Bytes of one state of the memory: of all recurrent layers together. */
uint64_t play_state_bytes(const drive *d);

/* Floats of a row of output. */
size_t play_row_size(const drive *d);

/* Begin, compute every micro-batch and layer, leave the step open. out [n_tokens][row] or NULL. */
cellar_status play_compute(drive *d, const cellar_batch *batch, float *out, cellar_error *error);

/* A whole step. Tokens must be given. */
cellar_status play_step(drive *d, const cellar_batch *batch, float *out, cellar_error *error);

/* n tokens first, first + 1, ... at the end of one sequence, in one step. */
cellar_status play_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, float *out,
                          cellar_error *error);

/* What one more token would give: a step that is aborted. out [row]. */
cellar_status play_probe(drive *d, cellar_seq seq, cellar_token token, float *out);

/* The cells a group holds; of one pool, or of all with UINT32_MAX. */
uint32_t play_count_cells(const drive *d, uint32_t layer, uint32_t pool);

/* The positions of a sequence in the group of a layer: how many, the smallest and the largest. */
typedef struct play_extent {
    uint32_t n;
    cellar_pos min, max; /* -1: none */
} play_extent;
play_extent play_group_extent(const drive *d, uint32_t layer, cellar_seq seq);

/* The positions of the checkpoints of a sequence, in order; returns how many there are. */
uint32_t play_checkpoints(const drive *d, cellar_seq seq, cellar_pos *positions, uint32_t capacity);

#endif /* MODEL_PLAY_H */
