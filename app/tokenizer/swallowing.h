/*
 * swallowing.h: special tokens that take the white space beside them.
 *
 * In a tokenizer.json an added token may have "lstrip" or "rstrip": written in a text, it takes all
 * white space before it, or behind it, so that
 *
 *     <|user|>\n hello      is       <|user|>  hello
 *
 * The model was trained so and has never seen what is swallowed. A GGUF file has no place for these
 * flags; the families that are known to have them are listed in swallowing.c by architecture and
 * tokenizer. In all others no token swallows anything.
 */
#ifndef APP_SWALLOWING_H
#define APP_SWALLOWING_H

#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/gguf.h"
#include "tokenizer/vocabulary.h"

enum {
    SWALLOWS_BEFORE = 1u << 0,
    SWALLOWS_AFTER = 1u << 1,
};

/*
 * What each token swallows: *out is malloc'ed, [tokens] masks of SWALLOWS_..., or NULL where none
 * swallows anything. CELLAR_NO_MEMORY.
 */
cellar_status swallowing_create(const gguf_file *file, const vocabulary *v, uint8_t **out,
                                cellar_error *error);

/* The first place at or behind `from` that is not white space, at most `length`. */
size_t swallowing_skip(const char *text, size_t length, size_t from);

/* The place behind the last character of text[from..end) that is not white space; at least from. */
size_t swallowing_trim(const char *text, size_t from, size_t end);

#endif /* APP_SWALLOWING_H */
