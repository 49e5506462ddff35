/*
 * vocabulary.c: read the tokens of a model and find them by their text.
 *
 * The lists of a file are believed only after they were held against each other: scores and types
 * must have the element type and the count that the texts call for, a score must be a number, a
 * type one of the known ones, a byte token's text exactly "<0xHH>".
 *
 * Look-up is an open-addressing table, at most half full, that keeps 32 bits of each text's hash
 * beside the id, so that texts are compared only when they are almost surely equal. A file could
 * be made so that all texts fall on one slot; building stops at MOST_PROBES steps and refuses it,
 * which keeps both building and finding linear.
 */
#include "tokenizer/vocabulary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_TYPES "tokenizer.ggml.token_type"

/* Random texts in a half full table of 2^25 slots stay below a hundred steps. */
#define MOST_PROBES 512u

/* ---- finding -------------------------------------------------------------------------------- */

/* The finaliser of splitmix64: every bit of the input reaches every bit of the result. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0x9e3779b97f4a7c15u + length;
    while (length > 0) {
        uint64_t word = 0;
        size_t n = length < sizeof word ? length : sizeof word;
        memcpy(&word, text, n);
        hash = mix(hash ^ word);
        text += n;
        length -= n;
    }
    return (uint32_t)(hash >> 32);
}

static bool has_text(const vocabulary *v, cellar_token id, const char *text, size_t length)
{
    return v->texts[id].length == length && memcmp(v->texts[id].data, text, length) == 0;
}

/* The slot that holds the text, or the empty one where it belongs; NULL after MOST_PROBES. */
static vocabulary_slot *probe(const vocabulary *v, uint32_t hash, const char *text, size_t length)
{
    for (uint32_t step = 0; step < MOST_PROBES; step++) {
        vocabulary_slot *slot = &v->slots[(hash + step) & v->slot_mask];
        if (slot->id < 0 || (slot->hash == hash && has_text(v, slot->id, text, length))) {
            return slot;
        }
    }
    return NULL;
}

cellar_token vocabulary_find(const vocabulary *v, const char *text, size_t length)
{
    if (length == 0 || length > v->longest_piece) {
        return -1;
    }
    const vocabulary_slot *slot = probe(v, hash_text(text, length), text, length);
    return slot == NULL ? -1 : slot->id;
}

/* Is there a U+2581 that neither begins the text nor follows another one? */
static bool has_inner_space(gguf_string text)
{
    for (size_t i = 1; i + 3 <= text.length; i++) {
        bool is_space = memcmp(text.data + i, "\xE2\x96\x81", 3) == 0;
        if (is_space && (i < 3 || memcmp(text.data + i - 3, "\xE2\x96\x81", 3) != 0)) {
            return true;
        }
    }
    return false;
}

static cellar_status build_table(vocabulary *v, cellar_error *error)
{
    uint32_t n_slots = 2;
    while (n_slots / 2 < v->n) { /* n < 2^24 by gguf.h, so this ends well below 2^32 */
        n_slots *= 2;
    }
    v->slots = malloc(n_slots * sizeof *v->slots);
    if (v->slots == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u tokens", (unsigned)v->n);
    }
    memset(v->slots, 0xff, n_slots * sizeof *v->slots); /* every id -1 */
    v->slot_mask = n_slots - 1;
    for (uint32_t i = 0; i < v->n; i++) {
        gguf_string text = v->texts[i];
        if (v->types[i] != TOKEN_NORMAL || text.length == 0) {
            continue;
        }
        uint32_t hash = hash_text(text.data, text.length);
        vocabulary_slot *slot = probe(v, hash, text.data, text.length);
        if (slot == NULL) {
            return report(error, CELLAR_CORRUPT, (int64_t)i,
                          KEY_TOKENS ": the texts are made to collide (token %u)", (unsigned)i);
        }
        if (slot->id < 0) {
            *slot = (vocabulary_slot){.hash = hash, .id = (cellar_token)i};
        }
        v->longest_piece = text.length > v->longest_piece ? text.length : v->longest_piece;
        v->has_inner_space = v->has_inner_space || has_inner_space(text);
    }
    return CELLAR_OK;
}

/* ---- byte tokens ---------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int vocabulary_parse_byte(gguf_string text)
{
    if (text.length != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') {
        return -1;
    }
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

unsigned char vocabulary_byte(const vocabulary *v, cellar_token id)
{
    return (unsigned char)vocabulary_parse_byte(v->texts[id]);
}

static cellar_status find_byte_tokens(vocabulary *v, cellar_error *error)
{
    for (int i = 0; i < 256; i++) {
        v->byte_ids[i] = -1;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->types[i] != TOKEN_BYTE) {
            continue;
        }
        int byte = vocabulary_parse_byte(v->texts[i]);
        if (byte < 0) {
            return report(error, CELLAR_CORRUPT, (int64_t)i,
                          KEY_TOKENS "[%u] has the type of a byte but is not written as <0xHH>",
                          (unsigned)i);
        }
        if (v->byte_ids[byte] < 0) {
            v->byte_ids[byte] = (cellar_token)i;
        }
    }
    return CELLAR_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* As gguf_get_array, but a list that is not there is a fault of the file. */
static cellar_status need_array(const gguf_file *file, const char *key, gguf_type element,
                                uint64_t count, const gguf_value **out, cellar_error *error)
{
    cellar_status status = gguf_get_array(file, key, element, count, out, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(error, CELLAR_CORRUPT, -1, "no key %s", key);
    }
    return status;
}

