/*
 * cells.h: slots for tokens, written once and counted.
 *
 * A cell is free (its bit in the free map is set and nobody holds it) or held (its count says by
 * how many runs of sequences, or by an open step). While it is held its rows, its stored position
 * and its token never change; that is why sharing needs neither copies nor locks. Free cells have
 * no contents: nothing reads them.
 *
 * Cells are grouped in blocks of CL_BLOCK, the unit of storage layout (storage.h) and of claims: a
 * sequence that grows token by token claims the block it grows in, so that sequences which decode
 * side by side do not interleave cell by cell. A claim is soft: placement.c ignores it as soon as
 * free cells elsewhere run out.
 *
 *     one block of memory:  refs[n] | stored_pos[n] | token[n] | claims[blocks] | free map words
 */
#ifndef CL_CELLS_H
#define CL_CELLS_H

#include "alloc.h"

#define CL_BLOCK 32u /* cells in a block */
#define CL_NO_CELL UINT32_MAX
#define CL_NO_BLOCK UINT32_MAX

typedef struct cl_cells {
    uint32_t n;        /* cells */
    uint32_t n_blocks; /* ceil(n / CL_BLOCK) */
    uint32_t n_free;   /* bits set in the free map */
    uint32_t n_shared; /* cells with refs >= 2 */
    uint32_t *refs;    /* [n] runs, over all sequences, that cover the cell; 0 iff its bit is set */
    int32_t *stored_pos; /* [n] position its keys are rotated for; defined while held */
    int32_t *token;      /* [n] token id or -1; defined while held */
    uint32_t *claims;    /* [n_blocks] owner (sequence slot + 1) or 0 */
    uint64_t *free_map;  /* [n_words] bit i: cell i is free */
    uint32_t n_words;
    uint32_t first_free;      /* no cell below it is free: where searches start */
    uint32_t first_untouched; /* no block below it is wholly free and unclaimed */
    uint32_t first_unclaimed; /* no block below it has a free cell and no claim */
    void *memory;
    size_t memory_size;
} cl_cells;

/* Bytes for n cells; false if that does not fit. */
bool cl_cells_measure(uint32_t n, size_t *bytes);

/* All free. False: no memory. */
bool cl_cells_create(cl_cells *cells, uint32_t n, cl_alloc *alloc);
void cl_cells_destroy(cl_cells *cells, cl_alloc *alloc);

/* Forget everything: all free, no claims. */
void cl_cells_clear(cl_cells *cells);

/* Take n free cells from `cell` on: no longer free, count `refs` each. */
void cl_cells_take(cl_cells *cells, uint32_t cell, uint32_t n, uint32_t refs);

/* One more holder for each of n held cells. */
void cl_cells_hold(cl_cells *cells, uint32_t cell, uint32_t n);

/* One holder less for each of n held cells; those without any become free. */
void cl_cells_release(cl_cells *cells, uint32_t cell, uint32_t n);

/* A block may have become useful to others again: searches must not start behind it. */
static inline void cl_cells_offer(cl_cells *cells, uint32_t block)
{
    if (block < cells->first_untouched) cells->first_untouched = block;
    if (block < cells->first_unclaimed) cells->first_unclaimed = block;
}

/* Set or (owner 0) clear the claim of a block. */
void cl_cells_claim(cl_cells *cells, uint32_t block, uint32_t owner);

/* Length of the longest stretch of free cells. Scans the map. */
uint32_t cl_cells_longest_free(const cl_cells *cells);

#endif /* CL_CELLS_H */
