/*
 * prefix_index.c: texts in the order of their tokens.
 *
 * A binary search that starts each comparison where both ends of its range already agree, so that a long
 * common beginning is compared once and not log n times. Everything else follows from one fact: what two
 * texts have in common is the smallest `common` of those behind the first up to the second.
 */
#include "prefix_index.h"

uint32_t cl_prefix_index_common(const cellar_token *a, uint32_t n_a, const cellar_token *b,
                                uint32_t n_b, uint32_t known)
{
    uint32_t n = n_a < n_b ? n_a : n_b, i = known;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

bool cl_prefix_index_reserve(cl_prefix_index *index, cl_alloc *alloc)
{
    void *items = index->items;
    if (!cl_alloc_reserve(alloc, CELLAR_BYTES_OBJECT, &items, &index->capacity,
                          (uint64_t)index->n + 1, sizeof *index->items))
        return false;
    index->items = items;
    return true;
}

void cl_prefix_index_free(cl_prefix_index *index, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_OBJECT, index->items, index->capacity * sizeof *index->items);
    *index = (cl_prefix_index){0};
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Does a text that has `common` tokens in common with a prompt stand before it? */
static bool is_before(const cl_prefix_text *text, const cellar_token *tokens, uint32_t n,
                      uint32_t common)
{
    if (common == text->n) return common < n;
    return common < n && text->tokens[common] < tokens[common];
}

cl_prefix_walk cl_prefix_walk_begin(const cl_prefix_index *index, const cellar_token *tokens,
                                    uint32_t n)
{
    uint32_t low = 0, high = index->n, low_common = 0, high_common = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const cl_prefix_text *text = index->items[middle];
        uint32_t common = cl_prefix_index_common(text->tokens, text->n, tokens, n,
                                                 smaller(low_common, high_common));
        if (is_before(text, tokens, n, common)) {
            low = middle + 1;
            low_common = common;
        } else {
            high = middle;
            high_common = common;
        }
    }
    return (cl_prefix_walk){index, low, low, low_common, high_common};
}

cl_prefix_text *cl_prefix_walk_next(cl_prefix_walk *walk, uint32_t *common)
{
    cl_prefix_text **items = walk->index->items;
    bool has_left = walk->left > 0 && walk->left_common > 0;
    bool has_right = walk->right < walk->index->n && walk->right_common > 0;
    if (has_right && (!has_left || walk->right_common >= walk->left_common)) {
        *common = walk->right_common;
        cl_prefix_text *text = items[walk->right++];
        if (walk->right < walk->index->n)
            walk->right_common = smaller(walk->right_common, items[walk->right]->common);
        return text;
    }
    if (!has_left) return NULL;
    *common = walk->left_common;
    cl_prefix_text *text = items[--walk->left];
    walk->left_common = smaller(walk->left_common, text->common);
    return text;
}

void cl_prefix_index_put(cl_prefix_index *index, cl_prefix_text *text)
{
    cl_prefix_walk seat = cl_prefix_walk_begin(index, text->tokens, text->n);
    for (uint32_t i = index->n++; i > seat.left; i--) {
        index->items[i] = index->items[i - 1];
        index->items[i]->at = i;
    }
    index->items[seat.left] = text;
    text->at = seat.left;
    text->common = seat.left_common;
    if (text->at + 1 < index->n) index->items[text->at + 1]->common = seat.right_common;
}

void cl_prefix_index_take(cl_prefix_index *index, cl_prefix_text *text)
{
    uint32_t at = text->at;
    if (at + 1 < index->n)
        index->items[at + 1]->common = smaller(index->items[at + 1]->common, text->common);
    index->n--;
    for (uint32_t i = at; i < index->n; i++) {
        index->items[i] = index->items[i + 1];
        index->items[i]->at = i;
    }
}

void cl_prefix_index_grow(cl_prefix_index *index, cl_prefix_text *text, uint32_t n)
{
    uint32_t old = text->n;
    cl_prefix_text *next = text->at + 1 < index->n ? index->items[text->at + 1] : NULL;
    if (next && next->common == old) { /* it was the beginning of the next one: is it still? */
        uint32_t common = cl_prefix_index_common(text->tokens, n, next->tokens, next->n, old);
        bool is_behind = common < n &&
                         (common == next->n || next->tokens[common] < text->tokens[common]);
        if (is_behind) {
            cl_prefix_index_take(index, text);
            text->n = n;
            cl_prefix_index_put(index, text);
            return;
        }
        next->common = common;
    }
    text->n = n;
}

void cl_prefix_index_shrink(cl_prefix_index *index, cl_prefix_text *text, uint32_t n)
{
    if (n == text->n) return;
    cl_prefix_index_take(index, text);
    text->n = n;
    cl_prefix_index_put(index, text);
}
