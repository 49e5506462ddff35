/*
 * word_piece.h: WordPiece, as BERT reads (Devlin et al., arXiv:1810.04805).
 *
 * A text is cleaned (no controls), cut at white space, and around each punctuation mark and each
 * Chinese character. Models without capital letters read small ones, without accents. Each word is
 * then cut greedily: the longest token it begins with, the longest that goes on from there, and so
 * on; a word that cannot be cut so, or of more than 100 characters, is one unknown token.
 *
 * In a GGUF file a token that begins a word is written with U+2581 before it, one that goes on ("##"
 * in the model's own list) as it is. Whether a model has capital letters is not said: it has if any
 * normal token has one, for otherwise every word with a capital would be unknown to it.
 */
#ifndef APP_WORD_PIECE_H
#define APP_WORD_PIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/id_list.h"
#include "tokenizer/prefix_set.h"

#define WORD_PIECE_LONGEST 100u /* characters of a word */

/* Has any normal token a capital letter? */
bool word_piece_has_capitals(const vocabulary *v);

/*
 * Append the ids of text[0..length), any bytes; what is not UTF-8 is left out. `tokens` are the
 * normal ones; `unknown` is a token, or -1: unknown words are left out. A constant number of
 * searches for each character. On failure some ids may have been appended. CELLAR_NO_MEMORY.
 */
cellar_status word_piece_encode(const prefix_set *tokens, cellar_token unknown, bool is_cased,
                                const char *text, size_t length, id_list *ids, cellar_error *error);

/* ---- word_piece_table.c --------------------------------------------------------------------- */

typedef struct word_piece_run {
    uint32_t first, last;
} word_piece_run;

typedef struct word_piece_case {
    uint32_t first, last, step; /* capital letters */
    int32_t distance;           /* from one of them to its small letter */
} word_piece_case;

extern const word_piece_run word_piece_marks[]; /* both sorted */
extern const uint32_t word_piece_n_marks;
extern const word_piece_case word_piece_capitals[];
extern const uint32_t word_piece_n_capitals;

#endif /* APP_WORD_PIECE_H */
