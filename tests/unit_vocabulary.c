/*
 * unit_vocabulary.c: vocabularies that must be refused, with key and reason, and odd ones that
 * must not.
 *
 * Each bad file is a good one with one thing wrong. Most are faults that were found in other
 * programs: lists of the right count in a narrower type, ids beyond the vocabulary, byte tokens
 * that name no byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_vocabulary.h"

static const tokenize_options plain = {.add_special = false};

/* ---- helpers -------------------------------------------------------------------------------- */

static cellar_token add(token_table *table, const char *text, float score)
{
    return token_table_add(table, text, strlen(text), score, TOKEN_NORMAL);
}

static made_tokenizer need_tokenizer(const token_table *table, gguf_writer *writer)
{
    made_tokenizer made = made_tokenizer_create(table, writer);
    if (made.status != CELLAR_OK) {
        fail_msg("%s", made.error.message);
    }
    return made;
}

/* Encode and decode: the tokenizer works, not just exists. */
static void assert_comes_back(const tokenizer *tok, const char *text, size_t length)
{
    size_t n, n_bytes;
    char *back;
    cellar_token *ids;
    assert_int_equal(tokenizer_encode(tok, text, length, plain, &ids, &n, NULL), CELLAR_OK);
    assert_int_equal(tokenizer_decode(tok, ids, n, false, &back, &n_bytes, NULL), CELLAR_OK);
    assert_int_equal(n_bytes, length);
    assert_memory_equal(back, text, length);
    free(back);
    free(ids);
}

static token_table small_table(void)
{
    token_table table = {0};
    token_table_add_usual(&table);
    add(&table, "a", -1.0f);
    return table;
}

/* The writer's file must be refused as CORRUPT with all these words in the message. */
static void assert_refused_as(gguf_writer *writer, cellar_status status, const char *word,
                              const char *other_word)
{
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    assert_int_equal(made.status, status);
    assert_int_equal(made.error.status, status);
    assert_null(made.tok);
    if (strstr(made.error.message, word) == NULL ||
        strstr(made.error.message, other_word) == NULL) {
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", made.error.message, word, other_word);
    }
    tokenizer *tok;
    assert_int_equal(tokenizer_create(made.file, &tok, NULL), status);
    assert_null(tok);
    made_tokenizer_destroy(&made);
}

static void assert_refused(gguf_writer *writer, const char *word, const char *other_word)
{
    assert_refused_as(writer, CELLAR_CORRUPT, word, other_word);
}

static gguf_writer *begin_without_lists(void)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "llama");
    return writer;
}

static void other_algorithms_are_refused_by_name(void **state)
{
    (void)state;
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "plamo2");
    assert_refused_as(writer, CELLAR_UNSUPPORTED, "tokenizer.ggml.model", "plamo2");
    writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "llama2");
    assert_refused_as(writer, CELLAR_UNSUPPORTED, "tokenizer.ggml.model", "llama2");
    writer = gguf_writer_create(3);
    assert_refused(writer, "tokenizer.ggml.model", "no key");
    writer = gguf_writer_create(3);
    gguf_writer_add_u32(writer, "tokenizer.ggml.model", 7);
    assert_refused(writer, "tokenizer.ggml.model", "string");
}

static void missing_lists_are_refused(void **state)
{
    (void)state;
    token_table table = small_table();
    gguf_writer *writer = begin_without_lists();
    assert_refused(writer, "tokenizer.ggml.tokens", "no key");
    writer = begin_without_lists();
    token_table_write_texts(&table, writer);
    token_table_write_types(&table, writer);
    assert_refused(writer, "tokenizer.ggml.scores", "no key");
    writer = begin_without_lists();
    token_table_write_texts(&table, writer);
    token_table_write_scores(&table, writer);
    assert_refused(writer, "tokenizer.ggml.token_type", "no key");
    token_table_free(&table);
}

static void an_empty_vocabulary_is_refused(void **state)
{
    (void)state;
    token_table table = {0};
    assert_refused(token_table_begin(&table), "tokenizer.ggml.tokens", "0 entries");
}

