/*
 * unit_tokenizer.c: the tokenizer as its callers see it: a real vocabulary against known ids,
 * special tokens, spaces and pieces.
 *
 * The merging itself is held against a plain encoder in unit_spm.c; vocabularies that must be
 * refused are in unit_vocabulary.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_vocabulary.h"

static const tokenize_options plain = {.add_special = false};
static const tokenize_options parsing = {.parse_special = true};
static const tokenize_options complete = {.add_special = true, .parse_special = true};
static const tokenize_options continuing = {.parse_special = true, .continues_text = true};

/* ---- helpers -------------------------------------------------------------------------------- */

static void assert_ids(const tokenizer *tok, const char *text, size_t length,
                       tokenize_options options, const cellar_token *expected, size_t n_expected)
{
    cellar_token *ids;
    size_t n;
    cellar_error error;
    assert_int_equal(tokenizer_encode(tok, text, length, options, &ids, &n, &error), CELLAR_OK);
    for (size_t i = 0; i < n && i < n_expected; i++) {
        if (ids[i] != expected[i]) {
            fail_msg("\"%.*s\": id %zu is %d, expected %d", (int)length, text, i, (int)ids[i],
                     (int)expected[i]);
        }
    }
    if (n != n_expected) {
        fail_msg("\"%.*s\": %zu ids, expected %zu", (int)length, text, n, n_expected);
    }
    assert_true(n > 0 || ids == NULL);
    free(ids);
}

#define ASSERT_IDS(tok, text, options, ...)                                                        \
    do {                                                                                           \
        const cellar_token wanted_ids[] = {__VA_ARGS__};                                           \
        assert_ids((tok), (text), sizeof(text) - 1, (options), wanted_ids,                         \
                   sizeof wanted_ids / sizeof wanted_ids[0]);                                      \
    } while (0)

static void assert_decodes(const tokenizer *tok, const cellar_token *ids, size_t n,
                           bool show_special, const char *expected, size_t length)
{
    char *text;
    size_t n_bytes;
    cellar_error error;
    assert_int_equal(tokenizer_decode(tok, ids, n, show_special, &text, &n_bytes, &error),
                     CELLAR_OK);
    assert_int_equal(n_bytes, length);
    if (length > 0) {
        assert_memory_equal(text, expected, length);
    } else {
        assert_null(text);
    }
    free(text);
}

#define ASSERT_DECODES(tok, expected, show, ...)                                                   \
    do {                                                                                           \
        const cellar_token given_ids[] = {__VA_ARGS__};                                            \
        assert_decodes((tok), given_ids, sizeof given_ids / sizeof given_ids[0], (show),           \
                       (expected), sizeof(expected) - 1);                                          \
    } while (0)

static cellar_token add(token_table *table, const char *text, float score, int32_t type)
{
    return token_table_add(table, text, strlen(text), score, type);
}

/* ---- a real vocabulary ---------------------------------------------------------------------- */

