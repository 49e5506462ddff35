/*
 * placement.h: which free cells a sequence's new tokens get.
 *
 * The promise: n free cells always hold n tokens, wherever they lie. The preference, in this order:
 *   1. go on right behind the sequence's last cell, into its own block and then unclaimed ones;
 *   2. one stretch of untouched, unclaimed blocks that is long enough;
 *   3. one stretch of free cells in unclaimed blocks that is long enough;
 *   4. the longest stretches: of untouched blocks if those are enough, else of unclaimed ones if
 *      those are enough;
 *   5. whatever is free, claimed by others or not: one stretch if there is one, else the longest.
 * The sequence then claims the block it ended in, so that its next tokens find their neighbours
 * free. Searching is a scan of the free map, 64 cells a word, from the first free cell on.
 */
#ifndef CL_PLACEMENT_H
#define CL_PLACEMENT_H

#include "cells.h"

typedef struct cl_stretch {
    uint32_t cell, len;
} cl_stretch;

/* What a placement asks for. */
typedef struct cl_request {
    uint32_t owner; /* sequence slot + 1: whose claims are respected as its own */
    uint32_t pool;  /* whose cells */
    uint32_t tail;  /* the last cell of the sequence, CL_NO_CELL if it has none */
    uint32_t n;     /* cells wanted; at most the pool's n_free */
} cl_request;

/*
 * Choose request->n cells in the order in which they are to be filled and write them to
 * out[request->n] as stretches; returns how many. Changes
 * nothing but the hints of searches: where they start, and how long a stretch can be.
 * The cells of one call are disjoint. Between two calls the caller takes the cells (cl_cells_take).
 */
uint32_t cl_placement_choose(cl_cells *cells, const cl_request *request, cl_stretch *out);

/* One stretch of n free cells of the pool, the first that fits best by the same preferences. */
bool cl_placement_choose_one(cl_cells *cells, const cl_request *request, cl_stretch *out);

/*
 * The block that the owner should claim after it was given `last` as its last cell: the block of
 * `last` if something in it is still free behind `last` and nobody else claims it; else
 * CL_NO_BLOCK.
 */
uint32_t cl_placement_claim(const cl_cells *cells, uint32_t owner, uint32_t last);

#endif /* CL_PLACEMENT_H */
