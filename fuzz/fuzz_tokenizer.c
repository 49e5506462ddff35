/*
 * fuzz_tokenizer.c: any text through any vocabulary of every kind, and back.
 *
 * Input: byte 0 options (bit 0 add_special, bit 1 parse_special, bit 2 no space prefix, bits 3 to 5
 * the kind, see `kinds`), byte 1 how many tokens the input brings. SentencePiece, kind 0: then these
 * (type and length, score, text). The other kinds: byte 2 is a number (which pre-tokenizer, how many
 * units of a table of replacements), then the tokens, for byte-level BPE as pairs of earlier tokens
 * that are merged. The rest is the text. The usual tokens (<unk>, <s>, </s> and all bytes) always
 * come first. With no tokens of its own an input of kind 0 meets a fixed vocabulary.
 *
 * Checked: every id is in range; decoded with its special tokens the text is the same bytes (a
 * unigram model's normalised text excepted, and U+2581 where it stands for a space; a composing
 * pre-tokenizer gives text of the same composed form); the pieces as
 * a stream of UTF-8 do not depend on where they are cut; a pre-tokenizer takes linear steps. A
 * vocabulary may be refused, and then that is all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_vocabulary.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/pre_tokenizer.h"

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

/* ---- the other kinds ------------------------------------------------------------------------ */

enum kinds {
    KIND_SCORES,       /* SentencePiece */
    KIND_BYTES,        /* byte-level BPE with merges that hold */
    KIND_ANY_MERGES,   /* byte-level BPE, merges are the texts of the input's tokens */
    KIND_CHARACTERS,   /* BPE over characters, merges likewise */
    KIND_UNIGRAM,      /* with a table of replacements whose values are in range */
    KIND_ANY_CHARSMAP, /* with any bytes as the table */
    KIND_GREEDY,       /* RWKV */
};

/* What is left of the input. */
typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static uint8_t take_byte(input *in)
{
    if (in->size == 0) {
        return 0;
    }
    in->size--;
    return *in->data++;
}

/* At most n bytes. */
static input take(input *in, size_t n)
{
    const input taken = {in->data, n < in->size ? n : in->size};
    in->data += taken.size;
    in->size -= taken.size;
    return taken;
}

/* The bytes, merges of two tokens that are there, and the tokens that these make. */
static made_tokenizer make_merged(input *in, size_t n, const char *pre, bool adds_space)
{
    token_table table = {0};
    char *merges[256];
    size_t n_merges = 0;
    token_table_add_bytes(&table);
    for (; n > 0 && in->size >= 2; n--) {
        const uint8_t first = take_byte(in), second = take_byte(in);
        const table_token *left = &table.tokens[table.n - 1 - first % table.n];
        const table_token *right = &table.tokens[table.n - 1 - second % table.n];
        const size_t length = left->length + right->length;
        char *text = malloc(length + 2), *joined = malloc(length + 1);
        REQUIRE(text != NULL && joined != NULL);
        snprintf(text, length + 2, "%s %s", left->text, right->text);
        snprintf(joined, length + 1, "%s%s", left->text, right->text);
        if (length < 200) {
            token_table_add(&table, joined, length, 0.0f, TOKEN_NORMAL);
            merges[n_merges++] = text;
        } else {
            free(text);
        }
        free(joined);
    }
    token_table_add(&table, "[abc]", 5, 0.0f, TOKEN_CONTROL);
    token_table_add(&table, "  ", 2, 0.0f, TOKEN_USER_DEFINED);
    gguf_writer *writer = token_table_begin_bpe(&table, pre, n_merges, (const char *const *)merges);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", adds_space);
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    for (size_t i = 0; i < n_merges; i++) {
        free(merges[i]);
    }
    token_table_free(&table);
    return made;
}

