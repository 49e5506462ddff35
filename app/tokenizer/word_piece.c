/*
 * word_piece.c: clean a text, cut it into words, and words into tokens.
 *
 * One pass over the characters: each is dropped, ends the word, is a word by itself, or is added to
 * the word, which lies in a buffer of fixed size. Accents are taken off by form D (normal_form.h),
 * in which they are marks of their own.
 *
 * A word is looked up with U+2581 before it, so that the first token is one that begins words. A
 * later token must not begin with U+2581 though a word may hold that character: it would be a
 * token for the beginning of another word. Fails only for want of memory.
 */
#include "tokenizer/word_piece.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3u
#define REPLACEMENT 0xFFFDu

/* ---- characters ----------------------------------------------------------------------------- */

static bool is_mark(uint32_t code)
{
    uint32_t low = 0, high = word_piece_n_marks;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (word_piece_marks[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < word_piece_n_marks && word_piece_marks[low].first <= code;
}

static uint32_t small_letter(uint32_t code)
{
    uint32_t low = 0, high = word_piece_n_capitals;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (word_piece_capitals[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const word_piece_case *run = &word_piece_capitals[low];
    if (low == word_piece_n_capitals || code < run->first || (code - run->first) % run->step != 0) {
        return code;
    }
    return (uint32_t)((int32_t)code + run->distance);
}

/* The blocks of ideographs that BERT sets apart; kana and Hangul are written in words. */
static bool is_chinese(uint32_t code)
{
    static const word_piece_run blocks[] = {
        {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
        {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (code >= blocks[i].first && code <= blocks[i].last) {
            return true;
        }
    }
    return false;
}

/* Controls and their like, though Unicode calls some of them white space. */
static bool is_dropped(uint32_t code, uint32_t class)
{
    return class == UNICODE_OTHER || code == REPLACEMENT || code == 0x0B || code == 0x0C ||
           code == 0x85;
}

static bool is_punctuation(uint32_t code, uint32_t class)
{
    const bool is_ascii_symbol = code < 0x80 && class == UNICODE_SYMBOL;
    return class == UNICODE_PUNCTUATION || is_ascii_symbol;
}

/* ---- words ---------------------------------------------------------------------------------- */

typedef struct cutting {
    const prefix_set *tokens;
    cellar_token unknown;
    bool is_cased;
    id_list *ids;
    uint32_t n_characters;                           /* of the word, also those beyond the most */
    size_t n;                                        /* bytes in it */
    char word[SPACE_BYTES + 4 * WORD_PIECE_LONGEST]; /* U+2581 first */
} cutting;

/* Bytes of the token at word[at..), and its id; 0: none. */
static size_t find_piece(const cutting *c, size_t at, cellar_token *id)
{
    const int32_t entry = prefix_set_find(c->tokens, c->word + at, c->n - at);
    if (entry < 0) {
        return 0;
    }
    *id = c->tokens->entries[entry].id;
    const gguf_string text = c->tokens->vocabulary->texts[*id];
    const bool begins = text.length >= SPACE_BYTES && memcmp(text.data, SPACE, SPACE_BYTES) == 0;
    const bool is_fitting = at == 0 ? text.length > SPACE_BYTES : !begins;
    return is_fitting ? text.length : 0;
}

static bool cut_word(cutting *c)
{
    const size_t n_before = c->ids->n;
    bool is_done = true, is_known = c->n_characters <= WORD_PIECE_LONGEST;
    for (size_t at = 0, n; at < c->n && is_done && is_known; at += n) {
        cellar_token id = -1;
        n = find_piece(c, at, &id);
        is_known = n > 0;
        is_done = !is_known || id_list_append(c->ids, id);
    }
    if (!is_known) {
        c->ids->n = n_before;
        is_done = c->unknown < 0 || id_list_append(c->ids, c->unknown);
    }
    return is_done;
}

static bool end_word(cutting *c)
{
    const bool is_done = c->n_characters == 0 || cut_word(c);
    c->n_characters = 0;
    c->n = SPACE_BYTES;
    return is_done;
}

static void add_character(cutting *c, uint32_t code)
{
    if (++c->n_characters <= WORD_PIECE_LONGEST) {
        c->n += utf8_put(code, c->word + c->n);
    }
}

static bool take_character(cutting *c, uint32_t code)
{
    const uint32_t class = unicode_class(code);
    if (is_dropped(code, class)) {
        return true;
    }
    if (class == UNICODE_SPACE) {
        return end_word(c);
    }
    if (is_punctuation(code, class) || is_chinese(code)) {
        if (!end_word(c)) {
            return false;
        }
        add_character(c, code);
        return end_word(c);
    }
    if (c->is_cased || !is_mark(code)) {
        add_character(c, c->is_cased ? code : small_letter(code));
    }
    return true;
}

/* ---- texts ---------------------------------------------------------------------------------- */

bool word_piece_has_capitals(const vocabulary *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        const gguf_string text = v->texts[i];
        for (size_t at = 0, n; v->types[i] == TOKEN_NORMAL && at < text.length; at += n) {
            const unsigned char *bytes = (const unsigned char *)text.data + at;
            const bool is_whole = utf8_scan(bytes, text.length - at, &n) == UTF8_WHOLE;
            if (is_whole && unicode_class(utf8_code(bytes, n)) == UNICODE_LU) {
                return true;
            }
        }
    }
    return false;
}

cellar_status word_piece_encode(const prefix_set *tokens, cellar_token unknown, bool is_cased,
                                const char *text, size_t length, id_list *ids, cellar_error *error)
{
    char *apart = NULL;
    size_t n = 0;
    if (!is_cased) {
        cellar_status status = normal_form_make(NORMAL_FORM_D, text, length, &apart, &n, error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    const unsigned char *bytes = (const unsigned char *)(apart != NULL ? apart : text);
    const size_t end = apart != NULL ? n : length;
    cutting c = {.tokens = tokens, .unknown = unknown, .is_cased = is_cased, .ids = ids};
    memcpy(c.word, SPACE, SPACE_BYTES);
    bool is_done = end_word(&c);
    for (size_t at = 0, size; at < end && is_done; at += size) {
        if (utf8_scan(bytes + at, end - at, &size) == UTF8_WHOLE) {
            is_done = take_character(&c, utf8_code(bytes + at, size));
        }
    }
    is_done = is_done && end_word(&c);
    free(apart);
    return is_done ? CELLAR_OK
                   : report(error, CELLAR_NO_MEMORY, -1, "no memory to tokenize %llu bytes",
                            (unsigned long long)length);
}