static cellar_status read_texts(const gguf_file *file, vocabulary *v, cellar_error *error)
{
    const gguf_value *value = NULL;
    cellar_status status = need_array(file, KEY_TOKENS, GGUF_STRING, 0, &value, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (value->count < 1 || value->count > INT32_MAX / 4) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      KEY_TOKENS " has %llu entries, at least one and at most 2^29 are possible",
                      (unsigned long long)value->count);
    }
    v->n = (uint32_t)value->count;
    v->texts = value->strings;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->texts[i].length > VOCABULARY_LONGEST_TEXT) {
            return report(error, CELLAR_CORRUPT, (int64_t)i,
                          KEY_TOKENS "[%u] has %llu bytes, the most is %u", (unsigned)i,
                          (unsigned long long)v->texts[i].length, VOCABULARY_LONGEST_TEXT);
        }
    }
    return CELLAR_OK;
}

/*
 * The byte that an escaped text has at text[*at], which moves behind it; -1: it is not well formed.
 */
static int unescape(gguf_string text, size_t *at)
{
    static const char letters[] = "tnr\\'\"", bytes[] = "\t\n\r\\'\"";
    char c = text.data[(*at)++];
    if (c != '\\') {
        return (unsigned char)c;
    }
    if (*at == text.length) {
        return -1;
    }
    c = text.data[(*at)++];
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    if (letter != NULL) {
        return bytes[letter - letters];
    }
    if (c != 'x' || text.length - *at < 2) {
        return -1;
    }
    int high = hex_digit(text.data[*at]), low = hex_digit(text.data[*at + 1]);
    *at += 2;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Replace the texts by what their escapes mean. Texts of tokens that are not normal stay. */
static cellar_status unescape_texts(vocabulary *v, cellar_error *error)
{
    size_t n_bytes = 1;
    for (uint32_t i = 0; i < v->n; i++) {
        n_bytes += v->texts[i].length;
    }
    v->own_texts = malloc(v->n * sizeof *v->own_texts);
    v->own_bytes = malloc(n_bytes);
    if (v->own_texts == NULL || v->own_bytes == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u texts", (unsigned)v->n);
    }
    char *to = v->own_bytes;
    for (uint32_t i = 0; i < v->n; i++) {
        gguf_string text = v->texts[i];
        v->own_texts[i] = text;
        if (v->types[i] != TOKEN_NORMAL) {
            continue;
        }
        v->own_texts[i].data = to;
        for (size_t at = 0; at < text.length;) {
            int byte = unescape(text, &at);
            if (byte < 0) {
                return report(error, CELLAR_CORRUPT, (int64_t)i,
                              KEY_TOKENS "[%u] has a backslash that begins no escape", (unsigned)i);
            }
            *to++ = (char)byte;
        }
        v->own_texts[i].length = (size_t)(to - v->own_texts[i].data);
    }
    v->texts = v->own_texts;
    return CELLAR_OK;
}

static cellar_status read_scores(const gguf_file *file, vocabulary *v, cellar_error *error)
{
    const gguf_value *value = NULL;
    cellar_status status = need_array(file, KEY_SCORES, GGUF_FLOAT32, v->n, &value, error);
    if (status != CELLAR_OK) {
        return status;
    }
    v->scores = malloc(v->n * sizeof *v->scores);
    if (v->scores == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u scores", (unsigned)v->n);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        v->scores[i] = (float)gguf_number_at(value, i);
        if (isnan(v->scores[i])) {
            return report(error, CELLAR_CORRUPT, (int64_t)i, KEY_SCORES "[%u] is not a number",
                          (unsigned)i);
        }
    }
    return CELLAR_OK;
}

static cellar_status read_types(const gguf_file *file, bool must_be_there, vocabulary *v,
                                cellar_error *error)
{
    const gguf_value *value = gguf_find_value(file, KEY_TYPES);
    bool is_there = value != NULL || must_be_there;
    /* Writers differ over the sign; the numbers are the same. */
    bool is_unsigned = value != NULL && value->element_type == GGUF_UINT32;
    if (is_there) {
        cellar_status status = need_array(file, KEY_TYPES, is_unsigned ? GGUF_UINT32 : GGUF_INT32,
                                          v->n, &value, error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    v->types = malloc(v->n);
    if (v->types == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u types", (unsigned)v->n);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t type = is_there ? gguf_integer_at(value, i) : TOKEN_NORMAL;
        if (type < 0 || type > TOKEN_BYTE) {
            return report(error, CELLAR_CORRUPT, (int64_t)i, KEY_TYPES "[%u] is %lld, not in 0..6",
                          (unsigned)i, (long long)type);
        }
        v->types[i] = type == 0 ? TOKEN_NORMAL : (uint8_t)type;
    }
    return CELLAR_OK;
}

cellar_status vocabulary_read(const gguf_file *file, vocabulary_wishes wishes, vocabulary *v,
                              cellar_error *error)
{
    memset(v, 0, sizeof *v);
    cellar_status status = read_texts(file, v, error);
    if (status == CELLAR_OK && wishes.scores) {
        status = read_scores(file, v, error);
    }
    if (status == CELLAR_OK) {
        status = read_types(file, wishes.scores, v, error);
    }
    if (status == CELLAR_OK && wishes.is_escaped) {
        status = unescape_texts(v, error);
    }
    if (status == CELLAR_OK) {
        status = find_byte_tokens(v, error);
    }
    if (status == CELLAR_OK) {
        status = build_table(v, error);
    }
    if (status != CELLAR_OK) {
        vocabulary_free(v);
    }
    return status;
}

void vocabulary_free(vocabulary *v)
{
    free(v->scores);
    free(v->types);
    free(v->slots);
    free(v->own_texts);
    free(v->own_bytes);
    memset(v, 0, sizeof *v);
}
