/*
 * unit_bpe.c: byte-level BPE against a plain encoder, round trips of any bytes, long texts, and the
 * files that must be refused.
 *
 * The plain encoder does what the rule says, word for word and in quadratic time: look at all
 * pairs, join the one whose merge stands first, start again. Where words end is the pre-tokenizer's
 * to say (unit_pre_tokenizer.c).
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
#include "tokenizer/bpe.h"
#include "tokenizer/byte_text.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/pre_tokenizer.h"

#define MOST_MERGES 64
#define MOST_BYTES 256

static uint32_t below(random_source *random, uint32_t n)
{
    return (uint32_t)(random_source_next(random) % n);
}

/* ---- vocabularies with merges --------------------------------------------------------------- */

typedef struct merge_table {
    token_table tokens; /* the 256 bytes first */
    size_t n;
    cellar_token left[MOST_MERGES], right[MOST_MERGES], merged[MOST_MERGES];
    char *texts[MOST_MERGES];
} merge_table;

static merge_table merge_table_create(void)
{
    merge_table m = {.n = 0};
    token_table_add_bytes(&m.tokens);
    return m;
}

/* A new merge of two tokens; what they make is a token already or becomes one. */
static cellar_token merge_table_add(merge_table *m, cellar_token left, cellar_token right)
{
    const table_token *a = &m->tokens.tokens[left], *b = &m->tokens.tokens[right];
    const size_t length = a->length + b->length;
    char *joined = malloc(length + 1), *text = malloc(length + 2);
    assert_true(joined != NULL && text != NULL);
    snprintf(joined, length + 1, "%s%s", a->text, b->text);
    snprintf(text, length + 2, "%s %s", a->text, b->text);
    cellar_token id = -1;
    for (size_t i = 0; i < m->tokens.n && id < 0; i++) {
        id = strcmp(m->tokens.tokens[i].text, joined) == 0 ? (cellar_token)i : -1;
    }
    if (id < 0) {
        id = token_table_add(&m->tokens, joined, length, 0.0f, TOKEN_NORMAL);
    }
    assert_true(m->n < MOST_MERGES);
    m->left[m->n] = left;
    m->right[m->n] = right;
    m->merged[m->n] = id;
    m->texts[m->n++] = text;
    free(joined);
    return id;
}

static void merge_table_free(merge_table *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->texts[i]);
    }
    token_table_free(&m->tokens);
}

static made_tokenizer make(const merge_table *m, const char *pre)
{
    made_tokenizer made = made_tokenizer_create(
        NULL, token_table_begin_bpe(&m->tokens, pre, m->n, (const char *const *)m->texts));
    if (made.status != CELLAR_OK) {
        fail_msg("%s", made.error.message);
    }
    return made;
}

static const char letters[] = "aab \xC3\xA9'\n1";
#define N_LETTERS (sizeof letters - 1)

static merge_table random_merges(random_source *random)
{
    merge_table m = merge_table_create();
    cellar_token known[MOST_MERGES + N_LETTERS];
    uint32_t n_known = 0;
    for (size_t i = 0; i < N_LETTERS; i++) {
        known[n_known++] = (unsigned char)letters[i];
    }
    for (uint32_t n = below(random, MOST_MERGES); n > 0; n--) {
        cellar_token left = known[below(random, n_known)], right = known[below(random, n_known)];
        if (m.tokens.tokens[left].length + m.tokens.tokens[right].length <= 40) {
            known[n_known++] = merge_table_add(&m, left, right);
        }
    }
    return m;
}

/* ---- the plain encoder ---------------------------------------------------------------------- */

typedef struct plain_ids {
    const merge_table *merges;
    cellar_token ids[MOST_BYTES];
    size_t n;
} plain_ids;

/* The first merge of a pair, or its number: none. */
static size_t plain_rank(const merge_table *m, cellar_token left, cellar_token right)
{
    size_t rank = 0;
    while (rank < m->n && (m->left[rank] != left || m->right[rank] != right)) {
        rank++;
    }
    return rank;
}

