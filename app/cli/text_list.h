/*
 * text_list.h: the texts of a file as tokens, one text or several with separating lines between them.
 *
 * For `cellar perplexity`: what is measured, and what an encoder reads before each of it. Empty texts
 * keep their place, so that the texts of two files can be paired.
 */
#ifndef APP_TEXT_LIST_H
#define APP_TEXT_LIST_H

#include <stddef.h>

#include "cellar.h"
#include "tokenizer/tokenizer.h"

typedef struct text_list {
    cellar_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    size_t *ends; /* [n_texts] where each text ends in the tokens */
    size_t n_texts, n_empty;
} text_list;

/*
 * Read the file ("-": standard input), which `separator` lines divide into texts; NULL: it is one
 * text. The last line end is dropped. path NULL: one empty text. On failure what was read so far is
 * in *out; text_list_free gives it back. Statuses: prompt_read's, tokenizer_encode's.
 */
cellar_status text_list_read(const tokenizer *tok, const char *path, const char *separator,
                             tokenize_options how, text_list *out, cellar_error *error);
void text_list_free(text_list *list);

/* Where text i begins. */
static inline size_t text_list_begin(const text_list *list, size_t i)
{
    return i == 0 ? 0 : list->ends[i - 1];
}

#endif /* APP_TEXT_LIST_H */
