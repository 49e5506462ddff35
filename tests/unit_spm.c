/*
 * unit_spm.c: the merging against a plain encoder, round trips of any bytes, and long texts.
 *
 * The plain encoder does what the rule says, word for word and in quadratic time: look at all
 * pairs, join the best one, start again.
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
#include "support_vocabulary.h"

static cellar_token add(token_table *table, const char *text, float score)
{
    return token_table_add(table, text, strlen(text), score, TOKEN_NORMAL);
}

static uint32_t below(random_source *random, uint32_t n)
{
    return (uint32_t)(random_source_next(random) % n);
}

/* ---- the plain encoder ---------------------------------------------------------------------- */

#define MOST_BYTES 512

typedef struct stretch {
    size_t start, length;
} stretch;

/* The lowest id of a normal token with this text, or -1. */
static cellar_token plain_find(const token_table *table, const char *text, size_t length)
{
    for (size_t i = 0; i < table->n; i++) {
        const table_token *t = &table->tokens[i];
        if (t->type == TOKEN_NORMAL && length > 0 && t->length == length &&
            memcmp(t->text, text, length) == 0) {
            return (cellar_token)i;
        }
    }
    return -1;
}

/* Bytes by the lead byte alone: for texts that are valid UTF-8. */
static size_t plain_character(const char *text)
{
    unsigned char lead = (unsigned char)*text;
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Join the best pair; false: there is none. */
static bool plain_join(const token_table *table, const char *text, stretch *s, size_t *n)
{
    size_t best = SIZE_MAX;
    float best_score = 0.0f;
    for (size_t i = 0; i + 1 < *n; i++) {
        cellar_token id = plain_find(table, text + s[i].start, s[i].length + s[i + 1].length);
        if (id >= 0 && (best == SIZE_MAX || table->tokens[id].score > best_score)) {
            best = i;
            best_score = table->tokens[id].score;
        }
    }
    if (best == SIZE_MAX) {
        return false;
    }
    s[best].length += s[best + 1].length;
    --*n;
    memmove(&s[best + 1], &s[best + 2], (*n - best - 1) * sizeof *s);
    return true;
}

static size_t plain_encode(const token_table *table, const char *given, size_t length,
                           cellar_token *ids)
{
    char text[3 * MOST_BYTES + 3];
    stretch s[MOST_BYTES + 1];
    size_t n_bytes = 3, n = 0, n_ids = 0;
    memcpy(text, "\xE2\x96\x81", 3);
    for (size_t i = 0; i < length; i++) {
        bool is_space = given[i] == ' ';
        memcpy(text + n_bytes, is_space ? "\xE2\x96\x81" : given + i, is_space ? 3 : 1);
        n_bytes += is_space ? 3 : 1;
    }
    for (size_t from = 0; from < n_bytes; from += s[n++].length) {
        s[n] = (stretch){from, plain_character(text + from)};
    }
    while (plain_join(table, text, s, &n)) {}
    for (size_t i = 0; i < n; i++) {
        cellar_token id = plain_find(table, text + s[i].start, s[i].length);
        bool is_space = s[i].length == 3 && memcmp(text + s[i].start, "\xE2\x96\x81", 3) == 0;
        if (id >= 0) {
            ids[n_ids++] = id;
        } else if (is_space) {
            ids[n_ids++] = USUAL_FIRST_BYTE + ' ';
        }
        for (size_t b = 0; id < 0 && !is_space && b < s[i].length; b++) {
            ids[n_ids++] = USUAL_FIRST_BYTE + (unsigned char)text[s[i].start + b];
        }
    }
    return n_ids;
}

/* ---- random vocabularies and texts ---------------------------------------------------------- */

static const char *const letters[] = {
    "a", "b", "c", " ", "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\xA6\x99", "\n"};
#define N_LETTERS 8

/*
 * Pieces of up to five letters, few different scores. In every other vocabulary spaces only begin a
 * piece, so that words can be merged by themselves.
 */
static token_table random_table(random_source *random, bool has_inner_space)
{
    token_table table = {0};
    token_table_add_usual(&table);
    uint32_t n = 1 + below(random, 40), n_scores = 1 + below(random, 6),
             n_used = 2 + below(random, 7);
    for (uint32_t i = 0; i < n; i++) {
        char text[32] = "";
        for (uint32_t length = 1 + below(random, 5); length > 0; length--) {
            const char *letter = letters[below(random, n_used)];
            if (*letter == ' ' && !has_inner_space &&
                strspn(text, "\xE2\x96\x81") != strlen(text)) {
                continue;
            }
            strcat(text, *letter == ' ' ? "\xE2\x96\x81" : letter);
        }
        add(&table, text, -(float)below(random, n_scores));
    }
    return table;
}

static size_t random_text(random_source *random, char *text)
{
    uint32_t n = below(random, 60), n_used = 1 + below(random, N_LETTERS);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        strcat(text, letters[below(random, n_used)]);
    }
    return strlen(text);
}

/* ---- helpers -------------------------------------------------------------------------------- */