/* The texts of tokens that are there, joined as the input says, are merges; perhaps refused. */
static made_tokenizer make_any_merges(input *in, size_t n, const char *model, const char *pre,
                                      bool adds_space)
{
    token_table table = {0};
    char merges[256][34];
    const char *pointers[256];
    size_t n_merges = 0;
    token_table_add_usual(&table);
    token_table_add_bytes(&table);
    for (; n > 0 && in->size >= 2; n--) {
        const uint8_t head = take_byte(in);
        const input text = take(in, head & 31);
        if (head & 32) {
            token_table_add(&table, (const char *)text.data, text.size, 0.0f, head >> 6);
        } else {
            memcpy(merges[n_merges], text.data, text.size);
            merges[n_merges][text.size] = '\0';
            pointers[n_merges] = merges[n_merges];
            n_merges++;
        }
    }
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", model);
    gguf_writer_add_string(writer, "tokenizer.ggml.pre", pre);
    token_table_write_texts(&table, writer);
    token_table_write_types(&table, writer);
    gguf_writer_add_strings(writer, "tokenizer.ggml.merges", n_merges, pointers);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", adds_space);
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    token_table_free(&table);
    return made;
}

/* A size, `number` units whose values are in range, and three replacements. */
static size_t put_charsmap(input *in, size_t number, unsigned char *to)
{
    static const char replacements[] = "a\0b c\0\xE2\x96\x81  \0";
    const size_t n_bytes = 4 * number;
    for (size_t i = 0; i < 4; i++) {
        to[i] = (unsigned char)(n_bytes >> (8 * i));
    }
    for (size_t i = 0; i < n_bytes; i++) {
        to[4 + i] = take_byte(in);
    }
    for (size_t i = 0; i < number; i++) {
        unsigned char *unit = to + 4 + 4 * i;
        if (unit[3] & 0x80) {
            unit[0] %= sizeof replacements;
            unit[1] = unit[2] = 0;
            unit[3] = 0x80;
        }
    }
    memcpy(to + 4 + n_bytes, replacements, sizeof replacements);
    return 4 + n_bytes + sizeof replacements;
}

static token_table read_tokens(const uint8_t *data, size_t size, size_t n, size_t *at);

static made_tokenizer make_unigram(input *in, size_t n, size_t number, bool any, bool adds_space)
{
    unsigned char map[4 + 4 * 256 + 64];
    size_t map_size = 0, used = 0;
    if (any) {
        const input raw = take(in, number);
        memcpy(map, raw.data, raw.size);
        map_size = raw.size;
    } else if (number > 0) {
        map_size = put_charsmap(in, number, map);
    }
    token_table table = read_tokens(in->data, in->size, n, &used);
    take(in, used);
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "t5");
    token_table_write_texts(&table, writer);
    token_table_write_scores(&table, writer);
    token_table_write_types(&table, writer);
    gguf_writer_add_array(writer, "tokenizer.ggml.precompiled_charsmap", GGUF_UINT8, map_size, map,
                          map_size);
    gguf_writer_add_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_add_bool(writer, "tokenizer.ggml.remove_extra_whitespaces", number % 2);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", adds_space);
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    token_table_free(&table);
    return made;
}

static made_tokenizer make_greedy(input *in, size_t n)
{
    token_table table = {0};
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "\\x%02x", byte);
        token_table_add(&table, text, 4, 0.0f, TOKEN_NORMAL);
    }
    token_table_add(&table, "[abc]", 5, 0.0f, TOKEN_CONTROL);
    for (; n > 0 && in->size >= 2; n--) {
        const input text = take(in, take_byte(in) % 16);
        token_table_add(&table, (const char *)text.data, text.size, 0.0f, TOKEN_NORMAL);
    }
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "rwkv");
    token_table_write_texts(&table, writer);
    token_table_write_types(&table, writer);
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    token_table_free(&table);
    return made;
}

static const char *pre_by_number(uint8_t number)
{
    size_t n = 0;
    while (pre_tokenizer_name(n) != NULL) {
        n++;
    }
    return pre_tokenizer_name(number % n);
}

static made_tokenizer make_kind(enum kinds kind, uint8_t number, input *in, size_t n,
                                bool adds_space)
{
    switch (kind) {
    case KIND_BYTES:
        return make_merged(in, n, pre_by_number(number), adds_space);
    case KIND_ANY_MERGES:
        return make_any_merges(in, n, "gpt2", pre_by_number(number), adds_space);
    case KIND_CHARACTERS:
        return make_any_merges(in, n, "gemma4", "", adds_space);
    case KIND_UNIGRAM:
    case KIND_ANY_CHARSMAP:
        return make_unigram(in, n, number, kind == KIND_ANY_CHARSMAP, adds_space);
    default:
        return make_greedy(in, n);
    }
}

/* No more than so many characters looked at for each byte, as in unit_pre_tokenizer.c. */
#define MOST_STEPS_PER_BYTE 40

