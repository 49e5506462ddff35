/*
 * greedy.h: the longest token at each place, as RWKV's "world" tokenizer reads.
 *
 * Its vocabulary has every single byte, so that any bytes are read and come back as they were.
 * Texts are written in the file with escapes (vocabulary.h).
 */
#ifndef APP_GREEDY_H
#define APP_GREEDY_H

#include "tokenizer/id_list.h"
#include "tokenizer/prefix_set.h"

/*
 * Append the ids of text[0..length); `tokens` are the normal ones. `unknown` is a token, or -1: a
 * byte with which no token begins is then left out. A constant number of searches for each token.
 * On failure some ids may have been appended. CELLAR_NO_MEMORY.
 */
cellar_status greedy_encode(const prefix_set *tokens, cellar_token unknown, const char *text,
                            size_t length, id_list *ids, cellar_error *error);

#endif /* APP_GREEDY_H */
