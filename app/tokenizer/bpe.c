/*
 * bpe.c: byte-pair encoding by ranked merges, joined by merging.h.
 *
 * A merge is found by the ids of its two sides: all merges are sorted by left and right, and an
 * index says where those of each left side begin, so a look-up is one binary search among a few,
 * at most some thousand, entries; no file can make it slow.
 *
 * A merge whose sides or result are no normal tokens makes a byte-level file corrupt: ids would
 * silently differ from those the model was trained on, or text that somebody types become a control
 * token. Over characters such merges are left out: there they lead to user-defined tokens, which
 * are matched before any merging.
 */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/byte_text.h"
#include "tokenizer/merging.h"
#include "tokenizer/utf8.h"

#define KEY_MERGES "tokenizer.ggml.merges"
#define SPACE "\xE2\x96\x81" /* U+2581 */

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct ranked {
    cellar_token left;
    bpe_merge merge;
} ranked;

/* By left, right and rank. */
static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->left != y->left) {
        return x->left < y->left ? -1 : 1;
    }
    if (x->merge.right != y->merge.right) {
        return x->merge.right < y->merge.right ? -1 : 1;
    }
    return (x->merge.rank > y->merge.rank) - (x->merge.rank < y->merge.rank);
}

/* "left right", joined in `joined`, which has room for both; false: not three tokens. */
static bool parse_merge(const vocabulary *v, gguf_string text, char *joined, ranked *out)
{
    const char *blank = text.length > 1 ? memchr(text.data + 1, ' ', text.length - 1) : NULL;
    if (blank == NULL || text.length - 1 > v->longest_piece) {
        return false;
    }
    size_t n_left = (size_t)(blank - text.data), n_right = text.length - n_left - 1;
    memcpy(joined, text.data, n_left);
    memcpy(joined + n_left, blank + 1, n_right);
    out->left = vocabulary_find(v, joined, n_left);
    out->merge.right = vocabulary_find(v, joined + n_left, n_right);
    out->merge.merged = vocabulary_find(v, joined, n_left + n_right);
    return out->left >= 0 && out->merge.right >= 0 && out->merge.merged >= 0;
}

static cellar_status parse_merges(const gguf_value *value, const bpe *b, char *joined,
                                  ranked *merges, uint32_t *n, cellar_error *error)
{
    for (uint32_t i = 0; i < value->count; i++) {
        merges[*n].merge.rank = i;
        if (parse_merge(b->vocabulary, value->strings[i], joined, &merges[*n])) {
            ++*n;
        } else if (b->pre != NULL) {
            return report(error, CELLAR_CORRUPT, (int64_t)i,
                          KEY_MERGES "[%u] is not two tokens, with a space between them, that "
                                     "together are a third",
                          (unsigned)i);
        }
    }
    return CELLAR_OK;
}

/* Move the sorted merges over, of each pair only the first one, and index them. */
static void index_merges(bpe *b, const ranked *sorted, uint32_t n)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && sorted[i].left == sorted[i - 1].left &&
            sorted[i].merge.right == sorted[i - 1].merge.right) {
            continue;
        }
        while (left <= (uint32_t)sorted[i].left) {
            b->first[left++] = b->n_merges;
        }
        b->merges[b->n_merges++] = sorted[i].merge;
    }
    while (left <= b->vocabulary->n) {
        b->first[left++] = b->n_merges;
    }
}

static cellar_status read_merges(const gguf_file *file, bpe *b, cellar_error *error)
{
    const gguf_value *value = NULL;
    cellar_status status = gguf_get_array(file, KEY_MERGES, GGUF_STRING, 0, &value, error);
    if (status != CELLAR_OK) {
        return status == CELLAR_NOT_FOUND ? report(error, CELLAR_CORRUPT, -1, "no key " KEY_MERGES)
                                          : status;
    }
    size_t room = (size_t)value->count + 1;
    ranked *sorted = malloc(room * sizeof *sorted);
    char *joined = malloc(b->vocabulary->longest_piece + 1);
    b->merges = malloc(room * sizeof *b->merges);
    b->first = malloc(((size_t)b->vocabulary->n + 1) * sizeof *b->first);
    uint32_t n = 0;
    if (sorted == NULL || joined == NULL || b->merges == NULL || b->first == NULL) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for %llu merges",
                        (unsigned long long)value->count);
    } else {
        status = parse_merges(value, b, joined, sorted, &n, error);
    }
    if (status == CELLAR_OK) {
        qsort(sorted, n, sizeof *sorted, compare_ranked);
        index_merges(b, sorted, n);
    }
    free(joined);
    free(sorted);
    return status;
}

cellar_status bpe_create(const gguf_file *file, const vocabulary *v, const pre_tokenizer *pre,
                         bpe *out, cellar_error *error)
{
    *out = (bpe){.vocabulary = v, .pre = pre};
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        size_t n = byte_text_put((unsigned char)byte, text);
        out->byte_ids[byte] = pre != NULL ? vocabulary_find(v, text, n) : v->byte_ids[byte];
    }
    out->space_id = vocabulary_find(v, SPACE, strlen(SPACE));
    cellar_status status = read_merges(file, out, error);
    if (status != CELLAR_OK) {
        bpe_free(out);
    }
    return status;
}

void bpe_free(bpe *b)
{
    free(b->merges);
    free(b->first);
    memset(b, 0, sizeof *b);
}