/* The right count in a narrower type: the fault behind reads beyond the end in other programs. */
static void lists_of_another_element_type_are_refused(void **state)
{
    (void)state;
    token_table table = small_table();
    unsigned char zeros[4096] = {0};
    const gguf_type narrow[] = {GGUF_INT8, GGUF_UINT8, GGUF_BOOL};
    for (size_t i = 0; i < 3; i++) {
        gguf_writer *writer = begin_without_lists();
        token_table_write_texts(&table, writer);
        token_table_write_types(&table, writer);
        gguf_writer_add_array(writer, "tokenizer.ggml.scores", narrow[i], table.n, zeros, table.n);
        assert_refused(writer, "tokenizer.ggml.scores", "float32");
        writer = begin_without_lists();
        token_table_write_texts(&table, writer);
        token_table_write_scores(&table, writer);
        gguf_writer_add_array(writer, "tokenizer.ggml.token_type", narrow[i], table.n, zeros,
                              table.n);
        assert_refused(writer, "tokenizer.ggml.token_type", "int32");
    }
    gguf_writer *writer = begin_without_lists();
    gguf_writer_add_array(writer, "tokenizer.ggml.tokens", GGUF_INT32, 4, zeros, 16);
    assert_refused(writer, "tokenizer.ggml.tokens", "string");
    writer = begin_without_lists();
    gguf_writer_add_u32(writer, "tokenizer.ggml.tokens", 4);
    assert_refused(writer, "tokenizer.ggml.tokens", "array");
    token_table_free(&table);
}

static void lists_of_another_length_are_refused(void **state)
{
    (void)state;
    for (int change = -1; change <= 1; change += 2) {
        token_table table = small_table(), other = small_table();
        if (change > 0) {
            add(&other, "b", 0.0f);
        } else {
            add(&table, "b", 0.0f);
        }
        gguf_writer *writer = begin_without_lists();
        token_table_write_texts(&table, writer);
        token_table_write_scores(&other, writer);
        token_table_write_types(&table, writer);
        assert_refused(writer, "tokenizer.ggml.scores", change > 0 ? "261" : "260");
        writer = begin_without_lists();
        token_table_write_texts(&table, writer);
        token_table_write_scores(&table, writer);
        token_table_write_types(&other, writer);
        assert_refused(writer, "tokenizer.ggml.token_type", change > 0 ? "261" : "260");
        token_table_free(&table);
        token_table_free(&other);
    }
}

static void unsigned_types_and_the_undefined_one_are_read(void **state)
{
    (void)state;
    token_table table = small_table();
    uint32_t types[300];
    for (size_t i = 0; i < table.n; i++) {
        types[i] = (uint32_t)table.tokens[i].type;
    }
    types[USUAL_FIRST_PIECE] = 0; /* "a" */
    gguf_writer *writer = begin_without_lists();
    token_table_write_texts(&table, writer);
    token_table_write_scores(&table, writer);
    gguf_writer_add_array(writer, "tokenizer.ggml.token_type", GGUF_UINT32, table.n, types,
                          4 * table.n);
    made_tokenizer made = need_tokenizer(NULL, writer);
    size_t n;
    cellar_token *ids;
    assert_int_equal(tokenizer_encode(made.tok, "a", 1, plain, &ids, &n, NULL), CELLAR_OK);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], USUAL_FIRST_PIECE);
    free(ids);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void strange_types_and_scores_are_refused(void **state)
{
    (void)state;
    const int32_t bad_types[] = {-1, 7, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        token_table table = small_table();
        table.tokens[USUAL_FIRST_PIECE].type = bad_types[i];
        assert_refused(token_table_begin(&table), "tokenizer.ggml.token_type", "[259]");
        token_table_free(&table);
    }
    token_table table = small_table();
    table.tokens[USUAL_FIRST_PIECE].score = NAN;
    assert_refused(token_table_begin(&table), "tokenizer.ggml.scores", "[259]");
    table.tokens[USUAL_FIRST_PIECE].score = -INFINITY; /* a number to compare with, if an odd one */
    made_tokenizer made = need_tokenizer(&table, NULL);
    assert_comes_back(made.tok, "a a", 3);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void malformed_byte_tokens_are_refused(void **state)
{
    (void)state;
    const char *const bad[] = {"<0x-1>", "<0xGG>", "<0x1>", "<0x001>", "<0X41>", "0x41",   "<0x 1>",
                               "<0x4G>", "",       "<0x41", "<0x+1>",  "A",      "<0x41>>"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        token_table table = small_table();
        token_table_add(&table, bad[i], strlen(bad[i]), 0.0f, TOKEN_BYTE);
        assert_refused(token_table_begin(&table), "tokenizer.ggml.tokens", "[260]");
        token_table_free(&table);
    }
    token_table table = {0};
    token_table_add(&table, "<0xfF>", 6, 0.0f, TOKEN_BYTE); /* either case is fine */
    gguf_writer *writer = token_table_begin(&table);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", false);
    made_tokenizer made = need_tokenizer(&table, writer);
    assert_comes_back(made.tok, "\xFF", 1);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void ids_that_name_no_token_are_refused(void **state)
{
    (void)state;
    const char *const keys[] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    };
    token_table table = small_table();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const uint32_t bad[] = {(uint32_t)table.n, UINT32_MAX, 1u << 31};
        for (size_t b = 0; b < 3; b++) {
            gguf_writer *writer = token_table_begin(&table);
            gguf_writer_add_u32(writer, keys[i], bad[b]);
            assert_refused(writer, keys[i], "260");
        }
        const int32_t minus_one = -1;
        gguf_writer *writer = token_table_begin(&table);
        gguf_writer_add_raw(writer, keys[i], strlen(keys[i]), GGUF_INT32, &minus_one, 4);
        assert_refused(writer, keys[i], "");
        writer = token_table_begin(&table);
        gguf_writer_add_string(writer, keys[i], "1");
        assert_refused(writer, keys[i], "string");
    }
    gguf_writer *writer = token_table_begin(&table);
    gguf_writer_add_u32(writer, "tokenizer.ggml.add_bos_token", 1);
    assert_refused(writer, "tokenizer.ggml.add_bos_token", "bool");
    token_table_free(&table);
}

