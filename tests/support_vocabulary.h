/*
 * support_vocabulary.h: make small vocabularies for the tests and the fuzz target of the tokenizer.
 *
 *     token_table table = {0};
 *     token_table_add_usual(&table);                         // <unk> <s> </s> and 256 byte tokens
 *     cellar_token id = token_table_add(&table, "ab", 2, -1.0f, TOKEN_NORMAL);
 *     made_tokenizer made = made_tokenizer_create(&table, NULL);
 *     ... made.tok ...
 *     made_tokenizer_destroy(&made);
 *     token_table_free(&table);
 *
 * The vocabulary goes through a GGUF file in memory, as a real one would. For tests only: without
 * memory, or where something that must work does not, the program ends with a message.
 */
#ifndef TESTS_SUPPORT_VOCABULARY_H
#define TESTS_SUPPORT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "gguf_writer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

typedef struct table_token {
    char *text;
    size_t length;
    float score;
    int32_t type;
} table_token;

typedef struct token_table {
    table_token *tokens; /* [n] */
    size_t n;
} token_table;

/* The id of the new token. */
cellar_token token_table_add(token_table *table, const char *text, size_t length, float score,
                             int32_t type);
/* <unk> 0, <s> 1, </s> 2, and the byte tokens 3..258. */
void token_table_add_usual(token_table *table);
#define USUAL_FIRST_BYTE 3
#define USUAL_FIRST_PIECE 259
void token_table_free(token_table *table);

/* A writer that already has tokenizer.ggml.model ("llama"), tokens, scores and token_type. */
gguf_writer *token_table_begin(const token_table *table);

/*
 * For byte-level BPE: the 256 bytes as their characters, byte b as the token "its place among those
 * that were there before, plus b"; and a writer with model "gpt2", the pre-tokenizer (NULL: the key
 * is left out), tokens, types and the merges ("a b").
 */
void token_table_add_bytes(token_table *table);
gguf_writer *token_table_begin_bpe(const token_table *table, const char *pre, size_t n_merges,
                                   const char *const *merges);

/* Only one list, for tests that write the others themselves. */
void token_table_write_texts(const token_table *table, gguf_writer *writer);
void token_table_write_scores(const token_table *table, gguf_writer *writer);
void token_table_write_types(const token_table *table, gguf_writer *writer);

/* A tokenizer with the bytes that it stands on. */
typedef struct made_tokenizer {
    unsigned char *bytes;
    gguf_file *file;
    tokenizer *tok; /* NULL: refused */
    cellar_status status;
    cellar_error error;
} made_tokenizer;

/* Takes over the writer, if there is one; else the table's own is finished. */
made_tokenizer made_tokenizer_create(const token_table *table, gguf_writer *writer);
void made_tokenizer_destroy(made_tokenizer *made);

/* The same, and a refusal ends the test program. */
made_tokenizer made_tokenizer_need(const token_table *table, gguf_writer *writer);

/*
 * The tokens of a text without special ones around it, from malloc. A failure, or a token that is none,
 * ends the test program.
 */
cellar_token *made_tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                                    size_t *n);

#endif /* TESTS_SUPPORT_VOCABULARY_H */