/* ---- merging -------------------------------------------------------------------------------- */

static cellar_token pair(const void *context, const symbol *left, const symbol *right,
                         uint32_t *order)
{
    const bpe *b = context;
    if (left->id < 0 || right->id < 0) {
        return -1;
    }
    uint32_t low = b->first[left->id], high = b->first[left->id + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->merges[middle].right < right->id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == b->first[left->id + 1] || b->merges[low].right != right->id) {
        return -1;
    }
    *order = b->merges[low].rank;
    return b->merges[low].merged;
}

typedef struct bpe_text {
    const bpe *bpe;
    cellar_token unknown;
    id_list *ids;
    merging merging;
    char *spelled; /* a word as tokens are spelled; the vocabulary's longest_piece + 1 bytes */
} bpe_text;

static bool append_byte(bpe_text *t, unsigned char byte)
{
    cellar_token id = t->bpe->byte_ids[byte];
    id = id >= 0 ? id : t->unknown;
    return id < 0 || id_list_append(t->ids, id);
}

/* The symbols that are left, those without a token byte by byte. */
static bool append_symbols(bpe_text *t, const char *word)
{
    const symbol *symbols = t->merging.symbols;
    for (uint32_t i = 0; i != MERGING_NONE; i = symbols[i].after) {
        if (symbols[i].id >= 0 && !id_list_append(t->ids, symbols[i].id)) {
            return false;
        }
        for (uint32_t b = 0; symbols[i].id < 0 && b < symbols[i].length; b++) {
            if (!append_byte(t, (unsigned char)word[symbols[i].start + b])) {
                return false;
            }
        }
    }
    return true;
}

static bool merge_and_append(bpe_text *t, const char *word)
{
    return merging_run(&t->merging, pair, t->bpe) && append_symbols(t, word);
}

/* ---- over bytes ----------------------------------------------------------------------------- */

/* The word as a token of its own, or -1. */
static cellar_token find_word(bpe_text *t, const char *word, size_t length)
{
    const vocabulary *v = t->bpe->vocabulary;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (n + 2 > v->longest_piece + 1) {
            return -1;
        }
        n += byte_text_put((unsigned char)word[i], t->spelled + n);
    }
    return vocabulary_find(v, t->spelled, n);
}

static bool encode_word(bpe_text *t, const char *word, size_t length)
{
    if (length == 1) {
        return append_byte(t, (unsigned char)word[0]);
    }
    if (pre_tokenizer_keeps_tokens(t->bpe->pre)) {
        cellar_token id = find_word(t, word, length);
        if (id >= 0) {
            return id_list_append(t->ids, id);
        }
    }
    if (!merging_reserve(&t->merging, length)) {
        return false;
    }
    for (uint32_t i = 0; i < length; i++) {
        merging_append(&t->merging, i, 1, t->bpe->byte_ids[(unsigned char)word[i]]);
    }
    return merge_and_append(t, word);
}

static cellar_status visit_word(void *context, const char *word, size_t length)
{
    return encode_word(context, word, length) ? CELLAR_OK : CELLAR_NO_MEMORY;
}

/* ---- over characters ------------------------------------------------------------------------ */

/* The whole text is one word; a space in front has no bytes of its own. */
static bool encode_characters(bpe_text *t, const char *text, size_t length)
{
    if (!merging_reserve(&t->merging, length)) {
        return false;
    }
    for (size_t at = 0, n; at < length; at += n) {
        utf8_kind kind = utf8_scan((const unsigned char *)text + at, length - at, &n);
        n = kind == UTF8_WHOLE ? n : 1;
        cellar_token id = text[at] == ' ' ? t->bpe->space_id
                                          : vocabulary_find(t->bpe->vocabulary, text + at, n);
        merging_append(&t->merging, (uint32_t)at, (uint32_t)n, id);
    }
    return merge_and_append(t, text);
}

/* The text with a space before it, or NULL: no memory. */
static char *put_space_before(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy != NULL) {
        copy[0] = ' ';
        if (length > 0) {
            memcpy(copy + 1, text, length);
        }
    }
    return copy;
}

cellar_status bpe_encode(const bpe *b, cellar_token unknown, const char *text, size_t length,
                         bool add_space, id_list *ids, uint64_t *steps, cellar_error *error)
{
    if (length == 0 && !add_space) {
        return CELLAR_OK;
    }
    bpe_text t = {.bpe = b, .unknown = unknown, .ids = ids};
    uint64_t split_steps = 0;
    char *spaced = add_space ? put_space_before(text, length) : NULL;
    const char *from = add_space ? spaced : text;
    size_t n = length + add_space;
    t.spelled = malloc(b->vocabulary->longest_piece + 1);
    bool is_done = t.spelled != NULL && from != NULL;
    if (is_done && b->pre != NULL) {
        is_done = pre_tokenizer_split(b->pre, from, n, visit_word, &t, &split_steps) == CELLAR_OK;
    } else if (is_done) {
        is_done = encode_characters(&t, from, n);
    }
    if (steps != NULL) {
        *steps += split_steps + t.merging.steps;
    }
    merging_free(&t.merging);
    free(t.spelled);
    free(spaced);
    if (!is_done) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to tokenize %llu bytes",
                      (unsigned long long)length);
    }
    return CELLAR_OK;
}
