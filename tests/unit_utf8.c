/*
 * unit_utf8.c: the stream of bytes that comes out as valid UTF-8.
 *
 * Truth is a slow decoder of its own, written from Unicode 15, table 3-7: it looks at whole texts,
 * the stream at one byte after the other.
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
#include "tokenizer/tokenizer.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* ---- the slow truth ------------------------------------------------------------------------- */

typedef struct row {
    unsigned char low[4], high[4];
    size_t n;
} row;

/* Table 3-7, line by line. */
static const row rows[] = {
    {{0x00}, {0x7F}, 1},
    {{0xC2, 0x80}, {0xDF, 0xBF}, 2},
    {{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
    {{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
    {{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
    {{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
    {{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
    {{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
    {{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4},
};

/* How many bytes of `text` a row accepts, at most its own length. */
static size_t accepted(const row *r, const unsigned char *text, size_t n)
{
    size_t i = 0;
    while (i < n && i < r->n && text[i] >= r->low[i] && text[i] <= r->high[i]) {
        i++;
    }
    return i;
}

/* The text with U+FFFD for each maximal invalid part; its length. */
static size_t repair(const unsigned char *text, size_t n, char *to)
{
    size_t written = 0;
    for (size_t from = 0; from < n;) {
        size_t best = 0;
        bool is_whole = false;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !is_whole; i++) {
            size_t length = accepted(&rows[i], text + from, n - from);
            best = length > best ? length : best;
            is_whole = length == rows[i].n;
        }
        best = best > 0 ? best : 1;
        if (is_whole) {
            memcpy(to + written, text + from, best);
            written += best;
        } else {
            memcpy(to + written, REPLACEMENT, 3);
            written += 3;
        }
        from += best;
    }
    return written;
}

/* ---- the stream, fed in parts --------------------------------------------------------------- */

/* Feed `text`, cut after each byte whose bit is set in `cuts`; exact blocks show overruns. */
static size_t stream(const unsigned char *text, size_t n, uint64_t cuts, char *to)
{
    utf8_stream s = {0};
    size_t written = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && !(cuts >> (i % 64) & 1)) {
            continue;
        }
        size_t length = i + 1 - from;
        char *out = malloc(3 * (length + 3));
        assert_non_null(out);
        size_t got = utf8_stream_push(&s, (const char *)text + from, length, out);
        assert_true(got <= 3 * (length + 3));
        memcpy(to + written, out, got);
        free(out);
        written += got;
        from = i + 1;
    }
    char end[12];
    size_t got = utf8_stream_finish(&s, end);
    assert_true(got <= sizeof end);
    memcpy(to + written, end, got);
    return written + got;
}

static void assert_stream(const unsigned char *text, size_t n, uint64_t cuts, const char *expected,
                          size_t n_expected)
{
    char got[1024];
    assert_true(n <= 256);
    assert_int_equal(stream(text, n, cuts, got), n_expected);
    assert_memory_equal(got, expected, n_expected);
}

static void assert_repaired(const char *text, const char *expected)
{
    size_t n = strlen(text);
    for (uint64_t cuts = 0; cuts < 1u << n; cuts++) {
        assert_stream((const unsigned char *)text, n, cuts, expected, strlen(expected));
    }
}

static size_t put_code_point(uint32_t code, unsigned char *to)
{
    if (code < 0x80) {
        to[0] = (unsigned char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        to[i] = (unsigned char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    to[0] = (unsigned char)((0xF00 >> n & 0xFF) | code);
    return n;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void every_code_point_passes_wherever_it_is_cut(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) {
            continue;
        }
        unsigned char text[4];
        size_t n = put_code_point(code, text);
        for (uint64_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
            utf8_stream s = {0};
            char got[48];
            size_t written = 0, from = 0;
            for (size_t i = 0; i < n; i++) {
                if (i + 1 == n || (cuts >> i & 1)) {
                    written += utf8_stream_push(&s, (char *)text + from, i + 1 - from,
                                                got + written);
                    from = i + 1;
                }
            }
            if (written != n || memcmp(got, text, n) != 0 || s.n_waiting != 0) {
                fail_msg("U+%04X does not pass", (unsigned)code);
            }
        }
    }
}

static void surrogates_become_replacements(void **state)
{
    (void)state;
    for (uint32_t code = 0xD800; code <= 0xDFFF; code++) {
        unsigned char text[4];
        size_t n = put_code_point(code, text);
        assert_int_equal(n, 3);
        for (uint64_t cuts = 0; cuts < 4; cuts++) {
            assert_stream(text, n, cuts, REPLACEMENT REPLACEMENT REPLACEMENT, 9);
        }
    }
}

static void code_points_above_the_last_become_replacements(void **state)
{
    (void)state;
    for (uint32_t code = 0x110000; code <= 0x1FFFFF; code += 0x7F) {
        unsigned char text[4];
        assert_int_equal(put_code_point(code, text), 4);
        assert_stream(text, 4, code & 7, REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT, 12);
    }
}

static void overlong_forms_become_replacements(void **state)
{
    (void)state;
    assert_repaired("\xC0\x80", REPLACEMENT REPLACEMENT);
    assert_repaired("\xC0\xAF", REPLACEMENT REPLACEMENT);
    assert_repaired("\xC1\xBF", REPLACEMENT REPLACEMENT);
    assert_repaired("\xE0\x80\xAF", REPLACEMENT REPLACEMENT REPLACEMENT);
    assert_repaired("\xE0\x9F\xBF", REPLACEMENT REPLACEMENT REPLACEMENT);
    assert_repaired("\xF0\x80\x80\xAF", REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT);
    assert_repaired("\xF0\x8F\xBF\xBF", REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT);
}

/* Unicode 15, section 3.9, tables 3-8 to 3-11. */
static void maximal_subparts_are_those_of_the_standard(void **state)
{
    (void)state;
    assert_repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
                    REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT
                        REPLACEMENT REPLACEMENT "A");
    assert_repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
                    REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT
                        REPLACEMENT REPLACEMENT "A");
    assert_repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
                    REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT
                    "A" REPLACEMENT REPLACEMENT "B");
    assert_repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41",
                    REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT "A");
}

static void a_character_cut_off_at_the_end_becomes_one_replacement(void **state)
{
    (void)state;
    assert_repaired("a\xC3", "a" REPLACEMENT);
    assert_repaired("a\xE2\x82", "a" REPLACEMENT);
    assert_repaired("a\xF0\x9F\x99", "a" REPLACEMENT);
    assert_repaired("\xF0\x9F\xF0\x9F", REPLACEMENT REPLACEMENT);
}

static void nothing_gives_nothing_and_nul_is_a_character(void **state)
{
    (void)state;
    utf8_stream s = {0};
    char out[12];
    assert_int_equal(utf8_stream_push(&s, "", 0, out), 0);
    assert_int_equal(utf8_stream_finish(&s, out), 0);
    assert_stream((const unsigned char *)"a\0b", 3, 7, "a\0b", 3);
}

static void a_finished_stream_can_be_used_again(void **state)
{
    (void)state;
    utf8_stream s = {0};
    char out[16];
    assert_int_equal(utf8_stream_push(&s, "\xE2\x82", 2, out), 0);
    assert_int_equal(utf8_stream_finish(&s, out), 3);
    assert_int_equal(utf8_stream_push(&s, "\xAC", 1, out), 3);
    assert_memory_equal(out, REPLACEMENT, 3);
}

static void random_bytes_come_out_valid_and_independent_of_the_cuts(void **state)
{
    (void)state;
    static const unsigned char lively[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0,
                                           0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED,
                                           0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    random_source random;
    random_source_seed(&random, 20230913);
    for (int round = 0; round < 100000; round++) {
        unsigned char text[24];
        char expected[3 * sizeof text], again[9 * sizeof text];
        size_t n = random_source_next(&random) % (sizeof text + 1);
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = random_source_next(&random);
            text[i] = bits & 0x300 ? lively[bits % sizeof lively] : (unsigned char)bits;
        }
        size_t n_expected = repair(text, n, expected);
        assert_stream(text, n, random_source_next(&random), expected, n_expected);
        /* Valid means: nothing is left to repair. */
        assert_int_equal(repair((unsigned char *)expected, n_expected, again), n_expected);
        assert_memory_equal(again, expected, n_expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_passes_wherever_it_is_cut),
        cmocka_unit_test(surrogates_become_replacements),
        cmocka_unit_test(code_points_above_the_last_become_replacements),
        cmocka_unit_test(overlong_forms_become_replacements),
        cmocka_unit_test(maximal_subparts_are_those_of_the_standard),
        cmocka_unit_test(a_character_cut_off_at_the_end_becomes_one_replacement),
        cmocka_unit_test(nothing_gives_nothing_and_nul_is_a_character),
        cmocka_unit_test(a_finished_stream_can_be_used_again),
        cmocka_unit_test(random_bytes_come_out_valid_and_independent_of_the_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
