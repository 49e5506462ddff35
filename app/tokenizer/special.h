/*
 * special.h: find user-defined and control tokens that are written out in a text.
 *
 * The leftmost one is taken, and of those that begin at one place the longest. User-defined tokens
 * are always looked for, control (and unknown) tokens only when asked. Texts longer than
 * PREFIX_SET_LONGEST_TEXT bytes are never looked for, so that a search costs at most length *
 * PREFIX_SET_LONGEST_TEXT * log(tokens) steps; a byte with which no special token begins costs one.
 */
#ifndef APP_SPECIAL_H
#define APP_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/prefix_set.h"

/* `v` must outlive it; free it with prefix_set_free. On failure nothing is held. CELLAR_NO_MEMORY. */
cellar_status special_create(const vocabulary *v, prefix_set *specials, cellar_error *error);

/*
 * The first special token in text[from..length): its id, and its place in *at; -1: none, *at is
 * `length`.
 */
cellar_token special_find(const prefix_set *specials, const char *text, size_t length, size_t from,
                          bool with_control, size_t *at);

#endif /* APP_SPECIAL_H */