static cellar_status accept_word(void *context, const char *word, size_t length)
{
    const char **next = context;
    REQUIRE(word == *next && length > 0);
    *next += length;
    return CELLAR_OK;
}

static void check_words(uint8_t number, const char *text, size_t length)
{
    const char *name = pre_by_number(number), *next = text;
    uint64_t steps = 0;
    const pre_tokenizer *pre = pre_tokenizer_find(name, strlen(name));
    REQUIRE(pre_tokenizer_split(pre, text, length, accept_word, &next, &steps) == CELLAR_OK);
    REQUIRE(next == text + length && steps <= MOST_STEPS_PER_BYTE * ((uint64_t)length + 1));
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Form C, malloc'ed. */
static char *compose(const char *text, size_t length, size_t *n)
{
    char *composed;
    REQUIRE(normal_form_make(NORMAL_FORM_C, text, length, &composed, n, NULL) == CELLAR_OK);
    if (composed == NULL) {
        composed = malloc(length + 1);
        REQUIRE(composed != NULL);
        memcpy(composed, length > 0 ? text : "", length);
        *n = length;
    }
    return composed;
}

/* Both texts have one form C. */
static void check_composed(const char *text, size_t length, const char *back, size_t n_bytes)
{
    size_t n, n_again;
    char *composed = compose(text, length, &n), *again = compose(back, n_bytes, &n_again);
    REQUIRE(n == n_again && memcmp(composed, again, n) == 0);
    free(composed);
    free(again);
}

static void check_text(const tokenizer *tok, const cellar_token *ids, size_t n, const char *text,
                       size_t length, enum kinds kind, bool composes)
{
    char *back;
    size_t n_bytes;
    REQUIRE(tokenizer_decode(tok, ids, n, true, &back, &n_bytes, NULL) == CELLAR_OK);
    const bool is_exact = kind == KIND_BYTES || kind == KIND_ANY_MERGES || kind == KIND_GREEDY;
    const bool is_lossy = kind == KIND_UNIGRAM || kind == KIND_ANY_CHARSMAP;
    if (composes) {
        check_composed(text, length, back, n_bytes);
    } else if (is_exact || (!is_lossy && !has_lower_block(text, length))) {
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

static void check(const tokenizer *tok, tokenize_options options, const char *text, size_t length,
                  enum kinds kind, uint8_t number)
{
    const char *pre = pre_by_number(number);
    const bool composes = (kind == KIND_BYTES || kind == KIND_ANY_MERGES) &&
                          pre_tokenizer_composes(pre_tokenizer_find(pre, strlen(pre)));
    cellar_token *ids;
    size_t n;
    REQUIRE(tokenizer_encode(tok, text, length, options, &ids, &n, NULL) == CELLAR_OK);
    for (size_t i = 0; i < n; i++) {
        REQUIRE(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_size(tok));
    }
    size_t skipped = options.add_special && tokenizer_adds_bos(tok);
    REQUIRE(n >= skipped);
    check_text(tok, skipped > 0 ? ids + skipped : ids, n - skipped, text, length, kind, composes);
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
    enum kinds kind = (enum kinds)(data[0] >> 3 & 7);
    input in = {data + 2, size - 2};
    made_tokenizer made = {0};
    uint8_t number = 0;
    if (kind != KIND_SCORES) {
        number = take_byte(&in);
        made = make_kind(kind, number, &in, data[1], adds_space);
    } else if (data[1] > 0) {
        size_t used = 0;
        token_table table = read_tokens(in.data, in.size, data[1], &used);
        take(&in, used);
        made = make(&table, adds_space);
        token_table_free(&table);
    }
    const tokenizer *tok = kind == KIND_SCORES && data[1] == 0 ? fixed_tokenizer(adds_space)
                                                               : made.tok;
    if (tok != NULL) {
        char *text = malloc(in.size); /* exactly sized, so that a read beyond it shows */
        REQUIRE(text != NULL || in.size == 0);
        if (in.size > 0) {
            memcpy(text, in.data, in.size);
        }
        check(tok, options, text, in.size, kind, number);
        if (kind == KIND_BYTES || kind == KIND_ANY_MERGES) {
            check_words(number, text, in.size);
        }
        free(text);
    }
    made_tokenizer_destroy(&made);
    return 0;
}
