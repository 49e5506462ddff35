/*
 * generate.h: read a prompt, then write on, token by token.
 *
 * The prompt is read in chunks of the engine's micro-batch, each a step of its own, so that it can
 * be watched and stopped. Then: choose a token, show its text, read it, again. Text goes out as
 * valid UTF-8 as soon as a character is complete.
 *
 * When the cells are full there are three ways to go on, see generate_on_full. A prompt that does
 * not fit is refused before anything is read, whatever the way: to drop a part of what somebody
 * asked to be read, without a word, would be an answer to another question.
 */
#ifndef APP_GENERATE_H
#define APP_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "tokenizer/tokenizer.h"

typedef enum generate_on_full {
    GENERATE_SHIFT, /* keep the first n_keep tokens, forget half of the rest, go on */
    GENERATE_STOP,  /* end there: GENERATE_ENDED_FULL */
    GENERATE_FAIL,  /* CELLAR_FULL */
} generate_on_full;

typedef enum generate_ended {
    GENERATE_ENDED_TEXT,    /* the model ended its text */
    GENERATE_ENDED_LIMIT,   /* n_limit tokens were written */
    GENERATE_ENDED_FULL,    /* the cells were full (GENERATE_STOP) */
    GENERATE_ENDED_STOPPED, /* should_stop said so */
    GENERATE_ENDED_OUTPUT,  /* `text` could not write */
} generate_ended;

typedef struct generate_options {
    const cellar_token *prompt; /* [n_prompt], n_prompt >= 1 */
    size_t n_prompt;
    /* of these, how many the sequence holds already, < n_prompt; it holds nothing else */
    size_t n_known;
    size_t n_seen; /* of these, how many the sampler was shown already; the first ones */
    cellar_seq seq;
    uint64_t n_limit; /* most tokens to write; UINT64_MAX: no limit */
    generate_on_full on_full;
    /* positions that a shift keeps; at most three quarters of the cells are kept */
    uint32_t n_keep;
    bool ignore_end;   /* never choose a token that ends the text */
    bool show_special; /* show control tokens in the text */
    /* nothing was shown before: drop the space that some models put before a text */
    bool is_text_start;
    const char *echo; /* [n_echo] bytes shown when the prompt was read, before anything else */
    size_t n_echo;

    void *context; /* of the functions below, each of which may be NULL */
    void (*progress)(void *context, size_t n_read, size_t n_prompt);
    bool (*text)(void *context, const char *bytes, size_t n); /* false: cannot write */
    bool (*should_stop)(void *context); /* asked before each layer and token */
    /* a token was chosen, and will be read next; and what a shift did to the sequence */
    cellar_status (*written)(void *context, cellar_token token, cellar_error *error);
    cellar_status (*shifted)(void *context, cellar_pos keep, cellar_pos discarded,
                             cellar_error *error);
} generate_options;

typedef struct generate_result {
    generate_ended ended;
    size_t n_read;        /* prompt tokens read: n_prompt - n_known unless it was stopped */
    size_t n_known;       /* prompt tokens that did not have to be read */
    uint64_t n_generated; /* tokens written; one that ends the text does not count */
    uint32_t n_shifts;
    double prompt_seconds, generate_seconds;
} generate_result;

/* Positions that a shift keeps: n_keep, but never so many that hardly any room is made. */
cellar_pos generate_kept(const engine *e, uint32_t n_keep);

/* Everything zero but n_limit (none). */
generate_options generate_defaults(void);

/*
 * Do it. *result is filled in also after a failure, with what was done until then; so is the
 * sequence: what was committed stays. The sampler is shown every token of the prompt but the first
 * n_seen. CELLAR_FULL, CELLAR_INVALID, CELLAR_NO_MEMORY, and what `written` and `shifted` return.
 */
cellar_status generate(engine *e, const tokenizer *tok, sampler *s, const generate_options *options,
                       generate_result *result, cellar_error *error);

#endif /* APP_GENERATE_H */
