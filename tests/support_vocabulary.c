/*
 * support_vocabulary.c: make small vocabularies for the tests and the fuzz target of the tokenizer.
 *
 * Texts may hold NUL and any other byte, which is why the list of texts is put together here, byte
 * by byte, and handed to the writer as a raw value.
 */
#include "support_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/byte_text.h"

static void *need(void *block)
{
    if (block == NULL) {
        fprintf(stderr, "support_vocabulary: no memory\n");
        exit(1);
    }
    return block;
}

cellar_token token_table_add(token_table *table, const char *text, size_t length, float score,
                             int32_t type)
{
    table->tokens = need(realloc(table->tokens, (table->n + 1) * sizeof *table->tokens));
    char *copy = need(malloc(length + 1));
    memcpy(copy, text, length);
    copy[length] = '\0';
    table->tokens[table->n] = (table_token){copy, length, score, type};
    return (cellar_token)table->n++;
}

void token_table_add_usual(token_table *table)
{
    token_table_add(table, "<unk>", 5, 0.0f, TOKEN_UNKNOWN);
    token_table_add(table, "<s>", 3, 0.0f, TOKEN_CONTROL);
    token_table_add(table, "</s>", 4, 0.0f, TOKEN_CONTROL);
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        token_table_add(table, text, 6, 0.0f, TOKEN_BYTE);
    }
}

void token_table_free(token_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        free(table->tokens[i].text);
    }
    free(table->tokens);
    memset(table, 0, sizeof *table);
}

static unsigned char *put(unsigned char *to, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        *to++ = (unsigned char)(value >> (8 * i));
    }
    return to;
}

void token_table_write_texts(const token_table *table, gguf_writer *writer)
{
    size_t n_bytes = 4 + 8;
    for (size_t i = 0; i < table->n; i++) {
        n_bytes += 8 + table->tokens[i].length;
    }
    unsigned char *bytes = need(malloc(n_bytes)), *to = bytes;
    to = put(to, GGUF_STRING, 4);
    to = put(to, table->n, 8);
    for (size_t i = 0; i < table->n; i++) {
        to = put(to, table->tokens[i].length, 8);
        memcpy(to, table->tokens[i].text, table->tokens[i].length);
        to += table->tokens[i].length;
    }
    const char *key = "tokenizer.ggml.tokens";
    gguf_writer_add_raw(writer, key, strlen(key), GGUF_ARRAY, bytes, n_bytes);
    free(bytes);
}

/* A list of 4-byte numbers; each is given by its bits. */
static void write_numbers(const token_table *table, gguf_writer *writer, const char *key,
                          gguf_type type, uint32_t (*bits)(const table_token *token))
{
    unsigned char *bytes = need(malloc(table->n * 4 + 1)), *to = bytes;
    for (size_t i = 0; i < table->n; i++) {
        to = put(to, bits(&table->tokens[i]), 4);
    }
    gguf_writer_add_array(writer, key, type, table->n, bytes, table->n * 4);
    free(bytes);
}

static uint32_t score_bits(const table_token *token)
{
    uint32_t bits;
    memcpy(&bits, &token->score, sizeof bits);
    return bits;
}

static uint32_t type_bits(const table_token *token)
{
    return (uint32_t)token->type;
}

void token_table_write_scores(const token_table *table, gguf_writer *writer)
{
    write_numbers(table, writer, "tokenizer.ggml.scores", GGUF_FLOAT32, score_bits);
}

void token_table_write_types(const token_table *table, gguf_writer *writer)
{
    write_numbers(table, writer, "tokenizer.ggml.token_type", GGUF_INT32, type_bits);
}

gguf_writer *token_table_begin(const token_table *table)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "llama");
    token_table_write_texts(table, writer);
    token_table_write_scores(table, writer);
    token_table_write_types(table, writer);
    return writer;
}

void token_table_add_bytes(token_table *table)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        token_table_add(table, text, byte_text_put((unsigned char)byte, text), 0.0f, TOKEN_NORMAL);
    }
}

gguf_writer *token_table_begin_bpe(const token_table *table, const char *pre, size_t n_merges,
                                   const char *const *merges)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "gpt2");
    if (pre != NULL) {
        gguf_writer_add_string(writer, "tokenizer.ggml.pre", pre);
    }
    token_table_write_texts(table, writer);
    token_table_write_types(table, writer);
    gguf_writer_add_strings(writer, "tokenizer.ggml.merges", n_merges, merges);
    return writer;
}

made_tokenizer made_tokenizer_create(const token_table *table, gguf_writer *writer)
{
    made_tokenizer made = {0};
    size_t size;
    if (writer == NULL) {
        writer = token_table_begin(table);
    }
    made.bytes = gguf_writer_finish(writer, &size);
    gguf_writer_destroy(writer);
    if (gguf_open_memory(made.bytes, size, &made.file, &made.error) != CELLAR_OK) {
        fprintf(stderr, "support_vocabulary: %s\n", made.error.message);
        exit(1);
    }
    made.status = tokenizer_create(made.file, &made.tok, &made.error);
    return made;
}

void made_tokenizer_destroy(made_tokenizer *made)
{
    tokenizer_destroy(made->tok);
    gguf_close(made->file);
    free(made->bytes);
    memset(made, 0, sizeof *made);
}

made_tokenizer made_tokenizer_need(const token_table *table, gguf_writer *writer)
{
    made_tokenizer made = made_tokenizer_create(table, writer);
    if (made.status != CELLAR_OK) {
        fprintf(stderr, "a tokenizer is refused: %s\n", made.error.message);
        exit(1);
    }
    return made;
}

cellar_token *made_tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                                    size_t *n)
{
    const tokenize_options plain = {.add_special = false};
    cellar_token *ids;
    cellar_error error;
    if (tokenizer_encode(tok, text, length, plain, &ids, n, &error) != CELLAR_OK) {
        fprintf(stderr, "a text is refused: %s\n", error.message);
        exit(1);
    }
    for (size_t i = 0; i < *n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= tokenizer_size(tok)) {
            fprintf(stderr, "token %d of a text is none\n", (int)ids[i]);
            exit(1);
        }
    }
    return ids;
}
