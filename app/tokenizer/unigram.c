/*
 * unigram.c: the best way to write a text as tokens, by dynamic programming (Viterbi).
 *
 * For each place where a character begins, in order, the best way to get there is known. Every
 * token that begins there offers a way to the place where it ends, and so does, at a score below
 * all tokens, the character by itself where no token is just that. The best way to the end is then
 * followed back. Of equal scores the one found first stays: the token that begins earlier.
 *
 *     place:   0 ──"ab"──> 2 ──"c"──> 3      best[3] = max(best[2] + score("c"),
 *              0 ──"a"──> 1 ──"bc"──> 3                    best[1] + score("bc"))
 *
 * Fails only for want of memory.
 */
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/utf8.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3
#define LONGEST_TEXT ((size_t)1 << 31)
#define UNKNOWN_PENALTY 10.0

/* ---- reading -------------------------------------------------------------------------------- */

static cellar_status read_charsmap(const gguf_file *file, charsmap *map, cellar_error *error)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const gguf_value *value = gguf_find_value(file, key);
    if (value == NULL) {
        return charsmap_read(NULL, 0, map, error);
    }
    const bool is_signed = value->element_type == GGUF_INT8; /* writers differ over the sign */
    cellar_status status = gguf_get_array(file, key, is_signed ? GGUF_INT8 : GGUF_UINT8, 0, &value,
                                          error);
    if (status == CELLAR_OK) {
        status = charsmap_read(value->data, (size_t)value->count, map, error);
    }
    return status;
}

static double lowest_score(const vocabulary *v)
{
    double lowest = INFINITY;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->types[i] == TOKEN_NORMAL && v->scores[i] < lowest && !isinf(v->scores[i])) {
            lowest = v->scores[i];
        }
    }
    return isinf(lowest) ? 0.0 : lowest;
}

cellar_status unigram_create(const gguf_file *file, const vocabulary *v, unigram *out,
                             cellar_error *error)
{
    memset(out, 0, sizeof *out);
    out->removes_spaces = true;
    out->unknown_score = lowest_score(v) - UNKNOWN_PENALTY;
    cellar_status status = gguf_get_bool(file, "tokenizer.ggml.remove_extra_whitespaces",
                                         &out->removes_spaces, error);
    if (status == CELLAR_OK || status == CELLAR_NOT_FOUND) {
        status = read_charsmap(file, &out->map, error);
    }
    if (status == CELLAR_OK) {
        status = prefix_set_create(v, 1u << TOKEN_NORMAL, &out->tokens, error);
    }
    return status;
}

void unigram_free(unigram *u)
{
    prefix_set_free(&u->tokens);
    memset(u, 0, sizeof *u);
}

/* ---- normalising ---------------------------------------------------------------------------- */

typedef struct growing_text {
    char *bytes;
    size_t n, capacity;
    bool has_failed;
} growing_text;

static void put(growing_text *to, const char *bytes, size_t n)
{
    if (!to->has_failed && n > to->capacity - to->n) {
        const size_t capacity = 2 * to->capacity + n + 64;
        char *grown = capacity <= LONGEST_TEXT ? realloc(to->bytes, capacity) : NULL;
        to->has_failed = grown == NULL;
        to->bytes = grown != NULL ? grown : to->bytes;
        to->capacity = grown != NULL ? capacity : to->capacity;
    }
    if (!to->has_failed) {
        memcpy(to->bytes + to->n, bytes, n);
        to->n += n;
    }
}

/* Put what one step of normalising gave; returns whether it ends with a space. */
static bool put_normal(growing_text *to, const char *part, size_t n, bool skips_spaces, bool was)
{
    while (skips_spaces && was && n > 0 && *part == ' ') {
        part++;
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        const bool is_space = part[i] == ' ';
        put(to, is_space ? SPACE : part + i, is_space ? SPACE_BYTES : 1);
    }
    return n > 0 ? part[n - 1] == ' ' : was;
}

static bool ends_with_space(const growing_text *text)
{
    return text->n >= SPACE_BYTES &&
           memcmp(text->bytes + text->n - SPACE_BYTES, SPACE, SPACE_BYTES) == 0;
}

/* Nothing at all becomes of a text without anything but spaces that are removed. */
static growing_text normalise(const unigram *u, const char *text, size_t length, bool add_space)
{
    growing_text to = {.n = 0};
    size_t at = 0, n, used;
    bool is_after_space = true, is_empty = true;
    while (at < length) {
        const char *part = charsmap_next(&u->map, text + at, length - at, &n, &used);
        if (is_empty && (n > 0 && (!u->removes_spaces || n != 1 || *part != ' '))) {
            is_empty = false;
            if (add_space) {
                put(&to, SPACE, SPACE_BYTES);
            }
        }
        if (!is_empty) {
            is_after_space = put_normal(&to, part, n, u->removes_spaces, is_after_space);
        }
        at += used;
    }
    while (u->removes_spaces && ends_with_space(&to)) {
        to.n -= SPACE_BYTES;
    }
    return to;
}