static cellar_status plain_word(void *context, const char *word, size_t length)
{
    plain_ids *p = context;
    cellar_token *ids = p->ids + p->n;
    assert_true(p->n + length <= MOST_BYTES);
    for (size_t i = 0; i < length; i++) {
        ids[i] = (unsigned char)word[i];
    }
    for (;;) {
        size_t best = p->merges->n, at = 0;
        for (size_t i = 0; i + 1 < length; i++) {
            const size_t rank = plain_rank(p->merges, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == p->merges->n) {
            break;
        }
        ids[at] = p->merges->merged[best];
        length--;
        memmove(ids + at + 1, ids + at + 2, (length - at - 1) * sizeof *ids);
    }
    p->n += length;
    return CELLAR_OK;
}

/* ---- merging and round trips ---------------------------------------------------------------- */

/* Form C of the text, malloc'ed. */
static char *compose(const char *text, size_t length, size_t *n)
{
    char *composed;
    assert_int_equal(normal_form_make(NORMAL_FORM_C, text, length, &composed, n, NULL), CELLAR_OK);
    if (composed == NULL) {
        composed = malloc(length + 1);
        assert_non_null(composed);
        memcpy(composed, length > 0 ? text : "", length);
        *n = length;
    }
    return composed;
}

/* The bytes; or, with a composing pre-tokenizer, bytes of which the composed form is the same. */
static void assert_comes_back(const tokenizer *tok, bool composes, const char *text, size_t length)
{
    size_t n, n_bytes;
    char *back;
    cellar_token *ids = made_tokenizer_encode(tok, text, length, &n);
    assert_int_equal(tokenizer_decode(tok, ids, n, false, &back, &n_bytes, NULL), CELLAR_OK);
    if (composes) {
        size_t n_composed, n_again;
        char *composed = compose(text, length, &n_composed),
             *again = compose(back, n_bytes, &n_again);
        assert_int_equal(n_again, n_composed);
        assert_memory_equal(again, composed, n_again);
        free(composed);
        free(again);
    } else {
        assert_int_equal(n_bytes, length);
        assert_memory_equal(back != NULL ? back : "", text, length);
    }
    free(back);
    free(ids);
}

static void the_merges_agree_with_the_plain_encoder(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 1508);
    for (int round = 0; round < 300; round++) {
        merge_table m = random_merges(&random);
        made_tokenizer made = make(&m, "gpt-2");
        for (int i = 0; i < 20; i++) {
            char text[MOST_BYTES];
            size_t n, length = below(&random, 60);
            for (size_t b = 0; b < length; b++) {
                text[b] = letters[below(&random, N_LETTERS)];
            }
            plain_ids p = {.merges = &m};
            pre_tokenizer_split(pre_tokenizer_find("gpt-2", 5), text, length, plain_word, &p, NULL);
            cellar_token *ids = made_tokenizer_encode(made.tok, text, length, &n);
            if (n != p.n || (n > 0 && memcmp(ids, p.ids, n * sizeof *ids) != 0)) {
                fail_msg("round %d: \"%.*s\": the two encoders differ", round, (int)length, text);
            }
            free(ids);
        }
        made_tokenizer_destroy(&made);
        merge_table_free(&m);
    }
}

static void any_bytes_come_back_as_they_were(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 909);
    for (size_t i = 0; pre_tokenizer_name(i) != NULL; i++) {
        merge_table m = random_merges(&random);
        token_table_add(&m.tokens, "[x]", 3, 0.0f, TOKEN_USER_DEFINED);
        token_table_add(&m.tokens, "\xC3\xA9\xC3\xA9", 4, 0.0f, TOKEN_USER_DEFINED);
        const char *name = pre_tokenizer_name(i);
        const bool composes = pre_tokenizer_composes(pre_tokenizer_find(name, strlen(name)));
        made_tokenizer made = make(&m, name);
        for (int round = 0; round < 200; round++) {
            static const char lively[] = "aab \xC3\xA9\xC3\xA9'\n1[x]\xCC\x81";
            char text[100];
            size_t length = below(&random, sizeof text + 1);
            for (size_t b = 0; b < length; b++) {
                text[b] = round % 2 == 0 ? lively[below(&random, sizeof lively - 1)]
                                         : (char)random_source_next(&random);
            }
            assert_comes_back(made.tok, composes, text, length);
        }
        made_tokenizer_destroy(&made);
        merge_table_free(&m);
    }
}