static void a_token_text_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char *text = malloc(65536);
    assert_non_null(text);
    memset(text, 'x', 65536);
    for (int type = TOKEN_NORMAL; type <= TOKEN_UNUSED; type++) {
        token_table table = small_table();
        cellar_token id = token_table_add(&table, text, 65535, 0.0f, type);
        made_tokenizer made = need_tokenizer(&table, NULL);
        assert_int_equal(tokenizer_piece(made.tok, id, true, NULL, 0), 65535);
        assert_comes_back(made.tok, text, 3000);
        made_tokenizer_destroy(&made);
        token_table_add(&table, text, 65536, 0.0f, type);
        assert_refused(token_table_begin(&table), "tokenizer.ggml.tokens", "[261]");
        token_table_free(&table);
    }
    free(text);
}

/* ---- a vocabulary made to collide ----------------------------------------------------------- */

static uint64_t undo_shift(uint64_t z, int by)
{
    uint64_t x = z;
    for (int known = by; known < 64; known += by) {
        x = z ^ (x >> by);
    }
    return x;
}

/* The number whose product with an odd number is 1, by Newton's iteration. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) {
        x *= 2 - odd * x;
    }
    return x;
}

/* Eight-byte texts that all have one hash, found by running the hash of vocabulary.c backwards. */
static void texts_made_to_collide_are_refused(void **state)
{
    (void)state;
    token_table table = small_table();
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t z = undo_shift(0x12345678u * (1ull << 32) + i, 31) * inverse(0x94d049bb133111ebu);
        z = undo_shift(z, 27) * inverse(0xbf58476d1ce4e5b9u);
        z = undo_shift(z, 30) ^ (0x9e3779b97f4a7c15u + 8);
        char text[8];
        memcpy(text, &z, sizeof text);
        token_table_add(&table, text, sizeof text, 0.0f, TOKEN_NORMAL);
        if (i == 100) { /* so many are only slow */
            made_tokenizer made = need_tokenizer(&table, NULL);
            made_tokenizer_destroy(&made);
        }
    }
    assert_refused(token_table_begin(&table), "tokenizer.ggml.tokens", "collide");
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_algorithms_are_refused_by_name),
        cmocka_unit_test(missing_lists_are_refused),
        cmocka_unit_test(an_empty_vocabulary_is_refused),
        cmocka_unit_test(lists_of_another_element_type_are_refused),
        cmocka_unit_test(lists_of_another_length_are_refused),
        cmocka_unit_test(unsigned_types_and_the_undefined_one_are_read),
        cmocka_unit_test(strange_types_and_scores_are_refused),
        cmocka_unit_test(malformed_byte_tokens_are_refused),
        cmocka_unit_test(ids_that_name_no_token_are_refused),
        cmocka_unit_test(a_token_text_that_is_too_long_is_refused),
        cmocka_unit_test(texts_made_to_collide_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
