/*
 * fuzz_tokenizer.c: any text through any vocabulary, and back.
 *
 * Input: byte 0 options (bit 0 add_special, bit 1 parse_special, bit 2 no space prefix), byte 1 how
 * many tokens the input brings, then these (type and length, score, text), and the rest is the
 * text. The usual tokens (<unk>, <s>, </s> and all byte tokens) always come first. With
 * no tokens of its own an input meets a fixed vocabulary, which is made once for each prefix rule.
 *
 * Checked: every id is in range; decoded with its special tokens the text is the same bytes (texts
 * with U+2581, which stands for a space, excepted); the pieces as a stream of UTF-8 do not depend
 * on where they are cut. A vocabulary may be refused, and then that is all.
 */
#include <stdlib.h>
#include <string.h>

#include "support_vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold; __builtin_trap stops the fuzzer and the replaying program alike. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

static made_tokenizer make(const token_table *table, bool adds_space)
{
    gguf_writer *writer = token_table_begin(table);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", adds_space);
    return made_tokenizer_create(NULL, writer);
}

/* Pieces with many ties, user-defined tokens that begin alike, control tokens. */
static const tokenizer *fixed_tokenizer(bool adds_space)
{
    static made_tokenizer made[2];
    static const char *const pieces[] = {
        "a",
        "b",
        "ab",
        "ba",
        "aa",
        "aaa",
        "aaaa",
        "abab",
        "\xE2\x96\x81",
        "\xE2\x96\x81"
        "a",
        "\xE2\x96\x81\xE2\x96\x81",
        "\n",
        "\n\n",
        "\xC3\xA9",
        "\xC3\xA9"
        "a",
        "\xF0\x9F\xA6\x99",
        "\x80",
        "\x80\x80",
    };
    static const char *const user_defined[] = {"[", "[a", "[ab", "  ", "\t"};
    if (made[adds_space].tok == NULL) {
        token_table table = {0};
        token_table_add_usual(&table);
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            token_table_add(&table, pieces[i], strlen(pieces[i]), -(float)(i % 4), TOKEN_NORMAL);
        }
        for (size_t i = 0; i < sizeof user_defined / sizeof user_defined[0]; i++) {
            token_table_add(&table, user_defined[i], strlen(user_defined[i]), 0.0f,
                            TOKEN_USER_DEFINED);
        }
        token_table_add(&table, "[abc]", 5, 0.0f, TOKEN_CONTROL);
        made[adds_space] = make(&table, adds_space);
        token_table_free(&table);
        REQUIRE(made[adds_space].tok != NULL);
    }
    return made[adds_space].tok;
}

/* Read n tokens of the input; what is left of it begins at *at. */
static token_table read_tokens(const uint8_t *data, size_t size, size_t n, size_t *at)
{
    token_table table = {0};
    token_table_add_usual(&table);
    for (; n > 0 && size - *at >= 2; n--) {
        int32_t type = data[*at] % 8; /* 7 is not one */
        size_t length = data[*at] / 8;
        float score = (float)(int8_t)data[*at + 1];
        *at += 2;
        length = length < size - *at ? length : size - *at;
        token_table_add(&table, (const char *)data + *at, length, score, type);
        *at += length;
    }
    return table;
}

static bool has_lower_block(const char *text, size_t length)
{
    for (size_t i = 0; i + 2 < length; i++) {
        if (memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
            return true;
        }
    }
    return false;
}

static void check_text(const tokenizer *tok, const cellar_token *ids, size_t n, const char *text,
                       size_t length)
{
    char *back;
    size_t n_bytes;
    REQUIRE(tokenizer_decode(tok, ids, n, true, &back, &n_bytes, NULL) == CELLAR_OK);
    if (!has_lower_block(text, length)) {
        REQUIRE(n_bytes == length);
        REQUIRE(length == 0 || memcmp(back, text, length) == 0);
    }
    free(back);
}

/* The pieces one by one, and all their bytes at once, must give the same stream. */
static void check_stream(const tokenizer *tok, const cellar_token *ids, size_t n)
{
    size_t total = 0, at = 0, written = 0;
    for (size_t i = 0; i < n; i++) {
        total += tokenizer_piece(tok, ids[i], true, NULL, 0);
    }
    char *bytes = malloc(total + 1), *whole = malloc(3 * (total + 3) + 12),
         *parts = malloc(3 * (total + 3) + 12);
    REQUIRE(bytes != NULL && whole != NULL && parts != NULL);
    utf8_stream one = {0}, other = {0};
    for (size_t i = 0; i < n; i++) {
        size_t size = tokenizer_piece(tok, ids[i], true, bytes + at, total - at);
        written += utf8_stream_push(&one, bytes + at, size, parts + written);
        at += size;
    }
    written += utf8_stream_finish(&one, parts + written);
    size_t n_whole = utf8_stream_push(&other, bytes, total, whole);
    n_whole += utf8_stream_finish(&other, whole + n_whole);
    REQUIRE(written == n_whole && memcmp(parts, whole, written) == 0);
    free(bytes);
    free(whole);
    free(parts);
}

static void check(const tokenizer *tok, tokenize_options options, const char *text, size_t length)
{
    cellar_token *ids;
    size_t n;
    REQUIRE(tokenizer_encode(tok, text, length, options, &ids, &n, NULL) == CELLAR_OK);
    for (size_t i = 0; i < n; i++) {
        REQUIRE(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_size(tok));
    }
    size_t skipped = options.add_special; /* BOS */
    REQUIRE(n >= skipped);
    check_text(tok, skipped > 0 ? ids + skipped : ids, n - skipped, text, length);
    check_stream(tok, ids, n);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    bool adds_space = !(data[0] & 4);
    tokenize_options options = {.add_special = data[0] & 1, .parse_special = data[0] & 2};
    size_t at = 2;
    token_table table = {0};
    made_tokenizer made = {0};
    if (data[1] > 0) {
        table = read_tokens(data, size, data[1], &at);
        made = make(&table, adds_space);
        token_table_free(&table);
    }
    const tokenizer *tok = data[1] > 0 ? made.tok : fixed_tokenizer(adds_space);
    if (tok != NULL) {
        size_t length = size - at;
        char *text = malloc(length); /* exactly sized, so that a read beyond it shows */
        REQUIRE(text != NULL || length == 0);
        if (length > 0) {
            memcpy(text, data + at, length);
        }
        check(tok, options, text, length);
        free(text);
    }
    made_tokenizer_destroy(&made);
    return 0;
}