static void assert_comes_back(const tokenizer *tok, const char *text, size_t length)
{
    size_t n, n_bytes;
    char *back;
    cellar_token *ids = made_tokenizer_encode(tok, text, length, &n);
    assert_int_equal(tokenizer_decode(tok, ids, n, false, &back, &n_bytes, NULL), CELLAR_OK);
    assert_int_equal(n_bytes, length);
    if (length > 0) {
        assert_memory_equal(back, text, length);
    }
    free(back);
    free(ids);
}

/* ---- merging and round trips ---------------------------------------------------------------- */

static void the_heap_agrees_with_the_plain_encoder(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 1508);
    for (int round = 0; round < 400; round++) {
        token_table table = random_table(&random, round % 2);
        made_tokenizer made = made_tokenizer_need(&table, NULL);
        for (int i = 0; i < 20; i++) {
            char text[MOST_BYTES];
            cellar_token expected[3 * MOST_BYTES];
            size_t n, length = random_text(&random, text);
            size_t n_expected = length > 0 ? plain_encode(&table, text, length, expected) : 0;
            cellar_token *ids = made_tokenizer_encode(made.tok, text, length, &n);
            if (n != n_expected || (n > 0 && memcmp(ids, expected, n * sizeof *ids) != 0)) {
                fail_msg("round %d: \"%s\": the two encoders differ", round, text);
            }
            free(ids);
            assert_comes_back(made.tok, text, length);
        }
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

/* U+2581 itself comes back as a space, so a text that holds it is made free of it. */
static void remove_lower_blocks(char *text, size_t length)
{
    for (size_t i = 0; i + 2 < length; i++) {
        if (memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
            text[i + 2] = '\x82';
        }
    }
}

static void any_bytes_come_back_as_they_were(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 1808);
    for (int round = 0; round < 60; round++) {
        token_table table = random_table(&random, round % 2);
        token_table_add(&table, "[x]", 3, 0.0f, TOKEN_USER_DEFINED);
        token_table_add(&table, "  ", 2, 0.0f, TOKEN_USER_DEFINED);
        token_table_add(&table, "a\0", 2, 0.0f, TOKEN_NORMAL);
        token_table_add(&table, "\x80\x80", 2, -1.0f, TOKEN_NORMAL);
        made_tokenizer made = made_tokenizer_need(&table, NULL);
        for (int i = 0; i < 100; i++) {
            static const char lively[] = "aabbc  \0\n[x]\xE2\x96\xC3\xA9\x80\xF0\x9F\xFF";
            char text[100];
            size_t length = below(&random, sizeof text + 1);
            for (size_t b = 0; b < length; b++) {
                uint32_t pick = below(&random, 4 * (uint32_t)sizeof lively);
                text[b] = pick < sizeof lively - 1 || round % 2 == 0
                              ? lively[pick % (sizeof lively - 1)]
                              : (char)random_source_next(&random);
            }
            remove_lower_blocks(text, length);
            assert_comes_back(made.tok, text, length);
        }
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

static void a_literal_lower_block_comes_back_as_a_space(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add_usual(&table);
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    size_t n, n_bytes;
    char *back;
    cellar_token *ids = made_tokenizer_encode(made.tok,
                                              "a\xE2\x96\x81"
                                              "b",
                                              5, &n);
    assert_int_equal(tokenizer_decode(made.tok, ids, n, false, &back, &n_bytes, NULL), CELLAR_OK);
    assert_int_equal(n_bytes, 3);
    assert_memory_equal(back, "a b", 3);
    free(back);
    free(ids);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

/* What is no character is split into bytes, even where it looks like the beginning of one. */
static void bytes_of_no_character_stand_alone(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add_usual(&table);
    cellar_token space = add(&table, "\xE2\x96\x81", 0.0f);
    cellar_token lead = add(&table, "\xE2", 0.0f);
    cellar_token pair = add(&table, "\xF0\x9F", 0.0f);
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    const cellar_token expected[] = {space,
                                     lead,
                                     USUAL_FIRST_BYTE + 0x96,
                                     USUAL_FIRST_BYTE + 'x',
                                     pair,
                                     USUAL_FIRST_BYTE + 0xA6};
    size_t n;
    cellar_token *ids = made_tokenizer_encode(made.tok, "\xE2\x96x\xF0\x9F\xA6", 6, &n);
    assert_int_equal(n, 6);
    assert_memory_equal(ids, expected, sizeof expected);
    free(ids);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

/* A megabyte of one letter: a quadratic encoder would sit here for hours. */
static void long_texts_of_one_letter_take_no_quadratic_time(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add_usual(&table);
    char piece[65] = "";
    for (int length = 1; length <= 64; length++) { /* every length; scores that grow and that tie */
        strcat(piece, "a");
        add(&table, piece, length % 2 == 0 ? (float)length : 0.0f);
    }
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    const size_t length = 1 << 20;
    char *text = malloc(length);
    assert_non_null(text);
    memset(text, 'a', length);
    assert_comes_back(made.tok, text, length);
    memset(text, ' ', length);
    assert_comes_back(made.tok, text, length);
    free(text);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_heap_agrees_with_the_plain_encoder),
        cmocka_unit_test(any_bytes_come_back_as_they_were),
        cmocka_unit_test(a_literal_lower_block_comes_back_as_a_space),
        cmocka_unit_test(bytes_of_no_character_stand_alone),
        cmocka_unit_test(long_texts_of_one_letter_take_no_quadratic_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
