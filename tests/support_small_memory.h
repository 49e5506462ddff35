/*
 * support_small_memory.h: small memories of any kind of layers for tests that look inside.
 *
 * Rows are zeros: these tests ask where things are, not what they are. Every call that should work is
 * asserted (cmocka), so a test says only what is its own.
 */
#ifndef SUPPORT_SMALL_MEMORY_H
#define SUPPORT_SMALL_MEMORY_H

#include "cellar.h"

enum { SMALL_LAYERS = 8, SMALL_HEAD = 32 };

typedef struct small_memory {
    cellar_config config; /* layers: those below; fill in the rest before small_open */
    cellar_layer layers[SMALL_LAYERS];
    cellar_memory *memory;
} small_memory;

/* A configuration without layers. */
void small_init(small_memory *small, uint32_t n_cells);

/* One more layer: one head of SMALL_HEAD elements, f16; a window of W (0: none). */
cellar_layer *small_add_attention(small_memory *small, uint32_t window);

/* One more layer: a state of two tensors, of 16 and 24 floats. */
cellar_layer *small_add_recurrent(small_memory *small);

void small_open(small_memory *small);
void small_close(small_memory *small);

/* Open a step of n tokens of one sequence. */
void small_begin(small_memory *small, cellar_seq seq, uint32_t n);

/* Open a step with one token for each of n sequences. */
void small_begin_each(small_memory *small, const cellar_seq *seqs, uint32_t n);

/* Store zeros, or confirm, for all layers and micro-batches of the open step. */
void small_store(small_memory *small);

/* small_begin, small_store, commit. */
void small_read(small_memory *small, cellar_seq seq, uint32_t n);

#endif /* SUPPORT_SMALL_MEMORY_H */
