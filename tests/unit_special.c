/*
 * unit_special.c: special tokens in a text, against a search that tries every token at every place.
 *
 * Vocabularies are random, over an alphabet so small that tokens begin alike, contain each other
 * and repeat.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/random_source.h"
#include "support_vocabulary.h"
#include "tokenizer/special.h"

#define MOST_BYTES 40

static uint32_t below(random_source *random, uint32_t n)
{
    return (uint32_t)(random_source_next(random) % n);
}

static size_t random_text(random_source *random, char *text, uint32_t most, uint32_t n_letters)
{
    size_t length = below(random, most + 1);
    for (size_t i = 0; i < length; i++) {
        text[i] = "a\xFF\0b"[below(random, n_letters)];
    }
    return length;
}

/* Is token i better than `best` (-1: none)? Longest first, then user-defined, then lowest. */
static bool is_better(const vocabulary *v, cellar_token i, cellar_token best)
{
    if (best < 0 || v->texts[i].length != v->texts[best].length) {
        return best < 0 || v->texts[i].length > v->texts[best].length;
    }
    return v->types[i] == TOKEN_USER_DEFINED && v->types[best] != TOKEN_USER_DEFINED;
}

static cellar_token plain_find(const vocabulary *v, const char *text, size_t length, size_t from,
                               bool with_control, size_t *at)
{
    for (*at = from; *at < length; ++*at) {
        cellar_token best = -1;
        for (uint32_t i = 0; i < v->n; i++) {
            gguf_string t = v->texts[i];
            bool is_looked_for = v->types[i] == TOKEN_USER_DEFINED ||
                                 (with_control &&
                                  (v->types[i] == TOKEN_CONTROL || v->types[i] == TOKEN_UNKNOWN));
            if (is_looked_for && t.length > 0 && t.length <= length - *at &&
                memcmp(t.data, text + *at, t.length) == 0 && is_better(v, (cellar_token)i, best)) {
                best = (cellar_token)i;
            }
        }
        if (best >= 0) {
            return best;
        }
    }
    return -1;
}

static token_table random_table(random_source *random)
{
    static const int32_t types[] = {TOKEN_USER_DEFINED, TOKEN_USER_DEFINED, TOKEN_CONTROL,
                                    TOKEN_UNKNOWN,      TOKEN_NORMAL,       TOKEN_UNUSED};
    token_table table = {0};
    uint32_t n = 1 + below(random, 25), n_letters = 1 + below(random, 4);
    for (uint32_t i = 0; i < n; i++) {
        char text[8];
        size_t length = random_text(random, text, 6, n_letters);
        token_table_add(&table, text, length, 0.0f, types[below(random, 6)]);
    }
    return table;
}

static void check(const vocabulary *v, random_source *random)
{
    prefix_set specials;
    assert_int_equal(special_create(v, &specials, NULL), CELLAR_OK);
    for (int i = 0; i < 40; i++) {
        char bytes[MOST_BYTES];
        size_t length = random_text(random, bytes, MOST_BYTES, 4), at, plain_at;
        char *text = malloc(length + 1); /* the end of the block is near the end of the text */
        assert_non_null(text);
        memcpy(text, bytes, length);
        for (size_t from = 0; from <= length; from++) {
            for (int with_control = 0; with_control < 2; with_control++) {
                cellar_token id = special_find(&specials, text, length, from, with_control, &at);
                assert_int_equal(id, plain_find(v, text, length, from, with_control, &plain_at));
                assert_int_equal(at, plain_at);
            }
        }
        free(text);
    }
    prefix_set_free(&specials);
}

static void the_search_agrees_with_the_plain_one(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 314);
    for (int round = 0; round < 300; round++) {
        token_table table = random_table(&random);
        made_tokenizer made = made_tokenizer_create(&table, NULL); /* for its file */
        vocabulary v;
        assert_int_equal(vocabulary_read(made.file, (vocabulary_wishes){.scores = true}, &v, NULL),
                         CELLAR_OK);
        check(&v, &random);
        vocabulary_free(&v);
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

static void texts_beyond_the_limit_are_not_looked_for(void **state)
{
    (void)state;
    static char text[PREFIX_SET_LONGEST_TEXT + 1];
    memset(text, 'x', sizeof text);
    for (size_t length = sizeof text - 1; length <= sizeof text; length++) {
        token_table table = {0};
        token_table_add(&table, text, length, 0.0f, TOKEN_USER_DEFINED);
        made_tokenizer made = made_tokenizer_create(&table, NULL);
        vocabulary v;
        prefix_set specials;
        size_t at;
        assert_int_equal(vocabulary_read(made.file, (vocabulary_wishes){.scores = true}, &v, NULL),
                         CELLAR_OK);
        assert_int_equal(special_create(&v, &specials, NULL), CELLAR_OK);
        cellar_token expected = length <= PREFIX_SET_LONGEST_TEXT ? 0 : -1;
        assert_int_equal(special_find(&specials, text, sizeof text, 0, true, &at), expected);
        assert_int_equal(at, expected == 0 ? 0 : sizeof text);
        prefix_set_free(&specials);
        vocabulary_free(&v);
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_search_agrees_with_the_plain_one),
        cmocka_unit_test(texts_beyond_the_limit_are_not_looked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
