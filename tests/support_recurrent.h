/*
 * support_recurrent.h: tiny models with states, of every kind and many shapes, and what they must give.
 *
 *     recurrent_shape shape = recurrent_random(RECURRENT_MAMBA2, seed);
 *     recipe *r = recurrent_recipe(&shape);
 *     recurrent_logits(&shape, r, tokens, n, logits);      // in double, a state for each layer, no cache
 *
 * Shapes differ by seed: widths, heads and their sizes, groups, kernels of 2 to 4. The computation in
 * double is written from the papers, token by token; it knows models of states alone.
 */
#ifndef TESTS_SUPPORT_RECURRENT_H
#define TESTS_SUPPORT_RECURRENT_H

#include "support_recipe.h"

typedef enum recurrent_kind {
    RECURRENT_MAMBA,
    RECURRENT_MAMBA2,
    RECURRENT_LFM2, /* short convolutions alone */
    RECURRENT_RWKV6,
    RECURRENT_RWKV7,
    RECURRENT_PLAIN_KINDS, /* those before: recurrent_logits can compute them */
    RECURRENT_JAMBA = RECURRENT_PLAIN_KINDS,
    RECURRENT_FALCON_H1,
    RECURRENT_LFM2_HYBRID,
    RECURRENT_KINDS
} recurrent_kind;

enum { RECURRENT_VOCABULARY = 40, RECURRENT_LAYERS = 2, RECURRENT_WIDEST = 128 };

typedef struct recurrent_shape {
    recurrent_kind kind;
    uint32_t n_embd, n_ff;
    uint32_t kernel, n_inner, n_state, n_groups; /* of Mamba, Mamba-2, LFM2 */
    uint32_t rank;                               /* of the time step, of RWKV's small matrices */
    uint32_t n_heads, head_size;                 /* of Mamba-2, RWKV */
} recurrent_shape;

recurrent_shape recurrent_random(recurrent_kind kind, uint64_t seed);

recipe *recurrent_recipe(const recurrent_shape *shape);

/* logits [n][RECURRENT_VOCABULARY] after each of tokens [n], in one sequence. */
void recurrent_logits(const recurrent_shape *shape, const recipe *r, const cellar_token *tokens,
                      uint32_t n, double *logits);

#endif /* TESTS_SUPPORT_RECURRENT_H */