static void every_byte_has_a_character_and_comes_back(void **state)
{
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        size_t length, n = byte_text_put((unsigned char)byte, text);
        assert_int_equal(byte_text_get(text, n, &length), byte);
        assert_int_equal(length, n);
    }
    size_t length;
    assert_int_equal(byte_text_get("\xC4\xA0", 2, &length), ' '); /* U+0120 */
    assert_int_equal(byte_text_get("\xC4\x8A", 2, &length), '\n');
    assert_int_equal(byte_text_get("\xC5\x83", 2, &length), 0xAD);
    assert_int_equal(byte_text_get("\xC5\x84", 2, &length), -1); /* one beyond the last */
    assert_int_equal(length, 1);
    assert_int_equal(byte_text_get("\xC4", 1, &length), -1);
    assert_int_equal(byte_text_get(" ", 1, &length), -1);
    assert_int_equal(byte_text_get("\xE4\xB8\xAD", 3, &length), -1);
}

/* ---- long texts ----------------------------------------------------------------------------- */

/* a, aa, aaaa, ... */
static merge_table doubling_merges(char letter, size_t n)
{
    merge_table m = merge_table_create();
    cellar_token id = (unsigned char)letter;
    for (size_t i = 0; i < n; i++) {
        id = merge_table_add(&m, id, id);
    }
    return m;
}

static uint64_t count_steps(const made_tokenizer *made, const char *text, size_t length)
{
    vocabulary v;
    bpe b;
    id_list ids = {0};
    uint64_t steps = 0;
    assert_int_equal(vocabulary_read(made->file, (vocabulary_wishes){0}, &v, NULL), CELLAR_OK);
    assert_int_equal(bpe_create(made->file, &v, pre_tokenizer_find("gpt-2", 5), &b, NULL),
                     CELLAR_OK);
    assert_int_equal(bpe_encode(&b, -1, text, length, false, &ids, &steps, NULL), CELLAR_OK);
    assert_true(ids.n > 0 && ids.n <= length);
    free(ids.ids);
    bpe_free(&b);
    vocabulary_free(&v);
    return steps;
}

/*
 * One word of 256 thousand letters: n log n is about 18 steps for each letter and pair, a quadratic
 * merging would take 256 thousand for each.
 */
static void words_of_one_letter_take_no_quadratic_steps(void **state)
{
    (void)state;
    const size_t length = 1 << 18;
    char *text = malloc(length);
    assert_non_null(text);
    for (size_t n = 1; n <= 9; n += 4) {
        merge_table m = doubling_merges('a', n);
        made_tokenizer made = make(&m, "gpt-2");
        memset(text, 'a', length);
        const uint64_t half = count_steps(&made, text, length / 2);
        const uint64_t whole = count_steps(&made, text, length);
        assert_true(whole < 60 * (uint64_t)length);
        assert_true(whole < 2 * half + half / 4);
        made_tokenizer_destroy(&made);
        merge_table_free(&m);
    }
    free(text);
}

/* ---- what a file may leave open ------------------------------------------------------------- */

/*
 * "abc" is a token but no merges lead to it: Llama 3 takes it whole, GPT-2 does not.
 */
static void whole_words_are_kept_where_the_model_wants_it(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        bool is_kept;
    } both[] = {{"llama-bpe", true}, {"gpt-2", false}};
    for (size_t i = 0; i < 2; i++) {
        merge_table m = merge_table_create();
        cellar_token bc = merge_table_add(&m, 'b', 'c');
        cellar_token abc = token_table_add(&m.tokens, "abc", 3, 0.0f, TOKEN_NORMAL);
        token_table_add(&m.tokens, "xyz", 3, 0.0f, TOKEN_CONTROL);
        made_tokenizer made = make(&m, both[i].pre);
        size_t n;
        cellar_token *ids = made_tokenizer_encode(made.tok, "abc", 3, &n);
        assert_int_equal(n, both[i].is_kept ? 1 : 2);
        assert_int_equal(ids[n - 1], both[i].is_kept ? abc : bc);
        free(ids);
        ids = made_tokenizer_encode(made.tok, "xyz", 3, &n); /* a control token is never typed */
        assert_int_equal(n, 3);
        free(ids);
        made_tokenizer_destroy(&made);
        merge_table_free(&m);
    }
}

/*
 * "é" as two code points, an e and a mark: one token, and the composed text, where the family was
 * trained on composed texts; elsewhere as it stands, and a half mark in any case.
 */
