/*
 * special.h: find user-defined and control tokens that are written out in a text.
 *
 * The leftmost one is taken, and of those that begin at one place the longest. User-defined tokens
 * are always looked for, control (and unknown) tokens only when asked. Texts longer than
 * SPECIAL_LONGEST_TEXT bytes are never looked for, so that a search costs at most length *
 * SPECIAL_LONGEST_TEXT * log(tokens) steps; a byte with which no special token begins costs one.
 */
#ifndef APP_SPECIAL_H
#define APP_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/vocabulary.h"

#define SPECIAL_LONGEST_TEXT 1024u

typedef struct special_text {
    cellar_token id;
    int32_t inner; /* index of the longest other entry that is a beginning of this one; -1: none */
} special_text;

typedef struct special_texts {
    const vocabulary *vocabulary;
    special_text *entries; /* [n], sorted by text */
    uint32_t n;
    uint32_t first[257]; /* entries whose text begins with byte b: first[b] .. first[b + 1] */
} special_texts;

/* `v` must outlive it. On failure nothing is held. CELLAR_NO_MEMORY. */
cellar_status special_create(const vocabulary *v, special_texts *specials, cellar_error *error);
void special_free(special_texts *specials);

/*
 * The first special token in text[from..length): its id, and its place in *at; -1: none, *at is
 * `length`.
 */
cellar_token special_find(const special_texts *specials, const char *text, size_t length,
                          size_t from, bool with_control, size_t *at);

#endif /* APP_SPECIAL_H */
