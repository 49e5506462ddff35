/*
 * unit_swallowing.c: special tokens that take the white space beside them, as those of Phi-3 do.
 *
 * The vocabulary is small, the architecture in the file decides. Conversations are read in pieces
 * here, as they are when a model answers in between, and must give the tokens of a single reading.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "chat/chat_encoder.h"
#include "support_vocabulary.h"
#include "tokenizer/swallowing.h"

#define SPACE "\xE2\x96\x81"      /* U+2581, how the vocabulary writes a space */
#define WIDE "\xE3\x80\x80"       /* U+3000, white space */
#define NO_BREAK "\xC2\xA0"       /* U+00A0, white space */
#define ZERO_WIDTH "\xE2\x80\x8B" /* U+200B, none */

enum { END = USUAL_FIRST_PIECE, USER, STOP, A, SPACE_A, ONE_SPACE };
#define BYTE(b) (USUAL_FIRST_BYTE + (b))

static const tokenize_options parsing = {.parse_special = true};

static made_tokenizer make(const char *architecture)
{
    token_table table = {0};
    token_table_add_usual(&table);
    token_table_add(&table, "<|end|>", 7, 0.0f, TOKEN_CONTROL);
    token_table_add(&table, "<|user|>", 8, 0.0f, TOKEN_CONTROL);
    token_table_add(&table, "<|endoftext|>", 13, 0.0f, TOKEN_CONTROL);
    token_table_add(&table, "a", 1, -1.0f, TOKEN_NORMAL);
    token_table_add(&table, SPACE "a", 4, -1.0f, TOKEN_NORMAL);
    token_table_add(&table, SPACE, 3, -2.0f, TOKEN_NORMAL);
    gguf_writer *writer = token_table_begin(&table);
    gguf_writer_add_string(writer, "general.architecture", architecture);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_bos_token", false);
    made_tokenizer made = made_tokenizer_need(&table, writer);
    token_table_free(&table);
    return made;
}

static void assert_ids(const tokenizer *tok, const char *text, tokenize_options options, size_t n,
                       const cellar_token *expected)
{
    cellar_token *ids;
    size_t n_ids;
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), options, &ids, &n_ids, NULL),
                     CELLAR_OK);
    assert_int_equal(n_ids, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], expected[i]);
    }
    free(ids);
}

#define ASSERT_IDS(tok, text, options, ...)                                                        \
    do {                                                                                           \
        const cellar_token wanted_ids[] = {__VA_ARGS__};                                           \
        assert_ids((tok), (text), (options), sizeof wanted_ids / sizeof *wanted_ids, wanted_ids);  \
    } while (0)

static void white_space_behind_a_token_of_phi3_is_its_own(void **state)
{
    (void)state;
    made_tokenizer made = make("phi3");
    const tokenizer *tok = made.tok;
    assert_true(tokenizer_swallows_after(tok, USER));
    assert_false(tokenizer_swallows_after(tok, STOP) || tokenizer_swallows_after(tok, A));
    assert_false(tokenizer_swallows_after(tok, -1) || tokenizer_swallows_before(tok, USER));
    ASSERT_IDS(tok, "<|user|>\na<|end|>", parsing, USER, SPACE_A, END);
    ASSERT_IDS(tok, "<|user|>\n\t " WIDE NO_BREAK "a", parsing, USER, SPACE_A);
    ASSERT_IDS(tok, "<|end|>\n<|user|> \n", parsing, END, USER);
    ASSERT_IDS(tok, "a <|user|>", parsing, SPACE_A, ONE_SPACE, USER); /* not before it */
    ASSERT_IDS(tok, "<|endoftext|> a", parsing, STOP, ONE_SPACE, SPACE_A);
    ASSERT_IDS(tok, "<|user|>" ZERO_WIDTH, parsing, USER, ONE_SPACE, BYTE(0xE2), BYTE(0x80),
               BYTE(0x8B));
    ASSERT_IDS(tok, "<|user|>\n\xC2", parsing, USER, ONE_SPACE, BYTE(0xC2));
    made_tokenizer_destroy(&made);
}

static void other_architectures_keep_it(void **state)
{
    (void)state;
    made_tokenizer made = make("llama");
    ASSERT_IDS(made.tok, "<|user|> a", parsing, USER, ONE_SPACE, SPACE_A);
    assert_false(tokenizer_swallows_after(made.tok, USER));
    made_tokenizer_destroy(&made);
}