static void texts_are_composed_where_the_model_was_trained_so(void **state)
{
    (void)state;
    static const char decomposed[] = "e\xCC\x81", half[] = "e\xCC";
    static const struct {
        const char *pre;
        bool composes;
    } all[] = {{"qwen2", true},      {"qwen35", true}, {"olmo", true},   {"mpt", true},
               {"command-r", true},  {"gpt-2", false}, {"phi-2", false}, {"llama-bpe", false},
               {"starcoder", false}, {"megrez", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        merge_table m = merge_table_create();
        const cellar_token composed = merge_table_add(&m, 0xC3, 0xA9);
        made_tokenizer made = make(&m, all[i].pre);
        size_t n, n_bytes;
        char *text;
        cellar_token *ids = made_tokenizer_encode(made.tok, decomposed, 3, &n);
        assert_int_equal(n, all[i].composes ? 1 : 3);
        assert_int_equal(ids[0], all[i].composes ? composed : 'e');
        assert_int_equal(tokenizer_decode(made.tok, ids, n, false, &text, &n_bytes, NULL),
                         CELLAR_OK);
        assert_int_equal(n_bytes, all[i].composes ? 2 : 3);
        assert_memory_equal(text, all[i].composes ? "\xC3\xA9" : decomposed, n_bytes);
        free(text);
        free(ids);
        ids = made_tokenizer_encode(made.tok, half, 2, &n);
        assert_int_equal(n, 2);
        free(ids);
        made_tokenizer_destroy(&made);
        merge_table_free(&m);
    }
}

static void bytes_without_a_token_are_unknown_or_lost(void **state)
{
    (void)state;
    static const char *const merges[] = {"a b"};
    for (int has_unknown = 0; has_unknown < 2; has_unknown++) {
        token_table table = {0};
        token_table_add(&table, "a", 1, 0.0f, TOKEN_NORMAL);
        token_table_add(&table, "b", 1, 0.0f, TOKEN_NORMAL);
        token_table_add(&table, "ab", 2, 0.0f, TOKEN_NORMAL);
        gguf_writer *writer = token_table_begin_bpe(&table, "gpt-2", 1, merges);
        if (has_unknown) {
            gguf_writer_add_u32(writer, "tokenizer.ggml.unknown_token_id", 1);
        }
        made_tokenizer made = made_tokenizer_create(NULL, writer);
        assert_int_equal(made.status, CELLAR_OK);
        size_t n;
        cellar_token *ids = made_tokenizer_encode(made.tok, "abxa", 4, &n);
        assert_int_equal(n, has_unknown ? 3 : 2);
        assert_int_equal(ids[0], 2);
        assert_int_equal(ids[1], has_unknown);
        free(ids);
        made_tokenizer_destroy(&made);
        token_table_free(&table);
    }
}

/* A pair that is listed twice counts where it stands first. */
static void the_first_of_equal_merges_counts(void **state)
{
    (void)state;
    merge_table m = merge_table_create();
    cellar_token ab = merge_table_add(&m, 'a', 'b');
    merge_table_add(&m, 'b', 'c');
    merge_table_add(&m, 'a', 'b');
    made_tokenizer made = make(&m, "gpt-2");
    size_t n;
    cellar_token *ids = made_tokenizer_encode(made.tok, "abc", 3, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], ab);
    free(ids);
    made_tokenizer_destroy(&made);
    merge_table_free(&m);
}

/* ---- refused -------------------------------------------------------------------------------- */

static void assert_refused(gguf_writer *writer, cellar_status status, const char *word,
                           const char *other_word)
{
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    assert_int_equal(made.status, status);
    assert_null(made.tok);
    if (strstr(made.error.message, word) == NULL ||
        strstr(made.error.message, other_word) == NULL) {
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", made.error.message, word, other_word);
    }
    made_tokenizer_destroy(&made);
}

static void unknown_pre_tokenizers_are_refused_by_name(void **state)
{
    (void)state;
    merge_table m = merge_table_create();
    assert_refused(token_table_begin_bpe(&m.tokens, "gpt-99", 0, NULL), CELLAR_UNSUPPORTED,
                   "tokenizer.ggml.pre", "\"gpt-99\"");
    assert_refused(token_table_begin_bpe(&m.tokens, "default", 0, NULL), CELLAR_UNSUPPORTED,
                   "tokenizer.ggml.pre", "\"default\"");
    assert_refused(token_table_begin_bpe(&m.tokens, NULL, 0, NULL), CELLAR_UNSUPPORTED, "no key",
                   "tokenizer.ggml.pre");
    merge_table_free(&m);
}

