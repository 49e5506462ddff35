/*
 * unit_unigram.c: the unigram model against a search through all ways to write a text, what it
 * makes of white space, and tables of replacements, sound and hostile.
 *
 * Tables are made by support_charsmap.h.
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

#include "engine/random_source.h"
#include "support_charsmap.h"
#include "support_vocabulary.h"
#include "tokenizer/unigram.h"

#define LOW "\xE2\x96\x81" /* U+2581 */

static uint32_t below(random_source *random, uint32_t n)
{
    return (uint32_t)(random_source_next(random) % n);
}

static cellar_token add(token_table *table, const char *text, float score)
{
    return token_table_add(table, text, strlen(text), score, TOKEN_NORMAL);
}

/* <unk> 0, </s> 1. */
static token_table begin_table(void)
{
    token_table table = {0};
    token_table_add(&table, "<unk>", 5, 0.0f, TOKEN_UNKNOWN);
    token_table_add(&table, "</s>", 4, 0.0f, TOKEN_CONTROL);
    return table;
}

static gguf_writer *begin_writer(const token_table *table)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "t5");
    token_table_write_texts(table, writer);
    token_table_write_scores(table, writer);
    token_table_write_types(table, writer);
    gguf_writer_add_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eos_token_id", 1);
    return writer;
}

/* What the text comes back as. */
static void assert_becomes(const tokenizer *tok, const char *text, const char *expected)
{
    size_t n, n_bytes;
    char *back;
    cellar_token *ids = made_tokenizer_encode(tok, text, strlen(text), &n);
    assert_int_equal(tokenizer_decode(tok, ids, n, true, &back, &n_bytes, NULL), CELLAR_OK);
    if (n_bytes != strlen(expected) || (n_bytes > 0 && memcmp(back, expected, n_bytes) != 0)) {
        fail_msg("\"%s\" became \"%.*s\", expected \"%s\"", text, (int)n_bytes,
                 back != NULL ? back : "", expected);
    }
    free(back);
    free(ids);
}

/* ---- the best way --------------------------------------------------------------------------- */

/* The best sum over all ways to write the text; every letter is a token. */
static double best_sum(const token_table *table, const char *text)
{
    double best = *text == '\0' ? 0.0 : -1e30;
    for (size_t i = 0; *text != '\0' && i < table->n; i++) {
        const table_token *t = &table->tokens[i];
        if (t->type == TOKEN_NORMAL && strncmp(text, t->text, t->length) == 0) {
            const double sum = (double)t->score + best_sum(table, text + t->length);
            best = sum > best ? sum : best;
        }
    }
    return best;
}

