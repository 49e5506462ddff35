/*
 * unit_pre_tokenizer.c: where each pre-tokenizer cuts, that words add up to the text, and how many
 * steps it takes.
 *
 * The words expected were made once by a regular expression module from the patterns that stand in
 * app/tokenizer/pre_tokenizers.c.
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
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"

/* A pre-tokenizer and a text with a bar wherever it is cut. */
static const struct {
    const char *name, *words;
} cases[] = {
    {"gpt-2", "I|'ve| he|'ll| it|'|S| x"},
    {"gpt-2", "a| | b|\n\n| c|\t"},
    {"gpt-2", "Hello|,| world|!!| 123| 4\302\275"},
    {"gpt-2", "na\303\257ve| \303\234nicode\344\270\255\346\226\207\345\255\227"},
    {"gpt-2", "  \n | x"},
    {"gpt-2", "x|'"},
    {"gpt-2", "e|\314\201|a"},
    {"llama-bpe", "I|'VE| We|'ll|'x"},
    {"llama-bpe", "a| | b|\n\n| c|\t"},
    {"llama-bpe", "(Hello| |123|45| x|.\r\n\r\n|y"},
    {"llama-bpe", "\n \n\n| x"},
    {"llama-bpe", "$abc| _|d| '|\305\277x"},
    {"llama-bpe", "x|   \n|  | y"},
    {"llama-bpe", "\314\201a| e|\314\201b"},
    {"qwen2", "1|2|3|4|5| a|1"},
    {"qwen2", "don|'T|..\n\n|x"},
    {"qwen35", "1|2| e\314\201a| \314\201\314\201|!"},
    {"qwen35", "\314\201"},
    {"qwen35", "a\340\244\203\340\244\203|.| \314\201x"},
    {"gpt-4o", "Hello|World| HELLOworld| a|BC"},
    {"gpt-4o", "it'S| don't|'x| ABC'd"},
    {"gpt-4o", "123|45|/\n//|x"},
    {"gpt-4o", "\303\200\303\211ab\344\270\255\346\226\207|ABCd\303\251\344\270\255|A"},
    {"gpt-4o", "\314\201A\314\201| A\314\201\314\201b"},
    {"gpt-4o", "(foo| BAR"},
    {"tekken", "Hello|World| it|'s| |1|2|3"},
    {"tekken", "ABCdef|/\n|x"},
    {"starcoder", "a|1|2| |3|4|\302\275"},
    {"starcoder", "x| |1|'s"},
    {"falcon", "a|,|b| |$|5|..| |123|456|7"},
    {"falcon", "x|\302|\275| |12|\302|\262|\302|\2634"},
    {"falcon", "\344\270\255|\302|\275|e"},
    {"deepseek-llm", "a|\r|\n| | b| |1|2"},
    {"deepseek-llm", "Hello| | World|\357\274\214|x|  "},
    {"deepseek-llm",
     "\344\270\255\346\226\207|abc|\346\227\245\346\234\254| |\355\225\234\352\270\200"},
    {"deepseek-llm", "\312\225|\302\252|\302\275| \316\251"},
    {"deepseek-coder", "a|\n| | |\344\270\255\346\226\207|b| |1|2| !?| x"},
    {"deepseek-coder", "\355\225\234\352\270\200|+=|.| \303\251"},
    {"deepseek-v3", "!abc| _|x|123|45| |\346\227\245\346\234\254\343\201\213\343\201\252|x"},
    {"deepseek-v3", "\001a|\002| |\003|+| $|\303\251"},
    {"deepseek-v3", "a\314\201|.| \r\n| | x"},
    {"bloom", "Hello|,| world| (|x|)| a|.|b| | c"},
    {"bloom", "1|,|2| \320\276\320\272|\343\200\202|x"},
    {"viking", "ab|1|2| c|.|3"},
};

/* The words of a text, with bars between them. */
typedef struct joined {
    char text[512];
    size_t length;
} joined;

static cellar_status join_word(void *context, const char *word, size_t length)
{
    joined *j = context;
    assert_true(length > 0 && j->length + length + 1 < sizeof j->text);
    if (j->length > 0) {
        j->text[j->length++] = '|';
    }
    memcpy(j->text + j->length, word, length);
    j->length += length;
    j->text[j->length] = '\0';
    return CELLAR_OK;
}