/* A whole file, with a NUL behind it; NULL: not there. */
static char *read_file(const char *name, size_t *size)
{
    const char *shared = getenv("CELLAR_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", shared != NULL ? shared : "../shared", name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *size = fread(bytes, 1, (1 << 20) - 1, file);
    fclose(file);
    assert_true(*size < (1 << 20) - 1);
    bytes[*size] = '\0';
    return bytes;
}

/* The ids of one line; moves *at behind it. */
static size_t read_ids(const char **at, cellar_token *ids, size_t most)
{
    size_t n = 0;
    while (**at != '\n' && **at != '\0') {
        char *end;
        long id = strtol(*at, &end, 10);
        assert_true(end != *at && n < most);
        ids[n++] = (cellar_token)id;
        *at = end;
    }
    *at += **at == '\n';
    return n;
}

static void a_real_vocabulary_gives_the_known_ids_and_the_text_back(void **state)
{
    (void)state;
    static const char separator[] = "\n__ggml_vocab_test__\n";
    size_t n_bytes, n_input, n_output;
    char *bytes = read_file("tokenizers/llama-spm.gguf", &n_bytes);
    char *input = read_file("tokenizers/llama-spm.inp", &n_input);
    char *output = read_file("tokenizers/llama-spm.out", &n_output);
    if (bytes == NULL || input == NULL || output == NULL) {
        print_message("skipped: no tokenizers/llama-spm.* in the shared folder\n");
        skip();
    }
    gguf_file *file;
    tokenizer *tok;
    cellar_error error;
    assert_int_equal(gguf_open_memory(bytes, n_bytes, &file, &error), CELLAR_OK);
    assert_int_equal(tokenizer_create(file, &tok, &error), CELLAR_OK);
    assert_int_equal(tokenizer_size(tok), 32000);
    assert_true(tokenizer_adds_bos(tok) && tokenizer_bos(tok) == 1 && tokenizer_eos(tok) == 2);

    int n_texts = 0;
    const char *line = output;
    for (const char *text = input, *end; *text != '\0'; n_texts++) {
        cellar_token ids[1024];
        end = strstr(text, separator); /* one stands behind each text */
        assert_non_null(end);
        size_t n = read_ids(&line, ids, 1024);
        assert_ids(tok, text, (size_t)(end - text), plain, ids, n);
        assert_decodes(tok, ids, n, false, text, (size_t)(end - text));
        text = end + strlen(separator);
    }
    assert_int_equal(n_texts, 46);
    assert_true(*line == '\0');
    tokenizer_destroy(tok);
    gguf_close(file);
    free(bytes);
    free(input);
    free(output);
}

/* ---- a small vocabulary --------------------------------------------------------------------- */

enum {
    SPACE = USUAL_FIRST_PIECE, /* U+2581 */
    A,
    B,
    AB,
    SPACE_A,
    END_OF_TURN,
    BRACKET,
    BRACKET_A,
    BRACKET_CONTROL,
    TWO_SPACES,
    UNUSED_ABA,
    EMPTY,
};

static token_table small_table(void)
{
    token_table table = {0};
    token_table_add_usual(&table);
    add(&table, "\xE2\x96\x81", -10.0f, TOKEN_NORMAL);
    add(&table, "a", -11.0f, TOKEN_NORMAL);
    add(&table, "b", -12.0f, TOKEN_NORMAL);
    add(&table, "ab", -1.0f, TOKEN_NORMAL);
    add(&table,
        "\xE2\x96\x81"
        "a",
        -2.0f, TOKEN_NORMAL);
    add(&table, "<end_of_turn>", 0.0f, TOKEN_CONTROL);
    add(&table, "[", 0.0f, TOKEN_USER_DEFINED);
    add(&table, "[a", 0.0f, TOKEN_USER_DEFINED);
    add(&table, "[ab", 0.0f, TOKEN_CONTROL);
    add(&table, "  ", 0.0f, TOKEN_USER_DEFINED);
    add(&table, "aba", -0.5f, TOKEN_UNUSED);
    add(&table, "", -3.0f, TOKEN_NORMAL);
    return table;
}

static void the_best_score_merges_first(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok, "a", plain, SPACE_A);
    ASSERT_IDS(made.tok, "ab", plain, SPACE, AB);     /* "ab" before " a" */
    ASSERT_IDS(made.tok, "aba", plain, SPACE, AB, A); /* an unused token is never made */
    ASSERT_IDS(made.tok, "b a", plain, SPACE, B, SPACE_A);
    ASSERT_IDS(made.tok, "c", plain, SPACE, USUAL_FIRST_BYTE + 'c');
    ASSERT_IDS(made.tok, "\xC3\xA4", plain, SPACE, USUAL_FIRST_BYTE + 0xC3,
               USUAL_FIRST_BYTE + 0xA4);
    ASSERT_IDS(made.tok, "a\0b", plain, SPACE_A, USUAL_FIRST_BYTE, B);
    assert_ids(made.tok, "", 0, plain, NULL, 0);
    assert_ids(made.tok, NULL, 0, plain, NULL, 0);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void control_tokens_are_recognised_only_when_asked(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok, "a</s>a", parsing, SPACE_A, 2, SPACE_A);
    ASSERT_IDS(made.tok, "<s></s>", parsing, 1, 2);
    ASSERT_IDS(made.tok, "<unk>", parsing, 0);
    ASSERT_IDS(made.tok, "</s>", plain, SPACE, USUAL_FIRST_BYTE + '<', USUAL_FIRST_BYTE + '/',
               USUAL_FIRST_BYTE + 's', USUAL_FIRST_BYTE + '>');
    ASSERT_IDS(made.tok, "<0x41>", parsing, SPACE, USUAL_FIRST_BYTE + '<', USUAL_FIRST_BYTE + '0',
               USUAL_FIRST_BYTE + 'x', USUAL_FIRST_BYTE + '4', USUAL_FIRST_BYTE + '1',
               USUAL_FIRST_BYTE + '>');
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

/* A control token cannot be put together by merging either, even if its parts are all there. */
static void control_tokens_cannot_be_merged_into_being(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add_usual(&table);
    cellar_token open = add(&table, "</", -1.0f, TOKEN_NORMAL);
    cellar_token close = add(&table, "s>", -2.0f, TOKEN_NORMAL);
    const char *letters[] = {"<", "/", "s", ">", "\xE2\x96\x81"};
    for (size_t i = 0; i < 5; i++) {
        add(&table, letters[i], -10.0f, TOKEN_NORMAL);
    }
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok, "</s>", plain, close + 5, open, close);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void the_leftmost_longest_special_token_is_taken(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok, "[b", plain, BRACKET, B);
    ASSERT_IDS(made.tok, "[a", plain, BRACKET_A);
    ASSERT_IDS(made.tok, "[ab", plain, BRACKET_A, B); /* the control token is not asked for */
    ASSERT_IDS(made.tok, "[ab", parsing, BRACKET_CONTROL);
    ASSERT_IDS(made.tok, "[[a[ab[", parsing, BRACKET, BRACKET_A, BRACKET_CONTROL, BRACKET);
    ASSERT_IDS(made.tok, "a   b", plain, SPACE_A, TWO_SPACES, SPACE, B);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void a_space_precedes_the_text_and_what_follows_a_control_token(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    assert_true(tokenizer_adds_space(made.tok));
    ASSERT_IDS(made.tok, "a</s>a[a a", parsing, SPACE_A, 2, SPACE_A, BRACKET_A, SPACE_A);
    ASSERT_IDS(made.tok, "</s>[a", parsing, 2, BRACKET_A);
    ASSERT_IDS(made.tok, " </s> ", parsing, SPACE, SPACE, 2, SPACE, SPACE);
    ASSERT_IDS(made.tok, "a</s>a", continuing, A, 2, SPACE_A); /* but not inside a text */
    ASSERT_IDS(made.tok, " a", continuing, SPACE_A);
    made_tokenizer_destroy(&made);

    gguf_writer *writer = token_table_begin(&table);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", false);
    made = made_tokenizer_need(&table, writer);
    assert_false(tokenizer_adds_space(made.tok));
    ASSERT_IDS(made.tok, "a</s>a a", parsing, A, 2, A, SPACE_A);
    ASSERT_DECODES(made.tok, "a a", false, A, 2, SPACE_A);
    ASSERT_DECODES(made.tok, " a", false, SPACE_A);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void decoding_takes_away_the_spaces_that_encoding_added(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_DECODES(made.tok, "a a", false, SPACE_A, SPACE_A);
    ASSERT_DECODES(made.tok, "aa a", false, 1, SPACE_A, 2, SPACE_A, SPACE_A);
    ASSERT_DECODES(made.tok, "<s>a</s>a", true, 1, SPACE_A, 2, SPACE_A);
    ASSERT_DECODES(made.tok, "  b", false, TWO_SPACES, B); /* user-defined: not ours to take */
    ASSERT_DECODES(made.tok, " b", false, EMPTY, SPACE, EMPTY, SPACE, B);
    ASSERT_DECODES(made.tok, "a a", false, SPACE_A, 0, SPACE_A); /* unknown is no new text */
    ASSERT_DECODES(made.tok, "a", false, -1, SPACE_A, 9999, INT32_MIN, INT32_MAX);
    ASSERT_DECODES(made.tok, "", false, 1, SPACE, 2);
    assert_decodes(made.tok, NULL, 0, true, "", 0);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void bos_and_eos_are_added_where_the_model_asks(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok, "a", complete, 1, SPACE_A);
    ASSERT_IDS(made.tok, "", complete, 1);
    made_tokenizer_destroy(&made);

    gguf_writer *writer = token_table_begin(&table);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_eos_token", true);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eos_token_id", END_OF_TURN);
    made = made_tokenizer_need(&table, writer);
    assert_false(tokenizer_adds_bos(made.tok));
    assert_int_equal(tokenizer_eos(made.tok), END_OF_TURN);
    ASSERT_IDS(made.tok, "a", complete, SPACE_A, END_OF_TURN);
    ASSERT_IDS(made.tok, "a", parsing, SPACE_A);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void ends_of_text_are_known_by_key_and_by_name(void **state)
{
    (void)state;
    token_table table = small_table();
    gguf_writer *writer = token_table_begin(&table);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eot_token_id", A);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eom_token_id", B);
    made_tokenizer made = made_tokenizer_need(&table, writer);
    for (cellar_token id = -2; id < (cellar_token)table.n + 2; id++) {
        bool is_end = id == 2 || id == A || id == B || id == END_OF_TURN;
        assert_int_equal(tokenizer_ends_text(made.tok, id), is_end);
    }
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void pieces_are_bytes_of_the_text(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    char to[16];
    assert_int_equal(tokenizer_piece(made.tok, SPACE_A, false, to, sizeof to), 2);
    assert_memory_equal(to, " a", 2);
    assert_int_equal(tokenizer_piece(made.tok, USUAL_FIRST_BYTE + 0xFF, false, to, sizeof to), 1);
    assert_int_equal((unsigned char)to[0], 0xFF);
    assert_int_equal(tokenizer_piece(made.tok, 2, false, to, sizeof to), 0);
    assert_int_equal(tokenizer_piece(made.tok, 0, false, to, sizeof to), 0);
    assert_int_equal(tokenizer_piece(made.tok, 2, true, to, sizeof to), 4);
    assert_memory_equal(to, "</s>", 4);
    assert_int_equal(tokenizer_piece(made.tok, BRACKET_A, false, to, sizeof to), 2);
    assert_int_equal(tokenizer_piece(made.tok, EMPTY, true, to, sizeof to), 0);
    memset(to, '-', sizeof to);
    assert_int_equal(tokenizer_piece(made.tok, END_OF_TURN, true, to, 3), 13);
    assert_memory_equal(to, "<en-", 4);
    assert_int_equal(tokenizer_piece(made.tok, SPACE_A, true, to, 1), 2);
    assert_memory_equal(to, " en-", 4);
    assert_int_equal(tokenizer_piece(made.tok, SPACE_A, true, NULL, 0), 2);
    const cellar_token strange[] = {-1, (cellar_token)table.n, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tokenizer_piece(made.tok, strange[i], true, to, sizeof to), 0);
    }
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void of_tokens_with_one_text_the_lowest_id_is_found(void **state)
{
    (void)state;
    token_table table = small_table();
    add(&table, "a", 5.0f, TOKEN_NORMAL);
    add(&table, "ab", 9.0f, TOKEN_NORMAL);
    add(&table, "[", 0.0f, TOKEN_USER_DEFINED);
    add(&table, "</s>", 0.0f, TOKEN_CONTROL);
    add(&table, "<0x41>", 0.0f, TOKEN_BYTE);
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok, "b[a</s>abA", parsing, SPACE, B, BRACKET_A, 2, SPACE, AB,
               USUAL_FIRST_BYTE + 'A');
    ASSERT_IDS(made.tok, "[", parsing, BRACKET);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void without_byte_tokens_the_unknown_token_stands_in(void **state)
{
    (void)state;
    token_table table = {0};
    add(&table, "?", 0.0f, TOKEN_UNKNOWN);
    add(&table, "a", 0.0f, TOKEN_NORMAL);
    add(&table, "<0x20>", 0.0f, TOKEN_BYTE);
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    ASSERT_IDS(made.tok,
               "a\xE2\x82\xAC"
               "a\xFF",
               plain, 2, 1, 0, 1, 0); /* one for a character */
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void a_vocabulary_of_one_token_works(void **state)
{
    (void)state;
    token_table table = {0};
    add(&table, "x", 0.0f, TOKEN_NORMAL);
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    assert_int_equal(tokenizer_size(made.tok), 1);
    assert_int_equal(tokenizer_bos(made.tok), -1); /* the usual ids lie beyond it */
    assert_int_equal(tokenizer_eos(made.tok), -1);
    assert_false(tokenizer_adds_bos(made.tok));
    ASSERT_IDS(made.tok, "xyx", complete, 0, 0, 0, 0);
    assert_false(tokenizer_ends_text(made.tok, -1));
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

static void a_text_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    token_table table = small_table();
    made_tokenizer made = made_tokenizer_need(&table, NULL);
    const size_t too_long[] = {((size_t)1 << 30) + 1, (size_t)1 << 31, SIZE_MAX};
    for (size_t i = 0; i < 3; i++) {
        cellar_token *ids = (cellar_token *)&table;
        size_t n = 7;
        cellar_error error;
        /* Refused by its length alone: the text itself is not looked at. */
        assert_int_equal(tokenizer_encode(made.tok, "a", too_long[i], plain, &ids, &n, &error),
                         CELLAR_INVALID);
        assert_null(ids);
        assert_int_equal(n, 0);
        assert_non_null(strstr(error.message, "too long"));
    }
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_vocabulary_gives_the_known_ids_and_the_text_back),
        cmocka_unit_test(the_best_score_merges_first),
        cmocka_unit_test(control_tokens_are_recognised_only_when_asked),
        cmocka_unit_test(control_tokens_cannot_be_merged_into_being),
        cmocka_unit_test(the_leftmost_longest_special_token_is_taken),
        cmocka_unit_test(a_space_precedes_the_text_and_what_follows_a_control_token),
        cmocka_unit_test(decoding_takes_away_the_spaces_that_encoding_added),
        cmocka_unit_test(bos_and_eos_are_added_where_the_model_asks),
        cmocka_unit_test(ends_of_text_are_known_by_key_and_by_name),
        cmocka_unit_test(pieces_are_bytes_of_the_text),
        cmocka_unit_test(of_tokens_with_one_text_the_lowest_id_is_found),
        cmocka_unit_test(without_byte_tokens_the_unknown_token_stands_in),
        cmocka_unit_test(a_vocabulary_of_one_token_works),
        cmocka_unit_test(a_text_beyond_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