static void the_sum_of_scores_is_the_best_there_is(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 1804);
    for (int round = 0; round < 200; round++) {
        token_table table = begin_table();
        add(&table, "a", -3.0f);
        add(&table, "b", -4.0f);
        add(&table, "c", -5.0f);
        for (uint32_t n = below(&random, 12); n > 0; n--) {
            char piece[8] = "";
            for (uint32_t length = 2 + below(&random, 3); length > 0; length--) {
                strcat(piece, (const char *const[]){"a", "b", "c"}[below(&random, 3)]);
            }
            bool is_new = true;
            for (size_t i = 0; i < table.n; i++) {
                is_new = is_new && strcmp(table.tokens[i].text, piece) != 0;
            }
            if (is_new) {
                add(&table, piece, -(float)below(&random, 120) / 8.0f);
            }
        }
        gguf_writer *writer = begin_writer(&table);
        gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", false);
        made_tokenizer made = made_tokenizer_need(NULL, writer);
        for (int i = 0; i < 10; i++) {
            char text[13] = "";
            for (uint32_t length = below(&random, sizeof text); length > 0; length--) {
                strcat(text, (const char *const[]){"a", "b", "c"}[below(&random, 3)]);
            }
            size_t n;
            cellar_token *ids = made_tokenizer_encode(made.tok, text, strlen(text), &n);
            double sum = 0.0;
            for (size_t t = 0; t < n; t++) {
                sum += (double)table.tokens[ids[t]].score;
            }
            if (sum != best_sum(&table, text)) {
                fail_msg("round %d: \"%s\": the sum is %g, the best is %g", round, text, sum,
                         best_sum(&table, text));
            }
            free(ids);
            assert_becomes(made.tok, text, text);
        }
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

static void characters_without_a_token_are_one_unknown_or_bytes(void **state)
{
    (void)state;
    token_table table = begin_table();
    cellar_token a = add(&table, "a", -1.0f), low = add(&table, LOW, -2.0f);
    cellar_token byte = token_table_add(&table, "<0x7A>", 6, 0.0f, TOKEN_BYTE); /* z */
    made_tokenizer made = made_tokenizer_need(NULL, begin_writer(&table));
    static const char text[] = "xx\xC3\xA9"
                               "azz x";
    const cellar_token expected[] = {low, 0, a, byte, byte, low, 0};
    size_t n;
    cellar_token *ids = made_tokenizer_encode(made.tok, text, sizeof text - 1, &n);
    assert_int_equal(n, sizeof expected / sizeof expected[0]);
    assert_memory_equal(ids, expected, sizeof expected);
    free(ids);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

/* ---- white space and replacements ----------------------------------------------------------- */

static token_table letters_table(void)
{
    token_table table = begin_table();
    static const char *const pieces[] = {LOW, "a", "b", "c", LOW "a", "ab", "\n", "!"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        add(&table, pieces[i], -(float)(i + 1));
    }
    return table;
}

static void spaces_are_removed_where_the_model_wants_it(void **state)
{
    (void)state;
    token_table table = letters_table();
    made_tokenizer removing = made_tokenizer_need(NULL, begin_writer(&table));
    assert_becomes(removing.tok, "  a  b   c ", "a b c");
    assert_becomes(removing.tok, "ab", "ab");
    assert_becomes(removing.tok, "   ", "");
    assert_becomes(removing.tok, "", "");
    assert_becomes(removing.tok, "a\n\nb", "a\n\nb");
    gguf_writer *writer = begin_writer(&table);
    gguf_writer_add_bool(writer, "tokenizer.ggml.remove_extra_whitespaces", false);
    made_tokenizer keeping = made_tokenizer_need(NULL, writer);
    assert_becomes(keeping.tok, "  a  b   c ", "  a  b   c ");
    assert_becomes(keeping.tok, "   ", "   ");
    made_tokenizer_destroy(&keeping);
    made_tokenizer_destroy(&removing);
    token_table_free(&table);
}

static void eos_ends_a_text_unless_the_file_says_otherwise(void **state)
{
    (void)state;
    token_table table = letters_table();
    for (int says_no = 0; says_no < 2; says_no++) {
        gguf_writer *writer = begin_writer(&table);
        if (says_no) {
            gguf_writer_add_bool(writer, "tokenizer.ggml.add_eos_token", false);
        }
        made_tokenizer made = made_tokenizer_need(NULL, writer);
        cellar_token *ids;
        size_t n;
        const tokenize_options complete = {.add_special = true};
        assert_int_equal(tokenizer_encode(made.tok, "a", 1, complete, &ids, &n, NULL), CELLAR_OK);
        assert_int_equal(n, says_no ? 2 : 3);
        assert_int_equal(ids[n - 1] == 1, !says_no);
        assert_int_equal(tokenizer_bos(made.tok), -1);
        free(ids);
        made_tokenizer_destroy(&made);
    }
    token_table_free(&table);
}

static made_tokenizer tokenizer_with_map(const token_table *table, const unsigned char *bytes,
                                         size_t size, uint32_t type)
{
    gguf_writer *writer = begin_writer(table);
    gguf_writer_add_array(writer, "tokenizer.ggml.precompiled_charsmap", type, size, bytes, size);
    return made_tokenizer_create(NULL, writer);
}

static void texts_are_replaced_longest_first(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"A", "a"},          {"AB", "c"},          {"ABCD", "!"}, {"\xC2\xA0", " "},
        {"\xC2\xBD", "b a"}, {"\xE2\x80\x8B", ""}, {"x", "aabb"}, {"\t", " "},
    };
    token_table table = letters_table();
    size_t size;
    unsigned char *bytes = charsmap_make(pairs, sizeof pairs / sizeof pairs[0], &size);
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        made_tokenizer made = tokenizer_with_map(&table, bytes, size,
                                                 is_signed ? GGUF_INT8 : GGUF_UINT8);
        assert_int_equal(made.status, CELLAR_OK);
        assert_becomes(made.tok, "A", "a");
        assert_becomes(made.tok, "ABAB", "cc");
        assert_becomes(made.tok, "ABCABCD", "c<unk>!"); /* C by itself has no token */
        assert_becomes(made.tok, "\t a\xC2\xA0\t b\xC2\xA0", "a b");
        assert_becomes(made.tok,
                       "a\xC2\xBD\xE2\x80\x8B"
                       "c",
                       "ab ac");
        assert_becomes(made.tok, "\xE2\x80\x8B x", "aabb");
        assert_becomes(made.tok, "a\xFF\xE2\x80", "a<unk>"); /* U+FFFD, twice */
        made_tokenizer_destroy(&made);
    }
    free(bytes);
    token_table_free(&table);
}

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

static void hostile_tables_are_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"a", "b"}};
    token_table table = letters_table();
    size_t size;
    unsigned char *good = charsmap_make(pairs, 1, &size);
    static const uint32_t sizes[] = {0,          1,       2, 3, 6, 4 * 8192 + 2, 4 * 8192 + 4,
                                     UINT32_MAX, 1u << 31};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *bad = malloc(size);
        assert_non_null(bad);
        memcpy(bad, good, size);
        put_u32(bad, sizes[i]);
        made_tokenizer made = tokenizer_with_map(&table, bad, size, GGUF_UINT8);
        assert_int_equal(made.status, CELLAR_CORRUPT);
        assert_non_null(strstr(made.error.message, "precompiled_charsmap"));
        made_tokenizer_destroy(&made);
        free(bad);
    }
    for (size_t n = 1; n < 4; n++) { /* not even a size */
        made_tokenizer made = tokenizer_with_map(&table, good, n, GGUF_UINT8);
        assert_int_equal(made.status, CELLAR_CORRUPT);
        made_tokenizer_destroy(&made);
    }
    /* A replacement without its end, and one that begins behind the end. */
    made_tokenizer made = tokenizer_with_map(&table, good, size - 1, GGUF_UINT8);
    assert_int_equal(made.status, CELLAR_CORRUPT);
    made_tokenizer_destroy(&made);
    made = tokenizer_with_map(&table, good, size - 2, GGUF_UINT8);
    assert_int_equal(made.status, CELLAR_CORRUPT);
    made_tokenizer_destroy(&made);
    free(good);
    token_table_free(&table);
}

