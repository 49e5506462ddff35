/*
 * sampler.h: choose the next token from logits.
 *
 * In this order: repetition penalty over the last `repeat_last` tokens, then (temperature 0) the
 * largest logit, or: top-k, softmax, top-p, min-p, temperature, and one draw. The same seed,
 * logits and history give the same token on every machine: the generator is a fixed 64-bit one,
 * sums are in double and ties go to the lower id. Nothing is allocated after creation.
 */
#ifndef APP_SAMPLER_H
#define APP_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "cellar.h"

/*
 * min_p drops what is less likely than min_p times the likeliest. repeat_penalty divides positive
 * logits of tokens seen before and multiplies the others, once for each token.
 */
typedef struct sampler_options {
    double temperature;    /* 0: greedy; default 0.8 */
    uint32_t top_k;        /* 0: all; default 40 */
    double top_p;          /* (0, 1]; 1: all; default 0.95 */
    double min_p;          /* [0, 1]; 0: all; default 0.05; see below */
    double repeat_penalty; /* > 0; 1: none (default); see below */
    uint32_t repeat_last;  /* tokens looked back, at most 2^20; default 64 */
    uint64_t seed;
} sampler_options;

typedef struct sampler sampler;

sampler_options sampler_defaults(void);

/* CELLAR_INVALID names the option that is out of range. */
cellar_status sampler_create(const sampler_options *options, uint32_t n_vocab, sampler **out,
                             cellar_error *error);
void sampler_destroy(sampler *s); /* NULL is allowed */

/*
 * Where the generator stands: a sampler that is given it draws the numbers that this one would draw
 * next. sampler_resume with four zeros, which no generator reaches, returns false and does nothing.
 */
void sampler_position(const sampler *s, uint64_t words[4]);
bool sampler_resume(sampler *s, const uint64_t words[4]);

/* Remember a token (of the prompt or generated) for the repetition penalty. */
void sampler_accept(sampler *s, cellar_token token);

/*
 * The next token; logits [n_vocab] are not changed. NaN counts as -infinity, +infinity as the
 * largest finite float; with nothing above -infinity, token 0.
 */
cellar_token sampler_next(sampler *s, const float *logits);

#endif /* APP_SAMPLER_H */
