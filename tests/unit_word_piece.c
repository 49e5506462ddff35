/*
 * unit_word_piece.c: WordPiece against another implementation, and the tokens around a text.
 *
 * tests/data/word_piece/texts.txt holds two vocabularies and what a plain program in Python, with
 * Python's own Unicode data, makes of texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_vocabulary.h"

#define TEXTS "tests/data/word_piece/texts.txt"
#define SPACE "\xE2\x96\x81" /* U+2581 */
#define MOST_IDS 400

enum { PAD, UNK, CLS, SEP, MASK };

static size_t parse_hex(const char *digits, char *to)
{
    size_t n = 0;
    for (unsigned byte; sscanf(digits + 2 * n, "%2x", &byte) == 1; n++) {
        to[n] = (char)byte;
    }
    to[n] = '\0';
    return n;
}

/* A token of BERT's list as GGUF files have it. */
static void add_token(token_table *table, const char *token)
{
    char text[128];
    const bool is_control = table->n <= MASK;
    const bool goes_on = strncmp(token, "##", 2) == 0 && token[2] != '\0';
    snprintf(text, sizeof text, "%s%s", is_control || goes_on ? "" : SPACE,
             goes_on ? token + 2 : token);
    token_table_add(table, text, strlen(text), 0.0f, is_control ? TOKEN_CONTROL : TOKEN_NORMAL);
}

static gguf_writer *begin(const token_table *table)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "bert");
    token_table_write_texts(table, writer);
    token_table_write_types(table, writer);
    return writer;
}

static void check_text(const tokenizer *tok, const char *text, size_t length, const char *expected)
{
    size_t n;
    cellar_token *ids = made_tokenizer_encode(tok, text, length, &n);
    for (size_t i = 0; i < n; i++) {
        char *end;
        const long id = strtol(expected, &end, 10);
        if (end == expected || ids[i] != id) {
            fail_msg("\"%.*s\": id %zu is %d, expected %s", (int)length, text, i, (int)ids[i],
                     expected);
        }
        expected = end + (*end == ',');
    }
    if (*expected != '\0' && *expected != '-') {
        fail_msg("\"%.*s\": more ids are expected: %s", (int)length, text, expected);
    }
    free(ids);
}

static void check_vocabulary(const char *wanted)
{
    static char line[8192], kind[32], hex[4096], ids[4 * MOST_IDS], text[2048];
    token_table table = {0};
    made_tokenizer made = {0};
    size_t n_texts = 0;
    FILE *file = fopen(TEXTS, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "token %31s %4095s", kind, hex) == 2 && strcmp(kind, wanted) == 0) {
            parse_hex(hex, text);
            add_token(&table, text);
        } else if (sscanf(line, "text %31s %4095s %1599s", kind, hex, ids) == 3 &&
                   strcmp(kind, wanted) == 0) {
            if (made.tok == NULL) {
                made = made_tokenizer_need(NULL, begin(&table));
            }
            check_text(made.tok, text, parse_hex(hex, text), ids);
            n_texts++;
        }
    }
    fclose(file);
    assert_true(table.n > 100 && n_texts > 400);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void texts_are_cut_as_another_implementation_does(void **state)
{
    (void)state;
    check_vocabulary("uncased");
    check_vocabulary("cased");
}

/* ---- around a text -------------------------------------------------------------------------- */

static token_table small_table(void)
{
    static const char *const tokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                         "the",   "fox",   "##es",  ","};
    token_table table = {0};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        add_token(&table, tokens[i]);
    }
    return table;
}

static void assert_ids(const tokenizer *tok, const char *text, size_t n,
                       const cellar_token *expected)
{
    const tokenize_options whole = {.add_special = true, .parse_special = true};
    cellar_token *ids;
    size_t n_ids;
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), whole, &ids, &n_ids, NULL),
                     CELLAR_OK);
    assert_int_equal(n_ids, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], expected[i]);
    }
    free(ids);
}

static void a_text_stands_between_its_special_tokens(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(NULL, begin(&table));
    assert_ids(made.tok, "The [MASK], foxes!", 8,
               (const cellar_token[]){CLS, 5, MASK, 8, 6, 7, UNK, SEP});
    assert_ids(made.tok, "", 2, (const cellar_token[]){CLS, SEP});
    char *text;
    size_t n;
    const cellar_token ids[] = {CLS, 5, 6, 7, 8, SEP};
    assert_int_equal(tokenizer_decode(made.tok, ids, 6, false, &text, &n, NULL), CELLAR_OK);
    assert_int_equal(n, strlen("the foxes ,"));
    assert_memory_equal(text, "the foxes ,", n);
    free(text);
    made_tokenizer_destroy(&made);

    gguf_writer *writer = begin(&table); /* keys are believed before spellings */
    gguf_writer_add_u32(writer, "tokenizer.ggml.cls_token_id", 5);
    gguf_writer_add_u32(writer, "tokenizer.ggml.seperator_token_id", 6);
    gguf_writer_add_u32(writer, "tokenizer.ggml.unknown_token_id", PAD);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_bos_token", true);
    made = made_tokenizer_need(NULL, writer);
    assert_ids(made.tok, "?", 3, (const cellar_token[]){5, PAD, 6});
    made_tokenizer_destroy(&made);
    writer = begin(&table);
    gguf_writer_add_u32(writer, "tokenizer.ggml.cls_token_id", 9);
    made = made_tokenizer_create(NULL, writer);
    assert_int_equal(made.status, CELLAR_CORRUPT);
    assert_non_null(strstr(made.error.message, "cls_token_id"));
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void without_an_unknown_token_unknown_words_are_left_out(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add(&table, SPACE "fox", 6, 0.0f, TOKEN_NORMAL);
    token_table_add(&table, SPACE, 3, 0.0f, TOKEN_NORMAL);
    made_tokenizer made = made_tokenizer_need(NULL, begin(&table));
    assert_ids(made.tok, "foxy fox \xFF\xFE fo\xFFx z", 2, (const cellar_token[]){0, 0});
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_as_another_implementation_does),
        cmocka_unit_test(a_text_stands_between_its_special_tokens),
        cmocka_unit_test(without_an_unknown_token_unknown_words_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
