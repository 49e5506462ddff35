/*
 * spm.h: SentencePiece's byte-pair encoding by scores (Sennrich et al., arXiv:1508.07909; Kudo and
 * Richardson, arXiv:1808.06226).
 *
 * Each space becomes U+2581, the text is split into characters, and then again and again the two
 * neighbours whose joined text is the token with the highest score become one, the leftmost pair
 * of equal scores first, until no neighbours form a token. What is no token then is written as
 * byte tokens, or as the unknown token where the vocabulary lacks them.
 */
#ifndef APP_SPM_H
#define APP_SPM_H

#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/id_list.h"
#include "tokenizer/vocabulary.h"

/* Bytes of text that one call takes at most: positions fit in 32 bits even if all are spaces. */
#define SPM_LONGEST_TEXT ((size_t)1 << 30)

/*
 * Append the ids of text[0..length) to `ids`, as if a space stood before it with add_space.
 * `unknown` is a token, or -1: what has no token at all is then left out. O(n log n) for any text;
 * no recursion. On failure some ids may have been appended. CELLAR_NO_MEMORY.
 */
cellar_status spm_encode(const vocabulary *v, cellar_token unknown, const char *text, size_t length,
                         bool add_space, id_list *ids, cellar_error *error);

#endif /* APP_SPM_H */
