/*
 * prefix_index.h: texts in the order of their tokens, and which of them begin like a prompt.
 *
 * A sorted array in which each text has the number of tokens that it has in common with the one before
 * it. Those numbers make the array a radix tree: what two texts have in common is the smallest number
 * between them. So the texts that agree with a prompt longest stand where it would be inserted, and
 * agreement only falls with the distance from there.
 *
 *     tokens             common
 *     1 2 3                0
 *     1 2 3 7 8            3        <- prompt 1 2 3 7 9 would stand behind it: it agrees in 4 tokens,
 *     1 2 5                2           those around it in 3 and 2
 *     4                    0
 *
 * A shorter text stands before those that it begins; equal ones beside each other in any order. Only
 * making room for one more can fail.
 */
#ifndef CL_PREFIX_INDEX_H
#define CL_PREFIX_INDEX_H

#include "alloc.h"

/* A text in an index, part of something larger that owns the tokens. */
typedef struct cl_prefix_text {
    cellar_token *tokens; /* [n]; may move, but not change while the text is in an index */
    uint32_t n;
    uint32_t common; /* tokens in common with the one before it; the first: 0 */
    uint32_t at;     /* where it is in the index */
} cl_prefix_text;

typedef struct cl_prefix_index {
    cl_prefix_text **items; /* [n] */
    uint32_t n, capacity;
} cl_prefix_index;

/* How many tokens two texts have in common, if they are known to agree in the first `known`. */
uint32_t cl_prefix_index_common(const cellar_token *a, uint32_t n_a, const cellar_token *b,
                                uint32_t n_b, uint32_t known);

/* Make room for one more text; false: no memory. */
bool cl_prefix_index_reserve(cl_prefix_index *index, cl_alloc *alloc);
void cl_prefix_index_free(cl_prefix_index *index, cl_alloc *alloc);

/* Put a text in (there is room), or take one out. */
void cl_prefix_index_put(cl_prefix_index *index, cl_prefix_text *text);
void cl_prefix_index_take(cl_prefix_index *index, cl_prefix_text *text);

/* A text that is in gets longer (text->tokens has n by now), or shorter. */
void cl_prefix_index_grow(cl_prefix_index *index, cl_prefix_text *text, uint32_t n);
void cl_prefix_index_shrink(cl_prefix_index *index, cl_prefix_text *text, uint32_t n);

/* Texts in the order of how many tokens they have in common with a prompt, most first. */
typedef struct cl_prefix_walk {
    const cl_prefix_index *index;
    uint32_t left, right; /* the next ones are items[left - 1] and items[right] */
    uint32_t left_common, right_common;
} cl_prefix_walk;

cl_prefix_walk cl_prefix_walk_begin(const cl_prefix_index *index, const cellar_token *tokens,
                                    uint32_t n);

/* The next one, and what it has in common with the prompt; NULL: no other has anything. */
cl_prefix_text *cl_prefix_walk_next(cl_prefix_walk *walk, uint32_t *common);

#endif /* CL_PREFIX_INDEX_H */
