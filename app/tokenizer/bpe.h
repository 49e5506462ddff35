/*
 * bpe.h: byte-pair encoding by ranked merges (Sennrich et al., arXiv:1508.07909), over bytes as
 * GPT-2 introduced it, or over characters as Gemma 4 has it.
 *
 * Over bytes: the pre-tokenizer cuts the text into words; in each word every byte is a symbol, and
 * again and again the two neighbours whose merge stands first in tokenizer.ggml.merges become one,
 * the leftmost first, until no merge applies. Over characters: there are no words, a space is
 * U+2581, and a character without a token is written as byte tokens.
 */
#ifndef APP_BPE_H
#define APP_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/id_list.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

/* left, for which it is listed, and right become `merged`. */
typedef struct bpe_merge {
    cellar_token right, merged;
    uint32_t rank;
} bpe_merge;

typedef struct bpe {
    const vocabulary *vocabulary;
    const pre_tokenizer *pre; /* NULL: over characters */
    bpe_merge *merges;        /* [n_merges], sorted by left, right */
    uint32_t *first; /* [tokens + 1]: the merges of left are first[left] .. first[left + 1] */
    uint32_t n_merges;
    cellar_token byte_ids[256]; /* of bytes, -1: none */
    cellar_token space_id;      /* of U+2581, over characters */
} bpe;

/*
 * Read the merges and hold them against the vocabulary, which must outlive them. `pre` NULL: over
 * characters. On failure nothing is held. CELLAR_CORRUPT, CELLAR_NO_MEMORY.
 */
cellar_status bpe_create(const gguf_file *file, const vocabulary *v, const pre_tokenizer *pre,
                         bpe *out, cellar_error *error);
void bpe_free(bpe *b);

/*
 * Append the ids of text[0..length), at most 2^30 bytes, as if a space stood before it with
 * add_space. `unknown` is a token, or -1: a byte that has no token is then left out. O(n log n) for
 * any text, in memory for the longest word; no recursion. `steps`, if not NULL, is increased by the
 * work done. On failure some ids may have been appended. CELLAR_NO_MEMORY.
 */
cellar_status bpe_encode(const bpe *b, cellar_token unknown, const char *text, size_t length,
                         bool add_space, id_list *ids, uint64_t *steps, cellar_error *error);

#endif /* APP_BPE_H */
