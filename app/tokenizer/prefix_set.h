/*
 * prefix_set.h: which tokens a text begins with, the longest first.
 *
 * For special tokens in a text, for the longest token at a place, for all tokens at a place. Of
 * tokens with one text the user-defined one and the lowest id come first; a user-defined and
 * another one of the same text are both there, others are not. Texts longer than
 * PREFIX_SET_LONGEST_TEXT bytes are left out, so that a search costs at most that times log(tokens)
 * steps.
 */
#ifndef APP_PREFIX_SET_H
#define APP_PREFIX_SET_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer/vocabulary.h"

#define PREFIX_SET_LONGEST_TEXT 1024u

typedef struct prefix_entry {
    cellar_token id;
    int32_t inner; /* index of the longest other entry that is a beginning of this one; -1: none */
} prefix_entry;

typedef struct prefix_set {
    const vocabulary *vocabulary;
    prefix_entry *entries; /* [n], sorted by text */
    uint32_t n;
    uint32_t first[257]; /* entries whose text begins with byte b: first[b] .. first[b + 1] */
} prefix_set;

/*
 * The tokens of the given types (a mask of 1 << token_type). `v` must outlive it. On failure nothing
 * is held. CELLAR_NO_MEMORY.
 */
cellar_status prefix_set_create(const vocabulary *v, uint32_t types, prefix_set *set,
                                cellar_error *error);
void prefix_set_free(prefix_set *set);

/*
 * The entry of the longest token with which text[0..length) begins, length >= 1; -1: none. Its
 * `inner` is the next shorter one, and so on.
 */
int32_t prefix_set_find(const prefix_set *set, const char *text, size_t length);

#endif /* APP_PREFIX_SET_H */
