/*
 * unit_ends.c: special tokens of byte-level vocabularies: where they are recognised, what stands
 * around a text, and which of them end it.
 *
 * What holds for SentencePiece is in unit_tokenizer.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "support_vocabulary.h"

static const char *const merges[] = {"a b"};

static cellar_token add(token_table *table, const char *text, int32_t type)
{
    return token_table_add(table, text, strlen(text), 0.0f, type);
}

/* The text must give these ids, ended by -1. */
static void assert_ids(const tokenizer *tok, const char *text, tokenize_options options,
                       const cellar_token *expected)
{
    cellar_token *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), options, &ids, &n, NULL), CELLAR_OK);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] != expected[i]) {
            fail_msg("\"%s\": id %zu is %d, expected %d", text, i, (int)ids[i], (int)expected[i]);
        }
    }
    assert_int_equal(expected[n], -1);
    free(ids);
}

#define IDS(...) ((const cellar_token[]){__VA_ARGS__, -1})

static void special_tokens_stand_between_words(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add_bytes(&table);
    cellar_token ab = add(&table, "ab", TOKEN_NORMAL);
    cellar_token end = add(&table, "<|im_end|>", TOKEN_CONTROL);
    cellar_token spaces = add(&table, "  ", TOKEN_USER_DEFINED);
    made_tokenizer made = made_tokenizer_need(NULL,
                                              token_table_begin_bpe(&table, "qwen2", 1, merges));
    const tokenize_options parsing = {.parse_special = true};
    assert_ids(made.tok, "ab<|im_end|>ab", parsing, IDS(ab, end, ab));
    assert_ids(made.tok, "ab  ab", parsing, IDS(ab, spaces, ab));
    assert_ids(made.tok, "a<|", parsing, IDS('a', '<', '|'));
    /* Without parsing, a user-defined token is still one; a control token is what it is spelled. */
    assert_ids(made.tok, "  <", (tokenize_options){0}, IDS(spaces, '<'));
    assert_ids(made.tok, "<|im_end|>", (tokenize_options){0},
               IDS('<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'));
    char *text;
    size_t n;
    assert_int_equal(
        tokenizer_decode(made.tok, IDS(ab, end, spaces, ab), 4, false, &text, &n, NULL), CELLAR_OK);
    assert_int_equal(n, 6);
    assert_memory_equal(text, "ab  ab", 6);
    free(text);
    assert_int_equal(tokenizer_bos(made.tok), -1);
    assert_int_equal(tokenizer_eos(made.tok), -1);
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

/* Whether BOS is put where the file does not say depends on the family; what the file says rules. */
static void bos_and_eos_are_put_where_the_model_wants_them(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        int says; /* the file: -1 nothing, 0 no, 1 yes */
        bool adds_bos;
    } cases[] = {
        {"llama-bpe", -1, true}, {"gpt-2", -1, false}, {"qwen2", -1, false},   {"tekken", -1, true},
        {"llama-bpe", 0, false}, {"gpt-2", 1, true},   {"command-r", 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        token_table table = {0};
        token_table_add_bytes(&table);
        add(&table, "ab", TOKEN_NORMAL);
        cellar_token bos = add(&table, "<b>", TOKEN_CONTROL);
        cellar_token eos = add(&table, "<e>", TOKEN_CONTROL);
        gguf_writer *writer = token_table_begin_bpe(&table, cases[i].pre, 1, merges);
        gguf_writer_add_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
        gguf_writer_add_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
        gguf_writer_add_bool(writer, "tokenizer.ggml.add_eos_token", i % 2);
        if (cases[i].says >= 0) {
            gguf_writer_add_bool(writer, "tokenizer.ggml.add_bos_token", cases[i].says);
        }
        made_tokenizer made = made_tokenizer_need(NULL, writer);
        assert_int_equal(tokenizer_adds_bos(made.tok), cases[i].adds_bos);
        const cellar_token expected[] = {bos, 'a', i % 2 ? eos : -1, -1};
        assert_ids(made.tok, "a", (tokenize_options){.add_special = true},
                   cases[i].adds_bos ? expected : expected + 1);
        assert_ids(made.tok, "a", (tokenize_options){0}, IDS('a'));
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

static void a_space_is_put_only_where_a_byte_level_model_asks(void **state)
{
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        token_table table = {0};
        token_table_add_bytes(&table);
        cellar_token ab = add(&table, "ab", TOKEN_NORMAL);
        gguf_writer *writer = token_table_begin_bpe(&table, "gpt-2", 1, merges);
        if (asks) {
            gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", true);
        }
        made_tokenizer made = made_tokenizer_need(NULL, writer);
        assert_ids(made.tok, "ab", (tokenize_options){0}, asks ? IDS(' ', ab) : IDS(ab));
        char *text;
        size_t n;
        assert_int_equal(tokenizer_decode(made.tok, IDS(' ', ab), 2, false, &text, &n, NULL),
                         CELLAR_OK);
        assert_int_equal(n, asks ? 2 : 3);
        free(text);
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

static void ends_are_known_by_key_and_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {
        "<|im_end|>",     "<|eot_id|>",
        "<|eom_id|>",     "<|end|>",
        "<|endoftext|>",  "<end_of_turn>",
        "<turn|>",        "<|END_OF_TURN_TOKEN|>",
        "<|EOT|>",        "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
        "<|end_of_text|>"};
    token_table table = {0};
    token_table_add_bytes(&table);
    add(&table, "ab", TOKEN_NORMAL);
    cellar_token eos = add(&table, "<x1>", TOKEN_CONTROL), eot = add(&table, "<x2>", TOKEN_CONTROL),
                 eom = add(&table, "<x3>", TOKEN_CONTROL), no = add(&table, "<x4>", TOKEN_CONTROL);
    cellar_token first = (cellar_token)table.n;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        add(&table, names[i], i % 2 ? TOKEN_CONTROL : TOKEN_USER_DEFINED);
    }
    cellar_token typed = add(&table, "<EOT>", TOKEN_NORMAL);
    gguf_writer *writer = token_table_begin_bpe(&table, "gpt-2", 1, merges);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eot_token_id", (uint32_t)eot);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eom_token_id", (uint32_t)eom);
    made_tokenizer made = made_tokenizer_need(NULL, writer);
    assert_true(tokenizer_ends_text(made.tok, eos));
    assert_true(tokenizer_ends_text(made.tok, eot));
    assert_true(tokenizer_ends_text(made.tok, eom));
    assert_false(tokenizer_ends_text(made.tok, no));
    assert_false(tokenizer_ends_text(made.tok, typed)); /* an ordinary word that looks like one */
    assert_false(tokenizer_ends_text(made.tok, 'a'));
    assert_false(tokenizer_ends_text(made.tok, -1));
    assert_false(tokenizer_ends_text(made.tok, (cellar_token)table.n));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(tokenizer_ends_text(made.tok, first + (cellar_token)i));
    }
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

/* Models that end an answer with <|return|> or <|call|> end only a part of it with <|end|>. */
static void a_part_of_an_answer_is_no_end(void **state)
{
    (void)state;
    token_table table = {0};
    token_table_add_bytes(&table);
    add(&table, "ab", TOKEN_NORMAL);
    cellar_token end = add(&table, "<|end|>", TOKEN_CONTROL);
    cellar_token answer = add(&table, "<|return|>", TOKEN_CONTROL);
    cellar_token call = add(&table, "<|call|>", TOKEN_CONTROL);
    made_tokenizer made = made_tokenizer_need(NULL,
                                              token_table_begin_bpe(&table, "gpt-4o", 1, merges));
    assert_false(tokenizer_ends_text(made.tok, end));
    assert_true(tokenizer_ends_text(made.tok, answer));
    assert_true(tokenizer_ends_text(made.tok, call));
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_tokens_stand_between_words),
        cmocka_unit_test(bos_and_eos_are_put_where_the_model_wants_them),
        cmocka_unit_test(a_space_is_put_only_where_a_byte_level_model_asks),
        cmocka_unit_test(ends_are_known_by_key_and_by_name),
        cmocka_unit_test(a_part_of_an_answer_is_no_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
