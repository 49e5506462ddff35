/*
 * splitting_words.c: the pattern of alternatives that most byte-level tokenizers cut words with.
 *
 * From GPT-2 on these patterns differ in details only (splitting.h), so one matcher with switches
 * serves them all:
 *
 *   's|'t|'re|'ve|'m|'ll|'d   contractions
 *    ?\p{L}+                  letters, with one space or other character before them
 *    ?\p{N}+  or  \p{N}{1,3}  numbers
 *    ?[^\s\p{L}\p{N}]+        symbols; later patterns add the line ends that follow
 *   \s*[\r\n]+                white space up to its last line end
 *   \s+(?!\S)|\s+             white space, without the last one before a word
 *
 * A regular expression tries its choices from greedy to modest. Where that matters it is written
 * out: with the character before the letters first, then without it; capitals as many as possible,
 * then one less. Each match looks at every character a bounded number of times and at most one run
 * beyond its end, and no run is looked at again and again, so that splitting stays linear.
 */
#include <string.h>

#include "tokenizer/splitting.h"

/* The end of the run of these classes that begins at `at`. */
static size_t run_end(const split_text *text, size_t at, uint32_t classes)
{
    for (;;) {
        character c = splitting_look(text, at);
        if (!(c.class & classes)) {
            return at;
        }
        at += c.length;
    }
}

static bool is_line_end(character c)
{
    return c.code == '\r' || c.code == '\n';
}

/* ---- contractions --------------------------------------------------------------------------- */

/* A small letter for its capital and, as in any case-blind pattern, for U+017F, the long s. */
static uint32_t fold(uint32_t code)
{
    if (code == 0x17F) {
        return 's';
    }
    return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

static size_t match_contraction(const split_text *text, size_t at, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (splitting_look(text, at).code != '\'') {
        return 0;
    }
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t end = at + 1;
        const char *letter = endings[i];
        for (; *letter != '\0'; letter++) {
            character c = splitting_look(text, end);
            if ((any_case ? fold(c.code) : c.code) != (uint32_t)*letter) {
                break;
            }
            end += c.length;
        }
        if (*letter == '\0') {
            return end - at;
        }
    }
    return 0;
}

/* ---- letters -------------------------------------------------------------------------------- */

#define UPPER (UNICODE_LU | UNICODE_LT | UNICODE_LM | UNICODE_LO | UNICODE_MARK)
#define LOWER (UNICODE_LL | UNICODE_LM | UNICODE_LO | UNICODE_MARK)

/*
 * The end of UPPER* LOWER+ from `at`, or `at`. After as many UPPER as there are, a small letter
 * begins LOWER; without one, UPPER gives back what it has, from its end on, up to a character that
 * also is LOWER, and the match ends with that one.
 */
static size_t words_lower_end(const split_text *text, size_t at)
{
    size_t last_lower_end = at;
    size_t end = at;
    for (;;) {
        character c = splitting_look(text, end);
        if (!(c.class & UPPER)) {
            break;
        }
        end += c.length;
        if (c.class & LOWER) {
            last_lower_end = end;
        }
    }
    size_t lower_end = run_end(text, end, LOWER);
    return lower_end > end ? lower_end : last_lower_end;
}

/* UPPER+ LOWER*, where UPPER* LOWER+ did not match: there is no LOWER at all. */
static size_t words_upper_end(const split_text *text, size_t at)
{
    return run_end(text, at, UPPER);
}

static bool is_prefix(const word_pattern *p, character c)
{
    if (p->prefix == PREFIX_SPACE) {
        return c.code == ' ';
    }
    return (c.class & p->prefix_classes) != 0 && !is_line_end(c);
}

/* The end of the letters at `at`, with the prefix and then without. */
static size_t letters_end(const word_pattern *p, const split_text *text, size_t at,
                          size_t (*end_from)(const split_text *text, size_t at))
{
    character first = splitting_look(text, at);
    if (is_prefix(p, first)) {
        size_t end = end_from(text, at + first.length);
        if (end > at + first.length) {
            return end;
        }
    }
    return end_from(text, at);
}

static size_t match_cased(const word_pattern *p, const split_text *text, size_t at)
{
    size_t end = letters_end(p, text, at, words_lower_end);
    if (end == at) {
        end = letters_end(p, text, at, words_upper_end);
    }
    if (end > at && p->contractions == CONTRACTIONS_AFTER) {
        end += match_contraction(text, end, true);
    }
    return end - at;
}

static size_t match_letters(const word_pattern *p, const split_text *text, size_t at)
{
    if (p->has_case) {
        return match_cased(p, text, at);
    }
    character first = splitting_look(text, at);
    size_t end = at;
    if (is_prefix(p, first)) {
        end = run_end(text, at + first.length, p->letters);
        if (end > at + first.length) {
            return end - at;
        }
    }
    return run_end(text, at, p->letters) - at;
}

/* ---- the other alternatives ----------------------------------------------------------------- */

static size_t match_numbers(const word_pattern *p, const split_text *text, size_t at)
{
    character c = splitting_look(text, at);
    if (p->most_digits == 0) {
        size_t from = at + (c.code == ' ');
        size_t end = run_end(text, from, UNICODE_NUMBER);
        return end > from ? end - at : 0;
    }
    size_t end = at;
    for (uint32_t n = 0; n < p->most_digits && (c.class & UNICODE_NUMBER); n++) {
        end += c.length;
        c = splitting_look(text, end);
    }
    return end - at;
}

static size_t match_symbols(const word_pattern *p, const split_text *text, size_t at)
{
    size_t from = at + (splitting_look(text, at).code == ' ');
    size_t end = run_end(text, from, p->symbols);
    if (end == from) {
        return 0;
    }
    while (end < text->end && text->bytes[end] != '\0' &&
           strchr(p->tail, text->bytes[end]) != NULL) {
        end++;
    }
    return end - at;
}

static size_t match_spaces(const word_pattern *p, const split_text *text, size_t at)
{
    size_t end = at, last = at, lines_end = at; /* last: where the last character begins */
    for (;;) {
        character c = splitting_look(text, end);
        if (c.class != UNICODE_SPACE) {
            break;
        }
        last = end;
        end += c.length;
        if (is_line_end(c)) {
            lines_end = end;
        }
    }
    if (p->has_lines && lines_end > at) {
        return lines_end - at;
    }
    return (end < text->end && last > at ? last : end) - at;
}

static bool is_ascii_letter(uint32_t code)
{
    return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
}

static size_t match_ascii_prefix(const split_text *text, size_t at)
{
    character first = splitting_look(text, at);
    if (first.code >= 0x80 || !(first.class & (UNICODE_PUNCTUATION | UNICODE_SYMBOL))) {
        return 0;
    }
    size_t end = at + 1;
    while (is_ascii_letter(splitting_look(text, end).code)) {
        end++;
    }
    return end > at + 1 ? end - at : 0;
}

size_t splitting_match_words(const word_pattern *p, const split_text *text, size_t at)
{
    size_t n = p->has_ascii_prefix ? match_ascii_prefix(text, at) : 0;
    if (n == 0 &&
        (p->contractions == CONTRACTIONS_SMALL || p->contractions == CONTRACTIONS_ANY_CASE)) {
        n = match_contraction(text, at, p->contractions == CONTRACTIONS_ANY_CASE);
    }
    if (n == 0) {
        n = match_letters(p, text, at);
    }
    if (n == 0 && p->has_numbers) {
        n = match_numbers(p, text, at);
    }
    if (n == 0) {
        n = match_symbols(p, text, at);
    }
    return n > 0 ? n : match_spaces(p, text, at);
}
