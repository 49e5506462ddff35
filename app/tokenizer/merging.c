/*
 * merging.c: a heap of candidate pairs over a linked list of symbols.
 *
 * A symbol that was merged into its left neighbour has length 0. A candidate names its left symbol
 * and how many bytes the pair would have together.
 *
 *   1. offer each pair of neighbours that may be joined
 *   2. take the best candidate; it is stale if its left symbol is gone or the pair no longer has
 *      that length (symbols only grow, so equal length means the same two symbols)
 *   3. join the two; offer the new symbol with its right and with its left neighbour; back to 2
 *
 * Each merge takes one candidate off and adds at most two, so there are never more than 2n, and
 * the whole costs O(n log n). Fails only for want of memory.
 */
#include "tokenizer/merging.h"

#include <stdlib.h>

/* ---- the heap ------------------------------------------------------------------------------- */

static bool is_better(const merging_candidate *a, const merging_candidate *b)
{
    return a->order < b->order || (a->order == b->order && a->left < b->left);
}

static bool heap_push(merging *m, merging_candidate added)
{
    if (m->n_heap == m->heap_capacity) {
        size_t capacity = m->heap_capacity < 64 ? 64 : m->heap_capacity + m->heap_capacity / 2;
        if (capacity > SIZE_MAX / sizeof *m->heap) {
            return false;
        }
        merging_candidate *heap = realloc(m->heap, capacity * sizeof *heap);
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
        m->steps++;
    }
    m->heap[i] = added;
    return true;
}

static merging_candidate heap_pop(merging *m)
{
    merging_candidate best = m->heap[0], moving = m->heap[--m->n_heap];
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
        m->steps++;
    }
    m->heap[i] = moving;
    return best;
}

/* ---- symbols -------------------------------------------------------------------------------- */

bool merging_reserve(merging *m, size_t n)
{
    m->n_symbols = 0;
    if (n <= m->symbols_capacity) {
        return true;
    }
    if (n >= MERGING_NONE || n > SIZE_MAX / sizeof *m->symbols) {
        return false;
    }
    free(m->symbols); /* what they held is done with */
    m->symbols = malloc(n * sizeof *m->symbols);
    m->symbols_capacity = m->symbols != NULL ? (uint32_t)n : 0;
    return m->symbols != NULL;
}

void merging_append(merging *m, uint32_t start, uint32_t length, cellar_token id)
{
    uint32_t i = m->n_symbols++;
    if (i > 0) {
        m->symbols[i - 1].after = i;
    }
    m->symbols[i] = (symbol){
        .start = start,
        .length = length,
        .before = i > 0 ? i - 1 : MERGING_NONE,
        .after = MERGING_NONE,
        .id = id,
    };
}

void merging_free(merging *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (merging){0};
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Make the pair (left, its right neighbour) a candidate, if it may be joined. */
static bool offer(merging *m, uint32_t left, merging_pair pair, const void *context)
{
    const symbol *a = &m->symbols[left];
    m->steps++;
    if (a->after == MERGING_NONE) {
        return true;
    }
    const symbol *b = &m->symbols[a->after];
    uint32_t order = 0;
    cellar_token id = pair(context, a, b, &order);
    return id < 0 || heap_push(m, (merging_candidate){order, left, a->length + b->length, id});
}

static bool is_stale(const merging *m, const merging_candidate *c)
{
    const symbol *left = &m->symbols[c->left];
    return left->length == 0 || left->after == MERGING_NONE ||
           left->length + m->symbols[left->after].length != c->length;
}

static void join(merging *m, const merging_candidate *c)
{
    symbol *left = &m->symbols[c->left], *right = &m->symbols[left->after];
    left->length = c->length;
    left->id = c->id;
    left->after = right->after;
    right->length = 0;
    if (left->after != MERGING_NONE) {
        m->symbols[left->after].before = c->left;
    }
}

bool merging_run(merging *m, merging_pair pair, const void *context)
{
    for (uint32_t i = 0; i < m->n_symbols; i++) {
        if (!offer(m, i, pair, context)) {
            return false;
        }
    }
    while (m->n_heap > 0) {
        merging_candidate best = heap_pop(m);
        if (is_stale(m, &best)) {
            continue;
        }
        join(m, &best);
        uint32_t before = m->symbols[best.left].before;
        if (!offer(m, best.left, pair, context) ||
            (before != MERGING_NONE && !offer(m, before, pair, context))) {
            return false;
        }
    }
    return true;
}