/* ---- the best way --------------------------------------------------------------------------- */

typedef struct way {
    double score;    /* of the best way to this place, -INFINITY: there is none */
    uint32_t from;   /* where its last step begins */
    cellar_token id; /* that step; -1: a character that is no token */
} way;

static void offer(way *to, double score, size_t from, cellar_token id)
{
    if (score > to->score) {
        *to = (way){score, (uint32_t)from, id};
    }
}

static size_t character_length(const char *text, size_t length)
{
    size_t n;
    return utf8_scan((const unsigned char *)text, length, &n) == UTF8_WHOLE ? n : 1;
}

/* Fill ways[0..n], where ways[i] leads to text[i]. */
static void find_ways(const unigram *u, const char *text, size_t n, way *ways, uint64_t *steps)
{
    const vocabulary *v = u->tokens.vocabulary;
    for (size_t i = 0; i <= n; i++) {
        ways[i] = (way){-INFINITY, 0, -1};
    }
    ways[0].score = 0.0;
    for (size_t at = 0; at < n;) {
        const size_t size = character_length(text + at, n - at);
        bool is_token = false;
        int32_t entry = prefix_set_find(&u->tokens, text + at, n - at);
        for (; entry >= 0; entry = u->tokens.entries[entry].inner) {
            const cellar_token id = u->tokens.entries[entry].id;
            const size_t length = v->texts[id].length;
            is_token = is_token || length == size;
            offer(&ways[at + length], ways[at].score + (double)v->scores[id], at, id);
            ++*steps;
        }
        if (!is_token) {
            offer(&ways[at + size], ways[at].score + u->unknown_score, at, -1);
        }
        ++*steps;
        at += size;
    }
}

/* Turn the links round, so that each place of the best way says where its step ends. */
static void turn_round(way *ways, size_t n)
{
    size_t to = n;
    way step = ways[n];
    while (to > 0) {
        const size_t from = step.from;
        const way before = ways[from];
        ways[from] = (way){0.0, (uint32_t)to, step.id};
        step = before;
        to = from;
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

/* A character that is no token: its bytes, if all have tokens, else unknown, once for a run. */
static bool append_character(const vocabulary *v, cellar_token unknown, const char *text, size_t n,
                             bool *was_unknown, id_list *ids)
{
    bool has_bytes = true;
    for (size_t i = 0; i < n; i++) {
        has_bytes = has_bytes && v->byte_ids[(unsigned char)text[i]] >= 0;
    }
    if (!has_bytes) {
        const bool is_said = *was_unknown || unknown < 0;
        *was_unknown = true;
        return is_said || id_list_append(ids, unknown);
    }
    *was_unknown = false;
    for (size_t i = 0; i < n; i++) {
        if (!id_list_append(ids, v->byte_ids[(unsigned char)text[i]])) {
            return false;
        }
    }
    return true;
}

static bool append_way(const vocabulary *v, cellar_token unknown, const char *text, size_t n,
                       const way *ways, id_list *ids)
{
    bool is_done = true, was_unknown = false;
    for (size_t at = 0; at < n && is_done; at = ways[at].from) {
        if (ways[at].id >= 0) {
            was_unknown = false;
            is_done = id_list_append(ids, ways[at].id);
        } else {
            is_done = append_character(v, unknown, text + at, ways[at].from - at, &was_unknown,
                                       ids);
        }
    }
    return is_done;
}

cellar_status unigram_encode(const unigram *u, cellar_token unknown, const char *text,
                             size_t length, bool add_space, id_list *ids, uint64_t *steps,
                             cellar_error *error)
{
    growing_text normal = normalise(u, text, length, add_space);
    const size_t n = normal.n;
    uint64_t n_steps = 0;
    bool is_done = !normal.has_failed;
    way *ways = NULL;
    if (is_done && n > 0 && n < SIZE_MAX / sizeof *ways) {
        ways = malloc((n + 1) * sizeof *ways);
    }
    if (ways != NULL) {
        find_ways(u, normal.bytes, n, ways, &n_steps);
        turn_round(ways, n);
        is_done = append_way(u->tokens.vocabulary, unknown, normal.bytes, n, ways, ids);
    } else {
        is_done = is_done && n == 0;
    }
    if (steps != NULL) {
        *steps += n_steps;
    }
    free(ways);
    free(normal.bytes);
    if (!is_done) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to tokenize %llu bytes",
                      (unsigned long long)length);
    }
    return CELLAR_OK;
}