static void texts_are_cut_as_the_patterns_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        size_t length = 0;
        for (const char *from = cases[i].words; *from != '\0'; from++) {
            if (*from != '|') {
                text[length++] = *from;
            }
        }
        const pre_tokenizer *pre = pre_tokenizer_find(cases[i].name, strlen(cases[i].name));
        assert_non_null(pre);
        joined j = {.length = 0};
        assert_int_equal(pre_tokenizer_split(pre, text, length, join_word, &j, NULL), CELLAR_OK);
        if (strcmp(j.text, cases[i].words) != 0) {
            fail_msg("%s: got \"%s\", expected \"%s\"", cases[i].name, j.text, cases[i].words);
        }
    }
}

/* ---- any bytes ------------------------------------------------------------------------------ */

typedef struct adding {
    const char *next; /* where the next word must begin */
} adding;

static cellar_status add_word(void *context, const char *word, size_t length)
{
    adding *a = context;
    assert_true(length > 0);
    assert_ptr_equal(word, a->next);
    a->next += length;
    return CELLAR_OK;
}

/* Does an earlier name stand for the same? */
static bool is_repeated(size_t index)
{
    const char *name = pre_tokenizer_name(index);
    for (size_t i = 0; i < index; i++) {
        const char *earlier = pre_tokenizer_name(i);
        if (pre_tokenizer_find(earlier, strlen(earlier)) ==
            pre_tokenizer_find(name, strlen(name))) {
            return true;
        }
    }
    return false;
}

/* No more than so many characters looked at for each byte of any text, whatever the pattern. */
#define MOST_STEPS_PER_BYTE 40

static void check_split(const char *name, const char *text, size_t length)
{
    uint64_t steps = 0;
    adding a = {text};
    const pre_tokenizer *pre = pre_tokenizer_find(name, strlen(name));
    assert_int_equal(pre_tokenizer_split(pre, text, length, add_word, &a, &steps), CELLAR_OK);
    assert_ptr_equal(a.next, text + length);
    if (steps > MOST_STEPS_PER_BYTE * (length + 1)) {
        fail_msg("%s: %llu steps for %zu bytes", name, (unsigned long long)steps, length);
    }
}

static void words_in_a_row_are_the_text(void **state)
{
    (void)state;
    static const char lively[] = "aB'sst  \n\r\t12\xC2\xBD.,(/\xCC\x81\xE4\xB8\xAD\xC7\x85\xFF\0";
    random_source random;
    random_source_seed(&random, 2019);
    for (int round = 0; round < 1500; round++) {
        const size_t length = random_source_next(&random) % 80;
        char *text = malloc(length + 1); /* sized so that a read beyond it shows */
        assert_non_null(text);
        for (size_t i = 0; i < length; i++) {
            const uint64_t pick = random_source_next(&random);
            text[i] = pick % 5 == 0 ? (char)(pick >> 8) : lively[(pick >> 8) % (sizeof lively - 1)];
        }
        char *exact = realloc(text, length > 0 ? length : 1);
        assert_non_null(exact);
        for (size_t i = 0; pre_tokenizer_name(i) != NULL; i++) {
            if (!is_repeated(i)) {
                check_split(pre_tokenizer_name(i), exact, length);
            }
        }
        free(exact);
    }
}

static void repeat(char *text, size_t length, const char *part)
{
    for (size_t i = 0, n = strlen(part); i < length; i++) {
        text[i] = part[i % n];
    }
}

/* Runs that a careless matcher scans from each of their characters again. */
static void long_runs_take_linear_steps(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "a",
        "A",
        "Aa",
        "\xCC\x81",
        "\314\201A",
        "1",
        " ",
        "\n",
        " \n",
        "\t \r",
        "'",
        "'s",
        ".",
        " .",
        "./\n",
        "\xFF",
        "\xE4\xB8",
        "\xC2\xBD",
        "(",
        "\xC7\x85",
        " a",
        "\x01",
        "\xE4\xB8\xAD",
    };
    const size_t length = 1 << 16;
    char *text = malloc(length);
    assert_non_null(text);
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        for (int ending = 0; ending < 2; ending++) {
            repeat(text, length, parts[p]);
            text[length - 1] = ending ? 'x' : text[length - 1];
            for (size_t i = 0; pre_tokenizer_name(i) != NULL; i++) {
                if (!is_repeated(i)) {
                    check_split(pre_tokenizer_name(i), text, length);
                }
            }
        }
    }
    free(text);
}

static cellar_status stop_at_b(void *context, const char *word, size_t length)
{
    ++*(int *)context;
    return length == 2 && memcmp(word, " b", 2) == 0 ? CELLAR_NO_MEMORY : CELLAR_OK;
}

