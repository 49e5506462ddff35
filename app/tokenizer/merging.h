/*
 * merging.h: join neighbours, best pair first, until no pair may be joined: what all byte-pair
 * encodings do, whatever makes a pair the best.
 *
 * The caller cuts a word into symbols and says, by a function, which two neighbours may become one
 * and how urgent that is (by score for SentencePiece, by rank for GPT-2 and its kin). Of pairs with
 * the same order the leftmost goes first. O(n log n) for any word; no recursion. The room is kept
 * from word to word.
 */
#ifndef APP_MERGING_H
#define APP_MERGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

#define MERGING_NONE UINT32_MAX

typedef struct symbol {
    uint32_t start, length; /* bytes of the text; length 0: merged into another symbol */
    uint32_t before, after; /* neighbours, or MERGING_NONE */
    cellar_token id;        /* of this text, or -1 */
} symbol;

typedef struct merging_candidate {
    uint32_t order;  /* the least goes first */
    uint32_t left;   /* symbol */
    uint32_t length; /* bytes of both */
    cellar_token id; /* of both */
} merging_candidate;

/* All zeros to begin with; merging_free at the end. */
typedef struct merging {
    symbol *symbols; /* [n_symbols], the first always is symbols[0] */
    uint32_t n_symbols, symbols_capacity;
    merging_candidate *heap;
    size_t n_heap, heap_capacity;
    uint64_t steps; /* candidates offered and taken, and moves in the heap */
} merging;

/* The id that the two make together and its order, or -1 if they may not be joined. */
typedef cellar_token (*merging_pair)(const void *context, const symbol *left, const symbol *right,
                                     uint32_t *order);

/* Room for n symbols; what the old ones held is lost. false: no memory. */
bool merging_reserve(merging *m, size_t n);
/* Add a symbol at the end; there is room. */
void merging_append(merging *m, uint32_t start, uint32_t length, cellar_token id);
/* Join until nothing is left to join. false: no memory. */
bool merging_run(merging *m, merging_pair pair, const void *context);
void merging_free(merging *m);

#endif /* APP_MERGING_H */
