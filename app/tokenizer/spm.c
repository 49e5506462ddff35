/*
 * spm.c: byte-pair encoding by scores, with a heap of candidate pairs over a linked list of
 * symbols.
 *
 * A symbol is a stretch of the text; in the beginning each is one character (or one byte of what
 * is not UTF-8). A symbol that was merged into its left neighbour has length 0. A candidate names
 * its left symbol and how many bytes the pair would have together.
 *
 *   1. offer each pair of neighbours whose joined text is a token
 *   2. take the best candidate; it is stale if its left symbol is gone or the pair no longer has
 *      that length (symbols only grow, so equal length means the same stretch of text)
 *   3. join the two; offer the new symbol with its right and with its left neighbour; back to 2
 *
 * Each merge takes one candidate off and adds at most two, so there are never more than 2n, and
 * the whole costs O(n log n). A pair longer than the longest token is not even looked up, so that
 * looking up costs no more than the longest token for each candidate.
 *
 * In most vocabularies no token goes on past the end of a word: U+2581 only stands at its
 * beginning. Then no pair across such a place can ever be joined, and each word is merged by
 * itself, with the same result and in the room that the longest word needs.
 *
 * Fails only for want of memory.
 */
#include "tokenizer/spm.h"

#include <string.h>

#include "report.h"
#include "tokenizer/utf8.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define SPACE_BYTES 3

typedef struct symbol {
    uint32_t start, length; /* bytes of the text; length 0: merged into another symbol */
    uint32_t before, after; /* neighbours, or NONE */
    cellar_token id;        /* of this text, or -1 */
} symbol;

#define NONE UINT32_MAX

typedef struct candidate {
    float score;
    uint32_t left;   /* symbol */
    uint32_t length; /* bytes of both */
    cellar_token id; /* of both */
} candidate;

typedef struct merging {
    const vocabulary *vocabulary;
    char *text;      /* with spaces replaced */
    symbol *symbols; /* of one word, or of all */
    uint32_t n_symbols, symbols_capacity;
    candidate *heap; /* the best first */
    size_t n_heap, heap_capacity;
} merging;

/* ---- the heap ------------------------------------------------------------------------------- */

static bool is_better(const candidate *a, const candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static bool heap_push(merging *m, candidate added)
{
    if (m->n_heap == m->heap_capacity) {
        size_t capacity = m->heap_capacity < 64 ? 64 : m->heap_capacity + m->heap_capacity / 2;
        if (capacity > SIZE_MAX / sizeof *m->heap) {
            return false;
        }
        candidate *heap = realloc(m->heap, capacity * sizeof *heap);
        if (heap == NULL) {
            return false;
        }
        m->heap = heap;
        m->heap_capacity = capacity;
    }
    size_t i = m->n_heap++;
    while (i > 0 && is_better(&added, &m->heap[(i - 1) / 2])) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = added;
    return true;
}

static candidate heap_pop(merging *m)
{
    candidate best = m->heap[0], moving = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < m->n_heap; child = 2 * i + 1) {
        if (child + 1 < m->n_heap && is_better(&m->heap[child + 1], &m->heap[child])) {
            child++;
        }
        if (!is_better(&m->heap[child], &moving)) {
            break;
        }
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = moving;
    return best;
}

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

static bool reserve_symbols(merging *m, size_t n)
{
    if (n <= m->symbols_capacity) {
        return true;
    }
    if (n > SIZE_MAX / sizeof *m->symbols) {
        return false;
    }
    free(m->symbols); /* what they held is done with */
    m->symbols = malloc(n * sizeof *m->symbols);
    m->symbols_capacity = m->symbols != NULL ? (uint32_t)n : 0;
    return m->symbols != NULL;
}

/* Make the symbols of text[from..end). */
static bool split(merging *m, size_t from, size_t end)
{
    size_t n = 0;
    for (size_t at = from; at < end; n++) {
        at += character_length(m->text, end, at);
    }
    if (!reserve_symbols(m, n)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t size = character_length(m->text, end, from);
        m->symbols[i] = (symbol){
            .start = (uint32_t)from,
            .length = (uint32_t)size,
            .before = i > 0 ? i - 1 : NONE,
            .after = i + 1 < n ? i + 1 : NONE,
            .id = vocabulary_find(m->vocabulary, m->text + from, size),
        };
        from += size;
    }
    m->n_symbols = (uint32_t)n;
    return true;
}

static bool is_space_at(const merging *m, size_t at, size_t end)
{
    return end - at >= SPACE_BYTES && memcmp(m->text + at, SPACE, SPACE_BYTES) == 0;
}

/* Where the word that begins at `from` ends: before the next U+2581 that follows something else. */
static size_t word_end(const merging *m, size_t from, size_t end)
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

/* Make the pair (left, its right neighbour) a candidate, if together it is a token. */
static bool offer(merging *m, uint32_t left)
{
    const symbol *a = &m->symbols[left];
    if (a->after == NONE) {
        return true;
    }
    uint32_t length = a->length + m->symbols[a->after].length;
    cellar_token id = vocabulary_find(m->vocabulary, m->text + a->start, length);
    if (id < 0) {
        return true;
    }
    return heap_push(m, (candidate){m->vocabulary->scores[id], left, length, id});
}

static bool is_stale(const merging *m, const candidate *c)
{
    const symbol *left = &m->symbols[c->left];
    return left->length == 0 || left->after == NONE ||
           left->length + m->symbols[left->after].length != c->length;
}

static void join(merging *m, const candidate *c)
{
    symbol *left = &m->symbols[c->left], *right = &m->symbols[left->after];
    left->length = c->length;
    left->id = c->id;
    left->after = right->after;
    right->length = 0;
    if (left->after != NONE) {
        m->symbols[left->after].before = c->left;
    }
}

static bool merge(merging *m)
{
    for (uint32_t i = 0; i < m->n_symbols; i++) {
        if (!offer(m, i)) {
            return false;
        }
    }
    while (m->n_heap > 0) {
        candidate best = heap_pop(m);
        if (is_stale(m, &best)) {
            continue;
        }
        join(m, &best);
        uint32_t before = m->symbols[best.left].before;
        if (!offer(m, best.left) || (before != NONE && !offer(m, before))) {
            return false;
        }
    }
    return true;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* One byte, or the unknown token for it. */
static bool append_byte(const merging *m, cellar_token unknown, unsigned char byte, id_list *ids)
{
    cellar_token id = m->vocabulary->byte_ids[byte];
    id = id >= 0 ? id : unknown;
    return id < 0 || id_list_append(ids, id);
}

/* A symbol that is no token. A space without a token is the byte 20, not those of U+2581. */
static bool append_bytes(const merging *m, cellar_token unknown, const symbol *s, id_list *ids)
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

static bool append_symbols(const merging *m, cellar_token unknown, id_list *ids)
{
    for (uint32_t i = 0; i != NONE; i = m->symbols[i].after) {
        const symbol *s = &m->symbols[i];
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
    merging m = {.vocabulary = v, .text = replace_spaces(text, length, add_space, &n)};
    bool is_done = m.text != NULL;
    for (size_t from = 0, end; is_done && from < n; from = end) {
        end = word_end(&m, from, n);
        is_done = split(&m, from, end) && merge(&m) && append_symbols(&m, unknown, ids);
    }
    free(m.heap);
    free(m.symbols);
    free(m.text);
    if (!is_done) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to tokenize %llu bytes",
                      (unsigned long long)length);
    }
    return CELLAR_OK;
}
