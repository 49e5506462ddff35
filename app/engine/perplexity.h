/*
 * perplexity.h: how well a model foretells a text, and what storing its memory in few bits costs.
 *
 * Perplexity is exp of the mean of -log p(token | tokens before it). A text longer than the memory
 * is read in windows that begin again from an empty memory, each n_step tokens further:
 *
 *     text      0 1 2 3 4 5 6 7 8 9 a b        start token S, n_window 7, n_step 3
 *     window 0  S[0 1 2 3 4 5]
 *     window 1  S 3 4 5[6 7 8]                 in brackets: the tokens that are scored
 *     window 2  S 6 7 8[9 a b]
 *
 * Every token is scored once, in the first window that holds it, so in every window but the first
 * a scored token has at least n_window - 1 - n_step tokens of text before it. Without a start token
 * the first token of a text has nothing before it and is not scored. Several texts are measured as
 * one: each begins with a window of its own.
 *
 * Standard errors take the scores of tokens to be independent. All sums are in double. The
 * result does not depend on threads, micro-batches or the split into pieces.
 */
#ifndef APP_PERPLEXITY_H
#define APP_PERPLEXITY_H

#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/engine.h"

/* A mean and its standard error (0 for a single number). */
typedef struct perplexity_mean {
    double value, error;
} perplexity_mean;

/* What two memories make of the same tokens: `exact` is the one that is believed. */
typedef struct perplexity_comparison {
    perplexity_mean exact; /* perplexity of the exact memory */
    perplexity_mean ratio; /* perplexity / exact, its error from the differences token by token */
    /* Kullback-Leibler divergence of the exact distribution to the other, in nats. */
    perplexity_mean divergence;
    double median, percentile_99, most; /* of it; the smallest that half, 99% do not exceed */
    double same_best; /* share of the tokens for which both find the same one likeliest */
} perplexity_comparison;

typedef struct perplexity_result {
    uint64_t n_scored;
    uint64_t n_windows;
    uint64_t n_read;            /* tokens read in all windows, by one engine */
    perplexity_mean loss;       /* -log p in nats */
    perplexity_mean perplexity; /* exp of it */
    bool is_compared;
    perplexity_comparison comparison;
} perplexity_result;

typedef struct perplexity_options {
    uint32_t n_window; /* tokens of a window, the start token among them; 2.. cells of the engine */
    uint32_t n_step;   /* 1..n_window - 1 */
    cellar_token start; /* read before every window; -1: none */
    /* [n_texts] where each text ends in the tokens, never falling, the last at n; NULL: one text */
    const size_t *ends;
    size_t n_texts;
    /* Called before text i is read, for an encoder to read its own; a failure ends all. NULL: no. */
    cellar_status (*begin_text)(void *context, size_t i, cellar_error *error);
    void *context;
    /* Tells how far it is and what it has found so far (loss, perplexity alone); false: stop. */
    bool (*progress)(void *context, size_t n_done, size_t n_tokens, const perplexity_result *found);
} perplexity_options;

perplexity_options perplexity_defaults(uint32_t n_window); /* step: half a window; no start */

/* How many tokens will be read at most, windows overlapping, of a text of n tokens. */
uint64_t perplexity_work(const perplexity_options *options, size_t n);

/*
 * Measure tokens [n]. `exact` (may be NULL) reads the same windows beside `e` and is compared with it;
 * it must be of the same model. Both memories are cleared before each window.
 *
 * CELLAR_INVALID: bad options, or no token that could be scored. CELLAR_REFUSED: progress() stopped
 * it. CELLAR_CORRUPT: the model's logits are not numbers (error->at: the token). Also what
 * engine_decode says, and CELLAR_NO_MEMORY.
 */
cellar_status perplexity_measure(engine *e, engine *exact, const cellar_token *tokens, size_t n,
                                 const perplexity_options *options, perplexity_result *out,
                                 cellar_error *error);

#endif /* APP_PERPLEXITY_H */