static void malformed_merges_are_refused_by_their_number(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",     " ",   "a",   "ab",   "a ",  " a",    "a b ",
        "a  b", "a x", "x a", "a bb", "b a", "a b c", "b b", /* bb is a control token */
    };
    token_table table = {0};
    token_table_add(&table, "a", 1, 0.0f, TOKEN_NORMAL);
    token_table_add(&table, "b", 1, 0.0f, TOKEN_NORMAL);
    token_table_add(&table, "ab", 2, 0.0f, TOKEN_NORMAL);
    token_table_add(&table, "bb", 2, 0.0f, TOKEN_CONTROL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *merges[] = {"a b", bad[i]};
        assert_refused(token_table_begin_bpe(&table, "gpt-2", 2, merges), CELLAR_CORRUPT,
                       "tokenizer.ggml.merges[1]", "two tokens");
    }
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_add_string(writer, "tokenizer.ggml.pre", "gpt-2");
    token_table_write_texts(&table, writer);
    assert_refused(writer, CELLAR_CORRUPT, "no key", "tokenizer.ggml.merges");
    token_table_free(&table);
}

/* ---- over characters ------------------------------------------------------------------------ */

#define LOW "\xE2\x96\x81" /* U+2581 */

static void characters_are_merged_with_byte_tokens_for_the_rest(void **state)
{
    (void)state;
    static const char *const merges[] = {LOW " a", LOW "a b", "\xC3\xA9 a", "no such"};
    token_table table = {0};
    token_table_add_usual(&table);
    cellar_token low = token_table_add(&table, LOW, 3, 0.0f, TOKEN_NORMAL);
    token_table_add(&table, "a", 1, 0.0f, TOKEN_NORMAL);
    cellar_token b = token_table_add(&table, "b", 1, 0.0f, TOKEN_NORMAL);
    cellar_token e = token_table_add(&table, "\xC3\xA9", 2, 0.0f, TOKEN_NORMAL);
    token_table_add(&table, LOW "a", 4, 0.0f, TOKEN_NORMAL);
    cellar_token low_ab = token_table_add(&table, LOW "ab", 5, 0.0f, TOKEN_NORMAL);
    cellar_token ea = token_table_add(&table,
                                      "\xC3\xA9"
                                      "a",
                                      3, 0.0f, TOKEN_NORMAL);
    gguf_writer *writer = gguf_writer_create(3);
    gguf_writer_add_string(writer, "tokenizer.ggml.model", "gemma4");
    token_table_write_texts(&table, writer);
    token_table_write_types(&table, writer);
    gguf_writer_add_strings(writer, "tokenizer.ggml.merges", 4, merges);
    made_tokenizer made = made_tokenizer_create(NULL, writer);
    assert_int_equal(made.status, CELLAR_OK);
    static const char text[] = "b ab  \xC3\xA9"
                               "a\xC3\xA9\n\xFF";
    const cellar_token expected[] = {
        b, low_ab, low, low, ea, e, USUAL_FIRST_BYTE + '\n', USUAL_FIRST_BYTE + 0xFF};
    size_t n;
    cellar_token *ids = made_tokenizer_encode(made.tok, text, sizeof text - 1, &n);
    assert_int_equal(n, sizeof expected / sizeof expected[0]);
    assert_memory_equal(ids, expected, sizeof expected);
    free(ids);
    assert_comes_back(made.tok, false, text, sizeof text - 1);
    assert_false(tokenizer_adds_space(made.tok));
    made_tokenizer_destroy(&made);
    token_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_merges_agree_with_the_plain_encoder),
        cmocka_unit_test(any_bytes_come_back_as_they_were),
        cmocka_unit_test(every_byte_has_a_character_and_comes_back),
        cmocka_unit_test(words_of_one_letter_take_no_quadratic_steps),
        cmocka_unit_test(whole_words_are_kept_where_the_model_wants_it),
        cmocka_unit_test(texts_are_composed_where_the_model_was_trained_so),
        cmocka_unit_test(bytes_without_a_token_are_unknown_or_lost),
        cmocka_unit_test(the_first_of_equal_merges_counts),
        cmocka_unit_test(unknown_pre_tokenizers_are_refused_by_name),
        cmocka_unit_test(malformed_merges_are_refused_by_their_number),
        cmocka_unit_test(characters_are_merged_with_byte_tokens_for_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
