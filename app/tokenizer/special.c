/*
 * special.c: find user-defined and control tokens that are written out in a text.
 *
 * The texts are kept sorted. Every one that is a beginning of what stands at a place sorts at or
 * before it, and so does everything between the two begin with it. So one binary search finds the
 * last text that is not after the place, and the answer is that one or one of its own beginnings;
 * those are linked from longest to shortest (`inner`). How many bytes the found text shares with
 * the place says which of them fit.
 *
 *     <s>      <- inner of <s>a and <s>b          at "<s>x" the search ends on <s>b, which shares
 *     <s>a                                        three bytes: too short for itself, right for <s>
 *     <s>b
 *
 * Fails only for want of memory, when it is made.
 */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

/* What the comparison of qsort needs. */
typedef struct sortable {
    gguf_string text;
    cellar_token id;
    bool is_control; /* or unknown: looked for only when asked */
} sortable;

static bool is_special(const vocabulary *v, uint32_t id)
{
    uint8_t type = v->types[id];
    bool is_kind = type == TOKEN_USER_DEFINED || type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
    return is_kind && v->texts[id].length >= 1 && v->texts[id].length <= SPECIAL_LONGEST_TEXT;
}

static bool is_control(const vocabulary *v, cellar_token id)
{
    return v->types[id] != TOKEN_USER_DEFINED;
}

static int compare_texts(gguf_string a, gguf_string b)
{
    int order = memcmp(a.data, b.data, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

/*
 * By text. The search ends on the last of equal ones: user-defined tokens follow control tokens,
 * and the lowest id follows all others of its kind.
 */
static int compare_sortables(const void *left, const void *right)
{
    const sortable *a = left, *b = right;
    int order = compare_texts(a->text, b->text);
    if (order == 0) {
        order = b->is_control - a->is_control;
    }
    return order != 0 ? order : (a->id < b->id) - (a->id > b->id);
}

static bool begins_with(gguf_string text, gguf_string beginning)
{
    return text.length >= beginning.length &&
           memcmp(text.data, beginning.data, beginning.length) == 0;
}

/* Can it never be found, because the next one has the same text and kind? */
static bool is_hidden(const sortable *s, const sortable *next)
{
    return s->is_control == next->is_control && compare_texts(s->text, next->text) == 0;
}

/* Move the sorted texts into the entries, link their beginnings, and index them by first byte. */
static void link_entries(special_texts *specials, const sortable *sorted, uint32_t n_sorted)
{
    const vocabulary *v = specials->vocabulary;
    for (uint32_t i = 0; i < n_sorted; i++) {
        if (i + 1 < n_sorted && is_hidden(&sorted[i], &sorted[i + 1])) {
            continue;
        }
        int32_t inner = (int32_t)specials->n - 1;
        while (inner >= 0 && !begins_with(sorted[i].text, v->texts[specials->entries[inner].id])) {
            inner = specials->entries[inner].inner;
        }
        specials->entries[specials->n++] = (special_text){.id = sorted[i].id, .inner = inner};
        specials->first[(unsigned char)sorted[i].text.data[0] + 1] = specials->n;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (specials->first[byte + 1] < specials->first[byte]) {
            specials->first[byte + 1] = specials->first[byte]; /* none begins with it */
        }
    }
}

cellar_status special_create(const vocabulary *v, special_texts *specials, cellar_error *error)
{
    memset(specials, 0, sizeof *specials);
    specials->vocabulary = v;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        n += is_special(v, i);
    }
    if (n == 0) {
        return CELLAR_OK;
    }
    sortable *sorted = malloc(n * sizeof *sorted);
    specials->entries = malloc(n * sizeof *specials->entries);
    if (sorted == NULL || specials->entries == NULL) {
        free(sorted);
        special_free(specials);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u special tokens", (unsigned)n);
    }
    for (uint32_t i = 0, to = 0; i < v->n; i++) {
        if (is_special(v, i)) {
            sorted[to++] = (sortable){v->texts[i], (cellar_token)i, is_control(v, (cellar_token)i)};
        }
    }
    qsort(sorted, n, sizeof *sorted, compare_sortables);
    link_entries(specials, sorted, n);
    free(sorted);
    return CELLAR_OK;
}

void special_free(special_texts *specials)
{
    free(specials->entries);
    memset(specials, 0, sizeof *specials);
}

/* ---- searching ------------------------------------------------------------------------------ */

static size_t count_shared_bytes(gguf_string a, gguf_string b)
{
    size_t n = 0;
    while (n < a.length && n < b.length && a.data[n] == b.data[n]) {
        n++;
    }
    return n;
}

/* The longest special token with which `place` begins, or -1. */
static cellar_token match(const special_texts *specials, gguf_string place, bool with_control)
{
    const vocabulary *v = specials->vocabulary;
    unsigned char byte = (unsigned char)place.data[0];
    uint32_t low = specials->first[byte], high = specials->first[byte + 1], begin = low;
    while (low < high) { /* all before low sort at or before the place, all from high on after it */
        uint32_t middle = low + (high - low) / 2;
        if (compare_texts(v->texts[specials->entries[middle].id], place) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == begin) {
        return -1;
    }
    int32_t entry = (int32_t)low - 1;
    size_t shared = count_shared_bytes(v->texts[specials->entries[entry].id], place);
    for (; entry >= 0; entry = specials->entries[entry].inner) {
        cellar_token id = specials->entries[entry].id;
        if (v->texts[id].length <= shared && (with_control || !is_control(v, id))) {
            return id;
        }
    }
    return -1;
}

cellar_token special_find(const special_texts *specials, const char *text, size_t length,
                          size_t from, bool with_control, size_t *at)
{
    for (size_t i = from; i < length && specials->n > 0; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (specials->first[byte] == specials->first[byte + 1]) {
            continue;
        }
        cellar_token id = match(specials, (gguf_string){text + i, length - i}, with_control);
        if (id >= 0) {
            *at = i;
            return id;
        }
    }
    *at = length;
    return -1;
}
