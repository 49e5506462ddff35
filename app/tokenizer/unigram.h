/*
 * unigram.h: SentencePiece's unigram model (Kudo, arXiv:1804.10959): of all ways to write a text as
 * tokens the one whose scores add up to most.
 *
 * The text is normalised first: replaced by the model's table (charsmap.h), without the white space
 * at both ends and, between words, with one space for several, where the model wants it. So it does
 * not always come back as it was. Each space becomes U+2581.
 */
#ifndef APP_UNIGRAM_H
#define APP_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/charsmap.h"
#include "tokenizer/id_list.h"
#include "tokenizer/prefix_set.h"

typedef struct unigram {
    prefix_set tokens; /* the normal ones */
    charsmap map;
    bool removes_spaces;  /* at both ends, and all but one in a row */
    double unknown_score; /* of a character that is no token */
} unigram;

/* Read what the file has beside the vocabulary, which must outlive it. On failure nothing is held. */
cellar_status unigram_create(const gguf_file *file, const vocabulary *v, unigram *out,
                             cellar_error *error);
void unigram_free(unigram *u);

/*
 * Append the ids of text[0..length), as if a space stood before it with add_space. `unknown` is a
 * token, which stands for a run of characters without tokens and byte tokens, or -1: they are left
 * out. The time is that of one search for each character and as many tokens as begin there, at most
 * PREFIX_SET_LONGEST_TEXT. `steps`, if not NULL, is increased by these. On failure some ids may
 * have been appended. CELLAR_NO_MEMORY.
 */
cellar_status unigram_encode(const unigram *u, cellar_token unknown, const char *text,
                             size_t length, bool add_space, id_list *ids, uint64_t *steps,
                             cellar_error *error);

#endif /* APP_UNIGRAM_H */