static void tokens_that_are_not_asked_for_swallow_nothing(void **state)
{
    (void)state;
    made_tokenizer made = make("phi3");
    cellar_token *ids;
    size_t n;
    const char *text = "<|user|> a";
    assert_int_equal(
        tokenizer_encode(made.tok, text, strlen(text), (tokenize_options){0}, &ids, &n, NULL),
        CELLAR_OK);
    assert_int_equal(n, 1 + 8 + 1); /* a space before it, its letters, " a" */
    assert_int_equal(ids[n - 1], SPACE_A);
    free(ids);
    made_tokenizer_destroy(&made);
}

static void a_text_can_go_on_behind_such_a_token(void **state)
{
    (void)state;
    made_tokenizer made = make("phi3");
    const tokenize_options behind = {.parse_special = true, .drops_space = true};
    ASSERT_IDS(made.tok, "\n a", behind, SPACE_A);
    ASSERT_IDS(made.tok, "\n<|user|>\na", behind, USER, SPACE_A);
    assert_ids(made.tok, " \n", behind, 0, NULL);
    made_tokenizer_destroy(&made);
}

static void white_space_is_trimmed_on_both_sides(void **state)
{
    (void)state;
    static const char text[] = " \n" WIDE "x" NO_BREAK "\xC2" WIDE " ";
    const size_t n = sizeof text - 1;
    assert_int_equal(swallowing_skip(text, n, 0), 5);
    assert_int_equal(swallowing_skip(text, n, 5), 5);
    assert_int_equal(swallowing_skip(text, 4, 0), 2); /* half a character is none */
    assert_int_equal(swallowing_trim(text, 0, n), 9);
    assert_int_equal(swallowing_trim(text, 0, 8), 6);
    assert_int_equal(swallowing_trim(text, 0, 5), 0);
    assert_int_equal(swallowing_trim(text, 3, 5), 5); /* begins inside a character */
    assert_int_equal(swallowing_trim(text, 2, 2), 2);
}

/* ---- conversations -------------------------------------------------------------------------- */

static void read_more(const chat_encoder *encoder, const char *bytes, chat_text *to)
{
    assert_int_equal(chat_encoder_read(encoder, bytes, strlen(bytes), to, NULL), CELLAR_OK);
}

static void a_conversation_in_pieces_has_the_tokens_of_the_whole(void **state)
{
    (void)state;
    static const char *const pieces[] = {"<|user|>\n", "\n a",         "a<|end|>",
                                         "\n",         " <|user|>\na", "a"};
    made_tokenizer made = make("phi3");
    chat_encoder *encoder;
    chat_text whole = {0}, parts = {0};
    assert_int_equal(chat_encoder_create(made.tok, &encoder, NULL), CELLAR_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        read_more(encoder, pieces[i], &parts);
        assert_int_equal(parts.ends[parts.n_tokens - 1], parts.n_bytes);
    }
    read_more(encoder, "<|user|>\n\n aa<|end|>\n <|user|>\naa", &whole);
    assert_int_equal(whole.n_bytes, parts.n_bytes);
    assert_memory_equal(whole.bytes, parts.bytes, whole.n_bytes);
    assert_int_equal(whole.n_tokens, parts.n_tokens);
    for (uint32_t i = 0; i < whole.n_tokens; i++) {
        assert_int_equal(whole.tokens[i], parts.tokens[i]);
        assert_int_not_equal(whole.ends[i], CHAT_TEXT_UNKNOWN);
        assert_int_not_equal(parts.ends[i], CHAT_TEXT_UNKNOWN);
    }
    chat_text_free(&whole);
    chat_text_free(&parts);
    chat_encoder_destroy(encoder);
    made_tokenizer_destroy(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(white_space_behind_a_token_of_phi3_is_its_own),
        cmocka_unit_test(other_architectures_keep_it),
        cmocka_unit_test(tokens_that_are_not_asked_for_swallow_nothing),
        cmocka_unit_test(a_text_can_go_on_behind_such_a_token),
        cmocka_unit_test(white_space_is_trimmed_on_both_sides),
        cmocka_unit_test(a_conversation_in_pieces_has_the_tokens_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
