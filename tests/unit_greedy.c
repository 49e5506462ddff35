/*
 * unit_greedy.c: RWKV's tokenizer: escaped texts, the longest token at each place, round trips.
 *
 * The plain encoder tries every token at each place.
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

static const tokenize_options plain = {.add_special = false};

static uint32_t below(random_source *random, uint32_t n)
{
    return (uint32_t)(random_source_next(random) % n);
}

/* Add a token as a converter writes it: the bytes as Python shows them. */
static cellar_token add_escaped(token_table *table, const char *bytes, size_t n)
{
    char text[256];
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        const char *format = byte == '\n'                 ? "\\n"
                             : byte == '\t'               ? "\\t"
                             : byte == '\r'               ? "\\r"
                             : byte == '\\'               ? "\\\\"
                             : byte == '\''               ? "\\'"
                             : byte < 0x20 || byte > 0x7E ? "\\x%02x"
                                                          : "%c";
        used += (size_t)snprintf(text + used, sizeof text - used, format, byte);
    }
    return token_table_add(table, text, used, 0.0f, TOKEN_NORMAL);
}

/* <s> 0, then every byte: byte b is token b + 1. */
static token_table begin_table(void)
{
    token_table table = {0};
    token_table_add(&table, "<s>", 3, 0.0f, TOKEN_CONTROL);
    for (unsigned byte = 0; byte < 256; byte++) {
        add_escaped(&table, (const char[]){(char)byte}, 1);
    }
    return table;
}

static gguf_writer *begin_writer(const token_table *table)
{
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "rwkv");
    token_table_write_texts(table, writer);
    token_table_write_types(table, writer);
    return writer;
}

static made_tokenizer need_tokenizer(const token_table *table)
{
    made_tokenizer made = made_tokenizer_create(NULL, begin_writer(table));
    if (made.status != CELLAR_OK) {
        fail_msg("%s", made.error.message);
    }
    return made;
}

typedef struct piece {
    char bytes[8];
    size_t length;
    cellar_token id;
} piece;

static void the_longest_token_is_taken_at_each_place(void **state)
{
    (void)state;
    static const char letters[] = "ab'\\\n\xE4\xB8\xAD\0";
    random_source random;
    random_source_seed(&random, 6);
    for (int round = 0; round < 100; round++) {
        token_table table = begin_table();
        piece pieces[20];
        const size_t n_pieces = below(&random, 20);
        for (size_t i = 0; i < n_pieces; i++) {
            pieces[i].length = 2 + below(&random, 6);
            for (size_t b = 0; b < pieces[i].length; b++) {
                pieces[i].bytes[b] = letters[below(&random, sizeof letters - 1)];
            }
            pieces[i].id = add_escaped(&table, pieces[i].bytes, pieces[i].length);
        }
        made_tokenizer made = need_tokenizer(&table);
        for (int t = 0; t < 30; t++) {
            char text[60];
            size_t n, n_bytes, length = below(&random, sizeof text), at = 0;
            for (size_t b = 0; b < length; b++) {
                text[b] = t % 3 == 0 ? (char)random_source_next(&random)
                                     : letters[below(&random, sizeof letters - 1)];
            }
            cellar_token *ids;
            assert_int_equal(tokenizer_encode(made.tok, text, length, plain, &ids, &n, NULL),
                             CELLAR_OK);
            for (size_t i = 0; i < n; i++) {
                cellar_token best = (unsigned char)text[at] + 1;
                size_t longest = 1;
                for (size_t p = 0; p < n_pieces; p++) {
                    if (pieces[p].length > longest && pieces[p].length <= length - at &&
                        memcmp(pieces[p].bytes, text + at, pieces[p].length) == 0) {
                        best = pieces[p].id;
                        longest = pieces[p].length;
                    }
                }
                assert_int_equal(ids[i], best);
                at += longest;
            }
            assert_int_equal(at, length);
            char *back;
            assert_int_equal(tokenizer_decode(made.tok, ids, n, false, &back, &n_bytes, NULL),
                             CELLAR_OK);
            assert_int_equal(n_bytes, length);
            assert_memory_equal(back != NULL ? back : "", text, length);
            free(back);
            free(ids);
        }
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

static void malformed_escapes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"\\", "a\\", "\\q", "\\x", "\\x4", "\\xg0", "\\x0g", "a\\N"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        token_table table = begin_table();
        token_table_add(&table, bad[i], strlen(bad[i]), 0.0f, TOKEN_NORMAL);
        made_tokenizer made = made_tokenizer_create(NULL, begin_writer(&table));
        assert_int_equal(made.status, CELLAR_CORRUPT);
        assert_int_equal(made.error.at, 257);
        assert_non_null(strstr(made.error.message, "tokenizer.ggml.tokens[257]"));
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

/* Tokens that nobody can type are written without escapes. */
static void other_tokens_keep_their_texts(void **state)
{
    (void)state;
    token_table table = begin_table();
    cellar_token odd = token_table_add(&table, "\\q", 2, 0.0f, TOKEN_UNUSED);
    made_tokenizer made = need_tokenizer(&table);
    char text[4];
    assert_int_equal(tokenizer_piece(made.tok, odd, true, text, sizeof text), 2);
    assert_memory_equal(text, "\\q", 2);
    assert_int_equal(tokenizer_piece(made.tok, 0, true, text, sizeof text), 3);
    assert_int_equal(tokenizer_piece(made.tok, 0, false, text, sizeof text), 0);
    assert_false(tokenizer_adds_bos(made.tok));
    assert_false(tokenizer_adds_space(made.tok));
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void bytes_without_a_token_are_unknown_or_lost(void **state)
{
    (void)state;
    for (int has_unknown = 0; has_unknown < 2; has_unknown++) {
        token_table table = {0};
        token_table_add(&table, "<s>", 3, 0.0f, TOKEN_CONTROL);
        token_table_add(&table, "a", 1, 0.0f, TOKEN_NORMAL);
        gguf_writer *writer = begin_writer(&table);
        if (has_unknown) {
            gguf_writer_add_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
        }
        made_tokenizer made = made_tokenizer_create(NULL, writer);
        cellar_token *ids;
        size_t n;
        assert_int_equal(tokenizer_encode(made.tok, "axa", 3, plain, &ids, &n, NULL), CELLAR_OK);
        assert_int_equal(n, has_unknown ? 3 : 2);
        assert_int_equal(ids[1], has_unknown ? 0 : 1);
        free(ids);
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_token_is_taken_at_each_place),
        cmocka_unit_test(malformed_escapes_are_refused),
        cmocka_unit_test(other_tokens_keep_their_texts),
        cmocka_unit_test(bytes_without_a_token_are_unknown_or_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
