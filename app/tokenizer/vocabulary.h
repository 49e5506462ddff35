/*
 * vocabulary.h: the tokens of a model: texts, scores, types, and the way from a text to its id.
 *
 * vocabulary_read checks the three lists of a GGUF file against each other once; after it every id
 * in [0, n) may be used without a look. Texts stay in the file's mapping.
 *
 * What a text finds: only tokens that ordinary text may become (normal ones). Control, unknown,
 * unused and byte tokens are not found by their spelling, so nobody gets a control token, or a
 * line break, by typing its name; user-defined ones are matched before merging (special.h). Of
 * several tokens with one text the lowest id is found. Empty texts (real files pad with them) are
 * never found.
 */
#ifndef APP_VOCABULARY_H
#define APP_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"
#include "engine/gguf.h"

/* tokenizer.ggml.token_type, by the numbers in the file; 0 (undefined) is read as normal. */
typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
} token_type;

typedef struct vocabulary_slot {
    uint32_t hash;
    cellar_token id; /* -1: empty */
} vocabulary_slot;

/* What the algorithm calls for. */
typedef struct vocabulary_wishes {
    bool scores;     /* they must be there; else they are not read */
    bool is_escaped; /* texts are written as a Python program would write bytes: \n \xE4 \' */
} vocabulary_wishes;

typedef struct vocabulary {
    uint32_t n;                 /* tokens, >= 1 */
    const gguf_string *texts;   /* [n], each at most VOCABULARY_LONGEST_TEXT bytes */
    float *scores;              /* [n], no NaN; NULL: not wished for */
    uint8_t *types;             /* [n], token_type */
    cellar_token byte_ids[256]; /* the token of each byte, -1: none */
    size_t longest_piece;       /* bytes of the longest text that can be found */
    bool has_inner_space;       /* a text that can be found has U+2581 after something else */
    vocabulary_slot *slots;     /* [slot_mask + 1], a power of two, at most half full */
    uint32_t slot_mask;
    gguf_string *own_texts; /* texts that were escaped, and their bytes; else NULL */
    char *own_bytes;
} vocabulary;

#define VOCABULARY_LONGEST_TEXT 65535u

/*
 * Read and check. Without a list of types all tokens are normal, unless scores are wished for. On
 * failure nothing is held. CELLAR_CORRUPT, CELLAR_NO_MEMORY.
 */
cellar_status vocabulary_read(const gguf_file *file, vocabulary_wishes wishes, vocabulary *v,
                              cellar_error *error);
void vocabulary_free(vocabulary *v);

/* The id of a normal token with this text, or -1. */
cellar_token vocabulary_find(const vocabulary *v, const char *text, size_t length);

/* The byte of a byte token. */
unsigned char vocabulary_byte(const vocabulary *v, cellar_token id);

/*
 * A byte written as a byte token's text, "<0x0A>", hexadecimal digits of either case; -1: it is
 * not one.
 */
int vocabulary_parse_byte(gguf_string text);

#endif /* APP_VOCABULARY_H */
