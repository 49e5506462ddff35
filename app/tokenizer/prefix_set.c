/*
 * prefix_set.c: which tokens a text begins with.
 *
 * The texts are kept sorted. Every one that is a beginning of what stands at a place sorts at or
 * before it, and so does everything between the two begin with it. So one binary search finds the
 * last text that is not after the place, and the answers are that one or its own beginnings; those
 * are linked from longest to shortest (`inner`). How many bytes the found text shares with the
 * place says which of them fit.
 *
 *     <s>      <- inner of <s>a and <s>b          at "<s>x" the search ends on <s>b, which shares
 *     <s>a                                        three bytes: too short for itself, right for <s>
 *     <s>b
 *
 * Fails only for want of memory, when it is made.
 */
#include "tokenizer/prefix_set.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

/* What the comparison of qsort needs. */
typedef struct sortable {
    gguf_string text;
    cellar_token id;
    bool is_typed_apart; /* not a user-defined token */
} sortable;

static bool is_member(const vocabulary *v, uint32_t types, uint32_t id)
{
    return (types >> v->types[id] & 1) != 0 && v->texts[id].length >= 1 &&
           v->texts[id].length <= PREFIX_SET_LONGEST_TEXT;
}

static bool is_typed_apart(const vocabulary *v, cellar_token id)
{
    return v->types[id] != TOKEN_USER_DEFINED;
}

static int compare_texts(gguf_string a, gguf_string b)
{
    int order = memcmp(a.data, b.data, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

/*
 * By text. The search ends on the last of equal ones: user-defined tokens follow all others, and
 * the lowest id follows all others of its kind.
 */
static int compare_sortables(const void *left, const void *right)
{
    const sortable *a = left, *b = right;
    int order = compare_texts(a->text, b->text);
    if (order == 0) {
        order = b->is_typed_apart - a->is_typed_apart;
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
    return s->is_typed_apart == next->is_typed_apart && compare_texts(s->text, next->text) == 0;
}

/* Move the sorted texts into the entries, link their beginnings, and index them by first byte. */
static void link_entries(prefix_set *set, const sortable *sorted, uint32_t n_sorted)
{
    const vocabulary *v = set->vocabulary;
    for (uint32_t i = 0; i < n_sorted; i++) {
        if (i + 1 < n_sorted && is_hidden(&sorted[i], &sorted[i + 1])) {
            continue;
        }
        int32_t inner = (int32_t)set->n - 1;
        while (inner >= 0 && !begins_with(sorted[i].text, v->texts[set->entries[inner].id])) {
            inner = set->entries[inner].inner;
        }
        set->entries[set->n++] = (prefix_entry){.id = sorted[i].id, .inner = inner};
        set->first[(unsigned char)sorted[i].text.data[0] + 1] = set->n;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (set->first[byte + 1] < set->first[byte]) {
            set->first[byte + 1] = set->first[byte]; /* none begins with it */
        }
    }
}

cellar_status prefix_set_create(const vocabulary *v, uint32_t types, prefix_set *set,
                                cellar_error *error)
{
    memset(set, 0, sizeof *set);
    set->vocabulary = v;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        n += is_member(v, types, i);
    }
    if (n == 0) {
        return CELLAR_OK;
    }
    sortable *sorted = malloc(n * sizeof *sorted);
    set->entries = malloc(n * sizeof *set->entries);
    if (sorted == NULL || set->entries == NULL) {
        free(sorted);
        prefix_set_free(set);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %u texts", (unsigned)n);
    }
    for (uint32_t i = 0, to = 0; i < v->n; i++) {
        if (is_member(v, types, i)) {
            sorted[to++] = (sortable){v->texts[i], (cellar_token)i,
                                      is_typed_apart(v, (cellar_token)i)};
        }
    }
    qsort(sorted, n, sizeof *sorted, compare_sortables);
    link_entries(set, sorted, n);
    free(sorted);
    return CELLAR_OK;
}

void prefix_set_free(prefix_set *set)
{
    free(set->entries);
    memset(set, 0, sizeof *set);
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

int32_t prefix_set_find(const prefix_set *set, const char *text, size_t length)
{
    const vocabulary *v = set->vocabulary;
    const gguf_string place = {text, length};
    unsigned char byte = (unsigned char)text[0];
    uint32_t low = set->first[byte], high = set->first[byte + 1], begin = low;
    while (low < high) { /* all before low sort at or before the place, all from high on after it */
        uint32_t middle = low + (high - low) / 2;
        if (compare_texts(v->texts[set->entries[middle].id], place) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == begin) {
        return -1;
    }
    int32_t entry = (int32_t)low - 1;
    size_t shared = count_shared_bytes(v->texts[set->entries[entry].id], place);
    while (entry >= 0 && v->texts[set->entries[entry].id].length > shared) {
        entry = set->entries[entry].inner;
    }
    return entry;
}
