/*
 * support_reading.h: read tokens with a model of a recipe, and count what was read.
 *
 *     reading r;
 *     reading_open(&r, recipe, &options);
 *     reading_add(&r, seq, tokens, n, NULL, logits);       // [n][n_vocab], at the sequence's next positions
 *     reading_close(&r);
 *
 * For tests only: what fails ends the program with a message.
 */
#ifndef TESTS_SUPPORT_READING_H
#define TESTS_SUPPORT_READING_H

#include "engine/engine.h"
#include "support_recipe.h"

typedef struct reading {
    recipe_model made;
    engine *engine;
    cellar_memory *memory;
    uint32_t n_vocab;
    uint64_t n_read; /* tokens so far */
} reading;

void reading_open(reading *r, const recipe *weights, const engine_options *options);
void reading_close(reading *r);

/* checkpoints [n] or NULL: make one after the token. */
void reading_add(reading *r, cellar_seq seq, const cellar_token *tokens, uint32_t n,
                 const bool *checkpoints, float *logits);

/* Logits of all of tokens [n], by a new engine that reads them at once. */
void reading_cold(const recipe *weights, const cellar_token *tokens, uint32_t n, float *logits);

#endif /* TESTS_SUPPORT_READING_H */
