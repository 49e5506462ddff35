/*
 * support_t5.h: a tiny model with an encoder and a decoder, and an engine on it.
 *
 * Sizes are all different: width 24, 3 heads of 5 and 7 elements, 20 inside feed-forward, 8 buckets.
 * A call that fails where it may not ends the test with the message. For cmocka tests only.
 */
#ifndef TESTS_SUPPORT_T5_H
#define TESTS_SUPPORT_T5_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "support_recipe.h"

enum { T5_EMBD = 24, T5_VOCAB = 40, T5_ENCODER_LAYERS = 2, T5_DECODER_LAYERS = 3 };

/* The recipe; is_gated: as version 1.1 has it. */
recipe *support_t5_recipe(bool is_gated);

typedef struct support_t5 {
    recipe_model made;
    engine *engine;
} support_t5;

/* Options for it: 512 cells and micro-batches of 256, rows of f32. */
engine_options support_t5_options(void);

/* options NULL: those above. */
void support_t5_open(const recipe *r, const engine_options *options, support_t5 *out);
void support_t5_close(support_t5 *t);

/* Encode a text for one sequence. */
void support_t5_encode(engine *e, cellar_seq seq, const cellar_token *text, uint32_t n);

/* Decode tokens of one sequence, from where it ends; logits [n][T5_VOCAB]. */
void support_t5_decode(engine *e, cellar_seq seq, const cellar_token *tokens, uint32_t n,
                       float *logits);

#endif /* TESTS_SUPPORT_T5_H */