static void a_failing_visit_ends_the_splitting(void **state)
{
    (void)state;
    for (size_t i = 0; pre_tokenizer_name(i) != NULL; i++) {
        int n = 0;
        const char *name = pre_tokenizer_name(i);
        const pre_tokenizer *pre = pre_tokenizer_find(name, strlen(name));
        assert_int_equal(pre_tokenizer_split(pre, "a b c d", 7, stop_at_b, &n, NULL),
                         CELLAR_NO_MEMORY);
        assert_int_equal(n, 2);
    }
}

static void names_are_found_whole_and_once(void **state)
{
    (void)state;
    for (size_t i = 0; pre_tokenizer_name(i) != NULL; i++) {
        const char *name = pre_tokenizer_name(i);
        assert_non_null(pre_tokenizer_find(name, strlen(name)));
        for (size_t other = 0; other < i; other++) {
            assert_string_not_equal(name, pre_tokenizer_name(other));
        }
    }
    assert_null(pre_tokenizer_find("gpt-2x", 6));
    assert_null(pre_tokenizer_find("gpt-", 4));
    assert_null(pre_tokenizer_find("", 0));
    assert_null(pre_tokenizer_find("default", 7));
}

/* ---- classes of characters ------------------------------------------------------------------ */

static void characters_have_the_classes_of_unicode(void **state)
{
    (void)state;
    static const struct {
        uint32_t code, class;
    } known[] = {
        {0, UNICODE_OTHER},        {'\t', UNICODE_SPACE},     {0x1C, UNICODE_OTHER},
        {' ', UNICODE_SPACE},      {'A', UNICODE_LU},         {'z', UNICODE_LL},
        {'7', UNICODE_NUMBER},     {'$', UNICODE_SYMBOL},     {'_', UNICODE_PUNCTUATION},
        {0x7F, UNICODE_OTHER},     {0x85, UNICODE_SPACE},     {0xA0, UNICODE_SPACE},
        {0xAA, UNICODE_LO},        {0xAD, UNICODE_OTHER},     {0xBD, UNICODE_NUMBER},
        {0x100, UNICODE_LU}, /* from here capitals and small letters take turns */
        {0x101, UNICODE_LL},       {0x12E, UNICODE_LU},       {0x12F, UNICODE_LL},
        {0x138, UNICODE_LL}, /* and now the other way round */
        {0x139, UNICODE_LU},       {0x13A, UNICODE_LL},       {0x1C5, UNICODE_LT},
        {0x2B0, UNICODE_LM},       {0x301, UNICODE_MARK},     {0x378, UNICODE_OTHER},
        {0x660, UNICODE_NUMBER},   {0x3000, UNICODE_SPACE},   {0x3002, UNICODE_PUNCTUATION},
        {0x4E2D, UNICODE_LO},      {0x9FFF, UNICODE_LO},      {0xD7A3, UNICODE_LO},
        {0xD7A4, UNICODE_OTHER},   {0xE000, UNICODE_OTHER},   {0x1F999, UNICODE_SYMBOL},
        {0x10FFFF, UNICODE_OTHER}, {0x110000, UNICODE_OTHER}, {UINT32_MAX, UNICODE_OTHER},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (unicode_class(known[i].code) != known[i].class) {
            fail_msg("U+%04X: class %x, expected %x", (unsigned)known[i].code,
                     (unsigned)unicode_class(known[i].code), (unsigned)known[i].class);
        }
    }
}

/* How many code points Unicode 15.0 has of each class, counted in its data file. */
static void all_characters_add_up(void **state)
{
    (void)state;
    static const uint32_t expected[11] = {0,    1831, 2233, 31,   397, 131612,
                                          2450, 1831, 842,  7770, 25};
    uint32_t counts[11] = {0};
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        const uint32_t class = unicode_class(code);
        assert_true(class != 0 && (class & (class - 1)) == 0 && class <= UNICODE_SPACE);
        counts[__builtin_ctz(class)]++;
    }
    for (size_t i = 1; i < sizeof counts / sizeof counts[0]; i++) {
        assert_int_equal(counts[i], expected[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_as_the_patterns_say),
        cmocka_unit_test(words_in_a_row_are_the_text),
        cmocka_unit_test(long_runs_take_linear_steps),
        cmocka_unit_test(a_failing_visit_ends_the_splitting),
        cmocka_unit_test(names_are_found_whole_and_once),
        cmocka_unit_test(characters_have_the_classes_of_unicode),
        cmocka_unit_test(all_characters_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
