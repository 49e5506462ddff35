/*
 * pre_tokenizer.h: cut a text into the words within which byte-level BPE may merge.
 *
 * A model's tokenizer was trained on words cut by some pattern; the same pattern must be used
 * again, or the ids are not those the model knows. A GGUF file names it in tokenizer.ggml.pre. Each
 * name here stands for the patterns in the tokenizer.json of that model, matched by hand: no
 * regular expressions at run time. A name that is not here is refused, never guessed.
 *
 * Any bytes: what is not UTF-8 counts, byte by byte, as a character without any property. The words
 * in a row always are the whole text. The time is linear in the text, the memory constant.
 */
#ifndef APP_PRE_TOKENIZER_H
#define APP_PRE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

typedef struct pre_tokenizer pre_tokenizer;

/* By its name in a file; NULL: unknown. Constant, never freed. */
const pre_tokenizer *pre_tokenizer_find(const char *name, size_t length);
/* All that there are: their names, NULL after the last. */
const char *pre_tokenizer_name(size_t index);

/* A word that is a token as it stands is not merged (ignore_merges in tokenizer.json). */
bool pre_tokenizer_keeps_tokens(const pre_tokenizer *pre);
/* Does the family put BOS before a text where the file does not say? */
bool pre_tokenizer_adds_bos(const pre_tokenizer *pre);

/*
 * Was the family trained on texts in normal form C only ("normalizer": NFC in tokenizer.json)? Then
 * a text has to be put into it first (normal_form.h).
 */
bool pre_tokenizer_composes(const pre_tokenizer *pre);

/* Called for each word in turn; anything but CELLAR_OK ends the splitting with that status. */
typedef cellar_status (*pre_tokenizer_visit)(void *context, const char *word, size_t length);

/*
 * Visit the words of text[0..length), none of them empty. `steps`, if not NULL, is increased by the
 * characters that were looked at. Fails only as `visit` does.
 */
cellar_status pre_tokenizer_split(const pre_tokenizer *pre, const char *text, size_t length,
                                  pre_tokenizer_visit visit, void *context, uint64_t *steps);

#endif /* APP_PRE_TOKENIZER_H */
