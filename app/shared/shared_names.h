/*
 * shared_names.h: what blocks of tokens are called in the shared store.
 *
 * A name is a keyed hash of the key, of all tokens before the block and of its own: a chain, so that the name of a block
 * says which text it goes on with, to those who know the secret, and nothing to others. docs/shared-tier.md has it
 * byte by byte. A name only finds; what is found is compared token by token.
 */
#ifndef APP_SHARED_NAMES_H
#define APP_SHARED_NAMES_H

#include "cellar.h"
#include "shared/sha256.h"

#define SHARED_BLOCK 64u                                 /* tokens */
#define SHARED_KEY_BYTES (7u + 2u + 16u + 1u + 64u + 1u) /* of a key in the store, with its NUL */

typedef struct shared_name {
    unsigned char bytes[SHA256_BYTES];
} shared_name;

/* The beginning of all chains under a key, of which `key` is what cellar_library_write_key wrote. */
void shared_names_root(const hmac_key *secret, const void *key, size_t n, shared_name *out);

/* The names of n blocks of tokens [n * SHARED_BLOCK]. */
void shared_names_chain(const hmac_key *secret, const shared_name *root, const cellar_token *tokens,
                        size_t n, shared_name *out);

/* The key in the store; `first` is the name of the first block of the text. */
void shared_names_write(const shared_name *first, const shared_name *name,
                        char out[SHARED_KEY_BYTES]);

#endif /* APP_SHARED_NAMES_H */
