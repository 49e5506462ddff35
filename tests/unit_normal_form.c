/*
 * unit_normal_form.c: Unicode's normal forms, against those of another implementation.
 *
 * tests/data/normal_forms/forms.txt holds what Python's unicodedata makes of every code point and
 * of random rows of characters that combine. Bytes that are not UTF-8, and texts so long or so full
 * of marks that a careless method would not end, are tried here.
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

#include "tokenizer/normal_form.h"
#include "tokenizer/utf8.h"

#define FORMS "tests/data/normal_forms/forms.txt"
#define ACUTE "\xCC\x81"   /* U+0301, class 230 */
#define BELOW "\xCC\xA3"   /* U+0323, class 220 */
#define E_ACUTE "\xC3\xA9" /* U+00E9 */

/* The form, malloc'ed, also where nothing had to change. */
static char *make(normal_form form, const char *text, size_t length, size_t *n)
{
    char *out;
    char *copy = malloc(length + 1); /* exactly sized, so that a read beyond it shows */
    assert_non_null(copy);
    memcpy(copy, text, length);
    assert_int_equal(normal_form_make(form, copy, length, &out, n, NULL), CELLAR_OK);
    if (out == NULL) {
        *n = length;
        return copy;
    }
    free(copy);
    return out;
}

static void expect(normal_form form, const char *text, size_t length, const char *expected,
                   size_t n_expected)
{
    size_t n;
    char *out = make(form, text, length, &n);
    assert_int_equal(n, n_expected);
    assert_memory_equal(out, expected, n);
    free(out);
}

#define EXPECT(form, text, expected)                                                               \
    expect(form, text, sizeof(text) - 1, expected, sizeof(expected) - 1)

/* ---- the other implementation --------------------------------------------------------------- */

static uint32_t checksum(uint32_t value, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        value = (value ^ (unsigned char)bytes[i]) * 0x01000193u;
    }
    return value;
}

static void check_block(uint32_t first, uint32_t expected)
{
    uint32_t value = 0x811C9DC5u;
    for (uint32_t code = first; code < first + 0x1000; code++) {
        if (code >= 0xD800 && code < 0xE000) {
            continue;
        }
        char text[4];
        const size_t length = utf8_put(code, text);
        for (int i = 0; i < 2; i++) {
            size_t n;
            char *out = make(i == 0 ? NORMAL_FORM_C : NORMAL_FORM_D, text, length, &n);
            value = checksum(value, out, n);
            free(out);
        }
    }
    if (value != expected) {
        fail_msg("code points from U+%04X on: other forms than expected", first);
    }
}

static size_t parse_hex(const char *digits, char *to)
{
    size_t n = 0;
    for (unsigned byte; sscanf(digits + 2 * n, "%2x", &byte) == 1; n++) {
        to[n] = (char)byte;
    }
    return n;
}

static void forms_are_those_of_another_implementation(void **state)
{
    (void)state;
    static char line[4096], hex[3][1200], bytes[3][600];
    size_t n_blocks = 0, n_texts = 0;
    FILE *file = fopen(FORMS, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        uint32_t first, expected;
        if (sscanf(line, "block %x %x", &first, &expected) == 2) {
            check_block(first, expected);
            n_blocks++;
            continue;
        }
        assert_int_equal(sscanf(line, "text %1199s %1199s %1199s", hex[0], hex[1], hex[2]), 3);
        size_t n[3];
        for (int i = 0; i < 3; i++) {
            n[i] = parse_hex(hex[i], bytes[i]);
        }
        for (int i = 0; i < 3; i++) { /* a form of a form is that form of the text */
            expect(NORMAL_FORM_C, bytes[i], n[i], bytes[1], n[1]);
            expect(NORMAL_FORM_D, bytes[i], n[i], bytes[2], n[2]);
        }
        n_texts++;
    }
    fclose(file);
    assert_int_equal(n_blocks, 0x110);
    assert_int_equal(n_texts, 500);
}

/* ---- edges ---------------------------------------------------------------------------------- */

static void a_text_that_is_in_its_form_is_not_copied(void **state)
{
    (void)state;
    static const char *const composed[] = {"", "plain", "caf" E_ACUTE, "\xE4\xB8\x80", "\xFF\x80"};
    for (size_t i = 0; i < sizeof composed / sizeof *composed; i++) {
        char *out = (char *)&out;
        size_t n = 1;
        assert_int_equal(
            normal_form_make(NORMAL_FORM_C, composed[i], strlen(composed[i]), &out, &n, NULL),
            CELLAR_OK);
        assert_null(out);
        assert_int_equal(n, 0);
    }
}

static void bytes_that_are_not_utf8_stay_and_combine_with_nothing(void **state)
{
    (void)state;
    EXPECT(NORMAL_FORM_C, "\xFF" ACUTE "e" ACUTE, "\xFF" ACUTE E_ACUTE);
    EXPECT(NORMAL_FORM_C, "e\xC3" ACUTE, "e\xC3" ACUTE);
    EXPECT(NORMAL_FORM_C, "e" ACUTE "\xE1\x84", E_ACUTE "\xE1\x84");
    EXPECT(NORMAL_FORM_C, "e\0" ACUTE, "e\0" ACUTE);
    EXPECT(NORMAL_FORM_D, "\x80" E_ACUTE "\xC3",
           "\x80"
           "e" ACUTE "\xC3");
}

static void marks_without_a_starter_are_put_in_order(void **state)
{
    (void)state;
    EXPECT(NORMAL_FORM_C, ACUTE BELOW "e", BELOW ACUTE "e");
    EXPECT(NORMAL_FORM_D, ACUTE BELOW ACUTE, BELOW ACUTE ACUTE);
}

/* A million marks, every other one out of order; quadratic work would take hours. */
static void many_marks_in_a_row_are_put_in_order(void **state)
{
    (void)state;
    const size_t n_pairs = 500000, length = 1 + 4 * n_pairs;
    char *text = malloc(length);
    assert_non_null(text);
    text[0] = 'q';
    for (size_t i = 0; i < n_pairs; i++) {
        memcpy(text + 1 + 4 * i, ACUTE BELOW, 4);
    }
    size_t n;
    char *out = make(NORMAL_FORM_C, text, length, &n);
    assert_int_equal(n, length);
    for (size_t i = 0; i < 2 * n_pairs; i++) {
        assert_memory_equal(out + 1 + 2 * i, i < n_pairs ? BELOW : ACUTE, 2);
    }
    free(out);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_those_of_another_implementation),
        cmocka_unit_test(a_text_that_is_in_its_form_is_not_copied),
        cmocka_unit_test(bytes_that_are_not_utf8_stay_and_combine_with_nothing),
        cmocka_unit_test(marks_without_a_starter_are_put_in_order),
        cmocka_unit_test(many_marks_in_a_row_are_put_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
