/*
 * spm.c: byte-pair encoding by scores: the symbols of SentencePiece, joined by merging.h.
 *
 * A symbol is a stretch of the text; in the beginning each is one character (or one byte of what
 * is not UTF-8). Two neighbours may be joined if their joined text is a token, the highest score
 * first. A pair longer than the longest token is not even looked up, so that looking up costs no
 * more than the longest token for each candidate.
 *
 * In most vocabularies no token goes on past the end of a word: U+2581 only stands at its
 * beginning. Then no pair across such a place can ever be joined, and each word is merged by
 * itself, with the same result and in the room that the longest word needs.
 *
 * Fails only for want of memory.
 */
#include "tokenizer/spm.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/merging.h"
#include "tokenizer/utf8.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3

typedef struct spm_text {
    const vocabulary *vocabulary;
    char *text; /* with spaces replaced */
    merging merging;
} spm_text;

/* ---- symbols -------------------------------------------------------------------------------- */

static size_t count_spaces(const char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        n += text[i] == ' ';
    }
    return n;
}

/* The text with U+2581 for its spaces; *n its bytes. NULL: no memory. */
static char *replace_spaces(const char *text, size_t length, bool add_space, size_t *n)
{
    *n = length + (SPACE_BYTES - 1) * count_spaces(text, length) + (add_space ? SPACE_BYTES : 0);
    char *replaced = malloc(*n);
    char *to = replaced;
    if (to == NULL) {
        return NULL;
    }
    if (add_space) {
        memcpy(to, SPACE, SPACE_BYTES);
        to += SPACE_BYTES;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ') {
            memcpy(to, SPACE, SPACE_BYTES);
            to += SPACE_BYTES;
        } else {
            *to++ = text[i];
        }
    }
    return replaced;
}

/* Bytes of the character at `from`; 1 for what is no whole one. */
static size_t character_length(const char *text, size_t length, size_t from)
{
    size_t n;
    utf8_kind kind = utf8_scan((const unsigned char *)text + from, length - from, &n);
    return kind == UTF8_WHOLE ? n : 1;
}

/* Make the symbols of text[from..end). */
static bool split(spm_text *m, size_t from, size_t end)
{
    size_t n = 0;
    for (size_t at = from; at < end; n++) {
        at += character_length(m->text, end, at);
    }
    if (!merging_reserve(&m->merging, n)) {
        return false;
    }
    while (from < end) {
        size_t size = character_length(m->text, end, from);
        merging_append(&m->merging, (uint32_t)from, (uint32_t)size,
                       vocabulary_find(m->vocabulary, m->text + from, size));
        from += size;
    }
    return true;
}

static bool is_space_at(const spm_text *m, size_t at, size_t end)
{
    return end - at >= SPACE_BYTES && memcmp(m->text + at, SPACE, SPACE_BYTES) == 0;
}

/* Where the word that begins at `from` ends: before the next U+2581 that follows something else. */
static size_t word_end(const spm_text *m, size_t from, size_t end)
{
    if (m->vocabulary->has_inner_space) {
        return end;
    }
    while (is_space_at(m, from, end)) {
        from += SPACE_BYTES;
    }
    while (from < end && !is_space_at(m, from, end)) {
        from++;
    }
    return from;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Scores as numbers that sort the other way round: the highest score is the least. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 equals 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

static cellar_token pair(const void *context, const symbol *left, const symbol *right,
                         uint32_t *order)
{
    const spm_text *m = context;
    cellar_token id = vocabulary_find(m->vocabulary, m->text + left->start,
                                      left->length + right->length);
    *order = id >= 0 ? order_of(m->vocabulary->scores[id]) : 0;
    return id;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* One byte, or the unknown token for it. */
static bool append_byte(const spm_text *m, cellar_token unknown, unsigned char byte, id_list *ids)
{
    cellar_token id = m->vocabulary->byte_ids[byte];
    id = id >= 0 ? id : unknown;
    return id < 0 || id_list_append(ids, id);
}

/* A symbol that is no token. A space without a token is the byte 20, not those of U+2581. */
static bool append_bytes(const spm_text *m, cellar_token unknown, const symbol *s, id_list *ids)
{
    const char *text = m->text + s->start;
    if (is_space_at(m, s->start, s->start + s->length)) {
        return append_byte(m, unknown, ' ', ids);
    }
    for (uint32_t i = 0; i < s->length; i++) {
        if (m->vocabulary->byte_ids[(unsigned char)text[i]] < 0) {
            return unknown < 0 || id_list_append(ids, unknown); /* one for the whole character */
        }
    }
    for (uint32_t i = 0; i < s->length; i++) {
        if (!append_byte(m, unknown, (unsigned char)text[i], ids)) {
            return false;
        }
    }
    return true;
}

static bool append_symbols(const spm_text *m, cellar_token unknown, id_list *ids)
{
    const symbol *symbols = m->merging.symbols;
    for (uint32_t i = 0; i != MERGING_NONE; i = symbols[i].after) {
        const symbol *s = &symbols[i];
        bool is_done = s->id >= 0 ? id_list_append(ids, s->id) : append_bytes(m, unknown, s, ids);
        if (!is_done) {
            return false;
        }
    }
    return true;
}

cellar_status spm_encode(const vocabulary *v, cellar_token unknown, const char *text, size_t length,
                         bool add_space, id_list *ids, cellar_error *error)
{
    if (length == 0 && !add_space) {
        return CELLAR_OK;
    }
    size_t n;
    spm_text m = {.vocabulary = v, .text = replace_spaces(text, length, add_space, &n)};
    bool is_done = m.text != NULL;
    for (size_t from = 0, end; is_done && from < n; from = end) {
        end = word_end(&m, from, n);
        is_done = split(&m, from, end) && merging_run(&m.merging, pair, &m) &&
                  append_symbols(&m, unknown, ids);
    }
    merging_free(&m.merging);
    free(m.text);
    if (!is_done) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to tokenize %llu bytes",
                      (unsigned long long)length);
    }
    return CELLAR_OK;
}