static void a_replacement_that_is_too_long_is_refused(void **state)
{
    (void)state;
    for (size_t length = CHARSMAP_LONGEST; length <= CHARSMAP_LONGEST + 1; length++) {
        char replacement[CHARSMAP_LONGEST + 2];
        memset(replacement, 'a', length);
        replacement[length] = '\0';
        const char *const pairs[][2] = {{"b", "c"}, {"a", replacement}};
        token_table table = letters_table();
        size_t size;
        unsigned char *bytes = charsmap_make(pairs, 2, &size);
        made_tokenizer made = tokenizer_with_map(&table, bytes, size, GGUF_UINT8);
        assert_int_equal(made.status, length <= CHARSMAP_LONGEST ? CELLAR_OK : CELLAR_CORRUPT);
        made_tokenizer_destroy(&made);
        free(bytes);
        token_table_free(&table);
    }
}

/* Random units in place of the array: whatever they say, every text is read and ids are in range. */
static void no_array_leads_astray(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 1989);
    token_table table = letters_table();
    unsigned n_accepted = 0;
    for (int round = 0; round < 300; round++) {
        unsigned char bytes[4 + 4 * 512 + 16] = {0};
        put_u32(bytes, 4 * 512);
        for (uint32_t i = 0; i < 512; i++) {
            const uint32_t value = 0x80000000u | below(&random, 16);
            const uint32_t link = below(&random, 256) | below(&random, 4) << 8 |
                                  below(&random, 1024) << 10;
            put_u32(bytes + 4 + 4 * (size_t)i, below(&random, 4) == 0 ? value : link);
        }
        for (size_t i = 0; i < 15; i++) {
            bytes[4 + 4 * 512 + i] = (unsigned char)below(&random, 256);
        }
        made_tokenizer made = tokenizer_with_map(&table, bytes, sizeof bytes, GGUF_UINT8);
        n_accepted += made.status == CELLAR_OK;
        for (int i = 0; i < 20 && made.status == CELLAR_OK; i++) {
            size_t n, length = below(&random, 60);
            char *text = malloc(length + 1);
            assert_non_null(text);
            for (size_t b = 0; b < length; b++) {
                text[b] = (char)random_source_next(&random);
            }
            free(made_tokenizer_encode(made.tok, text, length, &n));
            free(text);
        }
        made_tokenizer_destroy(&made);
    }
    assert_int_equal(n_accepted, 300);
    token_table_free(&table);
}

/* ---- long texts ----------------------------------------------------------------------------- */

/* Every place begins as many tokens as a vocabulary of 64 of one letter has, and no more. */
static void long_texts_take_linear_steps(void **state)
{
    (void)state;
    token_table table = begin_table();
    char piece[65] = "";
    for (int length = 1; length <= 64; length++) {
        strcat(piece, "a");
        add(&table, piece, -(float)length);
    }
    made_tokenizer made = made_tokenizer_need(NULL, begin_writer(&table));
    vocabulary v;
    unigram u;
    id_list ids = {0};
    const size_t length = 1 << 18;
    char *text = malloc(length);
    assert_non_null(text);
    memset(text, 'a', length);
    uint64_t steps = 0;
    assert_int_equal(vocabulary_read(made.file, (vocabulary_wishes){.scores = true}, &v, NULL),
                     CELLAR_OK);
    assert_int_equal(unigram_create(made.file, &v, &u, NULL), CELLAR_OK);
    assert_int_equal(unigram_encode(&u, 0, text, length, true, &ids, &steps, NULL), CELLAR_OK);
    assert_true(steps <= 65 * (uint64_t)length + 65);
    free(ids.ids);
    free(text);
    unigram_free(&u);
    vocabulary_free(&v);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_of_scores_is_the_best_there_is),
        cmocka_unit_test(characters_without_a_token_are_one_unknown_or_bytes),
        cmocka_unit_test(spaces_are_removed_where_the_model_wants_it),
        cmocka_unit_test(eos_ends_a_text_unless_the_file_says_otherwise),
        cmocka_unit_test(texts_are_replaced_longest_first),
        cmocka_unit_test(hostile_tables_are_refused),
        cmocka_unit_test(a_replacement_that_is_too_long_is_refused),
        cmocka_unit_test(no_array_leads_astray),
        cmocka_unit_test(long_texts_take_linear_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
